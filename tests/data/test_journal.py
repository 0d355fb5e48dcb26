"""Records that are whole or nothing, however a journal was cut or changed."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rewardctl.data.journal import (
    AppendFile,
    Journal,
    decode_record,
    encode_record,
    read_records,
)
from rewardctl.errors import RunError

RECORDS: list[dict[str, Any]] = [
    {"kind": "start", "name": "ä\n日本"},
    {"kind": "call", "scores": [0.1, None, 1e300], "faults": {"1": ["timeout", 'a "b" \\']}},
    {"kind": "window", "half": "\ud83d", "end": 2**60},
]


def write(path: Path, records: list[dict[str, Any]]) -> bytes:
    journal = Journal(path)
    for record in records:
        journal.append(record)
    journal.close()
    return path.read_bytes()


def read(path: Path) -> list[dict[str, Any]]:
    return [record for record, _ in read_records(path)]


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    content = write(tmp_path / "journal", RECORDS)
    assert read(tmp_path / "journal") == RECORDS
    assert content.count(b"\n") == 3


def test_each_record_comes_with_the_offset_of_its_end(tmp_path: Path) -> None:
    content = write(tmp_path / "journal", RECORDS)
    ends = [end for _, end in read_records(tmp_path / "journal")]
    lines = content.splitlines(keepends=True)
    assert ends == [len(b"".join(lines[:n])) for n in (1, 2, 3)]


def test_a_number_that_json_has_not_is_refused() -> None:
    with pytest.raises(ValueError, match="Out of range float values are not JSON compliant"):
        encode_record({"score": float("nan")})


def test_a_journal_cut_anywhere_gives_the_records_before_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content = write(path, RECORDS)
    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        assert read(path) == RECORDS[: content[:size].count(b"\n")]


def test_a_changed_byte_ends_the_journal_before_its_record(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content = write(path, RECORDS)
    for place in range(len(content)):
        record = content[:place].count(b"\n")
        for mask in (0x01, 0x20, 0x80):
            damaged = bytearray(content)
            damaged[place] ^= mask
            path.write_bytes(bytes(damaged))
            assert read(path) == RECORDS[:record], (place, mask)


def test_nothing_after_a_damaged_record_is_trusted(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    lines = write(path, RECORDS).splitlines(keepends=True)
    path.write_bytes(lines[0] + b"garbage\n" + lines[2])
    assert read(path) == RECORDS[:1]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.text(), json_values, min_size=1, max_size=4))
def test_any_record_is_one_line_and_comes_back(record: dict[str, Any]) -> None:
    line = encode_record(record)
    assert line.index(b"\n") == len(line) - 1
    assert decode_record(line) == json.loads(json.dumps(record))
    for size in range(len(line)):
        assert decode_record(line[:size]) is None


@settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=60))
def test_any_bytes_are_read_without_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    assert read(path) == []


def test_a_journal_goes_on_behind_its_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    content = write(path, RECORDS)
    path.write_bytes(content[:-5])
    size = [end for _, end in read_records(path)][-1]
    journal = Journal(path, size=size)
    journal.append({"kind": "new"}, sync=True)
    journal.close()
    assert read(path) == [*RECORDS[:2], {"kind": "new"}]


def test_a_new_journal_forgets_what_the_file_held(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b"old\n")
    assert read(path) == []
    write(path, RECORDS[:1])
    assert read(path) == RECORDS[:1]


def test_records_from_many_threads_are_whole(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    ready = threading.Barrier(4, timeout=30)

    def append(thread: int) -> None:
        ready.wait()
        for number in range(50):
            journal.append({"thread": thread, "number": number, "text": "x" * 300})

    threads = [threading.Thread(target=append, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.close()
    found = read(tmp_path / "journal")
    assert len(found) == 200
    for thread in range(4):
        assert [r["number"] for r in found if r["thread"] == thread] == list(range(50))


def test_a_record_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(RECORDS[0])
    assert read(tmp_path / "journal") == RECORDS[:1]
    journal.close()


def test_a_record_that_must_stay_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    journal = Journal(tmp_path / "journal")
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr("rewardctl.data.journal.SYNC_EVERY_S", 1e9)
    journal.append(RECORDS[0])
    assert synced == []
    journal.append(RECORDS[1], sync=True)
    assert len(synced) == 1
    monkeypatch.setattr("rewardctl.data.journal.SYNC_EVERY_S", 0.0)
    journal.append(RECORDS[2])
    assert len(synced) == 2
    journal.close()


def test_a_file_is_cut_and_appended_to(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"one\ntwo\nhal")
    file = AppendFile(path, size=8)
    file.write(b"three\n")
    assert file.size == 14
    assert file.read(4, 14) == b"two\nthree\n"
    file.close()
    file.close()
    assert path.read_bytes() == b"one\ntwo\nthree\n"


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_all = os.write
    file = AppendFile(tmp_path / "rows")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, block: write_all(fd, bytes(block[:2])))
        file.write(b"seven\n")
    file.close()
    assert (tmp_path / "rows").read_bytes() == b"seven\n"


def test_a_full_disk_is_a_run_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int, block: bytes) -> int:
        raise OSError(28, "No space left on device")

    file = AppendFile(tmp_path / "rows")
    wanted = (
        "rows: cannot write: No space left on device; make room or choose another place, "
        "then go on with --resume"
    )
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fail)
        with pytest.raises(RunError, match=wanted):
            file.write(b"x")
    file.close()


def test_a_folder_that_is_not_there_is_a_run_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="nowhere/rows: cannot write: No such file or directory"):
        AppendFile(tmp_path / "nowhere" / "rows")


def test_a_sync_that_fails_is_a_run_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    file = AppendFile(tmp_path / "rows")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(RunError, match="rows: cannot write: Input/output error"):
            file.sync()
        file.close()  # closes as far as that goes
