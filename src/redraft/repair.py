"""Repair: the nearest valid sequence to a broken one, as a denoiser sees it.

    1  sequences one edit away (a token replaced, inserted or left out), the most plausible first,
       are put to the parser: the first few hundred, or all, until one is valid
    2  where none is: sequences two edits away, the edits of the most plausible edits
    3  where none is: revisions of growing strength, of the sequence itself and of those edits

Of the valid ones those with the fewest edits are taken, and of these the likeliest.

Diffusion keeps the length and real errors do not: edits change it. How likely a sequence is, is
judged token by token, at one t: by log p_theta(x_0 = x | x_t = x), since a denoiser of
substitutions was trained to doubt what it sees; one of masks was not, and sees a mask instead.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from redraft.batches import collate
from redraft.config import check
from redraft.noise.draws import Generators
from redraft.sampler import Callback, Sampler
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
    level: float = 0.32
    """The noise level, as a share of T, at which the denoiser judges."""
    judged: int = 16
    """Valid candidates that it judges, at most."""
    parsed: int = 256
    """Candidates that are put to the parser, unless none of them is valid."""
    strengths: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
    """Of the revisions, one after the other."""
    drafts: int = 8
    """Revisions of each start at each strength."""
    starts: int = 8
    """Edits that are edited again, and that revisions start from, beside the sequence itself."""
    pairs: int = 4000
    """Sequences two edits away that are put to the parser, at most."""
    together: int = 4
    """Gaps of a sequence that are looked into at once."""
    batch: int = 256
    """Sequences that go through the denoiser together."""
    watch: Callback | None = None
    """Sees the steps of revisions."""

    def __post_init__(self):
        check(0 < self.level <= 1, f"level must be in (0, 1], got {self.level}")
        for name in ("judged", "drafts", "starts", "together"):
            value = getattr(self, name)
            check(value >= 1, f"{name} must be at least 1, got {value}")

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
        searches = self.searches(ids, generator)
        found = next(filter(None, map(self.valid, searches)), {})
        return self.best(text, ids, found)

    def searches(self, ids: Ids, generator: Generators) -> Iterator[Iterable[Ids]]:
        """Candidates of one edit, of two, of revisions: each only where those before have failed.

        The most plausible come first, and of revisions the nearest.
        """
        scores = self.edit_scores([ids])
        yield (edit for edit, _ in edits_of({ids: 0.0}, scores))
        once = dict(edits_of({ids: 0.0}, scores))
        starts = dict(islice(once.items(), self.starts))
        twice = edits_of(starts, self.edit_scores(list(starts)))
        yield islice((edit for edit, _ in twice if edit not in once and edit != ids), self.pairs)
        x = self.table([self.ended(i) for i in (ids, *starts) for _ in range(self.drafts)])
        for strength in self.strengths:
            drawn = self.sampler.revise(x, strength, generator=generator, callback=self.watch)
            found = {tuple(content(row)) for row in drawn.tolist()}
            yield sorted(found, key=lambda other: (distance(ids, other), other))

    def best(self, text: str, ids: Ids, found: Mapping[Ids, str]) -> Repaired:
        """Of valid candidates those with the fewest edits, and of these the likeliest."""
        if not found:
            return Repaired(text, None, remark="no valid sequence was found near it")
        candidates, forms = list(found), np.array(list(found.values()))
        edits = np.array([distance(ids, other) for other in candidates])
        belief = np.array(self.log_likelihoods(candidates))
        chosen = np.lexsort((-belief, edits))[0]
        weights = np.exp(belief - belief.max())
        sure = float(weights[forms == forms[chosen]].sum() / weights.sum())
        return Repaired(text, self.tokenizer.decode(candidates[chosen]), int(edits[chosen]), sure)

    def valid(self, candidates: Iterable[Ids]) -> dict[Ids, str]:
        """The first that parse, each with its form: as many as are judged, or at least one."""
        found: dict[Ids, str] = {}
        for number, ids in enumerate(candidates):
            if found and (number >= self.parsed or len(found) >= self.judged):
                break
            if ids and (form := self.canonical(self.tokenizer.decode(ids))) is not None:
                found[ids] = form
        return found

    def edit_scores(self, sequences: Sequence[Ids]) -> list[np.ndarray]:
        """How plausible every edit of each sequence is, (2 L + 1, V): see `edits_of`.

        An insertion is judged by what the denoiser puts into a gap, a replacement by what it would
        rather have there than what is there; nothing at all is taken for an average state.
        """
        V, found = len(self.tokenizer), []
        both = zip(self.conditionals(sequences), self.gaps(sequences), strict=True)
        for ids, (p, gaps) in zip(sequences, both, strict=True):
            at = np.arange(len(ids))
            doubt = -p[at, ids]
            scores = np.empty((2 * len(ids) + 1, V))
            scores[::2] = gaps
            scores[::2, EOS] = -np.inf
            scores[1::2] = p[: len(ids)] + doubt[:, None]
            scores[1::2, EOS] = doubt - np.log(V)
            scores[2 * at + 1, ids] = -np.inf
            scores[:, [PAD, MASK]] = -np.inf
            found.append(scores)
        return found

    def gaps(self, sequences: Sequence[Ids]) -> list[np.ndarray]:
        """log p_theta of every gap and state of each sequence, (L + 1, V)."""
        opened = [self.opened(ids) for ids in sequences]
        predicted = iter(self.predictions([row for rows in opened for row in rows]))
        found = []
        for ids, rows in zip(sequences, opened, strict=True):
            p, n = list(islice(predicted, len(rows))), len(rows)
            own = [p[g % n][g + g // n] for g in range(len(ids) + 1)] if rows else -np.inf
            found.append(np.broadcast_to(own, (len(ids) + 1, len(self.tokenizer))))
        return found

    def opened(self, ids: Ids) -> list[Ids]:
        """The sequence with noise in its gaps: of n rows the first has it in gaps 0, n, 2 n ...

        Far apart they hardly disturb one another, and rows are what takes time.
        """
        together = min(self.together, self.longest - len(self.tokenizer.ending) - len(ids))
        if not together:
            return []
        fill, gaps = self.noise(len(ids) + 1), range(len(ids) + 1)
        n = -(-len(gaps) // together)
        rows = [list(ids) for _ in range(n)]
        for g in reversed(gaps):
            rows[g % n].insert(g, fill[g])
        return [self.ended(row) for row in rows]

    def log_likelihoods(self, candidates: Sequence[Ids]) -> list[float]:
        """Summed over the tokens of each, the end included."""
        found = zip(map(self.ended, candidates), self.conditionals(candidates), strict=True)
        return [float(p[np.arange(len(ids)), ids].sum()) for ids, p in found]

    def conditionals(self, sequences: Sequence[Ids]) -> list[np.ndarray]:
        """log p_theta of every position and state of each sequence, given the sequence."""
        ended = [self.ended(ids) for ids in sequences]
        if self.noise(1)[0] != MASK:
            return self.predictions(ended)
        hidden = [(*ids[:l], MASK, *ids[l + 1 :]) for ids in ended for l in range(len(ids))]
        found = iter(self.predictions(hidden))
        return [np.stack([next(found)[l] for l in range(len(ids))]) for ids in ended]

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
            x = self.table(rows[start : start + self.batch])
            with torch.no_grad():
                p = self.sampler.predict(x, t, padded=bool((x == PAD).any()))
            found += list(p.clamp_min(1e-30).log().cpu().numpy())
        return found

    def ended(self, ids: Iterable[int]) -> Ids:
        return (*ids, *self.tokenizer.ending)

    def table(self, rows: Sequence[Ids]) -> Tensor:
        return collate([np.array(row) for row in rows], self.device)

    @property
    def device(self) -> torch.device:
        return self.sampler.process.valid.device


def edits_of(
    starts: Mapping[Ids, float], scores: Sequence[np.ndarray]
) -> Iterator[tuple[Ids, float]]:
    """All edits of all starts, the most plausible first, each with its score and its start's.

    Row 2 g of a table of scores is gap g, row 2 l + 1 is token l, and a column is what comes there:
    a state, or `EOS` for nothing.

    >>> table = np.full((5, 5), -np.inf)
    >>> table[0, 4], table[3, 3], table[1, EOS] = 3, 2, 1
    >>> [edit for edit, _ in edits_of({(3, 4): 0.0}, [table])]
    [(4, 3, 4), (3, 3), (4,)]
    """
    sequences, V = list(starts), scores[0].shape[-1]
    totals = np.concatenate(
        [(score + own).ravel() for score, own in zip(scores, starts.values(), strict=True)]
    )
    first = np.cumsum([0, *(score.size for score in scores)])
    order = np.argsort(-totals, kind="stable")
    order = order[: np.isfinite(totals).sum()]
    seen = set(starts)
    for index in order.tolist():
        number = int(np.searchsorted(first, index, "right")) - 1
        row, state = divmod(index - int(first[number]), V)
        l, replaces = divmod(row, 2)
        ids = sequences[number]
        edit = (*ids[:l], *(state,) * (state != EOS), *ids[l + replaces :])
        if edit not in seen:
            seen.add(edit)
            yield edit, float(totals[index])


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
