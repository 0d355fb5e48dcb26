"""Near names and names of other tools."""

import pytest

from rewardctl.config.explain import SECTION_AT
from rewardctl.config.hints import FOREIGN, MAX_KNOWN, did_you_mean, key_hint, shortened


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("wieght", ["weight", "name"], "weight"),
        ("lrr", ["lr", "loss"], "lr"),
        ("rl", ["lr", "loss"], "lr"),
        ("Batch-Size", ["batch_size"], "batch_size"),
        ("mim", ["min", "max"], "min"),
        ("evaluation_data", ["eval", "train"], None),
        ("x", ["a", "b"], None),
    ],
)
def test_the_nearest_name_is_meant(name: str, known: list[str], meant: str | None) -> None:
    assert did_you_mean(name, known) == meant


def test_nothing_is_guessed_among_very_many_names() -> None:
    assert did_you_mean("name0", [f"name{i}" for i in range(1, MAX_KNOWN + 2)]) is None


def test_every_foreign_name_means_a_key_of_some_section() -> None:
    keys = {key for section in SECTION_AT.values() for key in section.model_fields}
    unknown = {target for targets in FOREIGN.values() for target in targets} - keys
    assert unknown == set()


def test_a_foreign_name_that_is_no_key_here_is_looked_for_elsewhere() -> None:
    hint = key_hint("learning_rate", ["rewards"], {"train": ["lr"]})
    assert hint == "did you mean 'lr' under train:?"


def test_long_lists_are_cut() -> None:
    assert shortened([f"n{i}" for i in range(30)], limit=2) == "n0, n1 and 28 more"


def test_an_empty_list_is_none() -> None:
    assert shortened([]) == "none"


def test_odd_names_are_quoted() -> None:
    assert shortened(["a", "b c\n"]) == "a, 'b c\\n'"
