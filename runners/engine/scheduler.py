"""Which sequences run together: continuous batching, and the answer to a step that runs out of memory.

One step admits waiting prompts up to a token budget and prefills them one by one, then decodes one token for
every running sequence in one call. Prompts are prefilled one by one so that an allocation that fails is charged
to the request that made it.
"""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from .protocol import Decoder, State

LOG = logging.getLogger(__name__)


class Failure(StrEnum):
    """Why a request got no complete answer; the text is the error type that the client sees."""

    OUT_OF_MEMORY = "out_of_memory"
    INTERNAL = "internal_error"


@dataclass(frozen=True)
class Token:
    """One more token of a sequence. `finish` is "length" or "stop" on the last one."""

    id: int
    finish: str | None


@dataclass(frozen=True)
class Failed:
    """The sequence ended without an answer."""

    failure: Failure
    message: str


Event = Token | Failed


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy; otherwise draws are reproducible from `seed`, whatever shares the batch."""

    max_tokens: int
    temperature: float = 0.0
    seed: int = 0
    ignore_eos: bool = False


@dataclass(eq=False)
class Sequence:
    """One request on its way. `emit` takes its events, in order, in the thread that steps."""

    prompt: list[int]
    sampling: Sampling
    emit: Callable[[Event], None]
    cancelled: bool = False
    state: State = None
    generated: list[int] = field(default_factory=list)
    generator: torch.Generator | None = None


@dataclass(frozen=True)
class Limits:
    """running: sequences decoded together. waiting: queued before `add` refuses. prefill_tokens: per step."""

    running: int = 16
    waiting: int = 1024
    prefill_tokens: int = 4096


class Scheduler:
    """`add` and `Sequence.cancelled` may be used from another thread while `step` runs; nothing else may."""

    def __init__(self, decoder: Decoder, limits: Limits) -> None:
        self.decoder = decoder
        self.limits = limits
        self.eos_token: int | None = getattr(decoder, "eos_token", None)
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._running

    def add(self, sequence: Sequence) -> bool:
        """Queue a sequence. False when the queue is full: nothing was queued and no event will come."""
        if len(self._waiting) >= self.limits.waiting:
            return False
        self._waiting.append(sequence)
        return True

    @torch.inference_mode()
    def step(self) -> None:
        """Admit and prefill, then decode one token for all that run."""
        self._running = [sequence for sequence in self._running if not sequence.cancelled]
        self._admit()
        if self._running:
            self._decode()

    def _admit(self) -> None:
        budget = self.limits.prefill_tokens
        while self._waiting and len(self._running) < self.limits.running:
            sequence = self._waiting[0]
            # The first prompt of a step is always admitted, or one longer than the budget would wait for ever.
            if len(sequence.prompt) > budget and budget < self.limits.prefill_tokens:
                return
            self._waiting.popleft()
            if sequence.cancelled:
                continue
            budget -= len(sequence.prompt)
            if self._prefill(sequence):
                self._running.append(sequence)

    def _prefill(self, sequence: Sequence) -> bool:
        """True when the sequence goes on to decode."""
        try:
            sequence.state, logits = self.decoder.prefill(sequence.prompt)
            return self._accept(sequence, logits)
        except Exception as error:  # the model is foreign code: its failure is an answer, not our end
            failed = describe(error)
        self._fail(sequence, failed)
        return False

    def _decode(self) -> None:
        """One token for every running sequence. When memory runs out the longest one is failed and the rest
        go on: it holds the most, and failing everyone would charge the neighbours."""
        batch = self._running
        while batch:
            try:
                logits = self.decoder.decode(
                    [sequence.state for sequence in batch], [sequence.generated[-1] for sequence in batch]
                )
                self._running = [s for s, row in zip(batch, logits, strict=True) if self._accept(s, row)]
                return
            except Exception as error:  # foreign code, as above
                failed = describe(error)
            if failed.failure is Failure.OUT_OF_MEMORY:
                victims = [max(batch, key=lambda s: len(s.prompt) + len(s.generated))]
            else:
                victims = batch
            for victim in victims:
                self._fail(victim, failed)
            batch = [sequence for sequence in batch if sequence not in victims]
        self._running = []

    def _accept(self, sequence: Sequence, logits: Tensor) -> bool:
        """Sample, emit, and say whether the sequence goes on."""
        token = sample(sequence, logits)
        sequence.generated.append(token)
        finish = None
        if token == self.eos_token and not sequence.sampling.ignore_eos:
            finish = "stop"
        elif len(sequence.generated) >= sequence.sampling.max_tokens:
            finish = "length"
        if finish is not None:
            sequence.state = None
        sequence.emit(Token(token, finish))
        return finish is None

    @staticmethod
    def _fail(sequence: Sequence, failed: Failed) -> None:
        sequence.state = None
        # Frames of the failed call may sit in reference cycles and hold large tensors: what is dead must be
        # freed before the next allocation, or one failure would pull the next request down with it.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        sequence.emit(failed)


def sample(sequence: Sequence, logits: Tensor) -> int:
    """The next token from logits [vocab_size]: argmax at temperature 0, else a seeded draw."""
    if sequence.sampling.temperature <= 0:
        return int(logits.argmax())
    if sequence.generator is None:
        sequence.generator = torch.Generator(logits.device).manual_seed(sequence.sampling.seed)
    weights = torch.softmax(logits.float() / sequence.sampling.temperature, dim=-1)
    return int(torch.multinomial(weights, 1, generator=sequence.generator))


def describe(error: Exception) -> Failed:
    """An exception of the model as the failure that the client is told. Out of memory has many faces: torch's
    own class on an accelerator, a RuntimeError of the CPU allocator, MemoryError from Python and numpy."""
    text = str(error)
    words = ("can't allocate memory", "cannot allocate memory", "out of memory", "bad_alloc")
    starved = isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and any(word in text.lower() for word in words)
    )
    message = f"{type(error).__name__}: {text.splitlines()[0] if text else 'no message'}"
    LOG.warning("the model failed: %s", message, exc_info=None if starved else error)
    return Failed(Failure.OUT_OF_MEMORY if starved else Failure.INTERNAL, message)
