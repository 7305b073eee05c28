"""Results as tables of a page: intervals, the paper's numbers beside ours, and differences."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from redraft.config import Config
from redraft.evaluation.statistics import over_seeds
from redraft.report import paper
from redraft.report.markup import Html, joined, table, tag
from redraft.report.measures import Measure, measure
from redraft.report.runs import Comparison, Reported, Told, title_of
from redraft.report.style import look
from redraft.report.tables import is_ratio

UNITS = {
    "generation": "samples",
    "steps": "samples by each number of steps",
    "renewal": "samples with each share renewed",
    "temperature": "samples at each temperature",
    "redrafting": "molecules at each level of noise",
    "noise": "tokens",
    "next-tracks": "playlists",
    "entity-swap": "stories",
    "entity-swap-large": "stories",
    "span-removal": "stories",
    "span-removal-large": "stories",
}
"""What n counts, and what intervals are over; elsewhere it is what the domain is about."""
INTERVALS = "95 % intervals are over {units}, for one trained model: training runs differ more."

HEADLINES = ("generation", "next-tracks")
"""What a domain is measured by first of all."""
TITLES = {
    "generation": "What is generated.",
    "next-tracks": "The last three tracks of unseen playlists.",
    "redrafting": "Unseen molecules, noised and brought back.",
    "repair": "What was broken, and repaired.",
    "steps": "By fewer sampling steps.",
    "renewal": "With the last share of the steps renewed.",
    "temperature": "At lower temperatures.",
    "entity-swap": "A wrong name in the paper's stories, drawn anew.",
    "entity-swap-large": "A wrong name in unseen stories, drawn anew.",
    "span-removal": "A span of the paper's stories, drawn anew.",
    "span-removal-large": "A span of unseen stories, drawn anew.",
    "noise": "The learned noise in numbers.",
}
LEVELS = {
    "redrafting": "noise, % of T",
    "steps": "steps",
    "renewal": "renewed, %",
    "temperature": "temperature, %",
    "repair": "broken by",
}
"""Experiments whose measures all have a level, the N of `validity@N`, and what it is."""

MOST, SLIM = 6, 4
"""Measures of a table, and up to how many have their intervals beside them and not below."""

T = TypeVar("T")
Cell = Callable[[str, Mapping[str, float]], Html]
"""A metric by its name and interval."""


class Row(NamedTuple):
    name: str
    level: str
    metrics: Mapping[str, Mapping[str, float]]
    papers: Mapping[str, float] = {}


def measured(told: Told, experiment: str) -> Html:
    """The numbers of an experiment, the paper's beside them, and what they mean."""
    runs = told.having(experiment)
    if not runs:
        return Html()
    rows = list(named_rows(runs, experiment))
    names = {name for row in rows for name in row.metrics}
    with_paper = any(name in names for row in rows for name in row.papers)
    note = " ".join(remarks(told, experiment, with_paper))
    title = TITLES.get(experiment, experiment)
    return joined([by_measure(rows, experiment, with_ends, title, note), meanings(names)])


def by_measure(
    found: Sequence[Row], experiment: str, cell: Cell, title: str, note: str = ""
) -> Html:
    """A row a run (and level, where the experiment has some), a column a measure.

    However many runs there are, it is no wider for them; many measures are in several tables.
    """
    level = LEVELS.get(experiment)
    rows = [own for row in found for own in (by_level(row) if level else [row])]
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))
    figures, told = [], [title, note]
    for some in parts(names, MOST):
        figures.append(grid(rows, level, some, cell, *told))
        told = [f"{title} Further measures."]
    return joined(figures)


def grid(
    found: Sequence[Row], level: str | None, names: Sequence[str], cell: Cell, *told: str
) -> Html:
    """Some of the measures, of the rows that have any of them."""
    rows = [row for row in found if not row.metrics.keys().isdisjoint(names)]
    papers = {name for row in rows for name in row.papers}
    head = ["run", level] if level else ["run"]
    cells = [[row.name, row.level][: len(head)] for row in rows]
    for name in names:
        head += [measure(name).head(), *["paper"] * (name in papers)]
        for own, row in zip(cells, rows, strict=True):
            own += [cell(name, row.metrics[name]) if name in row.metrics else ""]
            own += [paper_cell(measure(name), row.papers.get(name))] * (name in papers)
    return table(head, cells, *told, kind="table slim" if len(names) <= SLIM else "table")


def parts(names: Sequence[T], most: int) -> list[Sequence[T]]:
    """At most so many in each, and about as many in all.

    >>> parts("abcdefgh", 6), parts("", 6)
    (['abcd', 'efgh'], [])
    """
    n = -(-len(names) // most) or 1
    size = -(-len(names) // n) or 1
    return [names[i : i + size] for i in range(0, len(names), size)]


def named_rows(runs: Sequence[Reported], experiment: str) -> Iterator[Row]:
    """Runs, their means where a recipe has several seeds, and what else they were held against."""
    for run in runs:
        result = run.results[experiment]
        yield Row(run.name, "", result["metrics"], paper.beside(result))
    yield from means(runs, experiment)
    beside = runs[0].results[experiment]
    others = beside.get("baselines", {}) | beside.get("scale", {})
    yield from (Row(f"({name})", "", own) for name, own in others.items() if name != "n")


def by_level(row: Row) -> Iterator[Row]:
    """One for each level of a row."""
    levels = dict.fromkeys(name.partition("@")[2] for name in row.metrics)
    for level in sorted(levels, key=lambda text: int(text) if text.isdigit() else 0):
        yield Row(row.name, level, at(level, row.metrics), at(level, row.papers))


def at(level: str, values: Mapping[str, T]) -> dict[str, T]:
    """Those of one level, by the measure alone."""
    return {
        name: x
        for (name, _, own), x in ((key.partition("@"), values[key]) for key in values)
        if own == level
    }


def means(runs: Sequence[Reported], experiment: str) -> Iterator[Row]:
    """Over runs that differ in nothing but their seeds, with Student's interval."""
    groups: dict[Config, list[Reported]] = {}
    for run in runs:
        groups.setdefault(replace(run.config, seed=0), []).append(run)
    several = Counter(own[0].kind for own in groups.values())
    for own in groups.values():
        if len({run.config.seed for run in own}) > 1:
            found = [run.results[experiment]["metrics"] for run in own]
            shared = [name for name in found[0] if all(name in metrics for metrics in found)]
            mean = {name: mean_of(name, [m[name]["value"] for m in found]) for name in shared}
            first = own[0]
            recipe = f", {title_of(first)}" if several[first.kind] > 1 else ""
            title = f"{look(first.kind).name}{recipe}: mean of {len(own)} seeds"
            yield Row(title, "", mean)


def mean_of(name: str, values: Sequence[float]) -> dict[str, float]:
    mean = over_seeds(values)
    return (mean.within(0, 1) if measure(name).percent else mean).to_dict()


def with_ends(name: str, metric: Mapping[str, float]) -> Html:
    """A number and its interval."""
    value, ends = measure(name).interval(metric)
    return tag("td", tag("span", value), " ", tag("small", ends))


def apart(name: str, metric: Mapping[str, float]) -> Html:
    """A difference, or a ratio; bold where its interval leaves out that there is none."""
    ratio = is_ratio(name)
    value, ends = measure(name).interval(metric, "" if ratio else "+")
    sure = not metric["low"] <= (1 if ratio else 0) <= metric["high"]
    return tag("td", tag("b" if sure else "span", value), " ", tag("small", ends))


def paper_cell(kind: Measure, value: float | None) -> Html:
    return tag("td", "" if value is None else kind.value(value), class_="paper")


def remarks(told: Told, experiment: str, with_paper: bool) -> Iterator[str]:
    """What one must know to read the numbers."""
    found = told.results(experiment)
    units = UNITS.get(experiment, told.domain)
    counts = dict.fromkeys(f"{own['n']:,}" for own in found if isinstance(own["n"], int))
    yield f"n = {' or '.join(counts)} {units}." if counts else ""
    judges = sorted({own["judge"] for own in found if "judge" in own})
    if judges:
        yield f"The judge is {' or '.join(judges)}; no other judge's numbers can be compared."
    if with_paper:
        own = f": {paper.CONDITIONS[told.domain]}" if experiment in HEADLINES else ""
        yield f"The paper's numbers are of other data and another budget{own}."
    grouped = "groups of playlists that belong together"
    over = grouped if any("groups" in own for own in found) else units.partition(" ")[0]
    yield INTERVALS.format(units=over)


def meanings(names: Iterable[str]) -> Html:
    kinds = {measure(name) for name in names if measure(name).meaning}
    rows = [
        joined([tag("dt", kind.title), tag("dd", kind.meaning)])
        for kind in sorted(kinds, key=lambda kind: kind.title.lower())
    ]
    return tag("details", tag("summary", "What the columns mean"), tag("dl", *rows))


PAIRS = (
    "Pairs are compared wherever both met the same input; what is generated from nothing has no "
    "pairs. Bold: the 95 % interval leaves out that there is no difference. Those of shares are in "
    "points of a percent."
)


def differences(own: Comparison) -> Html:
    """To the first run, a table an experiment."""
    found: dict[str, dict[Reported, dict[str, Mapping[str, float]]]] = {}
    for row in own.differences:
        runs = found.setdefault(row.experiment, {})
        runs.setdefault(row.run, {})[row.metric] = row.estimate
    if not found:
        return Html()
    first = own.first.name
    parts = [tag("h3", f"Differences to {first}"), tag("p", PAIRS)]
    for experiment, runs in found.items():
        rows = [Row(run.name, "", metrics) for run, metrics in runs.items()]
        title = TITLES.get(experiment, experiment).rstrip(".")
        caption = f"{title}: differences to {first}."
        parts.append(by_measure(rows, experiment, apart, caption))
    return joined(parts)
