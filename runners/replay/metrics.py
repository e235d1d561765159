"""From records of requests to declared metrics. The one place that says what TTFT, TPOT, goodput ... mean.

t_sched: scheduled arrival; t_send: sent; t_1, t_last: first and last chunk with tokens; N: completion tokens as
the server counts them. Latency counts from t_sched. A failed request has a latency of +infinity: it is not among
the samples, but it holds its rank in every percentile.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..result import Measurement, MetricSpec
from .client import Outcome, Record
from .options import OptionsError, Slo

_TIME_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "µs": 1e6, "ns": 1e9}
_SHARE_UNITS = {"ratio": 1.0, "fraction": 1.0, "1": 1.0, "%": 100.0}
_REQUEST_RATE_UNITS = {"1/s": 1.0, "req/s": 1.0, "requests/s": 1.0}
_TOKEN_RATE_UNITS = {"tokens/s": 1.0, "tok/s": 1.0, "token/s": 1.0}
_PERCENTILES = {"median": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_SUFFIXES = {"p50": "median", "mean": "mean", "min": "min", "max": "max"} | {
    name: name for name in _PERCENTILES
}


def ttft(record: Record) -> list[float]:
    """t_1 - t_sched."""
    return [] if record.t_first is None else [record.t_first - record.planned.at_s]


def ttft_from_send(record: Record) -> list[float]:
    """t_1 - t_send."""
    if record.t_first is None or record.t_send is None:
        return []
    return [record.t_first - record.t_send]


def tpot(record: Record) -> list[float]:
    """(t_last - t_1) / (N - 1) for N > 1; undefined, and no failure, otherwise."""
    tokens = record.output_tokens
    if record.t_first is None or record.t_last is None or tokens is None or tokens < 2:
        return []
    return [(record.t_last - record.t_first) / (tokens - 1)]


def itl(record: Record) -> list[float]:
    """Gaps between chunks, pooled over requests. Among them a failed request counts once, as one endless gap."""
    times = record.chunk_times
    return [later - earlier for earlier, later in pairwise(times)]


def e2e(record: Record) -> list[float]:
    """t_last - t_sched."""
    return [] if record.t_last is None else [record.t_last - record.planned.at_s]


def dispatch_delay(record: Record) -> list[float]:
    """t_send - t_sched: how late the client itself was."""
    return [] if record.t_send is None else [record.t_send - record.planned.at_s]


LATENCIES: dict[str, Callable[[Record], list[float]]] = {
    "ttft": ttft,
    "ttft_from_send": ttft_from_send,
    "tpot": tpot,
    "itl": itl,
    "e2e": e2e,
    "dispatch_delay": dispatch_delay,
}


def percentile(samples: Sequence[float], failures: int, q: float) -> float | None:
    """The smallest sample such that at least the share q of all attempts (samples and failures, which count as
    +infinity) is no larger: the nearest rank. None where that rank is a failure, or there was no attempt."""
    attempts = len(samples) + failures
    # The margin undoes binary rounding: 0.99 x 100 must be rank 99.
    rank = max(1, math.ceil(q * attempts - 1e-9))
    return sorted(samples)[rank - 1] if rank <= len(samples) else None


@dataclass(frozen=True)
class Measured:
    """What the records give for the declared metrics. missing: one sentence for each figure that is not there."""

    measurements: list[Measurement]
    missing: list[str]


@dataclass(frozen=True)
class _Quantity:
    """A metric's name taken apart: what is measured, and its factor from base unit to declared unit."""

    name: str
    scale: float


def check(metrics: Sequence[MetricSpec]) -> None:
    """Raises OptionsError for a metric that this tier does not measure, before anything is started."""
    for metric in metrics:
        _quantity(metric)


def measure(metrics: Sequence[MetricSpec], records: Sequence[Record], slo: Slo) -> Measured:
    """The declared metrics in their units. A metric without any sample is left out and named in `missing`."""
    measurements, missing = [], []
    for metric in metrics:
        quantity = _quantity(metric)
        if quantity.name in LATENCIES:
            measurement, gap = _latency(metric, quantity, records)
            if gap:
                missing.append(gap)
            if measurement is not None:
                measurements.append(measurement)
        else:
            values = _RATES[quantity.name](records, slo)
            samples = [value * quantity.scale for value in values]
            measurements.append(Measurement(metric, samples, value=statistics.fmean(samples)))
    return Measured(measurements, missing)


def _latency(
    metric: MetricSpec, quantity: _Quantity, records: Sequence[Record]
) -> tuple[Measurement | None, str]:
    of = LATENCIES[quantity.name]
    if quantity.name == "dispatch_delay":  # the client's own: a request that the server failed counts too
        samples = [value * quantity.scale for record in records for value in of(record)]
        failures = 0
    else:
        good = [record for record in records if record.outcome is Outcome.OK]
        samples = [value * quantity.scale for record in good for value in of(record)]
        failures = len(records) - len(good)
    if not samples:
        return None, f"{metric.name}: none of {len(records)} requests gave a value ({failures} failed)"
    if failures and metric.statistic in ("mean", "max"):
        # It would be +infinity, and nothing that reads it could tell: samples alone would look healthier the
        # more requests fail.
        return None, f"{metric.name}: the {metric.statistic} has no value, {failures} requests failed"
    value = _statistic(metric.statistic, samples, failures)
    gap = (
        ""
        if value is not None
        else f"{metric.name}: the {metric.statistic} falls on one of {failures} failures"
    )
    return Measurement(metric, samples, value=value, failures=failures), gap


def _statistic(name: str, samples: Sequence[float], failures: int) -> float | None:
    if name in _PERCENTILES:
        return percentile(samples, failures, _PERCENTILES[name])
    if name == "mean":
        return statistics.fmean(samples)
    return min(samples) if name == "min" else max(samples)


def _quantity(metric: MetricSpec) -> _Quantity:
    """`e2e`, or with its statistic spelled out as `e2e_p99`. Raises OptionsError."""
    name = metric.name
    stem, _, suffix = name.rpartition("_")
    if name not in LATENCIES and name not in _RATES and suffix in _SUFFIXES:
        if _SUFFIXES[suffix] != metric.statistic:
            raise OptionsError(
                f"metric {name}: its name says {_SUFFIXES[suffix]}, its statistic {metric.statistic}"
            )
        name = stem
    if name in LATENCIES:
        units = _TIME_UNITS
        if metric.statistic not in _SUFFIXES.values():
            raise OptionsError(f"metric {metric.name}: a latency has no statistic {metric.statistic!r}")
    elif name in _RATES:
        units = _UNITS_OF_RATES[name]
    else:
        raise OptionsError(
            f"metric {metric.name}: the replay tier measures {', '.join([*LATENCIES, *_RATES])}"
            " (a latency may end in _p50, _p90, _p95, _p99 or _p999)"
        )
    if metric.unit not in units:
        raise OptionsError(f"metric {metric.name}: unit {metric.unit!r} is none of {', '.join(units)}")
    return _Quantity(name, units[metric.unit])


def duration_s(records: Sequence[Record]) -> float:
    """From the first scheduled arrival to the last one or to the last chunk, whichever is later."""
    ends = [record.planned.at_s if record.t_last is None else record.t_last for record in records]
    return max(*ends, max(record.planned.at_s for record in records), 1e-9)


def is_good(record: Record, slo: Slo) -> bool:
    """Answered within every limit that there is. A TPOT that is undefined (one token) breaks none."""
    if record.outcome is not Outcome.OK:
        return False
    limits = ((ttft, slo.ttft_ms), (tpot, slo.tpot_ms), (e2e, slo.e2e_ms))
    return all(value * 1e3 <= limit for of, limit in limits if limit is not None for value in of(record))


def _share(*outcomes: Outcome) -> Callable[[Sequence[Record], Slo], list[float]]:
    """Per request 1 or 0, whose mean is the rate."""
    return lambda records, _: [float(record.outcome in outcomes) for record in records]


def _goodput(records: Sequence[Record], slo: Slo) -> list[float]:
    """Requests that meet every SLO / duration."""
    good = sum(is_good(record, slo) for record in records)
    return [good / duration_s(records)]


def _throughput(records: Sequence[Record], _: Slo) -> list[float]:
    """Completion tokens of answered requests / duration."""
    tokens = sum(record.output_tokens or 0 for record in records if record.outcome is Outcome.OK)
    return [tokens / duration_s(records)]


def _request_throughput(records: Sequence[Record], _: Slo) -> list[float]:
    """Answered requests / duration."""
    return [sum(record.outcome is Outcome.OK for record in records) / duration_s(records)]


_FAILED = tuple(outcome for outcome in Outcome if outcome is not Outcome.OK)
_RATES: Mapping[str, Callable[[Sequence[Record], Slo], list[float]]] = {
    "oom_rate": _share(Outcome.OOM),
    "error_rate": _share(*(outcome for outcome in _FAILED if outcome is not Outcome.OOM)),
    "failure_rate": _share(*_FAILED),
    "goodput": _goodput,
    "throughput": _throughput,
    "request_throughput": _request_throughput,
}
_UNITS_OF_RATES = {
    "oom_rate": _SHARE_UNITS,
    "error_rate": _SHARE_UNITS,
    "failure_rate": _SHARE_UNITS,
    "goodput": _REQUEST_RATE_UNITS,
    "throughput": _TOKEN_RATE_UNITS,
    "request_throughput": _REQUEST_RATE_UNITS,
}


def aligned(records: Sequence[Record]) -> dict[str, list[object]]:
    """The wire's aligned arrays, times rounded to the microsecond. `chunks`: how many brought tokens, so that
    tokens a chunk can be told from gaps between chunks."""

    def micro(value: float | None) -> float | None:
        return None if value is None else round(value, 6)

    return {
        "t_sched": [micro(record.planned.at_s) for record in records],
        "t_send": [micro(record.t_send) for record in records],
        "t_first": [micro(record.t_first) for record in records],
        "t_last": [micro(record.t_last) for record in records],
        "input_tokens": [record.planned.input_tokens for record in records],
        "output_tokens": [record.output_tokens for record in records],
        "chunks": [len(record.chunk_times) for record in records],
        "class": [record.planned.klass for record in records],
        "status": [record.outcome.value for record in records],
    }
