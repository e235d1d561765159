"""One replay case from declaration to result: trace, server, load, metrics, and what became of it all."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from ..context import Context
from ..result import CaseSpec, RunResult, Status
from . import client, metrics
from .client import Outcome, Record, Target
from .options import OptionsError, ReplayOptions, Slo, parse
from .payloads import Planned, plan
from .readers import read
from .server import Server, ServerError, running
from .summary import summarise
from .trace import TraceError
from .transforms import apply

# Left of the case's time for ending the server and writing the result.
_CLOSING_S = 3.0
_FAILURES_IN_LOG = 5


@dataclass(frozen=True)
class _Verdict:
    status: Status
    reason: str


def run_case(case: CaseSpec, context: Context) -> RunResult:
    """Replay the case's trace against its server. Never raises for what the case or the server does: that is
    a status with a reason and the server's last lines."""
    began = time.monotonic()
    result = RunResult(
        benchmark=case.benchmark,
        params=case.params,
        tier=case.tier,
        status=Status.ERROR,
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    )
    try:
        options = parse(case)
        metrics.check(case.metrics)
        trace = apply(read(context.root / options.trace, name=options.trace), options.transform)
        planned = plan(trace, options.load, model=options.server.model)
    except (OptionsError, TraceError) as error:
        return replace(result, reason=str(error), duration_s=time.monotonic() - began)
    summary = summarise(trace, name=options.trace, transform=options.transform_table)
    result = replace(result, trace_summary=summary.to_dict())
    with asyncio.Runner() as runner:
        result = runner.run(_run(case, context, options, planned, result))
    # In a measuring child the case's log is what it wrote, whatever `log` holds.
    for line in result.log.splitlines():
        context.log(line)
    return replace(result, duration_s=time.monotonic() - began)


async def _run(
    case: CaseSpec, context: Context, options: ReplayOptions, planned: list[Planned], result: RunResult
) -> RunResult:
    log = ""
    async with client.session() as http:
        try:
            async with running(
                options.server, context, memory_limit_bytes=case.memory_limit_bytes, http=http
            ) as server:
                target = Target(
                    url=server.base_url + ("/chat/completions" if options.load.chat else "/completions"),
                    request_timeout_s=min(options.load.request_timeout_s, context.remaining_s()),
                    exact=options.load.ignore_eos,
                )
                shortest = sorted(planned, key=lambda p: p.input_tokens)[: options.load.warmup_requests]
                await client.warm_up(http, shortest, target)
                context.log(f"replay: {len(planned)} requests over {planned[-1].at_s:.1f} s to {target.url}")
                loop = asyncio.get_running_loop()
                deadline = loop.time() + max(0.0, context.remaining_s() - _CLOSING_S)
                records = await client.replay(http, planned, target, alive=server.alive, deadline=deadline)
                verdict = _judge(records, server, options, timed_out=loop.time() >= deadline)
                log = server.log_tail()
        except OptionsError as error:
            return replace(result, reason=str(error))
        except ServerError as error:
            status = Status.OOM if error.out_of_memory else Status.ERROR
            return replace(result, status=status, reason=str(error), log=error.log)
    return _report(case, records, options.slo, verdict, result, log)


def _judge(records: Sequence[Record], server: Server, options: ReplayOptions, *, timed_out: bool) -> _Verdict:
    """The run's status, the gravest first. Requests that a server's death of memory cost are told as OOM."""
    answered = sum(record.outcome is Outcome.OK for record in records)
    of = f"{answered} of {len(records)} requests were answered"
    death = server.death()
    if death is not None and server.died_of_memory():
        for record in records:
            if record.outcome in (Outcome.LOST, Outcome.UNSENT):
                record.fail(Outcome.OOM, f"the server {death}")
        return _Verdict(Status.OOM, f"the server ran out of memory and {death}; {of}")
    if death is not None:
        return _Verdict(Status.ERROR, f"the server {death} during the replay; {of}")
    if timed_out and answered < len(records):
        return _Verdict(Status.TIMEOUT, f"the case's time ended before the replay; {of}")
    limit_ms = options.max_dispatch_delay_ms
    delay_s = metrics.percentile(_delays(records), 0, 0.99)
    if delay_s is not None and delay_s * 1e3 > limit_ms:
        return _Verdict(
            Status.INVALID,
            f"the load generator lagged: 1 % of requests left {delay_s * 1e3:.1f} ms or more after their time"
            f" (limit {limit_ms:g} ms), so their latencies are not the server's",
        )
    short = [record for record in records if record.outcome is Outcome.SHORT]
    if short:
        return _Verdict(Status.INCORRECT, f"{len(short)} answers were cut short: {short[0].message}")
    if answered == 0:
        starved = all(record.outcome is Outcome.OOM for record in records)
        return _Verdict(Status.OOM if starved else Status.ERROR, f"{of}: {records[0].message}")
    return _Verdict(Status.OK, "")


def _report(
    case: CaseSpec,
    records: Sequence[Record],
    slo: Slo,
    verdict: _Verdict,
    result: RunResult,
    log: str,
) -> RunResult:
    measured = metrics.measure(case.metrics, records, slo)
    return replace(
        result,
        status=verdict.status,
        reason="; ".join(filter(None, [verdict.reason, *measured.missing])),
        log="\n".join(filter(None, [log, _sent_line(records), *_failure_lines(records)])),
        measurements=measured.measurements,
        correctness=_correctness(records),
        requests=metrics.aligned(records),
    )


def _delays(records: Sequence[Record]) -> list[float]:
    return [delay for record in records for delay in metrics.dispatch_delay(record)]


def _sent_line(records: Sequence[Record]) -> str:
    """How the load went out and what came back. It goes to the log: the trace's summary is of the workload
    alone, and is stored once for all runs that sent it."""
    span_s = max(record.planned.at_s for record in records)
    answered = sum(record.outcome is Outcome.OK for record in records)
    delays_ms = [f"{1e3 * (metrics.percentile(_delays(records), 0, q) or 0.0):.2f}" for q in (0.5, 0.99, 1.0)]
    outcomes = Counter(record.outcome.value for record in records)
    return (
        f"replay: {len(records)} requests due within {span_s:.2f} s, answered at"
        f" {answered / metrics.duration_s(records):.2f} req/s"
        f" ({', '.join(f'{count} {name}' for name, count in outcomes.items())});"
        f" dispatch delay {delays_ms[0]} ms at the median, p99 {delays_ms[1]} ms, most {delays_ms[2]} ms"
    )


def _correctness(records: Sequence[Record]) -> dict[str, Any]:
    """Completion lengths are what is checked. The digest of all texts is there to compare two runs by: it is
    None when any request failed, for then it says nothing."""
    digest = None
    if all(record.outcome is Outcome.OK for record in records):
        texts = "\0".join("".join(record.text) for record in records)
        digest = hashlib.sha256(texts.encode()).hexdigest()
    return {
        "compared": "completion tokens with those asked for",
        "requests": len(records),
        "short": sum(record.outcome is Outcome.SHORT for record in records),
        "output_sha256": digest,
    }


def _failure_lines(records: Sequence[Record]) -> list[str]:
    """One line for each of the first few kinds of failure."""
    first: dict[tuple[Outcome, str], int] = {}
    for index, record in enumerate(records):
        if record.outcome is not Outcome.OK:
            first.setdefault((record.outcome, record.message), index)
    lines = []
    for (outcome, message), index in list(first.items())[:_FAILURES_IN_LOG]:
        planned = records[index].planned
        lines.append(
            f"request {index} (at {planned.at_s:.3f} s, {planned.input_tokens} in, {planned.output_tokens} out)"
            f" {outcome.value}: {message}"
        )
    if len(first) > _FAILURES_IN_LOG:
        lines.append(f"and {len(first) - _FAILURES_IN_LOG} other kinds of failure")
    return lines
