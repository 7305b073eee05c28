"""Stage 7: the loop. It knows no method by name."""

import copy
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from redraft import checkpoint
from redraft.batches import Batches, collate
from redraft.checkpoint import Trained
from redraft.config import Config, TrainConfig
from redraft.denoiser import Denoiser
from redraft.domains import Dataset, prepare
from redraft.errors import UserError
from redraft.methods import entry
from redraft.noise.process import ForwardProcess
from redraft.objective import exact_bound

Watcher = Callable[[int, float, dict[str, float], float], None]
"""Called with the step, the share of the run done, the latest metrics, and steps a second."""


def train(config: Config, folder: str | Path, watch: Watcher | None = None) -> Trained:
    """Train as the config says, and leave a run folder behind.

    >>> train(read_recipe("tiny/vsdd"), "runs/tiny")                            # doctest: +SKIP
    """
    folder = Path(folder)
    refuse_existing(folder)
    method_entry = entry(config.method)
    device = checkpoint.device_of(config.train.device)
    data = prepare(config.data, config.seed)
    torch.manual_seed(config.seed)
    denoiser, process = checkpoint.build(config, len(data.tokenizer), data.max_length)
    denoiser, process = denoiser.to(device), process.to(device)
    generator = torch.Generator(device).manual_seed(config.seed)
    batches = Batches(data.train, config.train.batch, config.seed, device)
    held_out = Batches(data.held_out, config.leader.batch, config.seed + 1, device)
    method = method_entry.method(config, denoiser, process, held_out, generator)
    average = copy.deepcopy(denoiser).requires_grad_(False)
    trained = describe(config, data, average, process)
    bound = Bound(data, config, device)
    trained.summary |= {"bound_start": bound(average, process)}
    log, budget, health = Log(folder), Budget(config.train), Health()

    step = 0
    while not budget.spent(step):
        metrics = method.step(batches[step], budget.progress(step))
        follow_average(average, denoiser, config.train.ema, step)
        health.note(step, metrics["loss"])
        log.note(metrics)
        step += 1
        if step % config.train.log_every == 0:  # once in a while: look
            health.check(folder)
            row = log.write(step, budget.seconds())
            if watch is not None:
                watch(step, budget.progress(step), row, step / row["seconds"])
        if step % config.train.save_every == 0:  # once in a while: save
            health.check(folder)
            trained.summary |= {"steps": step, "seconds": budget.seconds()}
            checkpoint.save(folder, trained)

    health.check(folder)
    trained.summary |= {"steps": step, "seconds": budget.seconds()}
    trained.summary |= {"bound_end": bound(average, process)}
    log.note({f"validation/{k}": trained.summary[k] for k in ("bound_start", "bound_end")})
    log.write(step, budget.seconds())
    log.close()
    checkpoint.save(folder, trained)
    return trained


def refuse_existing(folder: Path) -> None:
    """A run never overwrites another."""
    if (folder / "config.json").exists() or (folder / "metrics.jsonl").exists():
        raise UserError(f"{folder} already holds a run; choose another folder with --out")


def describe(config: Config, data: Dataset, denoiser: Denoiser, process: ForwardProcess) -> Trained:
    """What will be saved, before anything was learned."""
    lengths = np.bincount([len(s) for s in data.train], minlength=data.max_length + 1)
    tokens = np.bincount(np.concatenate(data.train), minlength=len(data.tokenizer))
    summary = {"data": data.origin, "items": data.report, "steps": 0, "seconds": 0.0}
    return Trained(config, data.tokenizer, denoiser, process, lengths, tokens, summary)


@torch.no_grad()
def follow_average(average: Denoiser, denoiser: Denoiser, decay: float, step: int) -> None:
    """Exponential moving average of the weights, shorter at the very start."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(denoiser.parameters()), 1 - decay)


class Budget:
    """Steps or seconds, whichever is spent first: how much of the run is done."""

    def __init__(self, config: TrainConfig):
        self.config, self.start = config, time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self.start

    def progress(self, step: int) -> float:
        limits = ((step, self.config.steps), (self.seconds(), self.config.seconds))
        return min(max(done / limit for done, limit in limits if limit is not None), 1.0)

    def spent(self, step: int) -> bool:
        return self.progress(step) >= 1


class Health:
    """Remembers the first loss that was not a number, without making the GPU wait."""

    def __init__(self):
        self.bad: Tensor | None = None

    def note(self, step: int, loss: Tensor | float) -> None:
        loss = torch.as_tensor(loss)
        if self.bad is None:
            self.bad = torch.full((), -1, device=loss.device)
        first = (self.bad < 0) & ~loss.isfinite()
        self.bad = torch.where(first, step + 1, self.bad)

    def check(self, folder: Path) -> None:
        if self.bad is not None and (step := int(self.bad)) >= 0:
            saved = folder / "model.safetensors"
            kept = f"the last good state is in {folder}" if saved.exists() else "nothing was saved"
            raise UserError(f"the loss is not a number at step {step}; {kept}")


class Bound:
    """The exact bound on some validation data, always with the same noise, in nats per token."""

    def __init__(self, data: Dataset, config: Config, device: torch.device):
        chosen = sorted(data.validation[: config.train.validate], key=len)
        self.seed, self.device = config.seed, device
        self.parts = [collate(chosen[i : i + 64], device) for i in range(0, len(chosen), 64)]
        self.tokens = sum(map(len, chosen))

    def __call__(self, denoiser: Denoiser, process: ForwardProcess) -> float:
        generator = torch.Generator(self.device).manual_seed(self.seed)
        nats = [exact_bound(denoiser, process, x0, generator).sum() for x0 in self.parts]
        return float(torch.stack(nats).sum() / self.tokens)


class Log:
    """metrics.jsonl and TensorBoard events of a run."""

    def __init__(self, folder: Path):
        from torch.utils.tensorboard import SummaryWriter

        folder.mkdir(parents=True, exist_ok=True)
        self.file = (folder / "metrics.jsonl").open("a", encoding="utf-8")
        self.events = SummaryWriter(str(folder / "events"))
        self.latest: dict[str, Tensor | float] = {}

    def note(self, metrics: dict[str, Tensor | float]) -> None:
        self.latest |= metrics

    def write(self, step: int, seconds: float) -> dict[str, float]:
        """One line with the latest of every metric since the line before."""
        row = {name: float(value) for name, value in self.latest.items()}
        self.latest = {}
        for name, value in row.items():
            self.events.add_scalar(name, value, step)
        row = {"step": step, "seconds": seconds, **row}
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()
        return row

    def close(self) -> None:
        self.file.close()
        self.events.close()
