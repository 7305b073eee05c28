"""Playlists: what is drawn from a model of them, and what is measured of it.

next-tracks-20.jsonl    the last three tracks of unseen windows, drawn 20 times from the others
repair.jsonl            the corrupted track of unseen windows, drawn anew, three corruptions
bound.jsonl             the exact bound on unseen windows, and on their last three tracks alone

Windows are those of full length, in an order without meaning. Those of one group are not
independent of each other: intervals are over groups. Drawing takes all that was prepared (20 MB).

    ndcg@3, hitrate@3     of one draw, as in the paper; a mean over draws, which is the same number
                          with less chance in it
    ..._combined          of the three codes of any track that most draws have
    ..._mixed             the same, where what the window has so far votes, too
    hitrate@3_tracks...   of tracks, not of their codes: codes mean the most played track that has
                          them and is not in the playlist yet; simple ways tell no other either
    hitrate@3_self        how often one draw hits another of the same window: so often does it hit
                          the truth, if the model knows how sure it may be
    known_tracks          share of what is drawn that is the codes of any track
    next_bound_...        what is asked, in nats a track: the bound on the last three, given all
                          others, by a denoiser that infills
    ..._per_very_track    the bound on the codes, and what tells a track from others of its codes by
                          their plays alone: together a bound on tracks, by which codes compare
    place_smoothness_...  of the transitions into and out of the place, over windows where those of
                          the original, the corrupted and the repaired one are known
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from redraft.config import check
from redraft.data import playlists as data
from redraft.data.tracks import Triplets
from redraft.domains import Dataset
from redraft.evaluation import playlists, results, statistics
from redraft.evaluation.playlists import CORRUPTIONS, NEXT
from redraft.evaluation.results import Run
from redraft.evaluation.statistics import Estimate
from redraft.experiments import domain, noise
from redraft.experiments.data import dataset_of
from redraft.experiments.domain import Asked, keep_rows
from redraft.experiments.windows import (
    CHOICE,
    Bound,
    Continued,
    Repaired,
    Windows,
    bounds_of,
    continued,
    corrupted,
    repaired,
    triplets_of,
)
from redraft.model import Model
from redraft.sampler import Callback
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.semantic_id import Codes

REPAIR, BOUND = "repair.jsonl", "bound.jsonl"


@dataclass(frozen=True)
class Amounts(domain.Amounts):
    samples: int = 500
    """Unseen windows that are continued."""
    draws: int = 20
    """Continuations of each."""
    redrafts: int = 200
    """Unseen windows that are corrupted and repaired, in each of three ways."""
    bound: int = 500
    """Unseen windows on which the exact bound is computed."""

    def __str__(self) -> str:
        return (
            f"{self.samples:,} playlists continued {self.draws:,} times, {self.redrafts:,} "
            f"repaired, the bound on {self.bound:,}"
        )


# ------------------------------------------------------------------ drawing


@dataclass(frozen=True)
class Drawn(domain.Drawn):
    amounts: Amounts

    def continued(self) -> list[Continued]:
        rows = self.rows(next_tracks_file(self.amounts))
        return [Continued(r["window"], [triplets_of(draw) for draw in r["draws"]]) for r in rows]

    def repaired(self) -> list[Repaired]:
        return [Repaired(**row | {"drawn": tuple(row["drawn"])}) for row in self.rows(REPAIR)]

    def bounds(self) -> list[Bound]:
        return [Bound(**row) for row in self.rows(BOUND)]


def next_tracks_file(amounts: Amounts) -> str:
    return f"next-tracks-{amounts.draws}.jsonl"


def draw(model: Model, folder: Path, amounts: Amounts, callback: Callback | None = None) -> None:
    seed = model.config.seed
    windows = Windows.of(model.trained, dataset_of(model.trained).tokenizer)
    cases = corrupted(windows, windows.known(), amounts.redrafts)
    some = windows.first(amounts.samples)
    tell = partial(continued, model, windows, some, amounts.draws, seed, callback)
    keep_rows(folder / next_tracks_file(amounts), len(some), tell)
    keep_rows(folder / REPAIR, len(cases), partial(repaired, model, windows, cases, seed, callback))
    bounded = windows.first(amounts.bound)
    keep_rows(folder / BOUND, len(bounded), partial(bounds_of, model, windows, bounded, seed))


# ------------------------------------------------------------------ measures


@dataclass(frozen=True, eq=False)
class Columns:
    """Measures, each a number for every case; NaN where it has none."""

    cases: list[Any]
    groups: np.ndarray
    values: dict[str, np.ndarray]

    def estimates(self, seed: int = 0) -> dict[str, Estimate]:
        """What no case has is left out."""
        return dict(self._estimates(self.values, statistics.grouped_share, seed))

    def less(self, other: "Columns", seed: int = 0) -> dict[str, Estimate]:
        """Paired by case; none where the cases differ."""
        if self.cases != other.cases:
            return {}
        apart = {
            name: own - other.values[name]
            for name, own in self.values.items()
            if not name.partition("@")[0].endswith(GIVEN)
        }
        return dict(self._estimates(apart, partial(statistics.grouped_share, least=-1), seed))

    def _estimates(
        self, values: dict[str, np.ndarray], shares: Callable[..., Estimate], seed: int
    ) -> Iterator[tuple[str, Estimate]]:
        for name, own in values.items():
            known = np.isfinite(own)
            if known.any():
                mean = shares if name.startswith(SHARES) else statistics.grouped_mean
                yield name, mean(own[known], self.groups[known], seed)


SHARES = ("ndcg", "hitrate", "known_tracks", "repair_rate", "exact_recovery")
"""Measures that are never certain, though all windows agree."""
GIVEN = ("_original", "_corrupted")
"""Measures of what no model has changed."""


def told(columns: Sequence[Columns], seed: int = 0) -> dict[str, Estimate]:
    return {name: found for own in columns for name, found in own.estimates(seed).items()}


def in_file(estimates: dict[str, Estimate]) -> dict[str, dict[str, float]]:
    return {name: estimate.to_dict() for name, estimate in estimates.items()}


def scores(
    guesses: Sequence[Sequence[Any]], truths: Sequence[Sequence[Any]]
) -> dict[str, np.ndarray]:
    """Of three guesses for each window."""
    pairs = list(zip(guesses, truths, strict=True))
    return {
        "ndcg@3": np.array([playlists.ndcg(*pair) for pair in pairs]),
        "ndcg@3_any": np.array([playlists.ndcg(*pair, once=False) for pair in pairs]),
        "hitrate@3": np.array([playlists.hit(*pair) for pair in pairs]),
    }


def with_tracks(codes: dict[str, np.ndarray], tracks: dict[str, np.ndarray]) -> dict[str, Any]:
    """Scores of codes, and how often they tell the very track."""
    return codes | {"hitrate@3_tracks": tracks["hitrate@3"]}


def new_tracks(
    tokenizer: SemanticIdTokenizer, guesses: Sequence[Codes], playlist: Sequence[int]
) -> list[int | None]:
    """Of the tracks with each of these codes the most played that is not in the playlist yet."""
    found: list[int | None] = []
    for codes in guesses:
        new = (track for track in tokenizer.tracks(codes) if track not in {*playlist, *found})
        found.append(next(new, None))
    return found


def next_tracks(windows: Windows, rows: Sequence[Continued]) -> Columns:
    some, tokenizer = [row.window for row in rows], windows.tokenizer
    true_codes = [windows.triplets(window)[-NEXT:] for window in some]
    before, after = np.split(windows.tracks[some], [-NEXT], axis=1)  # (n, 47), (n, 3)

    def told(guesses: Sequence[Sequence[Codes]]) -> dict[str, np.ndarray]:
        pairs = zip(guesses, before.tolist(), strict=True)
        tracks = [new_tracks(tokenizer, *pair) for pair in pairs]
        return with_tracks(scores(guesses, true_codes), scores(tracks, after.tolist()))

    known = [
        [[bool(tokenizer.tracks(codes)) for codes in draw] for draw in row.draws] for row in rows
    ]  # (windows, draws, 3)
    single = [told(draw) for draw in zip(*(row.draws for row in rows), strict=True)]
    drawn = [
        [list(compress(*pair)) for pair in zip(row.draws, own, strict=True)]
        for row, own in zip(rows, known, strict=True)
    ]
    played = [windows.triplets(window)[:-NEXT] for window in some]
    values = {name: np.mean([own[name] for own in single], 0) for name in single[0]}
    for how, weight in VOTES.items():
        pairs = zip(drawn, played, strict=True)
        found = told([playlists.voted(*pair, weight) for pair in pairs])
        values |= {f"{name}_{how}": found[name] for name in COMBINED}
    values["hitrate@3_self"] = np.array([playlists.agreement(row.draws) for row in rows])
    values["known_tracks"] = np.mean(known, (1, 2))
    return of_windows(windows, some, values)


COMBINED = ("ndcg@3", "hitrate@3", "hitrate@3_tracks")
"""Measures of the vote of all draws."""
VOTES = {"combined": 0.0, "mixed": 4.0}
"""Kinds of votes: how many votes the window so far shares, for every one of a draw. What is best
was chosen on windows held out of training, with small denoisers."""


def of_windows(windows: Windows, some: Sequence[int], values: dict[str, np.ndarray]) -> Columns:
    return Columns(list(some), windows.groups[list(some)], values)


def simple(windows: Windows, some: Sequence[int]) -> dict[str, Columns]:
    """What simple ways to tell the next tracks come to, which know the codes or the tracks."""
    item = one_number(windows.tokenizer)
    codes = simply_told(windows, some, item)
    tracks = simply_told(windows, some, np.arange(len(item)), again=False)
    return {
        name: of_windows(windows, some, with_tracks(own, tracks[name]))
        for name, own in codes.items()
    }


def simply_told(
    windows: Windows, some: Sequence[int], item: np.ndarray, again: bool = True
) -> dict[str, dict[str, np.ndarray]]:
    """To the simple ways, tracks of one item are the same; `item` is (tracks,)."""
    played = [item[tracks] for tracks in windows.prepared.sequences("train")]
    pieces = [item[tracks] for tracks in windows.prepared.windows("train")[0]]
    own = item[windows.tracks[list(some)]]  # (n, 50)
    prefixes, truths = own[:, :-NEXT], own[:, -NEXT:].tolist()
    ways = playlists.predictors(played, pieces, item.max() + 1, again)
    return {name: scores(predict(prefixes), truths) for name, predict in ways.items()}


def bound_columns(windows: Windows, bound: Sequence[Bound]) -> Columns:
    some = range(len(bound))
    per_track = np.array([own.nats for own in bound]) / data.WINDOW
    last = np.array([own.next_nats for own in bound], dtype=float) / NEXT  # NaN where there is none
    tells = nats_among_sharers(windows)[windows.tracks[some]]  # (n, 50)
    values = {
        "bound_nats_per_token": per_track / windows.tokenizer.width,
        "bound_nats_per_track": per_track,
        "bound_nats_per_very_track": per_track + tells.mean(1),
        "next_bound_nats_per_track": last,
        "next_bound_nats_per_very_track": last + tells[:, -NEXT:].mean(1),
    }
    return of_windows(windows, some, values)


def nats_among_sharers(windows: Windows) -> np.ndarray:
    """(tracks,) what tells each track once its codes are known."""
    return nats_by_plays(windows.prepared, one_number(windows.tokenizer))


def nats_by_plays(prepared: data.Prepared, cell: np.ndarray) -> np.ndarray:
    """(tracks,) -log p(track | its cell), by plays to learn from and one more, for any may come."""
    played = np.concatenate(prepared.sequences("train"))
    plays = 1 + np.bincount(played, minlength=len(cell))
    return np.log(np.bincount(cell, plays)[cell] / plays)


def one_number(tokenizer: SemanticIdTokenizer) -> np.ndarray:
    """(tracks,) from 0 on; tracks that share their codes have the same."""
    return np.unique(tokenizer.codes, axis=0, return_inverse=True)[1].ravel()


def repairs(windows: Windows, known: Triplets, rows: Sequence[Repaired]) -> list[Columns]:
    """Of each corruption."""
    found = []
    for name in CORRUPTIONS:
        own = [row for row in rows if row.corruption == name]
        measured = [outcome(windows, known, row) for row in own]
        values = {
            f"{measure}@{name}": np.array([each[measure] for each in measured])
            for measure in measured[0]
        }
        groups = windows.groups[[row.window for row in own]]
        found.append(Columns([row.case for row in own], groups, values))
    return found


def outcome(windows: Windows, known: Triplets, row: Repaired) -> dict[str, float]:
    """All measures of one repair."""
    original = windows.triplets(row.window)
    corrupted = row.corrupted(original)
    after = [*corrupted[: row.place], row.drawn, *corrupted[row.place + 1 :]]
    states = {"original": original, "corrupted": corrupted, "repaired": after}
    audio = {state: known.audio_of(own) for state, own in states.items()}
    near = {state: playlists.smoothness_at(own, row.place) for state, own in audio.items()}
    if not np.isfinite(list(near.values())).all():
        near = dict.fromkeys(near, np.nan)  # compared where all three are known
    return {
        "repair_rate": playlists.repair_rate(row.drawn, corrupted[row.place]),
        "exact_recovery": float(row.drawn == original[row.place]),
        "known_tracks": float(row.drawn in known.place),
        **{f"smoothness_{state}": playlists.smoothness(own) for state, own in audio.items()},
        **{f"place_smoothness_{state}": value for state, value in near.items()},
        **{f"styles_{state}": float(len(known.tags_of(own))) for state, own in states.items()},
    }


def by_chance(windows: Windows, rows: Sequence[Repaired]) -> list[Repaired]:
    """The same, with a track of any training play at each place."""
    plays = np.concatenate(windows.prepared.sequences("train"))
    chosen = plays[np.random.default_rng(CHOICE).integers(len(plays), size=len(rows))]
    codes = windows.tokenizer.codes[chosen].tolist()
    return [replace(row, drawn=tuple(own)) for row, own in zip(rows, codes, strict=True)]


# ------------------------------------------------------------------ results


def next_tracks_result(
    run: Run,
    windows: Windows,
    rows: Sequence[Continued],
    bound: Sequence[Bound],
    seed: int = 0,
) -> tuple[dict[str, Any], list[Columns]]:
    own = next_tracks(windows, rows)
    columns = [own, bound_columns(windows, bound)]
    baselines = simple(windows, own.cases)
    found = results.result(
        run,
        "next-tracks",
        len(rows),
        told(columns, seed),
        groups=len(np.unique(own.groups)),
        draws=len(rows[0].draws),
        bound_n=len(bound),
        baselines={name: in_file(other.estimates(seed)) for name, other in baselines.items()},
        over_baselines={
            name: in_file(over_simple(own, other, seed)) for name, other in baselines.items()
        },
    )
    return found, columns


def over_simple(own: Columns, other: Columns, seed: int) -> dict[str, Estimate]:
    """How much more one draw, and the vote, tell than a simple way, which always says the same."""
    told = other.values | {
        f"{name}_{how}": other.values[name] for name in COMBINED for how in VOTES
    }
    same = replace(own, values={name: own.values[name] for name in told})
    return same.less(replace(other, values=told), seed)


def repair_result(
    run: Run, windows: Windows, rows: Sequence[Repaired], seed: int = 0
) -> tuple[dict[str, Any], list[Columns]]:
    known = windows.known()
    columns = repairs(windows, known, rows)
    chance = repairs(windows, known, by_chance(windows, rows))
    seen = sorted({row.window for row in rows})
    found = results.result(
        run,
        "repair",
        len(seen),
        told(columns, seed),
        groups=len(np.unique(windows.groups[seen])),
        left_out=seen[-1] + 1 - len(seen),
        baselines={"random": in_file(told(chance, seed))},
    )
    return found, columns


# ------------------------------------------------------------------ of what was drawn


@dataclass(frozen=True)
class Measured:
    """Numbers of one model."""

    results: list[dict[str, Any]]
    columns: dict[str, list[Columns]]
    """By experiment."""

    def less(self, first: "Measured", seed: int) -> dict[str, dict[str, Estimate]]:
        """All is about the same windows."""
        return {
            experiment: {
                name: estimate
                for a, b in zip(own, first.columns[experiment], strict=True)
                for name, estimate in a.less(b, seed).items()
            }
            for experiment, own in self.columns.items()
        }


def measuring(out: Path, asked: Asked) -> Callable[[Drawn], Measured]:
    return numbers


def numbers(own: Drawn) -> Measured:
    """All experiments on what was drawn from one model."""
    seed, windows = own.config.seed, Windows.of(own, dataset_of(own).tokenizer)
    found = {
        "next-tracks": next_tracks_result(own, windows, own.continued(), own.bounds(), seed),
        "repair": repair_result(own, windows, own.repaired(), seed),
    }
    told = [result for result, _ in found.values()]
    if kernel := own.kernel():
        told.append(noise.result(own, kernel, seed))
    return Measured(told, {name: columns for name, (_, columns) in found.items()})


# ------------------------------------------------------------------ of a model


def measure_next_tracks(model: Model, dataset: Dataset, asked: Asked) -> dict[str, Any]:
    windows = Windows.of(model.trained, dataset.tokenizer)
    some, draws = windows.first(asked.n or Amounts.samples), asked.draws or Amounts.draws
    rows = continued(model, windows, some, draws, asked.seed, asked.callback, **asked.options)
    bound = bounds_of(model, windows, windows.first(Amounts.bound), asked.seed)
    return next_tracks_result(model.trained, windows, rows, bound, asked.seed)[0]


def measure_repair(model: Model, dataset: Dataset, asked: Asked) -> dict[str, Any]:
    windows = Windows.of(model.trained, dataset.tokenizer)
    cases = corrupted(windows, windows.known(), asked.n or Amounts.redrafts)
    rows = repaired(model, windows, cases, asked.seed, asked.callback, **asked.options)
    return repair_result(model.trained, windows, rows, asked.seed)[0]


def check_asked(asked: Asked) -> None:
    check(not asked.fcd, "--fcd is for molecules, this is about playlists")
    check(asked.judge is None, "--judge is for stories, this is about playlists")
    check(asked.samples is None, "--samples is for molecules and stories, this is about playlists")


PLAYLISTS = domain.Domain(
    Drawn,
    Amounts,
    check_asked,
    draw,
    measuring,
    {"next-tracks": measure_next_tracks, "repair": measure_repair},
)
