"""A run folder: what training leaves behind, and what a model is loaded from.

    config.json         the resolved config, and what came of the run
    model.safetensors   averaged denoiser and the committed process
    tokenizer.json      tokens
    counts.json         how often each length and each token occurs in the training data

Writes are atomic: a killed run leaves the last good state. Nothing is ever unpickled.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from redraft import __version__, tokenizers
from redraft.config import Config
from redraft.denoiser import Denoiser
from redraft.errors import UserError
from redraft.methods import entry
from redraft.noise.process import ForwardProcess
from redraft.noise.semantic import SemanticProcess
from redraft.tokenizers import Tokenizer

FORMAT = 1


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


def save(folder: Path, trained: Trained) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / "model.safetensors", _tensors(trained.denoiser, trained.process))
    write_json(folder / "tokenizer.json", tokenizers.save(trained.tokenizer))
    counts = {"lengths": trained.lengths.tolist(), "tokens": trained.tokens.tolist()}
    write_json(folder / "counts.json", counts)
    header = {"format": FORMAT, "version": __version__, "max_length": len(trained.lengths) - 1}
    write_json(
        folder / "config.json",
        header | {"summary": trained.summary, "config": trained.config.to_dict()},
    )


def load(folder: str | Path, device: str = "cpu") -> Trained:
    folder = Path(folder)
    stored = read_json(folder / "config.json")
    if stored.get("format") != FORMAT:
        raise UserError(
            f"{folder} has run format {stored.get('format')}, this version reads {FORMAT}"
        )
    config = Config.from_dict(stored["config"])
    tokenizer = tokenizers.load(read_json(folder / "tokenizer.json"))
    denoiser, process = build(config, len(tokenizer), stored["max_length"])
    _restore(folder / "model.safetensors", denoiser, process)
    counts = read_json(folder / "counts.json")
    return Trained(
        config,
        tokenizer,
        denoiser.to(device).eval(),
        process.to(device),
        np.array(counts["lengths"]),
        np.array(counts["tokens"]),
        stored["summary"],
    )


def _tensors(denoiser: Denoiser, process: ForwardProcess) -> dict[str, Tensor]:
    parts = {"denoiser": denoiser.state_dict(), "process": process.state_dict()}
    return {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, state in parts.items()
        for name, tensor in state.items()
    }


def _restore(path: Path, denoiser: Denoiser, process: ForwardProcess) -> None:
    try:
        tensors = load_file(path)
    except FileNotFoundError:
        raise UserError(f"there is no {path.name} in {path.parent}") from None
    except SafetensorError as error:
        raise UserError(f"{path} is damaged: {error}") from None
    for part, module in (("denoiser", denoiser), ("process", process)):
        state = {
            name.removeprefix(f"{part}."): tensor
            for name, tensor in tensors.items()
            if name.startswith(f"{part}.")
        }
        try:
            module.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{path} does not fit its config.json: {reason}") from None
    if isinstance(process, SemanticProcess):
        process.rebuild()


def save_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    aside = path.with_name(f".{path.name}.new")
    save_file(tensors, aside)
    _settle(aside, path)


def write_json(path: Path, value: Any) -> None:
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(json.dumps(value, indent=1), encoding="utf-8")
    _settle(aside, path)


def _settle(aside: Path, path: Path) -> None:
    """Make a finished file appear under its name, whole or not at all."""
    with aside.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(aside, path)


def read_json(path: Path) -> Any:
    if not path.parent.is_dir():
        raise UserError(f"there is no run folder {path.parent}")
    if not path.is_file():
        raise UserError(f"{path.parent} is no run folder: it holds no {path.name}")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged: {error}") from None


def device_of(name: str) -> torch.device:
    """The device that a config names; "auto" is the GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.zeros(0, device=name).device
    except (RuntimeError, AssertionError):
        raise UserError(f"no device {name!r} here; accepted: auto, cpu, cuda, cuda:1 ...") from None
