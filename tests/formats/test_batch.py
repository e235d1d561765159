"""Every reading becomes a batch that the API's own schema accepts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfdb.formats import CommitReading, FormatError, read
from perfdb.formats.batch import batch
from perfdb.services.batch import Batch
from tests.formats.files import INPUTS, SHARED, handed, own

FILES = sorted(INPUTS.iterdir()) + sorted(path for path in SHARED.rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_schema_of_the_server_takes_it(path: Path) -> None:
    try:
        reading = read(path)
    except FormatError:
        pytest.skip("not one reading")
    made = batch(reading, branch="main")
    decoded = msgspec.convert(msgspec.json.decode(msgspec.json.encode(made.body)), Batch)
    sent = {run.benchmark for launch in decoded.launches for run in launch.runs}
    assert sent == {each.name for each in reading.benchmarks if each.status != "skipped"}
    for launch in decoded.launches:
        for run in launch.runs:
            assert all(row.tracked <= (row.lower_is_better is not None) for row in run.metrics)


def test_launches_stay_launches() -> None:
    made = batch(handed("hyperfine/bencher_two.json"))
    # 27 runs of the first command, 13 of the second: the first 13 launches hold both.
    assert [len(launch["runs"]) for launch in made.body["launches"]] == [2] * 13 + [1] * 14


def test_versions_failures_and_commits() -> None:
    reading = own("asv_v2.json")
    made = batch(reading, pool="lab")
    runs = [run for launch in made.body["launches"] for run in launch["runs"]]
    assert {run["definition_hash"] for run in runs} == {"f00dcafe", "beefbeef", "1", "cafe"}
    # Another version is another case, and so another series.
    assert {run["params"]["benchmark_version"] for run in runs} == {"f00dcafe", "beefbeef", "1", "cafe"}
    assert [run["status"] for run in runs].count("error") == 3
    assert made.body["commit"]["sha"] == "aaaabbbbccccddddeeeeffff0000111122223333"
    assert batch(reading, commit=CommitReading("r123")).left_out == ["commit r123: not a git hash"]


def test_what_was_skipped_is_named() -> None:
    made = batch(own("nvbench_new.json"))
    assert made.left_out == ["copy: skipped: not enough memory"]


def test_serving_results_are_of_the_replay_tier() -> None:
    run = batch(own("vllm_detailed.json")).body["launches"][0]["runs"][0]
    assert run["tier"] == "replay"
    assert run["log"].startswith("1 of 4 requests failed")
