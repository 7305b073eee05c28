"""Figures of docs/ over several methods, from the files under results/.

    python scripts/figures.py [RUN/metrics.jsonl...]

Writes docs/figures/NAME.svg, NAME.png and captions.json; what has no results yet is left out.
"learning" is of the runs named, whose metrics are not kept under results/.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from redraft.data import playlists as data
from redraft.evaluation.results import named
from redraft.report import comparisons, playlists, stories
from redraft.report.comparisons import Result, Run
from redraft.report.style import LOOKS, look, save

ROOT = Path(__file__).parents[1]


class Drawing(NamedTuple):
    """A figure: of which domain and experiments, how it is drawn, and of which variant."""

    domain: str
    experiments: str
    draw: Callable[[Sequence[Result]], Figure]
    variant: str | None = None


def learned(curves: Sequence[Result]) -> Figure:
    """Learning curves that are kept as results."""
    return comparisons.learning(
        [Run(look(r["method"]).name, r["method"], r["rows"]) for r in curves]
    )


DRAWN = {
    "validity": Drawing("molecules", "generation", comparisons.validity),
    "redrafting": Drawing("molecules", "redrafting", comparisons.redrafting),
    "steps": Drawing("molecules", "steps", comparisons.steps),
    "renewal": Drawing("molecules", "renewal", comparisons.renewal),
    "story-steps": Drawing("stories", "steps", comparisons.steps),
    "story-renewal": Drawing("stories", "renewal", comparisons.renewal),
    "temperature": Drawing("stories", "temperature", comparisons.temperature),
    "learning-stories": Drawing("stories", "curves", learned),
    "variety": Drawing("stories", "generation renewal temperature", stories.variety),
    "next-tracks": Drawing("playlists", "next-tracks", playlists.next_tracks),
    "playlist-repair": Drawing("playlists", "repair", playlists.repair),
    "next-tracks-small": Drawing("playlists", "next-tracks", playlists.next_tracks, "small"),
    "playlist-repair-small": Drawing("playlists", "repair", playlists.repair, "small"),
}
CAPTIONS = comparisons.CAPTIONS | stories.CAPTIONS | playlists.CAPTIONS
CAPTIONS |= {f"story-{name}": CAPTIONS[name] for name in ("steps", "renewal")}
CAPTIONS |= {"learning-stories": CAPTIONS["learning"]}
CAPTIONS |= {f"{name}-small": CAPTIONS[name] for name in ("next-tracks", "playlist-repair")}


def results_of(experiment: str, folder: Path, variant: str | None = None) -> list[Result]:
    """Runs of every seed; other variants that have no look of their own are told and left out."""
    found = []
    for path in sorted(folder.glob(f"{experiment}-*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        method = result["method"]
        looks = {method, *(name for name in LOOKS if name.startswith(method))}
        names = {named(f"{experiment}-{name}", result["seed"], variant): name for name in looks}
        if path.name in names:
            found.append(result | {"method": names[path.name]})
        else:
            print(f"{path.name} is left out: it is another variant")
    return found


def runs_of(paths: Sequence[Path]) -> list[Run]:
    """Named by their methods, and by their folders or files where a method comes twice."""
    names = [path.parent.name if path.stem == "metrics" else path.stem for path in paths]
    methods = [method_of(path, name) for path, name in zip(paths, names, strict=True)]
    times = Counter(methods)
    return [
        Run(
            look(method).name + (f" ({name})" if times[method] > 1 else ""),
            method,
            [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()],
        )
        for path, name, method in zip(paths, names, methods, strict=True)
    ]


def method_of(path: Path, name: str) -> str:
    """As the run's config says; without one, the method that the name begins with."""
    config = path.with_name("config.json")
    if config.exists():
        return json.loads(config.read_text(encoding="utf-8"))["config"]["method"]
    return max((method for method in LOOKS if name.startswith(method)), key=len, default=name)


def figures(results: Path, metrics: Sequence[Path]) -> Iterator[tuple[str, Figure]]:
    for name, (domain, experiments, draw, variant) in DRAWN.items():
        names = experiments.split()
        found = [own for each in names for own in results_of(each, results / domain, variant)]
        if found:
            yield name, draw(found)
        else:
            files = " or ".join(named(f"{each}-METHOD", 0, variant) for each in names)
            print(f"{name} is left out: no {files} in results/{domain}")
    if tracks := data.find(data.home(), files=(*data.FOR_TRAINING, *data.FOR_EVALUATION)):
        yield "neighbours", playlists.neighbours(playlists.sanity(tracks))
    else:
        print("neighbours is left out: no playlists are prepared (redraft data playlists)")
    if metrics:
        yield "learning", comparisons.learning(runs_of(metrics))
    else:
        print("learning is left out: name the metrics.jsonl of some runs to draw them")


def main(metrics: Sequence[Path], results: Path, out: Path) -> int:
    missing = [str(path) for path in metrics if not path.is_file()]
    if missing:
        print(f"expected files of metrics, got {', '.join(missing)}", file=sys.stderr)
        return 2
    for name, figure in figures(results, metrics):
        for ending in ("svg", "png"):
            print(f"written: {save(figure, out / f'{name}.{ending}')}")
    there = {name: text for name, text in CAPTIONS.items() if (out / f"{name}.svg").exists()}
    if there:
        text = json.dumps(there, indent=1, ensure_ascii=False) + "\n"
        (out / "captions.json").write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:]]
    sys.exit(main(given, ROOT / "results", ROOT / "docs" / "figures"))
