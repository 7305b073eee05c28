"""What every method is: an object with `step(batch, progress)`; and the players that it moves."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from redraft.batches import Batch, Stream
from redraft.config import Config, OptimizerConfig
from redraft.denoiser import Denoiser, compiled, inner_matrices
from redraft.distributed import sum_gradients, total, world
from redraft.folder import require_same
from redraft.fusion import fusing
from redraft.methods.leader import warn_of_collapse
from redraft.noise.confusion import confusions_of
from redraft.noise.draws import Generators, Sliced, categorical
from redraft.noise.markov import SMALL
from redraft.noise.process import ForwardProcess
from redraft.objective import (
    Draw,
    corrupt,
    draw_times,
    parts_given,
    predict,
    ranges,
    token_losses,
    token_mean,
)
from redraft.optimizers import MEMORY, holds, optimizers
from redraft.precision import tf32
from redraft.recording import Recorder

Metrics = dict[str, Tensor | float]
State = dict[str, dict[str, Tensor]]


class Player:
    """Parameters with their optimizers, learning-rate schedule and gradient clipping."""

    def __init__(self, module: nn.Module, config: OptimizerConfig):
        self.config = config
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.optimizers = optimizers(self.parameters, inner_matrices(module), config)

    def aim(self, progress: float) -> None:
        """Set the learning rate for a share `progress` of the run."""
        rate = self.config.lr * schedule(self.config, progress)
        for group in (group for own in self.optimizers for group in own.param_groups):
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate

    def forget_gradients(self) -> None:
        for own in self.optimizers:
            own.zero_grad(set_to_none=True)

    def move(self) -> Tensor:
        """One step on the gradients of all processes; their norm before clipping."""
        sum_gradients(self.parameters)
        limit = self.config.clip or math.inf
        norm = nn.utils.clip_grad_norm_(self.parameters, limit)
        for own in self.optimizers:
            own.step()
        return norm

    def state(self) -> dict[str, Tensor]:
        """What the optimizers remember of each parameter, by the parameter's number."""
        return {
            f"{i}.{key}": value
            for i, p in enumerate(self.parameters)
            for own in self.optimizers
            for key, value in own.state.get(p, {}).items()
        }

    def restore(self, state: dict[str, Tensor], moved: bool) -> None:
        """What `state` gave; a player that has moved remembers something of every parameter."""
        keepers = [(p, own) for p in self.parameters for own in self.optimizers if holds(own, p)]
        wanted = {
            f"{i}.{key}": torch.zeros(()) if key == "step" else p
            for i, (p, own) in enumerate(keepers if moved else ())
            for key in MEMORY[type(own)]
        }
        require_same({"optimizer": state}, {"optimizer": wanted})
        for i, (p, own) in enumerate(keepers if moved else ()):
            own.state[p] = {key: state[f"{i}.{key}"].to(p.device) for key in MEMORY[type(own)]}


def schedule(config: OptimizerConfig, progress: float) -> float:
    """The factor on the learning rate when a share `progress` of the run is done."""
    if progress < config.warmup:
        return max(progress / config.warmup, 0.01)
    left = (1 - progress) / (1 - config.warmup)
    return {
        "constant": 1.0,
        "linear": left,
        "cosine": 0.5 * (1 + math.cos(math.pi * (1 - left))),
    }[config.decay]


class Method(ABC):
    """A denoiser, a forward process, and how they learn. The trainer knows nothing more."""

    leader: Player | None = None
    """The player that learns the noise, in methods that have one."""
    phase: Hashable = None
    """What beside the batch's shape decides what a step does."""
    warned: bool = False
    """Of noise that has collapsed, which it seldom recovers from."""

    def __init__(
        self,
        config: Config,
        denoiser: Denoiser,
        process: ForwardProcess,
        held_out: Stream,
        generator: torch.Generator,
    ):
        self.config, self.denoiser, self.process = config, denoiser, process
        self.held_out, self.generator = held_out, generator
        self.player = Player(denoiser, config.optimizer)
        self.confusions = confusions_of(process)
        self.spans = ranges(config.train.bound, process.T)
        self.steps_done = 0
        self.random: Generators = generator
        self.predictor = compiled(denoiser) if config.train.compile else denoiser
        alone = world().size == 1 and config.train.accumulate == 1
        recordable = config.train.compile and generator.device.type == "cuda" and alone
        self.recorder = Recorder(generator) if recordable else None

    @abstractmethod
    def step(self, batch: Batch, progress: float) -> Metrics:
        """One step on a batch, when a share `progress` in [0, 1) of the run is done."""

    def objective(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """What is differentiated and what is reported: this part's share of each.

        Here the bound on corruptions from the process as it stands, per token.
        """
        draws = self.rehearsed(self.process, batch, self.pose(self.process, batch.x0))
        losses = self.losses(self.process, batch, draws)
        loss = token_mean(losses, batch.x0, batch.tokens)
        return loss * batch.weight, loss

    @property
    def players(self) -> list[Player]:
        """Those who descend at every step."""
        return [self.player]

    def descend(self, batch: Batch, progress: float) -> Metrics:
        """One gradient step of each player on the objective."""
        for player in self.players:
            player.aim(progress)
        metrics = self.run(self.update, batch, self.phase)
        self.steps_done += 1
        return dict(metrics)

    def note_confusions(self) -> None:
        """At a block's end: what the denoiser takes for what, if the noise is made with that."""
        block, past = divmod(self.steps_done, self.config.leader.block)
        if past == 0 and self.confusions is not None:
            (part,) = self.parts(self.held_out[block - 1])
            self.run(self.observe, part, "confusions")

    @torch.no_grad()
    def observe(self, batch: Batch) -> dict[str, Tensor]:
        assert self.confusions is not None
        for draw in self.draw(self.process, batch.x0):
            with self.autocast():
                log_p = predict(self.predictor, self.process, draw.xt, draw.t, batch.padded)
            self.confusions.observe(batch.x0, log_p.exp(), draw.t, self.config.noise.forget)
        return {}

    def run(
        self, work: Callable[[Batch], dict[str, Tensor]], batch: Batch, phase: Hashable
    ) -> dict[str, Tensor]:
        """Work that depends on batch and phase alone: recorded, where it can be."""
        if self.recorder is None:
            return work(batch)

        def on(x0: Tensor, weight: Tensor, tokens: Tensor) -> dict[str, Tensor]:
            return work(replace(batch, x0=x0, weight=weight, tokens=tokens))

        numbers = [torch.as_tensor(number) for number in (batch.weight, batch.tokens)]
        return self.recorder(on, [batch.x0, *numbers], (phase, batch.padded))

    def finish(self) -> None:
        """After the last step."""
        if self.recorder is not None:
            self.recorder.forget()

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """What of a step happens on the device, part by part of the batch."""
        for player in self.players:
            player.forget_gradients()
        loss = torch.zeros((), device=batch.x0.device)
        for part in self.parts(batch, self.config.train.accumulate):
            with tf32(self.rough), fusing(self.fuses):
                surrogate, share = self.objective(part)
                surrogate.backward()
            loss = loss + share.detach()
        norms = [player.move() for player in self.players]
        names = ("gradient_norm", "leader/gradient_norm")
        return {"loss": total(loss), **dict(zip(names, norms, strict=False))}

    def parts(self, batch: Batch, accumulate: int = 1) -> Iterator[Batch]:
        """This process's parts of a batch, each with the noise it would have in the whole."""
        rank, size = world()
        start = self.generator.get_state() if accumulate > 1 else None
        for i in range(accumulate):
            if start is not None:
                self.generator.set_state(start)  # every part draws the noise of the whole batch
            part, parts = rank * accumulate + i, size * accumulate
            self.random = Sliced(self.generator, part, parts)
            yield batch.part(part, parts)

    def state(self) -> State:
        """All that a resumed run needs beside the process: as if it had never stopped."""
        parts: State = {
            "denoiser": self.denoiser.state_dict(),
            "player": self.player.state(),
            "random": {"generator": self.generator.get_state()},
            "counts": {"steps": torch.tensor(self.steps_done)},
        }
        return parts if self.leader is None else parts | {"leader": self.leader.state()}

    def restore(self, state: State) -> None:
        players = {"player", "leader"}  # they check their own
        parts = (
            {name: tensors for name, tensors in of.items() if name not in players}
            for of in (state, self.state())
        )
        require_same(*parts)
        self.denoiser.load_state_dict(state["denoiser"])
        self.generator.set_state(state["random"]["generator"])
        self.steps_done = int(state["counts"]["steps"])
        self.player.restore(state.get("player", {}), moved=self.steps_done > 0)
        if self.leader is not None:
            self.leader.restore(state.get("leader", {}), moved=self.leader_moved(state))

    def notice(self, metrics: dict[str, float]) -> None:
        """Look at metrics when they are written; warn, once, where something goes wrong."""
        self.warned = self.warned or warn_of_collapse(metrics)

    def leader_moved(self, state: State) -> bool:
        """Whether the leader has moved in a saved state; most move with the denoiser."""
        return self.steps_done > 0

    @property
    def rough(self) -> bool:
        """Whether products with large kernels may be in TF32: in training, never in reports."""
        return self.config.train.precision == "bf16" and self.process.V > SMALL

    @property
    def fuses(self) -> bool:
        """Whether passes over wide tensors are compiled; narrow ones are not worth the wait."""
        return self.config.train.compile and self.process.V > SMALL

    def autocast(self) -> AbstractContextManager[Any]:
        """The arithmetic of the denoiser; the objective leaves it again by itself."""
        device = self.denoiser.embeddings.device.type
        enabled = self.config.train.precision == "bf16"
        return torch.autocast(device, dtype=torch.bfloat16, enabled=enabled)

    def draw(self, process: ForwardProcess, x0: Tensor) -> list[Draw]:
        """Fresh stratified times, and x_0 corrupted to them."""
        return corrupt(process, x0, draw_times(x0, self.spans, self.random), self.random)

    def pose(self, process: ForwardProcess, x0: Tensor) -> list[Draw]:
        """The same as the denoiser learns from: some of x_0 is given, if it infills."""
        given = self.given(x0)
        draws = self.draw(process, x0)
        return draws if given is None else [draw.giving(x0, given) for draw in draws]

    def given(self, x0: Tensor) -> Tensor | None:
        """(B, L) what of a batch is given, for a denoiser that infills."""
        return parts_given(x0, self.random) if self.config.denoiser.infills else None

    def rehearsed(self, process: ForwardProcess, batch: Batch, draws: list[Draw]) -> list[Draw]:
        """Every other row as the denoiser will meet it when it samples; it learns both.

        That is: after a step of its own, if it trains on drafts, and told what it believed before
        that step, if it recalls. Both are constants in the objective.
        """
        if not (self.config.denoiser.recall or self.config.train.drafts):
            return draws
        return [self.rehearse(process, draw, batch.padded) for draw in draws]

    def rehearse(self, process: ForwardProcess, draw: Draw, padded: bool) -> Draw:
        p = self.first_sight(process, draw.xt, draw.t, padded, draw.given)
        if self.config.denoiser.recall:
            draw = replace(draw, belief=told(p, len(draw.xt)))
        if self.config.train.drafts:
            xt, t = draw.xt[::2], draw.t[::2]
            drafts = categorical(process.reverse(xt, p, t), self.random)
            kept = (t == 1)[:, None]  # after the last step there is no other
            if draw.given is not None:
                kept = kept | draw.given[::2]
            xt = torch.where(kept, xt, drafts)
            drawn = every_other(draw.xt, xt), every_other(draw.t, (t - 1).clamp_min(1))
            draw = replace(draw, xt=drawn[0], t=drawn[1])
        return draw

    def first_sight(
        self,
        process: ForwardProcess,
        xt: Tensor,
        t: Tensor,
        padded: bool,
        given: Tensor | None = None,
    ) -> Tensor:
        """What every other row is believed to be, without recall.

        Not under `no_grad`, for which blocks would be compiled anew.
        """
        given = None if given is None else given[::2]
        with self.autocast():
            log_p = predict(self.predictor, process, xt[::2], t[::2], padded, given=given)
        return log_p.detach().exp()

    def losses(self, process: ForwardProcess, batch: Batch, draws: list[Draw]) -> Tensor:
        """(B, L) what the denoiser descends on, for every token of the batch."""
        with self.autocast():
            return token_losses(
                self.predictor, process, batch.x0, draws, batch.padded, self.config.train.auxiliary
            )


def every_other(rows: Tensor, others: Tensor) -> Tensor:
    """Rows 0, 2, 4, ... replaced by others."""
    rows = rows.clone()
    rows[::2] = others
    return rows


def told(p: Tensor, B: int) -> Tensor:
    """(B, L, V) beliefs of every other row, 0 between."""
    return every_other(p.new_zeros(B, *p.shape[1:]), p)
