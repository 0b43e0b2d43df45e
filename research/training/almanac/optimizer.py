"""Two optimizers under one roof: Muon turns the hidden matrices, AdamW moves the tables and the norms."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

MUON_RATE = 0.02
TABLE_RATE = 4e-3
WEIGHT_DECAY = 0.05
WARM_UP = 50  # steps
READ_SHARE = 2 / 3  # of the stream: training stops there, and only what was read counts as exposure
SCHEDULE = ((0.0, 1.0), (0.41, 0.59), (READ_SHARE, 0.02))  # share of the stream, factor of the rates


def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """Replace the singular values of a matrix by about one (Newton-Schulz with Jordan's quintic coefficients).

    In float32: torch.optim.Muon rounds to bfloat16, which CPUs without such instructions emulate.
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised: every direction of a hidden matrix moves at the same speed."""

    def __init__(self, params: list[nn.Parameter], lr: float, momentum: float = 0.95, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every parameter once."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                momentum = state.setdefault("momentum_buffer", torch.zeros_like(parameter))
                momentum.lerp_(parameter.grad, 1 - group["momentum"])
                update = orthogonalize(parameter.grad.lerp(momentum, group["momentum"]))
                scale = max(1.0, parameter.shape[0] / parameter.shape[1]) ** 0.5
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * scale)


def make_optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    """Muon for the two-dimensional weights inside the layers, AdamW for everything else."""
    hidden = [p for name, p in model.named_parameters() if ".layers." in name and p.ndim == 2]
    others = [p for name, p in model.named_parameters() if not (".layers." in name and p.ndim == 2)]
    return [
        Muon(hidden, lr=MUON_RATE, weight_decay=WEIGHT_DECAY),
        torch.optim.AdamW(others, lr=TABLE_RATE, betas=(0.9, 0.98), weight_decay=WEIGHT_DECAY, fused=True),
    ]


def set_rates(optimizers: list[torch.optim.Optimizer], step: int, steps: int) -> None:
    """A short warm-up, then a decay in two slopes; `steps` is the length of the whole stream."""
    factor = min(1.0, (step + 1) / WARM_UP) * float(np.interp(step / steps, *zip(*SCHEDULE, strict=True)))
    for optimizer, rate in zip(optimizers, (MUON_RATE, TABLE_RATE), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * factor


def state_tensors(optimizers: list[torch.optim.Optimizer]) -> dict[str, Tensor]:
    """The optimizers' memory as named tensors, so that a checkpoint is a safetensors file."""
    return {
        f"{i}|{index}|{name}": value.contiguous()
        for i, optimizer in enumerate(optimizers)
        for index, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }


def load_state_tensors(optimizers: list[torch.optim.Optimizer], tensors: dict[str, Tensor]) -> None:
    """The inverse of `state_tensors`."""
    for i, optimizer in enumerate(optimizers):
        state: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            owner, index, name = key.split("|")
            if int(owner) == i:
                state.setdefault(int(index), {})[name] = value
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
