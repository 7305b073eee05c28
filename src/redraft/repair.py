"""Repair: the nearest valid sequence to a broken one, as a denoiser sees it.

    1  every sequence one edit away (a token replaced, inserted or left out) is put to the parser;
       of the valid ones the denoiser takes the likeliest
    2  where none is valid: revisions of growing strength, of the sequence itself and of its most
       plausible edits; the valid one with the fewest edits is taken, then the likeliest

Diffusion keeps the length and real errors do not: edits change it. How likely a sequence is, is
judged token by token, at a small t: by log p_theta(x_0 = x | x_t = x), since a denoiser of
substitutions was trained to doubt what it sees; one of masks was not, and sees a mask instead.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from redraft.batches import collate
from redraft.config import check
from redraft.noise.draws import Generators
from redraft.sampler import Sampler
from redraft.tokenizers.base import EOS, MASK, PAD, Tokenizer, UnknownToken, content

Ids = tuple[int, ...]
"""Tokens of one sequence, without its end."""
Canonical = Callable[[str], str | None]
"""The one form of all ways to write a sequence; None where it is not valid."""


class Repaired(NamedTuple):
    """What became of one sequence."""

    given: str
    result: str | None
    """A valid sequence, or None: not repaired."""
    edits: int = 0
    """Tokens replaced, inserted or left out."""
    sure: float = 0.0
    """Share of the denoiser's belief, among all candidates, that lies on this result."""
    remark: str = ""
    """Why nothing could be done."""

    @property
    def status(self) -> str:
        if self.result is None:
            return "not repaired"
        return "repaired" if self.edits else "valid"


@dataclass(frozen=True)
class Repairer:
    sampler: Sampler
    tokenizer: Tokenizer
    canonical: Canonical
    longest: int
    """Tokens that the denoiser takes, the end included."""
    level: float = 0.04
    """The noise level, as a share of T, at which the denoiser judges."""
    judged: int = 64
    """Candidates that it judges, at most."""
    strengths: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    """Of the revisions, one after the other."""
    drafts: int = 8
    """Revisions of each start at each strength."""
    starts: int = 4
    """Edits that revisions start from, beside the sequence itself."""
    batch: int = 256
    """Sequences that go through the denoiser together."""

    def __post_init__(self):
        check(0 < self.level <= 1, f"level must be in (0, 1], got {self.level}")
        check(self.drafts >= 1, f"drafts must be at least 1, got {self.drafts}")

    def repair(self, text: str, generator: Generators = None) -> Repaired:
        """A valid sequence comes back as it is, an invalid one never."""
        if not text.strip():
            return Repaired(text, None, remark="it is empty")
        if self.canonical(text) is not None:
            return Repaired(text, text, sure=1.0)
        try:
            ids = tuple(self.tokenizer.ids(text))
        except UnknownToken as error:
            return Repaired(text, None, remark=str(error))
        most = self.longest - len(self.tokenizer.ending)
        if len(ids) > most:
            remark = f"it has {len(ids)} tokens, this model takes at most {most}"
            return Repaired(text, None, remark=remark)
        return self.edited(text, ids) or self.revised(text, ids, generator)

    def edited(self, text: str, ids: Ids) -> Repaired | None:
        """The likeliest valid sequence one edit away."""
        return self.best(text, ids, self.valid(self.plausible_edits(ids)))

    def revised(self, text: str, ids: Ids, generator: Generators) -> Repaired:
        """The nearest valid sequence among revisions, of the first strength that has one."""
        starts = [ids, *self.plausible_edits(ids)[: self.starts]]
        x = self.rows([start for start in starts for _ in range(self.drafts)])
        for strength in self.strengths:
            drawn = self.sampler.revise(x, strength, generator=generator)
            found = {tuple(content(row)) for row in drawn.tolist()}
            nearest = sorted(found, key=lambda other: (distance(ids, other), other))
            if best := self.best(text, ids, self.valid(nearest)):
                return best
        return Repaired(text, None, remark="no valid sequence was found near it")

    def best(self, text: str, ids: Ids, candidates: Sequence[Ids]) -> Repaired | None:
        """Of valid candidates those with the fewest edits, and of these the likeliest."""
        if not candidates:
            return None
        edits = np.array([distance(ids, other) for other in candidates])
        belief = np.array(self.log_likelihoods(candidates))
        chosen = np.lexsort((-belief, edits))[0]
        weights = np.exp(belief - belief.max())
        agree = np.array([self.form(c) == self.form(candidates[chosen]) for c in candidates])
        sure = float(weights[agree].sum() / weights.sum())
        return Repaired(text, self.tokenizer.decode(candidates[chosen]), int(edits[chosen]), sure)

    def valid(self, candidates: Iterable[Ids]) -> list[Ids]:
        """The first that parse, as many as are judged."""
        parse = (c for c in candidates if c and self.form(c) is not None)
        return list(islice(parse, self.judged))

    def form(self, ids: Ids) -> str | None:
        return self.canonical(self.tokenizer.decode(ids))

    def plausible_edits(self, ids: Ids) -> list[Ids]:
        """All sequences one edit away, the most plausible ones first.

        An insertion is judged by what the denoiser puts into a gap, a replacement and an omission
        by what it would rather have there than what is there.
        """
        (p,) = self.conditionals([ids])
        scored: dict[Ids, float] = {}

        def propose(edit: Ids, score: float) -> None:
            scored[edit] = max(scored.get(edit, -np.inf), score)

        states = range(EOS + 1, len(self.tokenizer))
        for l, i in enumerate(ids):
            for v in states:
                if v != i:
                    propose((*ids[:l], v, *ids[l + 1 :]), float(p[l, v] - p[l, i]))
            propose((*ids[:l], *ids[l + 1 :]), -float(p[l, i]))
        for g, q in enumerate(self.gaps(ids)):
            for v in states:
                propose((*ids[:g], v, *ids[g:]), float(q[g, v]))
        return sorted(scored, key=lambda edit: -scored[edit])

    def gaps(self, ids: Ids) -> list[np.ndarray]:
        """What the denoiser believes of sequences with noise in a gap, one for each gap."""
        if len(ids) + 1 + len(self.tokenizer.ending) > self.longest:
            return []
        fill = self.noise(len(ids) + 1)
        return self.predictions([(*ids[:g], fill[g], *ids[g:]) for g in range(len(ids) + 1)])

    def log_likelihoods(self, candidates: Sequence[Ids]) -> list[float]:
        """Summed over the tokens of each, the end included."""
        ended = [(*ids, *self.tokenizer.ending) for ids in candidates]
        found = self.conditionals(candidates)
        return [
            float(p[np.arange(len(ids)), ids].sum()) for ids, p in zip(ended, found, strict=True)
        ]

    def conditionals(self, sequences: Sequence[Ids]) -> list[np.ndarray]:
        """log p_theta of every position and state of each sequence, given the sequence."""
        if self.noise(1)[0] != MASK:
            return self.predictions(sequences)
        hidden = [
            [(*ids[:l], MASK, *ids[l + 1 :]) for l in range(len(ids) + len(self.tokenizer.ending))]
            for ids in sequences
        ]
        found = iter(self.predictions([row for rows in hidden for row in rows]))
        return [np.stack([next(found)[l] for l in range(len(rows))]) for rows in hidden]

    def noise(self, length: int) -> list[int]:
        """What stands for a token that is not known, always the same: a mask, or any token."""
        generator = torch.Generator(self.device).manual_seed(0)
        blank = torch.full((1, length), MASK, device=self.device)
        return self.sampler.process.prior(blank, generator)[0].tolist()

    def predictions(self, rows: Sequence[Ids]) -> list[np.ndarray]:
        """log p_theta(x_0 | x_t = row) of every position and state, at the level of judging."""
        T = self.sampler.process.T
        t = torch.tensor([max(1, round(self.level * T))], device=self.device)
        found: list[np.ndarray] = []
        for start in range(0, len(rows), self.batch):
            x = self.rows(rows[start : start + self.batch])
            with torch.no_grad():
                p = self.sampler.predict(x, t, padded=bool((x == PAD).any()))
            found += list(p.clamp_min(1e-30).log().cpu().numpy())
        return found

    def rows(self, sequences: Sequence[Ids]) -> Tensor:
        ended = [np.array((*ids, *self.tokenizer.ending)) for ids in sequences]
        return collate(ended, self.device)

    @property
    def device(self) -> torch.device:
        return self.sampler.process.valid.device


def distance(a: Sequence[Any], b: Sequence[Any]) -> int:
    """The fewest tokens to replace, insert or leave out that make b of a.

    >>> distance("kitten", "sitting")
    3
    """
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            above, row[j] = row[j], min(above + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]
