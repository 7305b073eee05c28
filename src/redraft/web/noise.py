"""The learned substitutions at any t, as a map and token by token."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from redraft.errors import UserError
from redraft.experiments.noise import Kernel, kernel_of, largest, times_of
from redraft.model import Model
from redraft.report.noise_maps import shown_states
from redraft.terminal import times_uniform
from redraft.tokenizers.base import EOS, visible

SHOWN = 32
"""Tokens of a map: the most frequent ones."""
TOP = 12
"""Substitutions of a token."""


@dataclass(frozen=True, eq=False)
class NoiseView:
    kernel: Kernel
    shown: list[int]
    """Valid states of the map, from 0 at EOS; those that are replaced alike stand together."""

    @classmethod
    def of(cls, model: Model) -> "NoiseView | None":
        """None where the noise is as it was made."""
        kernel = kernel_of(model)
        if kernel is None:
            return None
        stack = np.stack([kernel[t - 1] for t in times_of(len(kernel))])
        with np.errstate(divide="ignore"):
            bits = np.log2(times_uniform(stack))
        return cls(kernel, shown_states(bits, kernel.counts, SHOWN).tolist())

    def map(self, t: int) -> dict[str, Any]:
        """Probabilities that a replaced token becomes another, and what uniform noise would do."""
        M = self.rows(t)
        names = [visible(token) for token in self.kernel.tokens[EOS:]]
        return {
            "t": t,
            "T": len(self.kernel),
            "tokens": [names[i] for i in self.shown],
            "uniform": 1 / (len(names) - 1),
            "p": [[round(float(M[i, j]), 6) for j in self.shown] for i in self.shown],
            "top": [
                [[names[j], round(float(M[i, j]), 6)] for j in largest(M[i], TOP)]
                for i in self.shown
            ],
        }

    def rows(self, t: int) -> np.ndarray:
        """M_t, (V', V'), zero rows where none was kept."""
        T, kernel = len(self.kernel), self.kernel
        if not 1 <= t <= T:
            raise UserError(f"t must be in 1..{T}, got {t}")
        M = np.zeros((len(kernel.tokens) - EOS,) * 2)
        M[kernel.valid] = kernel.M[int(np.abs(kernel.times - t).argmin())]
        return M
