"""Find what an entry names in the project's code, and call it with a case's params."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any


class CaseError(RuntimeError):
    """The case cannot be measured as declared; the message is the run's reason."""


def resolve(entry: str, *, role: str = "entry") -> Callable[..., Any]:
    """The callable named by "module:function" (dots after the colon reach into classes).

    Raises CaseError when the text has another form, or the module or the name is not there.
    """
    module_name, colon, path = entry.partition(":")
    if not colon or not module_name or not path:
        raise CaseError(f'{role} {entry!r}: expected "module:function"')
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # the project's module may raise anything while it is imported
        raise CaseError(f"{role} {entry!r} does not import: {type(error).__name__}: {error}") from error
    for name in path.split("."):
        if not hasattr(found, name):
            raise CaseError(f"{role} {entry!r}: {module_name} has no {path!r}")
        found = getattr(found, name)
    if not callable(found):
        raise CaseError(f"{role} {entry!r} is not callable")
    function: Callable[..., Any] = found
    return function


def check_accepts(function: Callable[..., Any], arguments: dict[str, Any], *, role: str) -> None:
    """Raises CaseError when `function` does not take these keyword arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature: the call itself will tell
        return
    try:
        signature.bind(**arguments)
    except TypeError as error:
        name = getattr(function, "__name__", role)
        raise CaseError(
            f"{role} {name}{signature} does not accept {', '.join(sorted(arguments))}: {error}"
        ) from None
