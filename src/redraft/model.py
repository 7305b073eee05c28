"""What a user holds: a trained model that samples, infills and revises.

model = redraft.load("runs/mine")
model.sample(16)
model.infill("Lily had a [MASK] ball.")
model.revise(["CC(=O)Nc1ccc(O)cc1"], strength=0.3)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from redraft import checkpoint, trainer
from redraft.batches import collate
from redraft.checkpoint import Trained
from redraft.config import Config, check
from redraft.errors import UserError
from redraft.sampler import Callback, Sampler, canvas
from redraft.tokenizers.base import MASK, PAD
from redraft.trainer import Watcher


@dataclass
class Model:
    """A trained denoiser with its noise, its tokens and its lengths.

    Every drawing method takes `seed` and the options of `Sampler`: steps, temperature, top_p.
    """

    trained: Trained
    batch: int = 256
    """Sequences that are drawn together."""

    @property
    def config(self) -> Config:
        return self.trained.config

    @property
    def tokenizer(self):
        return self.trained.tokenizer

    @property
    def device(self) -> torch.device:
        return self.trained.denoiser.embeddings.device

    def sampler(self, **options: Any) -> Sampler:
        return Sampler(self.trained.denoiser, self.trained.process, **options)

    def sample(
        self,
        n: int,
        *,
        length: int | None = None,
        start: Literal["prior", "marginal"] = "prior",
        seed: int | None = None,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Any]:
        """n new items; lengths (in tokens, the end included) follow the training data unless given.

        `start = "marginal"` begins from what noise makes of the training tokens, not the prior.
        """
        check(n >= 1, f"n must be at least 1, got {n}")
        longest = len(self.trained.lengths) - 1
        check(
            length is None or 1 <= length <= longest,
            f"length must be in 1..{longest}, got {length}",
        )
        generator, sampler = self._generator(seed), self.sampler(**options)
        lengths = self._lengths(n, length, generator)
        order = lengths.argsort(stable=True)  # rows of similar length are drawn together
        rows: list[Any] = []
        for part in order.split(self.batch):
            x = self._start(canvas(lengths[part]).to(self.device), start, generator)
            rows += self._decode(sampler.sample(x, generator, callback))
        return [rows[i] for i in order.argsort().tolist()]

    def infill(
        self,
        text: str,
        n: int = 1,
        *,
        seed: int | None = None,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Any]:
        """n ways to fill the `[MASK]` (one token) and `[MASK:9]` (nine) of a text."""
        check(n >= 1, f"n must be at least 1, got {n}")
        ids = self._fit(self.tokenizer.template(text), text)
        if MASK not in ids:
            raise UserError(
                f"nothing to infill: write [MASK] or [MASK:n] into the text, got {text!r}"
            )
        generator, sampler = self._generator(seed), self.sampler(**options)
        rows: list[Any] = []
        for size in _sizes(n, self.batch):
            x = collate([np.array(ids)] * size, self.device)
            rows += self._decode(sampler.infill(x, x == MASK, generator, callback))
        return rows

    def revise(
        self,
        items: Sequence[Any],
        strength: float = 0.3,
        *,
        noising: bool = True,
        seed: int | None = None,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Any]:
        """Each item taken to t = strength * T and back; without noising, it is taken for x_t."""
        check(not isinstance(items, str), "revise takes a list of items, got a single string")
        generator, sampler = self._generator(seed), self.sampler(**options)
        encoded = [np.array(self._fit(self.tokenizer.encode(item), item)) for item in items]
        rows: list[Any] = []
        for i in range(0, len(encoded), self.batch):
            x = collate(encoded[i : i + self.batch], self.device)
            rows += self._decode(sampler.revise(x, strength, noising, generator, callback))
        return rows

    def save(self, folder: str | Path) -> None:
        checkpoint.save(Path(folder), self.trained)

    def _generator(self, seed: int | None) -> torch.Generator:
        generator = torch.Generator(self.device)
        generator.seed() if seed is None else generator.manual_seed(seed)
        return generator

    def _lengths(self, n: int, length: int | None, generator: torch.Generator) -> Tensor:
        if length is not None:
            return torch.full((n,), length)
        weights = torch.from_numpy(self.trained.lengths).double().to(self.device)
        return weights.multinomial(n, replacement=True, generator=generator).cpu()

    def _start(self, blank: Tensor, start: str, generator: torch.Generator) -> Tensor:
        process = self.trained.process
        if start == "prior":
            return process.prior(blank, generator)
        weights = torch.from_numpy(self.trained.tokens).double().to(self.device)
        x0 = weights.multinomial(blank.numel(), replacement=True, generator=generator)
        x0 = torch.where(blank == PAD, PAD, x0.view(blank.shape))
        return process.corrupt(x0, torch.full_like(x0[:, 0], process.T), generator)

    def _fit(self, ids: list[int], item: Any) -> list[int]:
        longest = len(self.trained.lengths) - 1
        if len(ids) > longest:
            raise UserError(
                f"{str(item)[:60]!r} has {len(ids)} tokens, this model takes at most {longest}"
            )
        return ids

    def _decode(self, x: Tensor) -> list[Any]:
        return [self.tokenizer.decode(row) for row in x.tolist()]


def _sizes(n: int, most: int) -> Iterator[int]:
    """n in parts of at most `most`."""
    for done in range(0, n, most):
        yield min(most, n - done)


def load(folder: str | Path, device: str = "auto") -> Model:
    """The model of a run folder."""
    return Model(checkpoint.load(folder, str(checkpoint.device_of(device))))


def resume(folder: str | Path, watch: Watcher | None = None) -> Model:
    """Continue the run of a folder to its end, as if it had never stopped."""
    return Model(trainer.resume(folder, watch))


def training_config(folder: str | Path) -> Config:
    """The config of a run that can be continued."""
    return checkpoint.load_state(Path(folder)).trained.config


def train(config: Config, folder: str | Path, watch: Watcher | None = None) -> Model:
    """Train as the config says; the model, which also lies in the run folder."""
    return Model(trainer.train(config, folder, watch))
