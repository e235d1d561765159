"""`perfdb.toml`: what a tracked repository asks to have measured.

Pure: text in, frozen structures out. Every error names the file's line and the key. `Manifest.cases()` expands
parameter lists into the `runners.result.CaseSpec` objects that a launch takes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import shlex
import tomllib
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec

from perfdb.manifest_lines import locate
from runners.result import CaseSpec, MetricSpec

FILE_NAME = "perfdb.toml"
MAX_CASES = 10_000

Tier = Literal["static", "micro", "step", "replay"]
StatisticName = Literal["median", "mean", "min", "max", "p90", "p95", "p99", "p999", "rate", "count"]
Scalar = str | int | float | bool
_ENTRY = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
_NAME = r"^[^\x00-\x1f\x7f]{1,200}$"

_DIRECTIONS: dict[str, bool | None] = {"lower": True, "higher": False, "unknown": None}

# What each tier measures when the manifest lists no metrics of its own.
_LOWER, _HIGHER, _UNKNOWN = True, False, None
DEFAULT_METRICS: dict[str, tuple[MetricSpec, ...]] = {
    "static": (
        MetricSpec("registers", "registers", _LOWER, "max", deterministic=True),
        MetricSpec("spills", "B", _LOWER, "max", deterministic=True),
        MetricSpec("stack", "B", _LOWER, "max", deterministic=True),
        MetricSpec("shared_memory", "B", _LOWER, "max", deterministic=True),
        MetricSpec("instructions", "instructions", _LOWER, "max", deterministic=True),
        MetricSpec("matrix_instructions", "instructions", _UNKNOWN, "max", deterministic=True),
        MetricSpec("occupancy", "ratio", _HIGHER, "max", deterministic=True),
    ),
    "micro": (MetricSpec("time", "s", _LOWER),),
    "step": (
        MetricSpec("step_time", "s", _LOWER),
        MetricSpec("peak_memory", "B", _LOWER, "max"),
    ),
    "replay": (
        MetricSpec("ttft_p50", "s", _LOWER, "median"),
        MetricSpec("ttft_p99", "s", _LOWER, "p99"),
        MetricSpec("tpot_p50", "s", _LOWER, "median"),
        MetricSpec("tpot_p99", "s", _LOWER, "p99"),
        MetricSpec("e2e_p50", "s", _LOWER, "median"),
        MetricSpec("e2e_p99", "s", _LOWER, "p99"),
        MetricSpec("goodput", "req/s", _HIGHER, "rate"),
        MetricSpec("throughput", "tokens/s", _HIGHER, "rate"),
        MetricSpec("oom_rate", "ratio", _LOWER, "rate"),
        MetricSpec("error_rate", "ratio", _LOWER, "rate"),
    ),
}


class ManifestError(ValueError):
    """A manifest that does not fit. `line` is 1-based, None where no line can be named."""

    def __init__(self, message: str, *, line: int | None = None, source: str = FILE_NAME) -> None:
        self.line = line
        self.message = message
        place = f"{source}:{line}" if line else source
        super().__init__(f"{place}: {message}")


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pass


class ProjectTable(_Table, frozen=True):
    name: str
    python: str | None = None
    branch: str = "main"


class BuildTable(_Table, frozen=True):
    command: str | list[str]
    timeout_s: float = 900.0

    def argv(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.command) if isinstance(self.command, str) else self.command)


class MetricTable(_Table, frozen=True):
    name: str
    unit: str
    direction: Literal["lower", "higher", "unknown"]
    statistic: StatisticName = "median"
    deterministic: bool = False

    def spec(self) -> MetricSpec:
        return MetricSpec(
            self.name, self.unit, _DIRECTIONS[self.direction], self.statistic, self.deterministic
        )


class ToleranceTable(_Table, frozen=True):
    rtol: float | None = None
    atol: float | None = None


class ServerTable(_Table, frozen=True):
    """Either `command` (started for the run; {python}, {port} and {engine} are filled in) or `url`."""

    command: list[str] | None = None
    url: str | None = None
    ready: str = "/health"
    base_path: str = "/v1"
    model: str | None = None
    startup_timeout_s: float = 60.0


class SloTable(_Table, frozen=True):
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


class LoadTable(_Table, frozen=True):
    """How a replay's requests are made and sent; docs/replay.md has the defaults."""

    request_timeout_s: float | None = None
    vocab_size: int | None = None
    warmup_requests: int | None = None
    ignore_eos: bool | None = None
    chat: bool | None = None
    extra_body: dict[str, Any] = {}


class BenchmarkTable(_Table, frozen=True):
    name: str
    tier: Tier
    entry: str | None = None
    command: str | list[str] | None = None
    output: str = "wall"
    params: dict[str, Scalar | list[Scalar]] = {}
    exclude: list[dict[str, Scalar]] = []
    metric: list[MetricTable] = []
    tolerance: ToleranceTable = ToleranceTable()
    launches: int = 5
    timeout_s: float = 120.0
    memory_limit_mb: float | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    on: Literal["every", "demand"] = "every"
    sample_every: int = 1
    # micro
    inputs: str | None = None
    reference: str | None = None
    work: str | None = None
    providers: dict[str, str] = {}
    mutates: bool = False
    reduction: int | None = None
    # step
    golden: str | None = None
    steps: int | None = None
    warmup: int | None = None
    losses: int | None = None
    seed: int | None = None
    # replay
    trace: str | None = None
    transform: dict[str, Scalar] = {}
    server: ServerTable | None = None
    slo: SloTable = SloTable()
    load: LoadTable = LoadTable()
    max_dispatch_delay_ms: float | None = None
    # static
    kernels: str | None = None
    targets: list[str] = []
    policy: dict[str, Any] = {}


class _File(_Table, frozen=True):
    project: ProjectTable
    benchmark: list[BenchmarkTable]
    build: BuildTable | None = None
    policy: dict[str, Any] = {}
    schema: int = 1


_TIER_KEYS = {
    "micro": {"inputs", "reference", "work", "providers", "mutates", "reduction"},
    "step": {"reference", "golden", "steps", "warmup", "losses", "seed"},
    "replay": {"trace", "transform", "server", "slo", "max_dispatch_delay_ms", "load"},
    "static": {"kernels", "targets"},
}
_TIER_ONLY = set().union(*_TIER_KEYS.values())
_ENTRY_KEYS = ("entry", "inputs", "reference", "work", "kernels")


@dataclass(frozen=True)
class Case:
    """One benchmark at one set of parameters, ready to be put into a launch."""

    spec: CaseSpec
    launches: int
    device: str
    on: str
    sample_every: int
    definition_hash: str
    policy: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Manifest:
    """A checked manifest."""

    project: ProjectTable
    build: BuildTable | None
    benchmarks: tuple[BenchmarkTable, ...]
    policy: dict[str, Any]

    def cases(self) -> list[Case]:
        """All cases in the order of the file, parameters in the order of their lists."""
        return [case for table in self.benchmarks for case in _expand(table)]


def load(path: Path) -> Manifest:
    """Read and check a manifest file. Raises ManifestError, also where the file is absent or not UTF-8."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ManifestError("no such file", source=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"cannot be read: {error}", source=str(path)) from None
    return parse(text, source=path.name)


def parse(text: str, *, source: str = FILE_NAME) -> Manifest:
    """Check manifest text. Raises ManifestError naming line and key."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        raise ManifestError(
            f"not TOML: {error}", line=int(line[1]) if line else None, source=source
        ) from None
    try:
        checked = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise _explain(str(error), raw, text, source) from None
    if checked.schema != 1:
        raise ManifestError(
            f"schema {checked.schema} is not known (this perfdb speaks 1)",
            line=locate(text, ("schema",)),
            source=source,
        )
    if not checked.benchmark:
        raise ManifestError("no [[benchmark]]: there is nothing to measure", source=source)
    seen: dict[str, int] = {}
    for index, table in enumerate(checked.benchmark):
        for key, message in _faults(table):
            path = ("benchmark", index, *key)
            raise ManifestError(
                f"benchmark {table.name!r}: {message}", line=locate(text, path), source=source
            )
        if table.name in seen:
            raise ManifestError(
                f"benchmark {table.name!r} stands twice (also number {seen[table.name] + 1})",
                line=locate(text, ("benchmark", index, "name")),
                source=source,
            )
        seen[table.name] = index
    return Manifest(
        project=checked.project,
        build=checked.build,
        benchmarks=tuple(checked.benchmark),
        policy=checked.policy,
    )


def _faults(table: BenchmarkTable) -> list[tuple[tuple[str | int, ...], str]]:
    """What the types cannot say, as (key path inside the benchmark, sentence)."""
    out: list[tuple[tuple[str | int, ...], str]] = []
    if not re.match(_NAME, table.name):
        out.append((("name",), "name must be 1 to 200 printable characters"))
    fresh = BenchmarkTable(name=table.name, tier=table.tier)
    for key in sorted(_TIER_ONLY - _TIER_KEYS[table.tier]):
        if getattr(table, key) != getattr(fresh, key):
            out.append(((key,), f"key {key!r} does not belong to tier {table.tier!r}"))
    for key in _ENTRY_KEYS:
        value = getattr(table, key)
        if value is not None and not re.match(_ENTRY, value):
            out.append(((key,), f"{key} must look like module:function, got {value!r}"))
    for name, value in table.providers.items():
        if not re.match(_ENTRY, value):
            out.append((("providers", name), f"provider {name!r} must look like module:function"))
    out.extend(_source_faults(table))
    if not 1 <= table.launches <= 1000:
        out.append((("launches",), f"launches must be 1 to 1000, got {table.launches}"))
    if table.sample_every < 1:
        out.append((("sample_every",), f"sample_every must be at least 1, got {table.sample_every}"))
    if not 0 < table.timeout_s <= 86_400:
        out.append((("timeout_s",), f"timeout_s must be between 0 and 86400, got {table.timeout_s:g}"))
    if table.memory_limit_mb is not None and table.memory_limit_mb <= 0:
        out.append((("memory_limit_mb",), "memory_limit_mb must be positive"))
    names = [metric.name for metric in table.metric]
    for index, name in enumerate(names):
        if name in names[:index]:
            out.append((("metric", index, "name"), f"metric {name!r} stands twice"))
    for key in ("rtol", "atol"):
        value = getattr(table.tolerance, key)
        if value is not None and not value >= 0:
            out.append((("tolerance", key), f"tolerance {key} cannot be negative"))
    size = 1
    for value in table.params.values():
        size *= len(value) if isinstance(value, list) else 1
    if size == 0:
        out.append((("params",), "a parameter with an empty list leaves no case"))
    if size > MAX_CASES:
        out.append((("params",), f"{size} cases are more than {MAX_CASES}"))
    return out


def _source_faults(table: BenchmarkTable) -> list[tuple[tuple[str | int, ...], str]]:
    """Whether the benchmark says what to run, and only once."""
    if table.tier == "replay":
        if table.server is None or (table.server.command is None) == (table.server.url is None):
            return [(("server",), "a replay needs a server with either command or url")]
        if table.trace is None:
            return [(("trace",), "a replay needs a trace")]
        return []
    if table.tier == "static":
        return [] if table.kernels else [(("kernels",), "a static benchmark needs kernels")]
    if (table.entry is None) == (table.command is None):
        return [(("entry",), "give either entry or command")]
    if table.command is None and table.output != "wall":
        return [(("output",), "output belongs to a command")]
    if table.command is not None and not _argv(table.command):
        return [(("command",), "the command is empty")]
    if table.command is not None and not table.metric:
        return [(("metric",), "a command needs at least one [[benchmark.metric]]")]
    return []


def _argv(command: str | list[str]) -> tuple[str, ...]:
    return tuple(shlex.split(command) if isinstance(command, str) else command)


def _expand(table: BenchmarkTable) -> list[Case]:
    metrics = tuple(metric.spec() for metric in table.metric) or DEFAULT_METRICS[table.tier]
    options = {key: msgspec.to_builtins(getattr(table, key)) for key in sorted(_TIER_KEYS[table.tier])}
    options = {
        key: _present(value) for key, value in options.items() if _present(value) not in (None, False, {}, [])
    }
    # Launches, timeouts and policy say how often and how long, not what: changing them starts no new method.
    what = msgspec.to_builtins(table) | {
        "launches": 0,
        "timeout_s": 0,
        "policy": {},
        "on": "",
        "sample_every": 1,
    }
    digest = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()
    lists = [value if isinstance(value, list) else [value] for value in table.params.values()]
    out = []
    for values in itertools.product(*lists):
        params = dict(zip(table.params, values, strict=True))
        if any(rule.items() <= params.items() for rule in table.exclude):
            continue
        spec = CaseSpec(
            benchmark=table.name,
            tier=table.tier,
            params=params,
            metrics=metrics,
            entry=table.entry,
            command=None if table.command is None else _argv(table.command),
            output=table.output,
            timeout_s=table.timeout_s,
            memory_limit_bytes=None if table.memory_limit_mb is None else int(table.memory_limit_mb * 2**20),
            rtol=table.tolerance.rtol,
            atol=table.tolerance.atol,
            options=options,
        )
        out.append(
            Case(spec, table.launches, table.device, table.on, table.sample_every, digest, table.policy)
        )
    return out


def _present(value: Any) -> Any:
    """Tables without the keys that the manifest leaves out: their defaults belong to the runner."""
    if isinstance(value, dict):
        return {key: item for key, item in value.items() if item is not None and item != {}}
    return value


def _explain(message: str, raw: dict[str, Any], text: str, source: str) -> ManifestError:
    """Turn msgspec's path (`$.benchmark[1].metric[0]`) into names and a line."""
    what, _, where = message.partition(" - at `")
    path: list[str | int] = []
    for name, index in re.findall(r"\.([\w-]+)|\[(\d+|\.\.\.)\]", where):
        path.append(name or (int(index) if index.isdigit() else "..."))
    field_name = re.search(r"(?:unknown|required) field `([^`]+)`", what)
    key = field_name[1] if field_name else None
    inside = _label(path, raw)
    if key and "unknown" in what:
        near = get_close_matches(key, _known_keys(path), n=1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        return ManifestError(
            f"{inside}unknown key {key!r}{hint}", line=locate(text, (*path, key)), source=source
        )
    if key:
        note = " (lower, higher or unknown)" if key == "direction" else ""
        return ManifestError(
            f"{inside}key {key!r} is missing{note}", line=locate(text, tuple(path)), source=source
        )
    at = f"{path[-1]}: " if path and isinstance(path[-1], str) else ""
    plain = what.replace("`", "").replace("object", "a table").replace("array", "a list")
    return ManifestError(f"{inside}{at}{plain}", line=locate(text, tuple(path)), source=source)


def _label(path: list[str | int], raw: dict[str, Any]) -> str:
    """`benchmark 'softmax' metric 'time': ` for the path's tables; names where the file gives them."""
    out, node = [], raw
    for part in path:
        try:
            node = node[part]  # type: ignore[index]  # a path into untyped TOML
        except (KeyError, IndexError, TypeError):
            break
        if isinstance(part, int):
            name = node.get("name") if isinstance(node, dict) else None
            out.append(repr(name) if isinstance(name, str) else f"number {part + 1}")
        elif isinstance(node, (dict, list)):
            out.append(part)
    return " ".join(out) + ": " if out else ""


def _known_keys(path: list[str | int]) -> list[str]:
    tables: dict[str, type[msgspec.Struct]] = {
        "project": ProjectTable,
        "build": BuildTable,
        "benchmark": BenchmarkTable,
        "metric": MetricTable,
        "tolerance": ToleranceTable,
        "server": ServerTable,
        "load": LoadTable,
        "slo": SloTable,
    }
    names = [part for part in path if isinstance(part, str)]
    return list((tables[names[-1]] if names else _File).__struct_fields__)
