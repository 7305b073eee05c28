"""Kernels that are renewed from time to time, and held fixed in between.

What a kernel is made from is kept twice: as it is being learned, and as it was when last committed.
So a saved process is the one the denoiser was trained on, whatever has moved since. What is being
learned matters to a run that goes on; what is committed is all that a model needs.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import ClassVar

import torch
from torch import Tensor

from redraft.noise.draws import Generators, look_up_inverse, uniform
from redraft.noise.markov import SMALL, DenseProcess, step_matrices
from redraft.tokenizers.base import EOS

AWAITED = ContextVar("awaited", default=False)


@contextmanager
def awaiting_state() -> Iterator[None]:
    """Processes that are made here are built when their state is loaded, and not before."""
    token = AWAITED.set(True)
    try:
        yield
    finally:
        AWAITED.reset(token)


class CommittedProcess(DenseProcess):
    """`alpha` (T,) is the chance that each step keeps a token."""

    def __init__(self, V: int, alpha: Tensor):
        T = len(alpha)
        super().__init__(torch.eye(V).expand(T, -1, -1), torch.eye(V).expand(T + 1, -1, -1))
        self.register_buffer("alpha", alpha, persistent=False)
        many = torch.zeros(T + 1, V, V, dtype=torch.float64) if V > SMALL else None
        self.register_buffer("cdf", many, persistent=False)
        self.register_load_state_dict_post_hook(lambda process, _: process.rebuild())

    LIVE: ClassVar[str] = ""
    """The name of what is being learned; its twin is `committed`."""
    alpha: Tensor
    cdf: Tensor | None
    """(T + 1, V, V) distribution functions of Qbar's rows, where V is large."""

    @abstractmethod
    def committed_kernel(self) -> Tensor:
        """M (T, V, V) from what is committed."""

    def halves(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The state_dict in two: the noise as it is committed, and what is being learned."""
        committed, live = {}, {}
        for name, x in self.state_dict().items():
            (live if name.split(".")[0] == self.LIVE else committed)[name] = x
        return committed, live

    def completed(self, committed: dict[str, Tensor]) -> dict[str, Tensor]:
        """The whole state_dict from its first half: nothing has been learned since."""
        twins = {name: name.replace(self.LIVE, "committed", 1) for name in self.halves()[1]}
        found = {name: committed[twin] for name, twin in twins.items() if twin in committed}
        return found | committed

    @torch.no_grad()
    def settled(self) -> "CommittedProcess":
        """The same noise with nothing left to learn, in as few numbers as hold it."""
        M, (committed, _) = self.committed_kernel(), self.halves()
        smaller = M.nbytes < sum(x.nbytes for x in committed.values())
        return SettledProcess(M, self.alpha) if smaller else self

    def kind_of(self, tensors: dict[str, Tensor]) -> "CommittedProcess":
        """The process that these tensors are of: this one, or a settled one of the same size."""
        if "kernel" not in tensors:
            return self
        return SettledProcess(self.committed_kernel(), self.alpha)

    @torch.no_grad()
    def rebuild(self) -> None:
        """The stacks from what is committed."""
        if not AWAITED.get():
            self.become(Draft(self.committed_kernel(), self.alpha))

    def become(self, other: DenseProcess) -> None:
        super().become(other)
        if self.cdf is not None:
            torch.cumsum(self.Q_bar, -1, dtype=torch.float64, out=self.cdf)

    def corrupt(self, x0: Tensor, t: Tensor, generator: Generators = None) -> Tensor:
        if self.cdf is None:
            return super().corrupt(x0, t, generator)
        return look_up_inverse(self.cdf, uniform(x0.shape, x0.device, generator), t, x0)


class SettledProcess(CommittedProcess):
    """A kernel M (T, V, V) that is never renewed, kept as it is."""

    def __init__(self, M: Tensor, alpha: Tensor):
        super().__init__(M.shape[-1], alpha)
        self.to(M.device).register_buffer("kernel", M.clone())
        self.rebuild()

    kernel: Tensor

    def committed_kernel(self) -> Tensor:
        return self.kernel


class Draft(DenseProcess):
    """What could be committed now: a dense process that remembers its kernel M."""

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
