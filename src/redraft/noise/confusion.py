"""Confusion noise: tokens are replaced by those that the denoiser itself takes them for.

    C_b[i, j] = mean of p_theta(j | x_t, t) over positions with x_0 = i and t in bin b
    M_t[i, j] = (1 - u) C_b[i, j] / sum_{k != i} C_b[i, k] + u / (V' - 1)      for j != i

over valid states, with b the bin of t. A control without a game: if the corruption that teaches
most is what the denoiser confuses, it shows here.
"""

import torch
from torch import Tensor

from redraft.distributed import sum_all
from redraft.noise.committed import CommittedProcess, Draft


class ConfusionProcess(CommittedProcess):
    """`bins` of t share their counts; a share `floor` of every row stays uniform."""

    def __init__(self, V: int, alpha: Tensor, bins: int, floor: float):
        super().__init__(V, alpha)
        self.bins, self.floor = bins, floor
        off_diagonal = self.valid & self.valid[:, None] & ~torch.eye(V, dtype=torch.bool)
        self.register_buffer("flat", off_diagonal.float() / (V - 3), persistent=False)
        self.register_buffer("confused", torch.zeros(bins, V, V))
        self.register_buffer("committed", torch.zeros(bins, V, V))
        self.rebuild()

    LIVE = "confused"
    flat: Tensor
    """(V, V) the kernel of uniform noise."""
    confused: Tensor
    """(bins, V, V) C, less its diagonal, as seen so far; zero in rows not seen yet."""
    committed: Tensor
    """(bins, V, V) C as it was at the last block's start."""

    def bin_of(self, t: Tensor) -> Tensor:
        return (t - 1) * self.bins // self.T

    @torch.no_grad()
    def observe(self, x0: Tensor, p: Tensor, t: Tensor, forget: float) -> None:
        """Move C towards what predictions p (B, L, V) at times t say, where they say anything."""
        rows = (self.bin_of(t)[:, None] * self.V + x0).flatten()  # (B L)
        sums = p.new_zeros(self.bins * self.V, self.V).index_add_(0, rows, p.flatten(0, 1))
        seen = p.new_zeros(len(sums)).index_add_(0, rows, torch.ones_like(p[..., 0]).flatten())
        sums, seen = sum_all([sums, seen])
        means = (sums / seen.clamp_min(1)[:, None]).view_as(self.confused) * (self.flat > 0)
        known = means.sum(-1, keepdim=True) > 0
        self.confused.copy_(
            torch.where(known, self.confused.lerp(means, 1 - forget), self.confused)
        )

    @torch.no_grad()
    def commit(self) -> Draft:
        """Make C as it is now the noise that corrupts and samples."""
        self.committed.copy_(self.confused)
        drafted = Draft(self.committed_kernel(), self.alpha)
        self.become(drafted)
        return drafted

    def committed_kernel(self) -> Tensor:
        seen = self.committed.sum(-1, keepdim=True)
        shares = torch.where(seen > 0, self.committed / seen.clamp_min(1e-30), self.flat)
        M = (1 - self.floor) * shares + self.floor * self.flat
        M = M + torch.diag((~self.valid).to(M.dtype))  # PAD and MASK stay what they are
        return M[self.bin_of(torch.arange(1, self.T + 1, device=M.device))]
