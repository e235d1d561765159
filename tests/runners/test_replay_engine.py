"""Replays against the built-in engine, with a tracked repository's decoder and a real memory limit."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from runners.context import Context
from runners.process import scrubbed_environment
from runners.replay import run_case
from runners.result import CaseSpec, MetricSpec, RunResult, Status

# Modules whose names the engine and the harness use too: the repository's must win, and ours must not break.
DECODER = """
import torch
import scheduler, runners

assert scheduler.MINE and runners.MINE

class Decoder:
    vocab_size, max_tokens = 256, 40000

    def prefill(self, tokens):
        n = len(tokens)
        scores = torch.ones(n, n)  # what a fused attention would never hold
        return n, scores.sum(0)[: self.vocab_size].new_zeros(self.vocab_size)

    def decode(self, states, tokens):
        return torch.zeros(len(states), self.vocab_size)

def factory(seed, device):
    return Decoder()
"""
LIMIT_BYTES = 1500 << 20
METRICS = (
    MetricSpec("ttft_p50", "ms", lower_is_better=True),
    MetricSpec("e2e_p99", "ms", lower_is_better=True, statistic="p99"),
    MetricSpec("oom_rate", "ratio", lower_is_better=True, statistic="rate"),
    MetricSpec("error_rate", "ratio", lower_is_better=True, statistic="rate"),
)


def replay(root: Path, lengths: list[int], *arguments: str, limit: int | None = LIMIT_BYTES) -> RunResult:
    rows = [{"at_s": i * 0.05, "input_tokens": n, "output_tokens": 3} for i, n in enumerate(lengths)]
    (root / "trace.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    command = ["{python}", "{engine}", "--port", "{port}", "--device", "{device}", *arguments]
    options = {
        "server": {"command": command},
        "trace": "trace.jsonl",
        "max_dispatch_delay_ms": 30_000.0,
    }
    case = CaseSpec("serve", "replay", {}, METRICS, memory_limit_bytes=limit, options=options)
    return run_case(
        case,
        Context(
            root=root,
            python=sys.executable,
            device="cpu",
            seed=0,
            deadline=time.monotonic() + 90,
            environment=scrubbed_environment({}),
        ),
    )


def own_model(root: Path) -> tuple[str, str]:
    (root / "decoder.py").write_text(DECODER)
    for name in ("scheduler", "runners"):
        (root / f"{name}.py").write_text("MINE = True\n")
    return "--model", "decoder:factory"


def test_the_default_model_serves_a_replay(tmp_path: Path) -> None:
    result = replay(tmp_path, [20, 40, 200, 20])
    assert (result.status, result.reason) == (Status.OK, "")
    assert [m.value for m in result.measurements][2:] == [0.0, 0.0]


def test_long_prompts_run_out_of_memory_for_real_and_short_ones_do_not(tmp_path: Path) -> None:
    """20 000 tokens make a buffer of 1.6 GB, beyond the limit; 15 000 one of 0.9 GB, within. Nothing raises by
    script, and the server goes on after each failure."""
    result = replay(tmp_path, [100, 20_000, 100, 15_000, 20_000, 100], *own_model(tmp_path))
    assert result.status is Status.OK
    assert result.requests is not None
    assert result.requests["status"] == ["ok", "oom", "ok", "ok", "oom", "ok"]
    values = {m.metric.name: m.value for m in result.measurements}
    assert values["oom_rate"] == 2 / 6
    assert values["error_rate"] == 0.0
    assert values["e2e_p99"] is None
    assert "HTTP 507: out_of_memory" in result.log
    assert "can't allocate memory" in result.log


def test_nothing_fails_without_the_limit(tmp_path: Path) -> None:
    result = replay(tmp_path, [100, 20_000, 100], *own_model(tmp_path), limit=None)
    assert result.requests is not None
    assert result.requests["status"] == ["ok"] * 3


def test_a_limit_too_small_to_start_is_out_of_memory(tmp_path: Path) -> None:
    (tmp_path / "decoder.py").write_text(
        "import torch\ndef factory(seed, device):\n    return torch.ones(400_000_000)\n"
    )
    result = replay(tmp_path, [100], "--model", "decoder:factory")
    assert result.status is Status.OOM
    assert "before it was ready" in result.reason
    assert "can't allocate memory" in result.log


def test_a_model_that_does_not_load_is_an_error_with_its_traceback(tmp_path: Path) -> None:
    (tmp_path / "decoder.py").write_text("def factory(seed, device):\n    raise KeyError('weights')\n")
    result = replay(tmp_path, [100], "--model", "decoder:factory")
    assert result.status is Status.ERROR
    assert "KeyError: 'weights'" in result.log
