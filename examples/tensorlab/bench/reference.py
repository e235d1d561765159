"""What the operations must give; called with float64 copies of the inputs."""

import torch
from torch import Tensor


def layer_norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def distances(a: Tensor, b: Tensor) -> Tensor:
    return torch.cdist(a, b)
