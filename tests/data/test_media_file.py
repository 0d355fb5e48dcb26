"""Opening media files: where they may lie, and what they may be."""

import os
import socket
from pathlib import Path

import pytest

from rewardctl.data import media_file
from rewardctl.data.media_file import decoder_errors, open_media, read_media
from rewardctl.data.media_ref import MediaRoot, parse_media
from rewardctl.errors import RowError


@pytest.fixture
def folder(tmp_path):
    """A media folder with one file in it, and one beside it."""
    inside = tmp_path / "media"
    (inside / "pics").mkdir(parents=True)
    (inside / "pics" / "a.png").write_bytes(b"inside")
    (tmp_path / "secret.png").write_bytes(b"outside")
    return inside


def content(folder: Path, path: str, *, allow: tuple[Path, ...] = ()) -> bytes:
    with open_media(parse_media(path, MediaRoot(folder, allow))) as file:
        return file.read()


def refusal(folder: Path, path: str, *, allow: tuple[Path, ...] = ()) -> str:
    with pytest.raises(RowError) as caught:
        content(folder, path, allow=allow)
    assert caught.value.status == "decode_error"
    return str(caught.value)


def test_a_path_is_relative_to_the_media_folder_wherever_the_command_runs(
    folder, tmp_path, monkeypatch
):
    for place in (tmp_path, folder, folder / "pics", Path("/")):
        monkeypatch.chdir(place)
        assert content(folder, "pics/a.png") == b"inside"


def test_a_relative_media_folder_is_taken_from_the_working_directory(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert content(Path("media"), "pics/a.png") == b"inside"
    assert content(Path("."), "secret.png") == b"outside"


@pytest.mark.parametrize("path", ["pics/../pics/a.png", "./pics//a.png"])
def test_a_path_that_stays_in_the_folder_is_read(folder, path):
    assert content(folder, path) == b"inside"


def test_an_absolute_path_in_the_folder_is_read(folder):
    assert content(folder, str(folder / "pics" / "a.png")) == b"inside"


def test_symlinks_within_the_folder_are_followed(folder):
    (folder / "link.png").symlink_to("pics/a.png")
    (folder / "linked").symlink_to("pics")
    assert content(folder, "link.png") == b"inside"
    assert content(folder, "linked/a.png") == b"inside"


def test_the_folder_itself_may_be_a_symlink(folder, tmp_path):
    (tmp_path / "alias").symlink_to(folder)
    assert content(tmp_path / "alias", "pics/a.png") == b"inside"
    assert content(folder, str(tmp_path / "alias" / "pics" / "a.png")) == b"inside"


@pytest.mark.parametrize("path", ["../secret.png", "pics/../../secret.png", "/etc/passwd"])
def test_a_path_out_of_the_folder_is_refused_and_the_option_named(folder, path):
    text = refusal(folder, path)
    assert text.startswith(f"{path!r}: leads to '/")
    assert "outside the media folder" in text
    assert text.endswith("if that is meant, allow its folder with --allow-media DIR")


def test_what_lies_outside_is_refused_alike_whether_it_exists_or_not(folder):
    assert "outside the media folder" in refusal(folder, "../no-such.png")


def test_a_symlink_out_of_the_folder_is_refused(folder, tmp_path):
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "up").symlink_to(tmp_path)
    assert "outside the media folder" in refusal(folder, "link.png")
    assert "outside the media folder" in refusal(folder, "up/secret.png")


def test_a_folder_whose_name_begins_alike_is_outside(folder):
    beside = folder.parent / "media2"
    beside.mkdir()
    (beside / "b.png").write_bytes(b"b")
    assert "outside the media folder" in refusal(folder, "../media2/b.png")


def test_an_allowed_folder_may_be_reached(folder, tmp_path):
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    for allowed in (tmp_path, Path("/")):
        assert content(folder, "../secret.png", allow=(allowed,)) == b"outside"
        assert content(folder, "link.png", allow=(allowed,)) == b"outside"
    assert "outside the media folder" in refusal(folder, "../secret.png", allow=(folder / "pics",))


def test_a_symlink_put_there_after_the_check_is_not_followed(folder, tmp_path, monkeypatch):
    def swap_and_open(base: str, path: str) -> int:
        (folder / "pics").rename(folder / "old")
        (folder / "pics").symlink_to(tmp_path)
        return real_open(base, path)

    (tmp_path / "a.png").write_bytes(b"outside")
    real_open = media_file._open_below
    monkeypatch.setattr(media_file, "_open_below", swap_and_open)
    assert refusal(folder, "pics/a.png").startswith("'pics/a.png': ")


def test_a_missing_file_is_named_with_the_folder_it_was_looked_for_in(folder, monkeypatch):
    monkeypatch.chdir("/")
    assert refusal(folder, "pics/b.png") == (
        f"'pics/b.png': no such file; paths are relative to {str(folder)!r}"
        " (--media-root changes that)"
    )
    assert "no such file" in refusal(folder, "pics/a.png/b.png")


def test_a_file_that_is_only_under_the_working_directory_is_hinted_at(folder, monkeypatch):
    monkeypatch.chdir(folder / "pics")
    assert refusal(folder, "a.png").endswith(
        "but it exists under the working directory: run with --media-root ."
    )


@pytest.mark.timeout(20)
def test_a_fifo_is_refused_and_does_not_hang(folder):
    os.mkfifo(folder / "pipe.png")
    assert refusal(folder, "pipe.png") == "'pipe.png': is a FIFO, expected a regular file"


def test_a_folder_is_refused(folder):
    assert refusal(folder, "pics") == "'pics': is a folder, expected a regular file"
    assert refusal(folder, ".") == "'.': is a folder, expected a file"


def test_a_device_is_refused(folder):
    text = refusal(folder, "/dev/zero", allow=(Path("/"),))
    assert text == "'/dev/zero': is a device, expected a regular file"


def test_a_socket_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s.png")
        assert refusal(folder, "s.png").startswith("'s.png': cannot be opened: ")


def test_an_empty_file_is_refused(folder):
    (folder / "zero.png").touch()
    assert refusal(folder, "zero.png") == "'zero.png': is empty (0 bytes)"


def test_a_file_of_the_process_table_is_refused(folder):
    text = refusal(folder, "/proc/self/environ", allow=(Path("/"),))
    assert "is empty" in text


def test_empty_content_is_refused():
    with pytest.raises(RowError, match="'<bytes>': expected a file's content, found 0 bytes"):
        open_media(parse_media({"bytes": ""}, MediaRoot(Path("/"))))


@pytest.mark.parametrize("path", ["a\0.png", ""])
def test_a_nul_character_and_an_empty_path_are_refused(folder, path):
    assert refusal(folder, path) == (
        f"{path!r}: expected a path, found an empty one or a NUL character"
    )


@pytest.mark.parametrize("path", ["\ud800.png", "x" * 5000, "x/" * 5000])
def test_a_path_that_cannot_be_is_refused(folder, path):
    assert refusal(folder, path)


def test_a_symlink_that_leads_to_itself_is_refused(folder):
    (folder / "loop.png").symlink_to("loop.png")
    assert refusal(folder, "loop.png").startswith("'loop.png': cannot be opened: ")


@pytest.mark.parametrize(
    "url", ["https://example.org/a.png", "http://[::1]/x", "file:///etc/passwd", "s3://b/k"]
)
def test_urls_are_refused_with_the_next_step(folder, url):
    assert refusal(folder, url) == (
        f"{url!r}: URLs are refused; download the file first and give its path"
    )


def test_content_is_read_as_a_file():
    ref = parse_media({"bytes": "AAEC"}, MediaRoot(Path("/")))
    with open_media(ref) as file:
        assert file.read() == b"\x00\x01\x02"


def test_a_file_over_the_limit_of_whole_reads_is_refused(folder, monkeypatch):
    monkeypatch.setattr(media_file, "ARRAY_BYTES", 5)
    with pytest.raises(RowError, match="is larger than 5 bytes, the most that is read"):
        read_media(parse_media("pics/a.png", MediaRoot(folder)))


def test_no_descriptor_stays_open(folder):
    os.mkfifo(folder / "pipe.png")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("pics/a.png", "pics/none.png", "pipe.png", "pics", "../secret.png", "a/b/c"):
        try:
            content(folder, path)
        except RowError:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_decoders_text_loses_what_changes_from_run_to_run():
    with (
        pytest.raises(RowError) as caught,
        decoder_errors("'a.png'", "an image"),
    ):
        raise OSError("cannot read <_io.BytesIO object at 0x7f01> or <_io.BufferedReader name=5>")
    assert str(caught.value) == (
        "'a.png': expected an image, but it does not decode: cannot read the file or the file; "
        "is it cut off or damaged?"
    )


def test_a_decoders_error_without_text_is_named_by_its_type():
    with pytest.raises(RowError, match="does not decode: MemoryError;"), decoder_errors("f", "x"):
        raise MemoryError
