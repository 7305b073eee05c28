"""The reverse loop: exact where the truth is known, and true to its context everywhere."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor, nn

from redraft.config import DenoiserConfig
from redraft.denoiser import Denoiser
from redraft.errors import UserError
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.coupled import CoupledProcess
from redraft.noise.process import ForwardProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import predict
from redraft.sampler import Sampler, Step, Trace, canvas, nucleus
from redraft.tokenizers.base import EOS, MASK, PAD

V, T, D = 6, 5, 8
VALID = list(range(EOS, V))

MARKOV = ["uniform", "absorbing", "learned", "fixed"]
PROCESSES = [*MARKOV, "coupled"]


class Table(nn.Module):
    """A network for coupled noise that looks at each token alone, and not at t: logits by x_0."""

    def __init__(self):
        super().__init__()
        logits = 2 * torch.randn(V, V, dtype=torch.float64)
        logits[..., :EOS] = -torch.inf
        self.logits = nn.Parameter(logits)

    def forward(self, x0: Tensor, t: Tensor) -> Tensor:
        return self.logits[x0]


def make_process(name: str) -> ForwardProcess:
    bar = alpha_bar("linear", T)
    if name == "uniform":
        return UniformProcess(V, steps(bar), torch.float64)
    if name == "absorbing":
        return AbsorbingProcess(V, bar, torch.float64)
    if name == "coupled":
        return CoupledProcess(Table(), V, T)
    scores = BilinearScores(T, D, hidden=8) if name == "learned" else CosineScores(T, tau=0.3)
    process = SemanticProcess(scores, V, D, steps(bar)).double()
    with torch.no_grad():
        for p in process.scores.parameters():
            p.add_(torch.randn_like(p))
    process.commit(torch.randn(V, D, dtype=torch.float64))
    return process


def make_denoiser(time: bool = True, **options: Any) -> Denoiser:
    config = DenoiserConfig(width=D, layers=1, heads=2, time=time, **options)
    denoiser = Denoiser(config, V, T, max_length=16).double()
    with torch.no_grad():
        for p in denoiser.parameters():
            p.add_(0.5 * torch.randn_like(p))
    return denoiser


def make_sampler(process: ForwardProcess, denoiser: Any = None, **options: Any) -> Sampler:
    return Sampler(make_denoiser() if denoiser is None else denoiser, process, **options)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_tokens(B: int, L: int, seed: int = 0) -> Tensor:
    return torch.randint(EOS, V, (B, L), generator=seeded(seed))


def trace(run: Any, *args: Any, **kwargs: Any) -> tuple[Tensor, list[Step]]:
    """What a sampler's entry returns, and all that its callback saw."""
    seen: list[Step] = []
    return run(*args, callback=seen.append, **kwargs), seen


# Sampling with the true posterior gives back the data


class Oracle:
    """The denoiser that knows pi: p(x_0 | x_t) by Bayes' rule, for every token on its own.

    For coupled noise, what the denoiser predicts is where z_t goes unless it stays, so that the
    truth is what is left of v(z_s | z_t).
    """

    timeless, recall, infills = False, None, False

    def __init__(self, process: ForwardProcess, pi: Tensor):
        self.table = torch.zeros(T + 1, V, V, dtype=torch.float64)  # [t, x_t, what is predicted]
        for t in range(1, T + 1):
            q_t = marginals(process, t)  # [x_0, x_t]
            joint = pi[:, None] * q_t
            given_xt = (joint / joint.sum(0).clamp_min(1e-300)).T  # [x_t, x_0]
            if isinstance(process, CoupledProcess):
                joined = brute_coupling(marginals(process, t - 1), q_t)  # [x_0, z_t, z_s]
                kept = ((t - 1) / t) ** 2
                v = torch.einsum("ki,ikj->kj", given_xt, joined)
                stays = torch.diag(given_xt.sum(1))  # of the states that there are
                given_xt = (v - kept * stays) / (1 - kept)
            self.table[t] = given_xt

    def __call__(self, x: Tensor, t: Tensor, *_: Any) -> Tensor:
        return self.table[t[:, None], x].log()


def marginals(process: ForwardProcess, t: int) -> Tensor:
    """q(x_t | x_0) as a matrix [x_0, x_t] over all states."""
    if t == 0:
        return torch.eye(V, dtype=torch.float64)
    x0 = torch.arange(V)[:, None].expand(V, V)
    xt = torch.arange(V)[None].expand(V, V)
    with torch.no_grad():
        q = process.log_prob(xt, x0, torch.full((V,), t)).exp()
    return torch.where(q > 1e-300, q, 0)


def brute_coupling(u_s: Tensor, u_t: Tensor) -> Tensor:
    """Maximum coupling written out: [x_0, z_t, z_s] from marginals [x_0, z]."""
    out = torch.zeros(V, V, V, dtype=torch.float64)
    for i in VALID:
        gain = [max(0.0, float(u_s[i, j] - u_t[i, j])) for j in range(V)]
        for k in VALID:
            if u_t[i, k] == 0:
                continue
            stay = float(min(u_s[i, k], u_t[i, k]) / u_t[i, k])
            for j in range(V):
                move = gain[j] / sum(gain) if sum(gain) > 0 else 0.0
                out[i, k, j] = (1 - stay) * move + (stay if j == k else 0.0)
    return out


@pytest.mark.parametrize(
    ("name", "n_steps"), [(name, n) for name in MARKOV for n in (T, 3, 2, 1)] + [("coupled", T)]
)
def test_the_true_posterior_reproduces_the_data(name, n_steps):
    process = make_process(name)
    pi = torch.tensor([0, 0, 0.05, 0.15, 0.3, 0.5], dtype=torch.float64)
    sampler = make_sampler(process, Oracle(process, pi), steps=n_steps)
    n = 20_000
    clean = torch.multinomial(pi, n, replacement=True, generator=seeded(1))[:, None]
    start = process.corrupt(clean, torch.full((n,), T), seeded(2))
    if name == "absorbing":
        assert bool((start == MASK).all())
    x = sampler.sample(start, seeded(3))
    counts = torch.bincount(x.flatten(), minlength=V)
    assert counts[:EOS].sum() == 0
    assert chisquare(counts[EOS:].numpy(), n * pi[EOS:].numpy()).pvalue > 1e-4


@given(st.sampled_from(MARKOV), st.booleans(), st.integers(1, T), st.integers(0, 100))
def test_every_step_keeps_the_marginal(name, renewed, n_steps, seed):
    """By brute force: with the true p(x_0 | x_t), x_{t-1} has q(x_{t-1}) if x_t has q(x_t)."""
    torch.manual_seed(seed)
    process = make_process(name)
    pi = torch.zeros(V, dtype=torch.float64)
    pi[EOS:] = torch.rand(V - EOS, dtype=torch.float64) + 0.01
    pi /= pi.sum()
    sampler = make_sampler(process, Oracle(process, pi), steps=n_steps)
    x, times = torch.arange(V)[None], [0, *sampler.times]
    for n in range(n_steps, 0, -1):
        p = predict(sampler.denoiser, process, x, torch.tensor([times[n]])).exp().nan_to_num()
        back = sampler.step(x, p, torch.tensor([n]), renewed)[0]  # [x_t, x_s]
        after, before = pi @ marginals(process, times[n]), pi @ marginals(process, times[n - 1])
        torch.testing.assert_close(after @ back, before)


@pytest.mark.parametrize("name", MARKOV)
def test_a_renewed_step_is_noise_on_what_is_believed(name):
    """Nothing of x_t is left but what the denoiser made of it, and what masks cannot hide."""
    process, denoiser = make_process(name), make_denoiser()
    x, t = process.corrupt(some_tokens(3, 5), torch.full((3,), 3), seeded()), torch.tensor([3])
    p = predict(denoiser, process, x, t).exp()
    known = nn.functional.one_hot(x, V).double() if name == "absorbing" else p
    p = torch.where((x == MASK)[..., None], p, known)
    drawn = make_sampler(process, denoiser).step(x, p, t, renewed=True)
    torch.testing.assert_close(drawn, p @ marginals(process, 2))


@given(st.floats(0, 1))
def test_masks_come_back_in_the_steps_that_are_renewed(renew):
    sampler = make_sampler(make_process("absorbing"), renew=renew)
    x, seen = trace(sampler.sample, canvas(torch.full((200,), 6)), generator=seeded())
    for before, after in pairwise(seen):
        again = bool(((before.x != MASK) & (after.x == MASK)).any())
        assert again == (1 < after.t <= renew * T)
    assert bool((x != MASK).all())


# Infilling


@pytest.mark.parametrize(
    ("name", "options"),
    [(name, {"temperature": t}) for name in PROCESSES for t in (0.0, 0.7, 3.0)]
    + [(name, {"renew": share}) for name in MARKOV for share in (0.3, 1.0)],
)
def test_infilling_never_touches_the_context(name, options):
    x = some_tokens(4, 7)
    x[0, 5:] = PAD
    mask = torch.rand(x.shape, generator=seeded(1)) < 0.5
    mask[:, 2] = True
    sampler = make_sampler(make_process(name), **options)
    filled, seen = trace(sampler.infill, x, mask, generator=seeded())
    fixed = ~mask | (x == PAD)
    for step in seen:
        assert torch.equal(step.x[fixed], x[fixed])
    assert len(seen) == T
    assert bool((filled[~fixed] >= EOS).all())


class Independent:
    """The exact denoiser of tokens that are independent: log p(x_0) + log q(x_t | x_0)."""

    timeless, recall, infills = False, None, False

    def __init__(self, log_p: Tensor):
        self.log_p = log_p
        self.told: list[Tensor] = []

    def __call__(
        self, x: Tensor, t: Tensor, padded: bool, belief: Any, evidence: Any, given: Any = None
    ) -> Tensor:
        self.told.append(t)
        said = evidence(x, t)
        return self.log_p.expand(*x.shape, -1) if said is None else self.log_p + said


@pytest.mark.parametrize("name", MARKOV)
@pytest.mark.parametrize("t", range(1, T + 1))
def test_where_few_tokens_are_noisy_the_denoiser_is_told_so_and_its_answer_is_for_t(name, t):
    process = make_process(name)
    x, times = some_tokens(3, 5), torch.tensor([t])
    exact = Independent(torch.randn(V, generator=seeded(2)).where(process.valid, -torch.inf))
    free = torch.arange(5) < torch.tensor([[1], [3], [5]])
    found = make_sampler(process, exact).predict(x, times, padded=False, free=free)
    assert exact.told[0].tolist() == [-(-t * noisy // 5) for noisy in (1, 3, 5)]
    true = exact(x, times, False, None, process.evidence).softmax(-1)
    torch.testing.assert_close(found, true, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("recall", [False, True])
def test_a_denoiser_that_infills_is_told_what_is_given_and_the_true_time(name, recall):
    """At every step; where nothing is given, it is told nothing."""
    x, mask = some_tokens(3, 6), torch.zeros(3, 6, dtype=torch.bool)
    mask[:, 1:4] = True
    x[0, 5:] = PAD
    watcher = Watcher(make_denoiser(infills=True, recall=recall))
    sampler = make_sampler(make_process(name), watcher)
    sampler.infill(x, mask, seeded())
    assert watcher.told == list(range(T, 0, -1))
    assert all(given is not None and torch.equal(given, ~mask) for given in watcher.given)
    watcher.given.clear()
    sampler.sample(sampler.process.prior(x, seeded()), seeded())
    sampler.revise(x, 0.5, generator=seeded())
    assert len(watcher.given) > T and all(given is None for given in watcher.given)


@pytest.mark.parametrize("told", ["share", "t"])
@pytest.mark.parametrize("name", MARKOV)
def test_a_denoiser_that_does_not_infill_is_told_the_share_of_t_or_t(name, told):
    x, mask = some_tokens(3, 6), torch.zeros(3, 6, dtype=torch.bool)
    mask[:, 1:3] = True
    watcher = Watcher(make_denoiser())
    make_sampler(make_process(name), watcher, told=told).infill(x, mask, seeded())
    times = range(T, 0, -1)
    assert watcher.told == (list(times) if told == "t" else [-(-t * 2 // 6) for t in times])


@pytest.mark.parametrize(
    ("infills", "told", "said"), [(False, "s", "share, t, got s"), (True, "t", "what is given")]
)
def test_what_no_denoiser_can_be_told_is_refused(infills, told, said):
    with pytest.raises(UserError, match=said):
        make_sampler(make_process("uniform"), make_denoiser(infills=infills), told=told)


@pytest.mark.parametrize("name", PROCESSES)
def test_infilling_depends_on_nothing_that_was_masked(name):
    """Masked positions start from noise: what stood there before has no say."""
    x, mask = some_tokens(3, 6), torch.zeros(3, 6, dtype=torch.bool)
    mask[:, 1:4] = True
    sampler = make_sampler(make_process(name))
    hidden = torch.where(mask, MASK, x)
    assert torch.equal(sampler.infill(x, mask, seeded()), sampler.infill(hidden, mask, seeded()))


@pytest.mark.parametrize("name", PROCESSES)
def test_weaker_infilling_begins_from_what_stands_there(name):
    """So many steps as the strength says, the context fixed, and not from noise alone."""
    x, mask = some_tokens(40, 7), torch.zeros(40, 7, dtype=torch.bool)
    mask[:, 1:4] = True
    sampler = make_sampler(make_process(name), temperature=0)
    filled, seen = trace(sampler.infill, x, mask, generator=seeded(), strength=1 / T)
    assert len(seen) == 1 and torch.equal(filled[~mask], x[~mask])
    seen_by = Watcher(sampler.denoiser)
    make_sampler(make_process(name), seen_by).infill(x, mask, seeded(), strength=1 / T)
    kept = (seen_by.shown[0] == x)[mask].float().mean()
    assert kept > 0.5  # one step of noise leaves most tokens
    with pytest.raises(UserError, match="strength must be above 0"):
        sampler.infill(x, mask, strength=0)


class Watcher:
    """A denoiser that remembers what it was shown."""

    def __init__(self, denoiser: Denoiser):
        self.denoiser, self.timeless, self.recall = denoiser, denoiser.timeless, denoiser.recall
        self.infills = denoiser.infills
        self.shown: list[Tensor] = []
        self.told: list[int] = []
        self.believed: list[Tensor | None] = []
        self.given: list[Tensor | None] = []

    def __call__(
        self,
        x: Tensor,
        t: Tensor,
        padded: bool,
        belief: Tensor | None,
        evidence: Any,
        given: Tensor | None,
    ) -> Tensor:
        self.shown.append(x)
        self.told.append(int(t[0]))
        self.believed.append(belief)
        self.given.append(given)
        return self.denoiser(x, t, padded, belief, evidence, given)


def test_masked_positions_start_as_mask_in_absorbing_noise():
    x, mask = some_tokens(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    mask[:, 3:] = True
    watcher = Watcher(make_denoiser())
    make_sampler(make_process("absorbing"), watcher).infill(x, mask, seeded())
    assert torch.equal(watcher.shown[0], torch.where(mask, MASK, x))


@pytest.mark.parametrize("name", ["uniform", "learned", "fixed", "coupled"])
def test_masked_positions_start_uniform_in_other_noise(name):
    x, n = some_tokens(1, 2).expand(8000, 2), 8000
    mask = torch.tensor([[True, False]]).expand(n, 2)
    watcher = Watcher(make_denoiser())
    make_sampler(make_process(name), watcher).infill(x, mask, seeded())
    counts = torch.bincount(watcher.shown[0][:, 0], minlength=V)
    assert counts[:EOS].sum() == 0
    assert chisquare(counts[EOS:].numpy()).pvalue > 1e-4


def test_nothing_to_infill_is_an_error():
    x = some_tokens(2, 4)
    mask = torch.zeros(2, 4, dtype=torch.bool)
    sampler = make_sampler(make_process("uniform"))
    with pytest.raises(UserError, match="no position is masked"):
        sampler.infill(x, mask)
    mask[0, 0] = True  # the second row still has none
    with pytest.raises(UserError, match="no position is masked"):
        sampler.infill(x, mask)


# Revising


@pytest.mark.parametrize("noising", [True, False])
@pytest.mark.parametrize("name", PROCESSES)
def test_strength_zero_is_the_identity(name, noising):
    x = some_tokens(3, 5)
    revised, seen = trace(
        make_sampler(make_process(name)).revise, x, 0.0, noising, generator=seeded()
    )
    assert torch.equal(revised, x)
    assert not seen


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_strength_outside_the_unit_interval_is_an_error(strength):
    with pytest.raises(UserError, match="strength must be in"):
        make_sampler(make_process("uniform")).revise(some_tokens(1, 3), strength)


@pytest.mark.parametrize("strength", [0.2, 0.6, 1.0])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_revision_takes_its_share_of_the_steps_and_keeps_padding(name, strength):
    x = some_tokens(4, 6)
    x[1, 4:] = PAD
    watcher = Watcher(make_denoiser())
    sampler = make_sampler(make_process(name), watcher)
    revised, seen = trace(sampler.revise, x, strength, generator=seeded())
    assert [step.t for step in seen] == list(range(round(strength * T), 0, -1))
    for state in [*watcher.shown, revised]:
        assert torch.equal(state == PAD, x == PAD)
    assert bool((revised[x != PAD] >= EOS).all())


@pytest.mark.parametrize("name", PROCESSES)
def test_what_is_kept_is_not_revised(name: str):
    sampler, x = make_sampler(make_process(name)), some_tokens(4, 6)
    kept = torch.rand(x.shape, generator=seeded()) < 0.5
    seen: list[Tensor] = []
    end = sampler.revise(x, 0.8, True, seeded(), lambda step: seen.append(step.x), kept)
    assert all(torch.equal(own[kept], x[kept]) for own in (*seen, end))
    assert not torch.equal(end, x)


@pytest.mark.parametrize("name", PROCESSES)
def test_without_noising_x_itself_is_taken_for_x_t(name):
    x = some_tokens(3, 6)
    watcher = Watcher(make_denoiser())
    sampler = make_sampler(make_process(name), watcher)
    revised = sampler.revise(x, 0.6, noising=False, generator=seeded())
    assert torch.equal(watcher.shown[0], x)
    assert watcher.told[0] == 3
    if name == "absorbing":  # no token is masked, and what is not masked is carried over
        assert torch.equal(revised, x)


@pytest.mark.parametrize("name", PROCESSES)
def test_with_noising_x_is_corrupted_to_that_time(name):
    x = some_tokens(3, 6)
    process = make_process(name)
    watcher = Watcher(make_denoiser())
    make_sampler(process, watcher).revise(x, 0.6, generator=seeded())
    assert torch.equal(watcher.shown[0], process.corrupt(x, torch.full((3,), 3), seeded()))


# A row is a row


@pytest.mark.parametrize("time", [True, False])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_batch_of_one_equals_its_row_of_a_batch_of_many(name, time):
    process, denoiser = make_process(name), make_denoiser(time)
    sampler = make_sampler(process, denoiser)
    x, mask = some_tokens(5, 6), torch.rand(5, 6, generator=seeded(7)) < 0.6
    mask[:, 0] = True

    def everything(rows: slice) -> list[Tensor]:
        def own():
            return [seeded(100 + b) for b in range(5)[rows]]

        generators = own()
        start = process.prior(canvas(torch.full((5,), 6))[rows], generators)
        return [
            sampler.sample(start, generators),
            sampler.infill(x[rows], mask[rows], own()),
            sampler.revise(x[rows], 0.8, generator=own()),
        ]

    together = everything(slice(None))
    for b in range(5):
        for many, one in zip(together, everything(slice(b, b + 1)), strict=True):
            assert torch.equal(many[b : b + 1], one)


# Temperature and top-p


@pytest.mark.parametrize("temperature", [0.0, 5e-324])
@pytest.mark.parametrize("name", PROCESSES)
def test_temperature_zero_believes_in_the_most_probable_alone(name, temperature):
    process, denoiser = make_process(name), make_denoiser()
    sampler = make_sampler(process, denoiser, temperature=temperature)
    before = process.prior(canvas(torch.full((4,), 6)), seeded())
    x, seen = trace(sampler.sample, before, generator=seeded())
    for step in seen:
        likeliest = predict(denoiser, process, before, torch.full((4,), step.t)).argmax(-1)
        assert torch.equal(step.p, nn.functional.one_hot(likeliest, V).double())
        if step.n == 0:  # at t = 1 the reverse step is p; absorbing noise carries tokens over
            carried = (before != MASK) & (name == "absorbing")
            assert torch.equal(x, torch.where(carried, before, likeliest))
        before = step.x


def test_temperature_zero_leaves_single_masked_tokens_no_choice():
    sampler = make_sampler(make_process("absorbing"), make_denoiser(time=False), temperature=0.0)
    start = canvas(torch.full((32,), 1))
    x = sampler.sample(start, seeded())
    assert bool((x == x[0]).all())


def test_temperature_acts_on_p_before_the_posterior():
    process, denoiser = make_process("uniform"), make_denoiser()
    start = some_tokens(3, 4)
    for temperature in (0.5, 1.0, 2.0):
        sampler = make_sampler(process, denoiser, temperature=temperature)
        first = trace(sampler.sample, start, generator=seeded())[1][0]
        p = predict(denoiser, process, start, torch.full((3,), T)).exp()
        sharpened = p ** (1 / temperature)
        torch.testing.assert_close(first.p, sharpened / sharpened.sum(-1, keepdim=True))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "temperature must be >= 0, got -1"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": float("inf")}, "temperature must be finite"),
        ({"top_p": 0.0}, "top_p must be in"),
        ({"top_p": 1.5}, "top_p must be in"),
        ({"renew": 1.1}, "renew must be in .0, 1., got 1.1"),
        ({"renew": float("nan")}, "renew must be in"),
        ({"steps": T + 1}, f"steps must be in 1..{T}, got {T + 1}"),
        ({"steps": 0}, f"steps must be in 1..{T}, got 0"),
        ({"steps": -1}, f"steps must be in 1..{T}, got -1"),
    ],
)
def test_options_out_of_range_are_errors(options, message):
    with pytest.raises(UserError, match=message):
        make_sampler(make_process("uniform"), **options)


@given(
    st.lists(st.floats(1e-3, 1), min_size=2, max_size=8),
    st.floats(0.01, 0.99),
)
def test_the_nucleus_is_the_smallest_set_that_reaches_the_mass(weights, mass):
    p = torch.tensor(weights, dtype=torch.float64)
    p = p / p.sum()
    ordered = sorted(p.tolist(), reverse=True)
    sums = [sum(ordered[: k + 1]) for k in range(len(ordered))]
    assume(all(abs(s - mass) > 1e-9 for s in sums))
    size = 1 + sum(s < mass for s in sums)
    cut = nucleus(p, mass)
    kept = cut > 0
    assert int(kept.sum()) == size
    assert bool(p[kept].min() >= p[~kept].max()) if size < len(p) else True
    torch.testing.assert_close(cut[kept], p[kept] / p[kept].sum())


def test_top_p_confines_what_is_drawn():
    process, denoiser = make_process("uniform"), make_denoiser()
    sampler = make_sampler(process, denoiser, top_p=0.5)
    x, seen = trace(sampler.sample, some_tokens(8, 6), generator=seeded())
    assert bool((seen[-1].p.gather(-1, x[..., None]) > 0).all())
    before = predict(denoiser, process, seen[-2].x, torch.full((8,), 1)).exp()
    torch.testing.assert_close(seen[-1].p, nucleus(before, 0.5))


# Times and steps


@given(st.integers(2, 80), st.data())
def test_times_of_masks_rise_evenly_to_T(T, data):
    n = data.draw(st.integers(1, T))
    times = make_sampler(AbsorbingProcess(V, alpha_bar("linear", T)), object(), steps=n).times
    assert len(times) == n
    assert times[-1] == T
    gaps = [t - s for s, t in pairwise([0, *times])]
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


@given(st.integers(2, 80), st.data())
def test_times_of_substitutions_crowd_towards_the_clean_end(T, data):
    n = data.draw(st.integers(1, T))
    times = make_sampler(UniformProcess(V, steps(alpha_bar("linear", T))), object(), steps=n).times
    assert len(times) == n
    assert times[-1] == T
    gaps = [t - s for s, t in pairwise([0, *times])]
    assert min(gaps) >= 1
    assert all(late <= early + 1 for late, early in pairwise(gaps))  # they widen, but for rounding
    assert sum(t <= T / 2 for t in times) >= n // 2


@given(st.integers(2, 80), st.floats(0, 1), st.data())
def test_strength_is_a_time_however_many_steps_lead_back(T, strength, data):
    n = data.draw(st.integers(1, T))
    process = UniformProcess(V, steps(alpha_bar("linear", T)))
    sampler = make_sampler(process, object(), steps=n)
    reached = [0, *sampler.times][sampler.steps_from(strength)]
    assert all(abs(reached - strength * T) <= abs(t - strength * T) for t in (0, *sampler.times))


@pytest.mark.parametrize("name", PROCESSES)
def test_all_steps_is_the_default(name):
    process, denoiser = make_process(name), make_denoiser()
    start = process.prior(canvas(torch.full((4,), 6)), seeded(1))
    default = make_sampler(process, denoiser).sample(start, seeded())
    assert torch.equal(make_sampler(process, denoiser, steps=T).sample(start, seeded()), default)


def test_coupled_noise_is_neither_strided_nor_renewed():
    process = make_process("coupled")
    for n in (1, T - 1):
        with pytest.raises(UserError, match=f"all its {T} steps only"):
            make_sampler(process, steps=n)
    with pytest.raises(UserError, match="renews nothing"):
        make_sampler(process, renew=0.5)


@pytest.mark.parametrize("name", MARKOV)
def test_fewer_steps_ask_the_denoiser_as_often_and_at_the_times(name):
    watcher = Watcher(make_denoiser())
    process = make_process(name)
    sampler = make_sampler(process, watcher, steps=3)
    start = process.prior(canvas(torch.full((2,), 4)), seeded())
    x = sampler.sample(start, seeded())
    assert watcher.told == ([5, 4, 2] if name == "absorbing" else [5, 3, 1])
    assert bool((x >= EOS).all())


# Callbacks, the cache, the canvas


@pytest.mark.parametrize("n_steps", [T, 2])
@pytest.mark.parametrize("name", MARKOV)
def test_the_callback_sees_every_step(name, n_steps):
    process = make_process(name)
    sampler = make_sampler(process, steps=n_steps)
    start = process.prior(canvas(torch.tensor([6, 4])), seeded())
    x, seen = trace(sampler.sample, start, generator=seeded())
    assert [step.n for step in seen] == list(range(n_steps - 1, -1, -1))
    assert [step.t for step in seen] == sampler.times[::-1]
    assert [step.to for step in seen] == [0, *sampler.times[:-1]][::-1]
    assert torch.equal(seen[-1].x, x)
    for step in seen:
        assert step.p.shape == (2, 6, V)
        torch.testing.assert_close(step.p.sum(-1), torch.ones(2, 6, dtype=torch.float64))


@pytest.mark.parametrize("strength", [0.4, 1.0])
@pytest.mark.parametrize("name", MARKOV)
def test_a_trace_is_of_the_first_sequence_alone(name, strength):
    sampler, x = make_sampler(make_process(name), steps=3), some_tokens(4, 6)
    _, seen = trace(sampler.revise, x[:2], strength, generator=seeded())
    frames, generator = Trace(), seeded()
    for batch in x.split(2):
        sampler.revise(batch, strength, generator=generator, callback=frames)
    assert frames == [(step.to, step.x[0].tolist()) for step in seen]


class Counter:
    """A timeless denoiser that counts its rows; `claims` is what it says of itself."""

    def __init__(self, denoiser: Denoiser, claims: bool):
        self.denoiser, self.timeless, self.recall = denoiser, claims, denoiser.recall
        self.infills = denoiser.infills
        self.rows = 0

    def __call__(self, x: Tensor, t: Tensor, padded: bool, *_: Any) -> Tensor:
        self.rows += len(x)
        return self.denoiser(x, t, padded)


@pytest.mark.parametrize("name", ["absorbing", "uniform"])
def test_predictions_that_cannot_have_changed_are_kept(name):
    process, denoiser = make_process(name), make_denoiser(time=False)
    cached, recomputed = Counter(denoiser, claims=True), Counter(denoiser, claims=False)
    start = process.prior(canvas(torch.full((16,), 3)), seeded())
    x, seen = trace(make_sampler(process, cached).sample, start, generator=seeded())
    y, truth = trace(make_sampler(process, recomputed).sample, start, generator=seeded())
    assert torch.equal(x, y)
    for step, true_step in zip(seen, truth, strict=True):
        assert torch.equal(step.x, true_step.x)
        torch.testing.assert_close(step.p, true_step.p)
    assert recomputed.rows == 16 * T
    assert cached.rows < recomputed.rows


@pytest.mark.parametrize("options", [{"time": True}, {"recall": True}, {"evidence": True}])
def test_a_denoiser_that_is_told_more_than_x_is_not_timeless(options):
    shape = DenoiserConfig(width=D, layers=1, heads=2, time=False)
    assert Denoiser(shape, V, T, 8).timeless
    assert not Denoiser(replace(shape, **options), V, T, 8).timeless


@pytest.mark.parametrize("time", [True, False])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_denoiser_is_told_what_it_believed_a_step_before(name, time):
    process, watcher = make_process(name), Watcher(make_denoiser(time, recall=True))
    start = process.prior(canvas(torch.tensor([4, 2, 3])), seeded())
    _, seen = trace(make_sampler(process, watcher).sample, start, generator=seeded())
    first, *later = watcher.believed
    assert first is not None and not first.any()
    for believed, step in zip(later, seen, strict=False):
        torch.testing.assert_close(believed, step.p, check_dtype=False)
    assert len(later) == len(seen) - 1


@pytest.mark.parametrize("steps", [1, 2])
def test_beliefs_have_a_say_from_the_second_step_on(steps):
    """The same draws, once with what was recalled, once as if nothing had been."""
    process, denoiser = make_process("uniform"), make_denoiser(recall=True)
    start = process.prior(canvas(torch.full((64,), 6)), seeded())
    said = make_sampler(process, denoiser, steps=steps).sample(start, seeded())
    denoiser.recall = None
    unsaid = make_sampler(process, denoiser, steps=steps).sample(start, seeded())
    assert torch.equal(said, unsaid) == (steps == 1)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_a_canvas_is_masked_to_its_length_and_padded_behind(lengths):
    x = canvas(torch.tensor(lengths))
    longest = max(lengths)
    assert x.tolist() == [[MASK] * n + [PAD] * (longest - n) for n in lengths]


@pytest.mark.parametrize("name", PROCESSES)
def test_samples_have_the_lengths_of_the_canvas(name):
    lengths = torch.tensor([5, 1, 3])
    process = make_process(name)
    empty = canvas(lengths)
    x, seen = trace(make_sampler(process).sample, process.prior(empty, seeded()))
    for step in seen:
        assert torch.equal(step.x == PAD, empty == PAD)
    assert bool((x[empty != PAD] >= EOS).all())


def test_sampling_leaves_global_randomness_alone():
    process = make_process("learned")
    sampler, start = make_sampler(process), some_tokens(2, 4)
    state = torch.get_rng_state()
    sampler.sample(start, seeded())
    assert torch.equal(torch.get_rng_state(), state)
