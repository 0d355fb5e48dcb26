"""From `--data` and declared datasets to the files that are read."""

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from rewardctl.data.inputs import Input, resolve_inputs
from rewardctl.data.media_ref import MediaRoot
from rewardctl.errors import DataError, UsageError

ROW = b'{"prompt": "one"}\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory of its own, so that relative paths can be given."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def write(*names: str) -> None:
    for name in names:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(ROW) if name.endswith(".gz") else ROW)


def resolve(*arguments: str, declared: Sequence[str] = ()) -> list[Input]:
    return resolve_inputs(
        arguments,
        declared=[(name, Path("declared") / f"{name}.jsonl") for name in declared],
        media_root=None,
        allow_media=(),
    )


def datasets(*arguments: str, declared: Sequence[str] = ()) -> list[str]:
    return [given.dataset for given in resolve(*arguments, declared=declared)]


def usage_error(*arguments: str, declared: Sequence[str] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        resolve(*arguments, declared=declared)
    return str(caught.value)


def data_error(*arguments: str) -> str:
    with pytest.raises(DataError) as caught:
        resolve(*arguments)
    assert caught.value.exit_code == 3
    return str(caught.value)


# Which files


def test_files_are_read_in_the_order_given() -> None:
    write("b.jsonl", "a.jsonl")
    assert [given.path for given in resolve("b.jsonl", "a.jsonl")] == [
        Path("b.jsonl"),
        Path("a.jsonl"),
    ]


def test_glob_matches_are_sorted_bytewise() -> None:
    write("s/z.jsonl", "s/B.jsonl", "s/a.jsonl", "s/é.jsonl", "s/10.jsonl", "s/9.jsonl")
    names = [given.name for given in resolve("s/*.jsonl")]
    assert names == ["10.jsonl", "9.jsonl", "B.jsonl", "a.jsonl", "z.jsonl", "é.jsonl"]


def test_recursive_glob_reads_files_and_no_folders() -> None:
    write("s/a.jsonl", "s/t/b.jsonl")
    assert [given.path for given in resolve("s/**")] == [Path("s/a.jsonl"), Path("s/t/b.jsonl")]


def test_existing_file_with_wildcards_in_its_name_is_no_glob() -> None:
    write("a[1].jsonl", "a1.jsonl")
    assert [given.path for given in resolve("a[1].jsonl")] == [Path("a[1].jsonl")]


def test_glob_without_matches_names_the_pattern() -> None:
    assert data_error("s/*.jsonl") == (
        "--data s/*.jsonl: no file matches this glob; check the pattern"
    )


def test_without_arguments_the_declared_files_are_read_in_order() -> None:
    write("declared/text.jsonl", "declared/code.jsonl")
    inputs = resolve(declared=["text", "code"])
    assert [(given.path, given.dataset) for given in inputs] == [
        (Path("declared/text.jsonl"), "text"),
        (Path("declared/code.jsonl"), "code"),
    ]


def test_with_arguments_the_declared_files_need_not_exist() -> None:
    write("rows.jsonl")
    (given,) = resolve("code=rows.jsonl", declared=["text", "code"])
    assert (given.path, given.dataset) == (Path("rows.jsonl"), "code")


def test_no_data_at_all_is_a_usage_error() -> None:
    assert usage_error() == ("no data to read; give --data PATH, or list files under data.datasets")


@pytest.mark.parametrize("argument", ["", "code="])
def test_argument_without_a_path_is_a_usage_error(argument: str) -> None:
    assert usage_error(argument) == (f"--data {argument!r}: expected [NAME=]PATH, found no path")


def test_missing_file_is_named() -> None:
    assert data_error("code=rows.jsonl") == "rows.jsonl: no such file; check the path"


def test_missing_declared_file_is_named() -> None:
    with pytest.raises(DataError, match=r"declared/code\.jsonl: no such file"):
        resolve(declared=["code"])


def test_folder_is_refused() -> None:
    write("s/a.jsonl")
    assert data_error("s").startswith("s: expected a file, found a folder")


@pytest.mark.parametrize("content", [b"", b"\n  \n", b"\xef\xbb\xbf\r\n"])
def test_file_of_no_rows_is_refused(content: bytes) -> None:
    Path("rows.jsonl").write_bytes(content)
    assert data_error("rows.jsonl") == (
        "rows.jsonl: expected one JSON object a line, found no rows"
    )


def test_gzip_file_of_no_rows_is_refused() -> None:
    Path("rows.jsonl.gz").write_bytes(gzip.compress(b""))
    assert "found no rows" in data_error("rows.jsonl.gz")


def test_file_that_is_no_gzip_is_refused() -> None:
    Path("rows.jsonl.gz").write_bytes(ROW)
    assert "rows.jsonl.gz: expected gzip" in data_error("rows.jsonl.gz")


def test_nothing_is_taken_from_a_pipe() -> None:
    os.mkfifo("pipe")  # opening it would wait for a writer
    (given,) = resolve("pipe")
    assert (given.path, given.dataset) == (Path("pipe"), "pipe")


# The same file twice


def test_file_given_twice_is_a_usage_error() -> None:
    write("rows.jsonl")
    assert usage_error("rows.jsonl", "rows.jsonl") == (
        "rows.jsonl is read twice; give each file once, "
        "rows of one file may name different datasets"
    )


def test_file_given_under_two_paths_is_a_usage_error() -> None:
    write("rows.jsonl")
    Path("link.jsonl").symlink_to("rows.jsonl")
    assert "link.jsonl is read twice (as rows.jsonl)" in usage_error("rows.jsonl", "link.jsonl")


def test_file_that_a_glob_matches_again_is_a_usage_error() -> None:
    write("s/a.jsonl", "s/b.jsonl")
    assert "s/b.jsonl is read twice" in usage_error("s/b.jsonl", "s/*.jsonl")


def test_standard_input_twice_is_a_usage_error() -> None:
    assert "- is read twice" in usage_error("-", "code=-")


# Datasets


def test_name_before_the_path_is_the_dataset() -> None:
    write("rows.jsonl", "s/1.jsonl", "s/2.jsonl")
    assert datasets("code=rows.jsonl", "text=s/*.jsonl", "chat=-") == [
        "code",
        "text",
        "text",
        "chat",
    ]


def test_name_that_is_not_declared_is_a_usage_error() -> None:
    write("rows.jsonl")
    assert usage_error("cod=rows.jsonl", declared=["text", "code"]) == (
        "--data cod=rows.jsonl: dataset 'cod' is not declared; "
        "use a name declared under data.datasets: text, code"
    )


def test_existing_file_with_an_equals_sign_has_no_name_before_it() -> None:
    write("lr=1.jsonl", "1.jsonl")
    (given,) = resolve("lr=1.jsonl")
    assert (given.path, given.dataset) == (Path("lr=1.jsonl"), "lr=1")


def test_text_before_the_equals_sign_that_is_no_legal_name_belongs_to_the_path() -> None:
    write("s/lr=1.jsonl", "s/two words=1.jsonl")
    assert [given.path for given in resolve("s/lr=1.jsonl")] == [Path("s/lr=1.jsonl")]
    assert data_error("two words=rows.jsonl").startswith("two words=rows.jsonl: no such file")
    assert data_error("n" * 65 + "=rows.jsonl").startswith("n" * 65 + "=rows.jsonl: no such")


def test_path_may_hold_further_equals_signs() -> None:
    write("s/lr=1.jsonl")
    (given,) = resolve("code=s/lr=1.jsonl")
    assert (given.path, given.dataset) == (Path("s/lr=1.jsonl"), "code")


def test_only_declared_dataset_serves_files_without_a_name() -> None:
    write("rows.jsonl", "s/1.jsonl")
    assert datasets("rows.jsonl", "s/*.jsonl", "-", declared=["code"]) == ["code"] * 3


def test_of_several_declared_datasets_none_is_guessed() -> None:
    write("code.jsonl", "rows.jsonl")
    assert datasets("code.jsonl", "rows.jsonl", declared=["text", "code"]) == ["code", "rows"]


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("rows.jsonl", "rows"),
        ("rows.jsonl.gz", "rows"),
        ("s/rows.v2.jsonl", "rows.v2"),
        ("rows.gz", "rows"),
        ("rows", "rows"),
    ],
)
def test_file_name_is_the_dataset_when_nothing_else_is(name: str, dataset: str) -> None:
    write(name)
    assert datasets(name) == [dataset]


def test_standard_input_is_its_own_dataset() -> None:
    (given,) = resolve("-")
    assert (given.path, given.name, given.dataset) == (None, "stdin", "stdin")


@pytest.mark.parametrize(
    ("pattern", "dataset"),
    [
        ("s/train-*.jsonl", "train"),
        ("s/train_-.0[0-9].jsonl", "train_-.0"),
        ("s/train_-.??.jsonl", "train"),
        ("s/*.jsonl", "s"),
        ("s/-*.jsonl", "s"),
        ("*/train-01.jsonl", "work"),
        ("./s/../s/*.jsonl", "s"),
        ("**/train*.jsonl", "work"),
        ("t-*/x.jsonl", "t"),
    ],
)
def test_shards_of_a_glob_are_one_dataset(pattern: str, dataset: str) -> None:
    write("s/train-01.jsonl", "s/train_-.01.jsonl", "s/-1.jsonl", "t-1/x.jsonl")
    assert set(datasets(pattern)) == {dataset}


def test_dataset_of_an_absolute_glob(folder: Path) -> None:
    write("s/01.jsonl", "s/02.jsonl")
    assert datasets(f"{folder}/s/*.jsonl") == ["s", "s"]


# Names and media


def test_input_is_called_by_its_base_name_where_that_is_unique() -> None:
    write("s/rows.jsonl", "./t/rows.jsonl", "s/other.jsonl")
    inputs = resolve("s/rows.jsonl", "./t/rows.jsonl", "s/other.jsonl", "-")
    assert [given.name for given in inputs] == [
        "s/rows.jsonl",
        "./t/rows.jsonl",
        "other.jsonl",
        "stdin",
    ]


def test_media_are_looked_for_beside_their_file(folder: Path) -> None:
    write("s/rows.jsonl", "declared/code.jsonl")
    assert resolve("s/rows.jsonl")[0].media_root == MediaRoot(Path("s"), ())
    assert resolve(declared=["code"])[0].media_root == MediaRoot(Path("declared"), ())
    assert resolve("-")[0].media_root == MediaRoot(folder, ())


def test_media_root_and_allowed_folders_can_be_given() -> None:
    write("s/rows.jsonl")
    inputs = resolve_inputs(
        ["s/rows.jsonl", "-"],
        declared=[],
        media_root=Path("pics"),
        allow_media=[Path("/shared"), Path("more")],
    )
    expected = MediaRoot(Path("pics"), (Path("/shared"), Path("more")))
    assert [given.media_root for given in inputs] == [expected, expected]
