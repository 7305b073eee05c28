"""The exact bound on sequences that a model has not seen, one by one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from redraft.batches import collate
from redraft.model import Model
from redraft.objective import exact_bound

TOGETHER = 64
"""How many are computed at a time: their probabilities are 0.1 GB for stories, of V = 2048."""


@dataclass(frozen=True)
class Bound:
    """Of one sequence."""

    nats: float
    tokens: int
    """Its end included."""
    characters: int


def bounds(
    model: Model,
    sequences: Sequence[np.ndarray],
    seed: int = 0,
    given: Callable[[Tensor], Tensor] | None = None,
) -> list[Bound]:
    """Of each, in their order; of the rest of it where `given` tells a part of x (B, L)."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    denoiser, process = model.trained.denoiser, model.trained.process
    nats: dict[int, float] = {}
    for first in range(0, len(order), TOGETHER):
        part = order[first : first + TOGETHER]
        x = collate([sequences[i] for i in part], model.device)
        generator = torch.Generator(model.device).manual_seed(seed + first // TOGETHER)
        found = exact_bound(denoiser, process, x, generator, given and given(x))
        nats.update(zip(part, found.tolist(), strict=True))
    decode = model.tokenizer.decode
    return [Bound(nats[i], len(ids), len(decode(ids))) for i, ids in enumerate(sequences)]
