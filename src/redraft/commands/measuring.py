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
from redraft.errors import UserError

if TYPE_CHECKING:
    from redraft.domains import Dataset
    from redraft.evaluation.results import Run
    from redraft.experiments.noise import Kernel
    from redraft.model import Model
    from redraft.sampler import Callback
    from redraft.trainer import Watcher


@dataclass
class Evaluate(Drawing):
    """The numbers of a trained model on molecules, with 95 % intervals, as a file under results/.

    redraft evaluate runs/vsdd-1

    redraft evaluate runs/vsdd-1 --samples drawn-elsewhere.smi

    redraft evaluate runs/vsdd-1 --experiment redrafting -n 1000
    """

    experiment: Literal["generation", "steps", "redrafting", "repair"] = "generation"
    """generation: new molecules; steps: new ones by fewer steps, too; redrafting: unseen ones
    noised and brought back; repair: unseen ones broken and repaired, beside what people use
    today."""
    n: Annotated[int | None, arg(aliases=["-n"])] = None
    """Molecules: by default 15,000 to generate, 3,000 by each number of steps, 1,000 to re-draft
    or 300 to repair."""
    samples: Path | None = None
    """A file of molecules that were generated before, one a line, instead."""
    fcd: bool = False
    """Generation: also the Frechet ChemNet distance to all unseen molecules (redraft[fcd])."""
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
        data = dataset_of(model.trained, self.data)
        with progress(self.experiment) as callback:
            result = getattr(self, f"measure_{self.experiment}")(model, data, callback)
        path = results.write(result, self.out, self.variant)
        metrics_table(result, "molecules")
        print(f"written to {path}")

    def check_flags(self) -> None:
        plain = (self.steps, self.temperature, self.top_p) == (None, 1.0, 1.0)
        check(
            plain or self.variant is not None,
            "give what is not the plain setting a name with --variant, such as --variant steps-10",
        )
        generates = self.experiment == "generation"
        check(
            generates or (plain and self.samples is None and not self.fcd),
            f"--steps, --temperature, --top-p, --samples and --fcd are not for {self.experiment}",
        )
        check(self.n is None or self.n >= 1, f"n must be at least 1, got {self.n}")
        missing = self.samples is not None and not self.samples.is_file()
        check(not missing, f"there is no file {self.samples}")

    def measure_generation(
        self, model: "Model", data: "Dataset", callback: "Callback"
    ) -> dict[str, Any]:
        from redraft.evaluation import molecules, results
        from redraft.experiments.data import learned, unseen
        from redraft.experiments.drawn import Amounts

        seed = self.seed or 0
        if self.samples is not None:
            drawn = self.samples.read_text(encoding="utf-8").splitlines()
        else:
            options = {**self.options(), "seed": seed}
            drawn = model.sample(self.n or Amounts.samples, callback=callback, **options)
        metrics = molecules.generation(drawn, learned(data), seed)
        if self.fcd:
            metrics["fcd"] = molecules.frechet_chemnet_distance(drawn, unseen(data), seed)
        return results.result(model.trained, "generation", len(drawn), metrics)

    def measure_steps(
        self, model: "Model", data: "Dataset", callback: "Callback"
    ) -> dict[str, Any]:
        from redraft.experiments import steps
        from redraft.experiments.data import learned
        from redraft.experiments.drawn import Amounts

        seed = self.seed or 0
        samples = steps.draw(model, self.n or Amounts.fewer, seed, callback)
        return steps.result(model.trained, samples, learned(data), seed)

    def measure_redrafting(
        self, model: "Model", data: "Dataset", callback: "Callback"
    ) -> dict[str, Any]:
        from redraft.experiments import redrafting
        from redraft.experiments.data import unseen
        from redraft.experiments.drawn import Amounts

        seed = self.seed or 0
        found = redrafting.draw(model, unseen(data, self.n or Amounts.redrafts), seed, callback)
        return redrafting.result(model.trained, redrafting.judged(found), seed)

    def measure_repair(
        self, model: "Model", data: "Dataset", callback: "Callback"
    ) -> dict[str, Any]:
        from redraft.evaluation import results
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
        return results.result(model.trained, "repair", len(originals), metrics, by_edits=details)


@dataclass
class Noise:
    """What the noise of a model has become: numbers, maps relative to uniform noise, top partners.

    redraft noise runs/vsdd-1
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run folder, or the NAME.drawn that `redraft compare` leaves beside it."""
    out: Path = Path("results")
    """Folder for the JSON file and the figure."""
    seed: int = 0
    """Of the intervals."""

    def run(self) -> None:
        from redraft.evaluation import results
        from redraft.experiments import noise
        from redraft.report import figures
        from redraft.report.tables import metrics_table
        from redraft.terminal import show_noise

        run, kernel = self.load()
        result = noise.result(run, kernel, self.seed)
        path = results.write(result, self.out)
        T = len(kernel.Q)
        figure = figures.noise_maps(kernel.Q, kernel.tokens, noise.times_of(T), kernel.counts)
        figures.save(figure, path.with_suffix(".png"))
        metrics_table(result, "tokens of the kernel")
        show_noise(kernel.Q[T // 2], kernel.tokens, kernel.counts)
        print(f"written to {path} and {path.with_suffix('.png')}")

    def load(self) -> "tuple[Run, Kernel]":
        """What is known of the run, and its kernel."""
        from redraft.experiments import drawn
        from redraft.experiments.noise import kernel_of
        from redraft.model import load

        run = drawn.find(Path(self.model))
        if run is not None:
            kernel = run.kernel()
        else:
            model = load(self.model, "cpu")
            run, kernel = model.trained, kernel_of(model)
        if kernel is None:
            method = run.config.method
            raise UserError(f"{method} has no learned kernel: its noise is as it was made")
        return run, kernel


@dataclass
class Compare:
    """Train several recipes under one budget, draw from them, measure, and tell them apart.

    redraft compare tiny/vsdd tiny/mdlm tiny/d3pm-uniform

    Goes on where it stopped, also on another machine: copy OUT, of finished runs only NAME.drawn.
    """

    recipes: Annotated[Positional[tuple[str, ...]], arg(metavar="RECIPE...")]
    """Recipes by name or file; differences are to the first."""
    seconds: float | None = None
    """Seconds of training for each, instead of what the recipes say."""
    n: Annotated[int, arg(aliases=["-n"])] = 15_000
    """Samples of each."""
    fewer: int = 3_000
    """Samples of each by 5, 10 and 25 steps; at most n."""
    redrafts: int = 1_000
    """Unseen molecules that each noises and brings back."""
    seed: int = 0
    """Of weights, batches, noise and samples."""
    data: str | None = None
    """Another data file than the recipes'."""
    out: Path = Path("comparison")
    """Folder for runs, what is drawn from them, and numbers."""

    def run(self) -> None:
        from redraft.comparison import compare, contenders, report_path
        from redraft.experiments.drawn import Amounts
        from redraft.report.tables import comparison_table
        from redraft.terminal import TrainingDisplay

        @contextmanager
        def watching(config: Config) -> "Iterator[Watcher]":
            budget = config.train
            with TrainingDisplay(budget.steps, budget.seconds, config.method) as display:
                yield display.update

        amounts = Amounts(self.n, self.fewer, self.redrafts)
        entries = contenders(self.recipes, self.out, self.seconds, self.seed, self.data)
        report = compare(entries, self.out, amounts, watching, lambda: progress("drawing"))
        comparison_table(report)
        print(f"written to {report_path(entries, self.out)}")


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
