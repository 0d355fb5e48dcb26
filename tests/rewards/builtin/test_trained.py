"""`trained`: scores by a checkpoint of our own, of texts, tokens and latents."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from train_project import NETWORK, make_model

from rewardctl.config.schema import RewardArguments
from rewardctl.data.samples import BaseSample
from rewardctl.data.tokenizer import TEMPLATE, TextEncoder
from rewardctl.errors import ConfigError, DataError, RowErrors
from rewardctl.rewards.loader import load_reward_model
from rewardctl.rewards.reward_processor import RewardProcessor
from rewardctl.testing import check_contract
from rewardctl.training.checkpoint import Checkpoint, InputFacts, ScoreFacts, save_checkpoint
from rewardctl.training.reward_model import RewardModel

TEXTS = ["Yes.", "No, not that one.", "the cat sat on the mat", "Ünï 東京", "a"]
TOKENS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [1, 2, 3, 4], [15] * 12]
Build = Callable[..., Any]


def save(
    folder: Path,
    kind: str = "tokens",
    *,
    overlong: str = "error",
    scores: ScoreFacts | None = None,
    **network: Any,
) -> RewardModel:
    encoder = TextEncoder.byte_encoder() if kind == "text" else None
    size = {"text": {"vocab_size": 256, "seq_length": 40}, "tokens": {}}
    size["latents"] = {"vocab_size": None, "in_channels": 3}
    model = make_model(shaken=True, **{**size[kind], **network}).eval()
    inputs = InputFacts(kind, TEMPLATE if kind == "text" else None, overlong)
    save_checkpoint(folder, Checkpoint(model, inputs, encoder, None, scores))
    return model


def alone(model: RewardModel, items: Any, t: float | None = None) -> list[float]:
    """Each input as a batch of one."""
    times = None if t is None else torch.tensor([t])
    return [model(torch.as_tensor(np.asarray(i))[None], times).item() for i in items]


def scores(reward: Any, **inputs: Any) -> list[float]:
    found: list[float] = reward(**inputs).rewards.tolist()
    return found


def faults(reward: Any, **inputs: Any) -> dict[int, tuple[str, str]]:
    with pytest.raises(RowErrors) as error:
        reward(**inputs)
    return {place: (e.status, str(e)) for place, e in error.value.faults.items()}


# ---------------------------------------------------------------- kinds of input


def test_texts_keep_the_contract(build: Build, tmp_path: Path) -> None:
    save(tmp_path, "text")
    samples = [BaseSample(prompt=p, response=t) for t in TEXTS for p in (None, "Why?")]
    check_contract(build("trained", model_path=str(tmp_path)), samples)


def test_tokens_keep_the_contract(build: Build, tmp_path: Path) -> None:
    save(tmp_path)
    samples = [BaseSample(tokens=tokens) for tokens in TOKENS]
    check_contract(build("trained", model_path=str(tmp_path)), samples)


def test_latents_keep_the_contract_at_each_timestep(build: Build, tmp_path: Path) -> None:
    save(tmp_path, "latents", timestep_aware=True)
    draw = np.random.default_rng(0)
    samples = [
        BaseSample(latents=draw.standard_normal((n, 3)).astype(np.float32), timestep=n / 12)
        for n in (1, 5, 12, 5, 2)
    ]
    check_contract(build("trained", model_path=str(tmp_path)), samples)


def test_tokens_score_as_the_model_scores_them(build: Build, tmp_path: Path) -> None:
    model = save(tmp_path)
    found = scores(build("trained", model_path=str(tmp_path)), tokens=TOKENS)
    # float32 sums in another order
    assert found == pytest.approx(alone(model, TOKENS), abs=1e-5)
    assert len(set(found)) == len(TOKENS)


def test_prompt_and_response_are_one_text(build: Build, tmp_path: Path) -> None:
    """Joined by one newline when neither end is white space."""
    model = save(tmp_path, "text")
    reward = build("trained", model_path=str(tmp_path))
    found = scores(reward, prompt=["Why?", "Why? "], response=["So.", "So."])
    joined = [list(text.encode()) for text in ("Why?\nSo.", "Why? So.")]
    assert found == pytest.approx(alone(model, joined), abs=1e-5)


def test_latents_score_as_the_model_scores_them(build: Build, tmp_path: Path) -> None:
    model = save(tmp_path, "latents", timestep_aware=True)
    latents = [np.full((n, 3), n, dtype=np.float32) for n in (2, 5)]
    found = scores(
        build("trained", model_path=str(tmp_path)), latents=latents, timestep=[0.25, 0.25]
    )
    assert found == pytest.approx(alone(model, latents, 0.25), abs=1e-5)


@pytest.mark.parametrize(
    ("kind", "aware", "required", "optional"),
    [
        ("text", False, ("response",), ("prompt",)),
        ("tokens", False, ("tokens",), ()),
        ("latents", False, ("latents",), ()),
        ("tokens", True, ("tokens", "timestep"), ()),
        ("text", True, ("response", "timestep"), ("prompt",)),
    ],
)
def test_the_checkpoint_says_what_a_row_must_have(
    build: Build, tmp_path: Path, kind: str, aware: bool, required: tuple[str, ...], optional: Any
) -> None:
    save(tmp_path, kind, timestep_aware=aware)
    reward = build("trained", model_path=str(tmp_path))
    assert (reward.required_fields, reward.optional_fields) == (required, optional)


def status_of(reward: Any, *samples: BaseSample) -> list[str]:
    args = RewardArguments(name="s", reward_model="trained", batch_size=len(samples))
    processor = RewardProcessor(reward.accelerator, {"s": reward}, {"s": args})
    with pytest.raises(DataError) as error:
        processor.compute_rewards(list(samples))
    return str(error.value).splitlines()


def test_a_missing_timestep_is_named(build: Build, tmp_path: Path) -> None:
    save(tmp_path, timestep_aware=True)
    reward = build("trained", model_path=str(tmp_path))
    assert "timestep" in status_of(reward, BaseSample(tokens=[1]))[0]


def test_a_timestep_is_not_needed_and_not_used_by_a_model_without(
    build: Build, tmp_path: Path
) -> None:
    save(tmp_path)
    samples = [BaseSample(tokens=[1, 2], timestep=t) for t in (0.0, 0.9, None)]
    reward = build("trained", model_path=str(tmp_path))
    args = RewardArguments(name="s", reward_model="trained", batch_size=2)
    processor = RewardProcessor(reward.accelerator, {"s": reward}, {"s": args})
    found = processor.compute_rewards(samples)["s"].tolist()
    assert found == pytest.approx([found[0]] * 3, abs=1e-5)


# ---------------------------------------------------------------- rows that cannot be scored


def test_an_overlong_row_fails_alone(build: Build, tmp_path: Path) -> None:
    model = save(tmp_path)
    reward = build("trained", model_path=str(tmp_path))
    found = faults(reward, tokens=[[1], [2] * 13, [3]])
    assert found == {
        1: (
            "model_error",
            "the input has 13 positions, the model takes 12; shorten it, or train with overlong: "
            "keep_head or keep_tail",
        )
    }
    assert scores(reward, tokens=[[1], [3]]) == pytest.approx(alone(model, [[1], [3]]), abs=1e-5)


@pytest.mark.parametrize(
    ("policy", "kept"), [("keep_head", slice(12)), ("keep_tail", slice(-12, None))]
)
def test_an_overlong_row_is_cut_as_in_training(
    build: Build, tmp_path: Path, policy: str, kept: slice
) -> None:
    model = save(tmp_path, overlong=policy)
    tokens = [n % 16 for n in range(20)]
    found = scores(build("trained", model_path=str(tmp_path)), tokens=[tokens, [1]])
    assert found == pytest.approx(alone(model, [tokens[kept], [1]]), abs=1e-5)


def test_text_is_cut_after_joining(build: Build, tmp_path: Path) -> None:
    model = save(tmp_path, "text", overlong="keep_tail")
    joined = list(("p" * 30 + "\n" + "r" * 15).encode())
    reward = build("trained", model_path=str(tmp_path))
    found = scores(reward, prompt=["p" * 30], response=["r" * 15])
    assert found == pytest.approx(alone(model, [joined[-40:]]), abs=1e-5)


def test_a_model_that_dropped_overlong_rows_refuses_them(build: Build, tmp_path: Path) -> None:
    save(tmp_path, overlong="drop")
    found = faults(build("trained", model_path=str(tmp_path)), tokens=[[1], [2] * 13])
    assert list(found) == [1]


def test_tokens_out_of_range_are_named(build: Build, tmp_path: Path) -> None:
    save(tmp_path)
    found = faults(
        build("trained", model_path=str(tmp_path)), tokens=[[1], [3, 16], [0, 15], [5, 2**40]]
    )
    assert found == {
        1: ("model_error", "token 16 is outside the model's 16 ids"),
        3: ("model_error", f"token {2**40} is outside the model's 16 ids"),
    }


def test_a_negative_token_is_the_one_that_is_named(build: Build, tmp_path: Path) -> None:
    save(tmp_path)
    found = faults(build("trained", model_path=str(tmp_path)), tokens=[[3, -2, 4]])
    assert found == {0: ("model_error", "token -2 is outside the model's 16 ids")}


def test_an_empty_input_is_named(build: Build, tmp_path: Path) -> None:
    save(tmp_path, "text")
    found = faults(build("trained", model_path=str(tmp_path)), response=["a", ""])
    assert found == {
        1: ("model_error", "the input is empty, expected at least one position"),
    }


def test_half_a_character_fails_alone(build: Build, tmp_path: Path) -> None:
    save(tmp_path, "text")
    reward = build("trained", model_path=str(tmp_path))
    found = faults(reward, response=["fine", "half \ud800", "fine too"])
    assert list(found) == [1]
    assert "surrogate" in found[1][1]


def test_latents_of_another_shape_are_named(build: Build, tmp_path: Path) -> None:
    save(tmp_path, "latents")
    shapes = [(2, 3), (2, 4), (3,), (1, 2, 3)]
    latents = [np.zeros(shape, np.float32) for shape in shapes]
    found = faults(build("trained", model_path=str(tmp_path)), latents=latents)
    assert found == {
        place: ("model_error", f"latents have shape {shapes[place]}, expected (length, 3)")
        for place in (1, 2, 3)
    }


@pytest.mark.parametrize(
    ("timestep", "message"),
    [
        (500.0, "timestep 500 is outside [0, 1]; divide by 1000?"),
        (-0.5, "timestep -0.5 is outside [0, 1]"),
        (float("nan"), "timestep nan is outside [0, 1]"),
    ],
)
def test_a_timestep_out_of_range_is_named(
    build: Build, tmp_path: Path, timestep: float, message: str
) -> None:
    save(tmp_path, timestep_aware=True)
    reward = build("trained", model_path=str(tmp_path))
    found = faults(reward, tokens=[[1], [2]], timestep=[0.5, timestep])
    assert found == {1: ("model_error", message)}


# ---------------------------------------------------------------- settings


def test_normalize_uses_the_stored_mean_and_deviation(build: Build, tmp_path: Path) -> None:
    save(tmp_path, scores=ScoreFacts(0.5, 2.0, 64, "validation"))
    raw = scores(build("trained", model_path=str(tmp_path)), tokens=TOKENS)
    found = scores(build("trained", model_path=str(tmp_path), normalize=True), tokens=TOKENS)
    assert found == pytest.approx([(score - 0.5) / 2 for score in raw], abs=1e-12)


@pytest.mark.parametrize("facts", [None, ScoreFacts(0.5, 0.0, 64, "validation")])
def test_normalize_without_a_deviation_is_refused(
    build: Build, tmp_path: Path, facts: ScoreFacts | None
) -> None:
    save(tmp_path, scores=facts)
    with pytest.raises(ConfigError, match="stores no deviation of scores over 0"):
        build("trained", model_path=str(tmp_path), normalize=True)


def test_a_model_path_is_needed(build: Build) -> None:
    with pytest.raises(ConfigError, match="trained needs model_path: the folder of a checkpoint"):
        build("trained")


def test_a_path_without_a_checkpoint_is_named(build: Build, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none: is not there; expected the folder of a checkp"):
        build("trained", model_path=str(tmp_path / "none"))


def test_a_runs_folder_means_its_best_else_its_final(build: Build, tmp_path: Path) -> None:
    final = save(tmp_path / "final")
    reward = build("trained", model_path=str(tmp_path))
    assert scores(reward, tokens=TOKENS) == pytest.approx(alone(final, TOKENS), abs=1e-5)
    best = save(tmp_path / "best", pooling="last")
    reward = build("trained", model_path=str(tmp_path))
    assert scores(reward, tokens=TOKENS) == pytest.approx(alone(best, TOKENS), abs=1e-5)


def test_bfloat16_scores_are_close_to_float32(tmp_path: Path) -> None:
    save(tmp_path)
    found = []
    for dtype in ("float32", "bfloat16"):
        args = RewardArguments(
            name="s", reward_model="trained", model_path=str(tmp_path), dtype=dtype
        )
        found.append(scores(load_reward_model(args, Accelerator(cpu=True)), tokens=TOKENS))
    spread = float(np.std(found[0]))
    assert found[0] != found[1]
    for exact, score in zip(*found, strict=True):
        assert abs(score - exact) <= 5e-3 * max(spread, abs(exact), 1.0)


def test_scores_are_the_same_in_any_order_and_company(build: Build, tmp_path: Path) -> None:
    save(tmp_path)
    draw = np.random.default_rng(1)
    tokens = [draw.integers(0, NETWORK["vocab_size"], n).tolist() for n in draw.integers(1, 13, 40)]
    reward = build("trained", model_path=str(tmp_path))
    together = scores(reward, tokens=tokens)
    assert scores(reward, tokens=tokens[::-1])[::-1] == pytest.approx(together, abs=1e-5)
    single = [scores(reward, tokens=[each])[0] for each in tokens]
    assert single == pytest.approx(together, abs=1e-5)


def test_calls_are_large_by_default(build: Build, tmp_path: Path) -> None:
    save(tmp_path)
    assert build("trained", model_path=str(tmp_path)).default_batch_size == 1024


def test_a_model_that_learnt_without_prompts_is_shown_none(build: Build, tmp_path: Path) -> None:
    encoder = TextEncoder.byte_encoder()
    model = make_model(vocab_size=encoder.vocab_size)
    save_checkpoint(tmp_path, Checkpoint(model, InputFacts("text", None), encoder))
    reward = build("trained", model_path=str(tmp_path))
    assert (reward.required_fields, reward.optional_fields) == (("response",), ())
