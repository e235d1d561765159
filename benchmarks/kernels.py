"""Measure the kernels on the GPU: right first, then timed against measured ceilings and against torch.

    python -m benchmarks.kernels measure --out results.json [--ops rmsnorm,softmax] [--tune 2] [--compile-only]
    python -m benchmarks.kernels report results.json --markdown table.md --svg roofline.svg

A time is a CUDA graph of the call over 12 rotating buffer sets, L2 flushed before, divided by 12; the median of the
replays. --tune sweeps the configurations of that many shapes an operation. --compile-only fills Triton's cache from
several processes, so that a measuring run does not wait for the compiler.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
import triton

from kernels.common import Config

from .kernel_case import Case
from .kernel_cases import OPERATIONS, tuning_cases

BUFFERS = 12
BUDGET_S = 0.06
MIN_REPLAYS, MAX_REPLAYS = 5, 60
FLUSH_BYTES = 256 * 2**20
MEMORY_LIMIT_BYTES = 100 * 2**30


@dataclass(frozen=True)
class Row:
    """One timed variant. Times in seconds a call; error is relative to the expected result."""

    op: str
    model: str
    shape: str
    variant: str
    time_s: float
    spread: float
    bytes: float
    flops: float
    error: float | None = None
    note: str = ""


@dataclass
class Results:
    device: dict[str, Any]
    ceilings: dict[str, float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("measure")
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--ops", default=",".join(OPERATIONS))
    measure.add_argument("--tune", type=int, default=0)
    measure.add_argument("--compile-only", type=int, default=0, metavar="PROCESSES")
    measure.add_argument("--without-peer", default="", help="operations to time without torch beside them")
    measure.add_argument("--seconds", type=float, default=1e9, help="stop starting cases after this long")
    report = commands.add_parser("report")
    report.add_argument("results", type=Path)
    report.add_argument("--markdown", type=Path, required=True)
    report.add_argument("--svg", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "report":
        from .kernel_report import write_report

        write_report(arguments.results, markdown=arguments.markdown, svg=arguments.svg)
    elif arguments.compile_only:
        compile_all(arguments.ops.split(","), tune=arguments.tune, processes=arguments.compile_only)
    else:
        measure_all(
            arguments.ops.split(","),
            tune=arguments.tune,
            out=arguments.out,
            seconds=arguments.seconds,
            alone=frozenset(arguments.without_peer.split(",")),
        )


def measure_all(ops: list[str], *, tune: int, out: Path, seconds: float, alone: frozenset[str]) -> None:
    started = time.monotonic()
    results = Results(device=describe_device())
    results.ceilings = measure_ceilings()
    print(results.ceilings, flush=True)
    for op in ops:
        for case, configs in _work(op, tune):
            if time.monotonic() - started > seconds:
                results.failures.append(f"{case.name}: not measured, time is up")
                continue
            try:
                results.rows += measure_case(replace(case, peer=None) if op in alone else case, configs)
            except Exception as error:  # one broken case must not take the others' numbers along
                text = str(error).strip().splitlines() or [""]
                results.failures.append(f"{case.name}: {type(error).__name__}: {text[0][:300]}")
                print("FAILED", results.failures[-1], flush=True)
            torch.cuda.empty_cache()
        out.write_text(json.dumps(asdict(results), indent=1))
    print(f"{len(results.rows)} rows, {len(results.failures)} failures, {time.monotonic() - started:.0f} s")


def _work(op: str, tune: int) -> Iterator[tuple[Case, tuple[Config, ...]]]:
    """Every case with our own choice, then the swept ones: spread over the list of shapes."""
    for case in OPERATIONS[op]():
        yield case, ()
    if tune:
        swept = tuning_cases(op)
        groups: dict[str, list[Case]] = {}
        for case in swept:
            groups.setdefault(case.op, []).append(case)
        for cases in groups.values():
            step = max(1, len(cases) // tune)
            for case in cases[step // 2 :: step][:tune]:
                yield case, case.space


def measure_case(case: Case, configs: tuple[Config, ...]) -> list[Row]:
    """Rows for our choice and torch, or for each configuration; what is wrong is reported and not timed."""
    first = case.inputs(0)
    size = sum(t.numel() * t.element_size() for t in _tensors(first))
    count = max(2, min(BUFFERS, int(MEMORY_LIMIT_BYTES / max(2.5 * size, 1))))
    expected = _tensors(case.expected(first))
    sets = [first] + [case.inputs(100 * i) for i in range(1, count)]
    rows = []
    variants: list[tuple[str, Callable[[Any], Any]]] = [
        (str(config), lambda a, config=config: case.ours(a, config)) for config in configs
    ]
    if not configs:
        variants = [("ours", lambda a: case.ours(a, None))]
        if case.peer is not None:
            variants.append((case.peer_name, case.peer))
    for name, call in variants:
        fresh = case.inputs(0)
        try:
            found = _tensors(call(fresh))
        except Exception as error:  # a configuration that does not fit the GPU is a fact to report
            print(f"{case.name:70} {name:50} {type(error).__name__} {str(error)[:80]!r}", flush=True)
            continue
        off = relative_error(found, expected)
        if name != case.peer_name and not off <= case.tolerance:
            print(f"{case.name:70} {name:50} WRONG {off:.2e}", flush=True)
            if not configs:
                raise RuntimeError(f"{name} is wrong: relative error {off:.2e}")
            continue
        del fresh, found
        times = time_graph(call, sets)
        median = statistics.median(times)
        spread = (sorted(times)[-1] - sorted(times)[0]) / median
        rows.append(Row(case.op, case.model, case.shape, name, median, spread, case.bytes, case.flops, off))
        print(
            f"{case.name:70} {name:50} {median * 1e6:9.1f} us {case.bytes / median / 1e12:6.2f} TB/s "
            f"{case.flops / median / 1e12:7.1f} TFLOP/s err {off:.1e}",
            flush=True,
        )
    return rows


def time_graph(call: Callable[[Any], Any], sets: list[Any]) -> list[float]:
    """Seconds a call, one value a replay, of a graph that calls once on each set, L2 flushed before."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for arguments in sets[:2]:
            call(arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept = []
    with torch.cuda.graph(graph):
        for arguments in sets:
            kept.append(call(arguments))
    flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")
    graph.replay()
    torch.cuda.synchronize()
    begin = time.monotonic()
    graph.replay()
    torch.cuda.synchronize()
    once = max(time.monotonic() - begin, 1e-6)
    replays = int(min(MAX_REPLAYS, max(MIN_REPLAYS, BUDGET_S / once)))
    pairs = []
    for _ in range(replays):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        pairs.append((start, end))
    torch.cuda.synchronize()
    del kept, graph
    return [start.elapsed_time(end) * 1e-3 / len(sets) for start, end in pairs]


def time_stream(call: Callable[[Any], Any], sets: list[Any]) -> list[float]:
    """Seconds a call over the sets in one stretch between two events, without a graph."""
    times = []
    for _ in range(10):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for arguments in sets:
            call(arguments)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / len(sets))
    return times


def measure_ceilings() -> dict[str, float]:
    """Copy bandwidth (read plus written), and matrix rates on random data: bytes/s and FLOP/s of this GPU."""
    gib = torch.randn(2**28, device="cuda")
    pairs = [(gib, torch.empty_like(gib)) for _ in range(4)]
    # The driver's copy in a graph is slower than a kernel that copies: the ceiling is the best of three ways.
    ways = {
        "copy_": time_graph(lambda a: a[1].copy_(a[0]), pairs),
        "copy_ outside a graph": time_stream(lambda a: a[1].copy_(a[0]), pairs),
        "kernel": time_graph(lambda a: torch.neg(a[0], out=a[1]), pairs),
    }
    rates = {
        f"copy by {way}": 2.0 * gib.numel() * 4 / statistics.median(times) for way, times in ways.items()
    }
    ceilings = {"copy": max(rates.values()), **rates}
    del pairs
    n = 8192
    left, right = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product_s = statistics.median(time_graph(lambda a: a[0] @ a[1], [(left, right)] * 4))
    ceilings["matrix_bf16"] = 2.0 * n**3 / product_s
    low = [t.to(torch.float8_e4m3fn) for t in (left, right)]
    one = torch.ones(1, device="cuda")
    product_s = statistics.median(
        time_graph(
            lambda a: torch._scaled_mm(a[0], a[1].T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True),
            [tuple(low)] * 4,
        )
    )
    ceilings["matrix_fp8"] = 2.0 * n**3 / product_s
    return ceilings


def describe_device() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def relative_error(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The worst of ‖found - expected‖ / ‖expected‖ over the tensors; NaN counts as infinite."""
    if len(found) < len(expected):
        return float("inf")
    worst = 0.0
    for left, right in zip(found, expected, strict=False):
        wide = right.double()
        error = float((left.double() - wide).norm() / wide.norm().clamp(min=1e-30))
        worst = max(worst, float("inf") if error != error else error)
    return worst


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in _tensors(item)]
    return []


def compile_all(ops: list[str], *, tune: int, processes: int) -> None:
    """Call every variant once, spread over processes."""
    with get_context("spawn").Pool(processes) as pool:
        jobs = [
            (op, index, part, processes)
            for op in ops
            for index, (_, configs) in enumerate(_work(op, tune))
            for part in range(max(1, -(-len(configs) // 2)))
        ]
        for text in pool.imap_unordered(_compile_one, [(tune, *job[:3]) for job in jobs]):
            if text:
                print(text, flush=True)


def _compile_one(job: tuple[int, str, int, int]) -> str:
    tune, op, index, part = job
    case, configs = list(_work(op, tune))[index]
    try:
        arguments = case.inputs(0)
        for config in configs[2 * part : 2 * part + 2] or (None,):
            try:
                case.ours(arguments, config)
                torch.cuda.synchronize()
            except Exception as error:  # reported again, with its place, when it is measured
                print(f"{case.name} {config}: {type(error).__name__}: {str(error)[:100]}", flush=True)
    except Exception as error:
        return f"{case.name}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        torch.cuda.empty_cache()
    return ""


if __name__ == "__main__":
    main()
