"""Commands that measure: evaluate, noise, compare, bench."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from redraft.commands.drawing import Drawing, bar, progress
from redraft.config import Config, check, read_recipe
from redraft.errors import Stopped, UserError, unknown
from redraft.folder import digest

if TYPE_CHECKING:
    from redraft.evaluation.judge import Judging
    from redraft.evaluation.results import Run
    from redraft.experiments.domain import Asked
    from redraft.experiments.noise import Kernel
    from redraft.trainer import Watcher


Experiment = Literal[
    "generation",
    "steps",
    "renewal",
    "temperature",
    "redrafting",
    "repair",
    "entity-swap",
    "span-removal",
    "entity-swap-large",
    "span-removal-large",
    "next-tracks",
]


@dataclass
class Evaluate(Drawing):
    """The numbers of a trained model, with 95 % intervals, as a file under results/.

    For example:
    $ redraft evaluate runs/vsdd-1
    $ redraft evaluate runs/vsdd-1 --samples drawn-elsewhere.smi --variant elsewhere
    $ redraft evaluate runs/vsdd-1 --experiment redrafting -n 1000
    $ redraft evaluate runs/stories --experiment entity-swap-large
    $ redraft evaluate runs/playlists --experiment next-tracks --draws 100 --variant draws-100
    """

    experiment: Experiment = "generation"
    """What to measure. Molecules, stories: generation (new ones),
    steps (the same by fewer), renewal (with some of them renewed).
    Molecules: redrafting (unseen ones noised and brought back),
    repair (unseen ones broken and repaired, beside other repairers).
    Stories: temperature (new ones, below 1),
    entity-swap, span-removal (the paper's, edited; -large: unseen ones).
    Playlists: next-tracks (the last three), repair (what listeners notice)."""
    n: Annotated[int | None, arg(aliases=["-n"])] = None
    """How many. Molecules: by default 15,000 new ones, 1,000 to re-draft,
    300 to repair, 3,000 by each setting of steps or renewal.
    Stories: by default 1,000 new ones, 200 to edit,
    200 by each setting of steps, renewal or temperature.
    Playlists: by default 500 to continue, 200 to repair."""
    draws: int | None = None
    """Playlists: how often the next tracks are drawn, to be put to the vote; by default 20."""
    samples: Path | None = None
    """Measure what was generated before: molecules one a line, stories as .jsonl or .txt."""
    fcd: bool = False
    """Molecules: also the Frechet ChemNet distance of new to all unseen ones (redraft[fcd])."""
    judge: str | None = None
    """Stories: the language model that judges them (redraft[judge]):
    smollm2, gpt2, another hub id, or a folder.
    By default gpt2 where it can be had, else smollm2."""
    data: str | None = None
    """Where the training data lie now, if not where the run found them."""
    variant: str | None = None
    """A name that is added to the file's: for another run of the same method.
    Needed with --samples, --seed or --draws, and where steps, temperature, top-p or renewal are
    not the plain ones."""
    out: Path = Path("results")
    """Folder for the JSON file."""

    def run(self) -> None:
        self.check_flags()
        from redraft.evaluation import results
        from redraft.experiments.data import dataset_of
        from redraft.experiments.drawn import domain_of
        from redraft.report.tables import metrics_table

        model = self.load()
        domain, name = domain_of(model.config, "evaluate"), model.config.data.domain
        if self.experiment not in domain.experiments:
            raise unknown(f"experiment of {name}", self.experiment, domain.experiments)
        asked = self.asked(model.config.seed)
        domain.check(asked)
        results.require_room(model.trained, self.experiment, self.out, self.variant)
        data = dataset_of(model.trained, self.data)
        with progress(self.experiment) as callback, judging() as watch:
            asked = dataclasses.replace(asked, callback=callback, judging=watch)
            result = domain.experiments[self.experiment](model, data, asked) | self.special()
        path = results.write(result, self.out, self.variant)
        metrics_table(result, name)
        print(f"written to {path}")

    def asked(self, seed: int) -> "Asked":
        """Drawn with this seed, the run's own, where none is given: as in `redraft compare`."""
        from redraft.experiments.domain import Asked

        seed = seed if self.seed is None else self.seed
        options = self.not_plain()
        return Asked(seed, self.n, self.draws, self.samples, self.fcd, self.judge, options)

    def special(self) -> dict[str, Any]:
        """What a result tells of how its samples came about, if not plainly."""
        if self.samples is not None:
            return {"samples": {"file": self.samples.name, "sha256": digest(self.samples)}}
        seed = {} if self.seed is None else {"seed": self.seed}
        drawn = self.not_plain() | seed
        return {"sampler": drawn} if drawn else {}

    def not_plain(self) -> dict[str, Any]:
        """Options of the sampler other than their defaults."""
        from redraft.experiments.domain import PLAIN

        usual = {field.name: field.default for field in dataclasses.fields(Drawing)} | PLAIN
        given = self.options().items()
        return {name: x for name, x in given if name != "seed" and x != usual[name]}

    def check_flags(self) -> None:
        missing = self.samples is not None and not self.samples.is_file()
        check(not missing, f"there is no file {self.samples}")
        plain, name = not self.not_plain(), self.experiment
        usual = plain and (self.draws, self.samples, self.seed) == (None, None, None)
        check(
            usual or self.variant is not None,
            "give what is not the plain setting a name with --variant, such as --variant steps-10",
        )
        check(
            plain or name in ("generation", "next-tracks", "repair"),
            f"--steps, --temperature, --top-p and --renew are not for {name}",
        )
        check(
            name == "generation" or (self.samples, self.fcd, self.judge) == (None, False, None),
            f"--samples, --fcd and --judge are not for {name}",
        )
        check(name == "next-tracks" or self.draws is None, f"--draws is not for {name}")
        for flag in ("n", "draws"):
            given = getattr(self, flag)
            check(given is None or given >= 1, f"{flag} must be at least 1, got {given}")


@contextmanager
def judging() -> "Iterator[Judging]":
    """A bar of the texts that a judge has read."""
    with bar("judging") as update:
        yield lambda seen: update(completed=seen.done, total=seen.total)


@contextmanager
def going_on() -> Iterator[None]:
    """What goes on where it stopped says so, whichever of its parts a signal has stopped."""
    try:
        yield
    except (Stopped, KeyboardInterrupt) as stop:
        code = getattr(stop, "exit_code", 130)
        raise Stopped("stopped; run the same command again to go on from here", code) from None


@dataclass
class Noise:
    """What the noise of a model has become: does it follow the embeddings, has it collapsed?

    For example:
    $ redraft noise runs/vsdd-1

    Numbers with intervals, a map against uniform noise, and what tokens most often become.
    """

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run folder, a shipped model (molecules, stories, playlists) or a hub id.
    Or the NAME.drawn that `redraft compare` leaves beside a run."""
    out: Path = Path("results")
    """Folder for the JSON file and the figure."""
    variant: str | None = None
    """A name that is added to the file's: for another run of the same method."""
    seed: int = 0
    """Seed of the intervals."""

    def run(self) -> None:
        from redraft.evaluation import results
        from redraft.experiments import noise
        from redraft.report import figures
        from redraft.report.tables import metrics_table
        from redraft.terminal import show_noise

        run, kernel = self.load()
        results.require_room(run, "noise", self.out, self.variant)
        result = noise.result(run, kernel, self.seed)
        path = results.write(result, self.out, self.variant)
        T = len(kernel)
        figure = figures.noise_maps(kernel, kernel.tokens, noise.times_of(T), kernel.counts)
        figures.save(figure, path.with_suffix(".png"))
        metrics_table(result, "tokens of the kernel")
        show_noise(kernel[T // 2], kernel.tokens, kernel.counts)
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

    For example:
    $ redraft compare tiny/vsdd tiny/mdlm tiny/d3pm-uniform
    $ redraft compare stories/vsdd stories/mdlm --judge smollm2

    The same command goes on where it was stopped, also on another machine to which OUT was copied.
    Of a run that has been drawn from, its NAME.drawn is enough there.
    """

    recipes: Annotated[Positional[tuple[str, ...]], arg(metavar="RECIPE...")]
    """Recipes by name (tiny/vsdd) or TOML files, of one domain; differences are to the first."""
    seconds: float | None = None
    """Seconds of training for each, instead of what the recipes say."""
    n: Annotated[int | None, arg(aliases=["-n"])] = None
    """How many samples of each recipe.
    By default 15,000 molecules, 1,000 stories, or 500 playlists continued."""
    fewer: int | None = None
    """How many by 5, 10 and 25 steps: by default 3,000 molecules or 200 stories, at most n;
    0 for none."""
    renewed: int | None = None
    """How many with the last 50, 75 and 100 % of the steps renewed.
    By default 15,000 molecules or 200 stories, at most n; 0 for none."""
    cooled: int | None = None
    """Stories: how many at temperatures of 0.7, 0.8 and 0.9; by default 200, at most n;
    0 for none."""
    redrafts: int | None = None
    """How many unseen ones are spoilt and brought back.
    By default 1,000 molecules noised, 200 stories edited, or 200 playlists repaired."""
    bound: int | None = None
    """Stories or playlists: on how many unseen ones the exact bound is computed; by default 500."""
    draws: int | None = None
    """Playlists: how often the next tracks of each are drawn; by default 20 times."""
    fcd: bool = False
    """Molecules: also the Frechet ChemNet distance of new to all unseen ones (redraft[fcd])."""
    judge: str | None = None
    """Stories: the language model that judges them (redraft[judge]):
    smollm2, gpt2, another hub id, or a folder.
    By default gpt2 where it can be had, else smollm2."""
    seed: int = 0
    """Seed of weights, batches, noise and samples."""
    data: str | None = None
    """Another data file than the recipes'."""
    out: Path = Path("comparison")
    """Folder for runs, what is drawn from them, and numbers."""

    def run(self) -> None:
        from redraft.comparison import contenders, domain_of, draw, measure, report_path
        from redraft.experiments.domain import AMOUNTS, Asked, amounts_of
        from redraft.report.tables import comparison_table
        from redraft.terminal import TrainingDisplay

        @contextmanager
        def watching(config: Config) -> "Iterator[Watcher]":
            budget = config.train
            with TrainingDisplay(budget.steps, budget.seconds, config.method) as display:
                yield display.update

        entries = contenders(self.recipes, self.out, self.seconds, self.seed, self.data)
        domain, asked = domain_of(entries), Asked(judge=self.judge, fcd=self.fcd)
        domain.check(asked)
        given = {name: getattr(self, name) for name in AMOUNTS}
        amounts = amounts_of(domain, samples=self.n, **given)
        with going_on():
            drawing = partial(progress, "drawing")
            found = [draw(entry, amounts, watching, drawing) for entry in entries]
            with judging() as watch:
                asked = dataclasses.replace(asked, judging=watch)
                report = measure(entries, found, self.out, asked)
        comparison_table(report)
        print(f"written to {report_path(entries, self.out)}")


@dataclass
class Bench:
    """Measure speed and memory, as ratios within one run.

    For example:
    $ redraft bench train --quick
    $ redraft bench train --recipe bench/molecules
    $ redraft bench kernel --recipe bench/stories --vocabulary 2048 --length 256
    """

    what: Annotated[
        Positional[Literal["train", "sample", "kernel", "checkpoint", "agreement", "serve"]],
        arg(metavar="WHAT"),
    ]
    """train: a step, by its parts; sample: sequences a second;
    kernel: building learned noise; checkpoint: what saving adds to a run;
    agreement: losses of compiled and of plain steps;
    serve: the local page, of the models that come with the package."""
    recipe: str = "tiny/vsdd"
    """A recipe by name (tiny/vsdd) or a TOML file, for denoiser, batch and data.
    Methods take turns in it."""
    methods: tuple[str, ...] = ()
    """Methods to hold against mdlm; by default all."""
    data: str | None = None
    """Another data file than the recipe's."""
    vocabulary: int | None = None
    """With --length: random tokens instead of data, so many different ones."""
    length: int | None = None
    """Length of sequences of random tokens."""
    quick: bool = False
    """Fewer repetitions: under a minute on two CPU cores where nothing else runs."""
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
            not self.out.is_file(), f"--out is a folder for the JSON file, got a file: {self.out}"
        )
        check(
            (self.vocabulary is None) == (self.length is None),
            "--vocabulary and --length go together, got only one of them",
        )
        for name, least, most in (("vocabulary", 6, 10**6), ("length", 2, 10**5)):
            value = getattr(self, name)
            check(
                value is None or least <= value <= most,
                f"--{name} must be in {least}..{most}, got {value}",
            )
        check(self.data is None or self.length is None, "give --data or --length, got both")
        if self.data is None:
            return config
        return dataclasses.replace(config, data=dataclasses.replace(config.data, file=self.data))
