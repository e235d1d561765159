"""A tiny decoder with random weights, served by perfdb's small engine."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tinylm import attention

VOCABULARY, WIDTH, HEADS, MAX_TOKENS = 256, 64, 8, 6000


@dataclass
class State:
    """Keys and values of one sequence, [heads, tokens, head width]."""

    key: Tensor
    value: Tensor


class TinyLM(nn.Module):
    """One attention layer and one feed-forward layer."""

    codes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.vocab_size = VOCABULARY
        self.max_tokens = MAX_TOKENS
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.feed = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.SiLU(), nn.Linear(4 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("codes", attention.positions(MAX_TOKENS, WIDTH), persistent=False)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = self.qkv(x).view(len(x), 3, HEADS, -1).permute(1, 2, 0, 3)
        return query, key, value

    def finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + self.out(mixed)
        logits: Tensor = self.head(x + self.feed(x))
        return logits

    def prefill(self, tokens: list[int]) -> tuple[State, Tensor]:
        x = self.embed(torch.tensor(tokens, device=self.codes.device)) + self.codes[: len(tokens)]
        query, key, value = self.project(x)
        mixed = attention.causal(query, key, value).transpose(0, 1).reshape(len(tokens), WIDTH)
        return State(key, value), self.finish(x[-1:], mixed[-1:])[0]

    def decode(self, states: list[State], tokens: list[int]) -> Tensor:
        at = [state.key.shape[1] for state in states]
        x = self.embed(torch.tensor(tokens, device=self.codes.device)) + self.codes[at]
        query, key, value = self.project(x)
        rows = []
        for row, state in enumerate(states):
            state.key = torch.cat([state.key, key[:, row : row + 1]], dim=1)
            state.value = torch.cat([state.value, value[:, row : row + 1]], dim=1)
            rows.append(attention.newest(query[:, row : row + 1], state.key, state.value).reshape(1, WIDTH))
        return self.finish(x, torch.cat(rows))


def factory(seed: int, device: str) -> TinyLM:
    torch.manual_seed(seed)
    return TinyLM().to(device).eval()
