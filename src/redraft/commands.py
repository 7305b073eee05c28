"""What each word of the command line does: a dataclass of its flags, with `run`.

torch is imported only when something runs, so that `--help` answers at once.
"""

import dataclasses
import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass, field
from itertools import dropwhile, takewhile
from operator import not_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional, arg

from redraft.config import Config, DataConfig, check, read_recipe, recipe_names
from redraft.errors import UserError, unknown

if TYPE_CHECKING:
    from redraft.model import Model
    from redraft.sampler import Callback
    from redraft.trainer import Watcher


@dataclass
class Quickstart:
    """Train a small model on molecules, generate with it, re-draft one, draw what it learned.

    Takes about two minutes on two CPU cores and needs no network.
    """

    out: Path = Path("quickstart")
    """Folder for the model and the figures; an older one of the same name is replaced."""
    seed: int = 0
    """Seed of everything random."""

    def run(self) -> None:
        from redraft.quickstart import quickstart

        quickstart(self.out, self.seed)


@dataclass
class Train:
    """Train a model from a recipe, or on a file of your own.

    redraft train tiny/vsdd

    redraft train --data my.txt --tokenizer chars

    redraft train my-recipe.toml --train.steps 5000 --out runs/mine

    redraft train --resume runs/mine

    torchrun --nproc-per-node 8 -m redraft train my-recipe.toml
    """

    recipe: Annotated[Positional[str | None], arg(metavar="RECIPE")] = None
    """A recipe by name (tiny/vsdd) or a TOML file; all flags below override it."""
    data: str | None = None
    """A UTF-8 file with one sequence a line; or zinc250k or moses."""
    tokenizer: str | None = None
    """How to cut the lines of --data: chars, words, bpe or smiles."""
    out: Path | None = None
    """Run folder; by default a new one under runs/."""
    resume: str | None = None
    """Continue a run folder, or `auto`: --out or else the newest under runs/."""
    config: Annotated[Config, arg(name="")] = field(default_factory=Config)

    @classmethod
    def default(cls, arguments: list[str]) -> "Train":
        """The recipe's values are the flags' defaults, so it has to be read first."""
        first = [a for a in arguments[:1] if not a.startswith("-")]
        known = [a for a in arguments if a.endswith(".toml") or a in recipe_names()]
        named = next(iter(first + known), None)
        own = any(a == "--data" or a.startswith("--data=") for a in arguments)
        other = {"-h", "--help", "--resume"} | {a for a in arguments if a.startswith("--resume=")}
        if named is None and not own and not other & set(arguments):
            raise UserError(f"give a recipe or --data FILE; recipes: {', '.join(recipe_names())}")
        config = read_recipe(named or "tiny/vsdd")
        if own:
            config = dataclasses.replace(config, data=DataConfig(domain="lines"))
        return cls(recipe=named, config=config)

    def run(self) -> None:
        from redraft.distributed import agreed, joined, world
        from redraft.model import resume, train, training_config
        from redraft.terminal import TrainingDisplay

        with joined():
            again = self.interrupted()
            config = self.resolved() if again is None else training_config(again)
            out = agreed(again or self.out or fresh_folder(Path("runs"), config))
            budget, first = config.train, world().rank == 0
            display = TrainingDisplay(budget.steps, budget.seconds, config.method)
            with display if first else nullcontext():
                watch = display.update
                model = train(config, out, watch) if again is None else resume(out, watch)
        if first:
            self.report(model.trained.summary, out)

    def report(self, summary: dict[str, Any], out: Path) -> None:
        print(f"data: {summary['data']} {summary['items']}")
        print(
            f"bound on validation data: {summary['bound_start']:.3f} -> "
            f"{summary['bound_end']:.3f} nats per token"
        )
        print(f"model: {out}   try: redraft sample {out}")

    def interrupted(self) -> Path | None:
        """The run to continue, if any."""
        if self.resume is None:
            return None
        plain = dataclasses.replace(self.default(["--resume"]), resume=self.resume, out=self.out)
        check(
            self == plain, "--resume takes everything from the run; give no recipe or flags with it"
        )
        if self.resume != "auto":
            return Path(self.resume)
        runs = sorted(Path("runs").glob("*/state"), key=lambda state: state.stat().st_mtime)
        found = self.out or (runs[-1].parent if runs else None)
        check(found is not None, "--resume auto found no run under runs/; name its folder")
        return found

    def resolved(self) -> Config:
        if self.data is None:
            check(
                self.tokenizer is None,
                "--tokenizer goes with --data; in a recipe it is data.tokenizer",
            )
            return self.config
        from redraft.data.molecules import KNOWN

        domain = "molecules" if self.data in KNOWN else self.config.data.domain
        data = dataclasses.replace(
            self.config.data, domain=domain, file=self.data, tokenizer=self.tokenizer
        )
        return dataclasses.replace(self.config, data=data)


def fresh_folder(root: Path, config: Config) -> Path:
    """root/METHOD-1, or the first number that is free."""
    taken = {
        int(m[1]) for p in root.glob(f"{config.method}-*") if (m := re.search(r"-(\d+)$", p.name))
    }
    return root / f"{config.method}-{max(taken, default=0) + 1}"


@dataclass
class Data:
    """Fetch and prepare a data set, or check a file of your own.

    redraft data zinc250k

    redraft data moses

    redraft data molecules --file my.smi
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """zinc250k or moses, to fetch and prepare; molecules, to check --file."""
    file: str | None = None
    """A file of SMILES of your own, one a line, to check; nothing is written."""

    def run(self) -> None:
        from redraft.data import molecules
        from redraft.tokenizers import SmilesTokenizer

        names = (*molecules.KNOWN, "molecules")
        if self.name not in names:
            raise unknown("data set", self.name, names)
        own = self.name == "molecules"
        check(own == (self.file is not None), "--file and the name molecules go together")
        if own:
            print(molecules.inspect(str(self.file), SmilesTokenizer.split, foreground=True))
        else:
            print(molecules.prepare_named(self.name, foreground=True))
            print(f"use: redraft train RECIPE --data.file {self.name}")


@dataclass
class Drawing:
    """What all commands that draw from a model take."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run folder."""
    steps: int | None = None
    """Reverse steps; all of the model's by default."""
    temperature: float = 1.0
    """Below 1 plays safe, 0 takes the most probable."""
    top_p: float = 1.0
    """Draw only from the most probable tokens that make up this mass."""
    seed: int | None = None
    """Same seed, same output."""
    device: str = "auto"
    """cpu, cuda, or auto."""

    def load(self) -> "Model":
        from redraft.model import load

        return load(self.model, self.device)

    def options(self) -> dict[str, Any]:
        names = ("steps", "temperature", "top_p", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass
class Sample(Drawing):
    """Generate new sequences, one a line.

    redraft sample runs/vsdd-1 -n 100 > new.txt
    """

    n: Annotated[int, arg(aliases=["-n"])] = 16
    """How many."""
    length: int | None = None
    """Length in tokens, the end included; by default drawn as in the training data."""
    valid: bool = False
    """Molecules: only valid ones, no two the same; the rest is drawn again."""
    out: Path | None = None
    """Molecules: a file .smi, .csv or .sdf, instead of standard output."""
    draw: Path | None = None
    """Molecules: also draw them, as .svg; goes with --valid."""

    def run(self) -> None:
        from redraft.report import molecules

        for path, accepted in ((self.out, molecules.WRITERS), (self.draw, molecules.DRAWINGS)):
            if path is not None:
                molecules.check_ending(path, accepted)
        check(self.n >= 1, f"n must be at least 1, got {self.n}")
        check(
            self.draw is None or self.valid,
            "--draw goes with --valid: what is not valid has no form",
        )
        model = self.load()
        with progress("sampling") as callback:
            options = {"length": self.length, "callback": callback, **self.options()}
            if self.valid:
                rows, drawn = model.sample_valid(self.n, **options)
            else:
                rows, drawn = model.sample(self.n, **options), self.n
        if self.valid:
            print(f"{len(rows):,} valid, different molecules in {drawn:,} draws", file=sys.stderr)
        self.write(rows)
        check(len(rows) == self.n, f"only {len(rows)} of {self.n} were found in {drawn:,} draws")

    def write(self, rows: list[Any]) -> None:
        from redraft.report import molecules

        if self.out is None:
            show(rows)
        else:
            molecules.write(self.out, rows)
        if self.draw is not None and rows:
            molecules.draw(self.draw, rows)


@dataclass
class Infill(Drawing):
    """Fill the [MASK]s of a sequence: [MASK] stands for one token, [MASK:9] for nine.

    redraft infill runs/vsdd-1 "CC(=O)N[MASK:4]ccc1" -n 3
    """

    text: Annotated[Positional[str | None], arg(metavar="TEXT")] = None
    """The sequence; by default every line of standard input."""
    n: Annotated[int, arg(aliases=["-n"])] = 1
    """How many alternatives."""

    def run(self) -> None:
        model = self.load()
        for text in inputs([self.text] if self.text is not None else []):
            with progress("infilling") as callback:
                rows = model.infill(text, self.n, callback=callback, **self.options())
            show(rows)


@dataclass
class Revise(Drawing):
    """Re-draft sequences: take each to a part of full noise and back.

    redraft revise runs/vsdd-1 "CC(=O)Nc1ccc(O)cc1" --strength 0.3 --show
    """

    texts: Annotated[Positional[tuple[str, ...]], arg(metavar="TEXT...")] = ()
    """Sequences; by default every line of standard input."""
    strength: float = 0.3
    """How far to go: 0 changes nothing, 1 starts anew."""
    noising: bool = True
    """Whether to add noise first; without, the sequence itself is taken for a noisy one."""
    show: bool = False
    """Show every step of the first sequence."""

    def run(self) -> None:
        model = self.load()
        items = [model.tokenizer.parse(text) for text in inputs(self.texts)]
        frames: list[tuple[int, list[int]]] = []
        with progress("revising") as callback:

            def watch(step: Any) -> None:
                frames.append((step.t - 1, step.x[0].tolist()))
                callback(step)

            rows = model.revise(
                items, self.strength, noising=self.noising, callback=watch, **self.options()
            )
        if self.show and frames:
            from redraft.terminal import show_revision

            show_revision(frames, model.tokenizer, model.tokenizer.encode(items[0]))
        show(rows)


@dataclass
class Evaluate(Drawing):
    """The numbers of a trained model on molecules, with 95 % intervals, as a file under results/.

    redraft evaluate runs/vsdd-1

    redraft evaluate runs/vsdd-1 --samples drawn-elsewhere.smi
    """

    n: Annotated[int, arg(aliases=["-n"])] = 15_000
    """Molecules to generate."""
    samples: Path | None = None
    """A file of molecules that were generated before, one a line, instead."""
    data: str | None = None
    """Where the training data lie, if not where they lay."""
    variant: str | None = None
    """A name for what is not the plain setting: other steps, temperature, top-p."""
    out: Path = Path("results")
    """Folder for the JSON file."""

    def run(self) -> None:
        from redraft.comparison import training_items
        from redraft.evaluation import molecules, results
        from redraft.terminal import metrics_table

        plain = (self.steps, self.temperature, self.top_p) == (None, 1.0, 1.0)
        check(
            plain or self.variant is not None,
            "give what is not the plain setting a name with --variant, such as --variant steps-10",
        )
        model = self.load()
        domain = model.config.data.domain
        check(domain == "molecules", f"evaluate knows molecules, this model knows {domain}")
        training = training_items(model, self.data)
        drawn = self.drawn(model)
        found = molecules.generation(drawn, training, seed=self.seed or 0)
        metrics_table(found, f"{model.config.method}: {len(drawn):,} molecules")
        result = results.result(model.trained, "generation", len(drawn), found)
        print(f"written to {results.write(result, self.out, self.variant)}")

    def drawn(self, model: "Model") -> list[str]:
        if self.samples is not None:
            check(self.samples.is_file(), f"there is no file {self.samples}")
            return self.samples.read_text(encoding="utf-8").splitlines()
        with progress("sampling") as callback:
            options = {**self.options(), "seed": self.seed or 0}
            return model.sample(self.n, callback=callback, **options)


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
        from redraft.terminal import TrainingDisplay, comparison_table

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
class Repair:
    """Bring molecules that do not parse to the nearest ones that do.

    redraft repair "CC(=O)Nc1ccc(O)cc"

    redraft repair broken.smi > repaired.tsv

    my-generator | redraft repair --format smiles > valid.smi
    """

    items: Annotated[Positional[tuple[str, ...]], arg(metavar="SMILES|FILE...")] = ()
    """SMILES, or files with one a line; by default standard input."""
    model: str = "molecules"
    """A run folder, a shipped model or a hub id."""
    format: Literal["tsv", "smiles", "json"] = "tsv"
    """tsv: result, status, edits, sure, given, remark; smiles: valid results alone; json: one
    object a line. Told at length where a person looks on."""
    drafts: int = 8
    """Revisions tried of each start at each strength, where one edit is not enough."""
    seed: int | None = None
    """Same seed, same output."""
    device: str = "auto"
    """cpu, cuda, or auto."""

    def run(self) -> None:
        from redraft.model import load
        from redraft.terminal import RepairWriter

        model = load(self.model, self.device)
        texts = (text.strip() for item in self.items or ("-",) for text in self.lines(item))
        with RepairWriter(self.format, model.tokenizer) as writer:
            for repaired in model.repair(texts, seed=self.seed, drafts=self.drafts):
                writer.write(repaired)

    def lines(self, item: str) -> Iterator[str]:
        """One after the other, however many there are."""
        if item == "-":
            check(not sys.stdin.isatty(), "give SMILES or a file, or pipe some in, one a line")
            yield from sys.stdin
        elif Path(item).is_file():
            with open(item, encoding="utf-8", errors="replace") as file:
                yield from file
        else:
            looks_like_file = Path(item).suffix in (".smi", ".smiles", ".txt", ".csv", ".tsv")
            check(not looks_like_file, f"there is no file {item}")
            yield item


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
        from redraft.terminal import bench_table

        methods = list(self.methods or METHODS)
        for method in methods:
            entry(method)  # known, or an error that says which are
        if self.vocabulary is not None and self.length is not None:
            data = random_tokens(self.vocabulary, self.length)
        else:
            data = prepare(config.data, config.seed)
        rows = BENCHES[self.what](config, data, methods, self.quick)
        rows = [{"recipe": self.recipe, "data": data.origin, **row} for row in rows]
        bench_table(rows)
        print(f"written to {write(self.name or self.what, rows, self.out)}")

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


def inputs(given: tuple[str, ...] | list[str]) -> list[str]:
    """What was given on the command line, or the lines of standard input."""
    if given:
        return list(given)
    check(not sys.stdin.isatty(), "give a sequence, or pipe some in, one a line")
    found = [line.rstrip("\r\n") for line in sys.stdin if line.strip()]
    check(bool(found), "standard input holds no sequences")
    return found


def show(rows: list[Any]) -> None:
    """Results on standard output, one a line, and nothing else there."""
    for row in rows:
        print(row if isinstance(row, str) else " ".join(map(str, row)))


@contextmanager
def progress(what: str) -> "Iterator[Callback]":
    """A bar on standard error where that is a terminal, counted by the sampler's own steps."""
    from rich.console import Console
    from rich.progress import Progress

    quiet = not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task(what, total=None)

        def advance(step: Any) -> None:
            bar.update(task, advance=1, description=f"{what}, {step.n} steps to go")

        yield advance


COMMANDS: dict[str, Callable[..., Any]] = {
    "quickstart": Quickstart,
    "data": Data,
    "train": Train,
    "sample": Sample,
    "infill": Infill,
    "revise": Revise,
    "repair": Repair,
    "evaluate": Evaluate,
    "compare": Compare,
    "bench": Bench,
}


def run(word: str, arguments: list[str]) -> None:
    """Parse the flags of a command, and do it."""
    command = COMMANDS[word]
    default = command.default(arguments) if hasattr(command, "default") else tyro.MISSING_NONPROP
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            parsed = tyro.cli(command, args=arguments, default=default, prog=f"redraft {word}")
    except SystemExit as stop:
        if not stop.code:
            return  # --help was answered
        raise UserError(
            f"{in_one_sentence(complaint.getvalue())} (redraft {word} --help)"
        ) from None
    parsed.run()


def in_one_sentence(box: str) -> str:
    """What tyro complains of, without its box: the first paragraph, and the nearest flag."""
    _, *lines = [re.sub(r"^[─-]+$", "", line.strip("│╰╯ ")) for line in box.splitlines()]
    first = list(takewhile(bool, dropwhile(not_, lines)))
    if "Perhaps you meant:" in lines:
        nearest = lines[lines.index("Perhaps you meant:") + 1]
        first.append(f"- did you mean {nearest}?")
    return " ".join(first)
