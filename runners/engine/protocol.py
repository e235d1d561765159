"""What the engine asks of a model: two methods and two numbers, by shape and not by base class.

A tracked repository offers a factory `factory(seed: int, device: str) -> Decoder` and imports nothing of ours.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Protocol, cast

from torch import Tensor

State = Any
"""What the model remembers of one sequence (its KV cache). Opaque: the engine keeps the reference while the
sequence runs and drops it at the end, which must be enough to free its memory."""


class Decoder(Protocol):
    """A decoder-only language model.

    vocab_size: token ids are 0 .. vocab_size - 1.
    max_tokens: the longest sequence, prompt and completion together.

    A model may also carry `eos_token: int | None`, the id that ends a completion.
    """

    vocab_size: int
    max_tokens: int

    def prefill(self, tokens: Sequence[int]) -> tuple[State, Tensor]:
        """Read one prompt. Returns its state and the logits of the next token, shape [vocab_size].

        Called under `torch.inference_mode`. An allocation that fails may simply propagate: that request alone
        is answered as out of memory.
        """
        ...

    def decode(self, states: Sequence[State], tokens: Sequence[int]) -> Tensor:
        """One token more for each of a batch of sequences. Returns logits, shape [batch, vocab_size].

        tokens[i] follows on what states[i] has seen; the states are updated in place. When an allocation
        fails the call may be repeated with fewer sequences, so a state should change only once the
        memory for its new token is there.
        """
        ...


class FactoryError(ValueError):
    """The `module:factory` that was named is not there or gives no decoder."""


def load(name: str, *, seed: int, device: str) -> Decoder:
    """The decoder that `module:factory` makes.

    Raises FactoryError where the name is malformed, the attribute is missing or what it returns lacks a member;
    whatever importing the module raises passes through, with its traceback.
    """
    module_name, separator, attribute = name.partition(":")
    if not separator or not module_name or not attribute:
        raise FactoryError(f"--model {name!r}: expected module:factory")
    factory = getattr(importlib.import_module(module_name), attribute, None)
    if not callable(factory):
        raise FactoryError(f"--model {name!r}: {module_name} has no function {attribute}")
    decoder = factory(seed, device)
    missing = [
        member for member in ("vocab_size", "max_tokens", "prefill", "decode") if not hasattr(decoder, member)
    ]
    if missing:
        raise FactoryError(f"--model {name!r}: {type(decoder).__name__} lacks {', '.join(missing)}")
    return cast(Decoder, decoder)
