"""How likely a model finds a sequence, or the tokens at some places of it, given all others.

    some places    uncovered in turns:  log p = sum_k log p(turn k | turns before it, and the rest)
    all of them    by the bound on -log p, looked at under some draws of noise

Turns are exact but for the tokens of one turn, which are taken to be independent: of up to 8 places
each is a turn. What is still covered is noise; where that is not masks, it is drawn a few times.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from redraft.noise.draws import Generators
from redraft.noise.markov import MarkovProcess
from redraft.objective import corrupt, draw_times, ranges, token_losses
from redraft.sampler import Sampler
from redraft.tokenizers.base import MASK

TURNS, VIEWS = 8, 16
"""Turns in which places are uncovered, and how often a whole sequence is looked at."""
COVERS = 4
"""Draws of the noise that covers places."""


class Alternative(NamedTuple):
    """One way to fill the masks of a text."""

    text: Any
    likelihood: float
    """Of what was filled in, given the rest: the geometric mean over tokens."""
    drawn: int
    """How often."""
    ids: list[int]


class Likelihoods:
    """Of sequences that differ at `places`, or anywhere; the noise is the same for all of them."""

    def __init__(self, sampler: Sampler, places: Sequence[int] | None = None):
        self.sampler, self.places = sampler, places

    @torch.no_grad()
    def __call__(self, ids: Sequence[int]) -> float:
        """The geometric mean over tokens, in (0, 1]."""
        process = self.sampler.process
        places = range(len(ids)) if self.places is None else self.places
        x = torch.tensor([list(ids)], device=process.valid.device)  # (1, L)
        generator = torch.Generator(x.device).manual_seed(0)
        turns = self.places is not None and isinstance(process, MarkovProcess)
        nats = (self.in_turns if turns else self.by_the_bound)(x, list(places), generator)
        return float(torch.exp(-nats / len(places)))

    def in_turns(self, x: Tensor, places: list[int], generator: Generators) -> Tensor:
        """Row k sees what the turns before it have uncovered."""
        process, n = self.sampler.process, min(TURNS, len(places))
        turn = torch.zeros(n, x.shape[1], dtype=torch.bool, device=x.device)
        for k in range(n):
            turn[k, places[k::n]] = True
        covered = turn.flip(0).cumsum(0).flip(0).bool()  # in its turn, or in a later one
        x, turn, covered = (rows.repeat(COVERS, 1) for rows in (x.expand(n, -1), turn, covered))
        xt = torch.where(covered, process.prior(torch.full_like(x, MASK), generator), x)
        end = torch.full_like(x[0, :1], process.T)
        p = self.sampler.predict(xt, end, padded=False, free=covered)
        chosen = p.gather(-1, x[..., None]).squeeze(-1)  # (COVERS n, L)
        return -chosen[turn].log().sum() / COVERS

    def by_the_bound(self, x: Tensor, places: list[int], generator: Generators) -> Tensor:
        process, denoiser, x = self.sampler.process, self.sampler.denoiser, x.expand(VIEWS, -1)
        free = torch.zeros_like(x, dtype=torch.bool)
        free[:, places] = True
        times = draw_times(x, ranges("joint", process.T), generator)
        draws = [draw.giving(x, ~free) for draw in corrupt(process, x, times, generator)]
        nats = process.prior_kl(x) + token_losses(denoiser, process, x, draws, padded=False)
        return nats[:, places].sum(-1).mean()
