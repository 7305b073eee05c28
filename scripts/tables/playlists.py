"""Tables of playlists: next tracks, repair, and what noise knows of codes."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
from cells import ROOT, rows_of, table, where_told, with_interval

from redraft.evaluation.results import named
from redraft.evaluation.statistics import over_seeds
from redraft.methods import METHODS
from redraft.report.paper import beside

SEEDS = range(3)
HITS = ("known_tracks", "hitrate@3", "hitrate@3_combined")


def playlist_recipe() -> str:
    """States of runs on windows held out, and simple ways to tell the next tracks of these."""
    found = rows_of("playlists/recipe-search")
    titles = (
        "denoiser",
        "by",
        "of a run of",
        "bound, nats a token",
        "on learned ones",
        "hit, one draw, %",
        "hit, votes, %",
    )
    states = [
        (
            *(row["denoiser"], f"{row['steps']:,} steps", f"{row['budget_seconds']} s"),
            with_interval(row["bound_nats_per_token"], ".2f"),
            with_interval(row["learned"]["bound_nats_per_token"], ".2f"),
            with_interval(row["hitrate@3"], ".1f", 100),
            with_interval(row["hitrate@3_combined"], ".1f", 100),
        )
        for row in found["rows"]
    ]
    simple = [
        (name, "", "", "", "", with_interval(metrics["hitrate@3"], ".1f", 100), "")
        for name, metrics in found["baselines"]["lsh"].items()
    ]
    return table(titles, (*states, *simple))


def playlist_denoisers(search: str, what: str = "denoiser") -> str:
    """Small denoisers with and without what helps on playlists, on windows held out."""
    titles = (
        *(what, "by", "bound, nats a token", "tracks that exist, %"),
        *("hit, one draw, %", "hit, votes, %"),
    )
    rows = [
        (
            row["denoiser"],
            f"{row['steps']:,} steps",
            with_interval(row["bound_nats_per_token"], ".2f"),
            *(with_interval(row[name], ".1f", 100) for name in HITS),
        )
        for row in rows_of(f"playlists/{search}")["rows"]
    ]
    return table(titles, rows)


def by_run(experiment: str, *variants: str | None) -> dict[str, Any]:
    """An experiment's results of every method and seed, by their names in files."""
    found = {}
    for method, seed, variant in product(METHODS, SEEDS, variants):
        name = named(f"{experiment}-{method}", seed, variant)
        if (ROOT / "results/playlists" / name).is_file():
            stem = name.removesuffix(".json")
            found[stem.removeprefix(f"{experiment}-")] = rows_of(f"playlists/{stem}")
    return dict(sorted(found.items()))


NEXT_TRACKS: dict[str, tuple[str, str, float]] = {
    "bound, nats a track": ("bound_nats_per_track", ".2f", 1),
    "the very track": ("bound_nats_per_very_track", ".2f", 1),
    "tracks that exist, %": ("known_tracks", ".1f", 100),
    "hit, one draw, %": ("hitrate@3", ".1f", 100),
    "NDCG@3": ("ndcg@3", ".3f", 1),
    "hit, votes, %": ("hitrate@3_combined", ".1f", 100),
    "hit, the window votes too, %": ("hitrate@3_mixed", ".1f", 100),
    "another draw hit, %": ("hitrate@3_self", ".1f", 100),
    "the very track, one draw, %": ("hitrate@3_tracks", ".1f", 100),
    "the very track, votes, %": ("hitrate@3_tracks_combined", ".1f", 100),
}
"""Columns: the measure, and how it is written."""


def next_tracks(*variants: str | None) -> str:
    """Next tracks of unseen windows by all methods of a size, and by simple ways."""
    found = by_run("next-tracks", *variants)
    rows = [
        (
            run,
            f"{own['steps']:,}",
            papers(own) if {None, "paper"}.intersection(variants) else "",
            *measured(own["metrics"]),
        )
        for run, own in found.items()
    ]
    simple = list(found.values())[-1]["baselines"]
    rows += [(name, "", "", *measured(metrics)) for name, metrics in simple.items()]
    return where_told(("method", "steps", "the paper's hit, %", *NEXT_TRACKS), rows)


def papers(result: Mapping[str, Any]) -> str:
    """What the paper has; it tells one draw."""
    theirs = beside(result).get("hitrate@3")
    return "" if theirs is None else f"{100 * theirs:.1f}"


def measured(metrics: Mapping[str, dict[str, float]]) -> Iterator[str]:
    for name, form, scale in NEXT_TRACKS.values():
        yield with_interval(metrics[name], form, scale) if name in metrics else ""


def kinds_of_codes() -> str:
    """What codes tell of tracks, and what simple ways hit by codes; last, by tracks themselves."""
    found = rows_of("playlists/codes")["rows"]
    ways = list(found[0]["baselines"])
    titles = (
        *("hits are by", "different", "tracks each", "mean the very track, %"),
        *("nats to tell it", "came before in the window, %", *(f"{way}, %" for way in ways)),
    )
    rows = [
        (
            *(f"{own['codes']} codes", f"{own['triplets']:,}", f"{own['tracks_each']:.1f}"),
            with_interval(own["metrics"]["meant"], ".1f", 100),
            with_interval(own["metrics"]["sharers_nats"], ".2f"),
            with_interval(own["metrics"]["codes_again"], ".1f", 100),
            *(with_interval(own["baselines"][way]["hitrate@3"], ".1f", 100) for way in ways),
        )
        for own in found
    ]
    own = found[0]
    tracks = (
        *("track", f"{own['triplets'] * own['tracks_each']:,.0f}", "1.0", ""),
        with_interval(own["metrics"]["all_nats"], ".2f"),
        with_interval(own["metrics"]["tracks_again"], ".1f", 100),
        *(with_interval(own["baselines"][way]["hitrate@3_tracks"], ".1f", 100) for way in ways),
    )
    return table(titles, [*rows, tracks])


def over_training() -> str:
    """What differs from training to training: means over seeds, and VSDD less others."""
    names = [name for name in NEXT_TRACKS if name not in ("tracks that exist, %", "NDCG@3")]
    others = {"d3pm-uniform": "less uniform noise", "mdlm": "less masks"}
    found = by_run("next-tracks", None)

    def by_seed(method: str, name: str) -> np.ndarray:
        metric, _, scale = NEXT_TRACKS[name]
        runs = [found[named(method, seed).removesuffix(".json")] for seed in SEEDS]
        return np.array([scale * own["metrics"][metric]["value"] for own in runs])

    def cells(name: str) -> Iterator[str]:
        form = NEXT_TRACKS[name][1]
        own = by_seed("vsdd", name)
        theirs = [by_seed(method, name) for method in others]
        for values in (own, *theirs):
            yield with_interval(over_seeds(values)._asdict(), form)
        for values in theirs:
            yield with_interval(over_seeds(own - values)._asdict(), f"+{form}")

    titles = ("", "vsdd", *others, *(f"vsdd {less}" for less in others.values()))
    return table(titles, [(name, *cells(name)) for name in names])


LEARNED = {
    "lsh": ("small-seed1", "small-cool-seed1"),
    "kmeans": ("small-kmeans", "small-kmeans-cool"),
    "ranked": ("small-ranked", "small-ranked-cool"),
}
"""Variants of VSDD on each kind of codes: plain draws, and cooler ones."""


def learned_codes() -> str:
    """Next tracks by denoisers that differ in the codes of tracks."""
    rows = []
    for kind, variants in LEARNED.items():
        for variant in variants:
            own = rows_of(f"playlists/next-tracks-vsdd-{variant}")
            way = written(own.get("sampler", {}))
            rows.append((kind, f"{own['draws']}, {way}", *measured(own["metrics"])))
    return where_told(("codes", "draws", *NEXT_TRACKS), rows)


def repaired_playlists(variant: str | None) -> str:
    """What became of the corrupted tracks of unseen windows."""
    shares = {"repair_rate": "changed, %", "exact_recovery": "back, %"}
    states = {state: f"smooth there, {state}" for state in ("original", "corrupted", "repaired")}
    titles = ("corruption", "method", *shares.values(), *states.values())
    found = {run: own["metrics"] for run, own in by_run("repair", variant).items()}
    rows = [
        (
            *(kind, run),
            *(with_interval(metrics[f"{name}@{kind}"], ".0f", 100) for name in shares),
            *(with_interval(metrics[f"place_smoothness_{s}@{kind}"], ".3f") for s in states),
        )
        for kind in ("duplication", "transition", "energy")
        for run, metrics in found.items()
    ]
    return table(titles, rows)


def code_bits(run: str) -> str:
    """How likely a code becomes another, over uniform noise, by the bits that differ."""
    found = rows_of(f"playlists/code-bits-{run}")["metrics"]
    names = [name.removeprefix("ratio_").split("@") for name in found]
    bits, times = (sorted({int(number) for number in own}) for own in zip(*names, strict=True))
    rows = [(str(t), *(with_interval(found[f"ratio_{n}@{t}"], ".2f") for n in bits)) for t in times]
    return table(("t", *(f"{n} bits" if n > 1 else "1 bit" for n in bits)), rows)


def ways_to_draw(name: str) -> str:
    """Next tracks of held-out windows, by options of the sampler."""
    found = rows_of(f"playlists/{name}")
    titles = ("method", "drawn", "hit, one draw, %", "over plain draws, points", "hit, votes, %")
    rows = [
        (
            row["method"],
            written(row["way"]),
            with_interval(row["metrics"]["hitrate@3"], ".1f", 100),
            over_plain(row),
            with_interval(row["metrics"]["hitrate@3_combined"], ".1f", 100),
        )
        for row in found["rows"]
    ]
    simple = [
        (way, "", with_interval(metrics["hitrate@3"], ".1f", 100), "", "")
        for way, metrics in found.get("baselines", {}).items()
    ]
    rows.sort(key=lambda row: row[0])
    return table(titles, [*rows, *simple])


def told_of_time(found: str) -> str:
    """Next tracks of held-out windows, by what a denoiser is told of the time."""
    told = {
        "hit, one draw, %": "hitrate@3",
        "another draw hit, %": "hitrate@3_self",
        "hit, votes, %": "hitrate@3_combined",
        "tracks that exist, %": "known_tracks",
    }
    rows = [
        (
            *(row["method"], row["denoiser"], row["told"], f"{row['temperature']:g}"),
            *(with_interval(row["metrics"][name], ".1f", 100) for name in told.values()),
            over_plain(row),
        )
        for row in rows_of(f"playlists/{found}")["rows"]
    ]
    return table(
        ("method", "denoiser", "told", "temperature", *told, "over its first, points"), rows
    )


def over_plain(row: Mapping[str, Any]) -> str:
    """Where the run also drew in the plain way."""
    apart = row.get("over_plain") if row.get("way", True) else None
    return with_interval(apart["hitrate@3"], "+.1f", 100) if apart else ""


def written(way: Mapping[str, float]) -> str:
    """Options of the sampler."""
    return ", ".join(f"{option} {value:g}" for option, value in way.items()) or "plain"


TABLES: dict[str, Callable[[], str]] = {
    "playlist-recipe": playlist_recipe,
    "playlist-denoisers": lambda: playlist_denoisers("denoiser-search"),
    "playlist-neighbours": lambda: playlist_denoisers("neighbour-search", "neighbours"),
    "playlist-codes": kinds_of_codes,
    "playlist-codes-learned": learned_codes,
    "next-tracks-small": lambda: next_tracks("small"),
    "repaired-playlists-small": lambda: repaired_playlists("small"),
    "playlist-ways": lambda: ways_to_draw("ways-small"),
    "code-bits": lambda: code_bits("vsdd-small"),
    "next-tracks": lambda: next_tracks(None),
    "next-tracks-small-unaided": lambda: next_tracks("small-unaided"),
    "playlist-told": lambda: told_of_time("told-t"),
    "playlist-told-large": lambda: told_of_time("told-t-large"),
    "next-tracks-seeds": over_training,
    "next-tracks-long": lambda: next_tracks("long"),
    "next-tracks-ranked": lambda: next_tracks("ranked"),
    "next-tracks-paper": lambda: next_tracks("paper", "paper-confusion"),
    "repaired-playlists": lambda: repaired_playlists(None),
    "playlist-ways-large": lambda: ways_to_draw("ways"),
    "code-bits-large": lambda: code_bits("vsdd"),
}
