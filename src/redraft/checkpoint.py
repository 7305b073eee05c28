"""A run folder: what training leaves behind, what it continues from, what a model is loaded from.

config.json          format, version, commit, the resolved config, and what came of the run
model.safetensors    averaged denoiser and the committed process
tokenizer.json       tokens
counts.json          how often each length and each token occurs in the training data
README.md            model card
manifest.json        sizes and checksums of the files above
state/00000500/      what training continues from, as of step 500:
  model/             all of the above
  state.safetensors  live weights, optimizers, random numbers
  progress.json      step, seconds, metrics not yet written
metrics.jsonl, events/
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft import __version__, tokenizers
from redraft.config import Config
from redraft.denoiser import Denoiser
from redraft.errors import UserError
from redraft.folder import (
    publish,
    read_json,
    read_tensors,
    seal,
    verify,
    write_json,
    write_tensors,
    written,
)
from redraft.methods import entry
from redraft.noise.process import ForwardProcess
from redraft.tokenizers import Tokenizer

FORMAT = 1
"""Raised whenever an older version could not read what this one writes."""


@dataclass
class Trained:
    """All that sampling needs, as it lies in a run folder."""

    config: Config
    tokenizer: Tokenizer
    denoiser: Denoiser
    """With averaged weights."""
    process: ForwardProcess
    """The noise of the last block."""
    lengths: np.ndarray
    """How many training sequences have each length, from 0 on."""
    tokens: np.ndarray
    """How often each token occurs in the training data, (V,)."""
    summary: dict[str, Any]
    """Steps, seconds, bounds and origin of the data."""


def build(config: Config, V: int, max_length: int) -> tuple[Denoiser, ForwardProcess]:
    """Fresh players, as the config describes them."""
    denoiser = Denoiser(config.denoiser, V, config.noise.T, max_length)
    return denoiser, entry(config.method).process(config, V, max_length)


# ------------------------------------------------------------------ models


def save(folder: Path, trained: Trained) -> None:
    """The model alone; other files that lie in the folder stay there."""
    with written(folder.with_name(f".{folder.name}.model")) as aside:
        _write_model(aside, trained)
    publish(folder.with_name(f".{folder.name}.model"), folder)
    shutil.rmtree(folder.with_name(f".{folder.name}.model"))


def load(folder: str | Path, device: str = "cpu") -> Trained:
    """The model of a folder."""
    source = Path(folder)
    verify(source)
    stored = _read_config(source)
    tokenizer = tokenizers.load(read_json(source / "tokenizer.json"))
    counts = read_json(source / "counts.json")
    denoiser, process = build(stored["config"], len(tokenizer), len(counts["lengths"]) - 1)
    _restore(source, denoiser, process)
    return Trained(
        stored["config"],
        tokenizer,
        denoiser.to(device).eval(),
        process.to(device),
        np.array(counts["lengths"]),
        np.array(counts["tokens"]),
        stored["summary"],
    )


def read_config(run: Path) -> Config:
    """The config of a run that can be continued."""
    state = latest(run)
    if state is None:
        raise UserError(f"{run} holds no state to continue from")
    return _read_config(state / "model")["config"]


def _write_model(folder: Path, trained: Trained) -> None:
    parts = {"denoiser": trained.denoiser, "process": trained.process}
    write_tensors(folder, "model", flatten({k: m.state_dict() for k, m in parts.items()}))
    write_json(folder / "tokenizer.json", tokenizers.save(trained.tokenizer))
    counts = {"lengths": trained.lengths.tolist(), "tokens": trained.tokens.tolist()}
    write_json(folder / "counts.json", counts)
    header = {"format": FORMAT, "version": __version__, "commit": commit()}
    body = {"summary": trained.summary, "config": trained.config.to_dict()}
    write_json(folder / "config.json", header | body)
    (folder / "README.md").write_text(model_card(trained), encoding="utf-8")


def _read_config(folder: Path) -> dict[str, Any]:
    stored = read_json(folder / "config.json")
    if not isinstance(stored, dict) or not isinstance(stored.get("format"), int):
        raise UserError(f"{folder / 'config.json'} is no config of a redraft model")
    if stored["format"] > FORMAT:
        raise UserError(
            f"{folder} was written by redraft {stored.get('version')} in format "
            f"{stored['format']}; this version, {__version__}, reads formats up to {FORMAT}"
        )
    return stored | {"config": Config.from_dict(stored["config"])}


def _restore(folder: Path, denoiser: Denoiser, process: ForwardProcess) -> None:
    """Averaged weights and process from the folder's model file."""
    parts = unflatten(read_tensors(folder, "model"))
    for part, module in (("denoiser", denoiser), ("process", process)):
        try:
            module.load_state_dict(parts.get(part, {}))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{folder}: model and config.json do not fit: {reason}") from None


def model_card(trained: Trained) -> str:
    """README.md of a model, with the numbers of its run."""
    summary, config = trained.summary, trained.config
    rows = "\n".join(f"| {name} | {value} |" for name, value in sorted(summary.items()))
    return (
        f"---\nlibrary_name: redraft\ntags: [discrete-diffusion, {config.method}]\n"
        f"---\n\n# A redraft model: {config.method} on {config.data.domain}\n\n"
        f'    import redraft\n    model = redraft.load("this folder")\n    model.sample(16)\n\n'
        f"| | |\n|---|---|\n{rows}\n\n"
        f"Vocabulary {len(trained.tokenizer)}, T = {config.noise.T}, denoiser of width "
        f"{config.denoiser.width} with {config.denoiser.layers} layers; the whole configuration is "
        f"in config.json.\n"
    )


def commit() -> str | None:
    """The commit of the checkout that this package runs from, where there is one."""
    try:
        root = Path(__file__).parents[2]
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5
        )
    except OSError:
        return None
    return found.stdout.strip() if found.returncode == 0 and (root / ".git").exists() else None


# ------------------------------------------------------------------ states


def save_state(
    run: Path, trained: Trained, tensors: dict[str, Tensor], progress: dict[str, Any], keep: int
) -> None:
    """One more state of a run, complete or not there; the oldest beyond `keep` are dropped."""
    folder = run / "state" / f"{progress['step']:08}"
    with written(folder) as aside:
        (aside / "model").mkdir()
        _write_model(aside / "model", trained)
        seal(aside / "model")
        write_tensors(aside, "state", tensors)
        write_json(aside / "progress.json", progress)
    publish(folder / "model", run)  # also for readers that know nothing of states
    for old in states(run)[:-keep]:
        shutil.rmtree(old)


def states(run: Path) -> list[Path]:
    """The complete states of a run, oldest first."""
    found = (run / "state").glob("[0-9]*") if (run / "state").is_dir() else []
    return sorted(path for path in found if path.is_dir())


def latest(run: Path) -> Path | None:
    return next(reversed(states(run)), None)


@dataclass
class State:
    """What a run continues from."""

    trained: Trained
    tensors: dict[str, Tensor]
    progress: dict[str, Any]


def load_state(run: Path) -> State:
    """The latest state of a run."""
    folder = latest(run)
    if folder is None:
        raise UserError(f"{run} holds no state to continue from")
    verify(folder)
    tensors, progress = read_tensors(folder, "state"), read_json(folder / "progress.json")
    return State(load(folder / "model"), tensors, progress)


def flatten(parts: dict[str, dict[str, Tensor]]) -> dict[str, Tensor]:
    """{"a": {"b": x}} as {"a/b": x}."""
    return {f"{part}/{name}": x for part, tensors in parts.items() for name, x in tensors.items()}


def unflatten(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    return parts


def device_of(name: str) -> torch.device:
    """The device that a config names; "auto" is the GPU where there is one."""
    if name == "auto":  # torchrun has given every process a GPU of its own
        name = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.zeros(0, device=name).device
    except (RuntimeError, AssertionError):
        raise UserError(f"no device {name!r} here; accepted: auto, cpu, cuda, cuda:1 ...") from None
