"""Causal attention of one sequence."""

import torch
from torch import Tensor
from torch.nn import functional


def causal(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """query, key, value [heads, tokens, width] -> [heads, tokens, width]; no token sees a later one."""
    return functional.scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True)[0]


def newest(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """One new token's query [heads, 1, width] against all keys so far."""
    return functional.scaled_dot_product_attention(query, key, value)


def positions(count: int, width: int) -> Tensor:
    """Fixed position codes [count, width]: sines and cosines of falling frequency."""
    scale = torch.exp(torch.arange(0, width, 2) * (-9.21 / width))
    angles = torch.arange(count)[:, None] * scale
    return torch.cat([angles.sin(), angles.cos()], dim=1)
