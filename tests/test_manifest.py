"""The manifest says what is wrong, with line and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfdb.manifest import ManifestError, load, parse
from perfdb.manifest_lines import locate

HEAD = """schema = 1
[project]
name = "lab"

[[benchmark]]
name = "first"
tier = "micro"
entry = "lab:first"
params = { n = [1, 2], kind = ["a", "b"] }

[[benchmark]]
name = "second"
tier = "micro"
entry = "lab:second"
"""
METRIC = '[[benchmark.metric]]\nname = "time"\nunit = "s"\ndirection = "lower"\n'


def test_lists_expand_in_order() -> None:
    cases = parse(HEAD).cases()
    assert [case.spec.params for case in cases[:4]] == [
        {"n": 1, "kind": "a"},
        {"n": 1, "kind": "b"},
        {"n": 2, "kind": "a"},
        {"n": 2, "kind": "b"},
    ]
    assert cases[4].spec.params == {}
    assert [metric.name for metric in cases[4].spec.metrics] == ["time"]


@pytest.mark.parametrize(
    ("addition", "line", "words"),
    [
        ("lanches = 3\n", 15, "unknown key 'lanches' (did you mean 'launches'?)"),
        ('[[benchmark.metric]]\nname = "t"\nunit = "s"\n', 15, "'direction' is missing"),
        ('[[benchmark.metric]]\nname = "t"\nunit = "s"\ndirection = "up"\n', 18, "direction"),
        ('launches = "three"\n', 15, "Expected int, got str"),
        ("launches = 0\n", 15, "launches must be 1 to 1000"),
        ('trace = "x"\n', 15, "does not belong to tier 'micro'"),
        ('command = "./x"\n', 14, "give either entry or command"),
        ("params = { n = [] }\n", 15, "leaves no case"),
        ("tolerance = { rtol = -1 }\n", 15, "cannot be negative"),
        ('tolerance = { rtil = 1 }\n', 15, "unknown key 'rtil'"),
        ('reference = "lab.reference"\n', 15, "module:function"),
        ("x = = 1\n", 15, "not TOML"),
        ('\n[[benchmark]]\nname = "first"\ntier = "micro"\nentry = "a:b"\n', 17, "stands twice"),
        ('\n[[benchmark]]\nname = "r"\ntier = "replay"\n', 16, "server with either command or url"),
        ('\n[[benchmark]]\nname = "c"\ntier = "micro"\ncommand = "./x"\n', 16, "at least one [[benchmark.metric]]"),
        (METRIC + METRIC, 20, "stands twice"),
    ],
)  # fmt: skip
def test_faults_name_line_and_key(addition: str, line: int, words: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(HEAD + addition)
    assert words in str(caught.value)
    assert caught.value.line == line


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="no such file"):
        load(tmp_path / "perfdb.toml")
    (tmp_path / "perfdb.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ManifestError, match="cannot be read"):
        load(tmp_path / "perfdb.toml")


def test_definition_is_what_is_measured_not_how_often() -> None:
    before = parse(HEAD).cases()[-1]
    often = parse(HEAD + "launches = 9\ntimeout_s = 7\n").cases()[-1]
    other = parse(HEAD.replace("lab:second", "lab:third")).cases()[-1]
    assert before.definition_hash == often.definition_hash != other.definition_hash


def test_lines_are_found_through_strings_and_nested_tables() -> None:
    text = 'a = """\n[not.a.table]\nb = 1\n"""\n[t]\nlist = [\n  1,\n]\nkey = "x"\n[[t.u]]\nv = 1\n[[t.u]]\nv = 2\n'
    assert locate(text, ("t", "key")) == 9
    assert locate(text, ("t", "u", 1, "v")) == 13
    assert locate(text, ("b",)) is None


def test_the_example_of_the_demo_fits() -> None:
    manifest = load(Path(__file__).parents[1] / "examples" / "tensorlab" / "perfdb.toml")
    assert {table.tier for table in manifest.benchmarks} == {"micro", "step", "replay"}
