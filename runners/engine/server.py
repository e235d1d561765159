"""The HTTP side: OpenAI's completions over server-sent events, and the loop that steps the scheduler.

Handlers live on the event loop; the model runs in one thread beside it. They meet in two places only: a handler
adds or cancels a sequence, and the thread's events come back through `call_soon_threadsafe`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from .protocol import Decoder
from .requests import Ask, parse
from .scheduler import Event, Failed, Failure, Limits, Scheduler, Sequence, Token

HTTP_STATUS = {Failure.OUT_OF_MEMORY: 507, Failure.INTERNAL: 500}
MAX_BODY_BYTES = 64 << 20


class Engine:
    """Drives a scheduler in a thread of its own."""

    def __init__(self, decoder: Decoder, limits: Limits) -> None:
        self.decoder = decoder
        self.scheduler = Scheduler(decoder, limits)
        self._work = asyncio.Event()

    async def run(self) -> None:
        """Steps for as long as there is work. An error in the scheduler itself (the model's are caught there)
        comes out here and must end the server."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="model") as pool:
            while True:
                await self._work.wait()
                self._work.clear()
                while not self.scheduler.idle:
                    await loop.run_in_executor(pool, self.scheduler.step)

    async def generate(self, ask: Ask) -> AsyncIterator[Event]:
        """Events of one request up to its last token or its failure. Leaving early cancels the sequence.
        Yields nothing when the queue is full."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def emit(event: Event) -> None:
            loop.call_soon_threadsafe(events.put_nowait, event)

        sequence = Sequence(ask.prompt, ask.sampling, emit)
        if not self.scheduler.add(sequence):
            return
        self._work.set()
        try:
            while True:
                event = await events.get()
                yield event
                if isinstance(event, Failed) or event.finish is not None:
                    return
        finally:
            sequence.cancelled = True


@dataclass
class Reply:
    """Builds the JSON of one answer, of either API, and counts its tokens."""

    ask: Ask
    model: str
    id: str
    tokens: int = 0

    def usage(self) -> dict[str, int]:
        prompt = len(self.ask.prompt)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self.tokens,
            "total_tokens": prompt + self.tokens,
        }

    def chunk(self, token: Token) -> dict[str, Any]:
        self.tokens += 1
        body = self._body([self._choice(text(token.id), token.finish, "delta")])
        if self.ask.usage_chunks:
            body["usage"] = self.usage()
        return body

    def last(self) -> dict[str, Any]:
        return self._body([]) | {"usage": self.usage()}

    def whole(self, tokens: list[Token]) -> dict[str, Any]:
        self.tokens = len(tokens)
        words = "".join(text(token.id) for token in tokens)
        return self._body([self._choice(words, tokens[-1].finish, "message")]) | {"usage": self.usage()}

    def _choice(self, words: str, finish: str | None, key: str) -> dict[str, Any]:
        content = {key: {"role": "assistant", "content": words}} if self.ask.chat else {"text": words}
        return {"index": 0, "finish_reason": finish, "logprobs": None, **content}

    def _body(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "text_completion"
        if self.ask.chat:
            kind = "chat.completion.chunk" if self.ask.stream else "chat.completion"
        return {
            "id": self.id,
            "object": kind,
            "created": int(time.time()),
            "model": self.model,
            "choices": choices,
        }


def text(token: int) -> str:
    """Bytes for a byte vocabulary; larger ids as their number, for the engine carries no tokeniser."""
    return chr(token) if token < 256 else f"<{token}>"


def failure(message: str, kind: str, status: int) -> dict[str, Any]:
    """OpenAI's error object."""
    return {"error": {"message": message, "type": kind, "code": status}}


class Api:
    """The routes. `model` is the name that /v1/models shows."""

    def __init__(self, engine: Engine, model: str) -> None:
        self.engine = engine
        self.model = model
        self._count = 0

    def application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.add_routes(
            [
                web.get("/health", self.health),
                web.get("/v1/models", self.models),
                web.post("/v1/completions", partial(self.complete, chat=False)),
                web.post("/v1/chat/completions", partial(self.complete, chat=True)),
            ]
        )
        return app

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def models(self, request: web.Request) -> web.Response:
        entry = {"id": self.model, "object": "model", "max_model_len": self.engine.decoder.max_tokens}
        return web.json_response({"object": "list", "data": [entry]})

    async def complete(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        try:
            ask = parse(json.loads(await request.read()), self.engine.decoder, chat=chat)
        except ValueError as error:  # BadRequestError, or no JSON
            kind = "invalid_request_error"
            return web.json_response(failure(str(error), kind, 400), status=400)
        self._count += 1
        reply = Reply(ask, self.model, f"cmpl-{self._count}")
        events = self.engine.generate(ask)
        try:
            # The status line waits for the first event, so that a prompt that fails is told by its status.
            first = await anext(events, None)
            if first is None:
                return web.json_response(failure("the queue is full", "overloaded", 503), status=503)
            if isinstance(first, Failed):
                return _refusal(first)
            if ask.stream:
                return await _stream(request, reply, first, events)
            return await _collect(reply, first, events)
        finally:
            await events.aclose()  # type: ignore[attr-defined]  # an async generator, typed by what it yields


def _refusal(failed: Failed) -> web.Response:
    status = HTTP_STATUS[failed.failure]
    return web.json_response(failure(failed.message, failed.failure, status), status=status)


async def _collect(reply: Reply, first: Token, events: AsyncIterator[Event]) -> web.Response:
    tokens = [first]
    async for event in events:
        if isinstance(event, Failed):
            return _refusal(event)
        tokens.append(event)
    return web.json_response(reply.whole(tokens))


async def _stream(
    request: web.Request, reply: Reply, first: Token, events: AsyncIterator[Event]
) -> web.StreamResponse:
    """One server-sent event a token. A failure on the way is an event with `error`; the status is gone by then."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    try:
        await response.write(_sse(reply.chunk(first)))
        async for event in events:
            if isinstance(event, Failed):
                kind, status = event.failure, HTTP_STATUS[event.failure]
                await response.write(_sse(failure(event.message, kind, status)))
            else:
                await response.write(_sse(reply.chunk(event)))
        if reply.ask.usage_last:
            await response.write(_sse(reply.last()))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
    except ConnectionResetError:
        pass  # the client is gone; leaving cancels the sequence
    return response


def _sse(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


async def serve(engine: Engine, *, model: str, host: str, port: int) -> None:
    """Serve until cancelled. Raises OSError where the port is taken, and what the engine's loop raises."""
    # A client that hangs up cancels its handler, and with it the sequence.
    runner = web.AppRunner(Api(engine, model).application(), handler_cancellation=True, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        await engine.run()
    finally:
        await runner.cleanup()
