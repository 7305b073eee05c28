"""What the README shows of all domains: each method by one number, and repair by two."""

from collections.abc import Callable, Iterator

from cells import ROOT, rows_of, table, where_told, with_interval
from molecules import REPAIRERS

from redraft.methods import METHODS
from redraft.report.paper import beside

MEASURES: dict[str, tuple[str, str, float]] = {
    "valid molecules, %": ("molecules/generation", "validity", 100),
    "perplexity of stories": ("stories/generation", "judge_perplexity", 1),
    "next tracks hit, %": ("playlists/next-tracks", "hitrate@3", 100),
}
"""Columns: the experiment, the metric, and its scale."""


def headline() -> str:
    """All methods at the paper's size, the first run of each; the paper's numbers beside them."""
    titles = [title for measure in MEASURES for title in (measure, "the paper's")]
    rows = [
        [f"`{method}`", *(cell for own in MEASURES.values() for cell in cells(method, *own))]
        for method in METHODS
    ]
    return where_told(["method", *titles], rows)


def cells(method: str, experiment: str, metric: str, scale: float) -> Iterator[str]:
    """Ours and the paper's; empty where there is none, or none that another judge gave."""
    if not (ROOT / "results" / f"{experiment}-{method}.json").is_file():
        yield from ("", "")
        return
    found = rows_of(f"{experiment}-{method}")
    theirs = beside(found).get(metric)
    yield with_interval(found["metrics"][metric], ".1f", scale)
    yield "" if theirs is None else f"{scale * theirs:.1f}"


def repaired() -> str:
    """Broken molecules that come back the same, or only valid, by their number of edits."""
    found = rows_of("molecules/repair-vsdd-shipped")["by_edits"]
    titles = {"the same": "exact_recovery", "valid": "repair_rate"}
    repairers = {"model": "redraft"} | REPAIRERS
    return table(
        ("repaired by", *(f"{title}, %: {n}" for title in titles for n in edits(found))),
        (
            (
                title,
                *(
                    with_interval(part["metrics"][name][metric], ".0f", 100)
                    for metric in titles.values()
                    for part in found.values()
                ),
            )
            for name, title in repairers.items()
        ),
    )


def edits(numbers: dict[str, object]) -> list[str]:
    return [f"{n} edit" if n == "1" else f"{n} edits" for n in numbers]


TABLES: dict[str, Callable[[], str]] = {"headline": headline, "repair-headline": repaired}
