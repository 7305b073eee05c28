"""What is drawn from a model, once: a small folder from which everything is measured, anywhere.

summary.json        the run: its config, what came of it, and how much was asked for
samples...          what the domain draws, see molecules.py, stories.py and playlists.py
noise.safetensors   a learned kernel and what it is held against; not where nothing is learned
metrics.jsonl       learning curves
manifest.json       sizes and checksums, when all is there

A file is whole or not there, and what is there is not drawn again.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redraft import checkpoint
from redraft.config import Config
from redraft.errors import UserError
from redraft.evaluation.results import recipe_of
from redraft.experiments.domain import NOISE, Domain, Drawn
from redraft.experiments.molecules import MOLECULES
from redraft.experiments.noise import kernel_of
from redraft.experiments.playlists import PLAYLISTS
from redraft.experiments.stories import STORIES
from redraft.folder import MANIFEST, Sealed, explained, put, read_json, seal
from redraft.model import Model
from redraft.sampler import Callback

SUMMARY, CURVES = "summary.json", "metrics.jsonl"

DOMAINS: dict[str, Domain] = {
    "molecules": MOLECULES,
    "stories": STORIES,
    "playlists": PLAYLISTS,
}
"""What is drawn and what is measured, by domain."""


def domain_of(config: Config, what: str) -> Domain:
    name = config.data.domain
    if name not in DOMAINS:
        raise UserError(f"{what} knows {' and '.join(DOMAINS)}, this one knows {name}")
    return DOMAINS[name]


def find(folder: Path) -> Drawn | None:
    """What lies in a folder, if drawing came to its end there and nothing was damaged since."""
    if not (folder / SUMMARY).is_file() or not (folder / MANIFEST).is_file():
        return None
    Sealed(folder)  # or tells what is damaged
    return read(folder)


def read(folder: Path) -> Drawn:
    with explained(path := folder / SUMMARY):
        stored = read_json(path)
        config = Config.from_dict(stored["config"])
        domain = domain_of(config, "what is drawn")
        amounts = domain.amounts(**stored["amounts"])
        return domain.drawn(folder, config, dict(stored["summary"]), amounts)


def draw(
    model: Model,
    folder: Path,
    amounts: Any = None,
    curves: Path | None = None,
    callback: Callback | None = None,
) -> Drawn:
    """Fill a folder with what is not yet there; `curves` is the run's metrics.jsonl."""
    domain = domain_of(model.config, "drawing")
    amounts = amounts or domain.amounts()
    begin(folder, model, amounts)
    domain.draw(model, folder, amounts, callback)
    if (kernel := kernel_of(model)) is not None:
        put(folder / NOISE, kernel.to_bytes())
    if curves is not None and curves.is_file():
        put(folder / CURVES, curves.read_bytes())
    seal(folder)
    return read(folder)


def begin(folder: Path, model: Model, amounts: Any) -> None:
    """Note the run and what is asked for; what was drawn from another run goes."""
    config, summary = model.config, model.trained.summary
    known = read(folder) if (folder / SUMMARY).is_file() else None
    if known is None or known.config != config or not summary.items() <= known.summary.items():
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    facts = {"recipe": recipe_of(config), "commit": checkpoint.commit()}
    stored = {
        "summary": summary | facts,
        "amounts": asdict(amounts),
        "config": config.to_dict(),
    }
    put(folder / SUMMARY, (json.dumps(stored, indent=1) + "\n").encode())
