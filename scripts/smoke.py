"""Does a built wheel work where nothing else is? It is looked into, installed, and tried.

python scripts/smoke.py dist/redraft-0.1.0-py3-none-any.whl

It goes into an empty environment, under constraints.txt, in a folder that is removed afterwards.
"""

import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

ROOT = Path(__file__).parents[1]
LARGEST = 2e6
"""Bytes of a wheel beside its models, whose sizes have tests of their own."""
BROKEN, MASKED = "CC(=O)Nc1ccc(O)cc", "CC(=O)N[MASK:3]cc1"


class Trial(NamedTuple):
    """A command, and what makes its output right."""

    what: str
    command: list[str]
    right: Callable[[str], bool]


def trials(version: str) -> list[Trial]:
    def lines(n: int, good: Callable[[str], bool] = bool) -> Callable[[str], bool]:
        return lambda said: len(rows := said.splitlines()) == n and all(map(good, rows))

    def says(*words: str) -> Callable[[str], bool]:
        return lambda said: all(word in said for word in words)

    seed = ["--seed", "0"]
    train = ["train", "tiny/vsdd", "--train.steps", "2", "--out", "run"]
    mended, filled = "c1ccccc1", "CC(=O)N"
    return [
        Trial("its version", ["--version"], lambda said: said.strip() == version),
        Trial("four molecules", ["sample", "-n", "4", *seed], lines(4)),
        Trial("a repair", ["repair", BROKEN, "c1ccccc", *seed], says(BROKEN, "repaired", mended)),
        Trial(
            "an infill",
            ["infill", MASKED, "-n", "2", *seed],
            lines(2, lambda row: row.startswith(filled) and "[MASK" not in row),
        ),
        Trial(
            "a story", ["infill", "Lily had a [MASK] ball.", *seed], says("Lily had a ", " ball.")
        ),
        Trial("a recipe, two steps", train, says("bound on validation data", "model: run")),
        Trial("a model of its own", ["sample", "run", "-n", "3", *seed], lambda said: bool(said)),
        Trial("a report", ["report", "run", "--samples", "2"], says("written to report.html")),
        Trial("help on reports", ["report", "--help"], says("redraft report", "--out")),
        Trial("help on the page", ["serve", "--help"], says("redraft serve", "--port")),
    ]


def main(wheel: Path) -> None:
    version = wheel.name.split("-")[1]
    with told(f"looking into {wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB"):
        look_into(wheel)
    with TemporaryDirectory(prefix="redraft-smoke-") as folder:
        place = Path(folder)
        with told("making an empty environment"):
            venv.create(place / "env", with_pip=True)
        with told("installing the wheel there, under constraints.txt"):
            install(wheel.resolve(), place)
        for trial in trials(version):
            with told(f"{trial.what}: redraft {' '.join(trial.command)}"):
                try_out(trial, place)
    print(f"{wheel} works where nothing else is.")


@contextmanager
def told(what: str) -> Iterator[None]:
    print(f"  {what} ...", end=" ", flush=True)
    start = time.monotonic()
    yield
    print(f"{time.monotonic() - start:.1f} s", flush=True)


def look_into(wheel: Path) -> None:
    """It holds every file of the package and every recipe, and is not too large."""
    with ZipFile(wheel) as archive:
        held = {part.filename: part.compress_size for part in archive.infolist()}
    package = {f"redraft/{name}" for name in files_under(ROOT / "src/redraft")}
    recipes = {f"redraft/recipes/{name}" for name in files_under(ROOT / "recipes")}
    missing = sorted((package | recipes) - held.keys())
    require(not missing, f"the wheel lacks {len(missing)} files: {', '.join(missing[:10])}")
    size = sum(size for name, size in held.items() if not name.startswith("redraft/models/"))
    require(size < LARGEST, f"beside models a wheel has below {LARGEST:.0f} bytes, this one {size}")


def files_under(folder: Path) -> Iterable[str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return [path.relative_to(folder).as_posix() for path in found if path.suffix != ".pyc"]


def install(wheel: Path, place: Path) -> None:
    pip = [place / "env/bin/python", "-m", "pip", "install", "--quiet"]
    options = ["--disable-pip-version-check", "--constraint", ROOT / "constraints.txt"]
    finished(run([*pip, *options, wheel], place, environment()), "pip install")


def try_out(trial: Trial, place: Path) -> None:
    """In an empty folder: what is found there is found in the wheel."""
    work = place / "work"
    work.mkdir(exist_ok=True)
    offline = {"HF_HUB_OFFLINE": "1", "COLUMNS": "100", "REDRAFT_CACHE": str(place / "cache")}
    done = run([place / "env/bin/redraft", *trial.command], work, environment() | offline)
    said = finished(done, trial.what)
    require(trial.right(said), f"{trial.what} is not right:\n{said}\n{done.stderr}")


def environment() -> dict[str, str]:
    """Ours, less what would let this checkout shine through."""
    shining = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT")
    return {name: value for name, value in os.environ.items() if name not in shining}


def run(command: list, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True)


def finished(done: subprocess.CompletedProcess[str], what: str) -> str:
    """What it said on standard output."""
    output = f"{done.stdout}{done.stderr}"
    require(done.returncode == 0, f"{what} ended with {done.returncode}:\n{output}")
    return done.stdout


def require(condition: bool, message: str) -> None:
    if not condition:
        sys.exit(f"FAILED\n{message}")


if __name__ == "__main__":
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".whl"):
        sys.exit(f"usage: python scripts/smoke.py WHEEL, got {sys.argv[1:]}")
    main(Path(sys.argv[1]))
