"""The wire between a worker and `python -m runners`: one JSON object in, one JSON object out.

Stdlib only, because the measuring child runs under the tracked project's interpreter.
Numbers on the wire are finite: a failure is a status and a count, never Infinity or NaN.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from enum import Enum, StrEnum
from typing import Any

SCHEMA_VERSION = 1

Params = dict[str, Any]


class WireError(ValueError):
    """A request or result that does not fit the schema; the message names the key."""


class Status(StrEnum):
    """What became of one case in one launch."""

    OK = "ok"
    INCORRECT = "incorrect"
    OOM = "oom"
    ERROR = "error"
    TIMEOUT = "timeout"
    INVALID = "invalid"


@dataclass(frozen=True)
class MetricSpec:
    """A metric as the manifest declares it. `lower_is_better` is None where the direction is unknown.

    `statistic` is one of median, mean, min, max, p90, p95, p99, p999, rate, count.
    """

    name: str
    unit: str
    lower_is_better: bool | None
    statistic: str = "median"
    deterministic: bool = False


@dataclass(frozen=True)
class CaseSpec:
    """One benchmark at one set of parameters, with all that is needed to run it.

    Exactly one of `entry` ("module:function") and `command` (argument list, never a shell) is set, except in
    the replay tier, where `options["server"]` says what to start. `options` holds the tier's own settings as
    the manifest gives them (inputs, reference, work, providers; golden, steps; server, trace, slo; kernels).
    `output` says what a command prints: "wall" (nothing: its wall time is the sample), "perfdb" (our JSON
    on standard output) or the name of a foreign format (the output is kept in `RunResult.output`
    and read by the worker).
    """

    benchmark: str
    tier: str
    params: Params
    metrics: tuple[MetricSpec, ...]
    entry: str | None = None
    command: tuple[str, ...] | None = None
    output: str = "wall"
    timeout_s: float = 120.0
    memory_limit_bytes: int | None = None
    rtol: float | None = None
    atol: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LaunchRequest:
    """One process launch: which cases, where and within which limits.

    root: absolute path of the checked-out commit; the child's working directory and first import path.
    python: interpreter for the project's code (None: the harness's own).
    device: "cpu", "cuda" or "auto". gpu: index, when several are there. cpus: cores to pin to.
    budget_s: time for warm-up and timing of each case (correctness apart). Seeds order and inputs.
    environment: variables added to the scrubbed environment.
    """

    launch_id: str
    root: str
    cases: tuple[CaseSpec, ...]
    seed: int = 0
    python: str | None = None
    device: str = "auto"
    gpu: int = 0
    cpus: tuple[int, ...] | None = None
    budget_s: float = 2.0
    environment: dict[str, str] = field(default_factory=dict)
    sentinel: bool = True
    schema: int = SCHEMA_VERSION

    def to_json(self) -> str:
        return _dump(self)

    @classmethod
    def from_json(cls, text: str | bytes) -> LaunchRequest:
        """Raises WireError for another schema, an unknown key or a missing one."""
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise WireError(f"launch request: not JSON: {error}") from None
        if not isinstance(raw, dict):
            raise WireError("launch request: expected an object")
        if raw.get("schema") != SCHEMA_VERSION:
            raise WireError(
                f"launch request: schema {raw.get('schema')!r}, this runner speaks {SCHEMA_VERSION}"
            )
        try:
            cases = tuple(
                CaseSpec(
                    **{
                        **case,
                        "metrics": tuple(MetricSpec(**metric) for metric in case["metrics"]),
                        "command": None if case.get("command") is None else tuple(case["command"]),
                    }
                )
                for case in raw.pop("cases")
            )
            cpus = raw.pop("cpus", None)
            return cls(cases=cases, cpus=None if cpus is None else tuple(cpus), **raw)
        except (TypeError, KeyError) as error:
            raise WireError(f"launch request: {error}") from None


@dataclass(frozen=True)
class Measurement:
    """Raw samples of one metric in the order taken, in `metric.unit`.

    mhz: the SM clock over each sample, counted on the device, or None where it is not known.
    value: the launch's own figure where it is not the statistic of the samples (a rate over failures,
    a percentile with failures ranked as +infinity); None where the samples say it all.
    failures: how many attempts gave no sample; in a tail statistic of our own replays they rank as +infinity.
    """

    metric: MetricSpec
    samples: list[float]
    mhz: list[float] | None = None
    value: float | None = None
    failures: int = 0


@dataclass(frozen=True)
class RunResult:
    """What became of one case. `log` is the last lines of the case's output, kept for every status.

    correctness: what was compared and the errors found (None: the case declares no reference).
    trace_summary: shape of the workload or profile (replay: length and arrival distributions, trace hash).
    requests: aligned arrays of a replay (t_sched, t_send, t_first, t_last in seconds, None where absent;
    input_tokens, output_tokens, class, status).
    work: FLOPs and bytes counted by formula. output: what a foreign-format command printed.
    """

    benchmark: str
    params: Params
    tier: str
    status: Status
    reason: str = ""
    log: str = ""
    started_at: str = ""
    duration_s: float = 0.0
    measurements: list[Measurement] = field(default_factory=list)
    correctness: dict[str, Any] | None = None
    trace_summary: dict[str, Any] | None = None
    requests: dict[str, list[Any]] | None = None
    work: dict[str, float] | None = None
    output: str | None = None


@dataclass(frozen=True)
class Environment:
    """Where it ran. `klass` separates series, `boundary` marks a boundary inside one, `info` only informs."""

    klass: dict[str, Any]
    boundary: dict[str, Any]
    info: dict[str, Any]


@dataclass(frozen=True)
class Health:
    """Readings before, during (aggregated and 10 Hz) and after, and the reasons that make a launch invalid.

    sentinel: medians of the fixed control benchmarks before and after, in seconds by name.
    violations: plain sentences; not empty means that every run of the launch is invalid.
    """

    before: dict[str, Any] = field(default_factory=dict)
    during: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    sentinel: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LaunchResult:
    """The answer to a LaunchRequest: one RunResult per case, always, whatever happened."""

    launch_id: str
    started_at: str
    finished_at: str
    environment: Environment
    health: Health
    runs: list[RunResult]
    harness_version: str
    order: list[int] = field(default_factory=list)
    schema: int = SCHEMA_VERSION

    def to_json(self) -> str:
        return _dump(self)


def _dump(value: LaunchRequest | LaunchResult) -> str:
    return json.dumps(_finite(asdict(value), ""), separators=(",", ":"), allow_nan=False)


def _finite(value: Any, path: str) -> Any:
    """Enums to their text; a non-finite number is a programming error on the wire and names its place."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        raise WireError(f"wire: {path} is {value!r}; a failure is a status and a count, never a number")
    if isinstance(value, dict):
        return {str(key): _finite(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item, f"{path}[{i}]") for i, item in enumerate(value)]
    return value
