"""How much of x_0 survives at step t, and how networks are told t."""

import math

import torch
from torch import Tensor

from redraft.errors import UserError

SCHEDULES = {
    "linear": lambda r: 1 - r,
    "cosine": lambda r: torch.cos(r * math.pi / 2) ** 2,
    "late": lambda r: 1 - r**1.5,
}
"""The share that survives when r of the way is done; `late` has more of its steps near x_0."""


def alpha_bar(name: str, T: int) -> Tensor:
    """(T + 1,) float64: alpha_bar_0 = 1 falls to alpha_bar_T = 0 exactly.

    >>> alpha_bar("linear", 4).tolist()
    [1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if T < 2:
        raise UserError(f"T must be at least 2, got {T}")
    bar = SCHEDULES[name](torch.arange(T + 1, dtype=torch.float64) / T)
    bar[0], bar[-1] = 1.0, 0.0
    return bar


def steps(alpha_bar: Tensor) -> Tensor:
    """(T,) alpha_t = alpha_bar_t / alpha_bar_{t-1}: the chance that step t keeps a token."""
    return alpha_bar[1:] / alpha_bar[:-1]


def sinusoid(t: Tensor, T: int, width: int) -> Tensor:
    """(..., width) features of the time t in 0..T: sines and cosines of geometric frequencies."""
    half = width // 2
    frequencies = torch.exp(
        -math.log(10_000) * torch.arange(half, device=t.device, dtype=torch.float32) / half
    )
    angles = (1000 * t / T).float()[..., None] * frequencies
    features = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return torch.nn.functional.pad(features, (0, width - 2 * half))
