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

A compact model is for drawing alone: weights of 16 bits, and noise in as few numbers as hold it.
"""

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, replace
from functools import cache
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
    Sealed,
    explained,
    publish,
    read_json,
    require_same,
    seal,
    write_json,
    write_tensors,
    written,
)
from redraft.methods import entry
from redraft.noise.committed import CommittedProcess, awaiting_state
from redraft.noise.process import ForwardProcess
from redraft.tokenizers import Tokenizer

FORMAT = 2
"""Raised whenever an older version could not read what this one writes.

Format 1 kept what the noise is learning beside what it is, in model.safetensors.
"""
SECTIONS = ("method", "seed", "data", "noise", "denoiser", "optimizer", "train", "leader", "fldd")
"""Parts of the config that every model of format 1 has; what later versions add has defaults."""


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
    compact: bool = False
    """Whether it is for drawing alone."""


def build(config: Config, V: int, max_length: int) -> tuple[Denoiser, ForwardProcess]:
    """Fresh players, as the config describes them."""
    denoiser = Denoiser(config.denoiser, V, config.noise.T, max_length)
    return denoiser, entry(config.method).process(config, V, max_length)


# ------------------------------------------------------------------ models


def compacted(trained: Trained) -> Trained:
    """The same model, to be saved in few bytes; its noise stays exactly what it is."""
    process = trained.process
    if isinstance(process, CommittedProcess):
        process = process.settled()
    return replace(trained, process=process, compact=True)


def save(folder: Path, trained: Trained) -> None:
    """The model alone; other files that lie in the folder stay there."""
    aside = folder / ".model"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with written(aside) as fresh:
            _write_model(fresh, trained)
        publish(aside, folder)
    except OSError as error:
        raise UserError(
            f"the model could not be saved in {folder} ({error.strerror}); what was there stays"
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load(folder: str | Path, device: str = "cpu") -> Trained:
    """The model of a folder; of a run whose own copy was not finished, that of its latest state."""
    folder = Path(folder)
    state = latest(folder)
    try:
        source = Sealed(folder)
    except UserError:
        if state is None:
            raise
        source = Sealed(state / "model")
    return _read_model(source, device)


def _read_model(
    source: Sealed, device: str = "cpu", learning: dict[str, Tensor] | None = None
) -> Trained:
    """A model; with what its noise was `learning`, where a run goes on."""
    config, stored = _read_config(source.path("config.json"))
    with explained(path := source.path("tokenizer.json")):
        tokenizer = tokenizers.load(read_json(path))
    with explained(path := source.path("counts.json")):
        counts = read_json(path)
        lengths, tokens = (np.array(counts[name]) for name in ("lengths", "tokens"))
        whole = all(
            c.ndim == 1 and c.dtype.kind == "i" and (c >= 0).all() for c in (lengths, tokens)
        )
        if not whole or lengths.sum() == 0 or len(tokens) != len(tokenizer):
            raise UserError(f"{path} does not count the {len(tokenizer)} tokens of tokenizer.json")
    parts = unflatten(source.tensors("model"))
    noise = parts.pop("process", {}) | (learning or {})
    with awaiting_state():
        denoiser, process = build(config, len(tokenizer), len(lengths) - 1)
        if isinstance(process, CommittedProcess):
            process = process.kind_of(noise)
            noise = process.completed(noise) if learning is None else noise
    summary, compact = stored["summary"], stored.get("compact", False)
    with explained(source.folder / "model.safetensors"):
        wanted = {"denoiser": weights(denoiser, compact), "process": process.state_dict()}
        require_same({**parts, "process": noise}, wanted)
        denoiser.load_state_dict(parts["denoiser"])
        process.load_state_dict(noise)
    denoiser, process = denoiser.to(device).eval(), process.to(device)
    return Trained(config, tokenizer, denoiser, process, lengths, tokens, summary, compact)


def weights(denoiser: Denoiser, compact: bool) -> dict[str, Tensor]:
    """As they are saved."""
    found = denoiser.state_dict()
    return {name: x.bfloat16() for name, x in found.items()} if compact else found


def halves(process: ForwardProcess) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The noise itself, and what only a run that goes on needs beside it."""
    learns = isinstance(process, CommittedProcess)
    return process.halves() if learns else (process.state_dict(), {})


def read_config(run: Path) -> Config:
    """The config of a run that can be continued."""
    return _read_config(_state_of(run) / "model" / "config.json")[0]


def _write_model(folder: Path, trained: Trained) -> None:
    noise, _ = halves(trained.process)
    parts = {"denoiser": weights(trained.denoiser, trained.compact), "process": noise}
    write_tensors(folder, "model", flatten(parts))
    write_json(folder / "tokenizer.json", tokenizers.save(trained.tokenizer))
    counts = {"lengths": trained.lengths.tolist(), "tokens": trained.tokens.tolist()}
    write_json(folder / "counts.json", counts)
    header = {"format": FORMAT, "version": __version__, "commit": commit()}
    body = {"summary": trained.summary, "config": trained.config.to_dict()}
    write_json(folder / "config.json", header | {"compact": trained.compact} | body)
    (folder / "README.md").write_text(model_card(trained), encoding="utf-8")


def _read_config(path: Path) -> tuple[Config, dict[str, Any]]:
    """The config of a model, and all that stands beside it."""
    with explained(path):
        stored = read_json(path)
        if not isinstance(stored["format"], int) or stored["format"] < 1:
            raise UserError(f"{path} has format {stored['format']!r}, no format of redraft")
        if stored["format"] > FORMAT:
            raise UserError(
                f"{path.parent} was written by redraft {stored.get('version')} in format "
                f"{stored['format']}; this version, {__version__}, reads formats up to {FORMAT}"
            )
        if not isinstance(stored["config"], dict) or not isinstance(stored["summary"], dict):
            raise UserError(f"{path} holds no config and summary")
        if not isinstance(compact := stored.get("compact", False), bool):
            raise UserError(f"{path}: compact must be true or false, got {str(compact)[:40]!r}")
        if missing := [section for section in SECTIONS if section not in stored["config"]]:
            raise UserError(f"{path} has no section {missing[0]}")
        config = Config.from_dict(stored["config"])
        entry(config.method)
        return config, stored


def model_card(trained: Trained) -> str:
    """README.md of a model, with the numbers of its run."""
    summary, config = trained.summary, trained.config
    name = summary.get("name", "this folder")
    rows = "\n".join(f"| {name} | {value} |" for name, value in sorted(summary.items()))
    return (
        f"---\nlibrary_name: redraft\ntags: [discrete-diffusion, {config.method}]\n"
        f"---\n\n# A redraft model: {config.method} on {config.data.domain}\n\n"
        f'    import redraft\n    model = redraft.load("{name}")\n    model.sample(16)\n\n'
        f"| | |\n|---|---|\n{rows}\n\n"
        f"Vocabulary {len(trained.tokenizer)}, T = {config.noise.T}, denoiser of width "
        f"{config.denoiser.width} with {config.denoiser.layers} layers; the whole configuration is "
        f"in config.json.{' Weights have 16 bits: it is for drawing alone.' * trained.compact}\n"
    )


def hardware() -> str:
    """What computes here."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} CPU threads, {platform.machine()}"


@cache
def commit() -> str | None:
    """$REDRAFT_COMMIT, or that of the checkout this package runs from; a copy may have neither."""
    root = Path(__file__).parents[2]
    if told := os.environ.get("REDRAFT_COMMIT"):  # history may be older than the files beside it
        return told
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() if found.returncode == 0 else None


# ------------------------------------------------------------------ states


def save_state(
    run: Path, trained: Trained, tensors: dict[str, Tensor], progress: dict[str, Any], keep: int
) -> None:
    """One more state of a run, complete or not there; the oldest beyond `keep` are dropped."""
    name = f"{progress['step']:08}"
    again = sum(path.name.partition("-")[0] == name for path in states(run))
    folder = run / "state" / (f"{name}-{again}" if again else name)  # a state is never replaced
    with written(folder) as aside:
        (aside / "model").mkdir()
        _write_model(aside / "model", trained)
        seal(aside / "model")
        _, learning = halves(trained.process)
        write_tensors(aside, "state", tensors | flatten({"process": learning}))
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


def _state_of(run: Path) -> Path:
    """The latest state of a run that can be continued."""
    if not run.is_dir():
        raise UserError(f"there is no run folder {run}")
    state = latest(run)
    if state is None:
        raise UserError(
            f"{run} holds no state to continue from; only run folders do, "
            f"not models that were saved or shipped by themselves"
        )
    return state


@dataclass
class State:
    """What a run continues from."""

    folder: Path
    trained: Trained
    tensors: dict[str, Tensor]
    progress: dict[str, Any]


def load_state(run: Path) -> State:
    """The latest state of a run."""
    folder = _state_of(run)
    source = Sealed(folder)
    parts = unflatten(source.tensors("state"))
    trained = _read_model(Sealed(folder / "model"), learning=parts.pop("process", {}))
    if trained.compact:
        raise UserError(f"{folder} holds a compact model, from which no run can go on")
    with explained(path := source.path("progress.json")):
        progress = read_json(path)
        step, pending = progress["step"], progress["pending"]
        steps = {step, trained.summary["steps"], int(folder.name.partition("-")[0])}
        numbers = [progress["seconds"], *pending.values()]
        if len(steps) > 1 or not all(isinstance(n, int | float) for n in numbers):
            raise UserError(f"{path} does not belong to this state")
    return State(folder, trained, flatten(parts), progress)


def sweep(run: Path) -> None:
    """Remove what a killed process left half written."""
    for aside in (run / "state").glob(".*.new"):
        shutil.rmtree(aside)


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
