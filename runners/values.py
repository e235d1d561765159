"""Arguments and results of measured functions: nested containers whose leaves are tensors, arrays or plain.

torch and numpy are used where a value already is of theirs, and never imported for their own sake.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from typing import Any


def is_tensor(value: Any) -> bool:
    """A torch tensor (False without importing torch, when nobody has)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: Any) -> bool:
    """A numpy array (False without importing numpy, when nobody has)."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def is_numeric_block(value: Any) -> bool:
    return is_tensor(value) or is_array(value)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(path, leaf) of nested dicts, lists and tuples, in order; a leaf is anything else."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def mapped(value: Any, function: Callable[[Any], Any]) -> Any:
    """The same containers with `function` applied to every leaf."""
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(item, function) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(mapped(item, function) for item in value)
    return function(value)


def cloned(value: Any) -> Any:
    """A copy with fresh memory for every leaf; gradients are wanted where they were."""
    return mapped(value, _clone)


def _clone(leaf: Any) -> Any:
    if is_tensor(leaf):
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)
    return copy.deepcopy(leaf)


def doubled(value: Any) -> Any:
    """Clones with every floating tensor and array in float64, for the reference."""
    return mapped(value, _double)


def _double(leaf: Any) -> Any:
    if is_tensor(leaf) and leaf.is_floating_point():
        return leaf.detach().double().clone().requires_grad_(leaf.requires_grad)
    if is_array(leaf) and leaf.dtype.kind == "f":
        return leaf.astype("float64")
    return _clone(leaf)


def overwrite(target: Any, source: Any) -> Any:
    """`source` with each of its blocks copied into the memory of the block in the same place of `target`.

    A leaf that has no counterpart of the same shape and dtype is taken from `source` as it is.
    """
    places = dict(leaves(target))
    found = iter(list(leaves(source)))

    def place(leaf: Any) -> Any:
        old: Any = places.get(next(found)[0])
        if is_tensor(leaf) and is_tensor(old) and old.shape == leaf.shape and old.dtype == leaf.dtype:
            old.data.copy_(leaf.detach())
            return old
        if is_array(leaf) and is_array(old) and old.shape == leaf.shape and old.dtype == leaf.dtype:
            old[...] = leaf
            return old
        return leaf

    return mapped(source, place)


def size_bytes(value: Any) -> int:
    """Bytes in the tensors and arrays of `value`."""
    total = 0
    for _, leaf in leaves(value):
        if is_tensor(leaf):
            total += leaf.numel() * leaf.element_size()
        elif is_array(leaf):
            total += leaf.nbytes
    return total


def same_bits(left: Any, right: Any) -> bool:
    """Whether two leaves are equal bit for bit (NaN equals NaN of the same bits)."""
    if is_tensor(left):
        if not is_tensor(right) or left.shape != right.shape or left.dtype != right.dtype:
            return False
        if left.numel() == 0:
            return True
        torch = sys.modules["torch"]
        as_bytes = [item.detach().contiguous().reshape(-1).view(torch.uint8) for item in (left, right)]
        return bool(torch.equal(*as_bytes))
    if is_array(left):
        return (
            is_array(right)
            and left.shape == right.shape
            and left.dtype == right.dtype
            and left.tobytes() == right.tobytes()
        )
    return type(left) is type(right) and (left == right or (left != left and right != right))


def all_same_bits(left: Any, right: Any) -> bool:
    """`same_bits` for whole trees of the same form."""
    ours, theirs = list(leaves(left)), list(leaves(right))
    if [path for path, _ in ours] != [path for path, _ in theirs]:
        return False
    return all(same_bits(a, b) for (_, a), (_, b) in zip(ours, theirs, strict=True))
