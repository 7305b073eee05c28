"""The parts of a report, in its order; each is empty where nothing is known for it.

trained      what was trained, on what, for how long
results      numbers with intervals, the paper's beside them, differences
learning     both players over time
redrafting   what comes back from noise
steps        fewer of them
renewal      tokens drawn anew
temperature  likely tokens drawn more often
variety      what of it is more than sharpening
noise        maps, embeddings, collapse
samples      what is drawn
again        how to do it again
"""

import difflib
import json
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from redraft.config import Config
from redraft.data.molecules import rdkit_version
from redraft.domains import NAMED
from redraft.experiments.drawn import DOMAINS
from redraft.report import comparisons
from redraft.report import playlists as tracks
from redraft.report import stories as texts
from redraft.report.comparisons import Result
from redraft.report.learned_noise import learned_noise
from redraft.report.learning import learning_curves
from redraft.report.markup import Html, commands, joined, slug, table, tag
from redraft.report.numbers import HEADLINES, differences, measured
from redraft.report.runs import Comparison, Reported, Told, title_of
from redraft.report.structure_grid import first_valid, structure_grid
from redraft.terminal import clock

CAPTIONS = comparisons.CAPTIONS | texts.CAPTIONS | tracks.CAPTIONS

# ------------------------------------------------------------------ what was trained


def trained(told: Told) -> Html:
    head = ["run", "recipe", "seed", "steps", "time", "batch", "denoiser", "T", "hardware"]
    rows = [[run.name, *facts(run)] for run in told.runs]
    note = "The bound is on validation data, in nats per token."
    data = dict.fromkeys(
        f"{run.summary.get('data', '')} {run.summary.get('items', '')}".strip() for run in told.runs
    )
    about = [tag("p", tag("b", "Data. "), text) for text in data if text]
    titles = [*head, "bound at start", "at end"]
    return joined([table(titles, rows, "Runs of this report.", note, "table words"), *about])


def facts(run: Reported) -> list[str]:
    config, summary = run.config, run.summary
    size = config.denoiser
    return [
        title_of(run),
        str(config.seed),
        f"{summary.get('steps', 0):,}",
        clock(summary.get("seconds")),
        str(config.train.batch),
        f"{size.width} wide, {size.layers} layers, {size.heads} heads",
        str(config.noise.T),
        summary.get("hardware", ""),
        *(f"{summary[key]:.3f}" if key in summary else "–" for key in ("bound_start", "bound_end")),
    ]


# ------------------------------------------------------------------ numbers and curves


def results(told: Told) -> Html:
    parts = [measured(told, experiment) for experiment in HEADLINES]
    found = [own for own in told.results("generation") if "validity" in own["metrics"]]
    if found:
        figure = comparisons.validity(found)
        parts.append(told.album.add("validity", figure, CAPTIONS["validity"]))
    parts.append(drawn(told, "next-tracks", tracks.next_tracks))
    missing = [run.name for run in told.runs if run.results.keys().isdisjoint(HEADLINES)]
    parts += map(differences, told.comparisons)
    if missing:
        hint = tag("code", "redraft evaluate")
        parts.append(tag("p", f"Not measured: {', '.join(missing)} (", hint, " measures a run)."))
    return joined(parts)


PLAYERS = (
    "Both players of the run: the denoiser's loss should fall; a leader, where there is one, earns "
    "a reward while its noise still has something to teach, and its row entropy says whether the "
    "noise stays broad or collapses. Pale is as logged, dark is smoothed."
)


def learning(told: Told) -> Html:
    runs = [run for run in told.runs if run.curves]
    if not runs:
        return Html()
    if len(runs) == 1:
        return told.album.add("learning", learning_curves(runs[0].curves), PLAYERS)
    lines = [comparisons.Run(run.name, run.kind, run.curves) for run in runs]
    return told.album.add("learning", comparisons.learning(lines), CAPTIONS["learning"])


Draw = Callable[[Sequence[Result]], Figure]


def swept(experiment: str, draw: Draw, told: Told) -> Html:
    """Samples drawn in other ways than the plain one."""
    return joined([drawn(told, experiment, draw), measured(told, experiment)])


def variety(told: Told) -> Html:
    """Of what is judged by its perplexity."""
    found = [own for name in texts.WAYS for own in told.results(name)]
    if not any(texts.points(own["metrics"]) for own in found):
        return Html()
    return told.album.add("variety", texts.variety(found), CAPTIONS["variety"])


def drawn(told: Told, experiment: str, draw: Draw, name: str = "") -> Html:
    """A figure of an experiment, whose name it has unless another is given."""
    name, found = name or experiment, told.results(experiment)
    return told.album.add(name, draw(found), CAPTIONS[name]) if found else Html()


# ------------------------------------------------------------------ re-drafting

EDITS = ("entity-swap", "span-removal", "entity-swap-large", "span-removal-large")


REDRAFTED = {
    "molecules": [("redrafting", comparisons.redrafting)],
    "playlists": [("repair", tracks.repair, "playlist-repair")],
}
"""Experiments that have a figure, by domain."""


def redrafting(told: Told) -> Html:
    parts = [drawn(told, *which) for which in REDRAFTED.get(told.domain, ())]
    parts += [measured(told, experiment) for experiment in ("redrafting", "repair", *EDITS)]
    return joined([*parts, *map(edited, told.runs)])


def edited(run: Reported) -> Html:
    """The paper's stories with a wrong name, and what the first trial made of each."""
    drafts = getattr(run.drawn, "drafts", lambda experiment: [])
    items = [marked(own.shown, own.result) for own in drafts(EDITS[0]) if own.trial == 0]
    caption = f"{run.name}: a wrong name, struck out, and what was drawn in its place."
    return tag("figure", tag("figcaption", caption), tag("ol", *items)) if items else Html()


def marked(before: str, after: str) -> Html:
    """A text as an item of a list, in which words that have changed are marked."""
    a, b = before.split(), after.split()
    parts: list[str] = []
    for what, a0, a1, b0, b1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        old, new = " ".join(a[a0:a1]), " ".join(b[b0:b1])
        parts += [old, " "] if what == "equal" else [tag("del", old), " ", tag("ins", new), " "]
    return tag("li", *parts)


# ------------------------------------------------------------------ samples


def samples(told: Told) -> Html:
    show = SHOWN.get(told.domain, lines)
    return joined(show(told, run) for run in told.runs if run.samples and told.shown)


def molecules(told: Told, run: Reported) -> Html:
    """The first valid ones; without RDKit, which tells and draws them, the first lines."""
    if rdkit_version() is None:
        return lines(told, run)
    drawings, seen = first_valid(run.samples, told.shown)
    caption = f"{run.name}: the first {len(drawings)} valid ones, among the first {seen} samples."
    return structure_grid(told.album, f"molecules-{slug(run.name)}", drawings, caption)


def stories(told: Told, run: Reported) -> Html:
    first = run.samples[: max(told.shown // 4, 1)]
    caption = f"{run.name}: the first {len(first)} samples, none of them chosen."
    quotes = (tag("blockquote", text) for text in first)
    return tag("figure", tag("figcaption", caption), *quotes)


def lines(told: Told, run: Reported, what: str = "samples, none of them chosen") -> Html:
    first = run.samples[: told.shown]
    caption = f"{run.name}: the first {len(first)} {what}."
    return tag("figure", tag("figcaption", caption), commands(first))


def playlists(told: Told, run: Reported) -> Html:
    """Tracks by their names where these are at hand: what was drawn holds codes alone."""
    what = "samples" if run.drawn is None else "draws of what follows unseen playlists"
    track = "a track is the most played one of its codes, or else its codes, a number a level"
    return lines(told, run, f"{what}; {track}")


SHOWN: dict[str, Callable[[Told, Reported], Html]] = {
    "molecules": molecules,
    "stories": stories,
    "playlists": playlists,
}
"""How samples of a domain look; those of others are lines."""


# ------------------------------------------------------------------ again


def again(told: Told) -> Html:
    """Commands by commit, and the whole config of every run as a recipe."""
    prepared = {
        str(run.config.data.file): f"   # {run.summary.get('data', '').partition(':')[0]}"
        for run in told.runs
    }
    inside = [run for own in told.comparisons for run in (own.first, *own.others)]
    steps = [(own.first, compare(own)) for own in told.comparisons]
    steps += [(run, train(run)) for run in told.runs if run not in inside]
    by_commit: dict[str, list[str]] = {}
    for run, command in steps:
        by_commit.setdefault(run.summary.get("commit") or "", []).append(command)
    script = [f"redraft data {name}{prepared[name]}" for name in NAMED if name in prepared]
    for commit, lines in by_commit.items():
        script += [f"git checkout {shlex.quote(commit)}"] * bool(commit) + lines
    return joined([commands(script), *map(whole, told.runs)])


def compare(own: Comparison) -> str:
    """The command, with what is not as it would be by itself."""
    config = own.first.config
    words = ["redraft", "compare", *own.recipes, "--seed", str(config.seed), *amounts(own.first)]
    if config.train.steps is None and own.first.summary.get("recipe") not in own.recipes:
        words += ["--seconds", f"{config.train.seconds:g}"]
    return shlex.join([*words, "--out", own.first.folder.parent.name])


def amounts(run: Reported) -> Iterator[str]:
    if run.drawn is not None:
        usual = asdict(DOMAINS[run.config.data.domain].amounts())
        for name, value in asdict(run.drawn.amounts).items():
            if value != usual[name]:
                yield from ("-n" if name == "samples" else f"--{name}", str(value))


def train(run: Reported) -> str:
    recipe = run.summary.get("recipe") or ""
    known = "/" in recipe
    name = recipe if known else f"{run.folder.name}.toml"
    remark = "" if known else "   # as below"
    return shlex.join(["redraft", "train", name, "--seed", str(run.config.seed)]) + remark


def whole(run: Reported) -> Html:
    commit = run.summary.get("commit") or "not known"
    title = tag(
        "summary", f"{run.name}: seed {run.config.seed}, commit {commit[:12]}, all settings"
    )
    return tag("details", title, commands(toml(run.config).splitlines()))


def toml(config: Config) -> str:
    """A recipe that says everything."""
    return "\n".join(section("", config.to_dict()))


def section(name: str, values: dict[str, Any]) -> Iterator[str]:
    if name:
        yield f"\n[{name}]"
    for key, value in values.items():
        if not isinstance(value, dict):
            yield f"{key} = {json.dumps('none' if value is None else value, ensure_ascii=False)}"
    for key, value in values.items():
        if isinstance(value, dict):
            yield from section(f"{name}.{key}".lstrip("."), value)


SECTIONS: dict[str, tuple[str, Callable[[Told], Html]]] = {
    "trained": ("What was trained", trained),
    "results": ("Results", results),
    "learning": ("Learning", learning),
    "redrafting": ("Re-drafting", redrafting),
    "steps": ("Fewer steps", partial(swept, "steps", comparisons.steps)),
    "renewal": ("Tokens drawn anew", partial(swept, "renewal", comparisons.renewal)),
    "temperature": (
        "Lower temperatures",
        partial(swept, "temperature", comparisons.temperature),
    ),
    "variety": ("Quality against variety", variety),
    "noise": ("The learned noise", learned_noise),
    "samples": ("Samples", samples),
    "again": ("How to reproduce it", again),
}
"""By their anchors in the page."""
