"""Calibration of the probabilities that score gaps stand for."""

import math

import numpy as np
import pytest

from rewardctl.evaluation import calibration
from rewardctl.evaluation.metrics import Floats

THREE_IN_FOUR = math.log(3)  # sigmoid of it is 3/4


def floats(*values: float) -> Floats:
    return np.array(values, dtype=np.float64)


def ones(gap: Floats) -> Floats:
    return np.ones(len(gap))


def test_what_is_right_as_often_as_it_says_has_no_error() -> None:
    # Confidence 3/4, right 3 of 4; confidence 1/2 (ties), right by half.
    gap = floats(THREE_IN_FOUR, THREE_IN_FOUR, THREE_IN_FOUR, -THREE_IN_FOUR, 0.0, 0.0)
    found = calibration.calibrate(gap, ones(gap))
    assert found.ece == pytest.approx(0.0, abs=1e-15)
    assert [entry["n"] for entry in found.table] == [2, 0, 0, 0, 0, 4, 0, 0, 0, 0]


def test_confident_and_wrong_is_the_distance() -> None:
    gap = floats(-THREE_IN_FOUR)  # says the other side with 3/4; right with 0
    assert calibration.calibrate(gap, ones(gap)).ece == pytest.approx(0.75)


def test_certainty_falls_into_the_last_bin() -> None:
    gap = floats(1000.0, math.inf)
    table = calibration.calibrate(gap, ones(gap)).table
    assert (table[-1]["n"], table[-1]["confidence"]) == (2, 1.0)


def test_no_pairs_have_no_error() -> None:
    assert calibration.calibrate(floats(), floats()).ece is None


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_the_temperature_brings_gaps_to_what_they_are_worth(scale: float) -> None:
    # Right 3 of 4 is worth a gap of ln 3.
    gap = scale * floats(1, 1, 1, -1)
    found = calibration.fit_temperature(gap, ones(gap))
    assert found.value == pytest.approx(scale / THREE_IN_FOUR, rel=1e-12)
    assert found.log_loss == pytest.approx(
        -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)), rel=1e-12
    )


def test_soft_labels_have_a_temperature_where_no_pair_is_wrong() -> None:
    found = calibration.fit_temperature(floats(2.0), floats(0.75))
    assert found.value == pytest.approx(2 / THREE_IN_FOUR, rel=1e-12)


@pytest.mark.parametrize(
    ("gap", "reason"),
    [
        ((1.0, 2.0), "none above 0: no pair is wrong"),
        ((-1.0, 1.0), "no finite one: the scores do not agree with the labels"),
        ((0.0, 0.0), "the gaps are all 0, or not all finite"),
        ((), "no pairs"),
    ],
)
def test_where_there_is_no_temperature_it_says_why(gap: tuple[float, ...], reason: str) -> None:
    gaps = floats(*gap)
    assert calibration.fit_temperature(gaps, ones(gaps)) == calibration.Temperature(
        None, reason=reason
    )
