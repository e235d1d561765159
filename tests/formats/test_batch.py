"""Every reading becomes an upload that the API's own schema accepts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from perfdb.client.results import batch, encode
from perfdb.formats import FormatError, Reading, read
from perfdb.services.batch import Batch
from tests.formats.files import INPUTS, SHARED, handed, own

FILES = sorted(INPUTS.iterdir()) + sorted(path for path in SHARED.rglob("*") if path.is_file())


def _upload(reading: Reading) -> Batch:
    body = batch(reading, commit=None, branch="main", pull_request=None, pool="default")
    return msgspec.json.decode(encode(body), type=Batch)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_schema_of_the_server_takes_it(path: Path) -> None:
    try:
        reading = read(path)
    except FormatError:
        pytest.skip("not one reading")
    sent = [run for launch in _upload(reading).launches for run in launch.runs]
    assert {run.benchmark for run in sent} == {
        each.name for each in reading.benchmarks if each.status != "skipped"
    }
    assert all(row.tracked <= (row.lower_is_better is not None) for run in sent for row in run.metrics)


def test_launches_stay_launches() -> None:
    # 27 runs of the first command, 13 of the second: the first 13 launches hold both.
    made = _upload(handed("hyperfine/bencher_two.json"))
    assert [sum(bool(run.metrics) for run in launch.runs) for launch in made.launches] == [2] * 13 + [1] * 14


def test_a_percentile_the_server_does_not_compute_keeps_its_value() -> None:
    (launch,) = _upload(own("mlperf_single_stream_summary.txt")).launches
    p97 = next(row for row in launch.runs[0].metrics if row.name == "latency_p97")
    assert (p97.value, p97.statistic) == (90892308.0, "median")


def test_a_tail_of_ten_queries_is_stored_and_never_judged() -> None:
    (launch,) = _upload(handed("mlperf/thienlm_summary.txt")).launches
    tracked = {row.name: row.tracked for row in launch.runs[0].metrics}
    assert (tracked["latency_p99"], tracked["latency_mean"]) == (False, True)
