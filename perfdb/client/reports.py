"""The gate's answer in the forms that CI systems read: JUnit XML, SARIF, GitHub's workflow commands."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import escape, quoteattr

FAILING = ("regressions", "broken")
OPEN = ("missing", "invalid", "inconclusive")
_CONTROL = {code: "\ufffd" for code in range(32) if code not in (9, 10, 13)}


def title(cell: dict[str, Any]) -> str:
    inside = ", ".join(f"{key}={value}" for key, value in sorted(cell["params"].items()))
    return f"{cell['benchmark']}[{inside}]" if inside else str(cell["benchmark"])


def sentence(cell: dict[str, Any], kind: str) -> str:
    """What happened to the cell, in one line."""
    verdict = cell["verdict"]
    if verdict is None:
        failures = ", ".join(f"{count} {status}" for status, count in cell["head"]["failures"].items())
        return f"{kind}: {failures}" if failures else kind
    reasons = verdict.get("reasons") or [kind]
    return str(reasons[-1])


def _cells(answer: dict[str, Any], *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in kinds:
        for cell in answer[kind]:
            yield kind, cell


def junit(answer: dict[str, Any]) -> str:
    """One test case for each cell that is not simply the same, and one for the decision itself."""
    rows = []
    for kind, cell in _cells(answer, *FAILING, *OPEN, "advisory", "improvements", "changed", "new"):
        inner = ""
        text = quoteattr(sentence(cell, kind).translate(_CONTROL))
        if kind in FAILING:
            inner = f"<failure message={text}/>"
        elif kind in OPEN:
            inner = f"<skipped message={text}/>"
        name, of = (quoteattr(part.translate(_CONTROL)) for part in (cell["metric"], title(cell)))
        rows.append(f"  <testcase classname={of} name={name}>{inner}</testcase>")
    inner = ""
    note = answer["note"].translate(_CONTROL)
    if answer["decision"] != "pass":
        inner = f"<failure message={quoteattr(answer['decision'])}>{escape(note)}</failure>"
    rows.append(f'  <testcase classname="perfdb" name="gate">{inner}</testcase>')
    failures = sum("<failure" in row for row in rows)
    skipped = sum("<skipped" in row for row in rows)
    head = f'<testsuite name="perfdb" tests="{len(rows)}" failures="{failures}" skipped="{skipped}">'
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', head, *rows, "</testsuite>"])


def sarif(answer: dict[str, Any]) -> str:
    """SARIF 2.1.0: regressions and breaks are errors, what is open a warning; the manifest is the place shown."""
    levels = dict.fromkeys(FAILING, "error") | dict.fromkeys((*OPEN, "advisory"), "warning")
    results = [
        {
            "ruleId": kind,
            "level": level,
            "message": {"text": f"{title(cell)} {cell['metric']}: {sentence(cell, kind)}"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": "perfdb.toml"}}}],
        }
        for kind, level in levels.items()
        for cell in answer[kind]
    ]
    rules = [{"id": kind} for kind in levels]
    run = {"tool": {"driver": {"name": "perfdb", "rules": rules}}, "results": results}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"$schema": schema, "version": "2.1.0", "runs": [run]}, indent=1)


def github(answer: dict[str, Any]) -> str:
    """Workflow commands: annotations on the run. What they mean as commands is escaped as GitHub's toolkit does."""
    words = {"error": FAILING, "warning": (*OPEN, "advisory"), "notice": ("improvements", "changed")}
    lines = [
        f"::{word} title={_property(title(cell))}::{_data(cell['metric'] + ': ' + sentence(cell, kind))}"
        for word, kinds in words.items()
        for kind, cell in _cells(answer, *kinds)
    ]
    return "\n".join([*lines, _data(f"perfdb: {answer['decision']}: {answer['note']}")])


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
