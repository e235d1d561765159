"""Whole histories: stable order, once each, and a broken file stops nothing."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from perfdb.formats import FormatError
from perfdb.formats.history import history
from tests.formats.files import INPUTS, metric


def test_pytest_benchmark_storage(tmp_path: Path) -> None:
    folder = tmp_path / ".benchmarks" / "Linux-CPython-3.12-64bit"
    folder.mkdir(parents=True)
    text = (INPUTS / "pytest-benchmark_groups.json").read_text()
    (folder / "0001_first.json").write_text(text)
    (folder / "0002_second.json").write_text(text.replace("0123456789abcdef", "fedcba9876543210", 1))
    (folder / "0003_copy_of_first.json").write_text(text)
    (folder / "0004_cut.json").write_text(text[: len(text) // 2])
    items = list(history(tmp_path))
    assert [Path(item.origin).name for item in items] == [
        "0001_first.json",
        "0002_second.json",
        "0004_cut.json",
    ]
    assert [item.reading.commit.id[:4] for item in items if item.reading and item.reading.commit] == [
        "0123",
        "fedc",
    ]
    assert items[2].error is not None
    assert items[2].error.format == "pytest-benchmark"


def test_keys_are_of_the_content_and_not_of_the_file(tmp_path: Path) -> None:
    for name, packed in (("a", False), ("b", True)):
        (tmp_path / name).mkdir()
        data = (INPUTS / "lnt_v5.json").read_bytes()
        (tmp_path / name / f"{name}.json").write_bytes(gzip.compress(data) if packed else data)
    keys = [[item.key for item in history(tmp_path / name)] for name in ("a", "b")]
    assert keys[0] == keys[1]
    assert len(list(history(tmp_path))) == 1


def test_a_declared_direction_reaches_every_kind_of_history(tmp_path: Path) -> None:
    shutil.copy(INPUTS / "codespeed_list.json", tmp_path)
    shutil.copy(INPUTS / "github-action_data.js", tmp_path)
    plain, declared = (list(history(tmp_path, lower_is_better=each)) for each in (None, True))
    assert [item.key for item in plain] == [item.key for item in declared]
    open_ones = [
        metric(each, "value").lower_is_better
        for item in plain
        if item.reading
        for each in item.reading.benchmarks
    ]
    closed = [
        metric(each, "value").lower_is_better
        for item in declared
        if item.reading
        for each in item.reading.benchmarks
    ]
    assert None in open_ones
    assert None not in closed
    # What the file itself says is not overruled.
    assert False in closed


def test_nothing_there_is_an_error_and_not_an_empty_history(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="empty folder"):
        list(history(tmp_path))
    with pytest.raises(FormatError, match="no such file"):
        list(history(tmp_path / "none"))
