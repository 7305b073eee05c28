"""A corpus: items in three parts, and the way from items to arrays of ids.

The parts are decided by a hash of each item, so they depend neither on the order of the items nor
on chance; equal items always fall into the same part.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, Self

import numpy as np

from redraft import errors
from redraft.errors import UserError

VALIDATION = 0.10
HELD_OUT = 0.05 * (1 - VALIDATION)


@dataclass(frozen=True)
class Corpus:
    """Items to learn from and to be judged by."""

    train: Sequence[Any]
    """What the denoiser learns from."""
    held_out: Sequence[Any]
    """A slice of the training data that only the leader sees, to judge noise by."""
    validation: Sequence[Any]
    """For evaluation only."""
    origin: str
    """One sentence: what the data are, their licence, and whether they are synthetic."""

    @classmethod
    def of(cls, items: Iterable[Any], origin: str, key: Callable[[Any], str] = str) -> Self:
        return cls(*split(items, key), origin)


def split(items: Iterable[Any], key: Callable[[Any], str] = str) -> tuple[list, list, list]:
    """Train, held-out and validation parts, each in the order of the hash.

    Items with the same `key` stay together. Since the order is that of a hash, the first thousand
    items of a part are a fair sample of it.
    """
    hashed = sorted(((_hash(key(item)), item) for item in items), key=lambda pair: pair[0])
    points = sorted({point for point, _ in hashed})
    if len(points) < 3:
        raise UserError(f"a corpus needs at least 3 distinct items, got {len(points)}")
    # Thresholds, moved where a part would be empty.
    first = min(max(bisect_left(points, VALIDATION), 1), len(points) - 2)
    second = min(max(bisect_left(points, VALIDATION + HELD_OUT), first + 1), len(points) - 1)
    validation = [item for point, item in hashed if point < points[first]]
    held_out = [item for point, item in hashed if points[first] <= point < points[second]]
    train = [item for point, item in hashed if point >= points[second]]
    return train, held_out, validation


def _hash(text: str) -> float:
    """A number in [0, 1] that depends on the text alone."""
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class Encoder(Protocol):
    """What `encode` asks of a tokenizer."""

    def encode(self, item: Any) -> list[int]: ...
    def cut(self, ids: list[int], length: int) -> list[int]: ...


@dataclass(frozen=True)
class Report:
    """What became of the items."""

    n: int
    dropped_unknown: int = 0
    dropped_long: int = 0
    cut_long: int = 0

    def __str__(self) -> str:
        kept = self.n - self.dropped_unknown - self.dropped_long
        fates = {
            "dropped for unknown tokens": self.dropped_unknown,
            "dropped as too long": self.dropped_long,
            "cut": self.cut_long,
        }
        return ", ".join(
            [f"{kept} of {self.n} items kept"]
            + [f"{count} {fate}" for fate, count in fates.items() if count]
        )


@dataclass(frozen=True)
class Encoded:
    """The items that could be encoded, each with its ids."""

    items: list[Any]
    sequences: list[np.ndarray]
    report: Report


def encode(
    items: Iterable[Any],
    tokenizer: Encoder,
    max_length: int | None = None,
    long: str = "error",
    unknown: str = "error",
) -> Encoded:
    """Ids of every item; what to do with `long` ones ("error", "drop", "cut") and with those that
    hold `unknown` tokens ("error", "drop") is said, done and counted.

    `max_length` counts the ending.
    """
    if long not in (policies := ("error", "drop", "cut")):
        raise errors.unknown("policy for long items", long, policies)
    if unknown not in (policies := ("error", "drop")):
        raise errors.unknown("policy for unknown tokens", unknown, policies)

    n = 0
    kept, sequences = [], []
    strange: list[str] = []  # why an item could not be encoded, by its position
    lengthy: list[tuple[int, Any, int]] = []  # position, item and length
    for n, item in enumerate(items, 1):
        try:
            ids = tokenizer.encode(item)
        except UserError as error:
            strange.append(f"item {n}, where {error}")
            continue
        if max_length is not None and len(ids) > max_length:
            lengthy.append((n, item, len(ids)))
            if long != "cut":
                continue
            ids = tokenizer.cut(ids, max_length)
        kept.append(item)
        sequences.append(np.array(ids, np.int32))

    if strange and unknown == "error":
        raise UserError(f"{len(strange)} of {n} items hold unknown tokens, first {strange[0]}")
    if lengthy and long == "error":
        place, item, length = lengthy[0]
        raise UserError(
            f"{len(lengthy)} of {n} items are longer than {max_length} tokens, "
            f"first item {place}, {str(item)[:60]!r}, with {length}"
        )
    cut = len(lengthy) if long == "cut" else 0
    report = Report(n, len(strange), len(lengthy) - cut, cut)
    if not sequences:
        raise UserError(f"nothing is left to learn from: {report}")
    return Encoded(kept, sequences, report)
