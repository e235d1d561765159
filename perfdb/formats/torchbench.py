"""torchbench userbenchmark: `metrics-<time>.json`, {name, environ, metrics}.

Keys are `model=..., test=..., metric=...` or free text. A value is a number or a word: "not_implemented" is
skipped, "err" and the rest are broken, which must be told and is never an improvement.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from perfdb.formats.draft import Draft, metric
from perfdb.formats.errors import ItemError
from perfdb.formats.format import Format
from perfdb.formats.reading import CommitReading, MetricReading, Params, Reading
from perfdb.formats.source import Source
from perfdb.formats.values import finite, shown

NAME = "torchbench"
_PART = re.compile(r"(?:^|, )([A-Za-z_][\w ]*?)=")
# torchbench writes these metrics in these units (torchbenchmark/util/extra_args and run.py).
_METRICS: dict[str, tuple[str, bool | None]] = {
    "latencies": ("ms", True),
    "latency": ("ms", True),
    "cpu_peak_mem": ("GB", True),
    "gpu_peak_mem": ("GB", True),
    "throughputs": ("", False),
    "ttfb": ("s", True),
}
_KLASS = ("device", "gpu", "gpu_count", "cuda")
_BOUNDARY = ("pytorch_version", "cuda_version", "torchbench_version", "python_version", "triton_version")


@dataclass
class _Case:
    name: str
    params: Params
    metrics: list[MetricReading] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)


def _sniff(source: Source) -> bool:
    document = source.first_object
    return isinstance(document.get("metrics"), dict) and isinstance(document.get("environ"), dict)


def _read(source: Source) -> Reading:
    document = source.document
    metrics = document.get("metrics") if isinstance(document, dict) else None
    if not isinstance(metrics, dict):
        raise source.error("metrics", "expected an object of metrics")
    draft = Draft(NAME)
    environ = document.get("environ")
    _environment(draft, environ if isinstance(environ, dict) else {})
    group = document.get("name")
    cases: dict[str, _Case] = {}
    for key, value in metrics.items():
        with draft.item(f"metrics[{key!r}]"):
            _value(cases, group if isinstance(group, str) and group else "userbenchmark", key, value)
    for case in cases.values():
        with draft.item(case.name):
            _add(draft, case)
    return draft.finish()


def _environment(draft: Draft, environ: dict[str, Any]) -> None:
    draft.klass |= {key: environ[key] for key in _KLASS if isinstance(environ.get(key), (str, int))}
    draft.boundary |= {key: environ[key] for key in _BOUNDARY if isinstance(environ.get(key), str)}
    commit = environ.get("pytorch_git_version")
    if isinstance(commit, str) and commit:
        draft.commit = CommitReading(commit)


def _value(cases: dict[str, _Case], group: str, key: str, value: Any) -> None:
    parts = _split(key)
    label = parts.pop("metric", None)
    if label is None:
        name, params, label = f"{group}/{key}", {}, "value"
    else:
        name, params = f"{group}/{parts.pop('model', group)}", dict(parts)
    identity = f"{name}\0{sorted(params.items())}"
    case = cases.setdefault(identity, _Case(name, params))
    if isinstance(value, str):
        case.failures.append((label, value))
        return
    if value is None or isinstance(value, (dict, list, bool)):
        raise ItemError(f"expected a number or a word, got {shown(value)}")
    unit, lower = _METRICS.get(label, ("", None))
    case.metrics.append(
        metric(label, unit, lower_is_better=lower, value=finite(value, label), statistic="median")
    )


def _split(key: str) -> dict[str, str]:
    """`model=x, extra_args=--a b, metric=y`: a value runs to the next `, word=` and may hold anything."""
    found = list(_PART.finditer(key))
    if not found or found[0].start() != 0:
        return {}
    ends = [match.start() for match in found[1:]] + [len(key)]
    return {match[1]: key[match.end() : end] for match, end in zip(found, ends, strict=True)}


def _add(draft: Draft, case: _Case) -> None:
    status, reason = "ok", ""
    if case.failures:
        words = {word for _, word in case.failures}
        reason = "; ".join(f"{label}: {word}" for label, word in case.failures)
        status = next((_status(word) for word in sorted(words) if _status(word) != "skipped"), "skipped")
    draft.add(case.name, case.metrics, params=case.params, status=status, reason=reason)


def _status(word: str) -> str:
    lowered = word.lower()
    if lowered in ("not_implemented", "notimplemented", "skip", "skipped"):
        return "skipped"
    if "oom" in lowered or "out of memory" in lowered:
        return "oom"
    if "timeout" in lowered or "timed out" in lowered:
        return "timeout"
    return "error"


FORMAT = Format(NAME, "torchbench userbenchmark", _sniff, _read, ('"environ"', '"metrics"'))
