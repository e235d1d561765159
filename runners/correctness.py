"""Is the result right? Compared with a float64 reference, with tolerances that the dtype and length justify.

Two figures decide for each output. The norm error ||out - ref|| / ||ref|| has the tolerance
`clamp(3 x control, 2 x theory, 16 x theory)`, where theory = u_out + u_acc sqrt(n): u_out and u_acc are the unit
roundoffs of the output's dtype and of the accumulator (float32, or float64 for float64), n the length of the
longest reduction (statistical error growth of a sum, Higham, Accuracy and Stability, section 4.2), and control
the error of the reference itself computed in the case's own dtype. So the tolerance is calibrated on what
honest arithmetic of that dtype does on this very input, and a wild control cannot widen it beyond theory.
The largest single error is held to 8 times that, relative to |ref| plus the reference's root mean square.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from .values import is_array, is_numeric_block, is_tensor, leaves

UNIT_ROUNDOFF = {
    "float64": 2.0**-53,
    "float32": 2.0**-24,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "float8_e4m3fn": 2.0**-4,
    "float8_e5m2": 2.0**-3,
}
CONTROL_FACTOR = 3.0
LOWER_FACTOR = 2.0
UPPER_FACTOR = 16.0
ELEMENT_FACTOR = 8.0
# Plain Python numbers: the order of a sum may differ, nothing more.
PLAIN_RTOL = 1e-9


class WrongResult(RuntimeError):
    """The candidate's output is wrong; the message says where and by how much."""


@dataclass(frozen=True)
class Tolerance:
    """`norm`: bound of ||out - ref|| / ||ref||. `rtol`, `atol`: |out - ref| <= atol + rtol (|ref| + rms(ref)).

    `explicit` when the manifest gave them: then the bound is plain atol + rtol |ref|, without the rms.
    """

    norm: float
    rtol: float
    atol: float = 0.0
    explicit: bool = False


@dataclass(frozen=True)
class LeafErrors:
    """What was found on one output. `element` is the largest error over its bound (1 is the limit)."""

    norm: float
    element: float
    max_abs: float


def dtype_name(leaf: Any) -> str:
    """ "float32" for both torch.float32 and numpy's."""
    return str(leaf.dtype).removeprefix("torch.")


def theory(dtype: str, reduction: int) -> float:
    """Norm error that honest arithmetic may show: see the module's docstring."""
    accumulator = UNIT_ROUNDOFF["float64" if dtype == "float64" else "float32"]
    return UNIT_ROUNDOFF[dtype] + accumulator * math.sqrt(max(1, reduction))


def tolerance_for(
    dtype: str, *, reduction: int, control: float | None, rtol: float | None, atol: float | None
) -> Tolerance:
    """The tolerance of one floating output; explicit values of the manifest win."""
    if rtol is not None or atol is not None:
        given = rtol or 0.0
        return Tolerance(
            norm=max(given, 1e-300) if atol is None else math.inf, rtol=given, atol=atol or 0.0, explicit=True
        )
    base = theory(dtype, reduction)
    norm = min(max(CONTROL_FACTOR * (control or 0.0), LOWER_FACTOR * base), UPPER_FACTOR * base)
    return Tolerance(norm=norm, rtol=ELEMENT_FACTOR * norm)


def check_form(actual: Any, expected: Any) -> list[tuple[str, Any, Any]]:
    """Pair up the leaves of both. Raises WrongResult where containers, types or shapes differ."""
    ours, theirs = list(leaves(actual)), list(leaves(expected))
    if [path for path, _ in ours] != [path for path, _ in theirs] or _containers(actual) != _containers(
        expected
    ):
        raise WrongResult(f"the output has the form {_form(actual)}, the reference {_form(expected)}")
    for (path, mine), (_, wanted) in zip(ours, theirs, strict=True):
        if is_numeric_block(mine) != is_numeric_block(wanted) or is_tensor(mine) != is_tensor(wanted):
            raise WrongResult(
                f"output{path} is a {type(mine).__name__}, the reference gives {type(wanted).__name__}"
            )
        if is_tensor(mine) and type(mine).__module__.partition(".")[0] != "torch":
            raise WrongResult(
                f"output{path} is a {type(mine).__qualname__}, which may compute when it is looked at"
            )
        if is_numeric_block(mine) and tuple(mine.shape) != tuple(wanted.shape):
            raise WrongResult(
                f"output{path} has shape {tuple(mine.shape)}, the reference {tuple(wanted.shape)}"
            )
    return [(path, mine, wanted) for (path, mine), (_, wanted) in zip(ours, theirs, strict=True)]


def block_errors(actual: Any, expected: Any, tolerance: Tolerance) -> LeafErrors:
    """Errors of one floating tensor or array against a float64 reference of the same shape.

    Raises WrongResult for values that are not finite where the reference's are, and for an all-zero output.
    """
    space = sys.modules["torch" if is_tensor(actual) else "numpy"]
    ours, wanted = _as_double(actual), _as_double(expected)
    finite = space.isfinite(wanted)
    broken = int((space.isfinite(ours) != finite).sum())
    if broken:
        raise WrongResult(
            f"{broken} of {_count(ours)} values are not finite where the reference's are, or the reverse"
        )
    ours, wanted = ours[finite], wanted[finite]
    if _count(wanted) == 0:
        return LeafErrors(0.0, 0.0, 0.0)
    difference = abs(ours - wanted)
    norm_wanted = math.sqrt(float((wanted * wanted).sum()))
    norm_difference = math.sqrt(float((difference * difference).sum()))
    if norm_wanted > 0 and float(abs(ours).max()) == 0.0:
        raise WrongResult("every value is zero")
    rms = 0.0 if tolerance.explicit else norm_wanted / math.sqrt(_count(wanted))
    bound = tolerance.atol + tolerance.rtol * (abs(wanted) + rms)
    # 0 / 0 where both sides agree on zero is no error.
    tiny = sys.float_info.min
    return LeafErrors(
        norm=norm_difference / norm_wanted if norm_wanted > 0 else (0.0 if norm_difference == 0 else 1e300),
        element=min(1e300, float((difference / (bound + tiny)).max())),
        max_abs=float(difference.max()),
    )


def require_close(path: str, actual: Any, expected: Any, tolerance: Tolerance) -> LeafErrors:
    """`block_errors` within `tolerance`, or WrongResult with the figures."""
    try:
        errors = block_errors(actual, expected, tolerance)
    except WrongResult as error:
        raise WrongResult(f"output{path}: {error}") from None
    if errors.norm > tolerance.norm:
        raise WrongResult(f"output{path}: norm error {errors.norm:.3g}, allowed {tolerance.norm:.3g}")
    if errors.element > 1.0:
        raise WrongResult(
            f"output{path}: largest error {errors.max_abs:.3g} is {errors.element:.3g} times its bound"
        )
    return errors


def require_equal_plain(
    path: str, actual: Any, expected: Any, *, rtol: float | None, atol: float | None
) -> None:
    """Leaves that are no tensors or arrays: numbers within `PLAIN_RTOL`, anything else exactly."""
    numbers = (int, float)
    if isinstance(actual, numbers) and isinstance(expected, numbers):
        if isinstance(actual, bool) != isinstance(expected, bool):
            raise WrongResult(f"output{path} is {actual!r}, the reference gives {expected!r}")
        both_nan = actual != actual and expected != expected
        close = math.isclose(
            actual, expected, rel_tol=PLAIN_RTOL if rtol is None else rtol, abs_tol=atol or 0.0
        )
        if not close and not both_nan:
            raise WrongResult(f"output{path} is {actual!r}, the reference gives {expected!r}")
    elif actual != expected:
        raise WrongResult(f"output{path} is {actual!r:.120}, the reference gives {expected!r:.120}")


def is_floating(leaf: Any) -> bool:
    return bool(leaf.is_floating_point()) if is_tensor(leaf) else bool(leaf.dtype.kind == "f")


def _as_double(leaf: Any) -> Any:
    return leaf.detach().double() if is_tensor(leaf) else leaf.astype("float64")


def _count(leaf: Any) -> int:
    return int(leaf.numel()) if is_tensor(leaf) else int(leaf.size)


def _containers(value: Any) -> Any:
    """The nesting of `value` with leaves left out. Lists and tuples are told apart, their subclasses not."""
    if isinstance(value, dict):
        return {key: _containers(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return ("tuple", *(_containers(item) for item in value))
    if isinstance(value, list):
        return ["list", *(_containers(item) for item in value)]
    return None


def _form(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_form(item)}" for key, item in list(value.items())[:6]) + "}"
    if isinstance(value, (list, tuple)):
        opening, closing = "[]" if isinstance(value, list) else "()"
        shown = [_form(item) for item in value[:6]] + (["..."] if len(value) > 6 else [])
        return opening + ", ".join(shown) + closing
    if is_tensor(value) or is_array(value):
        return f"{type(value).__name__}{tuple(value.shape)}"
    return type(value).__name__
