"""The trainable reward model: tokens or latents in, one float32 score a row out.

One path computes every score, over streams without padding; blocks are in blocks.py.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewardctl.errors import ConfigError, RowError, quote
from rewardctl.training.blocks import (
    NORM_EPS,
    DiTBlock,
    TimestepEmbedding,
    layer_norm,
    linear,
    linear_at,
)
from rewardctl.training.losses import accuracy_of, bradley_terry_loss
from rewardctl.training.stream import (
    Layout,
    RotaryTable,
    check_latents,
    check_lengths,
    check_timesteps,
    check_tokens,
    flatten,
)

Pooling = Literal["mean", "cls", "last"]
PRESETS: dict[str, dict[str, int]] = {
    "nano": {"hidden_size": 128, "depth": 2, "num_heads": 4},
    "small": {"hidden_size": 384, "depth": 6, "num_heads": 6},
    "base": {"hidden_size": 768, "depth": 12, "num_heads": 12},
    "large": {"hidden_size": 1024, "depth": 24, "num_heads": 16},
}
INIT_STD = 0.02
TIMESTEP_SCALE = 1000.0  # timesteps in [0, 1] are multiplied by it for the sinusoids


class RewardModel(nn.Module):
    """A bidirectional transformer over token ids or latents with one score a row; higher is better.

    A row's score depends on that row alone, whatever stands beside it in a batch. Exactly one of
    `vocab_size` and `in_channels` is given.

    `body_dtype` (float32) is what the linear layers of the blocks compute in: set it to
    torch.bfloat16 to train or score in mixed precision. Weights, residual stream, norms, pooling,
    head and scores stay float32, and so does attention while gradients are on. `for_scoring`
    stores the blocks' matrices in that type once, for a model that is not trained any more.

    Args:
        vocab_size: number of token ids.
        in_channels: channels of each position of a latent.
        seq_length: longest expected input; longer ones work too.
        hidden_size: width.
        depth: number of blocks.
        num_heads: attention heads of a block.
        mlp_ratio: width of the MLP over hidden_size.
        timestep_aware: condition the blocks on each row's timestep in [0, 1].
        pooling: how positions become one vector: their mean, a token before them (cls), or the
            last real one.
        qk_norm: LayerNorm on queries and keys.
        rope_theta: base of the rotary positions.
        dropout: rate in the scoring head, the only place with dropout.
    """

    def __init__(
        self,
        vocab_size: int | None = None,
        in_channels: int | None = None,
        seq_length: int = 256,
        hidden_size: int = 512,
        depth: int = 6,
        num_heads: int = 8,
        mlp_ratio: float = 4.0,
        timestep_aware: bool = False,
        pooling: Pooling = "mean",
        qk_norm: bool = False,
        rope_theta: float = 10000.0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self._config: dict[str, Any] = {
            "vocab_size": vocab_size,
            "in_channels": in_channels,
            "seq_length": seq_length,
            "hidden_size": hidden_size,
            "depth": depth,
            "num_heads": num_heads,
            "mlp_ratio": mlp_ratio,
            "timestep_aware": timestep_aware,
            "pooling": pooling,
            "qk_norm": qk_norm,
            "rope_theta": rope_theta,
            "dropout": dropout,
        }
        _check_network(self._config)
        self.vocab_size, self.in_channels = vocab_size, in_channels
        self.timestep_aware, self.pooling = timestep_aware, pooling
        self.body_dtype = torch.float32
        self._rotary = RotaryTable(hidden_size // num_heads, seq_length + 1, rope_theta)
        if vocab_size is not None:
            self.token_embed = nn.Embedding(vocab_size, hidden_size)
        if in_channels is not None:
            self.input_proj = nn.Linear(in_channels, hidden_size)
        if pooling == "cls":
            self.cls_token = nn.Parameter(INIT_STD * torch.randn(hidden_size))
        if timestep_aware:
            self.time_embed = TimestepEmbedding(hidden_size, TIMESTEP_SCALE)
        self.blocks = nn.ModuleList(
            DiTBlock(
                hidden_size,
                num_heads,
                mlp_ratio=mlp_ratio,
                qk_norm=qk_norm,
                timestep_aware=timestep_aware,
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(hidden_size, eps=NORM_EPS)
        self.head = nn.Sequential(
            nn.Linear(hidden_size, hidden_size // 2),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size // 2, 1),
        )
        self._initialise()

    def _initialise(self) -> None:
        """normal(0, 0.02) and zeros; gates and the last layer zero: blocks start as identity, and
        every score as 0.
        """
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=INIT_STD)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        zeros = [linear_at(self.head, 3)]
        if self.timestep_aware:
            zeros += [linear_at(block.adaLN_modulation, 1) for block in self._blocks()]
        for layer in zeros:
            nn.init.zeros_(layer.weight)

    def network_config(self) -> dict[str, Any]:
        """The constructor's arguments; `RewardModel(**network_config())` is the same network."""
        return dict(self._config)

    def for_scoring(self, dtype: torch.dtype = torch.float32) -> "RewardModel":
        """Evaluation mode, no gradients, and the blocks' matrices stored in `dtype`; itself."""
        self.eval().requires_grad_(False)
        self.body_dtype = dtype
        for block in self._blocks():
            for layer in block.linears:
                layer.to(dtype)
        return self

    def _blocks(self) -> Iterator[DiTBlock]:
        for block in self.blocks:
            assert isinstance(block, DiTBlock)
            yield block

    def forward(self, x: Tensor, t: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Score a padded batch.

        Args:
            x: whole numbers (batch, length), or floats (batch, length, channels).
            t: (batch,) timesteps in [0, 1]; for a timestep-aware model, and only for that.
            mask: bool (batch, length), True at real positions, which are neighbours; None: all
                are real. Padding is not looked at.

        Returns:
            float32 (batch, 1); higher is better.
        """
        return self.score_packed(*self._flatten(x, mask), t)[:, None]

    def score_packed(self, flat: Tensor, lengths: Sequence[int], t: Tensor | None = None) -> Tensor:
        """Score rows that lie behind one another without padding.

        Rows of one length are computed together where they are neighbours, so sorting by length
        is faster; scores do not depend on it.

        Args:
            flat: whole numbers (total,), or floats (total, channels).
            lengths: of each row.
            t: (n,) timesteps in [0, 1]; for a timestep-aware model, and only for that.

        Returns:
            float32 (n,), in the order of the rows.
        """
        lengths = list(lengths)
        self._check(flat, lengths)
        # What is float32 here stays so under a caller's autocast too.
        with torch.autocast(flat.device.type, enabled=False):
            condition = self._condition(t, len(lengths))
            x, layout = self._embed(flat, lengths)
            for block in self.blocks:
                x = block(x, condition, layout, self.body_dtype)
            return self._score(self._pool(x, layout))

    def _flatten(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, list[int]]:
        expected = 2 if self.vocab_size is not None else 3
        if x.ndim != expected:
            shape = "(batch, length)" if expected == 2 else "(batch, length, channels)"
            raise RowError("bad_row", f"x: expected shape {shape}, got {tuple(x.shape)}")
        return flatten(x, mask)

    def _check(self, flat: Tensor, lengths: list[int]) -> None:
        check_lengths(flat, lengths)
        if self.vocab_size is not None:
            check_tokens(flat, lengths, self.vocab_size)
        else:
            assert self.in_channels is not None
            check_latents(flat, lengths, self.in_channels)

    def _condition(self, t: Tensor | None, n: int) -> Tensor | None:
        """float32 (n, hidden_size), or None for a model without timesteps."""
        if not self.timestep_aware:
            if t is not None:
                raise ConfigError("t was given, but this model is not timestep_aware; leave t out")
            return None
        if t is None:
            raise ConfigError("this model is timestep_aware: give t, a timestep in [0, 1] a row")
        embedded: Tensor = self.time_embed(check_timesteps(t, n))
        return embedded

    def _embed(self, flat: Tensor, lengths: list[int]) -> tuple[Tensor, Layout]:
        """float32 (total, hidden_size), with the CLS token before each row if there is one."""
        if self.pooling != "cls":
            layout = self._rotary.layout(lengths, first=1, device=flat.device)
            return self._project(flat), layout
        layout = self._rotary.layout([n + 1 for n in lengths], first=0, device=flat.device)
        is_cls = flat.new_zeros(len(flat) + len(lengths), dtype=torch.bool)
        is_cls[layout.starts()] = True
        padded = flat.new_zeros(len(is_cls), *flat.shape[1:])
        padded[~is_cls] = flat
        x = torch.where(is_cls[:, None], self.cls_token.float(), self._project(padded))
        return x, layout

    def _project(self, flat: Tensor) -> Tensor:
        if self.vocab_size is not None:
            return F.embedding(flat.long(), self.token_embed.weight).float()
        return linear(self.input_proj, flat, torch.float32)

    def _pool(self, x: Tensor, layout: Layout) -> Tensor:
        """float32 (total, hidden_size) to (n, hidden_size), through the final LayerNorm."""
        if self.pooling == "cls":
            return layer_norm(self.norm, x[layout.starts()])
        if self.pooling == "last":
            return layer_norm(self.norm, x[layout.ends()])
        rows = layer_norm(self.norm, x).split_with_sizes(layout.lengths)
        return torch.stack([row.mean(0) for row in rows])

    def _score(self, pooled: Tensor) -> Tensor:
        hidden = linear(linear_at(self.head, 0), pooled, torch.float32)
        hidden = self.head[2](self.head[1](hidden))
        return linear(linear_at(self.head, 3), hidden, torch.float32)[:, 0]

    def compute_preference_loss(
        self,
        chosen: Tensor,
        rejected: Tensor,
        margin: Tensor | None = None,
        t: Tensor | None = None,
        *,
        chosen_mask: Tensor | None = None,
        rejected_mask: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Bradley–Terry loss of a batch of pairs, the margin a factor of the gap.

        Args:
            chosen: the better side of each pair, as `forward` takes it.
            rejected: the other side; its length may differ.
            margin: (batch,) or (batch, 1), 0 or more; None: 1 for all.
            t: (batch,), for both sides of a pair.
            chosen_mask: bool (batch, length), as `forward` takes it.
            rejected_mask: as chosen_mask.

        Returns:
            Scalars: `loss` (with gradient), and without one `accuracy` (equal scores count half),
            `reward_margin` (mean gap), `chosen_reward`, `rejected_reward` (means).
        """
        batch = len(chosen)
        if len(rejected) != batch:
            raise RowError(
                "bad_row",
                f"expected as many rejected as chosen rows, got {len(rejected)} and {batch}",
            )
        first, first_lengths = self._flatten(chosen, chosen_mask)
        second, second_lengths = self._flatten(rejected, rejected_mask)
        both = None if t is None else torch.cat([t, t])
        scores = self.score_packed(torch.cat([first, second]), first_lengths + second_lengths, both)
        chosen_reward, rejected_reward = scores[:batch], scores[batch:]
        gap = chosen_reward - rejected_reward
        margins = torch.ones_like(gap) if margin is None else _as_margins(margin, batch).to(gap)
        loss = bradley_terry_loss(gap, torch.ones_like(gap), margins, "scale").mean()
        gap = gap.detach()
        return {
            "loss": loss,
            "accuracy": accuracy_of(gap).mean(),
            "reward_margin": gap.mean(),
            "chosen_reward": chosen_reward.detach().mean(),
            "rejected_reward": rejected_reward.detach().mean(),
        }


def _as_margins(margin: Tensor, batch: int) -> Tensor:
    """(batch,): another shape against the scores would make a table of all pairs of rows."""
    if margin.shape not in ((batch,), (batch, 1)):
        raise RowError("bad_row", f"margin: expected shape ({batch},), got {tuple(margin.shape)}")
    margin = margin.reshape(batch)
    bad = ~(torch.isfinite(margin) & (margin >= 0))
    if bad.any():
        row = int(bad.nonzero()[0])
        raise RowError(
            "bad_row",
            f"row {row}: 'margin' must be a finite number of 0 or more, got {float(margin[row])}",
        )
    return margin


def create_reward_model(
    model_size: str = "small",
    vocab_size: int | None = None,
    in_channels: int | None = None,
    seq_length: int = 256,
    timestep_aware: bool = False,
    **kwargs: Any,
) -> RewardModel:
    """A model of a preset size.

    Args:
        model_size: nano, small, base or large: hidden_size, depth and num_heads.
        vocab_size: as in RewardModel.
        in_channels: as in RewardModel.
        seq_length: as in RewardModel.
        timestep_aware: as in RewardModel.
        kwargs: other arguments of RewardModel; they override the preset's.
    """
    if model_size not in PRESETS:
        raise ConfigError(
            f"model_size: expected one of {', '.join(PRESETS)}, got {quote(model_size)}"
        )
    return RewardModel(
        vocab_size=vocab_size,
        in_channels=in_channels,
        seq_length=seq_length,
        timestep_aware=timestep_aware,
        **{**PRESETS[model_size], **kwargs},
    )


def _check_network(config: dict[str, Any]) -> None:
    if (config["vocab_size"] is None) == (config["in_channels"] is None):
        raise ConfigError(
            "give exactly one of vocab_size (for token ids) and in_channels (for latents), got "
            f"vocab_size={config['vocab_size']} and in_channels={config['in_channels']}"
        )
    if config["pooling"] not in get_args(Pooling):
        raise ConfigError(
            f"pooling: expected one of {', '.join(get_args(Pooling))}, got "
            f"{quote(config['pooling'])}"
        )
    for key in ("vocab_size", "in_channels", "seq_length", "hidden_size", "depth", "num_heads"):
        if config[key] is not None and config[key] < 1:
            raise ConfigError(f"{key}: expected 1 or more, got {quote(config[key])}")
    width, rest = divmod(config["hidden_size"], config["num_heads"])
    if rest or width % 2:
        raise ConfigError(
            f"hidden_size: {config['hidden_size']} over num_heads: {config['num_heads']} is no "
            "even number; rotary positions turn pairs of channels of each head"
        )
    if not 0 <= config["dropout"] < 1:
        raise ConfigError(f"dropout: expected a number in [0, 1), got {quote(config['dropout'])}")
