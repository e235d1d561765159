"""Whatever the bytes: a reading or a FormatError with format, position and reason; never another exception."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
import zlib
from pathlib import Path

import pytest

from benchmarks.fuzz_formats import problem
from perfdb.formats import FORMATS, FormatError, read
from perfdb.formats.draft import MAX_REJECTIONS
from tests.formats.files import CORPUS, INPUTS, benchmark, metric


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.bin")), ids=lambda path: path.name)
def test_what_once_failed_is_read_or_refused(path: Path) -> None:
    assert problem(path.read_bytes(), path.name.rpartition("-")[0]) is None


@pytest.mark.parametrize("path", sorted(INPUTS.iterdir()), ids=lambda path: path.name)
def test_every_prefix_of_a_file_is_read_or_refused(path: Path) -> None:
    data = path.read_bytes()
    for end in range(0, len(data), max(1, len(data) // 40)):
        assert problem(data[:end], "auto") is None, data[:end]


@pytest.mark.parametrize("path", sorted(INPUTS.iterdir()), ids=lambda path: path.name)
def test_content_alone_tells_the_format(path: Path) -> None:
    expected = path.name.split("_")[0].split(".")[0]
    aliases = {
        "nvbench": "nvbench-",
        "mlperf": "mlperf-",
        "github-action": "github-action-benchmark",
        "pytorch-hud": "pytorch-hud-v3",
    }
    try:
        found = read(path.read_bytes()).format
    except FormatError as error:
        found = error.format
    assert found.startswith(aliases.get(expected, expected))


@pytest.mark.parametrize("path", sorted(INPUTS.iterdir()), ids=lambda path: path.name)
def test_mark_line_ends_and_packing_change_nothing(path: Path) -> None:
    data = path.read_bytes()
    if path.name.startswith("criterion_flat"):
        pytest.skip("read with the files beside it")

    def outcome(variant: bytes) -> object:
        try:
            return read(variant).to_json()
        except FormatError as error:
            return str(error)

    plain = outcome(data)
    assert outcome(data.replace(b"\n", b"\r\n")) == plain
    assert outcome(gzip.compress(data, mtime=0)) == plain
    if path.suffix != ".xml":
        assert outcome(b"\xef\xbb\xbf" + data) == plain
        assert outcome(b"\xff\xfe" + data.decode().encode("utf-16-le")) == plain


@pytest.mark.parametrize("name", list(FORMATS))
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" \n",
        b"{}",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"[1" + b"0" * 5000 + b"]",
        b'{"benchmarks": [' + b'{"name":' * 70 + b"1" + b"}" * 70 + b"]}",
        b"\xff\xfe\xfa",
        b"\x1f\x8b\x08\x00garbage",
        gzip.compress(b"{}", mtime=0)[:-4],
        gzip.compress(gzip.compress(b"{}"), mtime=0),
        b"PK\x03\x04rest",
        b'{"a": 1, "a": 2}',
        b"\x00" * 1000,
        b"<a>" * 1000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_hostile_input_is_refused_by_every_reader(name: str, data: bytes) -> None:
    assert problem(data, name) is None
    assert problem(data, "auto") is None


def test_positions_of_broken_json() -> None:
    for data, at in (
        (b'{"benchmarks": [\n  {"name": "a",}\n]}', "line 2 column 16"),
        (b'{\n "context": {},\n "context": {"a": 1}\n}', "line 3 column 2"),
        (b'{"a": [\n' + b"[" * 70 + b"]" * 70 + b"]}", "line 2 column 63"),
        (b'{"a":\n ' + b"1" * 5000 + b"}", "line 2 column 2"),
        (b'{"a": "\xff"}', "byte 7"),
    ):
        with pytest.raises(FormatError) as caught:
            read(data)
        assert caught.value.at == at, caught.value


def test_a_zip_bomb_stops_at_the_cap() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    stream = io.BytesIO()
    for _ in range(64):
        stream.write(packer.compress(b"[" + b" " * 2**20))
    stream.write(packer.flush())
    assert len(stream.getvalue()) < 2**20
    with pytest.raises(FormatError, match="larger than"):
        read(stream.getvalue(), max_bytes=2**22)


def test_a_duplicate_key_of_equal_value_loses_nothing() -> None:
    assert read(
        b'{"context": {"a": 1, "a": 1}, "benchmarks": [{"name": "x", "real_time": 1, "time_unit": "ns"}]}'
    ).benchmarks


def test_names_are_fit_for_storage_and_output() -> None:
    document = {"context": {}, "benchmarks": [
        {"name": "a\x00b\ud800", "real_time": 1, "time_unit": "ns"},
        {"name": "x" * 5000, "real_time": 1, "time_unit": "ns"},
        {"name": "  ", "real_time": 1, "time_unit": "ns"},
    ]}  # fmt: skip
    reading = read(json.dumps(document).encode())
    assert [each.name for each in reading.benchmarks] == ["a�b�"]
    assert ["characters" in each.reason or "without a name" in each.reason for each in reading.rejected] == [
        True,
        True,
    ]


def test_endless_rejections_are_counted() -> None:
    rows = [
        {"name": f"b{index}", "real_time": "fast", "time_unit": "ns"} for index in range(MAX_REJECTIONS + 5)
    ]
    reading = read(json.dumps({"context": {}, "benchmarks": rows}).encode())
    assert len(reading.rejected) == MAX_REJECTIONS + 1
    assert reading.rejected[-1].reason == "and 5 more items rejected"


def test_endless_warnings_are_counted() -> None:
    document = {
        f"b{index}": {"latency": {"value": 9.0, "lower_value": 1.0, "upper_value": 2.0}}
        for index in range(MAX_REJECTIONS + 3)
    }
    reading = read(json.dumps(document).encode())
    assert len(reading.benchmarks) == MAX_REJECTIONS + 3
    assert reading.warnings[-1] == "and 3 more"


def test_an_unknown_format_name_is_refused() -> None:
    with pytest.raises(FormatError, match="no such format"):
        read(b"{}", "csv")


def test_aliases_choose_by_content() -> None:
    for name in ("nvbench_new.json", "nvbench_skipped.csv"):
        assert read(INPUTS / name, "nvbench").format == read(INPUTS / name).format


def test_a_pipe_is_read_once_and_capped(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for cap, wanted in ((1000, "go-bench"), (10, "larger than")):
        writer = threading.Thread(target=pipe.write_bytes, args=(b"BenchmarkA 1 1 ns/op\n",))
        writer.start()
        try:
            outcome = read(pipe, max_bytes=cap).format
        except FormatError as error:
            outcome = error.reason
        writer.join()
        assert wanted in outcome


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="folder"):
        read(tmp_path)
    with pytest.raises(FormatError, match="No such file"):
        read(tmp_path / "none.json")


def test_a_document_that_grows_while_read_is_capped(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    path.write_bytes(b"BenchmarkA 1 1 ns/op\n" * 1000)
    with pytest.raises(FormatError) as caught:
        read(path, max_bytes=1000)
    assert caught.value.at == "byte 1000"


def test_units_of_one_family_are_converted_and_of_two_refused() -> None:
    rows = [
        {"name": "a", "real_time": 1, "time_unit": "us"},
        {"name": "a", "real_time": 900, "time_unit": "ns"},
    ]
    reading = read(json.dumps({"context": {}, "benchmarks": rows}).encode())
    made = metric(benchmark(reading, "a"), "real_time")
    assert (made.launches, made.unit) == (((1, 0.9),), "us")
    mixed = read(b"BenchmarkA 1 5 ns/op 3 widgets\nBenchmarkA 1 5 ns/op 3 widgets\n")
    assert metric(benchmark(mixed, "BenchmarkA"), "widgets").launches == ((3, 3),)
    lines = "\n".join(
        json.dumps({"avg_latency": 1.0, "latencies": [1.0], "percentiles": {}}) for _ in range(3)
    )
    assert len(read(lines.encode()).benchmarks[0].metrics[0].launches) == 3


def test_very_many_repeats_of_one_benchmark_stay_linear() -> None:
    count = 20_000
    reading = read(b"BenchmarkA 1 5 ns/op\n" * count)
    assert len(metric(benchmark(reading, "BenchmarkA"), "time").launches[0]) == count


def test_long_lines_cost_no_more_than_their_length() -> None:
    blank = " " * 200_000
    for line in (
        f"test a{blank}... bench:{blank}1 ns/iter",
        f"test {blank}x",
        f"{blank}:{blank}x{blank}",
        f"name{blank}1{blank}2{blank}3 ms x",
        "1" * 200_000 + "x",
        "[" + '"\\"' * 50_000,
    ):
        for head in (
            "test b ... bench: 1 ns/iter\n",
            "MLPerf Results Summary\nScenario : Offline\n",
            "-" * 79 + "\nbenchmark name samples iterations est run time\n" + "-" * 79 + "\n",
            "BenchmarkA 1 1 ns/op\n",
            "",
        ):
            assert problem(f"{head}{line}\n".encode(), "auto") is None


def test_numbers_at_the_end_of_the_range_make_no_infinity() -> None:
    rows = [{"name": "a", "real_time": 1e308, "time_unit": "ns"}] * 2
    reading = read(json.dumps({"context": {}, "benchmarks": rows}).encode())
    assert metric(benchmark(reading, "a"), "real_time").value == 1e308
    runs = [{"values": [1e308, 1.1e308]}, {"values": [1.2e308]}]
    document = {"benchmarks": [{"metadata": {"name": "b"}, "runs": runs}], "metadata": {}}
    assert read(json.dumps(document).encode()).rejected[0].reason == "numbers out of range"
