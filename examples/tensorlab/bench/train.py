"""One training step of a small perceptron, phase by phase."""

import torch
from tensorlab import ops
from torch import Tensor, nn


class Step:
    """phases: what one step does, in order. loss: that of the step just done."""

    def __init__(self, *, seed: int, device: str, width: int, batch: int) -> None:
        torch.manual_seed(seed)
        self.device = device
        self.model = nn.Sequential(nn.Linear(width, 4 * width), nn.Tanh(), nn.Linear(4 * width, width)).to(
            device
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.generator = torch.Generator().manual_seed(seed)
        self.shape = (batch, width)
        self.x: Tensor = torch.empty(0)
        self.value: Tensor = torch.empty(0)
        self.phases = {
            "data": self.data,
            "forward": self.forward,
            "backward": self.backward,
            "optimizer": self.update,
        }

    def data(self) -> None:
        self.x = torch.randn(*self.shape, generator=self.generator).to(self.device)

    def forward(self) -> None:
        self.value = ((self.model(ops.layer_norm(self.x)) - self.x) ** 2).mean()

    def backward(self) -> None:
        self.optimizer.zero_grad()
        self.value.backward()

    def update(self) -> None:
        self.optimizer.step()

    def loss(self) -> float:
        return float(self.value.detach())


def step(*, seed: int, device: str, width: int, batch: int) -> Step:
    return Step(seed=seed, device=device, width=width, batch=batch)
