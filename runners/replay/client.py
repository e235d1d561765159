"""The load generator: open loop on an absolute schedule.

A request leaves at its scheduled time whether or not earlier ones are answered, on a connection of its own if
need be, and its latency counts from the schedule. A client that waited for answers would slow down with the
server and hide what its users see (coordinated omission).
"""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import aiohttp

from .payloads import Planned
from .stream import DONE, EventParser, StreamError, error_of, is_out_of_memory, parse_chunk

# The first request leaves this long after the clock starts, so that it is not late from the outset.
LEAD_S = 0.05
_KEEPALIVE_S = 2.0  # below what servers allow, or a request meets a connection that is just being closed
_LIVENESS_S = 0.05


class Outcome(StrEnum):
    """What became of one request. All but OK are failures."""

    OK = "ok"
    OOM = "oom"
    ERROR = "error"
    TIMEOUT = "timeout"
    SHORT = "short"  # fewer tokens than asked for, without an error
    LOST = "lost"  # the connection broke
    UNSENT = "unsent"  # the server had died, or the run's time was over


@dataclass
class Record:
    """One request's life; times in seconds after the start of the schedule, None for what never happened.

    chunk_times: arrival of every chunk that carried tokens. output_tokens: as the server counts them.
    """

    planned: Planned
    outcome: Outcome = Outcome.UNSENT
    message: str = ""
    t_send: float | None = None
    chunk_times: list[float] = field(default_factory=list)
    output_tokens: int | None = None
    text: list[str] = field(default_factory=list)

    @property
    def t_first(self) -> float | None:
        return self.chunk_times[0] if self.chunk_times else None

    @property
    def t_last(self) -> float | None:
        return self.chunk_times[-1] if self.chunk_times else None

    def fail(self, outcome: Outcome, message: str) -> None:
        self.outcome = outcome
        self.message = " ".join(message.split())[:300]


@dataclass(frozen=True)
class Target:
    """Where to send. exact: a completion shorter than asked for is a failure."""

    url: str
    request_timeout_s: float
    exact: bool


def session() -> aiohttp.ClientSession:
    """No limit on connections: a limit would be a closed loop."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
        timeout=aiohttp.ClientTimeout(total=None),
        headers={"Content-Type": "application/json"},
        read_bufsize=1 << 20,
    )


async def warm_up(http: aiohttp.ClientSession, plan: Sequence[Planned], target: Target) -> list[Record]:
    """Send `plan` one by one, at once, whatever its times."""
    records = []
    for planned in plan:
        record = Record(planned)
        now = asyncio.get_running_loop().time()
        await _send(http, record, target, start=now - planned.at_s)
        records.append(record)
    return records


async def replay(
    http: aiohttp.ClientSession,
    plan: Sequence[Planned],
    target: Target,
    *,
    alive: Callable[[], bool],
    deadline: float,
) -> list[Record]:
    """Send `plan` (in order of `at_s`) and wait for every answer. Never raises for what a server does.

    alive: says whether the server's process lives; when it does not, what is left stays unsent.
    deadline: in the loop's time; what is under way then times out, what is left stays unsent.
    """
    records = [Record(planned) for planned in plan]
    # What lives now lives to the end: keep the collector from walking all payloads while requests wait.
    gc.collect()
    gc.freeze()
    try:
        start = asyncio.get_running_loop().time() + LEAD_S
        async with asyncio.TaskGroup() as tasks:
            dispatch = tasks.create_task(_dispatch(http, records, target, start))
            watch = tasks.create_task(_watch(dispatch, alive, deadline))
            await asyncio.wait([dispatch])
            watch.cancel()
    finally:
        gc.unfreeze()
    return records


async def _dispatch(
    http: aiohttp.ClientSession, records: Sequence[Record], target: Target, start: float
) -> None:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.TaskGroup() as requests:
            for record in records:
                # Absolute: a late wake-up delays one request and not all that follow.
                await asyncio.sleep(start + record.planned.at_s - loop.time())
                requests.create_task(_send(http, record, target, start=start))
    except asyncio.CancelledError:
        for record in records:
            if record.outcome is Outcome.UNSENT and record.t_send is not None:
                record.fail(Outcome.LOST, "under way when the run ended")


async def _watch(dispatch: asyncio.Task[None], alive: Callable[[], bool], deadline: float) -> None:
    """Ends the run when the server has died or time is over."""
    loop = asyncio.get_running_loop()
    while alive() and loop.time() < deadline:
        await asyncio.sleep(_LIVENESS_S)
    if not alive():
        await asyncio.sleep(_LIVENESS_S)  # let broken connections tell their requests first
    dispatch.cancel()


async def _send(http: aiohttp.ClientSession, record: Record, target: Target, *, start: float) -> None:
    loop = asyncio.get_running_loop()
    record.t_send = loop.time() - start
    try:
        async with asyncio.timeout_at(start + record.planned.at_s + target.request_timeout_s):
            async with http.post(target.url, data=record.planned.body) as response:
                if response.status != 200:
                    _refused(record, response.status, await response.text(errors="replace"))
                else:
                    await _receive(response, record, target, start)
    except TimeoutError:
        record.fail(Outcome.TIMEOUT, f"no complete answer within {target.request_timeout_s:g} s")
    except (StreamError, ValueError) as error:
        record.fail(Outcome.ERROR, str(error))
    except (aiohttp.ClientError, OSError) as error:
        record.fail(Outcome.LOST, f"{type(error).__name__}: {error}")


def _refused(record: Record, status: int, body: str) -> None:
    try:
        message = error_of(json.loads(body)) or body
    except ValueError:
        message = body
    out_of_memory = is_out_of_memory(message, http_status=status)
    record.fail(Outcome.OOM if out_of_memory else Outcome.ERROR, f"HTTP {status}: {message}")


async def _receive(response: aiohttp.ClientResponse, record: Record, target: Target, start: float) -> None:
    loop = asyncio.get_running_loop()
    events = EventParser()
    finished = False
    async for received in response.content.iter_any():
        now = loop.time() - start  # before anything is parsed
        for data in events.feed(received):
            if data == DONE:
                finished = True
                continue
            chunk = parse_chunk(data)
            if chunk.error is not None:
                outcome = Outcome.OOM if is_out_of_memory(chunk.error) else Outcome.ERROR
                record.fail(outcome, chunk.error)
                return
            finished = finished or chunk.finished
            if chunk.carries_token:
                record.chunk_times.append(now)
                record.text.append(chunk.text)
            if chunk.usage_tokens is not None:
                record.output_tokens = chunk.usage_tokens
    _conclude(record, finished=finished, exact=target.exact)


def _conclude(record: Record, *, finished: bool, exact: bool) -> None:
    wanted, got = record.planned.output_tokens, record.output_tokens
    if not finished:
        record.fail(Outcome.LOST, "the stream ended without a finish reason")
    elif not record.chunk_times:
        record.fail(Outcome.ERROR, "the stream brought no token")
    elif exact and got is not None and got < wanted:
        record.fail(Outcome.SHORT, f"{got} tokens where {wanted} were asked for")
    else:
        record.outcome = Outcome.OK
