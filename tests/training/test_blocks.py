"""Blocks and layouts of packed streams: worked-out positions, gates and timesteps."""

import math

import pytest
import torch

from rewardctl.training.blocks import DiTBlock, TimestepEmbedding, attend, rotate
from rewardctl.training.stream import Layout, RotaryTable, Run, find_row, runs_of

CPU = torch.device("cpu")


def layout(lengths: list[int], *, head_dim: int = 4, first: int = 0, theta: float = 1e4) -> Layout:
    return RotaryTable(head_dim, 4, theta).layout(lengths, first=first, device=CPU)


def block(*, timestep_aware: bool = False, qk_norm: bool = False) -> DiTBlock:
    torch.manual_seed(0)
    return DiTBlock(8, 2, mlp_ratio=4.0, qk_norm=qk_norm, timestep_aware=timestep_aware)


def test_neighbours_of_one_length_are_one_run() -> None:
    assert runs_of([3, 3, 1, 3]) == [Run(2, 3), Run(1, 1), Run(1, 3)]


def test_a_place_in_the_stream_has_a_row_and_a_position() -> None:
    assert [find_row([2, 1, 3], place) for place in (0, 1, 2, 3, 5)] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (2, 0),
        (2, 2),
    ]


def test_positions_start_anew_in_each_sequence() -> None:
    # With head_dim 2 the one angle is the position itself.
    angles = layout([2, 3], head_dim=2, first=1)
    turns = angles.turns.flatten()
    assert turns.real.tolist() == pytest.approx([math.cos(p) for p in (1, 2, 1, 2, 3)])
    assert turns.imag.tolist() == pytest.approx([math.sin(p) for p in (1, 2, 1, 2, 3)])


def test_starts_and_ends_of_sequences() -> None:
    assert layout([2, 1, 4]).starts() == [0, 2, 3]
    assert layout([2, 1, 4]).ends() == [1, 2, 6]


def test_rotary_angles_follow_theta() -> None:
    # The second pair of head_dim 4 turns by theta^(-1/2) a position.
    angles = layout([3], theta=100.0)
    assert angles.turns.imag[2, 0].tolist() == pytest.approx([math.sin(2), math.sin(0.2)])


def test_a_longer_input_gets_more_rows_of_the_same_table() -> None:
    short, long = RotaryTable(4, 4, 500.0), RotaryTable(4, 64, 500.0)
    grown, whole = (table.layout([40], first=1, device=CPU) for table in (short, long))
    assert torch.equal(grown.turns, whole.turns)


def test_rotation_turns_neighbouring_channels() -> None:
    x = torch.tensor([[[1.0, 0.0, 0.0, 2.0]]])
    turned = rotate(x, layout([1], first=1))
    small = 1e4**-0.5
    expected = [math.cos(1), math.sin(1), -2 * math.sin(small), 2 * math.cos(small)]
    assert turned.flatten().tolist() == pytest.approx(expected)


def test_a_sequence_attends_to_itself_alone() -> None:
    # Equal queries and keys: each position gets the mean of its own sequence.
    zeros = torch.zeros(5, 1, 2)
    values = torch.tensor([1.0, 3.0, 10.0, 20.0, 30.0]).view(5, 1, 1).expand(5, 1, 2)
    out = attend(zeros, zeros, values, layout([2, 3], head_dim=2))
    assert out[:, 0].tolist() == pytest.approx([2, 2, 20, 20, 20])


@pytest.mark.parametrize("timestep_aware", [False, True])
def test_a_block_with_closed_gates_is_the_identity(timestep_aware: bool) -> None:
    made = block(timestep_aware=timestep_aware)
    torch.nn.init.zeros_(made.adaLN_modulation[1].bias)
    if timestep_aware:
        torch.nn.init.zeros_(made.adaLN_modulation[1].weight)
    x = torch.randn(5, 8)
    condition = torch.randn(2, 8) if timestep_aware else None
    assert torch.equal(made(x, condition, layout([2, 3]), torch.float32), x)


def test_without_timesteps_only_the_constants_of_the_conditioning_are_stored() -> None:
    names = [name for name, _ in block().named_parameters() if "adaLN" in name]
    assert names == ["adaLN_modulation.1.bias"]


def test_constants_act_as_a_condition_of_zeros() -> None:
    plain, aware = block(), block(timestep_aware=True)
    aware.load_state_dict(plain.state_dict(), strict=False)
    for made in (plain, aware):
        with torch.no_grad():
            made.adaLN_modulation[1].bias.copy_(torch.linspace(-1, 1, 48))
    x, where = torch.randn(5, 8), layout([2, 3])
    expected = aware(x, torch.zeros(2, 8), where, torch.float32)
    assert torch.allclose(plain(x, None, where, torch.float32), expected, atol=1e-6)


def test_each_sequence_has_its_own_condition() -> None:
    made = block(timestep_aware=True)
    x, condition = torch.randn(5, 8), torch.randn(2, 8)
    both = made(x, condition, layout([2, 3]), torch.float32)
    second = made(x[2:], condition[1:], layout([3]), torch.float32)
    assert torch.allclose(both[2:], second, atol=1e-6)
    assert not torch.allclose(
        made(x, condition.flip(0), layout([2, 3]), torch.float32), both, atol=1e-3
    )


def test_timesteps_are_scaled_for_the_sinusoids() -> None:
    torch.manual_seed(0)
    thousand, one = TimestepEmbedding(8, 1000.0), TimestepEmbedding(8, 1.0)
    one.load_state_dict(thousand.state_dict())
    t = torch.tensor([0.25, 1.0])
    assert torch.equal(thousand(t), one(1000 * t))
