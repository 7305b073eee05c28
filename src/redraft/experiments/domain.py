"""What a domain says of itself: what is drawn from its models, and what is measured of that.

What is drawn lies in a folder, a file of lines for each kind. A file is whole or not there, and
what is there is not drawn again.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from redraft.config import Config, check
from redraft.domains import Dataset
from redraft.errors import UserError
from redraft.evaluation.judge import Judging
from redraft.evaluation.statistics import Estimate
from redraft.experiments.noise import Kernel
from redraft.folder import explained, put
from redraft.model import Model
from redraft.sampler import Callback

NOISE = "noise.safetensors"
PLAIN: dict[str, Any] = {"renew": 0.0}
"""How samples are drawn that are measured, unless something else is asked for."""


@dataclass(frozen=True)
class Amounts:
    """How much is drawn."""

    optional: ClassVar[frozenset[str]] = frozenset()
    """What 0 leaves out."""

    def __post_init__(self):
        for name, value in asdict(self).items():
            least = 0 if name in self.optional else 1
            check(value >= least, f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class Drawn:
    """A folder of what was drawn; it has what results tell of a run."""

    folder: Path
    config: Config
    summary: dict[str, Any]
    amounts: Any

    def rows(self, name: str) -> list[Any]:
        return read_rows(self.folder / name)

    def kernel(self) -> Kernel | None:
        path = self.folder / NOISE
        return Kernel.read(path) if path.is_file() else None


class Measured(Protocol):
    """One model's numbers, and what differences are made of."""

    @property
    def results(self) -> list[dict[str, Any]]:
        """One for each experiment, generation first."""
        ...

    def less(self, first: Any, seed: int) -> dict[str, dict[str, Estimate]]:
        """How far it is from the first, by experiment and metric."""
        ...


@dataclass(frozen=True)
class Asked:
    """What an evaluation is asked for, beside its experiment."""

    seed: int = 0
    n: int | None = None
    """As many as the domain has by default where it is None."""
    draws: int | None = None
    """Of each, likewise."""
    samples: Path | None = None
    """What was generated before."""
    fcd: bool = False
    judge: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Of the sampler."""
    callback: Callback | None = None
    judging: Judging | None = None


@dataclass(frozen=True)
class Domain:
    """A row of the table of domains."""

    drawn: Callable[..., Drawn]
    amounts: Callable[..., Any]
    check: Callable[[Asked], None]
    """Refuses what is no question to this domain."""
    draw: Callable[[Model, Path, Any, Callback | None], None]
    """Fills a folder with what is not yet there."""
    measuring: Callable[[Path, Asked], Callable[[Any], Measured]]
    """What gives the numbers of all that was drawn, or an error that says what it needs."""
    experiments: Mapping[str, Callable[[Model, Dataset, Asked], dict[str, Any]]]
    """What can be measured of a model at once, each as a result."""


AMOUNTS = ("fewer", "renewed", "cooled", "redrafts", "bound", "draws")
"""What can be given beside the number of samples; each domain has some of them."""


def amounts_of(domain: Domain, **given: int | None) -> Any:
    """What is given, and else what the domain draws by default."""
    known = asdict(domain.amounts())
    wanted = {name: value for name, value in given.items() if value is not None}
    for name in wanted.keys() - known.keys():
        raise UserError(f"--{name} is not for this domain, which draws {domain.amounts()}")
    return domain.amounts(**wanted)


# ------------------------------------------------------------------ files


def keep(path: Path, n: int, make: Callable[[], Sequence[str]]) -> None:
    """A file of n lines, made where it is not there."""
    if not path.is_file() or len(read_lines(path)) != n:
        put(path, "".join(f"{line}\n" for line in make()).encode())


def keep_rows(path: Path, n: int, make: Callable[[], Sequence[Any]]) -> None:
    """The same of dicts or dataclasses, each a line of JSON."""
    keep(path, n, lambda: [json.dumps(row, default=asdict) for row in make()])


def read_rows(path: Path) -> list[Any]:
    """What `keep_rows` kept."""
    with explained(path):
        return [json.loads(line) for line in read_lines(path)]


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()
