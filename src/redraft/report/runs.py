"""What lies in the folders that a report is of: runs, what was drawn from them, their numbers.

A run is found by its own folder, by what `redraft compare` drew from it (NAME.drawn), or in a
folder that holds several. Results belong to a run that has their steps and seconds, to the last
digit; they lie beside it, where `redraft compare` puts them, or where `redraft evaluate` does.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from redraft import checkpoint
from redraft.config import Config, check
from redraft.data import playlists
from redraft.errors import UserError
from redraft.evaluation.results import Run, belongs, named, recipe_of
from redraft.experiments import drawn, noise
from redraft.experiments.data import dataset_of
from redraft.experiments.domain import Drawn, read_lines
from redraft.experiments.noise import Kernel, kernel_of
from redraft.folder import MANIFEST, explained, read_json
from redraft.model import Model
from redraft.playlist import Names
from redraft.report.comparisons import Result
from redraft.report.learning import Row
from redraft.report.markup import Album
from redraft.report.style import LOOKS, look
from redraft.tokenizers import SemanticIdTokenizer
from redraft.tokenizers.semantic_id import Codes

DRAWN = ".drawn"


@dataclass(frozen=True, eq=False)
class Reported:
    """A run, and all that is known of it; it has what results tell of one."""

    folder: Path
    """Where it is, or was when FOLDER.drawn was made."""
    config: Config
    summary: dict[str, Any]
    curves: list[Row]
    kernel: Kernel | None
    samples: list[str]
    drawn: Drawn | None = None
    results: dict[str, Result] = field(default_factory=dict)
    """By experiment."""
    name: str = ""
    """No two of a report have the same."""

    @property
    def label(self) -> str:
        """As `redraft compare` names its folders, without the seed."""
        return self.folder.name.removesuffix(f"-seed{self.config.seed}")

    @property
    def kind(self) -> str:
        """What it looks like: its recipe where that has a look of its own, else its method."""
        recipe = Path(title_of(self)).name
        return recipe if recipe in LOOKS else self.config.method


def gather(paths: Sequence[Path], results: Path, n: int) -> list[Reported]:
    """All runs of some folders, each once, with n samples where none were drawn before."""
    try:
        folders = dict.fromkeys(folder for path in paths for folder in runs_in(path.absolute()))
        found = [read(folder, n) for folder in folders]
        domains = sorted({run.config.data.domain for run in found})
        several = " and ".join(domains)
        check(len(domains) == 1, f"a report is of one domain, got {several}: make one for each")
        return with_names([with_results(run, results) for run in found])
    except OSError as error:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}") from None


def runs_in(path: Path) -> list[Path]:
    """That of a folder itself, or else all of those in it."""
    check(path.is_dir(), f"there is no folder {path}")
    if is_run(own := run_of(path)):
        return [own]
    found = sorted({run_of(inside) for inside in path.iterdir() if inside.is_dir()})
    runs = [folder for folder in found if is_run(folder)]
    check(
        bool(runs),
        f"{path} is no run; accepted: a run folder of redraft train, the NAME{DRAWN} of redraft "
        "compare once it is whole, or a folder that holds any of them",
    )
    return runs


def run_of(path: Path) -> Path:
    return path.parent / path.name.removesuffix(DRAWN)


def drawn_of(folder: Path) -> Path:
    return folder.parent / (folder.name + DRAWN)


def is_run(folder: Path) -> bool:
    """Whether its model is there, or all that was drawn from it."""
    model, drawings = folder / "config.json", drawn_of(folder) / drawn.SUMMARY
    return any(path.is_file() and path.with_name(MANIFEST).is_file() for path in (model, drawings))


# ------------------------------------------------------------------ one run


def read(folder: Path, n: int) -> Reported:
    """What was drawn from a run, if that is there; else the model itself, and n of its samples."""
    found = drawn.find(drawn_of(folder))
    if found is not None:
        curves = curves_in(found.folder / drawn.CURVES)
        samples = SAMPLES[found.config.data.domain](found)
        kernel = found.kernel()
        return Reported(folder, found.config, found.summary, curves, kernel, samples, found)
    model = Model(checkpoint.load(folder, str(checkpoint.device_of("auto"))))
    commit = read_json(folder / "config.json").get("commit")
    facts = {"recipe": recipe_of(model.config), "commit": commit}
    items = model.sample(n, seed=model.config.seed) if n else []
    called = track_names(model.trained) if items else None
    samples = [as_text(item, called) for item in items]
    curves = curves_in(folder / drawn.CURVES)
    summary = facts | model.trained.summary
    return Reported(folder, model.config, summary, curves, kernel_of(model), samples)


def curves_in(path: Path) -> list[Row]:
    with explained(path):
        return [json.loads(line) for line in read_lines(path)] if path.is_file() else []


Called = Callable[[Codes], str]
"""What the track of some codes is called."""


def as_text(item: Any, called: Called | None = None) -> str:
    """A sample; tracks of a playlist are called by their names, or else by their codes."""
    if isinstance(item, str):
        return item
    return " / ".join(map(called, item)) if called else "  ".join(map(as_codes, item))


def as_codes(codes: Codes) -> str:
    return "·".join(map(str, codes))


def track_names(run: Run) -> Called | None:
    """Those of prepared playlists, where they lie here and are what the run has learned from."""
    if run.config.data.file != playlists.NAME:
        return None
    try:
        tokenizer = dataset_of(run).tokenizer
        names = Names(playlists.prepared().catalogue())
    except UserError:
        return None
    assert isinstance(tokenizer, SemanticIdTokenizer)

    def called(codes: Codes) -> str:
        tracks = tokenizer.tracks(codes)
        return str(names[tracks[0]]) if tracks else as_codes(codes)

    return called


def following(own: Any) -> list[str]:
    """The first draw of what follows each unseen playlist."""
    called = track_names(own)
    return [as_text(row.draws[0], called) for row in own.continued()]


SAMPLES: dict[str, Callable[[Any], list[str]]] = {
    "molecules": lambda own: own.samples(),
    "stories": lambda own: own.samples(),
    "playlists": following,
}
"""What was generated, by domain; of playlists, what follows an unseen one."""


# ------------------------------------------------------------------ numbers


def with_results(run: Reported, more: Path) -> Reported:
    """A kernel tells its own numbers where nobody has written them down."""
    found: dict[str, Result] = {}
    for place in (run.folder.parent / "results", run.folder / "results", more):
        for path in sorted((place / run.config.data.domain).glob("*.json")):
            result = read_json(path)
            if belongs(result, run) and is_plain(path, result, run):
                found.setdefault(result["experiment"], result)
    if run.kernel is not None and "noise" not in found:
        found["noise"] = noise.result(run, run.kernel, run.config.seed)
    return replace(run, results=found)


def is_plain(path: Path, result: Result, run: Reported) -> bool:
    """Whether a file's name adds nothing to the run's; that of fewer steps, say, does."""
    stem, parts = f"{result['experiment']}-{result['method']}", run.label.split("-")
    ends = ("-".join(parts[n:]) for n in range(len(parts) + 1))
    return path.name in {named(stem, run.config.seed, end) for end in ends}


def with_names(runs: Sequence[Reported]) -> list[Reported]:
    """The method; where it has several runs also recipes, seeds or folders, as they differ."""
    names = [name_among([own for own in runs if own.kind == run.kind], run) for run in runs]
    return [replace(run, name=name) for run, name in zip(runs, names, strict=True)]


def name_among(alike: Sequence[Reported], run: Reported) -> str:
    parts = [look(run.kind).name]
    for part in (title_of, lambda own: f"seed {own.config.seed}", lambda own: own.folder.name):
        if len({part(own) for own in alike}) > 1:
            parts.append(part(run))
            alike = [own for own in alike if part(own) == part(run)]
    return ", ".join(parts if len(alike) == 1 else [*parts, f"in {run.folder.parent.name}"])


def title_of(run: Reported) -> str:
    """The recipe where it was followed to the letter, else what the folder is called."""
    recipe = run.summary.get("recipe") or ""
    return recipe if "/" in recipe else run.label


# ------------------------------------------------------------------ comparisons


class Difference(NamedTuple):
    run: Reported
    experiment: str
    metric: str
    estimate: dict[str, float]


class Comparison(NamedTuple):
    """What `redraft compare` made of some of the runs."""

    recipes: list[str]
    first: Reported
    differences: list[Difference]
    """To the first."""

    @property
    def others(self) -> list[Reported]:
        return list(dict.fromkeys(row.run for row in self.differences))


def comparisons_of(runs: Sequence[Reported]) -> Iterator[Comparison]:
    """From the files beside the runs, as far as they are about these runs."""
    places = dict.fromkeys(run.folder.parent for run in runs)
    for path in (path for place in places for path in sorted(place.glob("comparison*.json"))):
        with explained(path):
            report = read_json(path)
            known = {
                recipe: run
                for recipe, result in zip(report["recipes"], report["results"], strict=True)
                for run in runs
                if belongs(result, run) and run.folder.parent == path.parent
            }
            first = known.get(report["recipes"][0])
            rows = [row for row in report["differences"] if row["recipe"] in known]
            apart = [
                Difference(known[row["recipe"]], row["experiment"], row["metric"], row)
                for row in rows
            ]
        if first is not None:
            yield Comparison(list(known), first, apart)


# ------------------------------------------------------------------ all of it


class Told(NamedTuple):
    """What a report is made of, and the figures that it has so far."""

    runs: list[Reported]
    comparisons: list[Comparison]
    album: Album
    shown: int
    """Samples of each run."""

    @property
    def domain(self) -> str:
        return self.runs[0].config.data.domain

    def having(self, experiment: str) -> list[Reported]:
        return [run for run in self.runs if experiment in run.results]

    def results(self, experiment: str) -> list[Result]:
        """As figures take them: a run looks like what it is."""
        return [{**run.results[experiment], "method": run.kind} for run in self.having(experiment)]
