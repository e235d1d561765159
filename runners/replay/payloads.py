"""The bodies of all requests, serialised before the clock starts, so that sending costs next to nothing."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from .options import LoadOptions
from .trace import Trace, TraceError, TraceRequest

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Planned:
    """One request as it will be sent, `at_s` after the start."""

    at_s: float
    input_tokens: int
    output_tokens: int
    klass: str
    body: bytes


def plan(trace: Trace, load: LoadOptions, *, model: str) -> list[Planned]:
    """The same trace gives the same bytes in every launch: the workload does not vary with the launch's seed,
    or runs of two commits would differ by their prompts.

    Raises TraceError for a request of no input or no output.
    """
    return [
        Planned(
            at_s=request.at_s,
            input_tokens=request.input_tokens,
            output_tokens=request.output_tokens,
            klass=request.klass,
            body=_body(index, request, trace.block_tokens, load, model),
        )
        for index, request in enumerate(trace.requests)
    ]


def _body(
    index: int, request: TraceRequest, block_tokens: int | None, load: LoadOptions, model: str
) -> bytes:
    if request.input_tokens < 1 or request.output_tokens < 1:
        raise TraceError(
            f"request {index} of the trace has {request.input_tokens} input and {request.output_tokens} output"
            " tokens: such requests cannot be sent (transform.drop_empty leaves them out)"
        )
    tokens = _tokens(index, request, block_tokens, load.vocab_size)
    body: dict[str, object] = {
        "model": model,
        "max_tokens": request.output_tokens,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if load.chat:
        words = "".join(_LETTERS[token % len(_LETTERS)] for token in tokens)
        body["messages"] = [{"role": "user", "content": words}]
    else:
        body["prompt"] = tokens
    if load.ignore_eos:
        body["ignore_eos"] = True
    return json.dumps(body | dict(load.extra_body), separators=(",", ":")).encode()


def _tokens(index: int, request: TraceRequest, block_tokens: int | None, vocab_size: int) -> list[int]:
    """`input_tokens` ids: each block's drawn from its id, so that shared blocks are shared text; the rest drawn
    from the request's place in the trace."""
    ids = range(vocab_size)
    tokens: list[int] = []
    for block in request.blocks if block_tokens is not None else ():
        tokens += random.Random(f"block {block}").choices(ids, k=block_tokens or 0)
    missing = max(0, request.input_tokens - len(tokens))
    tokens += random.Random(f"request {index}").choices(ids, k=missing)
    return tokens[: request.input_tokens]
