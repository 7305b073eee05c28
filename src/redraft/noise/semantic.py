"""Semantic noise: tokens are replaced by tokens that the denoiser embeds in a certain relation.

    M_t[i, j] = softmax_{j != i} s_t(i, j)      over valid states
    learned:  s_t(i, j) = e_i A_t e_j^T,  A_t = I / tau + MLP(sinusoid(t)), the MLP zero
              at the start (tau = inf begins at uniform noise)
    fixed:    s_t(i, j) = cos(e_i, e_j) / tau

e are the L2-normalised rows of the denoiser's embeddings. They enter in one place, `_kernel`,
detached: noise never teaches embeddings.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from redraft.noise.committed import CommittedProcess, Draft
from redraft.noise.markov import wide
from redraft.noise.schedule import sinusoid


class BilinearScores(nn.Module):
    """The leader's phi: A_t from the time, full (D, D) or as U_t W_t^T of a given rank."""

    def __init__(
        self,
        T: int,
        width: int,
        hidden: int = 128,
        rank: int | None = None,
        tau: float = math.inf,
    ):
        super().__init__()
        self.T, self.width, self.rank, self.tau = T, width, rank, tau
        self.trunk = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, width * (rank or width))  # A_t, or U_t
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.other = (
            nn.Linear(hidden, width * rank) if rank else None
        )  # W_t: random, or never learns

    def forward(self, e: Tensor) -> Tensor:
        """s_t(i, j) for all t: (T, V, V) from e (V, D)."""
        t = torch.arange(1, self.T + 1, device=e.device)
        features = sinusoid(t, self.T, self.trunk.in_features).to(e.dtype)
        h = nn.functional.silu(self.trunk(features))  # (T, hidden)
        left = e @ self.head(h).view(self.T, self.width, -1)  # (T, V, D or rank)
        right = e if self.other is None else e @ self.other(h).view(self.T, self.width, -1)
        return left @ right.mT + e @ e.T / self.tau


class CosineScores(nn.Module):
    """The fixed control: nothing is learned."""

    def __init__(self, T: int, tau: float):
        super().__init__()
        self.T, self.tau = T, tau

    def forward(self, e: Tensor) -> Tensor:
        return (e @ e.T / self.tau).expand(self.T, -1, -1)


class SemanticProcess(CommittedProcess):
    """A process whose kernel follows embeddings: drafted with a gradient, committed without."""

    def __init__(self, scores: nn.Module, V: int, width: int, alpha: Tensor):
        super().__init__(V, alpha)
        self.scores = scores
        self.committed = copy.deepcopy(scores).requires_grad_(False)
        self.register_buffer("embeddings", torch.zeros(V, width))
        self.rebuild()

    LIVE = "scores"
    embeddings: Tensor
    """(V, D) as they were when last committed."""

    def draft(self, embeddings: Tensor) -> Draft:
        """The process that the current scores give on these embeddings, differentiable in phi."""
        return Draft(self._kernel(self.scores, embeddings), self.alpha)

    @torch.no_grad()
    def commit(self, embeddings: Tensor, drafted: Draft | None = None) -> None:
        """Make the current scores and embeddings the process that corrupts and samples.

        What was just drafted from them need not be built again.
        """
        kept = self.committed.state_dict()
        for name, now in self.scores.state_dict().items():
            kept[name].copy_(now)
        self.embeddings.copy_(embeddings)
        self.become(drafted or self.draft(embeddings))

    def committed_kernel(self) -> Tensor:
        return self._kernel(self.committed, self.embeddings)

    def _kernel(self, scores: nn.Module, embeddings: Tensor) -> Tensor:
        """M (T, V, V), built in log space; PAD and MASK stay what they are."""
        e = normalize(embeddings.detach(), dim=-1)
        s = scores(e)  # (T, V, V)
        diagonal = torch.eye(self.V, dtype=torch.bool, device=s.device)
        allowed = torch.where(self.valid[:, None], self.valid & ~diagonal, diagonal)
        s_wide = s.to(wide(self.V, s.dtype)).masked_fill(~allowed, -torch.inf)
        return s_wide.log_softmax(-1).exp().to(s.dtype)
