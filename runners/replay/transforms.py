"""Explicit changes to a trace before it is sent. They are stored with the run.

A trace recorded elsewhere hardly ever fits the server at hand. Whatever makes it fit decides the result (the
grid of a trace's timestamps alone can decide TTFT p99), so nothing is changed silently. VERSION rises when a
parameter comes to mean something else, or their order changes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from .trace import Trace, TraceError, TraceRequest

VERSION = 1

Requests = Sequence[TraceRequest]


@dataclass(frozen=True)
class Transform:
    """Applied in the order of the fields, each where it is set.

    start_s, duration_s: keep what arrives in [start_s, start_s + duration_s).
    drop_empty: leave out requests of no input or no output (they failed when the trace was recorded).
    requests: keep the first ones.
    jitter_s, jitter_seed: spread each arrival uniformly over [0, jitter_s) after its stamp, which undoes the grid
    of a coarse clock; drawn from the seed.
    time_scale: all times x this; 0.5 sends twice as fast.
    requests_per_s: times scaled to this mean rate, (n - 1) / span. Bursts keep their shape.
    input_scale, output_scale: lengths x this, at least one token.
    max_input_tokens, max_output_tokens: lengths cut to this.
    """

    start_s: float = 0.0
    duration_s: float | None = None
    drop_empty: bool = False
    requests: int | None = None
    jitter_s: float | None = None
    jitter_seed: int = 0
    time_scale: float | None = None
    requests_per_s: float | None = None
    input_scale: float | None = None
    output_scale: float | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None


_WHOLE = ("requests", "jitter_seed", "max_input_tokens", "max_output_tokens")
_ZERO_ALLOWED = ("start_s", "jitter_seed")


def parse(table: Mapping[str, Any]) -> Transform:
    """Raises TraceError naming the key."""
    known = [field.name for field in fields(Transform)]
    for key, value in table.items():
        if key not in known:
            raise TraceError(f"transform: unknown key {key!r} (known: {', '.join(known)})")
        if key == "drop_empty":
            if not isinstance(value, bool):
                raise TraceError(f"transform.{key}: expected true or false, got {value!r}")
            continue
        kinds = (int,) if key in _WHOLE else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value < 1e12:
            kind = "a whole number" if key in _WHOLE else "a number"
            raise TraceError(f"transform.{key}: expected {kind} of at least 0, got {value!r}")
        if value == 0 and key not in _ZERO_ALLOWED:
            raise TraceError(f"transform.{key}: 0 leaves nothing to send")
    if "time_scale" in table and "requests_per_s" in table:
        raise TraceError("transform: time_scale and requests_per_s exclude each other")
    return Transform(**table)


def apply(trace: Trace, transform: Transform) -> Trace:
    """The changed trace, in order of arrival and starting at 0. Raises TraceError when no request is left."""
    requests = _times(_kept(trace.requests, transform), transform)
    requests = [_lengths(request, transform) for request in requests]
    requests.sort(key=lambda request: request.at_s)
    start_s = requests[0].at_s
    return replace(trace, requests=tuple(replace(r, at_s=r.at_s - start_s) for r in requests))


def _kept(requests: Requests, t: Transform) -> Requests:
    end_s = float("inf") if t.duration_s is None else t.start_s + t.duration_s
    kept = [
        r
        for r in requests
        if t.start_s <= r.at_s < end_s and not (t.drop_empty and 0 in (r.input_tokens, r.output_tokens))
    ][: t.requests]
    if not kept:
        raise TraceError(f"transform: none of {len(requests)} requests is left")
    return kept


def _times(requests: Requests, t: Transform) -> Requests:
    if t.jitter_s is not None:
        draw = random.Random(t.jitter_seed)
        requests = [replace(r, at_s=r.at_s + draw.random() * t.jitter_s) for r in requests]
    factor = 1.0 if t.time_scale is None else t.time_scale
    if t.requests_per_s is not None:
        times = [request.at_s for request in requests]
        span_s = max(times) - min(times)
        if span_s <= 0:
            raise TraceError("transform.requests_per_s: all requests arrive at once; jitter_s spreads them")
        factor = (len(requests) - 1) / span_s / t.requests_per_s
    return [replace(r, at_s=r.at_s * factor) for r in requests]


def _lengths(request: TraceRequest, t: Transform) -> TraceRequest:
    tokens_in, tokens_out = request.input_tokens, request.output_tokens
    blocks = request.blocks
    if t.input_scale is not None:
        tokens_in = max(1, round(tokens_in * t.input_scale))
        blocks = ()  # they no longer fit the length
    if t.output_scale is not None:
        tokens_out = max(1, round(tokens_out * t.output_scale))
    if t.max_input_tokens is not None:
        tokens_in = min(tokens_in, t.max_input_tokens)
    if t.max_output_tokens is not None:
        tokens_out = min(tokens_out, t.max_output_tokens)
    return replace(request, input_tokens=tokens_in, output_tokens=tokens_out, blocks=blocks)
