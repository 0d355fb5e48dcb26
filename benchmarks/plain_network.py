"""The reward model as one writes it first: padded batches, no masks, float32. What the package's
model is measured against; row by row, without padding, both give the same scores.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = 1e-6


class PlainBlock(nn.Module):
    """A DiT block with adaLN-zero, conditioned on a vector."""

    def __init__(self, hidden_size: int, num_heads: int, qk_norm: bool) -> None:
        super().__init__()
        self.num_heads = num_heads
        head_dim = hidden_size // num_heads
        self.norm1 = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=EPS)
        self.norm2 = nn.LayerNorm(hidden_size, elementwise_affine=False, eps=EPS)
        self.attn = nn.Module()
        self.attn.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.attn.proj = nn.Linear(hidden_size, hidden_size)
        self.attn.q_norm = nn.LayerNorm(head_dim, eps=EPS) if qk_norm else nn.Identity()
        self.attn.k_norm = nn.LayerNorm(head_dim, eps=EPS) if qk_norm else nn.Identity()
        self.mlp = nn.Sequential(
            nn.Linear(hidden_size, 4 * hidden_size),
            nn.SiLU(),
            nn.Linear(4 * hidden_size, hidden_size),
        )
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(hidden_size, 6 * hidden_size))

    def attention(self, x: Tensor, turns: Tensor) -> Tensor:
        batch, length, width = x.shape
        qkv = self.attn.qkv(x).view(batch, length, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        q, k = rotated(self.attn.q_norm(q), turns), rotated(self.attn.k_norm(k), turns)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.attn.proj(out.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x: Tensor, condition: Tensor, turns: Tensor) -> Tensor:
        modulation = self.adaLN_modulation(condition)[:, None].chunk(6, dim=-1)
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation
        x = x + gate * self.attention(self.norm1(x) * (1 + scale) + shift, turns)
        return x + mlp_gate * self.mlp(self.norm2(x) * (1 + mlp_scale) + mlp_shift)


def rotated(x: Tensor, turns: Tensor) -> Tensor:
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


class PlainNetwork(nn.Module):
    """Tokens or latents (batch, length, ...) to scores (batch, 1). All positions count."""

    def __init__(
        self,
        vocab_size: int | None = None,
        in_channels: int | None = None,
        seq_length: int = 256,
        hidden_size: int = 512,
        depth: int = 6,
        num_heads: int = 8,
        timestep_aware: bool = False,
        pooling: str = "mean",
        qk_norm: bool = False,
        rope_theta: float = 10000.0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.hidden_size, self.pooling = hidden_size, pooling
        if vocab_size is not None:
            self.token_embed = nn.Embedding(vocab_size, hidden_size)
        else:
            self.input_proj = nn.Linear(in_channels, hidden_size)
        if pooling == "cls":
            self.cls_token = nn.Parameter(0.02 * torch.randn(hidden_size))
        if timestep_aware:
            self.time_embed = nn.Module()
            self.time_embed.mlp = nn.Sequential(
                nn.Linear(256, hidden_size), nn.SiLU(), nn.Linear(hidden_size, hidden_size)
            )
        self.blocks = nn.ModuleList(
            PlainBlock(hidden_size, num_heads, qk_norm) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(hidden_size, eps=EPS)
        self.head = nn.Sequential(
            nn.Linear(hidden_size, hidden_size // 2),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(hidden_size // 2, 1),
        )
        head_dim = hidden_size // num_heads
        rates = rope_theta ** -(torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(seq_length + 1), rates)
        turns = torch.polar(torch.ones_like(angles), angles)
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, x: Tensor, t: Tensor | None = None) -> Tensor:
        batch = len(x)
        x = self.input_proj(x) if x.is_floating_point() else self.token_embed(x)
        condition = torch.zeros(batch, self.hidden_size)
        if t is not None:
            rates = torch.exp(-math.log(10000) * torch.arange(128) / 128)
            angles = 1000 * t[:, None] * rates
            condition = self.time_embed.mlp(torch.cat([angles.cos(), angles.sin()], dim=-1))
        first = 1
        if self.pooling == "cls":
            first, x = 0, torch.cat([self.cls_token.expand(batch, 1, -1), x], dim=1)
        turns = self.turns[first : first + x.shape[1]]
        for block in self.blocks:
            x = block(x, condition, turns)
        x = self.norm(x)
        pooled = {"mean": lambda: x.mean(1), "cls": lambda: x[:, 0], "last": lambda: x[:, -1]}
        return self.head(pooled[self.pooling]())
