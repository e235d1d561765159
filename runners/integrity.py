"""Were the harness's own functions replaced while candidate code ran? A patched timer measures nothing.

The candidate shares the process, so this is a seal and not a wall: it shows ordinary tampering (a timer, a
comparison or a class of the harness exchanged) and leaves an adversary with a debugger to the container.
"""

from __future__ import annotations

import builtins
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

# What the harness calls of packages that the candidate may import first: it must be theirs when it is used.
_FOREIGN = {
    "torch": [
        "equal",
        "isfinite",
        "full",
        "empty",
        "Tensor.double",
        "Tensor.detach",
        "Tensor.clone",
        "Tensor.contiguous",
        "Tensor.reshape",
        "Tensor.view",
        "Tensor.sum",
        "Tensor.max",
        "Tensor.__sub__",
        "Tensor.__mul__",
        "Tensor.__truediv__",
        "Tensor.__getitem__",
        "Tensor.__abs__",
        "Tensor.copy_",
        "Tensor.fill_",
        "cuda.synchronize",
        "cuda.Event.record",
        "cuda.Event.elapsed_time",
        "cuda.Event.synchronize",
        "cuda.CUDAGraph.replay",
        "cuda.max_memory_allocated",
    ],
    "numpy": ["isfinite"],
}
_BUILTINS = ("abs", "float", "max", "min", "sum", "len", "isinstance", "all", "zip", "type")


class Seal:
    """Taken before candidate code is imported; `broken()` says what has changed since."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._builtins = {name: getattr(builtins, name) for name in _BUILTINS}
        self._time = {name: getattr(time, name) for name in ("monotonic", "perf_counter", "perf_counter_ns")}
        self._own = {path: (found, _state(found)) for path, found in self._functions()}

    def broken(self) -> str | None:
        """The first replaced function, as a sentence; None while all are what they were."""
        for name, original in self._builtins.items():
            if getattr(builtins, name) is not original:
                return f"the builtin {name} was replaced"
        for name, original in self._time.items():
            if getattr(time, name) is not original:
                return f"time.{name} was replaced"
        now = dict(self._functions())
        for path, (original, state) in self._own.items():
            if now.get(path) is not original or _state(original) != state:
                return f"the harness's {path} was replaced"
        return _foreign_broken()

    def _functions(self) -> Iterator[tuple[str, Any]]:
        for name, module in list(sys.modules.items()):
            if name == self._package or name.startswith(f"{self._package}."):
                yield from _members(module, name.rpartition(".")[2])


def _members(module: ModuleType, short: str) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(module).items()):
        if isinstance(value, type):
            yield f"{short}.{name}", value
            for inner, function in list(vars(value).items()):
                if isinstance(function, FunctionType):
                    yield f"{short}.{name}.{inner}", function
        elif callable(value):
            yield f"{short}.{name}", value


def _state(function: Any) -> tuple[CodeType, Any] | None:
    return (function.__code__, function.__defaults__) if isinstance(function, FunctionType) else None


def _foreign_broken() -> str | None:
    for package, names in _FOREIGN.items():
        module = sys.modules.get(package)
        if module is None or not getattr(module, "__file__", None):
            continue
        folder = Path(str(module.__file__)).parent
        for dotted in names:
            found: Any = module
            for part in dotted.split("."):
                found = getattr(found, part, None)
            code = getattr(found, "__code__", None)
            if isinstance(code, CodeType) and not Path(code.co_filename).is_relative_to(folder):
                return f"{package}.{dotted} was replaced"
    return None
