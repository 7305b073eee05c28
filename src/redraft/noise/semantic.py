"""Semantic noise: tokens are replaced by tokens that the denoiser embeds in a certain relation.

    M_t[i, j] = softmax_{j != i} s_t(i, j)      over valid states
    learned:  s_t(i, j) = e_i A_t e_j^T,  A_t = MLP(sinusoid(t)), zero (= uniform) at the start
    fixed:    s_t(i, j) = cos(e_i, e_j) / tau

e are the L2-normalised rows of the denoiser's embeddings. They enter in one place, `_kernel`,
detached: noise never teaches embeddings.
"""

import copy
import math

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from redraft.noise.draws import Generators, look_up_inverse, uniform
from redraft.noise.markov import SMALL, DenseProcess, step_matrices, wide
from redraft.noise.schedule import sinusoid
from redraft.tokenizers.base import EOS


class BilinearScores(nn.Module):
    """The leader's phi: A_t from the time, full (D, D) or as U_t W_t^T of a given rank."""

    def __init__(self, T: int, width: int, hidden: int = 128, rank: int | None = None):
        super().__init__()
        self.T, self.width, self.rank = T, width, rank
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
        if self.other is None:
            return left @ e.T
        right = e @ self.other(h).view(self.T, self.width, -1)  # (T, V, rank)
        return left @ right.mT


class CosineScores(nn.Module):
    """The fixed control: nothing is learned."""

    def __init__(self, T: int, tau: float):
        super().__init__()
        self.T, self.tau = T, tau

    def forward(self, e: Tensor) -> Tensor:
        return (e @ e.T / self.tau).expand(self.T, -1, -1)


class SemanticProcess(DenseProcess):
    """A process whose kernel follows embeddings: drafted with a gradient, committed without.

    What is committed (scores' weights and embeddings) is kept apart from what is being learned, so
    that a saved process is the one the denoiser was trained on, whatever moved since.
    """

    def __init__(self, scores: nn.Module, V: int, width: int, alpha: Tensor):
        T = len(alpha)
        super().__init__(torch.eye(V).expand(T, -1, -1), torch.eye(V).expand(T + 1, -1, -1))
        self.scores = scores
        self.committed = copy.deepcopy(scores).requires_grad_(False)
        self.register_buffer("embeddings", torch.zeros(V, width))
        self.register_buffer("alpha", alpha, persistent=False)
        wide_stack = torch.zeros(T + 1, V, V, dtype=torch.float64) if V > SMALL else None
        self.register_buffer("cdf", wide_stack, persistent=False)
        self.register_load_state_dict_post_hook(lambda process, _: process.rebuild())
        self.rebuild()

    embeddings: Tensor
    alpha: Tensor
    cdf: Tensor | None
    """(T + 1, V, V) distribution functions of Qbar's rows, where V is large."""

    def become(self, other: DenseProcess) -> None:
        super().become(other)
        if self.cdf is not None:
            torch.cumsum(self.Q_bar, -1, dtype=torch.float64, out=self.cdf)

    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        if self.cdf is None:
            return super().corrupt(x0, t, generator)
        return look_up_inverse(self.cdf, uniform(x0.shape, x0.device, generator), t, x0)

    def draft(self, embeddings: Tensor) -> "Draft":
        """The process that the current scores give on these embeddings, differentiable in phi."""
        return Draft(self._kernel(self.scores, embeddings), self.alpha)

    @torch.no_grad()
    def commit(self, embeddings: Tensor, drafted: "Draft | None" = None) -> None:
        """Make the current scores and embeddings the process that corrupts and samples.

        What was just drafted from them need not be built again.
        """
        for kept, now in zip(self.committed.parameters(), self.scores.parameters(), strict=True):
            kept.copy_(now)
        self.embeddings.copy_(embeddings)
        self.become(drafted or self.draft(embeddings))

    @torch.no_grad()
    def rebuild(self) -> None:
        """The stacks from what is committed."""
        self.become(Draft(self._kernel(self.committed, self.embeddings), self.alpha))

    def _kernel(self, scores: nn.Module, embeddings: Tensor) -> Tensor:
        """M (T, V, V), built in log space; PAD and MASK stay what they are."""
        e = normalize(embeddings.detach(), dim=-1)
        s = scores(e)  # (T, V, V)
        diagonal = torch.eye(self.V, dtype=torch.bool, device=s.device)
        allowed = torch.where(self.valid[:, None], self.valid & ~diagonal, diagonal)
        s_wide = s.to(wide(self.V, s.dtype)).masked_fill(~allowed, -torch.inf)
        return s_wide.log_softmax(-1).exp().to(s.dtype)


class Draft(DenseProcess):
    """What the leader would play now: a dense process that remembers its kernel M."""

    def __init__(self, M: Tensor, alpha: Tensor):
        super().__init__(step_matrices(M, alpha))
        self.M = M

    def terminal_kl(self) -> Tensor:
        """Mean over valid i of KL(Qbar_T[i, :] || uniform)."""
        end = self.Q_bar[-1, EOS:, EOS:]
        return math.log(len(end)) - entropy(end).mean()

    def row_entropies(self) -> Tensor:
        """(T, V') entropies of the rows of M over valid states, in nats; at most ln(V' - 1)."""
        return entropy(self.M[:, EOS:])


def entropy(p: Tensor) -> Tensor:
    """-sum p log p over the last axis with 0 log 0 = 0, in the backward pass too."""
    positive = p > 0
    return -(p * torch.where(positive, p, 1).log()).sum(-1)
