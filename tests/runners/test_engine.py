"""The engine: what it batches, whom it fails, and its HTTP side."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import torch
from torch import Tensor

from runners.engine.model import Shape, TinyDecoder, factory
from runners.engine.protocol import FactoryError, load
from runners.engine.requests import BadRequestError, parse
from runners.engine.scheduler import Event, Failed, Failure, Limits, Sampling, Scheduler, Token, describe
from runners.engine.scheduler import Sequence as Job
from runners.engine.server import Engine, serve

ENGINE = Path(__file__).parents[2] / "runners" / "engine"


class Counting:
    """A decoder whose next token is the last one plus one, and which notes what it was asked."""

    vocab_size = 1000
    max_tokens = 500
    eos_token = 99

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.prefills: list[list[int]] = []
        self.room = 10_000
        self.pause_s = 0.0

    def prefill(self, tokens: Sequence[int]) -> tuple[list[int], Tensor]:
        self.prefills.append(list(tokens))
        if len(tokens) > self.room:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8 bytes")
        return list(tokens), self._logits(tokens[-1])

    def decode(self, states: Sequence[list[int]], tokens: Sequence[int]) -> Tensor:
        time.sleep(self.pause_s)
        self.batches.append(list(tokens))
        if sum(len(state) for state in states) > self.room:
            raise MemoryError
        for state, token in zip(states, tokens, strict=True):
            state.append(token)
        return torch.stack([self._logits(token) for token in tokens])

    def _logits(self, token: int) -> Tensor:
        logits = torch.zeros(self.vocab_size)
        logits[(token + 1) % self.vocab_size] = 1.0
        return logits


def job(prompt: Sequence[int], max_tokens: int, **sampling: Any) -> tuple[Job, list[Event]]:
    events: list[Event] = []
    return Job(list(prompt), Sampling(max_tokens, **sampling), events.append), events


def drain(scheduler: Scheduler) -> None:
    while not scheduler.idle:
        scheduler.step()


def test_sequences_of_any_age_share_a_decode_step() -> None:
    decoder = Counting()
    scheduler = Scheduler(decoder, Limits())
    (first, first_events), (second, second_events) = job([10], 4), job([20], 2)
    scheduler.add(first)
    scheduler.step()
    scheduler.add(second)
    drain(scheduler)
    assert first_events == [Token(11, None), Token(12, None), Token(13, None), Token(14, "length")]
    assert second_events == [Token(21, None), Token(22, "length")]
    assert decoder.batches == [[11], [12, 21], [13]]


def test_prefill_budget_and_batch_size_are_kept() -> None:
    decoder = Counting()
    scheduler = Scheduler(decoder, Limits(running=2, prefill_tokens=10))
    jobs = [job([1] * length, 3)[0] for length in (50, 6, 6, 1)]
    for each in jobs:
        scheduler.add(each)
    scheduler.step()
    assert [len(prompt) for prompt in decoder.prefills] == [50]  # longer than the budget, so alone
    scheduler.step()
    assert [len(prompt) for prompt in decoder.prefills] == [50, 6]
    drain(scheduler)
    assert [len(prompt) for prompt in decoder.prefills] == [50, 6, 6, 1]
    assert max(len(batch) for batch in decoder.batches) == 2


def test_the_end_token_ends_unless_it_is_ignored() -> None:
    scheduler = Scheduler(Counting(), Limits())
    (stops, stopped), (goes, gone) = job([97], 5), job([97], 5, ignore_eos=True)
    scheduler.add(stops)
    scheduler.add(goes)
    drain(scheduler)
    assert stopped == [Token(98, None), Token(99, "stop")]
    assert len(gone) == 5


def test_a_prompt_that_runs_out_of_memory_fails_alone() -> None:
    decoder = Counting()
    decoder.room = 20
    scheduler = Scheduler(decoder, Limits())
    (short, short_events), (long, long_events) = job([1], 3), job([1] * 21, 3)
    scheduler.add(long)
    scheduler.add(short)
    drain(scheduler)
    (failed,) = long_events
    assert isinstance(failed, Failed)
    assert failed.failure is Failure.OUT_OF_MEMORY
    assert short_events[-1] == Token(4, "length")


def test_decoding_without_memory_costs_the_longest_sequence() -> None:
    decoder = Counting()
    decoder.room = 22
    scheduler = Scheduler(decoder, Limits())
    (short, short_events), (long, long_events) = job([1, 2], 4), job([1] * 19, 9)
    scheduler.add(short)
    scheduler.add(long)
    drain(scheduler)
    assert isinstance(long_events[-1], Failed)
    assert long_events[-1].failure is Failure.OUT_OF_MEMORY
    assert short_events[-1] == Token(6, "length")


def test_an_error_of_the_model_is_an_answer_and_not_our_end() -> None:
    class Broken(Counting):
        def decode(self, states: Sequence[list[int]], tokens: Sequence[int]) -> Tensor:
            raise ZeroDivisionError("in the model")

    scheduler = Scheduler(Broken(), Limits())
    broken, events = job([1], 3)
    scheduler.add(broken)
    drain(scheduler)
    assert events[-1] == Failed(Failure.INTERNAL, "ZeroDivisionError: in the model")


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (MemoryError(), Failure.OUT_OF_MEMORY),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate"), Failure.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), Failure.OUT_OF_MEMORY),
        (RuntimeError("std::bad_alloc"), Failure.OUT_OF_MEMORY),
        (RuntimeError("shapes cannot be multiplied"), Failure.INTERNAL),
        (ValueError("out of memory"), Failure.INTERNAL),
    ],
)
def test_faces_of_memory(error: Exception, failure: Failure) -> None:
    assert describe(error).failure is failure


def test_cancelled_sequences_leave_wherever_they_are() -> None:
    decoder = Counting()
    scheduler = Scheduler(decoder, Limits(running=1))
    (running, events), (waiting, none) = job([1], 100), job([1], 100)
    scheduler.add(running)
    scheduler.add(waiting)
    scheduler.step()
    running.cancelled = waiting.cancelled = True
    scheduler.step()
    assert scheduler.idle
    assert len(events) == 2
    assert none == []
    assert len(decoder.prefills) == 1


def test_a_full_queue_refuses() -> None:
    scheduler = Scheduler(Counting(), Limits(waiting=1))
    assert scheduler.add(job([1], 1)[0])
    assert not scheduler.add(job([1], 1)[0])


def test_draws_repeat_by_seed_whatever_shares_the_batch() -> None:
    decoder = TinyDecoder(Shape(max_tokens=64)).eval()

    def draws(seed: int, others: int) -> list[Event]:
        scheduler = Scheduler(decoder, Limits())
        mine, events = job(range(9), 8, temperature=1.0, seed=seed)
        scheduler.add(mine)
        for _ in range(others):
            scheduler.add(job([5, 6], 8, temperature=1.0, seed=3)[0])
        drain(scheduler)
        return events

    assert draws(1, 0) == draws(1, 3)
    assert draws(1, 0) != draws(2, 0)


def test_cached_and_batched_decoding_agrees_with_reading_everything_anew() -> None:
    torch.manual_seed(0)
    decoder = TinyDecoder(Shape(width=32, heads=2, max_tokens=64)).eval()
    texts = [[3, 1, 4, 1, 5], [9, 2, 6]]
    with torch.inference_mode():
        states = [decoder.prefill(text)[0] for text in texts]
        for step in range(12):  # beyond the first capacity, so that caches grow
            for text in texts:
                text.append(step * 7 % 256)
            found = decoder.decode(states, [text[-1] for text in texts])
            for row, text in zip(found, texts, strict=True):
                torch.testing.assert_close(row, decoder.prefill(text)[1])


def test_the_default_model_repeats_by_its_seed() -> None:
    with torch.inference_mode():
        logits = [factory(seed, "cpu").prefill([1, 2, 3])[1] for seed in (1, 1, 2)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "expected module:factory"),
        ("json:nothing", "json has no function nothing"),
        ("builtins:max", "int lacks vocab_size, max_tokens, prefill, decode"),
    ],
)
def test_a_factory_that_is_none_is_named(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.max", lambda seed, device: seed)
    with pytest.raises(FactoryError, match=message):
        load(name, seed=0, device="cpu")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "body: expected a JSON object"),
        ({}, "prompt: expected a text or a list"),
        ({"prompt": ""}, "prompt: expected a text or a list"),
        ({"prompt": [[1]]}, r"prompt: \[1\] is no token id of a vocabulary of 1000"),
        ({"prompt": [1000]}, "prompt: 1000 is no token id"),
        ({"prompt": [True]}, "prompt: True is no token id"),
        ({"prompt": [1], "max_tokens": 0}, "max_tokens: expected an integer of at least 1"),
        ({"prompt": [1], "max_tokens": 500}, "1 tokens and max_tokens 500 exceed the context of 500"),
        ({"prompt": [1], "temperature": -1}, "temperature"),
        ({"prompt": [1], "seed": "x"}, "seed: expected an integer"),
        ({"prompt": [1], "stream_options": 1}, "stream_options: expected an object"),
    ],
)
def test_bad_requests_name_the_key(body: Any, message: str) -> None:
    with pytest.raises(BadRequestError, match=message):
        parse(body, Counting(), chat=False)


@asynccontextmanager
async def serving(
    decoder: Counting, limits: Limits, http: aiohttp.ClientSession
) -> AsyncIterator[tuple[Engine, str]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    engine = Engine(decoder, limits)
    server = asyncio.create_task(serve(engine, model="counting", host="127.0.0.1", port=port))
    try:
        while not await answers(http, f"http://127.0.0.1:{port}/health"):
            await asyncio.sleep(0.01)
        yield engine, f"http://127.0.0.1:{port}/v1/completions"
    finally:
        server.cancel()
        await asyncio.wait([server])


async def answers(http: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with http.get(url) as response:
            return response.status == 200
    except aiohttp.ClientConnectionError:
        return False


def with_server(
    test: Callable[[aiohttp.ClientSession, Engine, str], Awaitable[None]],
    decoder: Counting,
    limits: Limits | None = None,
) -> None:
    async def run() -> None:
        async with (
            aiohttp.ClientSession() as http,
            serving(decoder, limits or Limits(), http) as (engine, url),
        ):
            await test(http, engine, url)

    asyncio.run(run())


def events_of(text: str) -> list[Any]:
    data = [line.removeprefix("data: ") for line in text.splitlines() if line]
    return [json.loads(each) if each != "[DONE]" else each for each in data]


def test_streaming_gives_a_chunk_a_token_then_usage_then_done() -> None:
    async def test(http: aiohttp.ClientSession, engine: Engine, url: str) -> None:
        body = {"prompt": [65], "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
        async with http.post(url, json=body) as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            *chunks, usage, done = events_of(await response.text())
        assert [chunk["choices"][0]["text"] for chunk in chunks] == ["B", "C", "D"]
        assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]
        assert usage["usage"] == {"prompt_tokens": 1, "completion_tokens": 3, "total_tokens": 4}
        assert done == "[DONE]"

    with_server(test, Counting())


def test_whole_answers_and_chat() -> None:
    async def test(http: aiohttp.ClientSession, engine: Engine, url: str) -> None:
        async with http.post(url, json={"prompt": "A", "max_tokens": 2}) as response:
            answer = await response.json()
        assert answer["choices"][0]["text"] == "BC"
        chat = url.replace("/completions", "/chat/completions")
        messages = [{"role": "user", "content": "hi"}]
        async with http.post(chat, json={"messages": messages, "max_tokens": 1}) as response:
            answer = await response.json()
        assert answer["choices"][0]["message"] == {"role": "assistant", "content": "\x0b"}
        assert answer["usage"]["prompt_tokens"] == len("user: hi\n")

    with_server(test, Counting())


def test_failures_have_a_status_before_the_first_token_and_an_event_after() -> None:
    decoder = Counting()
    decoder.room = 12

    async def test(http: aiohttp.ClientSession, engine: Engine, url: str) -> None:
        async with http.post(url, json={"prompt": [1] * 13, "stream": True}) as response:
            assert response.status == 507
            assert (await response.json())["error"]["type"] == "out_of_memory"
        async with http.post(url, json={"prompt": [1] * 10, "max_tokens": 9, "stream": True}) as response:
            assert response.status == 200
            events = events_of(await response.text())
        assert next(event for event in events if "error" in event)["error"]["type"] == "out_of_memory"
        async with http.post(url, json={"prompt": [1], "max_tokens": 2}) as response:
            assert response.status == 200
        async with http.post(url, data="{") as response:
            assert response.status == 400

    with_server(test, decoder)


def test_a_client_that_hangs_up_frees_its_place() -> None:
    decoder = Counting()
    decoder.pause_s = 0.005

    async def test(http: aiohttp.ClientSession, engine: Engine, url: str) -> None:
        response = await http.post(
            url, json={"prompt": [1], "max_tokens": 400, "ignore_eos": True, "stream": True}
        )
        await response.content.readline()
        response.close()
        while not engine.scheduler.idle:  # the test's time limit is the guard
            await asyncio.sleep(0.01)
        assert len(decoder.batches) < 399

    with_server(test, decoder)


def test_a_full_queue_answers_at_once() -> None:
    decoder = Counting()
    decoder.pause_s = 0.05

    async def test(http: aiohttp.ClientSession, engine: Engine, url: str) -> None:
        body = {"prompt": [1], "max_tokens": 10}
        answers = await asyncio.gather(*(http.post(url, json=body) for _ in range(4)))
        statuses = sorted(answer.status for answer in answers)
        assert statuses[-1] == 503
        assert 200 in statuses

    with_server(test, decoder, Limits(running=1, waiting=1))


def test_the_command_names_a_model_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, str(ENGINE), "--port", "1", "--model", "nowhere:factory"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "engine: No module named 'nowhere'\n"
