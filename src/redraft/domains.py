"""What the package knows of each domain: where its sequences come from, and how they become ids."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from redraft import tokenizers
from redraft.config import DataConfig, check
from redraft.data import lines, molecules, playlists, stories, wheels
from redraft.data.corpus import Corpus, encode
from redraft.errors import UserError, unknown
from redraft.tokenizers import TOKENIZERS, SemanticIdTokenizer, Tokenizer
from redraft.tokenizers.bpe import BPETokenizer
from redraft.tokenizers.semantic_id import CODES
from redraft.tokenizers.smiles import SmilesTokenizer
from redraft.tokenizers.text import CharacterTokenizer, WordTokenizer

FITS: dict[str, Callable[[Corpus, int], Tokenizer]] = {
    "smiles": lambda corpus, size: SmilesTokenizer.fit(everything(corpus)),
    "chars": lambda corpus, size: CharacterTokenizer.fit(everything(corpus)),
    "words": lambda corpus, size: WordTokenizer.fit(everything(corpus), size - 3),
    "bpe": lambda corpus, size: BPETokenizer.fit(corpus.train, size),
}
"""How the tokenizers of text learn their tables."""


def everything(corpus: Corpus) -> list[str]:
    return [*corpus.train, *corpus.held_out, *corpus.validation]


def fit(name: str, corpus: Corpus, size: int) -> Tokenizer:
    if name not in FITS:
        raise unknown("tokenizer for text", name, FITS)
    return FITS[name](corpus, size)


def load_molecules(config: DataConfig, seed: int) -> tuple[Corpus, Tokenizer]:
    if config.file in molecules.KNOWN:
        corpus = molecules.named(config.file)
    elif config.file:
        corpus = molecules.own(config.file)
    else:
        corpus = molecules.bundled()
    return corpus, fit(config.tokenizer or "smiles", corpus, config.vocabulary)


def load_stories(config: DataConfig, seed: int) -> tuple[Corpus, Tokenizer]:
    if config.file == stories.NAME:
        return load_prepared_stories(config)
    if config.file:
        corpus = Corpus.of(stories.read(config.file), f"Stories of {config.file}.")
    else:
        corpus = stories.synthetic(config.synthetic, seed)
    return corpus, fit(config.tokenizer or "bpe", corpus, config.vocabulary)


def load_prepared_stories(config: DataConfig) -> tuple[Corpus, Tokenizer]:
    """Stories of the cache; their tokens are as they were prepared."""
    prepared = stories.prepared()
    tokenizer = tokenizers.load(prepared.tokenizer())
    check(
        config.tokenizer in (None, tokenizer.name) and len(tokenizer) <= config.vocabulary,
        f"prepared stories have {len(tokenizer):,} {tokenizer.name} tokens, got "
        f"data.tokenizer {config.tokenizer} and data.vocabulary {config.vocabulary}",
    )
    return prepared.corpus(), tokenizer


def prepare_stories(
    request: stories.Request, size: int = 2048, longest: int = 256
) -> stories.Prepared:
    """Choose stories, learn their tokens, and keep them in the cache, unless they lie there."""

    def fill(folder: Path) -> None:
        gathered = stories.gather(request)
        corpus = gathered.corpus
        wheels.tell(f"cutting {len(corpus.train):,} stories into tokens, once")
        tokenizer = BPETokenizer.fit(corpus.train, size)
        try:
            tokenizer.require_single_tokens(stories.ENTITIES)
        except UserError as error:
            raise UserError(f"these stories cannot stand the entity swap: {error}") from None
        parts = [encode(getattr(corpus, p), tokenizer, longest, "drop") for p in stories.PARTS]
        stories.write(folder, request, gathered, parts, tokenizers.save(tokenizer))

    return wheels.kept(stories.home(), lambda folder: stories.find(folder, request), fill)


def load_playlists(config: DataConfig, seed: int) -> tuple[Corpus, Tokenizer]:
    check(
        config.file in (None, playlists.NAME)
        and config.tokenizer in (None, SemanticIdTokenizer.name),
        f"playlists have semantic-id tokens, and are synthetic or, with data.file playlists, what "
        f"redraft data playlists --file prepared, got file {config.file} and tokenizer "
        f"{config.tokenizer}",
    )
    if config.file is None:
        corpus, rows = playlists.synthetic(config.synthetic, seed)
        tokenizer = SemanticIdTokenizer.fit(rows, shared=config.shared, kind=config.codes)
        return corpus, tokenizer
    prepared = playlists.prepared()
    codes = prepared.codes(config.codes)
    return prepared.corpus(), SemanticIdTokenizer(codes, shared=config.shared)


def prepare_playlists(request: playlists.Request) -> playlists.Prepared:
    """Place tracks, give them codes, and keep all in the cache, unless it lies there."""

    def fill(folder: Path) -> None:
        gathered = playlists.gather(request)
        coded = {kind: SemanticIdTokenizer.fit(gathered.rows, kind=kind) for kind in CODES}
        collisions = {kind: told(tokenizer, gathered) for kind, tokenizer in coded.items()}
        codes = {kind: tokenizer.codes for kind, tokenizer in coded.items()}
        playlists.write(folder, request, gathered, codes, collisions)

    def told(tokenizer: SemanticIdTokenizer, gathered: playlists.Gathered) -> str:
        plays = np.concatenate([sequence.tracks for sequence in gathered.parts["validation"]])
        right = (tokenizer.meant()[plays] == plays).mean()
        return f"{tokenizer.collisions()}; they tell the track of {right:.1%} of validation plays"

    def whole(folder: Path) -> playlists.Prepared | None:
        everything = (*playlists.FOR_TRAINING, *playlists.FOR_EVALUATION)
        found = playlists.find(folder, request, everything)
        return found if found and set(found.kinds) >= set(CODES) else None

    return wheels.kept(playlists.home(), whole, fill)


def load_lines(config: DataConfig, seed: int) -> tuple[Corpus, Tokenizer]:
    check(config.file is not None, "the domain lines needs data.file, a text file of sequences")
    corpus = Corpus.of(lines.read(str(config.file)), f"Lines of {config.file}.")
    return corpus, fit(config.tokenizer or "chars", corpus, config.vocabulary)


DOMAINS: dict[str, Callable[[DataConfig, int], tuple[Corpus, Tokenizer]]] = {
    "molecules": load_molecules,
    "stories": load_stories,
    "playlists": load_playlists,
    "lines": load_lines,
}
NAMED = dict.fromkeys(molecules.KNOWN, "molecules") | {
    stories.NAME: "stories",
    playlists.NAME: "playlists",
}
"""Data sets that are known by name, and their domains."""


CANONICAL: dict[str, Callable[[str], str | None]] = {"molecules": molecules.canonical_or_none}
"""Where there is a grammar: the one form of all ways to write an item, None where it is not valid.
"""


@dataclass(frozen=True)
class Dataset:
    """Everything a run needs to know of its data, as arrays of ids."""

    tokenizer: Tokenizer
    train: list[np.ndarray]
    held_out: list[np.ndarray]
    validation: list[np.ndarray]
    origin: str
    report: str

    @property
    def max_length(self) -> int:
        return max(len(s) for part in (self.train, self.held_out, self.validation) for s in part)


def prepare(config: DataConfig, seed: int) -> Dataset:
    """Load, tokenize and split the data that a config names."""
    if config.domain not in DOMAINS:
        raise unknown("domain", config.domain, DOMAINS)
    if config.tokenizer is not None and config.tokenizer not in TOKENIZERS:
        raise unknown("tokenizer", config.tokenizer, TOKENIZERS)
    corpus, tokenizer = DOMAINS[config.domain](config, seed)
    parts = [
        encode(part, tokenizer, config.max_length, config.long, config.unknown)
        for part in (corpus.train, corpus.held_out, corpus.validation)
    ]
    names = ("training", "held-out", "validation")
    report = "; ".join(f"{n}: {part.report}" for n, part in zip(names, parts, strict=True))
    train, held_out, validation = (part.sequences for part in parts)
    return Dataset(tokenizer, train, held_out, validation, corpus.origin, report)
