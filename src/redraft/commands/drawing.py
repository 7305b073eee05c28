"""Commands that draw from a model: sample, infill, revise, repair."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from os.path import exists, isdir  # which take any string
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from redraft.config import check
from redraft.errors import NotFound, UserError

if TYPE_CHECKING:
    from redraft.likelihood import Alternative
    from redraft.model import Model
    from redraft.sampler import Callback

SHIPPED, STORIES = "molecules", "stories"
"""The models that draw where none is named."""
LISTS = (".smi", ".smiles", ".csv", ".tsv", ".txt")
"""Files with a molecule a line, as text."""
STRUCTURES = (".sdf", ".sd", ".mol", ".mol2", ".pdb")
"""Files of molecules that are written in another way."""


@dataclass
class Drawing:
    """What all commands that draw from a model take."""

    model: Annotated[Positional[str], arg(metavar="MODEL")]
    """A run folder, a shipped model (molecules, stories, playlists) or a hub id."""
    steps: int | None = None
    """Steps from noise to the result; fewer are faster and worse. By default all of the model's."""
    temperature: float = 1.0
    """How freely tokens are drawn: below 1 plays safe, 0 takes the most probable."""
    top_p: float = 1.0
    """Draw only from the most probable tokens that together have this probability."""
    renew: float | None = None
    """Share of the steps, the last ones, that draw all tokens anew.
    That takes back mistakes, at the price of variety.
    By default 0.5 in `sample` where the noise allows it, else 0."""
    seed: int | None = None
    """Seed of what is drawn: same seed, same output."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU where there is one."""

    def load(self) -> "Model":
        from redraft.model import load

        return load(self.model, self.device)

    def options(self) -> dict[str, Any]:
        """Those that are given, or have a value by default."""
        names = ("steps", "temperature", "top_p", "renew", "seed")
        given = {name: getattr(self, name) for name in names}
        return {name: value for name, value in given.items() if value is not None}


@dataclass
class Sample(Drawing):
    """Generate new sequences, one a line.

    For example:
    $ redraft sample -n 12 --valid --draw new.svg
    $ redraft sample stories -n 3
    $ redraft sample runs/vsdd-1 -n 100 > new.txt
    """

    model: Annotated[Positional[str], arg(metavar="[MODEL]")] = SHIPPED
    """A run folder, a shipped model (molecules, stories, playlists) or a hub id."""
    n: Annotated[int, arg(aliases=["-n"])] = 16
    """How many sequences."""
    length: int | None = None
    """Length in tokens, the end included; by default drawn as in the training data."""
    valid: bool = False
    """Molecules: valid ones alone, no two the same; draws on until there are enough."""
    out: Path | None = None
    """Molecules: file to write, .smi or .csv, or .sdf with --valid, instead of standard output."""
    draw: Path | None = None
    """Molecules: also draw them, as .svg or .png; goes with --valid."""

    def run(self) -> None:
        from redraft.report import molecules, style

        for path, accepted in ((self.out, molecules.WRITERS), (self.draw, style.DRAWINGS)):
            if path is not None:
                molecules.check_ending(path, accepted)
                check_place(path)
        check(self.n >= 1, f"n must be at least 1, got {self.n}")
        has_form = self.draw is not None or (self.out is not None and self.out.suffix == ".sdf")
        check(
            self.valid or not has_form,
            "--draw and --out NAME.sdf go with --valid: what is not valid has no form",
        )
        model = self.load()
        domain = model.config.data.domain
        check(
            domain == "molecules" or self.out is self.draw is None,
            f"--out and --draw are for molecules, this model knows {domain}",
        )
        with progress("sampling") as callback:
            options = {"length": self.length, "callback": callback, **self.options()}
            if self.valid:
                rows, drawn = model.sample_valid(self.n, **options)
            else:
                rows, drawn = model.sample(self.n, **options), self.n
        if self.valid:
            print(f"{len(rows):,} valid, different molecules in {drawn:,} draws", file=sys.stderr)
        self.write(rows)
        if len(rows) < self.n:
            raise NotFound(f"only {len(rows)} of {self.n} were found in {drawn:,} draws")

    def write(self, rows: list[Any]) -> None:
        from redraft.report import molecules

        if self.out is None:
            show(rows)
        else:
            molecules.write(self.out, rows)
        if self.draw is not None and rows:
            molecules.draw(self.draw, rows)


@dataclass
class Redrawing(Drawing):
    """What commands that begin from sequences take."""

    texts: Annotated[Positional[tuple[str, ...]], arg(metavar="TEXT...")] = ()
    """Sequences; by default every line of standard input."""
    model: Annotated[str | None, arg(metavar="MODEL")] = None
    """A run folder, a shipped model or a hub id.
    A folder or a shipped model may also stand before TEXT.
    By default stories for text of several words, else molecules."""

    def __post_init__(self) -> None:
        if self.model is None:
            self.model, self.texts = model_before(self.texts)

    def opened(self) -> "tuple[Model, list[str]]":
        """The model, and the sequences it begins from."""
        texts = inputs(self.texts)
        self.model = self.model or suited(texts)
        return self.load(), texts


@dataclass
class Infill(Redrawing):
    """Fill the [MASK]s of sequences: [MASK] stands for one token, [MASK:9] for nine.

    For example:
    $ redraft infill "CC(=O)N[MASK:4]ccc1" -n 3
    $ redraft infill "Lily had a [MASK] ball." -n 5

    On a terminal, what was drawn is told once each, with its likelihood.
    """

    n: Annotated[int, arg(aliases=["-n"])] = 1
    """How many are drawn of each."""
    format: Literal["text", "tsv", "json"] = "text"
    """For files and pipes. text: all that is drawn, one a line.
    tsv, json: each different result once, the likeliest first,
    with the likelihood of what was filled in (a mean over its tokens),
    and how often it was drawn."""

    def run(self) -> None:
        (model, texts), options = self.opened(), self.options()
        told = self.format != "text" or sys.stdout.isatty()
        draw = model.alternatives if told else model.infill
        for number, text in enumerate(texts):
            with progress("infilling") as callback:
                found = draw(text, self.n, callback=callback, **options)
            if not told:
                show(found)
            elif self.format == "text":
                from redraft.terminal import show_alternatives

                show_alternatives(found, model.template(text), model.tokenizer)
            else:
                self.write(found, text, header=number == 0)

    def write(self, found: "list[Alternative]", text: str, header: bool) -> None:
        """For other programs."""
        rows = [
            {"text": one.text, "likelihood": one.likelihood, "drawn": one.drawn, "given": text}
            for one in found
        ]
        if self.format == "json":
            print("\n".join(map(json.dumps, rows)))
            return
        if header:
            print("\t".join(rows[0]))
        for row in rows:
            cells = map(str, (row | {"likelihood": f"{row['likelihood']:.4f}"}).values())
            print("\t".join(" ".join(cell.split()) for cell in cells))


@dataclass
class Revise(Redrawing):
    """Re-draft sequences: noise each a little, and come back; on a terminal changes are marked.

    For example:
    $ redraft revise "CC(=O)Nc1ccc(O)cc1" --strength 0.3 --show
    $ redraft revise --no-noising < story.txt
    $ redraft revise --model runs/vsdd-1 < molecules.smi
    """

    strength: float = 0.3
    """How far to go: 0 changes nothing, 1 starts anew."""
    noising: bool = True
    """Whether to add noise first. Without, the sequence is taken for a noisy one,
    and what the model holds for mistakes is corrected."""
    show: bool = False
    """Show every step of the first sequence."""

    def run(self) -> None:
        from redraft.sampler import Trace

        (model, texts), frames = self.opened(), Trace()
        items = [model.tokenizer.parse(text) for text in texts]
        with progress("revising") as callback:

            def watch(step: Any) -> None:
                frames(step)
                callback(step)

            rows = model.revise(
                items, self.strength, noising=self.noising, callback=watch, **self.options()
            )
        if self.show and frames:
            from redraft.terminal import show_revision

            show_revision(frames, model.tokenizer, model.tokenizer.encode(items[0]))
        if not sys.stdout.isatty() or not all(isinstance(row, str) for row in rows):
            show(rows)
            return
        from redraft.terminal import show_changes

        for item, row in zip(items, rows, strict=True):
            show_changes(item, row, model.tokenizer)


@dataclass
class Repair:
    """Bring molecules that do not parse to the nearest ones that do; valid ones stay as they are.

    For example:
    $ redraft repair "CC(=O)Nc1ccc(O)cc"
    $ redraft repair broken.csv.gz > repaired.tsv
    $ my-generator | redraft repair --format smiles > valid.smi
    """

    items: Annotated[Positional[tuple[str, ...]], arg(metavar="SMILES|FILE...")] = ()
    """SMILES, or files with one a line; by default standard input.
    What follows a blank or a comma is taken for a name."""
    model: Annotated[str | None, arg(metavar="MODEL")] = None
    """A run folder, a shipped model or a hub id; by default molecules.
    A folder or a shipped model may also stand before SMILES."""
    format: Literal["tsv", "smiles", "json"] = "tsv"
    """For files and pipes; on a terminal it is told at length.
    tsv: result, status, edits, sure (from 0 to 1), given, remark.
    smiles: valid results alone.
    json: one object a line."""
    drafts: int = 8
    """Re-drafts tried of each start at each strength, where two edits are not enough."""
    seed: int | None = None
    """Seed of what is drawn: same seed, same output."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU where there is one."""

    def __post_init__(self) -> None:
        if self.model is None:
            self.model, self.items = model_before(self.items)

    def run(self) -> None:
        from redraft.model import load
        from redraft.report.repairs import RepairWriter

        sources = [smiles_of(item) for item in self.items or ("-",)]
        model = load(self.model or SHIPPED, self.device)
        texts = chain.from_iterable(sources)
        with RepairWriter(self.format, model.tokenizer) as writer:
            for repaired in model.repair(texts, seed=self.seed, drafts=self.drafts):
                writer.write(repaired)
        if set(writer.counts) == {"not repaired"}:
            raise NotFound("nothing could be repaired")


def smiles_of(item: str) -> Iterable[str]:
    """What an argument stands for: standard input, a file, or itself.

    A stream is read as it is asked for, however long it is; a line that is no text is a broken one.
    """
    from redraft.data.molecules import column, first_cell, first_column

    if item == "-":
        rows = standard_input("give SMILES or a file, or pipe some in, one a line", "replace")
        return required(first_column(rows), "standard input")
    if not exists(item) or isdir(item):
        check(not names_file(item), f"there is no file {item}")
        return [first_cell(item)]
    check(
        not item.lower().removesuffix(".gz").endswith(STRUCTURES),
        f"SMILES are read from text, one a line ({', '.join(LISTS)}, or these with .gz), "
        f"got {item}",
    )
    return required(column(item, "replace"), item)


def required(rows: Iterable[tuple[int, str]], source: str) -> Iterator[str]:
    """The SMILES of a stream, if there are any; lines between them may be empty."""
    empty = True
    for _, smiles in rows:
        empty = False
        yield smiles
    check(not empty, f"{source} holds no SMILES, at least one line of them is needed")


def names_file(text: str) -> bool:
    """Whether it ends as names of files do, and as no SMILES does, not even one in small letters.

    >>> [names_file(text) for text in ("new.sdf", "NEW.SMI", "new.csv.gz", "CCO.Cl", "cco.cl")]
    [True, True, True, False, False]
    """
    known = text.lower().endswith((*LISTS, *STRUCTURES))
    return known or bool(re.search(r"\.(?![bcfhilnoprs]*$)[a-z]{2,5}$", text))


def model_before(given: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """The model that stands before sequences, a folder or a shipped one, and the sequences."""
    for first in given[:1]:
        if first in (SHIPPED, STORIES) or isdir(first):
            return first, given[1:]
    return None, given


def suited(texts: Sequence[str]) -> str:
    """The shipped model that knows what such texts are.

    >>> suited(["CC(=O)N[MASK:4]ccc1"]), suited(["Lily had a [MASK] ball."])
    ('molecules', 'stories')
    """
    return STORIES if any(len(text.split()) > 1 for text in texts) else SHIPPED


def inputs(given: Sequence[str]) -> list[str]:
    """What was given on the command line, or the lines of standard input."""
    if given:
        return list(given)
    rows = standard_input("give a sequence, or pipe some in, one a line")
    found = [line for _, line in rows if line.strip()]
    check(bool(found), "standard input holds no sequences")
    return found


def standard_input(otherwise: str, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """Its lines with their numbers; where nothing is piped in, what to do `otherwise`."""
    from redraft.data.lines import decoded

    if sys.stdin is None or sys.stdin.isatty():  # None where the shell has closed it
        raise UserError(otherwise)
    return decoded(sys.stdin.buffer, "standard input", errors)


def check_place(path: Path) -> None:
    """Whether a file can be written there, before there is something to lose."""
    check(not isdir(path), f"{path} is a folder, the name of a file is needed")
    nearest = next(p for p in (path, *path.absolute().parents) if exists(p))
    check(nearest == path or isdir(nearest), f"{path} cannot be written, {nearest} is no folder")
    check(os.access(nearest, os.W_OK), f"{path} cannot be written, {nearest} is read-only")


def show(rows: list[Any]) -> None:
    """Results on standard output, one a line, and nothing else there.

    Stories of several lines have `<|endoftext|>` between them, as files of them have.
    """
    from redraft.data.stories import SEPARATOR

    texts = [row if isinstance(row, str) else " ".join(map(str, row)) for row in rows]
    several = any("\n" in text for text in texts)
    for text in texts:
        print(f"{text}\n{SEPARATOR}" if several else text)


@contextmanager
def progress(what: str) -> "Iterator[Callback]":
    """A bar on standard error where that is a terminal, counted by the sampler's own steps."""
    with bar(what) as update:
        yield lambda step: update(advance=1, description=f"{what}, {step.n} to go")


@contextmanager
def bar(what: str) -> Iterator[Callable[..., None]]:
    """What moves it."""
    from rich.console import Console
    from rich.progress import Progress

    quiet = not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as shown:
        yield partial(shown.update, shown.add_task(what, total=None))
