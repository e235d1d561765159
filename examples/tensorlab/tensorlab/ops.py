"""A few tensor operations, written out step by step."""

import torch
from torch import Tensor


def layer_norm(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Each row of x to mean 0 and variance 1."""
    mean = x.mean(dim=-1, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(variance + eps)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension."""
    shifted = x - x.amax(dim=-1, keepdim=True)
    raised = shifted.exp()
    return raised / raised.sum(dim=-1, keepdim=True)


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distance of every row of a to every row of b, [len(a), len(b)]."""
    difference = a[:, None, :] - b[None, :, :]
    return (difference * difference).sum(dim=-1).sqrt()
