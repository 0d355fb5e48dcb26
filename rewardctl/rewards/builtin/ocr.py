"""Whether the text that the prompt asks for stands in the image."""

import re
import unicodedata
from importlib.metadata import distribution, version
from itertools import permutations
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError, RowError, quote
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput
from rewardctl.rewards.builtin import metadata_texts

if TYPE_CHECKING:
    from accelerate import Accelerator
    from PIL.Image import Image

# A straight mark behind a digit is inches (12" pizza) and opens nothing.
DOUBLE_QUOTED = re.compile(
    r'(?<!\d)"([^"]*)"|“([^”]*)”|„([^“”]*)[“”]|«([^»]*)»|「([^」]*)」|『([^』]*)』'
)
# Single marks open before a word and close behind one, so the apostrophe of don't does neither.
SINGLE_QUOTED = re.compile(
    r"(?<!\w)'(?=[^\s'])(.*?\S)'(?!\w)|(?<!\w)‘(?=[^\s’])(.*?\S)’(?!\w)", re.DOTALL
)
TYPOGRAPHY = str.maketrans("‘’‚‛ʼ′“”„‟″‐‑‒–—―−", "''''''\"\"\"\"\"-------")
MAX_ORDERED = 4  # wanted texts of which every order is tried; more are taken in the prompt's order


class OcrOptions(BaseModel):
    """Where the wanted text stands, and how the reader is run."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # Metadata key of the wanted text, or of a list of texts. None: what the prompt has in quotation
    # marks.
    target_key: str | None = None
    threads: int = Field(default=1, ge=1)  # of ONNX Runtime


class OcrReward(PointwiseRewardModel):
    """How much of the wanted text RapidOCR reads in the image: in [0, 1], 1.0 where all is there.

    The score of Flow-GRPO (Liu et al. 2025, github.com/yifan123/flow_grpo): 1.0 where the wanted
    text is part of the text found, else max(0, 1 - Levenshtein(found, wanted) / len(wanted)). Both
    are compared without white space and case, in Unicode NFKC (² is 2), with straight quotes and
    plain hyphens. Text found is joined line by line, left to right.

    Wanted is what the prompt has in quotation marks: "…", “…”, „…“, «…», 「…」; '…' and ‘…’ count
    where there are none of those. All are wanted, empty ones are left out. Several texts score 1.0
    where each is found anywhere; otherwise they are joined, up to four in the order that fits best.
    A prompt without quoted text is an error of its row, never compared whole.

    Runs on the CPU in float32, whatever `device` and `dtype` say, with the models in the rapidocr
    package.
    """

    required_fields = ("image", "prompt")
    optional_fields = ()
    thread_safe = False  # RapidOCR keeps the state of a call on its engine
    Options = OcrOptions
    requires = ("rapidocr", "onnxruntime")
    extra = "ocr"
    score_range = (0.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        self.options: OcrOptions = config.options
        if self.options.target_key is not None:
            self.required_fields = ("image", "metadata")
        self.provenance = {name: version(name) for name in ("rapidocr", "onnxruntime")}
        self.engine = build_engine(threads=self.options.threads)

    def __call__(
        self,
        *,
        image: list["Image"],
        prompt: list[str] | None = None,
        metadata: list[str] | None = None,
        **_: Any,
    ) -> RewardModelOutput:
        """Scores: the share of the wanted text that is found."""
        key = self.options.target_key
        if key is None:
            targets = [quoted_texts(text) for text in prompt or []]
        else:
            targets = [_named_texts(one, key) for one in metadata or []]
        return RewardModelOutput(
            [
                text_score(self._read(picture), wanted)
                for picture, wanted in zip(image, targets, strict=True)
            ]
        )

    def _read(self, picture: "Image") -> str:
        try:
            # All named each time, since RapidOCR remembers the last call's.
            found = self.engine(picture, use_det=True, use_cls=True, use_rec=True)
        except Exception as error:  # RapidOCR's own classes tell nothing, their causes do
            raise RowError(
                "model_error",
                f"RapidOCR cannot read an image of {picture.width} x {picture.height} pixels: "
                f"{error.__cause__ or error}",
            ) from error
        return "".join(getattr(found, "txts", None) or ())


def build_engine(*, threads: int) -> Any:
    """A RapidOCR engine with its models loaded, all from the installed package.

    Raises:
        ConfigError: the package lacks one of them.
    """
    from PIL import Image
    from rapidocr import RapidOCR

    settings: dict[str, Any] = {
        "Global.log_level": "critical",
        "EngineConfig.onnxruntime.intra_op_num_threads": threads,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
    }
    for task in ("det", "cls", "rec"):
        # Given a path, RapidOCR neither looks for a newer model nor fetches one.
        settings[f"{task.capitalize()}.model_path"] = _packaged_model(task)
    engine = RapidOCR(params=settings)
    # It loads a model at its first use: better here than at the first row. Blank images show no
    # text, so the recogniser is called apart.
    blank = Image.new("RGB", (96, 48), "white")
    engine(blank, use_det=True, use_cls=True, use_rec=True)
    engine(blank, use_det=False, use_cls=True, use_rec=True)
    return engine


def _packaged_model(task: str) -> str:
    package = distribution("rapidocr")
    models = [file for file in package.files or () if file.match(f"models/*_{task}_*.onnx")]
    if not models:
        raise ConfigError(
            f"rapidocr {package.version} holds no model *_{task}_*.onnx; reinstall rewardctl[ocr]"
        )
    return str(package.locate_file(min(models)))


def quoted_texts(prompt: str) -> list[str]:
    """The texts in quotation marks, normalised, in order; not the empty ones.

    Raises:
        RowError: there are none.
    """
    marked = DOUBLE_QUOTED.findall(prompt) or SINGLE_QUOTED.findall(prompt)
    texts = [normalise("".join(groups)) for groups in marked]
    wanted = [text for text in texts if text]
    if not wanted:
        raise RowError(
            "model_error",
            f"no text in quotation marks in the prompt {quote(prompt)}; quote the wanted text, or "
            "name the metadata key that holds it in options.target_key",
        )
    return wanted


def _named_texts(metadata: str, key: str) -> list[str]:
    wanted = [text for text in map(normalise, metadata_texts(metadata, key)) if text]
    if not wanted:
        raise RowError("model_error", f"metadata key {quote(key)}: the wanted text is empty")
    return wanted


def normalise(text: str) -> str:
    """What is compared: no white space, no case, NFKC, straight quotes and plain hyphens."""
    plain = unicodedata.normalize("NFKC", text.translate(TYPOGRAPHY)).casefold()
    return "".join(plain.split())


def text_score(found: str, wanted: list[str]) -> float:
    """How much of the (normalised) wanted texts is in the text found, in [0, 1]."""
    found = normalise(found)
    if all(text in found for text in wanted):
        return 1.0
    orders = permutations(wanted) if len(wanted) <= MAX_ORDERED else [tuple(wanted)]
    size = sum(map(len, wanted))
    distance = min(levenshtein(found, "".join(order)) for order in set(orders))
    return max(0.0, 1.0 - distance / size)


def levenshtein(first: str, second: str) -> int:
    """Insertions, deletions and substitutions that turn one text into the other."""
    import numpy as np

    if not first or not second:
        return max(len(first), len(second))
    columns = np.arange(len(second) + 1)
    letters = np.array([ord(letter) for letter in second])
    row = columns.copy()
    for position, letter in enumerate(first, start=1):
        changed = np.empty_like(row)
        changed[0] = position
        changed[1:] = np.minimum(row[1:] + 1, row[:-1] + (letters != ord(letter)))
        # A run of insertions from the left costs one each: the running minimum of (cost - column).
        row = np.minimum.accumulate(changed - columns) + columns
    return int(row[-1])
