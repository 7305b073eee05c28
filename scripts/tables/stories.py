"""Tables of stories: new ones as a judge reads them, and edits."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cells import ROOT, by_name, collapse, rows_of, table, where_told, with_interval

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


TABLES: dict[str, Callable[[], str]] = {
    "story-renew-search": lambda: judged("stories/renew-search"),
    "story-noise-search": lambda: judged("stories/noise-search"),
    "stories": new_stories,
    "edited-stories": edited_stories,
    "swept-stories": swept_stories,
    "story-collapse": lambda: collapse(
        "stories", {"vsdd": "VSDD", "d3pm-reinforce": "D3PM-Reinforce"}
    ),
}
