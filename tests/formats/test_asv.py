"""asv: null, NaN, versions, parameters, and the files that are no results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from perfdb.formats import FormatError, read
from perfdb.formats.history import history
from tests.formats.files import INPUTS, benchmark, handed, identities, metric, own, samples, shared


def test_failed_and_skipped_are_neither_zero_nor_missing() -> None:
    reading = handed("asv/22b920c6-py2.7-Cython-numpy1.8.json")
    assert benchmark(reading, "time_AAA_failure").status == "error"
    assert benchmark(reading, "time_AAA_skip").status == "skipped"
    assert not benchmark(reading, "time_AAA_failure").metrics
    measured = [each for each in reading.benchmarks if each.status == "ok"]
    assert len(measured) == len({each.identity for each in measured}) == 21


def test_parameters_are_expanded() -> None:
    reading = handed("asv/22b920c6-py2.7-Cython-numpy1.8.json")
    cases = [each for each in reading.benchmarks if each.name == "time_other.time_parameterized"]
    assert [(each.params, each.metrics[0].value) for each in cases] == [
        ({"param1": "1"}, 1),
        ({"param1": "2"}, 2),
        ({"param1": "3"}, 3),
    ]


def test_another_version_is_another_series(tmp_path: Path) -> None:
    reading = handed("asv/22b920c6-py2.7-Cython-numpy1.8.json")
    old = benchmark(reading, "time_with_version_mismatch_bench")
    assert old.version == "1"
    assert any("time_with_version_mismatch_bench" in warning for warning in reading.warnings)
    assert not any("time_with_version_match:" in warning for warning in reading.warnings)
    text = shared("asv/22b920c6-py2.7-Cython-numpy1.8.json").read_text()
    newer = read(
        text.replace(
            '"time_with_version_mismatch_bench": "1"', '"time_with_version_mismatch_bench": "2"'
        ).encode()
    )
    assert benchmark(newer, "time_with_version_mismatch_bench").identity != old.identity


def test_units_and_names_come_from_benchmarks_json() -> None:
    reading = handed("asv/22b920c6-py2.7-Cython-numpy1.8.json")
    tracked = metric(benchmark(reading, "time_secondary.track_value"), "value")
    assert (tracked.value, tracked.unit, tracked.lower_is_better) == (42, "unit", None)
    assert metric(benchmark(reading, "time_units.time_unit_to"), "time").unit == "s"


def test_another_environment_of_the_same_machine_differs() -> None:
    first = handed("asv/22b920c6-py2.7-Cython-numpy1.8.json")
    second = handed("asv/fcf8c079-py2.7-Cython-numpy1.8-foo.json")
    assert first.environment.klass != second.environment.klass
    assert second.environment.klass["requirements"] == {"numpy": "1.8", "foo": ""}


@pytest.mark.parametrize(
    ("name", "at", "reason"),
    [
        ("aaaaaaaa-py2.7-Cython-numpy1.8.json", "line 2 column 5", "not JSON"),
        ("bbbbbbbb-py2.7-Cython-numpy1.8.json", "line 1", "no known format"),
        ("benchmarks.json", "$", "metadata"),
        ("machine.json", "$", "metadata"),
    ],
)
def test_what_is_no_result_is_refused(name: str, at: str, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        read(shared(f"asv/{name}"))
    assert caught.value.at == at
    assert reason in caught.value.reason


def test_a_folder_goes_on_after_a_broken_file() -> None:
    items = list(history(shared("asv")))
    assert sorted(item.reading.commit.id[:8] for item in items if item.reading and item.reading.commit) == [
        "22b920c6",
        "fcf8c079",
    ]
    assert sorted(Path(item.origin).name[:8] for item in items if item.error) == ["aaaaaaaa", "bbbbbbbb"]


def test_version_1_with_samples_by_combination() -> None:
    reading = own("asv_v1_samples.json")
    first = benchmark(reading, "bench.TimeSuite.time_keys", param1="'a'", param2="1")
    assert samples(metric(first, "time")) == [0.09, 0.1, 0.11]
    assert benchmark(reading, "bench.TimeSuite.time_keys", param1="'a'", param2="2").status == "skipped"
    assert benchmark(reading, "bench.TimeSuite.time_keys", param1="'b'", param2="1").status == "error"
    assert metric(benchmark(reading, "bench.mem_list"), "memory").unit == "bytes"
    objects = metric(benchmark(reading, "bench.track_objects"), "value")
    assert (objects.value, objects.lower_is_better) == (5400, None)
    assert "1 results for 2 combinations" in reading.rejected[0].reason


def test_version_2_columns_may_be_cut_short() -> None:
    reading = own("asv_v2.json")
    assert len(identities(reading)) == 7
    ten = benchmark(reading, "suite.Sort.time_sort", param1="10")
    assert (samples(metric(ten, "time")), ten.version) == ([0.001, 0.0011], "f00dcafe")
    assert benchmark(reading, "suite.Sort.time_sort", param1="1000").status == "error"
    assert samples(metric(benchmark(reading, "suite.time_plain"), "time")) == []
    assert [each.status for each in reading.benchmarks if each.name == "suite.time_all_failed"] == [
        "error",
        "error",
    ]


def test_parameter_names_come_from_the_folder_above(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    shutil.copy(INPUTS / "asv_v2.json", tmp_path / "lab" / "aaaabbbb-env.json")
    described = {
        "suite.Sort.time_sort": {
            "param_names": ["size"],
            "type": "time",
            "unit": "seconds",
            "version": "other",
        }
    }
    (tmp_path / "benchmarks.json").write_text(json.dumps(described))
    reading = read(tmp_path / "lab" / "aaaabbbb-env.json")
    benchmark(reading, "suite.Sort.time_sort", size="10")
    assert any("another series" in warning for warning in reading.warnings)
    (tmp_path / "benchmarks.json").write_text("{broken")
    assert any(
        "benchmarks.json is not used" in each
        for each in read(tmp_path / "lab" / "aaaabbbb-env.json").warnings
    )
