"""How likely texts are: by the bound as a whole, and in turns at some of their places."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from test_sampler import MARKOV, Independent, V, make_process, make_sampler, seeded
from torch import Tensor

from redraft import likelihood
from redraft.likelihood import Likelihoods
from redraft.objective import exact_bound
from redraft.tokenizers.base import EOS, MASK

IDS = [3, 2, 5, 4, 2]


def log_prior() -> Tensor:
    valid = torch.arange(V) >= EOS
    return torch.randn(V, generator=seeded(3)).where(valid, -torch.inf).double().log_softmax(-1)


@pytest.mark.parametrize("name", ["uniform", "absorbing"])
@pytest.mark.parametrize("places", [[1], [0, 3], [0, 1, 2, 3, 4]])
def test_of_independent_tokens_it_is_their_own(name: str, places: list[int]):
    """Whatever else stands there; the last noise of so few states still says a little."""
    log_p = log_prior()
    found = Likelihoods(make_sampler(make_process(name), Independent(log_p)), places)(IDS)
    own = sum(float(log_p[IDS[n]]) for n in places) / len(places)
    assert math.log(found) == pytest.approx(own, rel=1e-6 if name == "absorbing" else 0.05)


class Pair:
    """Masks of two tokens, of which the second depends on the first: p(a) p(b | a)."""

    timeless, recall, infills = False, None, False

    def __init__(self):
        self.first = log_prior()
        table = torch.randn(V, V, generator=seeded(4)).double()
        self.second = table.masked_fill(torch.arange(V) < EOS, -torch.inf).log_softmax(-1)

    def __call__(self, x: Tensor, t: Tensor, *_: Any) -> Tensor:
        alone = (self.first.exp() @ self.second.exp()).log()
        second = torch.where((x[:, :1] == MASK), alone, self.second[x[:, 0]])
        return torch.stack([self.first.expand(len(x), -1), second], 1)


def test_turns_are_the_chain_rule():
    """All pairs together have probability 1."""
    denoiser = Pair()
    judge = Likelihoods(make_sampler(make_process("absorbing"), denoiser), [0, 1])
    pairs = list(product(range(EOS, V), repeat=2))
    found = [judge(pair) ** 2 for pair in pairs]
    true = [float((denoiser.first[a] + denoiser.second[a, b]).exp()) for a, b in pairs]
    assert found == pytest.approx(true, rel=1e-6) and sum(found) == pytest.approx(1)


@pytest.mark.parametrize("name", [*MARKOV, "coupled"])
def test_as_a_whole_it_is_the_bound(name: str, monkeypatch):
    """Which every run reports; the same draws of noise for every text."""
    sampler = make_sampler(make_process(name))
    whole = Likelihoods(sampler)
    assert whole(IDS) == whole(IDS)
    monkeypatch.setattr(likelihood, "VIEWS", 2000)
    x0 = torch.tensor([IDS] * 400)
    exact = exact_bound(sampler.denoiser, sampler.process, x0, seeded(1)).mean()
    assert -math.log(whole(IDS)) == pytest.approx(float(exact) / len(IDS), rel=0.1)


@pytest.mark.parametrize("name", [*MARKOV, "coupled"])
def test_only_the_places_are_noised(name: str):
    sampler, shown = make_sampler(make_process(name)), []
    denoiser = sampler.denoiser
    denoiser.register_forward_pre_hook(lambda _, given: shown.append(given[0]))
    assert 0 < Likelihoods(sampler, [1, 2])(IDS) <= 1
    changed = (torch.cat(shown) != torch.tensor(IDS)).any(0).nonzero().flatten().tolist()
    assert changed and {*changed} <= {1, 2}
