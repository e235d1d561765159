"""The replay tier's part of a manifest, checked: `options` with server, trace, load and slo.

Every text may hold `{name}` for one of the case's params; a text that is nothing but `{name}` becomes the param
itself, number and all. `server.command` knows {python}, {port}, {engine}, {device} and {root} besides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..result import CaseSpec

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# MLPerf inference, server scenario: TTFT and TPOT at the 99th percentile, in ms.
SLO_PRESETS = {
    "llama3.1-8b": {"ttft_ms": 2000, "tpot_ms": 100},
    "llama3.1-8b-interactive": {"ttft_ms": 500, "tpot_ms": 30},
    "llama2-70b": {"ttft_ms": 2000, "tpot_ms": 200},
    "llama2-70b-interactive": {"ttft_ms": 450, "tpot_ms": 40},
}
COMMAND_PLACEHOLDERS = ("python", "port", "engine", "device", "root")


class OptionsError(ValueError):
    """The case's options cannot be used; the message names the key."""


@dataclass(frozen=True)
class ServerOptions:
    """Either `command` (started for the replay, placeholders still in it) or `url` (of one that runs).

    ready: path answered with status 200 once requests are welcome; base_path: stands before /completions.
    model: the name sent with each request.
    """

    command: tuple[str, ...] | None
    url: str | None
    ready: str = "/health"
    base_path: str = "/v1"
    model: str = "engine"
    startup_timeout_s: float = 60.0


@dataclass(frozen=True)
class TraceOptions:
    """path: relative to the project's root, or absolute. format: None lets the columns tell."""

    path: str
    format: str | None = None
    transforms: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class LoadOptions:
    """How requests are sent.

    request_timeout_s: counted from the scheduled arrival; later it is a failure.
    dispatch_delay_limit_s: a run whose 99th percentile of (sent - scheduled) lies above is invalid.
    vocab_size: prompts are token ids below it. warmup_requests: sent one by one before the clock starts.
    ignore_eos: ask for exactly the trace's output length (an extension that vLLM, SGLang and the built-in engine
    share). chat: use /chat/completions, whose prompts are text, so that lengths are approximate.
    extra_body: added to every request.
    """

    request_timeout_s: float = 60.0
    dispatch_delay_limit_s: float = 0.05
    vocab_size: int = 256
    warmup_requests: int = 2
    ignore_eos: bool = True
    chat: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slo:
    """Limits that one request must meet to count as good; None where there is none."""

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True)
class ReplayOptions:
    server: ServerOptions
    trace: TraceOptions
    load: LoadOptions
    slo: Slo | None


def parse(case: CaseSpec) -> ReplayOptions:
    """Raises OptionsError."""
    options = dict(case.options)
    server = _table("server", options.pop("server", None))
    trace = fill(options.pop("trace", None), case.params, "trace")
    load = _table("load", fill(options.pop("load", {}), case.params, "load"))
    slo = fill(options.pop("slo", None), case.params, "slo")
    if options:
        raise OptionsError(f"unknown key {sorted(options)[0]!r} (known: server, trace, load, slo)")
    return ReplayOptions(_server(server), _trace(trace), _load(load), _slo(slo))


def fill(value: Any, names: Mapping[str, Any], where: str) -> Any:
    """`value` with its placeholders filled from `names`. Raises OptionsError for a name that is not there."""
    if isinstance(value, Mapping):
        return {key: fill(item, names, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(item, names, f"{where}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    for name in _PLACEHOLDER.findall(value):
        if name not in names:
            raise OptionsError(f"{where}: {{{name}}} is none of {', '.join(sorted(names)) or 'the params'}")
    whole = _PLACEHOLDER.fullmatch(value)
    if whole:
        return names[whole[1]]
    return _PLACEHOLDER.sub(lambda match: str(names[match[1]]), value)


def _server(table: dict[str, Any]) -> ServerOptions:
    _only("server", table, ServerOptions)
    command, url = table.get("command"), table.get("url")
    if (command is None) == (url is None):
        raise OptionsError("server: exactly one of command and url is needed")
    if command is not None and (
        not isinstance(command, Sequence)
        or isinstance(command, str)
        or not command
        or not all(isinstance(word, str) for word in command)
    ):
        raise OptionsError("server.command: expected a list of texts (no shell reads it)")
    if url is not None and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
        raise OptionsError(f"server.url: expected an http or https address, got {url!r}")
    for key in ("ready", "base_path"):
        if not isinstance(table.get(key, "/"), str) or not table.get(key, "/").startswith("/"):
            raise OptionsError(f"server.{key}: expected a path that begins with /, got {table[key]!r}")
    if not isinstance(table.get("model", ""), str):
        raise OptionsError(f"server.model: expected a text, got {table['model']!r}")
    _positive("server", table, "startup_timeout_s")
    return ServerOptions(**{**table, "command": None if command is None else tuple(command), "url": url})


def _trace(value: Any) -> TraceOptions:
    table = {"path": value} if isinstance(value, str) else _table("trace", value)
    _only("trace", table, TraceOptions)
    if not isinstance(table.get("path"), str) or not table["path"]:
        raise OptionsError("trace.path: expected the path of a trace file")
    transforms: Any = table.get("transforms", [])
    if not isinstance(transforms, list) or not all(isinstance(item, dict) for item in transforms):
        raise OptionsError("trace.transforms: expected a list of tables, each with op")
    if not isinstance(table.get("format", ""), str):
        raise OptionsError(f"trace.format: expected a text, got {table['format']!r}")
    return TraceOptions(table["path"], table.get("format"), tuple(transforms))


def _load(table: dict[str, Any]) -> LoadOptions:
    _only("load", table, LoadOptions)
    _positive("load", table, "request_timeout_s", "dispatch_delay_limit_s")
    for key, least in (("vocab_size", 2), ("warmup_requests", 0)):
        value = table.get(key, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise OptionsError(f"load.{key}: expected an integer of at least {least}, got {value!r}")
    for key in ("ignore_eos", "chat"):
        if not isinstance(table.get(key, False), bool):
            raise OptionsError(f"load.{key}: expected true or false, got {table[key]!r}")
    _table("load.extra_body", table.get("extra_body", {}))
    return LoadOptions(**table)


def _slo(value: Any) -> Slo | None:
    if value is None:
        return None
    if isinstance(value, str):
        if value not in SLO_PRESETS:
            raise OptionsError(f"slo: {value!r} is none of {', '.join(SLO_PRESETS)}")
        value = SLO_PRESETS[value]
    table = _table("slo", value)
    unknown = table.keys() - {"ttft_ms", "tpot_ms", "e2e_ms"}
    if unknown or not table:
        raise OptionsError(f"slo: expected ttft_ms, tpot_ms or e2e_ms, got {sorted(unknown) or 'nothing'}")
    _positive("slo", table, *table)
    return Slo(**{key.replace("_ms", "_s"): limit / 1e3 for key, limit in table.items()})


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise OptionsError(f"{where}: expected a table, got {value!r}")
    return dict(value)


def _only(where: str, table: Mapping[str, Any], kind: type) -> None:
    unknown = table.keys() - kind.__dataclass_fields__.keys()  # type: ignore[attr-defined]  # a dataclass
    if unknown:
        raise OptionsError(f"{where}: unknown key {sorted(unknown)[0]!r}")


def _positive(where: str, table: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        value = table.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            raise OptionsError(f"{where}.{key}: expected a number above 0, got {value!r}")
