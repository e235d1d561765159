"""Whole replays against real server processes that answer well or badly."""

from __future__ import annotations

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runners.context import Context
from runners.process import scrubbed_environment
from runners.replay import client, run_case
from runners.replay.options import LoadOptions
from runners.replay.payloads import Planned, plan
from runners.replay.trace import Trace, TraceRequest
from runners.result import CaseSpec, LaunchRequest, MetricSpec, RunResult, Status

STUB = str(Path(__file__).with_name("replay_stub.py"))
METRICS = (
    MetricSpec("ttft_p50", "s", lower_is_better=True),
    MetricSpec("ttft_p99", "s", lower_is_better=True, statistic="p99"),
    MetricSpec("e2e_p99", "s", lower_is_better=True, statistic="p99"),
    MetricSpec("oom_rate", "ratio", lower_is_better=True, statistic="rate"),
    MetricSpec("error_rate", "ratio", lower_is_better=True, statistic="rate"),
)
TRUSTING = 30_000.0  # ms: these tests are about the server, whatever else the machine does


def write_trace(root: Path, count: int, every_s: float, *, long: int | None = None) -> str:
    """Short requests, every fourth one `long`; those after the tenth arrive beyond any test's patience."""
    rows = [
        {
            "at_s": i * every_s + (0.0 if i < 10 or count <= 20 else 1000.0),
            "input_tokens": long if long and i % 4 == 3 else 10,
            "output_tokens": 3,
        }
        for i in range(count)
    ]
    (root / "trace.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    return "trace.jsonl"


def context(root: Path, *, seconds: float = 60.0) -> Context:
    return Context(
        root=root,
        python=sys.executable,
        device="cpu",
        seed=0,
        deadline=time.monotonic() + seconds,
        environment=scrubbed_environment({}),
    )


def replay(
    root: Path,
    mode: str,
    *stub_seconds: str,
    count: int = 8,
    every_s: float = 0.01,
    long: int | None = None,
    load: dict[str, Any] | None = None,
    max_dispatch_delay_ms: float = TRUSTING,
    seconds: float = 60.0,
    **server: Any,
) -> RunResult:
    case = CaseSpec(
        benchmark="serve",
        tier="replay",
        params={},
        metrics=METRICS,
        options={
            "server": {"command": ["{python}", STUB, "{port}", mode, *stub_seconds], **server},
            "trace": write_trace(root, count, every_s, long=long),
            "load": load or {},
            "max_dispatch_delay_ms": max_dispatch_delay_ms,
        },
    )
    return run_case(case, context(root, seconds=seconds))


def value(result: RunResult, name: str) -> float | None:
    (found,) = [m for m in result.measurements if m.metric.name == name]
    return found.value


def column(result: RunResult, name: str) -> list[Any]:
    assert result.requests is not None
    return result.requests[name]


def test_a_good_server(tmp_path: Path) -> None:
    result = replay(tmp_path, "good")
    assert (result.status, result.reason) == (Status.OK, "")
    assert column(result, "status") == ["ok"] * 8
    assert column(result, "output_tokens") == [3] * 8
    assert column(result, "t_sched") == pytest.approx([i * 0.01 for i in range(8)])
    assert all(
        send >= due for send, due in zip(column(result, "t_send"), column(result, "t_sched"), strict=True)
    )
    assert value(result, "oom_rate") == value(result, "error_rate") == 0.0
    assert result.trace_summary is not None
    assert result.trace_summary["requests"] == 8
    assert len(result.trace_summary["hash"]) == 64
    assert result.correctness is not None
    assert result.correctness["output_sha256"]
    assert "stub: good" in result.log
    assert "8 requests due within 0.07 s" in result.log
    assert {len(values) for values in (result.requests or {}).values()} == {8}


def test_the_runner_passes_on_result_and_log(tmp_path: Path) -> None:
    """Through the front door, where the case runs in a child that knows the harness under another name."""
    options = {
        "server": {"command": ["{python}", STUB, "{port}", "refuse"]},
        "trace": write_trace(tmp_path, 4, 0.01, long=200),
        "max_dispatch_delay_ms": TRUSTING,
    }
    case = CaseSpec("serve", "replay", {}, METRICS, options=options)
    request = LaunchRequest("one", str(tmp_path), (case,), device="cpu", sentinel=False)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "runners"],
        input=request.to_json(),
        text=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["status"] == "ok"
    assert run["requests"]["status"] == ["ok", "ok", "ok", "error"]
    assert run["trace_summary"]["requests"] == 4
    assert "stub: refuse" in run["log"]
    assert "request 3 (at 0.030 s, 200 in, 3 out) error: HTTP 503: overloaded: no" in run["log"]


def test_a_slow_server_cannot_hide_behind_a_waiting_client(tmp_path: Path) -> None:
    """Coordinated omission: one request at a time, 50 ms each, 20 of them 5 ms apart. A client that waited would
    see 50 ms; the last one's user waits for all 20."""
    result = replay(tmp_path, "queue", "0.05", count=20, every_s=0.005)
    assert result.status is Status.OK
    p99 = value(result, "ttft_p99")
    assert p99 is not None
    assert p99 >= 20 * 0.05 - 19 * 0.005
    # Nobody waited: the last request left before the tenth answer.
    assert column(result, "t_send")[-1] < sorted(column(result, "t_first"))[9]


def test_failed_requests_are_rates_and_rank_last(tmp_path: Path) -> None:
    result = replay(tmp_path, "refuse", long=200)
    assert result.status is Status.OK
    assert column(result, "status") == ["ok", "ok", "ok", "error"] * 2
    assert value(result, "error_rate") == 0.25
    assert value(result, "e2e_p99") is None
    assert value(result, "ttft_p50") is not None
    assert "e2e_p99: the p99 falls on one of 2 failures" in result.reason
    assert "overloaded: no" in result.log
    assert all(math.isfinite(x) for m in result.measurements for x in m.samples)


@pytest.mark.parametrize("mode", ["midway", "cuda"])
def test_memory_in_whatever_words_is_memory(tmp_path: Path, mode: str) -> None:
    result = replay(tmp_path, mode)
    assert result.status is Status.OOM
    assert value(result, "oom_rate") == 1.0


def test_a_stream_that_breaks_off_is_lost(tmp_path: Path) -> None:
    result = replay(tmp_path, "cut")
    assert result.status is Status.ERROR
    assert column(result, "status") == ["lost"] * 8
    assert "without a finish reason" in result.reason


def test_fewer_tokens_than_asked_for_is_a_wrong_answer(tmp_path: Path) -> None:
    result = replay(tmp_path, "short")
    assert result.status is Status.INCORRECT
    assert "8 answers were cut short: 2 tokens where 3 were asked for" in result.reason
    assert column(result, "status") == ["short"] * 8
    assert result.correctness is not None
    assert result.correctness["short"] == 8


def test_a_request_without_an_answer_times_out(tmp_path: Path) -> None:
    result = replay(tmp_path, "hang", count=3, load={"request_timeout_s": 0.3, "warmup_requests": 0})
    assert result.status is Status.ERROR
    assert column(result, "status") == ["timeout"] * 3


def test_the_end_of_the_cases_time_ends_the_replay(tmp_path: Path) -> None:
    result = replay(tmp_path, "good", count=3, every_s=50.0, seconds=6.0)
    assert result.status is Status.TIMEOUT
    assert column(result, "status") == ["ok", "unsent", "unsent"]


def test_a_client_that_lags_makes_the_run_invalid(tmp_path: Path) -> None:
    result = replay(tmp_path, "good", max_dispatch_delay_ms=1e-6)
    assert result.status is Status.INVALID
    assert "the load generator lagged" in result.reason
    assert result.measurements[0].samples


def test_dispatch_delay_sees_a_busy_client() -> None:
    """The client's own thread is kept busy while requests are due; nobody answers."""
    trace = Trace(tuple(TraceRequest(i * 0.02, 5, 2) for i in range(10)), "plain", "")
    planned = plan(trace, LoadOptions(), model="m")
    target = client.Target("http://127.0.0.1:9/", request_timeout_s=1.0, exact=True)

    def busy() -> bool:
        time.sleep(0.3)
        return True

    async def run() -> list[client.Record]:
        deadline = asyncio.get_running_loop().time() + 30
        async with client.session() as http:
            return await client.replay(http, planned, target, alive=busy, deadline=deadline)

    records = asyncio.run(run())
    assert all(record.outcome is client.Outcome.LOST for record in records)
    delays = [record.t_send - record.planned.at_s for record in records if record.t_send is not None]
    assert len(delays) == 10
    assert max(delays) > 0.05


@pytest.mark.parametrize(
    ("mode", "status", "words", "failure"),
    [
        ("exit", Status.ERROR, "exited with code 3 during the replay", "error_rate"),
        ("killed", Status.OOM, "ran out of memory and was killed by SIGKILL", "oom_rate"),
        ("starved", Status.OOM, "ran out of memory and exited with code 1", "oom_rate"),
    ],
)
def test_a_server_that_dies(tmp_path: Path, mode: str, status: Status, words: str, failure: str) -> None:
    result = replay(tmp_path, mode, "4", count=100, every_s=0.1, load={"warmup_requests": 0})
    assert result.status is status
    assert words in result.reason
    assert "4 of 100 requests were answered" in result.reason
    assert value(result, failure) == 0.96
    if mode == "exit":
        assert "the last words" in result.log


def test_a_server_that_never_starts(tmp_path: Path) -> None:
    result = replay(tmp_path, "crash")
    assert result.status is Status.ERROR
    assert "exited with code 1 before it was ready" in result.reason
    assert "cannot start: no weights" in result.log
    assert result.trace_summary is not None


def test_a_server_that_is_never_ready(tmp_path: Path) -> None:
    result = replay(tmp_path, "unready", startup_timeout_s=1.0)
    assert result.status is Status.ERROR
    assert "not ready within 1 s: /health gave " in result.reason


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    case = CaseSpec("serve", "replay", {}, METRICS, options={
        "server": {"command": ["no-such-server", "{port}"]}, "trace": write_trace(tmp_path, 2, 0.1),
    })  # fmt: skip
    result = run_case(case, context(tmp_path))
    assert result.status is Status.ERROR
    assert "no-such-server: no such program" in result.log


def test_what_the_server_started_ends_with_it(tmp_path: Path) -> None:
    result = replay(tmp_path, "family")
    assert result.status is Status.OK
    child = int((tmp_path / "child.pid").read_text())
    end = time.monotonic() + 10
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_running(child)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_server_that_runs_already_is_left_running(tmp_path: Path) -> None:
    write_trace(tmp_path, 4, 0.01)

    async def run() -> RunResult:
        with_port = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        port = with_port.sockets[0].getsockname()[1]
        with_port.close()
        await with_port.wait_closed()
        server = await asyncio.create_subprocess_exec(sys.executable, STUB, str(port), "good", stdout=-3)
        try:
            options = {
                "server": {"url": f"http://127.0.0.1:{port}/"},
                "trace": "trace.jsonl",
                "max_dispatch_delay_ms": TRUSTING,
            }
            case = CaseSpec("serve", "replay", {}, METRICS, options=options)
            result = await asyncio.to_thread(run_case, case, context(tmp_path))
            assert server.returncode is None
            return result
        finally:
            server.kill()
            await server.wait()

    assert asyncio.run(run()).status is Status.OK


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "server: expected a table"),
        ({"server": {}}, "server: exactly one of command and url"),
        ({"server": {"command": "serve"}}, "server.command: expected a list of texts"),
        ({"server": {"command": ["{pyhton}"]}}, r"server.command[0]: {pyhton} is none of"),
        ({"server": {"url": "file:///etc"}}, "server.url: expected an http"),
        ({"server": {"url": "http://x", "redy": "/"}}, "server: unknown key 'redy'"),
        ({"server": {"url": "http://x"}, "trace": 3}, "trace: expected the path"),
        ({"server": {"url": "http://x"}, "trace": "gone.csv"}, "gone.csv: No such file"),
        ({"server": {"url": "http://x"}, "trace": "{name}.csv"}, "trace: {name} is none of rate"),
        ({"server": {"url": "http://x"}, "load": {"chat": "yes"}}, "load.chat: expected true or false"),
        ({"server": {"url": "http://x"}, "load": {"request_timeout_s": 0}}, "load.request_timeout_s"),
        ({"server": {"url": "http://x"}, "slo": "fast"}, "slo: expected a table, got 'fast'"),
        ({"server": {"url": "http://x"}, "slo": {"ttft_s": 1}}, "slo: unknown key 'ttft_s'"),
        ({"server": {"url": "http://x"}, "slo": {"ttft_ms": True}}, "slo.ttft_ms: expected a number above 0"),
        ({"server": {"url": "http://x"}, "transform": {"rate": 1}}, "transform: unknown key 'rate'"),
        ({"server": {"url": "http://x"}, "max_dispatch_delay_ms": 0}, "max_dispatch_delay_ms: expected"),
        ({"server": {"url": "http://x"}, "speed": 1}, "unknown key 'speed'"),
    ],
)
def test_bad_options_are_named(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    options = {"trace": write_trace(tmp_path, 2, 0.1)} | options
    result = run_case(CaseSpec("serve", "replay", {"rate": 3}, METRICS, options=options), context(tmp_path))
    assert result.status is Status.ERROR
    assert message in result.reason
    assert result.requests is None


def test_absent_keys_may_be_there_as_none(tmp_path: Path) -> None:
    """A manifest's tables come with every key."""
    options = {
        "server": {"command": ["{python}", STUB, "{port}", "good"], "url": None, "model": None},
        "trace": write_trace(tmp_path, 2, 0.01),
        "slo": {"ttft_ms": 60_000, "tpot_ms": None},
        "max_dispatch_delay_ms": TRUSTING,
    }
    goodput = MetricSpec("goodput", "requests/s", lower_is_better=False, statistic="rate")
    result = run_case(CaseSpec("serve", "replay", {}, (goodput,), options=options), context(tmp_path))
    assert result.status is Status.OK
    assert (value(result, "goodput") or 0) > 0


def test_a_request_that_asks_for_nothing_cannot_be_sent(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"at_s": 0, "input_tokens": 5, "output_tokens": 0}')
    options = {"server": {"url": "http://x"}, "trace": "t.jsonl"}
    result = run_case(CaseSpec("serve", "replay", {}, METRICS, options=options), context(tmp_path))
    assert "request 0 of the trace has 5 input and 0 output" in result.reason


def test_params_reach_trace_and_transforms(tmp_path: Path) -> None:
    write_trace(tmp_path, 10, 1.0)
    options = {
        "server": {"command": ["{python}", STUB, "{port}", "good"]},
        "trace": "{name}.jsonl",
        "transform": {"requests_per_s": "{rate}"},
        "max_dispatch_delay_ms": TRUSTING,
    }
    case = CaseSpec("serve", "replay", {"rate": 100, "name": "trace"}, METRICS, options=options)
    result = run_case(case, context(tmp_path))
    assert result.status is Status.OK
    assert result.trace_summary is not None
    assert result.trace_summary["rate"] == pytest.approx(100.0)
    assert result.trace_summary["transform"] == {"requests_per_s": 100}


def test_prompts_are_the_same_in_every_launch_and_share_what_the_trace_shares() -> None:
    requests = (
        TraceRequest(0.0, 40, 2, "", (1, 2)),
        TraceRequest(1.0, 40, 2, "", (1, 3)),
        TraceRequest(2.0, 8, 2),
    )
    trace = Trace(requests, "bailian", "", 16)

    def prompts(planned: list[Planned]) -> list[list[int]]:
        return [json.loads(p.body)["prompt"] for p in planned]

    first, second, third = prompts(plan(trace, LoadOptions(vocab_size=50), model="m"))
    assert [first, second, third] == prompts(plan(trace, LoadOptions(vocab_size=50), model="m"))
    assert [len(first), len(second), len(third)] == [40, 40, 8]
    assert first[:16] == second[:16]
    assert first[16:] != second[16:]
    assert max(first + second + third) < 50


def test_environment_of_the_server_is_the_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFDB_SECRET", "for us alone")
    code = "import os, sys; sys.exit('leak' if 'PERFDB_SECRET' in os.environ else 'clean ' + os.getcwd())"
    options = {"server": {"command": ["{python}", "-c", code]}, "trace": write_trace(tmp_path, 2, 0.1)}
    result = run_case(CaseSpec("serve", "replay", {}, METRICS, options=options), context(tmp_path))
    assert f"clean {os.path.realpath(tmp_path)}" in result.log
