"""The DiT blocks of the reward model, over packed streams: sequences of different lengths behind
one another, without padding. What a stream is made of stands in stream.py.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rewardctl.training.stream import Layout

NORM_EPS = 1e-6
TIMESTEP_CHANNELS = 256  # of the sinusoids
TIMESTEP_PERIOD = 10_000.0


def linear(layer: nn.Linear, x: Tensor, dtype: torch.dtype) -> Tensor:
    """The layer's product in `dtype`; weights that are stored in another are cast, so that their
    gradient arrives in the stored one.
    """
    return F.linear(x.to(dtype), layer.weight.to(dtype), layer.bias.to(dtype))


def linear_at(layers: nn.Sequential, place: int) -> nn.Linear:
    """A linear layer of a sequence of layers."""
    layer = layers[place]
    assert isinstance(layer, nn.Linear)
    return layer


def layer_norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """The layer's norm in float32, whatever its weights are stored in."""
    return F.layer_norm(x, x.shape[-1:], layer.weight.float(), layer.bias.float(), layer.eps)


class Attention(nn.Module):
    """Self-attention within each sequence of a stream, both directions, rotary positions."""

    def __init__(self, hidden_size: int, num_heads: int, *, qk_norm: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.proj = nn.Linear(hidden_size, hidden_size)
        self.q_norm = nn.LayerNorm(self.head_dim, eps=NORM_EPS) if qk_norm else None
        self.k_norm = nn.LayerNorm(self.head_dim, eps=NORM_EPS) if qk_norm else None

    def forward(self, x: Tensor, layout: Layout, dtype: torch.dtype) -> Tensor:
        """float32 (total, hidden_size) to the same shape in `dtype`, through qkv and proj."""
        qkv = linear(self.qkv, x, dtype).view(-1, 3, self.num_heads, self.head_dim)
        q, k, v = qkv.unbind(1)
        q, k = q.float(), k.float()
        if self.q_norm is not None and self.k_norm is not None:
            q, k = layer_norm(self.q_norm, q), layer_norm(self.k_norm, k)
        q, k = rotate(q, layout), rotate(k, layout)
        # In half precision its backward pass is slower than in float32 on CPUs, and coarser.
        precision = torch.float32 if torch.is_grad_enabled() else dtype
        out = attend(q.to(precision), k.to(precision), v.to(precision), layout)
        return linear(self.proj, out, dtype)


def rotate(x: Tensor, layout: Layout) -> Tensor:
    """Turn neighbouring channels (2i, 2i + 1) by their position (RoPE, Su et al. 2021, eq. 34).

    Args:
        x: float32 (total, heads, head_dim).
        layout: holds the turn of each position.
    """
    # One product of complex numbers takes a fifth of the time of the real sines and cosines.
    pairs = torch.view_as_complex(x.view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * layout.turns).flatten(-2)


def attend(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    """Attention of each sequence to itself: (total, heads, head_dim) to (total, hidden_size)."""
    # Slices would each make a gradient of the whole stream; a split makes one of all parts.
    sizes = [run.size * run.length for run in layout.runs]
    outputs = []
    for run, *parts in zip(
        layout.runs, *(x.split_with_sizes(sizes) for x in (q, k, v)), strict=True
    ):
        shape = (run.size, run.length, *q.shape[1:])
        of_q, of_k, of_v = (part.view(shape).transpose(1, 2) for part in parts)
        out = F.scaled_dot_product_attention(of_q, of_k, of_v)
        outputs.append(out.transpose(1, 2).reshape(run.size * run.length, -1))
    return torch.cat(outputs)


class Constants(nn.Module):
    """What a linear layer makes of zeros: its bias. No matrix is trained or stored."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))


class DiTBlock(nn.Module):
    """A pre-LayerNorm transformer block with adaLN-zero (Peebles & Xie 2023, section 3.2).

    Without timesteps the condition is zeros and SiLU(0) = 0, so of the adaLN layer only the bias
    acts: shift, scale and gate are constants, and only these are parameters.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        mlp_ratio: float,
        qk_norm: bool,
        timestep_aware: bool,
    ) -> None:
        super().__init__()
        inner = int(hidden_size * mlp_ratio)
        self.attn = Attention(hidden_size, num_heads, qk_norm=qk_norm)
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, inner), nn.SiLU(), nn.Linear(inner, hidden_size)
        )
        modulation = (
            nn.Linear(hidden_size, 6 * hidden_size)
            if timestep_aware
            else Constants(6 * hidden_size)
        )
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), modulation)

    @property
    def linears(self) -> tuple[nn.Linear, ...]:
        """The layers that compute in the body's number type."""
        return self.attn.qkv, self.attn.proj, linear_at(self.mlp, 0), linear_at(self.mlp, 2)

    def forward(
        self, x: Tensor, condition: Tensor | None, layout: Layout, dtype: torch.dtype
    ) -> Tensor:
        """One block.

        Args:
            x: float32 (total, hidden_size), the residual stream.
            condition: float32 (n, hidden_size), one for each sequence; None: constants act.
            layout: of the stream.
            dtype: of the linear layers.
        """
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = self._modulation(condition, layout)
        out = self.attn(modulated_norm(x, shift, scale), layout, dtype)
        x = torch.addcmul(x, gate, out.float())
        out = self._mlp(modulated_norm(x, mlp_shift, mlp_scale), dtype)
        return torch.addcmul(x, mlp_gate, out.float())

    def _mlp(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        wide = linear(linear_at(self.mlp, 0), x, dtype)
        wide = F.silu(wide, inplace=not torch.is_grad_enabled())
        return linear(linear_at(self.mlp, 2), wide, dtype)

    def _modulation(self, condition: Tensor | None, layout: Layout) -> Sequence[Tensor]:
        """Six tensors, (hidden_size,) or (total, hidden_size)."""
        layer = self.adaLN_modulation[1]
        if isinstance(layer, Constants):
            return layer.bias.float().chunk(6)
        assert condition is not None
        by_sequence = linear(linear_at(self.adaLN_modulation, 1), F.silu(condition), torch.float32)
        return [layout.to_positions(part) for part in by_sequence.chunk(6, dim=-1)]


def modulated_norm(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """LayerNorm without weights of its own, times 1 + scale, plus shift."""
    width = x.shape[-1:]
    if scale.ndim == 1:
        return F.layer_norm(x, width, 1 + scale, shift, NORM_EPS)
    return torch.addcmul(shift, F.layer_norm(x, width, None, None, NORM_EPS), 1 + scale)


class TimestepEmbedding(nn.Module):
    """Timesteps in [0, 1] as sinusoids of t times `scale`, through a two-layer MLP."""

    def __init__(self, hidden_size: int, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.mlp = nn.Sequential(
            nn.Linear(TIMESTEP_CHANNELS, hidden_size),
            nn.SiLU(),
            nn.Linear(hidden_size, hidden_size),
        )

    def forward(self, t: Tensor) -> Tensor:
        """float32 (n,) to float32 (n, hidden_size)."""
        half = TIMESTEP_CHANNELS // 2
        steps = torch.arange(half, dtype=torch.float32, device=t.device)
        rates = torch.exp(-math.log(TIMESTEP_PERIOD) * steps / half)
        angles = self.scale * t[:, None] * rates
        waves = torch.cat([angles.cos(), angles.sin()], dim=-1)
        hidden = F.silu(linear(linear_at(self.mlp, 0), waves, torch.float32))
        return linear(linear_at(self.mlp, 2), hidden, torch.float32)
