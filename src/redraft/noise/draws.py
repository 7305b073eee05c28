"""Random numbers that come in by the door: every draw takes its generator."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from redraft.errors import UserError
from redraft.fusion import fusable


class Sliced(NamedTuple):
    """Draws the noise of a whole batch, and takes one of its equal parts."""

    generator: torch.Generator
    part: int
    parts: int

    def take(self, whole: Tensor) -> Tensor:
        rows = len(whole) // self.parts
        return whole[self.part * rows : (self.part + 1) * rows]


Generators = torch.Generator | Sliced | Sequence[torch.Generator] | None
"""One generator for the batch, a part of one, or one for each row, which then stands alone."""


def uniform(shape: Sequence[int], device: torch.device, generator: Generators = None) -> Tensor:
    """Float64 numbers in [0, 1); with a sequence of generators, row b comes from generator b."""
    if isinstance(generator, Sliced):
        whole = (shape[0] * generator.parts, *shape[1:])
        return generator.take(uniform(whole, device, generator.generator))
    if isinstance(generator, Sequence):
        if len(generator) != shape[0]:
            raise UserError(f"give one generator for each of {shape[0]} rows, got {len(generator)}")
        rows = [uniform(shape[1:], device, g) for g in generator]
        return torch.stack(rows)
    source = generator.device if generator is not None else device
    u = torch.rand(tuple(shape), generator=generator, dtype=torch.float64, device=source)
    return u.to(device)


def categorical(probs: Tensor, generator: Generators = None) -> Tensor:
    """One state for each row of (..., V) weights, by inverting their float64 distribution function.

    Float32 Gumbel noise would silently cut off the tail; a state of weight 0 is never drawn.
    """
    cdf = probs.double().cumsum(-1)
    u = uniform(probs.shape[:-1], probs.device, generator) * cdf[..., -1]
    drawn = torch.searchsorted(cdf, u[..., None], right=True).squeeze(-1)
    return drawn.clamp_max(probs.shape[-1] - 1)


@fusable
def look_up_inverse(cdf: Tensor, u: Tensor, t: Tensor, x: Tensor) -> Tensor:
    """(B, L) where the distribution functions cdf[t, x, :] pass u, by bisection.

    As `categorical`, for rows of a stack (T, V, V) that need not be brought together first.
    """
    V = cdf.shape[-1]
    start, flat = (t[:, None] * V + x) * V, cdf.view(-1)
    u, below = u * flat[start + V - 1], torch.zeros_like(x)  # so many are not above u
    for bit in reversed(range(V.bit_length())):
        reach = below + (1 << bit)
        known = flat[start + reach.clamp_max(V) - 1] <= u
        below = torch.where((reach <= V) & known, reach, below)
    return below.clamp_max(V - 1)
