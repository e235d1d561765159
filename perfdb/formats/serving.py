"""What the result files of serving benchmarks have in common (vLLM, SGLang)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.reading import MetricReading
from perfdb.formats.values import finite, is_number

_LATENCY = re.compile(r"^(mean|median|std|min|max|p\d+(?:\.\d+)?)_(\w+)_ms$")
_STATISTICS = {"p99.9": "p999", "p50": "median"}

# Key in the file, which is the metric's name too, and unit. Null means "not measured".
RATES = {
    "request_throughput": "requests/s",
    "request_goodput": "requests/s",
    "input_throughput": "tokens/s",
    "output_throughput": "tokens/s",
    "total_throughput": "tokens/s",
    "total_token_throughput": "tokens/s",
    "max_output_tokens_per_s": "tokens/s",
    "rtfx": "",
}

# Written as 0 by every run that does not measure it; a goodput of 0 is a result, and the worst one.
_ZERO_IS_NOTHING = ("rtfx", "max_output_tokens_per_s")


def run_metrics(draft: Draft, at: str, record: dict[str, Any], failed: Any) -> list[MetricReading]:
    """All metrics of a run; of one in which no request completed, the failure rate only."""
    made: list[MetricReading] = []
    if record.get("completed") != 0:
        made += [*latency_metrics(draft, at, record), *rate_metrics(draft, at, record)]
    return made + draft.metrics(at, lambda: failure_rate(record.get("completed"), failed))


def latency_metrics(draft: Draft, at: str, record: dict[str, Any]) -> list[MetricReading]:
    """`<statistic>_<quantity>_ms` keys. Spreads go to the summary of the mean, and failed requests are in none.

    A latency of zero or less is impossible and would pass every bound, so it is rejected.
    """
    made: list[MetricReading] = []
    for key, value in record.items():
        match = _LATENCY.match(key)
        if match is None or value is None or match[1] == "std":
            continue
        with draft.item(at):
            summary: dict[str, Any] = {}
            if match[1] == "mean" and is_number(record.get(f"std_{match[2]}_ms")):
                summary["std"] = record[f"std_{match[2]}_ms"]
            made.append(
                metric(
                    key.removesuffix("_ms"),
                    "ms",
                    value=finite(value, key),
                    statistic=_STATISTICS.get(match[1], match[1]),
                    successes_only=True,
                    summary=summary,
                )
            )
    return made


def rate_metrics(draft: Draft, at: str, record: dict[str, Any]) -> list[MetricReading]:
    """Throughputs. They count completed requests only; what was not measured makes no series."""
    made: list[MetricReading] = []
    for key, unit in RATES.items():
        value = record.get(key)
        if value is None or (value == 0 and key in _ZERO_IS_NOTHING and not isinstance(value, bool)):
            continue
        with draft.item(at):
            made.append(
                metric(
                    key,
                    unit,
                    lower_is_better=False,
                    value=finite(value, key),
                    statistic="rate",
                    successes_only=True,
                )
            )
    return made


def failure_rate(completed: Any, failed: Any) -> MetricReading | None:
    """The share of requests that failed, None where the file does not tell. Raises ItemError for a wrong count."""
    if completed is None or failed is None:
        return None
    done, lost = finite(completed, "completed"), finite(failed, "failed")
    if done < 0 or lost < 0 or done + lost == 0:
        return None
    return metric(
        "failure_rate",
        "ratio",
        lower_is_better=True,
        value=lost / (done + lost),
        statistic="rate",
        summary={"completed": done, "failed": lost},
    )


def failed_note(completed: Any, failed: Any) -> tuple[str, ...]:
    if not isinstance(failed, int) or not isinstance(completed, int) or failed <= 0:
        return ()
    return (
        f"{failed} of {completed + failed} requests failed; latencies and throughputs count successes only",
    )


def positive_samples(values: Any, keep: Callable[[int], bool]) -> list[float]:
    """Per-request seconds as milliseconds, of the requests that `keep` accepts; [] if not a list of numbers."""
    if not isinstance(values, list):
        return []
    return [
        float(value) * 1e3
        for index, value in enumerate(values)
        if keep(index) and is_number(value) and value > 0
    ]
