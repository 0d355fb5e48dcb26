"""What a call is given: sample fields gathered into keyword lists, media in the form the model
asked for.
"""

from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rewardctl.config.schema import MediaConfig
from rewardctl.data.media import decode
from rewardctl.data.media_ref import MediaRef
from rewardctl.data.samples import MEDIA_KINDS, BaseSample
from rewardctl.errors import RowError
from rewardctl.rewards.abc import BaseRewardModel

if TYPE_CHECKING:
    import torch

Token = tuple[int, str, int]  # place in the call, field, place in the field's list
Media = Mapping[Hashable, Any]  # decoded media, or the RowError that came instead, by Token
MediaUse = tuple[Hashable, str, Any]  # Token, kind, MediaRef or list of frames


def media_uses(fields: Sequence[str], samples: Sequence[BaseSample]) -> list[MediaUse]:
    """The media of a call that are still references, for decoding ahead."""
    uses: list[MediaUse] = []
    for name in fields:
        kind = MEDIA_KINDS.get(name)
        if kind is None:
            continue
        for place, sample in enumerate(samples):
            for index, entry in enumerate(_entries(name, getattr(sample, name))):
                if _is_reference(entry):
                    uses.append(((place, name, index), kind, entry))
    return uses


def _entries(name: str, value: Any) -> Sequence[Any]:
    """The single media of a field: conditions are lists of them, the others are one."""
    return value if name.startswith("condition_") else (value,)


def _is_reference(entry: Any) -> bool:
    if isinstance(entry, MediaRef):
        return True
    return isinstance(entry, list) and bool(entry) and isinstance(entry[0], MediaRef)


def gather(
    model: BaseRewardModel,
    fields: Sequence[str],
    samples: Sequence[BaseSample],
    media: Media | None,
    settings: MediaConfig,
) -> tuple[dict[str, list[Any]], dict[int, RowError]]:
    """Keyword lists for one call, and the samples (by place) that cannot take part in it.

    The lists hold the other samples only, in order. `media` are decoded ahead; without them
    references are decoded here.
    """
    faults: dict[int, RowError] = {}
    columns: dict[str, list[Any]] = {}
    for name in fields:
        if name not in MEDIA_KINDS:
            columns[name] = [getattr(sample, name) for sample in samples]
            if name == "tokens" and not model.use_token_arrays:
                columns[name] = [v.tolist() if type(v) is array else v for v in columns[name]]
            continue
        column: list[Any] = []
        for place, sample in enumerate(samples):
            try:
                column.append(_media_value(name, place, sample, media, settings))
            except RowError as error:
                faults.setdefault(place, error)
                column.append(None)
        columns[name] = column
    if faults:
        alive = [place for place in range(len(samples)) if place not in faults]
        columns = {name: [column[p] for p in alive] for name, column in columns.items()}
    if "audio" in columns:
        pairs = columns["audio"]
        columns["audio"] = [array for array, _ in pairs]
        columns["audio_sample_rate"] = [rate for _, rate in pairs]
    if model.use_tensor_inputs:
        for name in columns:
            if name in MEDIA_KINDS:
                columns[name] = [_to_tensors(name, value, model.device) for value in columns[name]]
    return columns, faults


def _media_value(
    name: str, place: int, sample: BaseSample, media: Media | None, settings: MediaConfig
) -> Any:
    value = getattr(sample, name)
    if not name.startswith("condition_"):
        return _decoded((place, name, 0), value, sample, media, settings)
    return [
        _decoded((place, name, index), entry, sample, media, settings)
        for index, entry in enumerate(value)
    ]


def _decoded(
    token: Token, entry: Any, sample: BaseSample, media: Media | None, settings: MediaConfig
) -> Any:
    if not _is_reference(entry):
        return _canonical(token[1], entry, sample, settings)
    decoded = decode(MEDIA_KINDS[token[1]], entry, settings) if media is None else media[token]
    if isinstance(decoded, RowError):
        raise decoded
    return decoded


def _canonical(name: str, value: Any, sample: BaseSample, settings: MediaConfig) -> Any:
    """Media that a Python user put on a sample, as a decoded file of that kind would be."""
    from rewardctl.data import convert

    kind = MEDIA_KINDS[name]
    if kind == "image":
        return convert.as_image(value, settings)
    if kind == "video":
        return convert.as_video(value, settings)
    if kind == "audio":
        rate = sample.audio_sample_rate
        if rate is None:
            raise RowError("missing_field", "audio is given without audio_sample_rate; set it too")
        return convert.as_audio(value, rate), rate
    import numpy as np

    return np.asarray(value, dtype=np.float32)


def _to_tensors(name: str, value: Any, device: "torch.device") -> Any:
    import torch

    from rewardctl.data import convert

    convert_one: dict[str, Callable[[Any], torch.Tensor]] = {
        "image": convert.image_tensor,
        "video": convert.video_tensor,
        "audio": convert.audio_tensor,
        "latents": torch.from_numpy,
    }
    single = convert_one[MEDIA_KINDS[name]]
    if not name.startswith("condition_"):
        return single(value).to(device)
    return convert.stack_or_list([single(entry).to(device) for entry in value])
