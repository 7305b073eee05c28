"""Random numbers that come in by the door: every draw takes its generator."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from redraft.errors import UserError


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


BLOCK = 64
"""States that are first drawn together, where there are many of them."""


def categorical(probs: Tensor, generator: Generators = None) -> Tensor:
    """One state for each row of (..., V) weights, by inverting their float64 distribution function.

    Float32 Gumbel noise would silently cut off the tail; a state of weight 0 is never drawn. Many
    states are drawn in two steps, a block and then one of its states: one pass over the weights.
    """
    u = uniform(probs.shape[:-1], probs.device, generator)
    if probs.shape[-1] <= 4 * BLOCK:
        return invert(probs, u)
    missing = -probs.shape[-1] % BLOCK
    blocks = (pad(probs, (0, missing)) if missing else probs).unflatten(-1, (-1, BLOCK))
    masses = blocks.sum(-1, dtype=torch.float64)  # (..., V / BLOCK)
    block = invert(masses, u)
    states = blocks.gather(-2, block[..., None, None].expand(*block.shape, 1, BLOCK)).squeeze(-2)
    return BLOCK * block + invert(states, share_within(masses, block, u))


def invert(weights: Tensor, u: Tensor) -> Tensor:
    """(...) the states at which the distribution function of (..., V) weights passes u."""
    cdf = weights.double().cumsum(-1)
    drawn = torch.searchsorted(cdf, (u * cdf[..., -1])[..., None], right=True).squeeze(-1)
    return drawn.clamp_max(weights.shape[-1] - 1)


def share_within(weights: Tensor, state: Tensor, u: Tensor) -> Tensor:
    """How far into its state u lies: uniform in [0, 1) again, given the state."""
    cdf = weights.cumsum(-1)
    end, weight = (x.gather(-1, state[..., None]).squeeze(-1) for x in (cdf, weights))
    beyond = (end - u * cdf[..., -1]) / weight.clamp_min(torch.finfo(weights.dtype).tiny)
    return (1 - beyond).clamp(0, 1 - 2**-53)
