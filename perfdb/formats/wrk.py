"""wrk and wrk2: their text output; several outputs in one file are launches of the same target.

wrk's sizes are binary (1MB is 2^20 bytes). Its latencies are over completed requests; socket errors and
non-2xx answers are counted apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import MetricReading, Number, Params, Reading
from perfdb.formats.source import Line, Source
from perfdb.formats.values import parse_number

NAME = "wrk"
_RUNNING = re.compile(r"^Running (?P<duration>\S+) test @ (?P<url>\S+)")
_SETUP = re.compile(r"^(?P<threads>\d+) threads and (?P<connections>\d+) connections$")
_LATENCY = re.compile(r"^Latency\s+(?P<mean>\S+)\s+(?P<stdev>\S+)\s+(?P<max>\S+)\s+\S+%$")
_PERCENTILE = re.compile(r"^(?P<percentile>\d+(?:\.\d+)?)%\s+(?P<time>[\d.]+(?:us|ms|s|m|h))$")
_TOTAL = re.compile(r"^(?P<requests>\d+) requests in (?P<time>\S+?),\s+\S+ read$")
_ERRORS = re.compile(r"^Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)$")
_STATUS = re.compile(r"^Non-2xx or 3xx responses: (\d+)$")
_RATE = re.compile(r"^(Requests/sec|Transfer/sec):\s+(\S+)$")
_TIME = re.compile(r"^(-?[\d.]+)(us|ms|s|m|h)$")
_SIZE = re.compile(r"^([\d.]+)([KMGTP]?)B$")
_TIME_UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}
_PERCENTILES = {"50": "median", "99.9": "p999"}


@dataclass
class _Run:
    """One output of wrk. Latencies are microseconds."""

    url: str
    at: str
    params: Params = field(default_factory=dict)
    metrics: list[MetricReading] = field(default_factory=list)
    requests: int | None = None
    errors: int = 0
    bad_answers: int = 0


def _sniff(source: Source) -> bool:
    return re.search(r"(?m)^Running \S+ test @ \S+", source.head) is not None


def _read(source: Source) -> Reading:
    draft, run = Draft(NAME), None
    for line in source.lines():
        text = line.text.strip()
        if match := _RUNNING.match(text):
            _close(draft, run)
            run = _Run(match["url"], line.at, {"duration": match["duration"]})
        elif run is not None:
            with draft.item(line.at, run.url):
                _line(run, line, text)
    if run is None:
        raise source.error("line 1", "no `Running ... test @ ...`")
    _close(draft, run)
    return draft.finish()


def _line(run: _Run, line: Line, text: str) -> None:
    if match := _SETUP.match(text):
        run.params |= {key: parse_number(value) for key, value in match.groupdict().items()}
    elif match := _LATENCY.match(text):
        run.metrics.append(_latency("mean", _time(match["mean"]), "mean"))
        run.metrics.append(_latency("max", _time(match["max"]), "max"))
    elif match := _PERCENTILE.match(text):
        # wrk2 prints the whole spectrum "0.500000"; the plain list is the one with at most three decimals.
        percentile = f"{parse_number(match['percentile']):g}"
        label = f"p{percentile}"
        if all(each.name != f"latency_{label}" for each in run.metrics) and 0 < float(percentile) < 100:
            run.metrics.append(_latency(label, _time(match["time"]), _PERCENTILES.get(percentile, label)))
    elif match := _TOTAL.match(text):
        run.requests = int(match["requests"][:18])
    elif match := _ERRORS.match(text):
        run.errors = sum(int(count[:18]) for count in match.groups())
    elif match := _STATUS.match(text):
        run.bad_answers = int(match[1][:18])
    elif match := _RATE.match(text):
        if match[1] == "Requests/sec":
            run.metrics.append(
                metric("throughput", "requests/s", value=parse_number(match[2]), statistic="rate")
            )
        else:
            run.metrics.append(metric("transfer", "bytes/s", value=_size(match[2]), statistic="rate"))


def _latency(label: str, value: Number, statistic: str) -> MetricReading:
    return metric(f"latency_{label}", "us", value=value, statistic=statistic, successes_only=True)


def _time(text: str) -> Number:
    match = _TIME.match(text)
    if match is None:
        raise ItemError(f"no time: {text[:40]!r}")
    return parse_number(match[1]) * _TIME_UNITS[match[2]]


def _size(text: str) -> Number:
    match = _SIZE.match(text)
    if match is None:
        raise ItemError(f"no size: {text[:40]!r}")
    return parse_number(match[1]) * 1024.0 ** " KMGTP".index(match[2] or " ")


def _close(draft: Draft, run: _Run | None) -> None:
    if run is None:
        return
    with draft.item(run.at, run.url):
        failed = run.errors + run.bad_answers
        status, reason = "ok", ""
        if not run.requests:
            status, reason = "error", "no request completed, or the output is cut off"
        elif run.requests + run.errors:
            # Bad answers are among the completed requests, socket errors are not.
            run.metrics.append(
                metric(
                    "failure_rate",
                    "ratio",
                    lower_is_better=True,
                    value=failed / (run.requests + run.errors),
                    statistic="rate",
                    summary={"socket_errors": run.errors, "bad_answers": run.bad_answers},
                )
            )
        notes = (f"{failed} requests failed or were answered with an error",) if failed else ()
        draft.add(
            run.url,
            run.metrics if status == "ok" else [],
            params=run.params,
            status=status,
            reason=reason,
            notes=notes,
            repeat="launches",
        )


FORMAT = Format(NAME, "wrk text", _sniff, _read, ("Running", "test @"))
