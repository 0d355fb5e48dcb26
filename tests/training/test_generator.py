"""Weights of a small DiT generator, written here in plain PyTorch, in a reward model's blocks."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor, nn

from rewardctl.errors import ConfigError, DataError
from rewardctl.training.generator import GeneratorWeights, RopeLayout, load_generator
from rewardctl.training.reward_model import RewardModel

WIDTH, HEADS, HEAD_DIM = 16, 2, 8
NETWORK: dict[str, Any] = {
    "vocab_size": 32,
    "seq_length": 16,
    "hidden_size": WIDTH,
    "depth": 2,
    "num_heads": HEADS,
}


def turned(x: Tensor, layout: RopeLayout) -> Tensor:
    """Rotary positions from 1 on, of (heads, length, head_dim), channel pair by channel pair."""
    half = HEAD_DIM // 2
    pairs = [(2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + half) for i in range(half)]
    out = torch.empty_like(x)
    places = torch.arange(1, x.shape[1] + 1)
    for i, (first, second) in enumerate(pairs):
        angle = places * 10000.0 ** (-i / half)
        out[..., first] = x[..., first] * angle.cos() - x[..., second] * angle.sin()
        out[..., second] = x[..., first] * angle.sin() + x[..., second] * angle.cos()
    return out


class GeneratorBlock(nn.Module):
    """A DiT block over one sequence, with the names that generators have."""

    def __init__(self, layout: RopeLayout, qk_norm: bool) -> None:
        super().__init__()
        self.layout, self.qk_norm = layout, qk_norm
        self.attn = nn.Module()
        self.attn.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.attn.proj = nn.Linear(WIDTH, WIDTH)
        if qk_norm:
            self.attn.q_norm = nn.LayerNorm(HEAD_DIM, eps=1e-6)
            self.attn.k_norm = nn.LayerNorm(HEAD_DIM, eps=1e-6)
        self.mlp = nn.Module()
        self.mlp.fc1 = nn.Linear(WIDTH, 4 * WIDTH)
        self.mlp.fc2 = nn.Linear(4 * WIDTH, WIDTH)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(WIDTH, 6 * WIDTH))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        parts = self.adaLN_modulation(condition).chunk(6)
        h = F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + parts[1]) + parts[0]
        q, k, v = self.attn.qkv(h).view(-1, 3, HEADS, HEAD_DIM).permute(1, 2, 0, 3)
        if self.qk_norm:
            q, k = self.attn.q_norm(q), self.attn.k_norm(k)
        q, k = turned(q, self.layout), turned(k, self.layout)
        weights = (q @ k.transpose(1, 2) / HEAD_DIM**0.5).softmax(-1)
        x = x + parts[2] * self.attn.proj((weights @ v).transpose(0, 1).reshape(-1, WIDTH))
        h = F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + parts[4]) + parts[3]
        return x + parts[5] * self.mlp.fc2(F.silu(self.mlp.fc1(h)))


class Generator(nn.Module):
    """Two such blocks between what a reward model does not need."""

    def __init__(self, layout: RopeLayout, *, qk_norm: bool = False) -> None:
        super().__init__()
        self.x_embedder = nn.Linear(4, WIDTH)
        self.blocks = nn.ModuleList(GeneratorBlock(layout, qk_norm) for _ in range(2))
        self.final_layer = nn.Linear(WIDTH, 4)


def saved(folder: Path, layout: RopeLayout = "interleaved", **options: Any) -> tuple[Any, Path]:
    torch.manual_seed(0)
    generator = Generator(layout, **options)
    with torch.no_grad():
        for weight in generator.parameters():
            weight.copy_(0.3 * torch.randn(weight.shape))
    path = folder / "generator.safetensors"
    save_file(generator.state_dict(), path)
    return generator, path


def built(**changes: Any) -> RewardModel:
    torch.manual_seed(1)
    return RewardModel(**{**NETWORK, **changes})


def block_outputs(model: RewardModel, x: Tensor, condition: Tensor | None) -> list[Tensor]:
    """The stream after each block, for one sequence."""
    layout = model._rotary.layout([len(x)], first=1, device=x.device)
    outputs = []
    for block in model.blocks:
        x = block(x, None if condition is None else condition[None], layout, torch.float32)
        outputs.append(x)
    return outputs


@pytest.mark.parametrize("qk_norm", [False, True], ids=["plain", "qk_norm"])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_block_outputs_are_the_generators(
    tmp_path: Path, layout: RopeLayout, qk_norm: bool
) -> None:
    generator, path = saved(tmp_path, layout, qk_norm=qk_norm)
    model = built(timestep_aware=True, qk_norm=qk_norm)
    load_generator(model, path, rope=layout)
    x, condition = torch.randn(7, WIDTH), torch.randn(WIDTH)
    expected = x
    for block, output in zip(generator.blocks, block_outputs(model, x, condition), strict=True):
        expected = block(expected, condition)
        # Float32 sums in another order.
        assert torch.allclose(output, expected, rtol=0, atol=2e-5)


def test_without_timesteps_the_blocks_run_as_under_a_condition_of_zeros(tmp_path: Path) -> None:
    generator, path = saved(tmp_path)
    model = built()
    load_generator(model, path)
    x = torch.randn(5, WIDTH)
    expected = generator.blocks[0](x, torch.zeros(WIDTH))
    assert torch.allclose(block_outputs(model, x, None)[0], expected, rtol=0, atol=2e-5)


def test_the_other_rotary_layout_gives_other_outputs(tmp_path: Path) -> None:
    generator, path = saved(tmp_path, "half")
    model = built()
    load_generator(model, path, rope="interleaved")
    x = torch.randn(5, WIDTH)
    expected = generator.blocks[0](x, torch.zeros(WIDTH))
    assert not torch.allclose(block_outputs(model, x, None)[0], expected, rtol=0, atol=1e-2)


def test_what_was_taken_and_what_not_is_told(tmp_path: Path) -> None:
    _, path = saved(tmp_path, qk_norm=True)
    report = load_generator(built(depth=1), path)
    assert set(report.taken) == {
        f"blocks.0.{name}"
        for name in (
            "attn.qkv.weight",
            "attn.qkv.bias",
            "attn.proj.weight",
            "attn.proj.bias",
            "mlp.0.weight",
            "mlp.0.bias",
            "mlp.2.weight",
            "mlp.2.bias",
            "adaLN_modulation.1.bias",
        )
    }
    assert report.left["x_embedder.weight"] == "not part of the blocks"
    assert report.left["blocks.1.mlp.fc1.weight"] == "the model has depth 1"
    assert report.left["blocks.0.attn.q_norm.weight"] == "the model has qk_norm off"
    assert "not timestep_aware" in report.left["blocks.0.adaLN_modulation.1.weight"]
    assert "token_embed.weight" in report.fresh
    assert not set(report.fresh) & set(report.taken)


def test_the_summary_has_a_line_for_each_reason(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    lines = load_generator(built(), path).summary()
    assert (
        lines[0] == f"init_from {path}: 18 tensors of the blocks taken, rotary layout interleaved"
    )
    assert (
        "not taken, not part of the blocks: final_layer.bias, final_layer.weight, "
        "x_embedder.bias, x_embedder.weight" in lines
    )
    assert any(line.startswith("of the model, as initialised: token_embed.") for line in lines)
    assert "SiLU" in lines[-1]


def test_long_lists_of_names_are_cut() -> None:
    names = tuple(f"blocks.{n}.x" for n in range(20))
    lines = GeneratorWeights(Path("g"), "half", ("a",), {}, names).summary()
    assert lines[1].endswith("blocks.11.x and 8 more")


def test_what_is_not_of_the_blocks_stays_as_it_was(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    model, untouched = built(), built()
    report = load_generator(model, path)
    weights, before = model.state_dict(), untouched.state_dict()
    assert all(torch.equal(weights[name], before[name]) for name in report.fresh)
    assert not any(torch.equal(weights[name], before[name]) for name in report.taken)


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    generator, path = saved(tmp_path)
    save_file({n: w.to(torch.bfloat16) for n, w in generator.state_dict().items()}, path)
    model = built()
    load_generator(model, path)
    weight = model.blocks[0].attn.proj.weight
    assert weight.dtype == torch.float32
    assert torch.equal(weight, generator.blocks[0].attn.proj.weight.bfloat16().float())


def test_tensors_of_another_shape_or_type_are_left(tmp_path: Path) -> None:
    generator, path = saved(tmp_path)
    weights = generator.state_dict()
    weights["blocks.0.mlp.fc1.weight"] = torch.zeros(WIDTH, WIDTH)
    weights["blocks.0.attn.proj.weight"] = torch.zeros(WIDTH, WIDTH, dtype=torch.int8)
    weights["blocks.0.norm1.weight"] = torch.ones(WIDTH)
    save_file(weights, path)
    left = load_generator(built(), path).left
    assert left["blocks.0.mlp.fc1.weight"] == ("of shape (16, 16), where the model has (64, 16)")
    assert left["blocks.0.attn.proj.weight"] == "of type I8, which is no floating point"
    assert left["blocks.0.norm1.weight"] == "the model has no such weight"


def test_blocks_of_another_width_are_refused(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    with pytest.raises(ConfigError, match=r"blocks are 16 wide \(blocks.0.attn.qkv.weight\), but "):
        load_generator(built(hidden_size=32), path)


def test_a_file_without_blocks_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.safetensors"
    save_file({"layers.0.weight": torch.zeros(2)}, path)
    with pytest.raises(
        DataError, match=r"names like blocks.0.attn.qkv.weight, got layers.0.weight"
    ):
        load_generator(built(), path)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    generator, path = saved(tmp_path)
    weights = generator.state_dict()
    weights["blocks.1.mlp.fc2.bias"][3] = float("nan")
    save_file(weights, path)
    with pytest.raises(DataError, match=r"'blocks.1.mlp.2.bias' holds numbers that are not finite"):
        load_generator(built(), path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone.safetensors: no such file"):
        load_generator(built(), tmp_path / "gone.safetensors")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(b"PK\x03\x04 no header of safetensors")
    with pytest.raises(DataError, match=r"model.pt: expected a .safetensors file, got an error"):
        load_generator(built(), path)
