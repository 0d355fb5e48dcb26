"""The size of the image as a JPEG: how compressible, or how rich in detail, it is."""

import io
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator
    from PIL.Image import Image


class JpegSizeOptions(BaseModel):
    """The direction and the encoder's settings; scores of different settings cannot be compared."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # compressibility: a smaller file is better | incompressibility: a larger file is better
    direction: Literal["compressibility", "incompressibility"] = "compressibility"
    quality: int = Field(default=95, ge=1, le=100)  # libjpeg's scale
    subsampling: Literal["4:4:4", "4:2:2", "4:2:0"] = "4:2:0"  # of the colour channels


class JpegSizeReward(PointwiseRewardModel):
    """kB (1,000 bytes) of the image as a JPEG; for compressibility negated, so higher is better.

    The rewards of Black et al. 2023, "Training Diffusion Models with Reinforcement Learning"
    (quality 95). Sizes depend on the encoder: its settings and versions stand in `provenance`.
    Metadata of the image (comment, colour profile) is left out, so pixels alone count. A side over
    65,535 pixels is an error.
    """

    required_fields = ("image",)
    thread_safe = True
    Options = JpegSizeOptions
    score_range: tuple[float | None, float | None] | None = (None, 0.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        from PIL import features

        super().__init__(config, accelerator)
        self.options: JpegSizeOptions = config.options
        self.sign = -1.0 if self.options.direction == "compressibility" else 1.0
        if self.sign > 0:
            self.score_range = (0.0, None)
        turbo = features.version("libjpeg_turbo")
        self.provenance: dict[str, str] = {
            "pillow": version("pillow"),
            "libjpeg": f"libjpeg-turbo {turbo}" if turbo else f"libjpeg {features.version('jpg')}",
            "quality": str(self.options.quality),
            "subsampling": self.options.subsampling,
        }

    def __call__(self, *, image: list["Image"], **_: Any) -> RewardModelOutput:
        """Scores in kB."""
        return RewardModelOutput([self.sign * self._kilobytes(picture) for picture in image])

    def _kilobytes(self, picture: "Image") -> float:
        plain = picture.copy()
        plain.info = {}  # Pillow writes what it knows of the source file, as its comment
        buffer = io.BytesIO()
        plain.save(
            buffer,
            format="JPEG",
            quality=self.options.quality,
            subsampling=self.options.subsampling,
        )
        return len(buffer.getvalue()) / 1000
