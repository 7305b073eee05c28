"""What a user holds: a trained model that samples, infills, revises and repairs.

model = redraft.load("molecules")
model.sample(16)
model.infill("CC(=O)N[MASK:3]cc1")
model.revise(["CC(=O)Nc1ccc(O)cc1"], strength=0.3)
list(model.repair(["CC(=O)Nc1ccc(O)cc"]))
"""

import math
import re
import secrets
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from os.path import isdir
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from huggingface_hub import ModelHubMixin, snapshot_download
from torch import Tensor

from redraft import checkpoint, trainer
from redraft.batches import collate
from redraft.checkpoint import Trained
from redraft.config import Config, check
from redraft.distributed import agreed, in_order, world
from redraft.domains import CANONICAL
from redraft.errors import UserError, unknown
from redraft.likelihood import Alternative, Likelihoods
from redraft.noise.markov import MarkovProcess
from redraft.repair import Repaired, Repairer
from redraft.sampler import Callback, Sampler, canvas
from redraft.tokenizers.base import EOS, MASK, PAD
from redraft.trainer import Watcher

SHIPPED = Path(__file__).parent / "models"
"""Models that come with the package, each in a folder of its name."""
TOGETHER = {"cuda": (2048, 1 << 28), "cpu": (256, 1 << 26)}
"""Most sequences that are drawn at a time, and most probabilities that they may have: 1 GB, or a
quarter of it, of which a step needs several."""
RENEWED = 0.5
"""The last share of the steps that `sample` renews unless it is told otherwise."""


class Model(ModelHubMixin, library_name="redraft", tags=["discrete-diffusion"]):
    """A trained denoiser with its noise, its tokens and its lengths.

    Every drawing method takes `seed` and the options of `Sampler`: steps, temperature, top_p,
    renew.
    `save_pretrained`, `from_pretrained` and `push_to_hub` are as users of the hub expect them.
    """

    def __init__(self, trained: Trained, batch: int | None = None):
        self.trained = trained
        most, numbers = TOGETHER["cuda" if self.device.type == "cuda" else "cpu"]
        fit = numbers // (self.longest * len(self.tokenizer))
        self.batch = batch or max(1, min(most, fit))  # drawn together

    @property
    def config(self) -> Config:
        return self.trained.config

    @property
    def tokenizer(self):
        return self.trained.tokenizer

    @property
    def device(self) -> torch.device:
        return self.trained.denoiser.embeddings.device

    @property
    def longest(self) -> int:
        """Tokens that it takes, the end included."""
        return len(self.trained.lengths) - 1

    def sampler(self, **options: Any) -> Sampler:
        """On a GPU in the arithmetic of training, elsewhere in float32."""
        gpu = self.device.type == "cuda"
        own: dict[str, Any] = {
            "precision": self.config.train.precision if gpu else "float32",
            "told": self.config.denoiser.told,
        }
        return Sampler(self.trained.denoiser, self.trained.process, **own | options)

    def sample(
        self,
        n: int,
        *,
        length: int | None = None,
        start: Literal["prior", "marginal"] = "prior",
        renew: float | None = None,
        seed: int | None = None,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Any]:
        """n new items; lengths (in tokens, the end included) follow the training data unless given.

        `start = "marginal"` begins from what noise makes of the training tokens, not the prior.
        The second half of the steps is renewed where the noise allows it; `renew = 0` is plain.
        """
        check(n >= 1, f"n must be at least 1, got {n}")
        check(
            length is None or 1 <= length <= self.longest,
            f"length must be in 1..{self.longest}, got {length}",
        )
        if renew is None:
            renew = RENEWED if isinstance(self.trained.process, MarkovProcess) else 0.0
        seed, sampler = fixed(seed), self.sampler(renew=renew, **options)
        lengths = self._lengths(n, length, self._generator(seed))
        order = lengths.argsort(stable=True)  # rows of similar length are drawn together

        def draw(part: Tensor, generator: torch.Generator) -> Tensor:
            x = self._start(canvas(lengths[part]).to(self.device), start, generator)
            return sampler.sample(x, generator, callback)

        parts = order.split(similar(lengths[order].tolist(), self.batch))
        rows = self._draw(draw, parts, seed)
        return [rows[i] for i in order.argsort().tolist()]

    def sample_valid(
        self, n: int, *, seed: int | None = None, most: int = 100, **options: Any
    ) -> tuple[list[str], int]:
        """n valid molecules, no two the same, and how many were drawn for them.

        Gives up after `most` times n draws, with what it has.
        """
        canonical = self._canonical("drawing valid ones alone")
        seed, found, drawn = fixed(seed), {}, 0
        while len(found) < n and drawn < most * n:
            share = max(len(found) / drawn, 0.01) if drawn else 1.0
            wanted = int((n - len(found)) / share * 1.1) + 1
            wanted = min(wanted, 2 * drawn or wanted, most * n - drawn)
            for smiles in self.sample(wanted, seed=seed + drawn, **options):
                drawn += 1
                form = canonical(smiles)
                if form is not None and len(found) < n:
                    found.setdefault(form, smiles)
        return list(found.values()), drawn

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
        rows = self._infilled(self.template(text), n, seed, callback, options)
        return [self.tokenizer.decode(row) for row in rows]

    def alternatives(
        self,
        text: str,
        n: int = 8,
        *,
        seed: int | None = None,
        callback: Callback | None = None,
        **options: Any,
    ) -> list[Alternative]:
        """What is different among n ways to fill the masks of a text, the likeliest first.

        >>> [a.text for a in model.alternatives("CC(=O)N[MASK:4]ccc1")]         # doctest: +SKIP
        ['CC(=O)Nc1ccccc1']
        """
        ids = self.template(text)
        rows = self._infilled(ids, n, seed, callback, options)
        items = [self.tokenizer.decode(row) for row in rows]
        drawn = Counter(map(str, items))
        likelihoods = Likelihoods(self.sampler(), [k for k, i in enumerate(ids) if i == MASK])
        different = {str(item): (item, row) for item, row in zip(items, rows, strict=True)}
        found = [
            Alternative(item, likelihoods(row), drawn[name], row)
            for name, (item, row) in different.items()
        ]
        return sorted(found, key=lambda one: -one.likelihood)

    def template(self, text: str) -> list[int]:
        """The tokens of a text with masks in it."""
        ids = self._fit(self.tokenizer.template(text), text)
        if MASK not in ids:
            raise UserError(
                f"nothing to infill: write [MASK] or [MASK:n] into the text, got {text!r}"
            )
        return ids

    def _infilled(
        self,
        ids: list[int],
        n: int,
        seed: int | None,
        callback: Callback | None,
        options: dict[str, Any],
    ) -> list[list[int]]:
        check(n >= 1, f"n must be at least 1, got {n}")
        sampler = self.sampler(**options)
        x = collate([np.array(ids)] * n, self.device)

        def draw(x: Tensor, generator: torch.Generator) -> Tensor:
            return sampler.infill(x, x == MASK, generator, callback)

        return self._rows(draw, x.split(self.batch), fixed(seed))

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
        """Each item taken to t = strength * T and back; without noising, it is taken for x_t.

        Its end stays where it is: a text does not break off in the middle of a sentence.
        """
        check(not isinstance(items, str), "revise takes a list of items, got a single string")
        sampler = self.sampler(**options)
        encoded = [np.array(self._fit(self.tokenizer.encode(item), item)) for item in items]
        shortest = min(map(len, encoded), default=math.inf)
        check(shortest > len(self.tokenizer.ending), "nothing to revise: an item is empty")
        parts = [encoded[i : i + self.batch] for i in range(0, len(encoded), self.batch)]

        def draw(part: list[np.ndarray], generator: torch.Generator) -> Tensor:
            x = collate(part, self.device)
            return sampler.revise(x, strength, noising, generator, callback, kept=x == EOS)

        return self._draw(draw, parts, fixed(seed))

    def repair(
        self, items: Iterable[str], *, seed: int | None = None, drafts: int = 8, **options: Any
    ) -> Iterator[Repaired]:
        """Each molecule that does not parse, brought to the nearest one that does.

        One after the other, as they are asked for. What is valid comes back as it is; what could
        not be repaired says so.

        >>> [r.result for r in model.repair(["c1ccccc", "CCO"])]                # doctest: +SKIP
        ['c1ccccc1', 'CCO']
        """
        check(not isinstance(items, str), "repair takes a list of items, got a single string")
        repairer, seed = self.repairer(drafts, **options), fixed(seed)
        return (
            repairer.repair(item, self._generator(seed, number))
            for number, item in enumerate(items)
        )

    def repairer(self, drafts: int = 8, **options: Any) -> Repairer:
        """What `repair` repairs with."""
        return Repairer(
            self.sampler(**options),
            self.tokenizer,
            self._canonical("repair"),
            longest=self.longest,
            drafts=drafts,
            batch=self.batch,
        )

    def save(self, folder: str | Path, compact: bool = False) -> None:
        """The model alone, in a folder that `redraft.load` reads."""
        self.save_pretrained(folder, compact=compact)

    def save_pretrained(
        self,
        save_directory: str | Path,
        *,
        compact: bool = False,
        push_to_hub: bool = False,
        repo_id: str | None = None,
        **hub: Any,
    ) -> str | None:
        """As on the hub; `compact` is for drawing alone: weights of 16 bits, the noise exact.

        Not by the mixin, which removes an older config.json before anything is written.
        """
        model = Model(checkpoint.compacted(self.trained)) if compact else self
        folder = Path(save_directory).resolve()
        check(not (folder / "state").is_dir(), f"{folder} is a run's; choose another folder")
        checkpoint.save(folder, model.trained)
        return model.push_to_hub(repo_id or folder.name, **hub) if push_to_hub else None

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: str | Path, *, device: str = "auto", **hub: Any
    ) -> "Model":
        """The model of a folder or of a hub repository; `device` and the hub's own options.

        Not by the mixin, which asks for a config.json first, and six times where no hub answers.
        """
        folder = pretrained_model_name_or_path
        if not isdir(folder):
            folder = snapshot_download(str(folder), **hub)
        return cls(checkpoint.load(folder, str(checkpoint.device_of(device))))

    def _draw(
        self,
        draw: Callable[[Any, torch.Generator], Tensor],
        parts: Sequence[Any],
        seed: int,
    ) -> list[Any]:
        return [self.tokenizer.decode(row) for row in self._rows(draw, parts, seed)]

    def _rows(
        self,
        draw: Callable[[Any, torch.Generator], Tensor],
        parts: Sequence[Any],
        seed: int,
    ) -> list[list[int]]:
        """All parts, each with random numbers of its own; several processes share the work."""
        rank, size = world()
        mine = [
            draw(parts[i], self._generator(seed, i)).tolist() for i in range(rank, len(parts), size)
        ]
        return [row for part in in_order(mine, len(parts)) for row in part]

    def _generator(self, seed: int, part: int = -1) -> torch.Generator:
        mixed = (seed + 0x9E3779B97F4A7C15 * (part + 1)) % 2**63
        return torch.Generator(self.device).manual_seed(mixed)

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

    def _canonical(self, what: str) -> Callable[[str], str | None]:
        """The domain's grammar, which not all have."""
        domain = self.config.data.domain
        if domain not in CANONICAL:
            raise UserError(f"{what} is for {', '.join(CANONICAL)}, this model knows {domain}")
        return CANONICAL[domain]

    def _fit(self, ids: list[int], item: Any) -> list[int]:
        if len(ids) > self.longest:
            raise UserError(
                f"{str(item)[:60]!r} has {len(ids)} tokens, this model takes at most {self.longest}"
            )
        return ids


def similar(lengths: list[int], most: int, least: int = 256) -> list[int]:
    """Sizes of groups of rising lengths: at most `most`, and within a tenth where above `least`.

    >>> similar([10, 11, 12, 20, 20], most=3, least=2)
    [2, 2, 1]
    """
    sizes, shortest = [0], lengths[0]
    for length in lengths:
        if sizes[-1] >= most or (sizes[-1] >= least and length > 1.1 * shortest):
            sizes.append(0)
            shortest = length
        sizes[-1] += 1
    return sizes


def fixed(seed: int | None) -> int:
    """The seed, or one that all processes agree on."""
    return agreed(secrets.randbits(62)) if seed is None else seed


def shipped() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def load(name: str | Path, device: str = "auto") -> Model:
    """A model by its name among the shipped ones, its run folder, or its hub id.

    A folder that is called as a shipped model is has to be written ./molecules.
    """
    if str(name) in shipped():
        name = SHIPPED / name
    if isdir(name):
        return Model.from_pretrained(name, device=device)
    if (parent := Path(name).parent) != Path(".") and parent.is_dir():
        beside = sorted(str(path.parent) for path in parent.glob("*/config.json"))
        raise unknown("run folder", str(name), [*beside, *shipped()])
    own = ", ".join(shipped()) or "none with this copy of redraft"
    accepted = f"accepted: a run folder, a hub id (owner/name), or a shipped model ({own})"
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", str(name)):
        raise UserError(f"there is no model {str(name)!r}; {accepted}")
    try:
        folder = snapshot_download(str(name))
    except Exception as error:  # whatever the network or the hub answer
        reason = textwrap.shorten(str(error), 120, placeholder=" ...")
        raise UserError(
            f"{name} is no folder here, and not to be had from the hub ({reason}); {accepted}"
        ) from None
    return Model.from_pretrained(folder, device=device)


def resume(folder: str | Path, watch: Watcher | None = None) -> Model:
    """Continue the run of a folder to its end, as if it had never stopped."""
    return Model(trainer.resume(folder, watch))


def training_config(folder: str | Path) -> Config:
    """The config of a run that can be continued."""
    return checkpoint.read_config(Path(folder))


def train(config: Config, folder: str | Path, watch: Watcher | None = None) -> Model:
    """Train as the config says; the model, which also lies in the run folder."""
    return Model(trainer.train(config, folder, watch))
