"""References to media as rows write them."""

import base64
from pathlib import Path

import pytest

from rewardctl.data.media_ref import (
    MediaRoot,
    parse_media,
    parse_media_list,
    parse_video,
    parse_video_list,
)
from rewardctl.errors import RowError

ROOT = MediaRoot(Path("/media"))
CONTENT = b"\x00\xffpixels"
ENCODED = base64.b64encode(CONTENT).decode()


def refusal(value: object) -> str:
    with pytest.raises(RowError) as caught:
        parse_media(value, ROOT)
    assert caught.value.status == "bad_row"
    return str(caught.value)


@pytest.mark.parametrize(
    "value", ["pics/a.png", {"path": "pics/a.png"}, {"path": "pics/a.png", "bytes": None}]
)
def test_a_path_is_kept_as_the_row_gave_it(value):
    ref = parse_media(value, ROOT)
    assert (ref.path, ref.content, ref.name) == ("pics/a.png", None, "pics/a.png")


@pytest.mark.parametrize(
    "value",
    [
        {"bytes": ENCODED},
        {"path": None, "bytes": ENCODED},
        f"data:image/png;base64,{ENCODED}",
        f"data:;base64,{ENCODED}",
        {"path": f"data:image/png;base64,{ENCODED}"},
        "data:image/png,%00%FFpixels",
    ],
)
def test_content_comes_from_bytes_and_data_uris(value):
    ref = parse_media(value, ROOT)
    assert (ref.path, ref.content, ref.name) == (None, CONTENT, "<bytes>")


def test_bytes_go_before_the_path_beside_them_which_names_them():
    ref = parse_media({"path": "a.png", "bytes": ENCODED}, ROOT)
    assert (ref.path, ref.content, ref.name) == (None, CONTENT, "a.png")


def test_base64_may_be_broken_into_lines():
    broken = "\n".join(ENCODED[i : i + 4] for i in range(0, len(ENCODED), 4)) + "\n"
    assert parse_media({"bytes": broken}, ROOT).content == CONTENT


def test_a_url_is_a_reference_so_that_text_only_runs_work():
    ref = parse_media("https://example.org/a.png", ROOT)
    assert ref.is_url
    assert ref.path == "https://example.org/a.png"


@pytest.mark.parametrize("path", ["a.png", "a:b.png", "/x//y.png", "C:/x.png", "data/x.png"])
def test_a_path_is_no_url(path):
    assert not parse_media(path, ROOT).is_url


@pytest.mark.parametrize("value", [3, None, True, ["a.png"], 1.5])
def test_another_type_is_refused_with_the_forms_that_are_taken(value):
    text = refusal(value)
    assert text == (
        'expected a path, {"path": ...}, {"bytes": base64} or a data: URI, found ' + repr(value)
    )


def test_an_object_without_path_and_bytes_is_refused():
    assert refusal({"path": None, "bytes": None}).startswith(
        'a media object without "path" and "bytes"; expected a path'
    )


def test_an_unknown_key_of_an_object_is_refused():
    assert refusal({"path": "a.wav", "array": [0.0]}).startswith(
        "unknown key 'array' in a media object; expected a path"
    )


def test_path_and_bytes_of_an_object_are_text():
    assert refusal({"path": 3}) == '"path" of a media object: expected text, found 3'
    assert refusal({"bytes": [1, 2]}) == '"bytes" of a media object: expected base64, found [1, 2]'


@pytest.mark.parametrize("text", ["not base64!", "abc", "ab=c", "ümlaut=="])
def test_bad_base64_is_refused(text):
    assert refusal({"bytes": text}).startswith(f"expected base64, found {text!r} (")
    assert refusal(f"data:image/png;base64,{text}").startswith(f"expected base64, found {text!r} (")


def test_a_data_uri_without_a_comma_is_refused():
    assert refusal("data:image/png;base64") == (
        "expected 'data:TYPE;base64,...', found 'data:image/png;base64' without a comma"
    )


def test_a_video_is_a_file_or_a_list_of_frames():
    assert parse_video("a.mp4", ROOT) == parse_media("a.mp4", ROOT)
    frames = parse_video(["0.png", {"bytes": ENCODED}], ROOT)
    assert [frame.name for frame in frames] == ["0.png", "<bytes>"]


def test_a_video_of_no_frames_is_refused():
    with pytest.raises(RowError, match="found an empty list"):
        parse_video([], ROOT)


def test_condition_lists_may_be_empty_and_must_be_lists():
    assert parse_media_list([], ROOT) == []
    assert parse_video_list([], ROOT) == []
    assert [ref.name for ref in parse_media_list(["a.png", "b.png"], ROOT)] == ["a.png", "b.png"]
    with pytest.raises(RowError, match="expected a list of media files, found"):
        parse_media_list("a.png", ROOT)
    with pytest.raises(RowError, match="expected a list of videos, found"):
        parse_video_list("a.mp4", ROOT)


def test_condition_videos_are_files_or_lists_of_frames():
    video, frames = parse_video_list(["a.mp4", ["0.png", "1.png"]], ROOT)
    assert video.name == "a.mp4"
    assert [frame.name for frame in frames] == ["0.png", "1.png"]


def test_equal_files_have_equal_keys():
    other = MediaRoot(Path("/other"))
    assert parse_media("a.png", ROOT).key == parse_media({"path": "a.png"}, ROOT).key
    assert parse_media("a.png", ROOT).key != parse_media("b.png", ROOT).key
    assert parse_media("a.png", ROOT).key != parse_media("a.png", other).key
    assert (
        parse_media({"bytes": ENCODED}, ROOT).key
        == parse_media(f"data:,{'%00%FFpixels'}", other).key
    )
    assert parse_media({"bytes": ENCODED}, ROOT).key != parse_media({"bytes": ""}, ROOT).key


def test_the_label_of_a_long_path_ends_with_the_files_name():
    ref = parse_media("folder/" * 30 + "cut.jpg", ROOT)
    assert ref.label.endswith("folder/cut.jpg'")
    assert len(ref.label) <= 80


def test_the_label_escapes_control_characters():
    assert parse_media("a\x1b[31m.png", ROOT).label == r"'a\x1b[31m.png'"
