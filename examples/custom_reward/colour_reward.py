"""A reward class in the shape that Flow-Factory's users write: only its import lines differ here.

There they are:

    from flow_factory.hparams import RewardArguments
    from flow_factory.rewards import PointwiseRewardModel, RewardModelOutput
"""

import torch
from accelerate import Accelerator
from PIL import Image, ImageStat

from rewardctl.rewards import PointwiseRewardModel, RewardArguments, RewardModelOutput

COLOURS = {
    "red": (255, 0, 0),
    "green": (0, 128, 0),
    "blue": (0, 0, 255),
    "yellow": (255, 255, 0),
    "black": (0, 0, 0),
    "white": (255, 255, 255),
}
WIDEST = 255 * 3**0.5  # distance from black to white


class ColourReward(PointwiseRewardModel):
    """How near an image's mean colour is to the first colour that its prompt names.

    0 to 1, higher is better.
    """

    required_fields = ("prompt", "image")
    use_tensor_inputs = False

    def __init__(self, config: RewardArguments, accelerator: Accelerator) -> None:
        super().__init__(config, accelerator)
        self.fallback = config.extra_kwargs.get("fallback", "white")

    @torch.no_grad()
    def __call__(
        self,
        prompt: list[str],
        image: list[Image.Image] | None = None,
        video: list[list[Image.Image]] | None = None,
        condition_images: list[list[Image.Image]] | None = None,
        condition_videos: list[list[list[Image.Image]]] | None = None,
    ) -> RewardModelOutput:
        pictures = image if image is not None else [frames[0] for frames in video or []]
        means = torch.tensor([ImageStat.Stat(picture).mean for picture in pictures])
        wanted = torch.tensor([self.colour_of(text) for text in prompt], dtype=means.dtype)
        distances = torch.linalg.vector_norm(means - wanted, dim=1)
        rewards = (1 - distances / WIDEST).to(self.device)
        return RewardModelOutput(rewards=rewards, extra_info={"mean_colour": means.tolist()})

    def colour_of(self, prompt: str) -> tuple[int, int, int]:
        """RGB of the first colour word of a prompt, or of the fallback."""
        for word in prompt.lower().split():
            if word in COLOURS:
                return COLOURS[word]
        return COLOURS[self.fallback]
