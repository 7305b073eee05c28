"""Commands that measure: evaluate, noise, compare, bench."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from redraft.commands.drawing import Drawing, progress
from redraft.config import Config, check, read_recipe
from redraft.tokenizers.base import EOS

if TYPE_CHECKING:
    from redraft.domains import Dataset
    from redraft.evaluation.statistics import Estimate
    from redraft.model import Model
    from redraft.sampler import Callback
    from redraft.trainer import Watcher


Measured = tuple[int, "dict[str, Estimate]", dict[str, Any]]
"""How many, their numbers, and what else belongs into the result."""


@dataclass
class Evaluate(Drawing):
    """The numbers of a trained model on molecules, with 95 % intervals, as a file under results/.

    redraft evaluate runs/vsdd-1

    redraft evaluate runs/vsdd-1 --samples drawn-elsewhere.smi

    redraft evaluate runs/vsdd-1 --experiment redrafting -n 1000
    """

    experiment: Literal["generation", "redrafting", "repair"] = "generation"
    """generation: new molecules; redrafting: unseen ones noised and brought back; repair: unseen
    ones broken and repaired, beside what people use today."""
    n: Annotated[int | None, arg(aliases=["-n"])] = None
    """Molecules: by default 15,000 to generate, 1,000 to re-draft or 300 to repair."""
    samples: Path | None = None
    """A file of molecules that were generated before, one a line, instead."""
    data: str | None = None
    """Where the training data lie, if not where they lay."""
    variant: str | None = None
    """A name for what is not the plain setting: other steps, temperature, top-p."""
    out: Path = Path("results")
    """Folder for the JSON file."""

    def run(self) -> None:
        self.check_flags()
        from redraft.evaluation import results
        from redraft.experiments.data import dataset_of
        from redraft.report.tables import metrics_table

        model = self.load()
        domain = model.config.data.domain
        check(domain == "molecules", f"evaluate knows molecules, this model knows {domain}")
        data = dataset_of(model, self.data)
        with progress(self.experiment) as callback:
            n, found, more = getattr(self, self.experiment)(model, data, callback)
        result = results.result(model.trained, self.experiment, n, found, **more)
        path = results.write(result, self.out, self.variant)
        metrics_table(found, f"{model.config.method}: {n:,} molecules")
        print(f"written to {path}")

    def check_flags(self) -> None:
        plain = (self.steps, self.temperature, self.top_p) == (None, 1.0, 1.0)
        check(
            plain or self.variant is not None,
            "give what is not the plain setting a name with --variant, such as --variant steps-10",
        )
        generates = self.experiment == "generation"
        check(
            generates or (plain and self.samples is None),
            f"--steps, --temperature, --top-p and --samples are not for {self.experiment}",
        )
        check(self.n is None or self.n >= 1, f"n must be at least 1, got {self.n}")
        missing = self.samples is not None and not self.samples.is_file()
        check(not missing, f"there is no file {self.samples}")

    def generation(self, model: "Model", data: "Dataset", callback: "Callback") -> Measured:
        from redraft.evaluation import molecules
        from redraft.experiments.data import learned

        seed = self.seed or 0
        if self.samples is not None:
            drawn = self.samples.read_text(encoding="utf-8").splitlines()
        else:
            options = {**self.options(), "seed": seed}
            drawn = model.sample(self.n or 15_000, callback=callback, **options)
        return len(drawn), molecules.generation(drawn, learned(data), seed), {}

    def redrafting(self, model: "Model", data: "Dataset", callback: "Callback") -> Measured:
        from redraft.experiments import redrafting
        from redraft.experiments.data import unseen

        originals = unseen(data, self.n or 1000)
        return len(originals), redrafting.run(model, originals, self.seed or 0, callback), {}

    def repair(self, model: "Model", data: "Dataset", callback: "Callback") -> Measured:
        from redraft.evaluation.statistics import Estimate
        from redraft.experiments import repair
        from redraft.experiments.data import unseen

        edits = (1, 2, 3)
        room = len(model.trained.lengths) - 1 - len(model.tokenizer.ending) - max(edits)
        found = [item for item in unseen(data) if len(model.tokenizer.ids(item)) <= room]
        originals = found[: self.n or 300]
        check(bool(originals), f"no unseen molecule leaves room for {max(edits)} more tokens")
        details = repair.run(model, originals, self.seed or 0, edits, callback)
        metrics = {
            f"{name}@{number}": Estimate(**value)
            for number, row in details.items()
            for name, value in row["metrics"].get("model", {}).items()
        }
        return len(originals), metrics, {"by_edits": details}


@dataclass
class Noise:
    """What the noise of a model has become: numbers, maps relative to uniform noise, top partners.

    redraft noise runs/vsdd-1
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run folder."""
    out: Path = Path("results")
    """Folder for the JSON file and the figure."""
    seed: int = 0
    """Of the intervals."""

    def run(self) -> None:
        from redraft.evaluation import results
        from redraft.experiments import noise
        from redraft.model import load
        from redraft.report import figures
        from redraft.report.tables import metrics_table
        from redraft.terminal import show_noise

        model = load(self.model, "cpu")
        Q, found = noise.steps_of(model), noise.run(model, self.seed)
        n = len(model.tokenizer) - EOS
        table = noise.collapse_table(model)
        result = results.result(model.trained, "noise", n, found, collapse=table)
        path = results.write(result, self.out)
        times = noise.times_of(len(Q))
        figure = figures.noise_maps(Q, model.tokenizer.tokens, times, model.trained.tokens)
        figures.save(figure, path.with_suffix(".png"))
        metrics_table(found, f"{model.config.method}: the kernel over {n} tokens")
        show_noise(Q[len(Q) // 2], model.tokenizer.tokens, model.trained.tokens)
        print(f"written to {path} and {path.with_suffix('.png')}")


@dataclass
class Compare:
    """Train several recipes under one budget, sample, measure, and tell them apart.

    redraft compare tiny/vsdd tiny/mdlm tiny/d3pm-uniform

    Goes on where it stopped, also on another machine: copy the folder.
    """

    recipes: Annotated[Positional[tuple[str, ...]], arg(metavar="RECIPE...")]
    """Recipes by name or file; differences are to the first."""
    seconds: float | None = None
    """Seconds of training for each, instead of what the recipes say."""
    n: Annotated[int, arg(aliases=["-n"])] = 15_000
    """Samples of each."""
    seed: int = 0
    """Of weights, batches, noise and samples."""
    data: str | None = None
    """Another data file than the recipes'."""
    out: Path = Path("comparison")
    """Folder for runs, samples and numbers."""

    def run(self) -> None:
        from redraft.comparison import compare, contenders
        from redraft.report.tables import comparison_table
        from redraft.terminal import TrainingDisplay

        @contextmanager
        def watching(config: Config) -> "Iterator[Watcher]":
            budget = config.train
            with TrainingDisplay(budget.steps, budget.seconds, config.method) as display:
                yield display.update

        check(self.n >= 1, f"n must be at least 1, got {self.n}")
        entries = contenders(self.recipes, self.out, self.seconds, self.seed, self.data)
        report = compare(entries, self.out, self.n, watching, lambda: progress("sampling"))
        comparison_table(report)
        print(f"written to {self.out / 'comparison.json'}")


@dataclass
class Bench:
    """Measure speed and memory, as ratios within one run.

    redraft bench train --quick

    redraft bench train --recipe bench/molecules

    redraft bench kernel --recipe bench/stories --vocabulary 2048 --length 256
    """

    what: Annotated[
        Positional[Literal["train", "sample", "kernel", "checkpoint", "agreement"]],
        arg(metavar="WHAT"),
    ]
    """train: a step by parts; sample: sequences a second; kernel: building learned noise;
    checkpoint: what saving adds to a run; agreement: losses of compiled and of plain steps."""
    recipe: str = "tiny/vsdd"
    """Denoiser, batch and data, by a recipe's name or file; methods take turns in it."""
    methods: tuple[str, ...] = ()
    """Methods to hold against mdlm; by default all."""
    data: str | None = None
    """Another data file than the recipe's."""
    vocabulary: int | None = None
    """With --length: random tokens instead of data, so many different ones."""
    length: int | None = None
    """Length of sequences of random tokens."""
    quick: bool = False
    """Fewer repetitions: under two minutes on two CPU cores."""
    out: Path = Path("results/bench")
    """Folder for the JSON file."""
    name: str | None = None
    """Name of that file; by default WHAT."""

    def run(self) -> None:
        config = self.config()
        from redraft.bench import BENCHES, random_tokens
        from redraft.bench.measure import write
        from redraft.domains import prepare
        from redraft.methods import METHODS, entry
        from redraft.report.tables import bench_table

        methods = list(self.methods or METHODS)
        for method in methods:
            entry(method)  # known, or an error that says which are
        if self.vocabulary is not None and self.length is not None:
            data = random_tokens(self.vocabulary, self.length)
        else:
            data = prepare(config.data, config.seed)
        rows = BENCHES[self.what](config, data, methods, self.quick)
        rows = [{"recipe": self.recipe, "data": data.origin, **row} for row in rows]
        path = write(self.name or self.what, rows, self.out)  # before a reader may close the pipe
        bench_table(rows)
        print(f"written to {path}")

    def config(self) -> Config:
        config = read_recipe(self.recipe)
        check(
            (self.vocabulary is None) == (self.length is None),
            "--vocabulary and --length go together, got only one of them",
        )
        for name, value, least in (("vocabulary", self.vocabulary, 6), ("length", self.length, 2)):
            check(
                value is None or value >= least, f"--{name} must be at least {least}, got {value}"
            )
        check(self.data is None or self.length is None, "give --data or --length, got both")
        if self.data is None:
            return config
        return dataclasses.replace(config, data=dataclasses.replace(config.data, file=self.data))
