"""Encoded sequences as batches of nearly equal length, a pure function of (seed, step)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from redraft.errors import UserError
from redraft.tokenizers.base import PAD


@dataclass(frozen=True)
class Batch:
    x0: Tensor
    """(B, L) token ids, padded with PAD on the right."""
    padded: bool
    """Whether there is any PAD at all."""
    weight: Tensor | float
    """Tokens of this batch over those of a mean batch: keeps the objective a mean over tokens."""
    tokens: Tensor | int | None = None
    """Tokens of the whole batch, where x0 is a part of it; by default those of x0."""
    parts: int = 1
    """Into how many parts the whole batch was cut."""

    def part(self, index: int, parts: int) -> "Batch":
        """One of `parts` equal parts of the rows."""
        if parts == 1:
            return self
        rows = len(self.x0) // parts
        x0 = self.x0[index * rows : (index + 1) * rows]
        return replace(self, x0=x0, parts=self.parts * parts)


def collate(sequences: Sequence[np.ndarray], device: torch.device | str = "cpu") -> Tensor:
    """(B, L) ids from sequences of any length."""
    x = np.full((len(sequences), max(map(len, sequences))), PAD, dtype=np.int64)
    for row, sequence in zip(x, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(x).to(device)


class Stream(Protocol):
    """Batches without end."""

    per_epoch: int

    def __getitem__(self, step: int) -> Batch: ...


class Batches:
    """`batches[step]` is batch number `step` of an endless stream, the same for every caller.

    Each epoch shuffles the sequences, sorts them by length (so that almost no batch needs padding),
    cuts them into batches and shuffles those. There is no state to save for a resumed run. They
    have at most `widths` different lengths: each is padded to a multiple of a few tokens.
    """

    def __init__(
        self,
        sequences: Sequence[np.ndarray],
        size: int,
        seed: int,
        device: torch.device | str = "cpu",
        parts: int = 1,
        widths: int = 80,
    ):
        self.seed, self.widths = seed, widths
        self.size = min(size, len(sequences))
        self.size -= self.size % parts  # so that every batch can be cut into so many parts
        if self.size == 0:
            raise UserError(
                f"{min(size, len(sequences))} sequences make no batch of {parts} equal parts"
            )
        self.per_epoch = len(sequences) // self.size
        self.lengths = np.array([len(s) for s in sequences])
        self.table = collate(sequences).to(device, torch.int32)  # (N, L), where it is used
        self.epoch = -1

    def _shuffle(self, epoch: int) -> None:
        rng = np.random.default_rng((self.seed, epoch))
        order = rng.permutation(len(self.lengths))[: self.per_epoch * self.size]
        order = order[np.argsort(self.lengths[order], kind="stable")]
        order = rng.permutation(order.reshape(self.per_epoch, self.size))
        lengths = self.lengths[order]  # (per_epoch, size)
        unit = -(-self.table.shape[1] // self.widths)
        self.width = np.minimum(-(-lengths.max(1) // unit) * unit, self.table.shape[1])
        self.padded, self.epoch = lengths.min(1) < self.width, epoch
        self.order = torch.from_numpy(order).to(self.table.device)
        self.tokens = torch.from_numpy(lengths.sum(1)).to(self.table.device)  # (per_epoch,)
        self.weights = (self.tokens / (self.size * self.lengths.mean())).float()

    def __getitem__(self, step: int) -> Batch:
        epoch, index = divmod(step, self.per_epoch)
        if epoch != self.epoch:
            self._shuffle(epoch)
        return Batch(
            x0=self.table[self.order[index], : int(self.width[index])].long(),
            padded=bool(self.padded[index]),
            weight=self.weights[index],
            tokens=self.tokens[index],
        )


class Kinds:
    """One batch of each width, with and without padding, of a first epoch: over and over."""

    def __init__(self, stream: Stream):
        steps: dict[tuple[int, bool], int] = {}
        for step in range(stream.per_epoch):
            batch = stream[step]
            steps.setdefault((batch.x0.shape[1], batch.padded), step)
        self.stream, self.steps = stream, list(steps.values())
        self.per_epoch = len(self.steps)

    def __getitem__(self, step: int) -> Batch:
        return self.stream[self.steps[step % self.per_epoch]]
