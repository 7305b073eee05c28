"""Tables of README.md and docs/ from the files under results/: what stands between their marks.

python scripts/tables.py            rewrite them
python scripts/tables.py --check    complain where one is out of date
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from redraft.evaluation.results import named
from redraft.evaluation.statistics import Estimate, difference
from redraft.report.paper import NUMBERS

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "docs/experiments.md")


def rows_of(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(titles), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def where_told(titles: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    """The same without columns in which nothing stands."""
    told = [any(column) for column in zip(*rows, strict=True)]
    return table(compress(titles, told), (compress(row, told) for row in rows))


def train(name: str) -> str:
    """Steps of training, one row a method."""
    titles = ("method", "ms a step", "over MDLM", "sequences/s", "of a matrix product", "GB")
    cells = (
        (
            row["method"],
            f"{row['value']:.1f}",
            f"{row['ratio_to_mdlm']:.2f}",
            f"{row['sequences_per_second']:,.0f}",
            f"{100 * row['mfu']:.0f} %",
            f"{row['peak_gb']:.0f}" if "peak_gb" in row else "",
        )
        for row in rows_of(name)
    )
    return table(titles, cells)


def parts(name: str) -> str:
    """Milliseconds by part; FLDD's noise is a network of its own, so that its parts are others."""
    rows = [row for row in rows_of(name) if row["parts_ms"]["posterior + bound"] >= 0]
    names = list(rows[0]["parts_ms"])
    cells = ((r["method"], *(f"{max(r['parts_ms'][n], 0):.2f}" for n in names)) for r in rows)
    return table(("ms", *names), cells)


def sample(name: str) -> str:
    titles = ("method", "sequences/s", "steps", "batch")
    cells = (
        (row["method"], f"{row['value']:,.0f}", str(row["steps"]), f"at most {row['batch']:,}")
        for row in rows_of(name)
    )
    return table(titles, cells)


def tiny_bounds() -> str:
    """What the tiny recipes reach, one row a method."""
    titles = ("method", "bound at the start", "bound at the end", "valid, %")
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (ROOT / "results/molecules").glob("bound-*-tiny.json")
    ]
    cells = (
        (
            result["method"],
            f"{result['metrics']['bound_nats_per_token_start']['value']:.2f}",
            with_interval(result["metrics"]["bound_nats_per_token"], ".3f"),
            with_interval(result["metrics"]["validity"], ".1f", 100),
        )
        for result in sorted(found, key=lambda result: result["method"])
    )
    return table(titles, cells)


def search(name: str) -> str:
    """What was tried, in order."""
    titles = ("method", "optimizer", "options", "steps", "bound", "valid, %")
    cells = (
        (
            *(row["method"], row["optimizer"], options(row), f"{row['steps']:,}"),
            *(f"{row['bound_end']:.3f}", with_interval(row["validity"], ".1f", 100)),
        )
        for row in rows_of(name)["rows"]
    )
    return table(titles, cells)


def by_seed(name: str) -> str:
    """What was tried with several seeds."""
    titles = ("method", "options", "bound", "valid, %, by seed")
    cells = (
        (
            *(row["method"], ", ".join(row["options"])),
            ", ".join(f"{bound:.3f}" for bound in row["bound_end"]),
            ", ".join(with_interval(share, ".1f", 100) for share in row["validity"]),
        )
        for row in rows_of(name)["rows"]
    )
    return table(titles, cells)


def strides() -> str:
    """Samples in few steps, by where their times lie."""
    titles = ("model", "steps", "times, u = k/n", "valid, %")
    cells = (
        (
            *(row["model"], str(row["steps"]), row["times"]),
            with_interval(row["validity"], ".1f", 100),
        )
        for row in rows_of("molecules/strides")["rows"]
    )
    return table(titles, cells)


def renew_search() -> str:
    """Samples by which steps were renewed."""
    titles = ("model", "steps", "renewed", "valid, %", "diversity", "FCD")
    cells = (
        (
            *(row["model"], str(row["steps"]), row["renewed"]),
            with_interval(row["validity"], ".1f", 100),
            with_interval(row["diversity"], ".3f") if "diversity" in row else "",
            with_interval(row["fcd"], ".2f") if "fcd" in row else "",
        )
        for row in rows_of("molecules/renew-search")["rows"]
    )
    return table(titles, cells)


def infill_search() -> str:
    """Hidden tokens that came back, by the time that the denoiser was told."""
    titles = ("of", "hidden", "told", "tokens back, %", "all back, %", "valid, %")
    names = ("overlap", "exact", "validity")
    cells = (
        (
            *(row["of"], str(row["hidden"]), row["told"]),
            *(f"{100 * row[name]:.1f}" if name in row else "" for name in names),
        )
        for row in rows_of("molecules/infill-search")["rows"]
    )
    return table(titles, cells)


def judged(name: str) -> str:
    """Small models of stories, by how samples were drawn."""
    titles = ("model", "options", "drawn", "bound", "perplexity")
    titles += ("Distinct-1", "Distinct-2", "word entropy", "openings")
    rows = [
        (
            *(row["model"], row.get("options", ""), row["drawn"]),
            f"{row['bound_end']:.2f}" if "bound_end" in row else "",
            with_interval(row["judge_perplexity"], ".1f"),
            *(with_interval(row[f"distinct_{n}"], ".3f") for n in (1, 2)),
            *(with_interval(row["unigram_entropy"], ".2f"), f"{row['openings']:.2f}"),
        )
        for row in rows_of(name)["rows"]
    ]
    return where_told(titles, rows)


def renewal(folder: Path = ROOT / "results/molecules") -> str:
    """Samples of full runs by the share of their steps that was renewed."""
    titles = ("model", "renewed, %", "valid, %", "unique, %", "new, %", "diversity", "FCD")
    cells = (
        (
            *(path.stem.removeprefix("renewal-"), setting),
            *(
                with_interval(found[f"{name}@{setting}"], ".1f", 100)
                for name in ("validity", "uniqueness", "novelty")
            ),
            with_interval(found[f"diversity@{setting}"], ".3f"),
            with_interval(found[f"fcd@{setting}"], ".2f"),
        )
        for path in sorted(folder.glob("renewal-*.json"))
        for found in [json.loads(path.read_text(encoding="utf-8"))["metrics"]]
        for setting in (name.split("@")[1] for name in found if name.startswith("validity@"))
    )
    return table(titles, cells)


def leader_search() -> str:
    titles = ("method", "options", "bound", "valid, %", "row entropy over uniform's", "L_ref")
    cells = (
        (
            *(row["method"], options(row)),
            *(f"{row['bound_end']:.3f}", with_interval(row["validity"], ".1f", 100)),
            f"{row['entropy_share']:.3f}",
            f"{row['reference_loss']:.2f}" if row["reference_loss"] else "",
        )
        for row in rows_of("molecules/leader-search")["rows"]
    )
    return table(titles, cells)


def options(row: dict) -> str:
    given = [f"{name} {value}" for name, value in row["options"].items()]
    return ", ".join(given + row.get("notes", []))


def methods(*variants: str | None, folder: Path = ROOT / "results/molecules") -> str:
    """Generation and re-drafting of all methods that were measured so, seed by seed."""
    levels = ("20", "40", "60")
    titles = (
        *("method", "steps", "the paper's valid, %", "valid, %", "unique, %", "new, %"),
        *("diversity", "FCD", *(f"re-drafted at {t} %" for t in levels)),
    )
    theirs = NUMBERS["molecules", "generation"]
    rows = []
    for path in sorted(folder.glob("generation-*.json"), key=lambda path: path.stem):
        made = json.loads(path.read_text(encoding="utf-8"))
        method, seed = made["method"], made["seed"]
        if path.name not in (named(f"generation-{method}", seed, name) for name in variants):
            continue
        twin = folder / path.name.replace("generation", "redrafting", 1)
        again = json.loads(twin.read_text(encoding="utf-8"))["metrics"]
        found = made["metrics"]
        shares = (found[name] for name in ("validity", "uniqueness", "novelty"))
        rows.append(
            (
                *(path.stem.removeprefix("generation-"), f"{made['steps']:,}"),
                f"{100 * theirs[method]['validity']:.1f}" if method in theirs else "",
                *(with_interval(share, ".1f", 100) for share in shares),
                with_interval(found["diversity"], ".3f"),
                with_interval(found["fcd"], ".2f") if "fcd" in found else "",
                *(with_interval(again[f"validity@{t}"], ".1f", 100) for t in levels),
            )
        )
    return where_told(titles, rows)


TOLD = {
    "judge_perplexity": ("perplexity", ".1f", 1),
    "distinct_1": ("Distinct-1", ".3f", 1),
    "distinct_2": ("Distinct-2", ".3f", 1),
    "unigram_entropy": ("word entropy", ".2f", 1),
    "copied": ("copied, %", ".1f", 100),
    "bound_nats_per_char": ("bound, nats a character", ".3f", 1),
}
"""Measures of new stories: what they are called, and how they are written."""
EDITED = {
    "entity-swap": ("exact_repair", "names repaired, %: the paper's five"),
    "entity-swap-large": ("exact_repair", "200 unseen"),
    "span-removal": ("token_overlap", "spans, % of tokens: the paper's three"),
    "span-removal-large": ("token_overlap", "200 unseen"),
}


def told(metrics: Mapping[str, Any], names: Iterable[str], at: str = "") -> list[str]:
    """Those that there are, each with its interval."""
    return [
        with_interval(metrics[name + at], *TOLD[name][1:]) if name + at in metrics else ""
        for name in names
    ]


def by_name(paths: Iterable[Path]) -> list[Path]:
    """A method before its variants."""
    return sorted(paths, key=lambda path: path.stem)


def new_stories(folder: Path = ROOT / "results/stories") -> str:
    """Stories of all methods, with what they are to be read beside."""
    paths = by_name(folder.glob("generation-*.json"))
    found = {
        path.stem.removeprefix("generation-"): rows_of(f"stories/{path.stem}") for path in paths
    }
    scale = max((own["scale"] for own in found.values()), key=len)
    ends = [(f"{end} stories", "", *told(own, TOLD)) for end, own in scale.items() if end != "n"]
    rows = [(m, f"{own['steps']:,}", *told(own["metrics"], TOLD)) for m, own in found.items()]
    return table(("stories", "steps", *(title for title, _, _ in TOLD.values())), rows + ends)


def edited_stories(folder: Path = ROOT / "results/stories") -> str:
    """What came back of names and spans."""
    methods = [
        p.stem.removeprefix("entity-swap-large-") for p in folder.glob("entity-swap-large-*")
    ]
    rows = []
    for method in sorted(methods):
        metrics = {name: rows_of(f"stories/{name}-{method}")["metrics"] for name in EDITED}
        shares = (metrics[name][measure] for name, (measure, _) in EDITED.items())
        rows.append((method, *(with_interval(share, ".0f", 100) for share in shares)))
    return table(("method", *(title for _, title in EDITED.values())), rows)


def swept_stories(folder: Path = ROOT / "results/stories") -> str:
    """Fewer stories of each, drawn in other ways."""
    names = ("judge_perplexity", "distinct_1", "distinct_2", "unigram_entropy")
    ways = {
        "steps": "{} steps",
        "renewal": "last {} % renewed",
        "temperature": "temperature, %: {}",
    }
    rows, real = [], {}
    for way, title in ways.items():
        for path in by_name(folder.glob(f"{way}-*.json")):
            own = rows_of(f"stories/{path.stem}")
            real = own["scale"]
            settings = (name.split("@")[1] for name in own["metrics"] if name.startswith(names[0]))
            rows += [
                (
                    path.stem.removeprefix(f"{way}-"),
                    title.format(n),
                    *told(own["metrics"], names, f"@{n}"),
                )
                for n in settings
            ]
    rows.append((f"{real['n']} real stories", "", *told(real["real"], names)))
    return table(("stories", "drawn", *(TOLD[name][0] for name in names)), rows)


def playlist_recipe() -> str:
    """States of runs on windows held out, and simple ways to tell the next tracks of these."""
    found = rows_of("playlists/recipe-search")
    titles = (
        "by",
        "of a run of",
        "bound, nats a token",
        "on learned ones",
        "hit, one draw, %",
        "hit, votes, %",
    )
    states = [
        (
            *(f"{row['steps']:,} steps", f"{row['budget_seconds']} s"),
            with_interval(row["bound_nats_per_token"], ".2f"),
            with_interval(row["learned"]["bound_nats_per_token"], ".2f"),
            with_interval(row["hitrate@3"], ".1f", 100),
            with_interval(row["hitrate@3_combined"], ".1f", 100),
        )
        for row in found["rows"]
    ]
    simple = [
        (name, "", "", "", with_interval(metrics["hitrate@3"], ".1f", 100), "")
        for name, metrics in found["baselines"]["lsh"].items()
    ]
    return table(titles, (*states, *simple))


def playlist_denoisers() -> str:
    """Small denoisers with and without what helps on playlists, on windows held out."""
    titles = (
        *("denoiser", "by", "bound, nats a token", "tracks that exist, %"),
        *("hit, one draw, %", "hit, votes, %"),
    )
    rows = [
        (
            row["denoiser"],
            f"{row['steps']:,} steps",
            with_interval(row["bound_nats_per_token"], ".2f"),
            *(with_interval(row[name], ".1f", 100) for name in HITS),
        )
        for row in rows_of("playlists/denoiser-search")["rows"]
    ]
    return table(titles, rows)


HITS = ("known_tracks", "hitrate@3", "hitrate@3_combined")


def next_tracks(variant: str, folder: Path = ROOT / "results/playlists") -> str:
    """Next tracks of unseen windows by all methods of a size, and by simple ways."""
    titles = (
        *("method", "steps", "bound, nats a track", "tracks that exist, %"),
        *("hit, one draw, %", "hit, votes, %"),
    )
    found = {
        path.stem.removeprefix("next-tracks-"): rows_of(f"playlists/{path.stem}")
        for path in by_name(folder.glob(f"next-tracks-*{variant}.json"))
    }
    rows = [
        (
            *(method, f"{own['steps']:,}"),
            with_interval(own["metrics"]["bound_nats_per_track"], ".2f"),
            *(with_interval(own["metrics"][name], ".1f", 100) for name in HITS),
        )
        for method, own in found.items()
    ]
    simple = next(iter(found.values()))["baselines"]
    return table(
        titles,
        rows
        + [
            (name, "", "", "", with_interval(metrics["hitrate@3"], ".1f", 100), "")
            for name, metrics in simple.items()
        ],
    )


def repaired_playlists(variant: str, folder: Path = ROOT / "results/playlists") -> str:
    """What became of the corrupted tracks of unseen windows."""
    shares = {"repair_rate": "changed, %", "exact_recovery": "back, %"}
    states = {state: f"smooth there, {state}" for state in ("original", "corrupted", "repaired")}
    titles = ("corruption", "method", *shares.values(), *states.values())
    found = {
        path.stem.removeprefix("repair-"): rows_of(f"playlists/{path.stem}")["metrics"]
        for path in by_name(folder.glob(f"repair-*{variant}.json"))
    }
    rows = [
        (
            *(kind, method),
            *(with_interval(metrics[f"{name}@{kind}"], ".0f", 100) for name in shares),
            *(with_interval(metrics[f"place_smoothness_{s}@{kind}"], ".3f") for s in states),
        )
        for kind in ("duplication", "transition", "energy")
        for method, metrics in found.items()
    ]
    return table(titles, rows)


def leads(sampled: Mapping[str, tuple[str, str]]) -> str:
    """Valid samples of VSDD less those of others, in points: experiment and metric, by seed."""
    others = {"d3pm-uniform": "less uniform noise", "mdlm": "less masks"}
    rows = []
    for title, (experiment, metric) in sampled.items():
        for seed in (0, 1):
            own, *theirs = (hits(experiment, metric, m, seed) for m in ("vsdd", *others))
            if len(own):
                told = (in_percent(difference(own, x, seed)) if len(x) else "" for x in theirs)
                rows.append((title, str(seed), f"{100 * own.mean():.1f}", *told))
    return table(("samples", "seed", "VSDD valid, %", *others.values()), rows)


def hits(experiment: str, metric: str, method: str, seed: int) -> np.ndarray:
    """1 for every sample that has a property, 0 for every other, in no order; none if unknown."""
    path = ROOT / "results/molecules" / named(f"{experiment}-{method}", seed)
    if not path.is_file():
        return np.zeros(0)
    found = json.loads(path.read_text(encoding="utf-8"))
    n, share = found["n"], found["metrics"][metric]["value"]
    return (np.arange(n) < round(n * share)).astype(float)


def in_percent(apart: Estimate) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * x for x in apart))


def collapse(domain: str, titles: Mapping[str, str]) -> str:
    """What the most frequent tokens become, by run."""
    found = {name: rows_of(f"{domain}/noise-{name}")["collapse"] for name in titles}
    first, *_ = found.values()
    cells = (
        (
            *(f"`{row['token']}`", f"{100 * row['share']:.0f}"),
            *(
                ", ".join(f"`{token}` {p:.2f}" for token, p in rows[i]["becomes"][:3] if p >= 0.005)
                for rows in found.values()
            ),
        )
        for i, row in enumerate(first)
    )
    return table(("token", "of all, %", *titles.values()), cells)


REPAIRERS = {
    "any_edit": "blind search, one edit",
    "close_brackets": "rules: close brackets and rings",
    "through_selfies": "rules, then SELFIES and back",
}
"""What the baselines of the repair experiment are called; a model by its method."""


def repairs(folder: Path = ROOT / "results/molecules") -> str:
    """Broken molecules by their number of edits, one row a repairer, as far as measured."""
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("repair-*.json"))
    ]
    rows: dict[tuple[str, str], tuple[int, dict]] = {}  # baselines as they stand in the first file
    for result in found:
        for edits, part in result.get("by_edits", {}).items():
            for name, metrics in part["metrics"].items():
                title = REPAIRERS.get(name) or result["method"]
                rows.setdefault((edits, title), (part["n"], metrics))
    titles = ("edits", "repairer", "n", "valid, %", "the same, %", "edit distance", "Tanimoto")
    cells = (
        (
            *(edits, name, str(n)),
            with_interval(metrics["repair_rate"], ".1f", 100),
            with_interval(metrics["exact_recovery"], ".1f", 100),
            with_interval(metrics["edit_distance"], ".2f") if "edit_distance" in metrics else "",
            with_interval(metrics["tanimoto"], ".2f"),
        )
        for (edits, name), (n, metrics) in sorted(rows.items(), key=lambda row: row[0][0])
    )
    return table(titles, cells) if rows else "Not measured yet."


def with_interval(metric: dict[str, float], form: str, scale: float = 1) -> str:
    value, low, high = (format(scale * metric[key], form) for key in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


TABLES: dict[str, Callable[[], str]] = {
    "tiny-bounds": tiny_bounds,
    "recipe-search": lambda: search("molecules/recipe-search"),
    "leader-search": leader_search,
    "methods": lambda: methods(None, "symmetric", "semantic-start"),
    "methods-without-recall": lambda: methods("without-recall"),
    "paper-size-search": lambda: search("molecules/paper-size-search"),
    "denoiser-search": lambda: by_seed("molecules/denoiser-search"),
    "kernel-search": lambda: by_seed("molecules/kernel-search"),
    "reinforce-search": lambda: by_seed("molecules/reinforce-search"),
    "fldd-search": lambda: by_seed("molecules/fldd-search"),
    "strides": strides,
    "infill-search": infill_search,
    "renew-search": renew_search,
    "renew-kernel-search": lambda: by_seed("molecules/renew-kernel-search"),
    "renewal": renewal,
    "story-renew-search": lambda: judged("stories/renew-search"),
    "story-noise-search": lambda: judged("stories/noise-search"),
    "stories": new_stories,
    "edited-stories": edited_stories,
    "swept-stories": swept_stories,
    "playlist-recipe": playlist_recipe,
    "playlist-denoisers": playlist_denoisers,
    "next-tracks-small": lambda: next_tracks("small"),
    "repaired-playlists-small": lambda: repaired_playlists("small"),
    "leads": lambda: leads(
        {
            "50 steps": ("generation", "validity"),
            **{f"{n} steps": ("steps", f"validity@{n}") for n in (5, 10, 25)},
            "50 steps, half of them renewed": ("renewal", "validity@50"),
        }
    ),
    "collapse": lambda: collapse(
        "molecules",
        {
            "d3pm-confusion-symmetric": "symmetric confusion",
            "vsdd-seed1": "VSDD, which begins there",
            "d3pm-reinforce": "D3PM-Reinforce",
        },
    ),
    "story-collapse": lambda: collapse("stories", {"vsdd": "VSDD"}),
    "repair-molecules": repairs,
    "train-tiny": lambda: train("bench/train-tiny"),
    "train-molecules": lambda: train("bench/train-molecules"),
    "parts-molecules": lambda: parts("bench/train-molecules"),
    "train-stories": lambda: train("bench/train-stories"),
    "parts-stories": lambda: parts("bench/train-stories"),
    "sample-molecules": lambda: sample("bench/sample-molecules"),
}


def filled(text: str) -> str:
    """The page with every marked table as the results have it."""
    return re.sub(
        r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def main(check: bool) -> int:
    stale = []
    for page in PAGES:
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        if filled(text) != text:
            stale.append(page)
            if not check:
                path.write_text(filled(text), encoding="utf-8")
    if check and stale:
        print(f"out of date: {', '.join(stale)}; run python scripts/tables.py", file=sys.stderr)
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
