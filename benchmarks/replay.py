"""How far the load generator goes before it is the bottleneck, and how well a short replay repeats.

    python -m benchmarks.replay client     # dispatch delay and TTFT against a server that answers at once
    python -m benchmarks.replay repeat     # launches of one 48-request trace, machine quiet and one core busy

Both print a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runners.context import Context
from runners.process import scrubbed_environment
from runners.replay import run_case
from runners.result import CaseSpec, MetricSpec, RunResult

RATES = (20, 100, 200, 400, 800)
CLIENT_SECONDS = 5.0
TOKENS = 8
METRICS = tuple(
    MetricSpec(f"{name}_{statistic}", "ms", lower_is_better=True, statistic=statistic)
    for name in ("dispatch_delay", "ttft", "tpot", "e2e")
    for statistic in ("median", "p99")
)
# Answers at once, so that what is measured is the client.
INSTANT = """
import json, sys
from aiohttp import web

async def complete(request):
    n = (await request.json())["max_tokens"]
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for i in range(n):
        chunk = {"choices": [{"text": "x", "finish_reason": "length" if i == n - 1 else None}]}
        await response.write(b"data: " + json.dumps(chunk).encode() + b"\\n\\n")
    usage = {"choices": [], "usage": {"completion_tokens": n}}
    await response.write(b"data: " + json.dumps(usage).encode() + b"\\n\\ndata: [DONE]\\n\\n")
    return response

async def health(request):
    return web.Response()

app = web.Application(client_max_size=1 << 26)
app.add_routes([web.get("/health", health), web.post("/v1/completions", complete)])
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None, access_log=None)
"""
ENGINE = ["{python}", "{engine}", "--port", "{port}", "--device", "cpu"]


def replay(root: Path, command: list[str], rows: list[dict[str, float]]) -> RunResult:
    (root / "trace.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    options = {"server": {"command": command}, "trace": "trace.jsonl"}
    context = Context(
        root=root,
        python=sys.executable,
        device="cpu",
        seed=0,
        deadline=time.monotonic() + 120,
        environment=scrubbed_environment({}),
        log=lambda line: None,
    )
    return run_case(CaseSpec("replay", "replay", {}, METRICS, options=options), context)


def values(result: RunResult) -> dict[str, float]:
    return {m.metric.name: m.value for m in result.measurements if m.value is not None}


def client(root: Path) -> None:
    (root / "instant.py").write_text(INSTANT)
    print("| req/s | status | dispatch median | p99 | TTFT median | p99 (ms) |\n|---|---|---|---|---|---|")
    for rate in RATES:
        draw, at_s, rows = random.Random(rate), 0.0, []
        while at_s < CLIENT_SECONDS:
            rows.append({"at_s": at_s, "input_tokens": 200, "output_tokens": TOKENS})
            at_s += draw.expovariate(rate)
        result = replay(root, ["{python}", "instant.py", "{port}"], rows)
        found = values(result)
        names = ("dispatch_delay_median", "dispatch_delay_p99", "ttft_median", "ttft_p99")
        cells = " | ".join(f"{found[name]:.2f}" for name in names)
        print(f"| {rate} | {result.status.value} | {cells} |", flush=True)


@contextmanager
def busy_core(*, wanted: bool) -> Iterator[None]:
    """Another process that computes for ever, when wanted."""
    if not wanted:
        yield
        return
    process = multiprocessing.Process(target=_spin, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _spin() -> None:
    while True:
        sum(range(10_000))


def repeat(root: Path, launches: int) -> None:
    draw = random.Random(2)
    rows = [
        {
            "at_s": round(0.02 + i * 0.1 + draw.uniform(-0.02, 0.02), 4),
            "input_tokens": draw.choice([64, 128, 192, 256]),
            "output_tokens": draw.choice([6, 8, 10]),
        }
        for i in range(48)
    ]
    print(
        "| machine | metric | median (ms) | least / median | most / median | valid |\n|---|---|---|---|---|---|"
    )
    for busy in (False, True):
        with busy_core(wanted=busy):
            results = [replay(root, ENGINE, rows) for _ in range(launches)]
        valid = sum(result.status.value == "ok" for result in results)
        for name in ("ttft_median", "ttft_p99", "tpot_median", "e2e_median", "e2e_p99", "dispatch_delay_p99"):
            found = [values(result)[name] for result in results]
            middle = statistics.median(found)
            machine = "one core busy" if busy else "quiet"
            spread = f"{min(found) / middle:.2f} | {max(found) / middle:.2f}"
            print(f"| {machine} | {name} | {middle:.2f} | {spread} | {valid}/{launches} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("client", "repeat"))
    parser.add_argument("--launches", type=int, default=8)
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} at the start\n")
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "client":
            client(Path(folder))
        else:
            repeat(Path(folder), options.launches)


if __name__ == "__main__":
    main()
