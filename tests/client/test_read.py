"""`perfdb read`: JSON on standard output, reasons on standard error, exit code 2 for what cannot be read."""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfdb.client import read

INPUTS = Path(__file__).parents[1] / "formats" / "inputs"


def call(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="perfdb")
    read.add_parser(parser.add_subparsers(required=True))
    args = parser.parse_args(["read", *arguments])
    code = args.run(args)
    assert isinstance(code, int)
    return code


def test_prints_the_normalised_reading(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(str(INPUTS / "hyperfine_ms.json")) == 0
    printed = json.loads(capsys.readouterr().out)
    assert set(printed) >= {"format", "environment", "commit", "benchmarks", "warnings", "rejected"}
    (benchmark,) = printed["benchmarks"]
    assert set(benchmark) >= {"name", "params", "status", "metrics"}
    assert set(benchmark["metrics"][0]) >= {"name", "unit", "lower_is_better", "launches", "value"}
    assert benchmark["metrics"][0]["launches"] == [[24.1], [24.314], [24.6]]


def test_what_cannot_be_read_is_exit_code_2_without_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "broken.json"
    path.write_text('{"benchmarks": [{"name"')
    assert call(str(path)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "broken.json" in captured.err
    assert "line 1 column" in captured.err
    assert call(str(tmp_path / "missing")) == 2
    assert call(str(path), "--format", "nonsense") == 2


def test_nothing_but_rejected_items_is_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records.json"
    path.write_text('[{"repo": "a/b"}]')
    assert call(str(path)) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["rejected"][0]["reason"] == "a record without benchmark and metric"
    assert "rejected" in captured.err


def test_direction_is_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "custom.json"
    path.write_text('[{"name": "a", "unit": "points", "value": 3}]')
    assert call(str(path), "--direction", "higher") == 0
    assert json.loads(capsys.readouterr().out)["benchmarks"][0]["metrics"][0]["lower_is_better"] is False


def test_standard_input_and_its_cap(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for cap, code in ((1000, 0), (10, 2)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"BenchmarkA 1 1 ns/op\n")))
        assert call("-", "--max-bytes", str(cap)) == code
    assert "larger than 10 bytes" in capsys.readouterr().err


def test_a_history_is_one_reading_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(str(INPUTS / "github-action_data.js"), "--history") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["format"] for line in lines] == ["github-action-benchmark-data-js"] * 4


def test_a_closed_pipe_is_no_traceback() -> None:
    code = "import argparse, sys; from perfdb.client import read; p = argparse.ArgumentParser();"
    code += "read.add_parser(p.add_subparsers()); a = p.parse_args(sys.argv[1:]); sys.exit(a.run(a))"
    command = [sys.executable, "-c", code, "read", str(INPUTS / "wrk.txt")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_hostile_names_reach_the_terminal_defused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.json"
    path.write_text(
        '{"context": {}, "benchmarks": [{"name": "\\u001b[2J", "real_time": "x\\u001b[2J", "time_unit": "ns"}]}'
    )
    assert call(str(path)) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err
