"""Explicit changes to a trace before it is sent: each has a name, its parameters are stored with the run.

A trace recorded elsewhere hardly ever fits the server at hand. Whatever makes it fit decides the result (the
grid of a trace's timestamps alone can decide TTFT p99), so nothing is changed silently. VERSION rises when
any transform comes to mean something else.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .trace import Trace, TraceError, TraceRequest

VERSION = 1


def apply(trace: Trace, transforms: Sequence[Mapping[str, Any]]) -> Trace:
    """`transforms` in order, each `{"op": name, ...parameters}`. The result starts at 0 and is in order.

    Raises TraceError naming the transform and what is wrong with it, or that no request is left.
    """
    for place, transform in enumerate(transforms):
        label = f"transforms[{place}]"
        parameters = dict(transform)
        op = parameters.pop("op", None)
        if op not in _OPS:
            raise TraceError(f"{label}: op {op!r} is not one of {', '.join(_OPS)}")
        function, known = _OPS[op]
        unknown = parameters.keys() - known.keys()
        if unknown:
            raise TraceError(f"{label} ({op}): unknown key {sorted(unknown)[0]!r}")
        for key, (low, required) in known.items():
            value = parameters.get(key)
            if value is None and not required:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value < 1e12:
                raise TraceError(f"{label} ({op}): {key}: expected a number of at least {low}, got {value!r}")
        requests = sorted(function(trace.requests, parameters), key=lambda request: request.at_s)
        if not requests:
            raise TraceError(f"{label} ({op}): no request is left")
        start_s = requests[0].at_s
        trace = replace(
            trace, requests=tuple(replace(request, at_s=request.at_s - start_s) for request in requests)
        )
    return trace


Requests = Sequence[TraceRequest]
Parameters = Mapping[str, Any]


def _window(requests: Requests, p: Parameters) -> Requests:
    """What arrives in [start_s, start_s + duration_s)."""
    start_s = p.get("start_s", 0.0)
    return [r for r in requests if start_s <= r.at_s < start_s + p["duration_s"]]


def _head(requests: Requests, p: Parameters) -> Requests:
    """The first `requests` requests."""
    return requests[: int(p["requests"])]


def _time_scale(requests: Requests, p: Parameters) -> Requests:
    """All times x `factor`: 0.5 sends twice as fast."""
    return [replace(r, at_s=r.at_s * p["factor"]) for r in requests]


def _rate(requests: Requests, p: Parameters) -> Requests:
    """Times scaled so that the mean rate, (n - 1) / span, is `requests_per_s`. Bursts keep their shape."""
    span_s = requests[-1].at_s - requests[0].at_s
    if span_s <= 0:
        raise TraceError("rate: all requests arrive at once; jitter them first")
    factor = (len(requests) - 1) / span_s / p["requests_per_s"]
    return _time_scale(requests, {"factor": factor})


def _jitter(requests: Requests, p: Parameters) -> Requests:
    """Spread each arrival uniformly over [0, grid_s) after its stamp, drawn from `seed`: undoes a grid."""
    draw = random.Random(p["seed"])
    return [replace(r, at_s=r.at_s + draw.random() * p["grid_s"]) for r in requests]


def _scale_lengths(requests: Requests, p: Parameters) -> Requests:
    """Lengths x `input` and x `output`, at least one token. Blocks go: they no longer fit the lengths."""
    return [
        replace(
            r,
            input_tokens=max(1, round(r.input_tokens * p.get("input", 1.0))),
            output_tokens=max(1, round(r.output_tokens * p.get("output", 1.0))),
            blocks=r.blocks if p.get("input", 1.0) == 1.0 else (),
        )
        for r in requests
    ]


def _clip_lengths(requests: Requests, p: Parameters) -> Requests:
    """Lengths cut to `max_input_tokens` and `max_output_tokens`."""
    most_in, most_out = p.get("max_input_tokens"), p.get("max_output_tokens")
    return [
        replace(
            r,
            input_tokens=r.input_tokens if most_in is None else min(r.input_tokens, int(most_in)),
            output_tokens=r.output_tokens if most_out is None else min(r.output_tokens, int(most_out)),
        )
        for r in requests
    ]


def _drop_empty(requests: Requests, p: Parameters) -> Requests:
    """Without requests of no input or no output (they failed when the trace was recorded)."""
    return [r for r in requests if r.input_tokens > 0 and r.output_tokens > 0]


# Function, and its parameters: name -> (least value, required).
_OPS: dict[str, tuple[Callable[[Requests, Parameters], Requests], dict[str, tuple[float, bool]]]] = {
    "window": (_window, {"start_s": (0, False), "duration_s": (1e-6, True)}),
    "head": (_head, {"requests": (1, True)}),
    "time_scale": (_time_scale, {"factor": (1e-9, True)}),
    "rate": (_rate, {"requests_per_s": (1e-9, True)}),
    "jitter": (_jitter, {"grid_s": (1e-9, True), "seed": (0, True)}),
    "scale_lengths": (_scale_lengths, {"input": (1e-9, False), "output": (1e-9, False)}),
    "clip_lengths": (_clip_lengths, {"max_input_tokens": (1, False), "max_output_tokens": (1, False)}),
    "drop_empty": (_drop_empty, {}),
}
