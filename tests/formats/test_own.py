"""perfdb's own result file: strict, and equal to what `perfdb read` prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfdb.formats import FORMATS, FormatError, read
from tests.formats.files import INPUTS, benchmark, metric, own


def test_the_documented_example() -> None:
    reading = own("perfdb.json")
    rms = benchmark(reading, "rmsnorm")
    assert metric(rms, "device_time").launches == ((10.0, 10.5), (11.0,))
    bandwidth = metric(rms, "bandwidth")
    assert (bandwidth.lower_is_better, bandwidth.launch_values) == (False, (1500.0, 1490.0))
    assert (benchmark(reading, "softmax").status, benchmark(reading, "softmax").reason) == (
        "oom",
        "CUDA out of memory",
    )
    assert benchmark(reading, "bad").status == "invalid"
    assert [each.at for each in reading.rejected] == ["benchmarks[2].metrics[0] t", "benchmarks[3]"]
    assert reading.environment.klass["power_limit_w"] == 700


@pytest.mark.parametrize("path", sorted(INPUTS.iterdir()), ids=lambda path: path.name)
def test_every_reading_is_a_result_file_of_our_own(path: Path) -> None:
    try:
        reading = read(path)
    except FormatError:
        pytest.skip("a history of many readings")
    again = read(json.dumps(reading.to_json(), allow_nan=False).encode())
    assert again.format == "perfdb"
    assert {**again.to_json(), "format": reading.format} == reading.to_json()


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"benchmarks": 3}, "benchmarks"),
        ({"environment": {"gpu": "x"}}, ""),
        ({"commit": {"id": 7}}, "commit.id"),
        ({"extra": 1}, ""),
    ],
)
def test_a_wrong_frame_is_fatal(change: dict[str, object], at: str) -> None:
    document = json.loads((INPUTS / "perfdb.json").read_text()) | change
    with pytest.raises(FormatError) as caught:
        read(json.dumps(document).encode(), "perfdb")
    assert caught.value.format == "perfdb"
    assert at in caught.value.at


def test_the_registry_names_every_format_once() -> None:
    assert list(FORMATS) == [each.name for each in FORMATS.values()]
    assert all(each.title for each in FORMATS.values())
