"""The replay tier's part of a manifest, checked: a case's `options`.

Every text in `trace`, `transform`, `slo` and `load` may hold `{name}` for one of the case's params; a text that is
nothing but `{name}` becomes the param itself, number and all. `server.command` knows the placeholders of
COMMAND_PLACEHOLDERS instead. A key whose value is None counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..result import CaseSpec
from .transforms import Transform
from .transforms import parse as parse_transform

COMMAND_PLACEHOLDERS = ("python", "port", "engine", "device", "root")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_KEYS = ("server", "trace", "transform", "slo", "max_dispatch_delay_ms", "load")


class OptionsError(ValueError):
    """The case's options cannot be used; the message names the key."""


@dataclass(frozen=True)
class ServerOptions:
    """Either `command` (started for the replay, placeholders still in it) or `url` (of one that runs).

    ready: path answered with status 200 once requests are welcome; base_path: stands before /completions.
    model: the name sent with each request.
    """

    command: tuple[str, ...] | None = None
    url: str | None = None
    ready: str = "/health"
    base_path: str = "/v1"
    model: str = "engine"
    startup_timeout_s: float = 60.0


@dataclass(frozen=True)
class LoadOptions:
    """How requests are made and sent.

    request_timeout_s: counted from the scheduled arrival; later it is a failure.
    vocab_size: prompts are token ids below it. warmup_requests: sent one by one before the clock starts.
    ignore_eos: ask for exactly the trace's output length (an extension that vLLM, SGLang and the built-in engine
    share). chat: use /chat/completions, whose prompts are text, so that lengths are approximate.
    extra_body: added to every request.
    """

    request_timeout_s: float = 60.0
    vocab_size: int = 256
    warmup_requests: int = 2
    ignore_eos: bool = True
    chat: bool = False
    extra_body: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Slo:
    """Limits that one request must meet to count as good; None where there is none."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None


@dataclass(frozen=True)
class ReplayOptions:
    """trace: relative to the project's root, or absolute. transform_table: as declared, params filled in.

    max_dispatch_delay_ms: a run whose 99th percentile of (sent - scheduled) lies above is invalid.
    """

    server: ServerOptions
    trace: str
    transform: Transform
    transform_table: Mapping[str, Any]
    load: LoadOptions
    slo: Slo
    max_dispatch_delay_ms: float


DEFAULT_MAX_DISPATCH_DELAY_MS = 50.0


def parse(case: CaseSpec) -> ReplayOptions:
    """Raises OptionsError, or TraceError for the transform."""
    options = _present(case.options)
    unknown = options.keys() - set(_KEYS)
    if unknown:
        raise OptionsError(f"unknown key {sorted(unknown)[0]!r} (known: {', '.join(_KEYS)})")
    filled = {
        key: fill(options[key], case.params, key)
        for key in ("trace", "transform", "slo", "load")
        if key in options
    }
    if not isinstance(filled.get("trace"), str) or not filled["trace"]:
        raise OptionsError("trace: expected the path of a trace file")
    transform = _table("transform", filled.get("transform", {}))
    _positive("", options, "max_dispatch_delay_ms")
    return ReplayOptions(
        server=_server(_table("server", options.get("server"), ServerOptions)),
        trace=filled["trace"],
        transform=parse_transform(transform),
        transform_table=transform,
        load=_load(_table("load", filled.get("load", {}), LoadOptions)),
        slo=_slo(_table("slo", filled.get("slo", {}), Slo)),
        max_dispatch_delay_ms=options.get("max_dispatch_delay_ms", DEFAULT_MAX_DISPATCH_DELAY_MS),
    )


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
    command, url = table.get("command"), table.get("url")
    if (command is None) == (url is None):
        raise OptionsError("server: exactly one of command and url is needed")
    if command is not None:
        words = command if isinstance(command, (list, tuple)) else []
        if not words or not all(isinstance(word, str) for word in words):
            raise OptionsError("server.command: expected a list of texts (no shell reads it)")
        table["command"] = tuple(words)
    elif not isinstance(url, str) or not url.startswith(("http://", "https://")):
        raise OptionsError(f"server.url: expected an http or https address, got {url!r}")
    for key in ("ready", "base_path"):
        path = table.get(key, "/")
        if not isinstance(path, str) or not path.startswith("/"):
            raise OptionsError(f"server.{key}: expected a path that begins with /, got {path!r}")
    if not isinstance(table.get("model", ""), str):
        raise OptionsError(f"server.model: expected a text, got {table['model']!r}")
    _positive("server.", table, "startup_timeout_s")
    return ServerOptions(**table)


def _load(table: dict[str, Any]) -> LoadOptions:
    _positive("load.", table, "request_timeout_s")
    for key, least in (("vocab_size", 2), ("warmup_requests", 0)):
        value = table.get(key, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise OptionsError(f"load.{key}: expected an integer of at least {least}, got {value!r}")
    for key in ("ignore_eos", "chat"):
        if not isinstance(table.get(key, False), bool):
            raise OptionsError(f"load.{key}: expected true or false, got {table[key]!r}")
    _table("load.extra_body", table.get("extra_body", {}))
    return LoadOptions(**table)


def _slo(table: dict[str, Any]) -> Slo:
    _positive("slo.", table, *table)
    return Slo(**table)


def _table(where: str, value: Any, kind: type | None = None) -> dict[str, Any]:
    """`value` as a table without absent keys; those of the dataclass `kind` are the ones known."""
    if not isinstance(value, Mapping):
        raise OptionsError(f"{where}: expected a table, got {value!r}")
    table = _present(value)
    if kind is not None:
        unknown = table.keys() - {each.name for each in fields(kind)}
        if unknown:
            raise OptionsError(f"{where}: unknown key {sorted(unknown)[0]!r}")
    return table


def _present(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}


def _positive(prefix: str, table: Mapping[str, Any], *keys: str) -> None:
    for key in keys:
        value = table.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            raise OptionsError(f"{prefix}{key}: expected a number above 0, got {value!r}")
