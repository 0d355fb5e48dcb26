"""Strict YAML: what is refused, where it says so, and what merge keys and anchors give."""

from typing import Any

import pytest
import yaml

from rewardctl.config import nodes
from rewardctl.config.findings import Finding
from rewardctl.config.positions import Mark
from rewardctl.config.yaml_loader import MAX_FILE_BYTES, parse_bytes, parse_text


def read(text: str) -> Any:
    document, findings = parse_text(text, "c.yaml")
    assert document is not None
    assert findings == []
    return document.tree


def only_finding(text: str | bytes) -> Finding:
    parse = parse_text if isinstance(text, str) else parse_bytes
    _, findings = parse(text, "c.yaml")  # type: ignore[operator]
    assert len(findings) == 1, findings
    return findings[0]


def test_anchors_and_aliases_give_equal_values() -> None:
    assert read("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def test_an_aliased_value_is_a_copy_of_its_own() -> None:
    tree = read("a: &x {k: 1}\nb: *x\n")
    tree["b"]["k"] = 2
    assert tree["a"] == {"k": 1}


def test_the_own_value_beats_the_merged_one() -> None:
    tree = read("a: &base {name: one, weight: 1.0}\nb:\n  <<: *base\n  weight: 0.1\n")
    assert tree["b"] == {"weight": 0.1, "name": "one"}


def test_the_own_value_wins_before_the_merge_key_too() -> None:
    assert read("a: &base {w: 1}\nb: {w: 2, <<: *base}\n")["b"] == {"w": 2}


def test_in_a_list_of_merges_the_earlier_wins() -> None:
    assert read("a: &a {k: 1}\nb: &b {k: 2, l: 3}\nc: {<<: [*a, *b]}\n")["c"] == {"k": 1, "l": 3}


def test_merges_reach_through_merges() -> None:
    tree = read("a: &a {k: 1, l: 1}\nb: &b {<<: *a, l: 2}\nc: {<<: *b}\n")
    assert tree["c"] == {"l": 2, "k": 1}


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert read('a: {"<<": 1}\n') == {"a": {"<<": 1}}


def test_a_merged_value_stands_where_it_was_written() -> None:
    document, _ = parse_text("a: &a\n  k: 1\nb:\n  <<: *a\n", "c.yaml")
    assert document is not None
    assert document.values["b", "k"] == Mark("c.yaml", 2, 6)


def test_a_byte_order_mark_is_no_part_of_the_first_key() -> None:
    document, findings = parse_bytes(b"\xef\xbb\xbfa: 1\r\n", "c.yaml")
    assert document is not None
    assert (document.tree, findings) == ({"a": 1}, [])


def test_a_duplicate_key_names_both_lines() -> None:
    finding = only_finding("rewards:\n  - weight: 1\n    name: a\n    weight: 2\n")
    assert finding.code == "RC103"
    assert (finding.line, finding.column) == (4, 5)
    assert finding.message == "key 'weight' stands twice in rewards[0]: line 2 and line 4"


def test_a_merge_key_twice_is_a_duplicate() -> None:
    finding = only_finding("a: &a {k: 1}\nb:\n  <<: *a\n  <<: *a\n")
    assert finding.code == "RC103"
    assert finding.hint == "write <<: [*first, *second]"


def test_a_duplicate_in_an_anchored_mapping_is_reported_once() -> None:
    finding = only_finding("a: &a {k: 1, k: 2}\nb: *a\nc: {<<: *a}\n")
    assert finding.place == "a.k"


def test_all_duplicates_are_reported() -> None:
    _, findings = parse_text("a: 1\na: 2\nb: 1\nb: 2\nb: 3\n", "c.yaml")
    assert [f.line for f in findings] == [2, 4, 5]


@pytest.mark.parametrize(
    "tag",
    ["!!python/object:os.system", "!!python/name:os.system", "!!python/object/apply:os.system"],
)
def test_python_tags_are_refused_as_a_matter_of_security(tag: str) -> None:
    finding = only_finding(f"a: 1\nb: {tag} x\n")
    assert finding.code == "RC501"
    assert (finding.line, finding.column) == (2, 4)
    assert repr(tag) in finding.message


@pytest.mark.parametrize(
    "tagged", ["!mine x", "!!binary aGk=", "!!timestamp 2020-01-01", "!!set {a}"]
)
def test_other_tags_are_refused(tagged: str) -> None:
    assert only_finding(f"a: {tagged}\n").code == "RC104"


def test_core_tags_are_read() -> None:
    assert read("a: !!str 5\nb: !!int '7'\nc: !!map {k: 1}\nd: !!seq [1]\n") == {
        "a": "5",
        "b": 7,
        "c": {"k": 1},
        "d": [1],
    }


def test_a_recursive_alias_is_refused() -> None:
    finding = only_finding("a: &x\n  - *x\n")
    assert (finding.code, finding.line, finding.column) == ("RC105", 2, 5)
    assert finding.message == "alias *x stands inside its own anchor"


def test_a_recursive_merge_is_refused() -> None:
    assert only_finding("a: &x\n  <<: *x\n").code == "RC105"


def test_an_unknown_alias_is_refused() -> None:
    assert only_finding("a: *x\n").message == "alias *x has no anchor &x"


def bomb(levels: int) -> str:
    lines = ["l0: &l0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


def test_an_alias_bomb_is_refused_before_it_is_expanded() -> None:
    finding = only_finding(bomb(60))
    assert finding.code == "RC106"
    assert "more than 10,000 values once aliases are expanded" in finding.message


def test_a_bomb_of_merge_keys_is_refused() -> None:
    lines = ["m0: &m0 {k0: 1}"]
    lines += [f"m{i}: &m{i} {{<<: [*m{i - 1}, *m{i - 1}]}}" for i in range(1, 40)]
    assert only_finding("\n".join(lines)).code == "RC106"


def test_aliases_within_the_limit_are_expanded() -> None:
    assert len(read(bomb(3))["l2"]) == 9


@pytest.mark.parametrize("opened", ["[", "{a: ", "- ", "? "])
def test_deep_nesting_is_refused(opened: str) -> None:
    finding = only_finding(opened * 5000)
    assert finding.line == 1
    assert "nest" in finding.message


def test_nesting_through_aliases_counts() -> None:
    chain = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 70)]
    finding = only_finding("\n".join(chain))
    assert finding.message == "nested deeper than 64 levels"


def test_nesting_of_64_is_read() -> None:
    assert read("[" * 64 + "]" * 64) is not None


@pytest.mark.parametrize(
    "text", ["- x\n" * 200_000, "[" + "x," * 300_000, "? x\n" * 200_000, "k: &a x\n" * 20_000]
)
def test_too_many_values_are_refused(text: str) -> None:
    assert only_finding(text).code == "RC106"


def test_a_large_file_is_refused_unread() -> None:
    finding = only_finding(b"#" * (MAX_FILE_BYTES + 1))
    assert (finding.code, finding.message) == ("RC106", "larger than 1024 KiB, expected a config")


def test_a_second_document_is_refused_where_it_starts() -> None:
    finding = only_finding("a: 1\n---\nb: 2\n")
    assert (finding.code, finding.line) == ("RC107", 2)


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "---\n...\n"])
def test_an_empty_document_has_no_value(text: str) -> None:
    assert read(text) is None


@pytest.mark.parametrize(("key", "kind"), [("1", "a number"), ("true", "a bool"), ("~", "null")])
def test_a_key_that_is_no_text_is_refused(key: str, kind: str) -> None:
    finding = only_finding(f"a:\n  {key}: x\n")
    assert (finding.code, finding.line, finding.column) == ("RC108", 2, 3)
    assert finding.message == f"key {key} is {kind} in a, expected text"


def test_a_list_as_key_is_refused() -> None:
    assert only_finding("? [a]\n: 1\n").message == "a list as key at the top level, expected text"


def test_a_merge_of_no_mapping_is_refused() -> None:
    finding = only_finding("a:\n  <<: 3\n")
    assert (finding.code, finding.line, finding.column) == ("RC109", 2, 7)


def test_a_leading_zero_is_warned_about() -> None:
    finding = only_finding("a: 012\n")
    assert (finding.code, finding.severity) == ("RC110", "warning")
    assert "012 is read as 12" in finding.message


@pytest.mark.parametrize("text", [".nan", ".inf", "-.inf", "1e999"])
def test_a_number_that_is_not_finite_is_refused(text: str) -> None:
    finding = only_finding(f"a: {{b: [1, {text}]}}\n")
    assert finding.code == "RC206"
    assert finding.message == f"expected a finite number at a.b[1], got {text}"


def test_a_very_long_number_is_refused() -> None:
    assert only_finding("a: " + "9" * 5000 + "\n").code == "RC110"


@pytest.mark.parametrize("text", ["\ta: 1\n", "a:\n\t- b\n"])
def test_a_tab_is_explained(text: str) -> None:
    finding = only_finding(text)
    assert (finding.code, finding.hint) == ("RC101", "YAML is not indented with tabs; use spaces")


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("a: b: c\n", 1, "put text with ': ' in quotes"),
        ("a: 1\nb: 'x\n", 3, "a quote or bracket is never closed"),
        ("a: 1\n b: 2\n", 2, "put text with ': ' in quotes"),
        ("a: {b: 1\nc: 2\n", 2, None),
    ],
)
def test_bad_syntax_is_located(text: str, line: int, hint: str | None) -> None:
    finding = only_finding(text)
    assert (finding.code, finding.line) == ("RC101", line)
    assert finding.message.startswith("not YAML: ")
    if hint is not None:
        assert finding.hint is not None
        assert finding.hint.startswith(hint)


def test_bytes_that_are_not_utf_8_are_located() -> None:
    finding = only_finding(b"a: 1\nb: \xff\n")
    assert (finding.code, finding.line, finding.column) == ("RC102", 2, 4)
    assert finding.message == "byte 0xff is not UTF-8"


def test_a_control_character_is_located() -> None:
    finding = only_finding(b"a: 1\nbc: \x00\n")
    assert (finding.code, finding.line, finding.column) == ("RC102", 2, 5)


@pytest.mark.parametrize("text", ["a: 1\nb: [x, *y]\n", "[" * 200, "a: 1\n---\nb: 1\n", "a: *x\n"])
def test_without_libyaml_the_same_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = only_finding(text)
    monkeypatch.delattr(yaml, "CSafeLoader")
    second = only_finding(text)
    assert (first.code, first.line) == (second.code, second.line)


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &a {k: 1e-5, l: '5', m: no}\nb: {<<: *a, k: [~, \"x\"]}\n"
    first = read(text)
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert read(text) == first


def test_the_limits_are_the_documented_ones() -> None:
    assert (nodes.MAX_NESTING, nodes.MAX_NODES, MAX_FILE_BYTES) == (64, 10_000, 1024 * 1024)
