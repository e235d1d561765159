"""What a client may ask: the bodies of /v1/completions and /v1/chat/completions, checked and tokenised."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .protocol import Decoder
from .scheduler import Sampling


class BadRequestError(ValueError):
    """The body asks for something that cannot be done; the message names the key."""


@dataclass(frozen=True)
class Ask:
    """One request, ready for the scheduler. usage_chunks: usage on every chunk, as some load generators want;
    usage_last: on a chunk of its own before the end (OpenAI's `stream_options.include_usage`)."""

    prompt: list[int]
    sampling: Sampling
    stream: bool
    chat: bool
    usage_last: bool
    usage_chunks: bool


def parse(body: Any, decoder: Decoder, *, chat: bool) -> Ask:
    """Raises BadRequestError. A prompt is a list of token ids, or a text whose UTF-8 bytes are the ids."""
    if not isinstance(body, dict):
        raise BadRequestError("body: expected a JSON object")
    prompt = _tokens(_conversation(body.get("messages")) if chat else body.get("prompt"), decoder.vocab_size)
    most = body.get("max_completion_tokens", body.get("max_tokens", 16))
    max_tokens = _integer("max_tokens", most, least=1)
    if len(prompt) + max_tokens > decoder.max_tokens:
        raise BadRequestError(
            f"prompt: {len(prompt)} tokens and max_tokens {max_tokens} exceed the context of {decoder.max_tokens}"
        )
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise BadRequestError("stream_options: expected an object")
    temperature = body.get("temperature", 0.0)
    if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or temperature < 0:
        raise BadRequestError(f"temperature: expected a number of at least 0, got {temperature!r}")
    return Ask(
        prompt=prompt,
        sampling=Sampling(
            max_tokens=max_tokens,
            temperature=float(temperature),
            seed=_integer("seed", body.get("seed", 0), least=0),
            ignore_eos=bool(body.get("ignore_eos", False)),
        ),
        stream=bool(body.get("stream", False)),
        chat=chat,
        usage_last=bool(options.get("include_usage", False)),
        usage_chunks=bool(options.get("continuous_usage_stats", False)),
    )


def _integer(name: str, value: Any, *, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadRequestError(f"{name}: expected an integer of at least {least}, got {value!r}")
    return value


def _conversation(messages: Any) -> str:
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and isinstance(message.get("content"), str) for message in messages
    ):
        raise BadRequestError("messages: expected a list of objects with a text under content")
    return "".join(f"{message.get('role', 'user')}: {message['content']}\n" for message in messages)


def _tokens(prompt: Any, vocab_size: int) -> list[int]:
    tokens = list(prompt.encode()) if isinstance(prompt, str) else prompt
    if not isinstance(tokens, list) or not tokens:
        raise BadRequestError("prompt: expected a text or a list of token ids, not empty")
    for token in tokens:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocab_size:
            raise BadRequestError(f"prompt: {token!r} is no token id of a vocabulary of {vocab_size}")
    return tokens
