"""What the tests of the built-in reward models share: configured models, images of text."""

from collections.abc import Callable

import pytest
from accelerate import Accelerator
from PIL import Image, ImageDraw, ImageFont

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import BaseRewardModel
from rewardctl.rewards.loader import load_reward_model


@pytest.fixture(scope="session")
def build() -> Callable[..., BaseRewardModel]:
    """`build("length", min=3)`: the reward model of that name with these options."""
    accelerator = Accelerator(cpu=True)

    def build_model(
        reward_model: str, *, model_path: str | None = None, **options
    ) -> BaseRewardModel:
        args = RewardArguments(
            name="stream", reward_model=reward_model, model_path=model_path, options=options
        )
        return load_reward_model(args, accelerator)

    return build_model


@pytest.fixture(scope="session")
def draw_text() -> Callable[..., Image.Image]:
    """`draw_text("OPEN")`: black letters on white, as RGB."""

    def draw(text: str, *, size: tuple[int, int] = (320, 96), letters: int = 40) -> Image.Image:
        image = Image.new("RGB", size, "white")
        font = ImageFont.load_default(letters)
        ImageDraw.Draw(image).multiline_text((16, 16), text, fill="black", font=font)
        return image

    return draw
