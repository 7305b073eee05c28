"""What an LSTM writes, and how repairs of it are told: laws of its script."""

import math
import runpy
from itertools import chain, product
from pathlib import Path

import numpy as np
import pytest
import torch

from redraft.data.molecules import canonical_or_none
from redraft.repair import distance
from redraft.tokenizers.base import EOS, MASK, PAD
from redraft.tokenizers.smiles import SmilesTokenizer

script = runpy.run_path(str(Path(__file__).parents[1] / "scripts" / "repair_generated.py"))
TOKENIZER = SmilesTokenizer.fit(["CO", "C(O)c1ccccc1"])
V = len(TOKENIZER)


@pytest.fixture
def writer():
    torch.manual_seed(0)
    return script["Writer"](V, 8)


def test_all_strings_of_a_length_share_one(writer):
    states = [i for i in range(V) if i not in (PAD, MASK)]
    x = torch.tensor(list(product(states, repeat=3)))
    assert writer.nats(x).double().sum(1).neg().exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_what_comes_later_and_padding_have_no_say(writer):
    x = torch.tensor([[5, 4, EOS, PAD], [5, 4, 6, EOS]])
    nats = writer.nats(x)
    torch.testing.assert_close(nats[0, :2], nats[1, :2])
    assert nats[0, 3] == 0
    torch.testing.assert_close(writer.nats(x[:1, :3]), nats[:1, :3])


def test_it_writes_as_it_judges(writer):
    """The empty string as often as its one token is likely; none that has not ended."""
    texts = script["written"](writer, TOKENIZER, 4000, 60, seed=0)
    nats = script["nats_of"](writer, TOKENIZER, [""])[0].item()
    share = sum(text == "" for text in texts) / 4000
    assert share == pytest.approx(math.exp(-nats), abs=0.03)
    few = script["written"](writer, TOKENIZER, 100, 1, seed=0)
    assert set(few) == {""}
    assert texts == script["written"](writer, TOKENIZER, 4000, 60, seed=0)


def test_repairs_are_told_as_they_are(writer):
    broken, made = ["C(O", "C1", "CC)", "C("], ["C(O)", "C", None, "OOO"]
    best = ["C(O)", "O1", None, "C"]
    found = script["measures"](broken, made, best, writer, TOKENIZER)
    assert found["repair_rate"].value == 0.75
    assert found["one_edit"].value == 0.5
    assert found["favourite"].value == pytest.approx(1 / 3)
    assert found["edit_distance"].value == pytest.approx((1 + 1 + 3) / 3)
    nats, tokens = script["nats_of"](writer, TOKENIZER, ["C(O)", "C", "OOO"])
    assert tokens.tolist() == [5, 2, 4]
    assert found["nats"].value == pytest.approx(np.mean(nats / tokens))


def test_a_token_that_the_lstm_does_not_know_is_judged_by_the_others(writer):
    found = script["measures"](["C(", "C("], ["CBr", "C"], ["C", "C"], writer, TOKENIZER)
    assert found["repair_rate"].value == 1
    assert found["nats"].value == pytest.approx(script["a_token"](writer, TOKENIZER, ["C"]).value)


def test_all_edits_are_looked_at_once_each():
    """Against what is one token away of all strings that are so short."""
    states, start = range(EOS + 1, V), (EOS + 1, EOS + 2)
    every = chain.from_iterable(product(states, repeat=n) for n in range(4))
    near = list(script["an_edit_away"](start, V))
    assert set(near) == {ids for ids in every if distance(start, ids) == 1}
    assert len(near) == len(set(near))


def test_the_favourite_is_the_likeliest_valid_string_an_edit_away(writer):
    found = script["favourite"](writer, TOKENIZER, "C(O")
    near = map(TOKENIZER.decode, script["an_edit_away"](tuple(TOKENIZER.ids("C(O")), V))
    valid = [text for text in near if canonical_or_none(text) is not None]
    nats = {text: script["nats_of"](writer, TOKENIZER, [text])[0].item() for text in valid}
    assert found in valid and nats[found] == pytest.approx(min(nats.values()))
    assert script["favourite"](writer, TOKENIZER, ")" * 9) is None
