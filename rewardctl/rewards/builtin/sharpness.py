"""How sharp an image is: the variance of its Laplacian."""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    from PIL.Image import Image


class SharpnessOptions(BaseModel):
    """No options: a typo under `options:` is still found."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class SharpnessReward(PointwiseRewardModel):
    """Variance of the Laplacian, in squared grey levels (of 0 to 255): >= 0, sharper is higher.

    LAPV of Pech-Pacheco et al. 2000, "Diatom autofocusing in brightfield microscopy: a comparative
    study", with the kernel 0 1 0 / 1 -4 1 / 0 1 0 and mirrored borders (the edge not repeated), as
    OpenCV's `Laplacian(grey, CV_64F).var()`. Grey is ITU-R 601 luma, rounded. Noise counts as
    sharpness, and sizes matter: compare images of one resolution.
    """

    required_fields = ("image",)
    thread_safe = True
    Options = SharpnessOptions
    score_range = (0.0, None)

    def __call__(self, *, image: list["Image"], **_: Any) -> RewardModelOutput:
        """Scores in squared grey levels."""
        return RewardModelOutput([laplacian_variance(picture) for picture in image])


def laplacian_variance(picture: "Image") -> float:
    """The population variance of the Laplacian over all pixels."""
    import numpy as np

    grey = np.asarray(picture.convert("L"), dtype=np.float64)
    padded = np.pad(grey, 1, mode="reflect")
    neighbours = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    return float((neighbours - 4.0 * grey).var())
