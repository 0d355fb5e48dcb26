"""A model that `rewardctl train` made, as a reward stream."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from rewardctl.config.schema import RewardArguments
from rewardctl.errors import ConfigError, RowError, RowErrors
from rewardctl.rewards.abc import PointwiseRewardModel, RewardModelOutput

if TYPE_CHECKING:
    import numpy as np
    from accelerate import Accelerator


SURROGATE = "the text holds half of a surrogate pair, which is no character; mend the row"


class TrainedOptions(BaseModel):
    """Raw scores, or scores on the scale of the data they were validated on."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    normalize: bool = False  # (score − mean) / std, both stored with the checkpoint


class TrainedReward(PointwiseRewardModel):
    """Scores by the checkpoint at `model_path`: its folder, or a run's (best/, else final/).

    The score has no fixed range: differences between two answers to one prompt are log-odds of
    preference. What a row must have is what the model was trained on: `response` (and `prompt`
    where there is one), `tokens` or `latents`, and `timestep` for a timestep-aware model. An input
    over the model's length is cut, or refused, as in training.
    """

    default_batch_size = 1024
    use_token_arrays = True
    Options = TrainedOptions

    def __init__(self, config: RewardArguments, accelerator: "Accelerator") -> None:
        """Load the checkpoint, strictly.

        Raises:
            ConfigError: there is no model_path, or nothing to normalize by.
            DataError: the checkpoint is missing, damaged or does not prove itself.
        """
        super().__init__(config, accelerator)
        from rewardctl.training.checkpoint import find_checkpoint, load_checkpoint

        if config.model_path is None:
            raise ConfigError("trained needs model_path: the folder of a checkpoint or of a run")
        folder = find_checkpoint(Path(config.model_path))
        self.checkpoint = load_checkpoint(folder)
        self.provenance = {"checkpoint": str(folder)}  # best/ or final/, where a run was named
        self.model = self.checkpoint.model.to(self.device).for_scoring(self.dtype)
        network = self.model.network_config()
        self.seq_length = int(network["seq_length"])
        self.vocab_size: int | None = network["vocab_size"]  # of tokens
        self.in_channels: int | None = network["in_channels"]  # of latents
        kind = self.checkpoint.inputs.kind
        fields = {"text": ("response",), "tokens": ("tokens",), "latents": ("latents",)}[kind]
        aware = self.model.timestep_aware
        self.required_fields = (*fields, "timestep") if aware else fields
        # A model that never saw a prompt is not shown one.
        self.optional_fields = ("prompt",) if self.checkpoint.inputs.template else ()
        self.scale = (0.0, 1.0)
        if config.options.normalize:
            facts = self.checkpoint.scores
            if facts is None or not facts.std > 0:
                raise ConfigError("normalize: the checkpoint stores no deviation of scores over 0")
            self.scale = (facts.mean, facts.std)

    def __call__(self, timestep: list[float] | None = None, **inputs: Any) -> RewardModelOutput:
        """Scores, float32: sorted by length and packed inside the call."""
        from rewardctl.training.packing import score_items

        items = self._prepare(**inputs)
        times = timestep if self.model.timestep_aware else None
        self._refuse(items, times)
        scores = score_items(self.model, items, times).double()
        mean, std = self.scale
        return RewardModelOutput(rewards=(scores - mean) / std)

    def _prepare(
        self,
        *,
        response: list[str] | None = None,
        prompt: list[str] | None = None,
        tokens: Sequence[Sequence[int]] | None = None,
        latents: "list[np.ndarray[Any, Any]] | None" = None,
    ) -> "list[np.ndarray[Any, Any]]":
        """Items as the model takes them, cut where its training cut them."""
        import numpy as np

        from rewardctl.data.tokenizer import is_unicode, join_prompt

        if response is not None:
            assert self.checkpoint.encoder is not None
            prompts: Sequence[str | None] = prompt or [None] * len(response)
            texts = [join_prompt(p, r) for p, r in zip(prompts, response, strict=True)]
            broken = [place for place, text in enumerate(texts) if not is_unicode(text)]
            if broken:
                raise RowErrors(dict.fromkeys(broken, RowError("model_error", SURROGATE)))
            items = self.checkpoint.encoder.encode_batch(texts)
        elif tokens is not None:
            items = [np.asarray(ids, dtype=np.int64) for ids in tokens]
        else:
            items = [np.asarray(latent, dtype=np.float32) for latent in latents or ()]
        overlong = self.checkpoint.inputs.overlong
        if overlong == "keep_head":
            return [item[: self.seq_length] for item in items]
        if overlong == "keep_tail":
            return [item[-self.seq_length :] for item in items]
        return items

    def _refuse(self, items: "list[np.ndarray[Any, Any]]", timesteps: list[float] | None) -> None:
        """Name the rows that this model cannot score; the processor scores the others without
        them.
        """
        if timesteps is None and self._all_fit(items):
            return
        faults = {}
        for place, item in enumerate(items):
            problem = self._problem(item) or self._timestep_problem(timesteps, place)
            if problem is not None:
                faults[place] = RowError("model_error", problem)
        if faults:
            raise RowErrors(faults)

    def _all_fit(self, items: "list[np.ndarray[Any, Any]]") -> bool:
        """Whether these are token ids that the model can score, seen at once: one by one they take
        as long to look at as to read.
        """
        import numpy as np

        lengths = list(map(len, items))
        if self.vocab_size is None or not 0 < min(lengths) <= max(lengths) <= self.seq_length:
            return False
        flat = np.concatenate(items)
        return bool(flat.min() >= 0 and flat.max() < self.vocab_size)

    def _problem(self, item: "np.ndarray[Any, Any]") -> str | None:
        import numpy as np

        if not len(item):
            return "the input is empty, expected at least one position"
        if len(item) > self.seq_length:
            return (
                f"the input has {len(item)} positions, the model takes {self.seq_length}; shorten "
                "it, or train with overlong: keep_head or keep_tail"
            )
        if self.vocab_size is not None:
            outside = item[(item < 0) | (item >= self.vocab_size)]
            if len(outside):
                return f"token {outside[0]} is outside the model's {self.vocab_size} ids"
        channels = self.in_channels
        if channels is not None and (item.ndim != 2 or item.shape[1] != channels):
            return f"latents have shape {item.shape}, expected (length, {channels})"
        if channels is not None and not np.isfinite(item).all():
            return "latents hold NaN or infinity"
        return None

    def _timestep_problem(self, timesteps: list[float] | None, place: int) -> str | None:
        if timesteps is None or 0 <= timesteps[place] <= 1:
            return None
        hint = "; divide by 1000?" if timesteps[place] > 1 else ""
        return f"timestep {timesteps[place]:g} is outside [0, 1]{hint}"
