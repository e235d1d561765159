"""Benchmarks that are commands: what they print, how they end."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runners.command import expand, read_output, run_case
from runners.context import Context
from runners.loading import CaseError
from runners.process import scrubbed_environment
from runners.result import CaseSpec, MetricSpec, RunResult, Status

from .launching import TIME, case


def run(spec: CaseSpec, root: Path) -> RunResult:
    context = Context(
        root=root,
        python="/usr/bin/true",
        device="cpu",
        seed=0,
        deadline=time.monotonic() + spec.timeout_s,
        environment=scrubbed_environment({}),
    )
    return run_case(spec, context)


def test_the_wall_time_is_that_of_the_program(tmp_path: Path) -> None:
    result = run(case("sleep", command=("sleep", "0.2")), tmp_path)
    assert result.status is Status.OK
    [measurement] = result.measurements
    assert measurement.samples[0] >= 200_000
    assert measurement.samples[0] <= result.duration_s * 1e6


def test_an_argument_is_never_read_by_a_shell(tmp_path: Path) -> None:
    spec = case(
        "echo", command=("echo", "$HOME; touch {name}"), params={"name": "owned && x"}, output="plain"
    )
    result = run(spec, tmp_path)
    assert result.output == "$HOME; touch owned && x\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("command", "status", "reason"),
    [
        (("sh", "-c", "echo broken >&2; exit 3"), Status.ERROR, "exit status 3: broken"),
        (("sh", "-c", "kill -SEGV $$"), Status.ERROR, "killed by SIGSEGV"),
        (("sh", "-c", "echo 'MemoryError: gone'; exit 1"), Status.OOM, "out of memory"),
        (("no-such-program",), Status.ERROR, "no such program"),
        (("sleep", "{seconds}"), Status.ERROR, "no placeholder {seconds} (there are {python}"),
    ],
)
def test_failures(tmp_path: Path, command: tuple[str, ...], status: Status, reason: str) -> None:
    result = run(case("fails", command=command), tmp_path)
    assert result.status is status
    assert reason in result.reason


def test_an_endless_command_is_stopped_with_its_children(tmp_path: Path) -> None:
    command = ("sh", "-c", "sleep 300 & echo $! > child; wait")
    result = run(case("endless", command=command, timeout_s=0.5), tmp_path)
    assert result.status is Status.TIMEOUT
    child = int((tmp_path / "child").read_text())
    state = Path(f"/proc/{child}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] in "ZX"


def test_a_command_is_held_to_its_memory_limit(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "print(len(bytearray(200_000_000)))")
    assert run(case("fits", command=command, output="plain"), tmp_path).status is Status.OK
    limited = run(case("eats", command=command, memory_limit_bytes=50 * 2**20), tmp_path)
    assert limited.status is Status.OOM


@pytest.mark.parametrize(
    ("printed", "samples"),
    [
        ({"metrics": {"time": 3}}, [3.0]),
        ({"metrics": {"time": [1, 2.5]}}, [1.0, 2.5]),
        ({"metrics": {"time": {"samples": [4], "unit": "us"}}}, [4.0]),
    ],
)
def test_our_json(printed: dict[str, Any], samples: list[float]) -> None:
    spec = case("json", command=("x",), output="perfdb")
    text = "progress\n" + json.dumps(printed) + "\n"
    assert read_output(text, spec)[0].samples == samples


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nothing", "no JSON object"),
        ('{"results": 1}', 'no "metrics" object'),
        ('{"metrics": {"latency": 1}}', "no metric 'time' (it has: latency)"),
        ('{"metrics": {"time": "fast"}}', "expected finite numbers"),
        ('{"metrics": {"time": NaN}}', "expected finite numbers"),
        ('{"metrics": {"time": []}}', "expected finite numbers"),
        ('{"metrics": {"time": true}}', "expected finite numbers"),
        ('{"metrics": {"time": {"samples": [1], "unit": "ms"}}}', "printed in 'ms', declared in 'us'"),
    ],
)
def test_our_json_that_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(CaseError) as caught:
        read_output(text, case("json", command=("x",), output="perfdb"))
    assert complaint in str(caught.value)


def test_wall_time_only_answers_a_metric_of_time(tmp_path: Path) -> None:
    metric = MetricSpec("size", "MiB", lower_is_better=True)
    result = run(case("true", command=("true",), metrics=(metric,)), tmp_path)
    assert result.status is Status.ERROR
    assert "measured in time" in result.reason


def test_placeholders() -> None:
    spec = case("x", command=("{python}", "-c", "{} { }", "n={n}"), params={"n": 3}, metrics=(TIME,))
    assert expand(spec, python="/py") == ["/py", "-c", "{} { }", "n=3"]
