"""The function under test with its rotating inputs, and the judge of every output that it gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

from .correctness import (
    Tolerance,
    WrongResult,
    block_errors,
    check_form,
    dtype_name,
    is_floating,
    require_close,
    require_equal_plain,
    tolerance_for,
)
from .loading import CaseError
from .values import (
    all_same_bits,
    cloned,
    doubled,
    is_array,
    is_numeric_block,
    is_tensor,
    leaves,
    mapped,
    overwrite,
    same_bits,
)


@dataclass
class Slot:
    """One set of arguments. `pristine`: a copy of them as made. `verified`: the output found right on them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    pristine: tuple[tuple[Any, ...], dict[str, Any]]
    verified: Any = None


@dataclass(frozen=True)
class Subject:
    """What is called, how its arguments are made, and what it is compared with.

    make: seed -> (args, kwargs) with fresh memory. reference: None when the case declares none.
    mutates: whether the function may write into its arguments; these then count as output too.
    reduction: length of the longest sum inside (None: the longest last dimension among the inputs).
    """

    function: Callable[..., Any]
    make: Callable[[int], tuple[tuple[Any, ...], dict[str, Any]]]
    reference: Callable[..., Any] | None = None
    mutates: bool = False
    reduction: int | None = None
    rtol: float | None = None
    atol: float | None = None

    def slot(self, seed: int) -> Slot:
        args, kwargs = self.make(seed)
        return Slot(args, kwargs, cloned((args, kwargs)))

    def refill(self, slot: Slot, seed: int) -> None:
        """New contents for a slot, in the memory that it has where the shapes allow it."""
        made = self.make(seed)
        overwritten = overwrite((slot.args, slot.kwargs), made)
        slot.args, slot.kwargs = overwritten
        slot.pristine = cloned(overwritten)


def normalized_arguments(made: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What an inputs function returned as (args, kwargs). Raises CaseError on anything but the two forms."""
    if (
        isinstance(made, tuple)
        and len(made) == 2
        and isinstance(made[0], tuple)
        and isinstance(made[1], dict)
    ):
        return made[0], made[1]
    if isinstance(made, (tuple, list)):
        return tuple(made), {}
    raise CaseError(f"inputs must return a tuple of arguments or (args, kwargs), not {type(made).__name__}")


@dataclass
class Judge:
    """Holds outputs to the reference. Figures of the comparison are collected for the run's record."""

    subject: Subject
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=lambda: {"norm": 0.0, "element": 0.0, "max_abs": 0.0})
    compared: int = 0
    bitwise: int = 0

    def observed(self, slot: Slot, output: Any) -> Any:
        """All that the call produced: its result, and the arguments where it may write into them."""
        return (
            {"result": output, "args": slot.args, "kwargs": slot.kwargs} if self.subject.mutates else output
        )

    def examine(self, slot: Slot, *, clock: Callable[[], int] = perf_counter_ns) -> int:
        """Call the function on `slot`, compare with the reference and keep the output as the verified one.

        The reference comes first, and memory of the output's size is left full of NaN, so that what the function
        does not write shows. Nanoseconds of the call. Raises WrongResult on any difference beyond tolerance,
        and on an argument that was written to.
        """
        expected = None
        if self.subject.reference is not None:
            expected = self._expected(doubled(slot.pristine))
            control = {} if self.tolerances else self._control(slot)
            _poison_allocator(control or dict(leaves(expected)))
        start = clock()
        output = self.subject.function(*slot.args, **slot.kwargs)
        duration = clock() - start
        if not self.subject.mutates and not all_same_bits((slot.args, slot.kwargs), slot.pristine):
            raise WrongResult("the function wrote into its inputs (declare `mutates` if it may)")
        observed = self.observed(slot, output)
        if self.subject.reference is not None:
            if not self.tolerances:
                self._calibrate(slot, observed, expected, control)
            self._compare(observed, expected)
        slot.verified = cloned(mapped(observed, _detached))
        return duration

    def recheck(self, slot: Slot, output: Any) -> None:
        """A timed output against the verified one of the same inputs: bits first, then the tolerance.

        Without a reference nothing is claimed about the value, and this does nothing.
        """
        if self.subject.reference is not None:
            self.recheck_observed(slot, self.observed(slot, output))

    def recheck_observed(self, slot: Slot, observed: Any) -> None:
        """`recheck` for what `observed` has returned already."""
        if self.subject.reference is None:
            return
        if all_same_bits(observed, slot.verified):
            self.bitwise += 1
            return
        self._compare(observed, slot.verified)

    def inputs_untouched(self, slots: list[Slot]) -> None:
        """Raises WrongResult when a function that may not write into its inputs did so while it was timed."""
        if self.subject.reference is None or self.subject.mutates:
            return
        for slot in slots:
            if not all_same_bits((slot.args, slot.kwargs), slot.pristine):
                raise WrongResult("the function wrote into its inputs while it was timed")

    def record(self) -> dict[str, Any] | None:
        """What goes into RunResult.correctness; None when there is no reference."""
        if self.subject.reference is None:
            return None
        return {
            "reference": getattr(self.subject.reference, "__qualname__", "reference"),
            "compared": self.compared,
            "bitwise_equal": self.bitwise,
            "errors": dict(self.worst),
            "tolerances": {
                path or "output": {"norm": min(item.norm, 1e300), "rtol": item.rtol, "atol": item.atol}
                for path, item in self.tolerances.items()
            },
        }

    def _expected(self, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
        assert self.subject.reference is not None
        args, kwargs = arguments
        result = self.subject.reference(*args, **kwargs)
        return {"result": result, "args": args, "kwargs": kwargs} if self.subject.mutates else result

    def _calibrate(self, slot: Slot, observed: Any, expected: Any, control: Mapping[str, Any]) -> None:
        """Set each output's tolerance, from the reference's own error in the case's dtype where it runs there."""
        pairs = check_form(observed, expected)
        for path, mine, wanted in pairs:
            if not (is_numeric_block(mine) and is_floating(mine)):
                continue
            honest = control.get(path)
            if honest is not None and dtype_name(honest) != dtype_name(mine):
                raise WrongResult(
                    f"output{path} is {dtype_name(mine)}, on these inputs the reference gives {dtype_name(honest)}"
                )
            error = None if honest is None else _norm_error(honest, wanted)
            self.tolerances[path] = tolerance_for(
                dtype_name(mine),
                reduction=self.subject.reduction or _longest_row(slot),
                control=error,
                rtol=self.subject.rtol,
                atol=self.subject.atol,
            )

    def _control(self, slot: Slot) -> Mapping[str, Any]:
        """Outputs of the reference in the case's own dtype; empty where it does not run in it."""
        try:
            control = self._expected(cloned(slot.pristine))
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return {}
        return {path: leaf for path, leaf in leaves(control) if is_numeric_block(leaf)}

    def _compare(self, observed: Any, expected: Any) -> None:
        self.compared += 1
        for path, mine, wanted in check_form(observed, expected):
            if path in self.tolerances:
                errors = require_close(path, mine, wanted, self.tolerances[path])
                for name in self.worst:
                    self.worst[name] = max(self.worst[name], getattr(errors, name))
            elif is_numeric_block(mine):
                if dtype_name(mine) != dtype_name(wanted):
                    raise WrongResult(
                        f"output{path} is {dtype_name(mine)}, the reference gives {dtype_name(wanted)}"
                    )
                if not same_bits(mine, wanted):
                    raise WrongResult(f"output{path} differs from the reference")
            else:
                require_equal_plain(path, mine, wanted, rtol=self.subject.rtol, atol=self.subject.atol)


def _norm_error(honest: Any, wanted: Any) -> float | None:
    try:
        return block_errors(honest, wanted, Tolerance(norm=1.0, rtol=1.0)).norm
    except WrongResult:
        return None


def _poison_allocator(outputs: Mapping[str, Any]) -> None:
    """Fill memory of the outputs' sizes with NaN and give it back: the next allocation likely finds it."""
    for leaf in outputs.values():
        if is_tensor(leaf) and is_floating(leaf):
            leaf.new_full(leaf.shape, math.nan)
        elif is_array(leaf) and is_floating(leaf):
            leaf.copy().fill(math.nan)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if hasattr(leaf, "detach") else leaf


def _longest_row(slot: Slot) -> int:
    rows = [leaf.shape[-1] for _, leaf in leaves(slot.pristine) if is_numeric_block(leaf) and len(leaf.shape)]
    return max(rows, default=1)
