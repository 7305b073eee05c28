"""Confusion noise: tokens are replaced by those that the denoiser itself takes them for.

    C_b[i, j] = mean of p_theta(j | x_t, t) over positions with x_0 = i and t in bin b
    M_t[i, j] = (1 - u_t) C_b[i, j] / sum_{k != i} C_b[i, k] + u_t / (V' - 1)      for j != i

over valid states, with b the bin of t. Rows of C favour frequent tokens, which are a guess for
everything. Made symmetric, C_b[i, j] is sqrt(c_b[i, j] c_b[j, i]), c_b its normalised rows: tokens
are replaced by those that are taken for them as well.

Alone it is a control without a game: if the corruption that teaches most is what the denoiser
confuses, it shows here. It can also be where a leader begins.
"""

import torch
from torch import Tensor, nn

from redraft.distributed import sum_all
from redraft.noise.process import log
from redraft.tokenizers.base import EOS


class Confusions(nn.Module):
    """What is taken for what. As scores, whatever the embeddings: log M.

    `bins` of t share their counts. A share `floor` of every row is uniform, at all t or, where it
    is `rising`, at first: at T all is uniform then.
    """

    def __init__(
        self,
        T: int,
        V: int,
        bins: int,
        floor: float,
        rising: bool = False,
        symmetric: bool = False,
    ):
        super().__init__()
        self.T, self.V, self.bins, self.symmetric = T, V, bins, symmetric
        valid = torch.arange(V) >= EOS
        off_diagonal = valid & valid[:, None] & ~torch.eye(V, dtype=torch.bool)
        done = torch.arange(1, T + 1) / T if rising else torch.zeros(T)
        self.register_buffer("flat", off_diagonal.float() / (V - 3), persistent=False)
        self.register_buffer("uniform", floor + (1 - floor) * done, persistent=False)
        self.register_buffer("counts", torch.zeros(bins, V, V))

    flat: Tensor
    """(V, V) the kernel of uniform noise."""
    uniform: Tensor
    """(T,) u_t."""
    counts: Tensor
    """(bins, V, V) C, less its diagonal, as seen so far; zero in rows not seen yet."""

    def bin_of(self, t: Tensor) -> Tensor:
        return (t - 1) * self.bins // self.T

    @torch.no_grad()
    def observe(self, x0: Tensor, p: Tensor, t: Tensor, forget: float) -> None:
        """Move C towards what predictions p (B, L, V) at times t say, where they say anything."""
        rows = (self.bin_of(t)[:, None] * self.V + x0).flatten()  # (B L)
        sums = p.new_zeros(self.bins * self.V, self.V).index_add_(0, rows, p.flatten(0, 1))
        seen = p.new_zeros(len(sums)).index_add_(0, rows, torch.ones_like(p[..., 0]).flatten())
        sums, seen = sum_all([sums, seen])
        means = (sums / seen.clamp_min(1)[:, None]).view_as(self.counts) * (self.flat > 0)
        known = means.sum(-1, keepdim=True) > 0
        self.counts.copy_(torch.where(known, self.counts.lerp(means, 1 - forget), self.counts))

    def forward(self, e: Tensor) -> Tensor:
        """(T, V, V)."""
        shares = self.normalised(self.counts)
        if self.symmetric:
            shares = self.normalised((shares * shares.mT).sqrt())
        u = self.uniform[:, None, None]
        t = torch.arange(1, self.T + 1, device=u.device)
        return log((1 - u) * shares[self.bin_of(t)] + u * self.flat)

    def normalised(self, weights: Tensor) -> Tensor:
        """Rows that sum to 1; those without any weight are uniform."""
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total.clamp_min(1e-30), self.flat)


class Sum(nn.Module):
    """Scores that add up: kernels that are multiplied, and normalised."""

    def __init__(self, *terms: nn.Module):
        super().__init__()
        self.terms = nn.ModuleList(terms)

    def forward(self, e: Tensor) -> Tensor:
        return torch.stack([term(e) for term in self.terms]).sum(0)


def confusions_of(process: nn.Module) -> Confusions | None:
    """Those that the live scores of a process are made with, if they are."""
    scores = getattr(process, "scores", nn.Identity())
    return next((own for own in scores.modules() if isinstance(own, Confusions)), None)
