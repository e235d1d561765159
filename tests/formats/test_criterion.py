"""criterion: totals over iterations, the slope as headline, `base` never a second run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfdb.formats import FormatError, read
from perfdb.formats.history import history
from tests.formats.files import INPUTS, benchmark, handed, in_base, metric, own, samples, shared


@pytest.mark.parametrize("kind", ["estimates", "sample", "benchmark"])
def test_whichever_file_is_named_the_others_are_found(kind: str) -> None:
    reading = handed(f"criterion/add_remove_bevy_new_{kind}.json")
    time = metric(benchmark(reading, "add_remove/bevy"), "time")
    assert in_base(time) == pytest.approx(1.9668e-3, rel=1e-4)
    assert len(samples(time)) == 100
    assert samples(time)[0] == 2183300.0
    assert samples(time)[99] == pytest.approx(1902598.0)


def test_base_is_the_same_run_and_comes_once() -> None:
    items = list(history(shared("criterion")))
    assert len([item for item in items if item.reading]) == 1
    assert not [item for item in items if item.error]


def test_a_real_folder_with_new_and_base(tmp_path: Path) -> None:
    for age in ("new", "base"):
        folder = tmp_path / "criterion" / "copy" / "memcpy" / age
        folder.mkdir(parents=True)
        for kind in ("sample", "estimates", "benchmark"):
            shutil.copy(INPUTS / f"criterion_flat_{kind}.json", folder / f"{kind}.json")
    (item,) = history(tmp_path)
    assert item.reading is not None
    assert item.reading.benchmarks[0].name == "copy/memcpy/1024"
    (tmp_path / "criterion" / "copy" / "memcpy" / "new" / "benchmark.json").unlink()
    (tmp_path / "criterion" / "copy" / "memcpy" / "base" / "benchmark.json").unlink()
    assert read(tmp_path / "criterion/copy/memcpy/new/sample.json").benchmarks[0].name == "copy/memcpy"


def test_flat_mode_has_no_slope() -> None:
    (only,) = own("criterion_flat_sample.json").benchmarks
    time = metric(only, "time")
    assert (samples(time), time.value, time.summary["estimate"]) == ([100.0, 110.0, 105.0], 105.0, "mean")
    assert metric(only, "throughput").value == pytest.approx(1024 / 105e-9)


def test_a_sample_alone_has_no_name() -> None:
    with pytest.raises(FormatError, match="no name"):
        read((INPUTS / "criterion_flat_sample.json").read_bytes())


def test_messages_of_cargo_criterion() -> None:
    reading = own("criterion_messages.jsonl")
    time = metric(benchmark(reading, "parse/small"), "time")
    assert (samples(time), time.value, time.unit) == ([100.0, 105.0, 100.0], 100.7, "ns")
    assert "0 iterations" in reading.rejected[0].reason
