"""A tiny decoder, so that the engine runs on its own: pre-norm transformer, byte vocabulary, random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of the decoder; `width` is a multiple of `heads`."""

    vocab_size: int = 256
    width: int = 128
    heads: int = 4
    layers: int = 2
    max_tokens: int = 8192


@dataclass
class Cache:
    """Keys and values of one sequence, [layers, heads, capacity, head_width]; the first `length` are filled."""

    keys: Tensor
    values: Tensor
    length: int

    def reserve(self, tokens: int) -> None:
        """Room for `tokens` in all. Doubles, so that appending costs constant time a token in the mean."""
        capacity = self.keys.shape[2]
        if tokens <= capacity:
            return
        grown = [
            torch.cat([old, old.new_zeros(*old.shape[:2], max(tokens - capacity, capacity), old.shape[3])], 2)
            for old in (self.keys, self.values)
        ]
        self.keys, self.values = grown


class Block(nn.Module):
    """Attention and feed-forward of one layer, split so that attention may run per sequence."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm_attention = nn.RMSNorm(shape.width)
        self.norm_feed = nn.RMSNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 4 * shape.width, bias=False)
        self.down = nn.Linear(4 * shape.width, shape.width, bias=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [n, width] -> queries, keys, values, each [heads, n, head_width]."""
        rows = self.qkv(self.norm_attention(x)).view(x.shape[0], 3, self.heads, -1)
        query, key, value = rows.permute(1, 2, 0, 3)
        return query, key, value

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """Add attention's output [n, width] and the feed-forward to the residual stream x [n, width]."""
        x = x + self.out(attended)
        fed: Tensor = self.down(functional.silu(self.up(self.norm_feed(x))))
        return x + fed


class TinyDecoder(nn.Module):
    """Implements `protocol.Decoder`: one prompt at a time in `prefill`, a batch of sequences in `decode`."""

    positions: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.vocab_size = shape.vocab_size
        self.max_tokens = shape.max_tokens
        self.embed = nn.Embedding(shape.vocab_size, shape.width)
        self.blocks = [Block(shape) for _ in range(shape.layers)]
        self.layers = nn.ModuleList(self.blocks)  # registers the weights; `blocks` keeps the type
        self.norm = nn.RMSNorm(shape.width)
        # Not tied to the embedding: untrained, tied weights only repeat the token before.
        self.head = nn.Linear(shape.width, shape.vocab_size, bias=False)
        self.register_buffer("positions", _sinusoids(shape.max_tokens, shape.width), persistent=False)

    def prefill(self, tokens: Sequence[int]) -> tuple[Cache, Tensor]:
        ids = torch.tensor(tokens, device=self.embed.weight.device)
        x = self.embed(ids) + self.positions[: len(tokens)]
        keys, values = [], []
        for block in self.blocks:
            query, key, value = block.project(x)
            mixed = functional.scaled_dot_product_attention(
                query[None], key[None], value[None], is_causal=True
            )
            x = block.finish(x, mixed[0].transpose(0, 1).reshape(len(tokens), -1))
            keys.append(key)
            values.append(value)
        return Cache(torch.stack(keys), torch.stack(values), len(tokens)), self.head(self.norm(x[-1]))

    def decode(self, states: Sequence[Cache], tokens: Sequence[int]) -> Tensor:
        for cache in states:
            cache.reserve(cache.length + 1)
        positions = [cache.length for cache in states]
        x = self.embed(torch.tensor(tokens, device=self.embed.weight.device)) + self.positions[positions]
        for layer, block in enumerate(self.blocks):
            query, key, value = block.project(x)
            mixed = torch.empty_like(x)
            for row, cache in enumerate(states):
                end = cache.length + 1
                cache.keys[layer, :, end - 1] = key[:, row]
                cache.values[layer, :, end - 1] = value[:, row]
                mixed[row] = functional.scaled_dot_product_attention(
                    query[:, row : row + 1], cache.keys[layer, :, :end], cache.values[layer, :, :end]
                ).reshape(-1)
            x = block.finish(x, mixed)
        for cache in states:
            cache.length += 1
        logits: Tensor = self.head(self.norm(x))
        return logits


def _sinusoids(count: int, width: int) -> Tensor:
    """Fixed position codes, [count, width] (Vaswani et al. 2017, section 3.5)."""
    angles = torch.arange(count)[:, None] * torch.exp(
        torch.arange(0, width, 2) * (-math.log(10_000.0) / width)
    )
    return torch.cat([angles.sin(), angles.cos()], dim=1)


def factory(seed: int, device: str) -> TinyDecoder:
    """The default model: about 0.4 million weights, drawn from `seed`."""
    torch.manual_seed(seed)
    return TinyDecoder(Shape()).to(device).eval()
