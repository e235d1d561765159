"""What docs/formats.md and docs/adding-a-format.md show is what the code does."""

from __future__ import annotations

import re
import sys
import textwrap
import types
from pathlib import Path

import pytest

from perfdb.formats import FORMATS, read
from perfdb.formats.source import open_source

DOCS = Path(__file__).parents[2] / "docs"


def _block(text: str, language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return textwrap.dedent(found[1])


def test_the_example_of_our_own_format_is_read_whole() -> None:
    reading = read(_block((DOCS / "formats.md").read_text(), "json").encode())
    assert (reading.format, len(reading.benchmarks)) == ("perfdb", 2)
    assert (reading.warnings, reading.rejected) == ((), ())


def test_every_format_has_its_row() -> None:
    text = (DOCS / "formats.md").read_text()
    assert [name for name in FORMATS if f"`{name}`" not in text] == []


def test_the_recipe_is_a_working_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    made = types.ModuleType("sometool")
    monkeypatch.setitem(sys.modules, "sometool", made)
    exec(_block((DOCS / "adding-a-format.md").read_text(), "python"), made.__dict__)
    data = (
        b'{"sometool_version": 1, "cases": [{"title": "a", "runs": [[1, 2], [3]], "mean": 2}, {"title": 3}]}'
    )
    reading = made.FORMAT.read(open_source(data))
    assert reading.benchmarks[0].metrics[0].launches == ((1, 2), (3,))
    assert reading.rejected[0].at == "cases[1].title"
