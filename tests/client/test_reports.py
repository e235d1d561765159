"""The gate's answer as other systems read it: well-formed whatever a benchmark's name holds."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree

from perfdb.client import gate
from perfdb.client.output import MARKDOWN_LIMIT

HOSTILE = 'x"><&\x1b[2J\n::error::y | @everyone `z`'
LISTS = ("advisory", "missing", "invalid", "inconclusive", "changed", "improvements", "new", "broken")


def cell(name: str, **extra: Any) -> dict[str, Any]:
    verdict = {"ratio": 1.3, "low": 1.2, "high": 1.4, "reasons": ["regressed: +30 %, 100% sure."]}
    side = {"launches": [], "failed_launches": 0, "failures": {}}
    return {
        "benchmark": name, "params": {"n": 1}, "metric": "time", "verdict": verdict, "base": side, "head": side
    } | extra  # fmt: skip


def answer(*regressions: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "decision": "fail", "exit_code": 1, "note": "compared with the merge base", "regressions": list(regressions),
        "coverage": {"decided": 1, "total": 1}, "same": 0, "launches_needed": 0, "minutes_needed": 0.0,
        **{name: [] for name in LISTS},
    } | extra  # fmt: skip


def test_junit_is_xml_and_counts_what_failed() -> None:
    lost = cell("gone", verdict=None)
    suite = ElementTree.fromstring(gate.show(answer(cell(HOSTILE), missing=[lost]), "junit"))
    assert suite.attrib | {"name": ""} == {"name": "", "tests": "3", "failures": "2", "skipped": "1"}
    assert [case.find("failure") is not None for case in suite] == [True, False, True]


def test_sarif_names_level_and_place() -> None:
    (run,) = json.loads(gate.show(answer(cell(HOSTILE), advisory=[cell("b")]), "sarif"))["runs"]
    assert [result["level"] for result in run["results"]] == ["error", "warning"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "perfdb.toml"


def test_a_name_cannot_give_github_a_command() -> None:
    lines = gate.show(answer(cell(HOSTILE)), "github").splitlines()
    assert len(lines) == 2
    assert lines[0].startswith('::error title=x"><&')
    assert "::error::y" not in lines[0].removeprefix("::error title")
    assert "100%25 sure" in lines[0]


def test_a_comment_is_cut_and_wakes_nobody() -> None:
    text = gate.show(answer(*(cell(f"benchmark {i} {HOSTILE}") for i in range(3000))), "markdown")
    assert len(text) <= MARKDOWN_LIMIT
    assert len(text) > MARKDOWN_LIMIT - 1000
    assert "more lines" in text[-200:]
    assert "@everyone" not in text
    assert "<" not in text
