"""Which frames of a video are picked when `media.video_fps` is set."""

from fractions import Fraction

import pytest

from rewardctl.config.schema import MediaConfig
from rewardctl.data import media_video
from rewardctl.data.media_video import pick_by_time
from rewardctl.errors import RowError


def test_frames_are_picked_at_each_multiple_of_the_period():
    timed = [(n / 10, n) for n in range(20)]
    assert list(pick_by_time(timed, 10)) == list(range(20))
    assert list(pick_by_time(timed, 5)) == list(range(0, 20, 2))
    # Marks at 0, 1/3, 2/3, 1, ...; the first frame at or after each.
    assert list(pick_by_time(timed, 3)) == [0, 4, 7, 10, 14, 17]
    assert list(pick_by_time(timed, 0.5)) == [0]


def test_picking_goes_by_timestamps_not_by_counting():
    timed = [(5.0, "a"), (5.1, "b"), (5.2, "c"), (8.0, "d"), (8.4, "e"), (9.5, "f")]
    assert list(pick_by_time(timed, 1)) == ["a", "d", "f"]


def test_a_slow_video_keeps_all_frames_once():
    assert list(pick_by_time([(0.0, "a"), (1.0, "b"), (2.0, "c")], 30)) == ["a", "b", "c"]
    assert list(pick_by_time([], 30)) == []


def test_rounded_timestamps_are_on_their_mark():
    # 30 frames a second in milliseconds: 33, 67, 100, ...
    timed = [(round(1000 * n / 30) / 1000, n) for n in range(60)]
    assert list(pick_by_time(timed, 10)) == list(range(0, 60, 3))


def test_a_file_without_times_cannot_be_thinned():
    class Timeless:
        width, height, time, is_corrupt = 8, 8, None, False

    class Packet:
        is_corrupt = False

        def decode(self):
            return [Timeless()]

    class Container:
        def demux(self, stream):
            return [Packet(), Packet()]

    class Stream:
        average_rate = None

    frames = media_video._container_frames(Container(), Stream(), "'a'", MediaConfig(video_fps=1))
    with pytest.raises(RowError, match="'a': holds no times, which"):
        list(frames)
    timed = media_video._container_frames(Container(), Stream(), "'a'", MediaConfig())
    assert [seconds for seconds, _ in timed] == [0.0, 0.0]
    Stream.average_rate = Fraction(4)
    timed = media_video._container_frames(Container(), Stream(), "'a'", MediaConfig(video_fps=1))
    assert [seconds for seconds, _ in timed] == [0.0, 0.25]
