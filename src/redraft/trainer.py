"""Stage 7: the loop. It knows no method by name.

A run can be stopped at any step and continued from its folder; on a CPU it then ends bit for bit
where it would have ended otherwise.
"""

import copy
import hashlib
import json
import math
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from redraft import checkpoint, tokenizers
from redraft.batches import Batches, Kinds, collate
from redraft.checkpoint import State, Trained
from redraft.config import Config, TrainConfig, check
from redraft.denoiser import Denoiser
from redraft.distributed import agreed, gathered, joined, total, world
from redraft.domains import Dataset, prepare
from redraft.errors import Stopped, UserError
from redraft.folder import explained, locked, publish, put
from redraft.methods import entry
from redraft.methods.method import Method
from redraft.noise.process import ForwardProcess
from redraft.objective import exact_bound

Watcher = Callable[[int, float, dict[str, float], float], None]
"""Called with the step, the share of the run done, the latest metrics, and steps a second."""


def train(config: Config, folder: str | Path, watch: Watcher | None = None) -> Trained:
    """Train as the config says, and leave a run folder behind.

    >>> train(read_recipe("tiny/vsdd"), "runs/tiny")                            # doctest: +SKIP
    """
    folder = Path(folder)
    with joined(), alone(folder):
        refuse_existing(folder)
        run = ready(config)
        run.trained.summary |= {"bound_start": run.bound(run.trained)}
        save(run, folder, {})
        return loop(run, folder, watch)


def resume(folder: str | Path, watch: Watcher | None = None) -> Trained:
    """Continue the run of a folder from its latest state."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    with joined(), alone(folder):
        state = checkpoint.load_state(folder)
        if world().rank == 0:
            checkpoint.sweep(folder)
            publish(state.folder / "model", folder)
        if "bound_end" in state.trained.summary:  # it is at its end
            return state.trained
        run = ready(state.trained.config)
        with explained(state.folder / "state.safetensors"):
            restore(run, state, folder)
        return loop(run, folder, watch)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """The first process holds the folder for all of them."""
    fresh = not folder.exists()
    with locked(folder) if world().rank == 0 else nullcontext():
        try:
            yield
        except OSError as error:
            raise UserError(
                f"{folder} cannot be written to ({error}); what was saved stays"
            ) from None
        finally:
            if fresh and folder.is_dir() and {p.name for p in folder.iterdir()} <= {".lock"}:
                shutil.rmtree(folder)  # nothing came of it


@dataclass
class Run:
    """Everything that moves while a model is trained."""

    config: Config
    method: Method
    trained: Trained
    """What will be saved: the averaged denoiser, the process, the tokens, the summary."""
    batches: Batches
    bound: "Bound"
    budget: "Budget"
    step: int = 0
    pending: dict[str, Tensor | float] | None = None
    """Metrics noted before a stop, not yet written."""


def ready(config: Config) -> Run:
    """A run at its beginning, all of whose seconds are for training."""
    data = prepare(config.data, config.seed)
    if config.train.compile and config.train.seconds is not None:
        rehearse(config, data)
    return assemble(config, data)


PACE = 10
"""Steps from one of the leader's moves to the next, in a rehearsal."""


def rehearse(config: Config, data: Dataset) -> None:
    """Steps on batches of all kinds, in a run that is thrown away: what the next needs is compiled.

    That takes as long as a short run, and the first run of a process would do it for all others.
    """
    run = assemble(replace(config, leader=replace(config.leader, block=PACE)), data)
    batches, held_out = Kinds(run.batches), Kinds(run.method.held_out)
    run.method.held_out = held_out
    for progress in (0.0, 0.5):  # some methods begin otherwise than they go on
        for step in range(max(batches.per_epoch, PACE * held_out.per_epoch)):
            run.method.step(batches[step], progress)
    run.method.finish()


def assemble(config: Config, data: Dataset | None = None) -> Run:
    """A run at its beginning, a pure function of the config and the data, which it names."""
    method_entry = entry(config.method)
    device = checkpoint.device_of(config.train.device)
    data = data or prepare(config.data, config.seed)
    torch.manual_seed(config.seed)
    denoiser, process = checkpoint.build(config, len(data.tokenizer), data.max_length)
    denoiser, process = denoiser.to(device), process.to(device)
    generator = torch.Generator(device).manual_seed(config.seed)
    size, accumulate = world().size, config.train.accumulate
    for name, batch, parts in (
        ("train.batch", config.train.batch, size * accumulate),
        ("leader.batch", config.leader.batch, size),
    ):
        check(batch % parts == 0, f"{name} must be a multiple of {parts} parts, got {batch}")
    batches = Batches(data.train, config.train.batch, config.seed, device, size * accumulate)
    held_out = Batches(
        data.held_out, config.leader.batch, config.seed + 1, device, size, widths=5
    )  # of few widths, since the leader's moves are rare, and are recorded for each
    method = method_entry.method(config, denoiser, process, held_out, generator)
    average = copy.deepcopy(denoiser).requires_grad_(False)
    trained = describe(config, data, average, process)
    return Run(config, method, trained, batches, Bound(data, config, device), Budget(config.train))


def describe(config: Config, data: Dataset, denoiser: Denoiser, process: ForwardProcess) -> Trained:
    """What will be saved, before anything was learned."""
    lengths = np.bincount([len(s) for s in data.train], minlength=data.max_length + 1)
    tokens = np.bincount(np.concatenate(data.train), minlength=len(data.tokenizer))
    summary = {
        "data": data.origin,
        "items": data.report,
        "data_sha256": fingerprint(data),
        "hardware": checkpoint.hardware(),
    }
    return Trained(config, data.tokenizer, denoiser, process, lengths, tokens, summary)


def fingerprint(data: Dataset) -> str:
    """Of all that the run reads: another file, or another tokenizer, gives another one."""
    digest = hashlib.sha256(json.dumps(tokenizers.save(data.tokenizer)).encode())
    for part in (data.train, data.held_out, data.validation):
        digest.update(np.array([len(s) for s in part]).tobytes())
        digest.update(np.concatenate(part).tobytes())
    return digest.hexdigest()


def restore(run: Run, state: State, folder: Path) -> None:
    """Bring a run from its beginning to a saved state."""
    before, now = state.trained.summary, run.trained.summary
    if before["data_sha256"] != now["data_sha256"]:
        raise UserError(f"the data of {folder} have changed since the run began")
    run.trained.denoiser.load_state_dict(state.trained.denoiser.state_dict())
    run.trained.process.load_state_dict(state.trained.process.state_dict())
    run.method.restore(checkpoint.unflatten(state.tensors))
    run.trained.summary = before
    run.step, run.pending = state.progress["step"], state.progress["pending"]
    run.budget.spent_before = state.progress["seconds"]


def loop(run: Run, folder: Path, watch: Watcher | None) -> Trained:
    """From where the run is to the end of its budget."""
    config, trained, budget = run.config.train, run.trained, run.budget
    health = Health()

    def look(row: dict[str, float]) -> None:
        if watch is not None and world().rank == 0 and "loss" in row:  # else it was seen before
            with signals.of_a_broken_pipe():
                watch(run.step, budget.progress(run.step), row, run.step / row["seconds"])

    with Signals() as signals, Log(folder, run.step, run.pending) as log:
        budget.start()
        while not budget.spent(run.step) and not signals.caught:
            metrics = run.method.step(run.batches[run.step], budget.progress(run.step))
            follow_average(trained.denoiser, run.method.denoiser, config.ema, run.step)
            health.note(run.step, metrics)
            log.note(metrics)
            run.step += 1
            if run.step % config.log_every == 0:  # once in a while: look
                health.check(folder)
                budget.agree()
                row = log.write(run.step, budget.seconds())
                run.method.notice(row)
                look(row)
                signals.agree()
            if run.step % config.save_every == 0:  # once in a while: save
                health.check(folder)
                save(run, folder, log.latest)

        health.check(folder)
        if signals.caught:
            save(run, folder, log.latest)
            look(log.row(run.step, budget.seconds()))
            go_on = f"go on with: redraft train --resume {shlex.quote(str(folder))}"
            raise Stopped(f"stopped at step {run.step}; {go_on}", 128 + signals.caught)
        run.method.finish()
        trained.summary |= {"bound_end": run.bound(trained)}
        log.note({f"validation/{k}": trained.summary[k] for k in ("bound_start", "bound_end")})
        row = log.write(run.step, budget.seconds())
        save(run, folder, log.latest)
        look(row)
    return trained


def save(run: Run, folder: Path, latest: dict[str, Tensor | float]) -> None:
    """A state from which the run can go on; if it cannot be written, the one before it stays.

    All processes are in the same state, their random numbers included: the first one saves it.
    """
    if world().rank > 0:
        return
    seconds = run.budget.seconds()
    run.trained.summary |= {"steps": run.step, "seconds": seconds}
    pending = {name: float(value) for name, value in latest.items()}
    progress = {"step": run.step, "seconds": seconds, "pending": pending}
    tensors = checkpoint.flatten(run.method.state())
    try:
        checkpoint.save_state(folder, run.trained, tensors, progress, run.config.train.keep)
    except OSError as error:
        raise UserError(
            f"the state at step {run.step} could not be saved ({error.strerror}); "
            f"what was saved before it is still in {folder}"
        ) from None


def refuse_existing(folder: Path) -> None:
    """A run never overwrites another."""
    if (folder / "config.json").exists() or checkpoint.states(folder):
        raise UserError(
            f"{folder} already holds a run; choose another folder with --out, "
            f"or continue it with --resume {folder}"
        )


class Signals:
    """SIGINT and SIGTERM let the current step finish instead of ending the process, and so does a
    watcher whose own reader has left.

    Several processes must stop at the same step: they agree on it when they look at their metrics.
    """

    caught = 0
    seen = 0

    def __enter__(self) -> "Signals":
        self.previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.previous[number] = signal.signal(number, self._catch)
        return self

    def _catch(self, number: int, frame: object) -> None:
        self.seen = number
        if world().size == 1:
            self.caught = number

    @contextmanager
    def of_a_broken_pipe(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            self._catch(self.seen or signal.SIGPIPE, None)

    def agree(self) -> None:
        if world().size > 1:
            self.caught = max(gathered(self.seen))

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)


@torch.no_grad()
def follow_average(average: Denoiser, denoiser: Denoiser, decay: float, step: int) -> None:
    """Exponential moving average of the weights, shorter at the very start."""
    decay = min(decay, (1 + step) / (10 + step))
    torch._foreach_lerp_(list(average.parameters()), list(denoiser.parameters()), 1 - decay)


class Budget:
    """Steps or seconds, whichever is spent first: how much of the run is done."""

    def __init__(self, config: TrainConfig):
        self.config, self.spent_before = config, 0.0
        self.start()

    def start(self) -> None:
        self.began = time.perf_counter()
        self.agree()

    def agree(self) -> None:
        """Several processes go by the clock of the first, as it is when they look at metrics."""
        self.common = agreed(self.seconds())

    def seconds(self) -> float:
        return self.spent_before + time.perf_counter() - self.began

    def progress(self, step: int) -> float:
        seconds = self.seconds() if world().size == 1 else self.common
        limits = ((step, self.config.steps), (seconds, self.config.seconds))
        return min(max(done / limit for done, limit in limits if limit is not None), 1.0)

    def spent(self, step: int) -> bool:
        return self.progress(step) >= 1


class Health:
    """Remembers the first step with a number that is none, without making the GPU wait.

    A gradient that is none spoils the weights even where the loss, taken before the step, is sound.
    """

    WATCHED = frozenset({"loss", "gradient_norm", "leader/gradient_norm"})
    NEVER = 2**62

    def __init__(self):
        self.bad: dict[str, Tensor] = {}
        """The first such step of each that is watched."""

    def note(self, step: int, metrics: dict[str, Tensor | float]) -> None:
        for name in self.WATCHED & metrics.keys():
            sound = torch.as_tensor(metrics[name]).isfinite()
            if name not in self.bad:
                self.bad[name] = torch.full_like(sound, self.NEVER, dtype=torch.long)
            before = self.bad[name]
            self.bad[name] = torch.where(sound, before, before.clamp_max(step + 1))

    def check(self, folder: Path) -> None:
        steps = {name: int(step) for name, step in self.bad.items()}
        first = min(steps.values(), default=self.NEVER)
        if first < self.NEVER:
            names = " and ".join(sorted(name for name, step in steps.items() if step == first))
            raise UserError(
                f"{names}: not a number at step {first}; the last good state is in {folder}"
            )


class Bound:
    """The exact bound on some validation data, always with the same noise, in nats per token."""

    def __init__(self, data: Dataset, config: Config, device: torch.device):
        chosen = sorted(data.validation[: config.train.validate], key=len)
        self.seed, self.device = config.seed, device
        self.parts = [collate(chosen[i : i + 64], device) for i in range(0, len(chosen), 64)]
        self.tokens = sum(map(len, chosen))

    def __call__(self, trained: Trained) -> float:
        rank, size = world()
        nats = torch.zeros((), dtype=torch.float64, device=self.device)
        for i in range(rank, len(self.parts), size):
            generator = torch.Generator(self.device).manual_seed(self.seed + i)
            nats += exact_bound(trained.denoiser, trained.process, self.parts[i], generator).sum()
        return float(total(nats) / self.tokens)


class Log:
    """metrics.jsonl and TensorBoard events of a run; what came after `step` is forgotten.

    The first process writes.
    """

    def __init__(self, folder: Path, step: int, pending: dict[str, Any] | None):
        self.latest: dict[str, Tensor | float] = dict(pending or {})
        self.file = self.events = None
        if world().rank > 0:
            return
        from torch.utils.tensorboard import SummaryWriter

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "metrics.jsonl"
        if path.exists():
            rows = path.read_text(encoding="utf-8", errors="replace").splitlines()
            put(path, "".join(f"{r}\n" for r in rows if _step_of(r) <= step).encode())
        self.file = path.open("a", encoding="utf-8")
        self.events = SummaryWriter(str(folder / "events"), purge_step=step + 1)

    def note(self, metrics: dict[str, Tensor | float]) -> None:
        self.latest |= metrics

    def write(self, step: int, seconds: float) -> dict[str, float]:
        """One line with the latest of every metric since the line before."""
        row = self.row(step, seconds)
        if self.file is not None and self.events is not None:
            for name in self.latest:
                self.events.add_scalar(name, row[name], step)
            self.file.write(json.dumps(row) + "\n")
            self.file.flush()
        self.latest = {}
        return row

    def row(self, step: int, seconds: float) -> dict[str, float]:
        numbers = {name: float(value) for name, value in self.latest.items()}
        return {"step": step, "seconds": seconds, **numbers}

    def __enter__(self) -> "Log":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # every line was brought to the disk when it was written
            if self.file is not None and self.events is not None:
                self.file.close()
                self.events.close()


def _step_of(row: str) -> float:
    """The step of a line of metrics; one that was cut short, or that ended a run, has none."""
    try:
        return math.inf if "validation/bound_end" in row else json.loads(row)["step"]
    except (ValueError, KeyError, TypeError):
        return math.inf
