"""Laws of the forward processes, against matrices built by hand from their definitions.

Letters: V states (PAD and MASK among them), T steps; Q and Q_bar[t] are arrays, Q_bar[0] = I.
"""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from processes import (
    MARKOV,
    SUBSTITUTIONS,
    TAU,
    D,
    Table,
    bayes,
    bayes_by_paths,
    close,
    every_state,
    flat_kernel,
    kl,
    lengths,
    make,
    marginals,
    mixtures,
    predictions,
    products,
    random_embeddings,
    reachable,
    schedules,
    seeds,
    sizes,
    substitution,
    substitution_steps,
    times,
    triples,
    valid_states,
)
from scipy.stats import chisquare
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from redraft.errors import UserError
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.committed import Draft
from redraft.noise.coupled import CoupledProcess
from redraft.noise.markov import DenseProcess, MarkovProcess, SubstitutionProcess
from redraft.noise.process import categorical_kl
from redraft.noise.schedule import SCHEDULES, alpha_bar, steps
from redraft.noise.semantic import CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import Draw, token_losses
from redraft.tokenizers.base import MASK, PAD

# Schedules.


@given(T=st.integers(2, 60), name=schedules)
def test_schedules_fall_from_one_to_zero(T, name):
    bar = alpha_bar(name, T)
    assert bar.shape == (T + 1,) and bar.dtype == torch.float64
    assert bar[0] == 1 and bar[-1] == 0
    assert (bar.diff() < 0).all()
    alpha = steps(bar)
    assert alpha[-1] == 0
    close(alpha.cumprod(0), bar[1:])


@given(T=st.integers(2, 60))
def test_the_linear_schedule_is_linear(T):
    assert alpha_bar("linear", T).tolist()[1:-1] == [1 - t / T for t in range(1, T)]


# Matrices.


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, T=times, seed=seeds, schedule=schedules)
def test_matrices_are_those_of_the_definition(kind, V, T, seed, schedule):
    process, Q = substitution(kind, V, T, seed, schedule)
    x, t = every_state(V, T)
    Q_bar = products(Q)
    close(process.step_columns(x, t).mT, Q)
    close(process.rows(x, t), Q_bar[1:])
    close(process.columns(x, t).mT, Q_bar[1:])
    close(process.rows(x, t - 1), Q_bar[:-1])


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, T=times, seed=seeds, schedule=schedules)
def test_rows_sum_to_one(kind, V, T, seed, schedule):
    process, _ = substitution(kind, V, T, seed, schedule)
    x, t = every_state(V, T)
    close(process.step_columns(x, t).sum(1), 1)
    close(process.rows(x, t).sum(-1), 1)
    close(process.columns(x, t).sum(1), 1)


@given(V=sizes, T=times, schedule=schedules)
def test_absorbing_rows_sum_to_one(V, T, schedule):
    process, Q = make("absorbing", V, T, 0, schedule)
    for i in [PAD, *valid_states(V)]:
        xt = torch.arange(V).expand(T, V)
        log_prob = process.log_prob(xt, torch.full_like(xt, i), torch.arange(1, T + 1))
        close(log_prob.exp(), products(Q)[1:, i])
        close(log_prob.exp().sum(-1), 1)


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, T=times, seed=seeds)
def test_specials_are_fixed_points_of_substitution(kind, V, T, seed):
    process, _ = substitution(kind, V, T, seed)
    x, t = every_state(V, T)
    for matrices in (process.step_columns(x, t).mT, process.rows(x, t), process.columns(x, t).mT):
        for special in (PAD, MASK):
            identity = torch.eye(V, dtype=torch.float64)[special].expand(T, V)
            assert torch.equal(matrices[:, special], identity)  # it never moves
            assert torch.equal(matrices[:, :, special], identity)  # and is never reached


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["uniform", "dense"])
@given(V=st.integers(5, 40), T=times, schedule=schedules)
def test_no_probability_is_negative(kind, dtype, V, T, schedule):
    bar = alpha_bar(schedule, T)
    if kind == "uniform":
        process = UniformProcess(V, steps(bar), dtype)
    else:
        Q = substitution_steps(flat_kernel(V, T), bar.numpy())
        process = DenseProcess(torch.tensor(Q, dtype=dtype))
    x, t = every_state(V, T)
    x = x[:, MASK + 1 :]
    assert (process.rows(x, t) >= 0).all()
    assert (process.step_columns(x, t) >= 0).all()
    last = process.step_columns(x, t)[-1]
    assert (last.diagonal(offset=MASK + 1) == 0).all()  # alpha_T = 0: what is replaced never stays


@pytest.mark.parametrize("least", [0, 1e-44, 1e-40, 1e-37, 1e-20])
def test_transitions_that_float32_hardly_holds_spoil_no_loss(least):
    V, T = 6, 3
    Q = torch.tensor(substitution_steps(flat_kernel(V, T), alpha_bar("linear", T).numpy())).float()
    Q[:, 2, 3] = least
    process = DenseProcess(Q / Q.sum(-1, keepdim=True))
    x0, xt, t = torch.tensor([[4], [5]]), torch.tensor([[3], [3]]), torch.tensor([1, 2])
    logits = torch.zeros(2, 1, V).masked_fill(~process.valid, -torch.inf).requires_grad_()
    loss = process.step_kl(xt, x0, logits, t).sum()  # 2 becomes 3 hardly ever, 4 and 5 often
    loss.backward()
    assert loss.isfinite() and logits.grad is not None and logits.grad.isfinite().all()


@pytest.mark.parametrize("kind", [*MARKOV, "coupled"])
@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_pad_never_moves(kind, V, L, T, seed):
    process = marginals(V, T, seed) if kind == "coupled" else make(kind, V, T, seed)[0]
    rng = np.random.default_rng(seed)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(8, L)))
    x0[torch.tensor(rng.random((8, L)) < 0.4)] = PAD
    t = torch.tensor(rng.integers(1, T + 1, size=8))
    generator = torch.Generator().manual_seed(seed)
    pads = x0 == PAD

    xt = process.corrupt(x0, t, generator)
    assert torch.equal(xt == PAD, pads)
    if kind != "absorbing":
        assert (xt != MASK).all()
    log_prob = process.log_prob(xt, x0, t)
    assert (log_prob[pads] == 0).all()
    assert log_prob.isfinite().all() and (log_prob <= 1e-12).all()

    posterior = process.posterior(xt, x0, t)
    close(posterior.sum(-1), 1)
    assert torch.equal(
        posterior[pads], torch.eye(V, dtype=torch.float64)[PAD].expand(int(pads.sum()), V)
    )
    assert (posterior[~pads][:, PAD] == 0).all()
    if kind != "absorbing":
        assert (posterior[~pads][:, MASK] == 0).all()

    noise = process.prior(x0, generator)
    assert torch.equal(noise == PAD, pads)
    assert ((noise == MASK) == ((kind == "absorbing") & ~pads)).all()
    assert (process.prior_kl(x0)[pads] == 0).all()


def test_the_prior_is_uniform_over_valid_states(generator):
    V = 7
    x = torch.full((50, 100), MASK)
    noise = make("uniform", V, 3, 0)[0].prior(x, generator)
    counts = torch.bincount(noise.flatten(), minlength=V)
    assert counts[PAD] == counts[MASK] == 0
    assert chisquare(counts[MASK + 1 :]).pvalue > 1e-4


@pytest.mark.parametrize("kind", MARKOV)
def test_corruption_follows_the_rows(kind, generator):
    V, T = 6, 3
    process, Q = make(kind, V, T, seed=5)
    for t, i in itertools.product(range(1, T + 1), (MASK + 1, V - 1)):
        x0 = torch.full((4, 1000), i)
        xt = process.corrupt(x0, torch.full((4,), t), generator)
        counts = np.bincount(xt.flatten(), minlength=V)
        expected = products(Q)[t][i] * xt.numel()
        likely = expected > 1e-9
        assert (counts[~likely] == 0).all()
        assert likely.sum() == 1 or chisquare(counts[likely], expected[likely]).pvalue > 1e-4


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
@pytest.mark.parametrize("kind", ["uniform", "absorbing"])
def test_closed_forms_in_float32_are_exact_where_a_step_hardly_moves(kind, schedule):
    """At the clean end of many steps 1 - alpha_bar is what float32 would round away."""
    V, T = 64, 1000
    bar = alpha_bar(schedule, T)

    def process(dtype: torch.dtype) -> MarkovProcess:
        if kind == "uniform":
            return UniformProcess(V, steps(bar), dtype)
        return AbsorbingProcess(V, bar, dtype)

    t = torch.arange(1, T + 1)
    noised = 5 if kind == "uniform" else MASK
    xt, x0 = torch.full((T, 1), noised), torch.full((T, 1), 3)
    p = predictions(1, 1, V, seed=0).expand(T, 1, V)
    for every in (lambda own: own, lambda own: own.at(range(1, T + 1))):
        single, double = every(process(torch.float32)), every(process(torch.float64))
        for name, args in {
            "log_prob": (xt, x0, t),
            "posterior": (xt, x0, t),
            "reverse": (xt, p, t),
        }.items():
            got, expected = getattr(single, name)(*args), getattr(double, name)(*args)
            torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-6)


# Bayes' rule.


@pytest.mark.parametrize("kind", MARKOV)
@given(T=st.integers(2, 3), seed=seeds, schedule=schedules)
def test_the_posterior_is_bayes_rule_over_all_paths(kind, T, seed, schedule):
    process, Q = make(kind, 5, T, seed, schedule)
    posterior = process.posterior(*triples(Q))[:, 0]
    expected = np.stack([bayes_by_paths(Q, t, i, k) for t, i, k in reachable(Q)])
    close(posterior, expected)


@pytest.mark.parametrize("kind", MARKOV)
@given(V=sizes, T=times, seed=seeds, schedule=schedules)
def test_posterior_and_reverse_step(kind, V, T, seed, schedule):
    process, Q = make(kind, V, T, seed, schedule)
    xt, x0, t = triples(Q)
    seen = list(reachable(Q))
    expected = np.stack([bayes(Q, *triple) for triple in seen])
    close(process.posterior(xt, x0, t)[:, 0], expected)
    close(process.log_prob(xt, x0, t)[:, 0].exp(), [products(Q)[t][i, k] for t, i, k in seen])

    clean = (x0 != PAD)[:, 0]
    xt, x0, t = xt[clean], x0[clean], t[clean]
    seen = [triple for triple in seen if triple[1] != PAD]
    p = predictions(len(t), 1, V, seed)
    reverse = process.reverse(xt, p, t)
    close(reverse.sum(-1), 1)
    close(reverse[:, 0], mixtures(Q, p, seen))

    onehot = torch.eye(V, dtype=torch.float64)[x0]
    close(process.reverse(xt, onehot, t), process.posterior(xt, x0, t))


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, T=times, seed=seeds, schedule=schedules)
def test_the_evidence_is_how_likely_every_clean_token_makes_what_is_seen(
    kind, V, T, seed, schedule
):
    process, Q = substitution(kind, V, T, seed, schedule)
    bar = products(Q)
    for t in range(1, T + 1):
        seen = torch.tensor([valid_states(V)])
        found = process.evidence(seen, torch.tensor([t]))[0]  # [x_t, x_0]
        close(found.exp(), bar[t].T[valid_states(V)])


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_the_first_step_returns_the_prediction(kind, V, L, T, seed):
    process, _ = make(kind, V, T, seed)
    p = predictions(3, L, V, seed)
    xt = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(3, L)))
    close(process.reverse(xt, p, torch.ones(3, dtype=torch.long)), p)


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_the_first_step_unmasks_by_the_prediction(V, L, T, seed):
    process, _ = make("absorbing", V, T, seed)
    p = predictions(3, L, V, seed)
    xt = torch.full((3, L), MASK)
    close(process.reverse(xt, p, torch.ones(3, dtype=torch.long)), p)


def test_the_mixture_is_not_the_normalised_product():
    V, T, t, k = 6, 4, 2, 3
    process, Q = make("dense", V, T, seed=1)
    p = predictions(1, 1, V, seed=1)
    mixture = process.reverse(torch.tensor([[k]]), p, torch.tensor([t]))[0, 0].numpy()
    product = Q[t - 1][:, k] * (p[0, 0].numpy() @ products(Q)[t - 1])
    assert abs(mixture - product / product.sum()).sum() / 2 > 0.01


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, L=lengths, T=times, B=st.integers(1, 7), seed=seeds)
def test_mixing_is_a_product_with_the_matrix_of_each_row(kind, V, L, T, B, seed):
    process, Q = substitution(kind, V, T, seed)
    rng = np.random.default_rng(seed)
    t = torch.tensor(rng.integers(0, T + 1, size=B))  # repeated, in any order
    w = rng.random((B, L, V)) * np.isin(np.arange(V), valid_states(V))
    expected = np.stack([w[b] @ products(Q)[t[b]] for b in range(B)])
    close(process.mix(torch.tensor(w), t), expected)


# Closed forms and matrices are the same process.


def pair(kind: str, V: int, T: int, schedule: str) -> tuple[MarkovProcess, DenseProcess]:
    process, Q = make(kind, V, T, 0, schedule)
    return process, DenseProcess(torch.tensor(Q))


@given(V=sizes, L=lengths, T=times, seed=seeds, schedule=schedules)
def test_uniform_noise_is_its_dense_form(V, L, T, seed, schedule):
    closed, dense = pair("uniform", V, T, schedule)
    assert isinstance(closed, UniformProcess)
    rng = np.random.default_rng(seed)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(6, L)))
    t = torch.tensor(rng.integers(1, T + 1, size=6))
    xt = dense.corrupt(x0, t, torch.Generator().manual_seed(seed))
    p = predictions(6, L, V, seed)
    for name, args in {
        "rows": (x0, t),
        "columns": (xt, t),
        "step_columns": (xt, t),
        "mix": (p, t - 1),
        "log_prob": (xt, x0, t),
        "posterior": (xt, x0, t),
        "reverse": (xt, p, t),
        "step_kl": (xt, x0, p.log(), t),
        "prior_kl": (x0,),
    }.items():
        got, expected = getattr(closed, name)(*args), getattr(dense, name)(*args)
        close(got, expected, atol=1e-11)


@given(V=sizes, L=lengths, T=times, seed=seeds, schedule=schedules)
def test_absorbing_noise_is_its_dense_form(V, L, T, seed, schedule):
    closed, dense = pair("absorbing", V, T, schedule)
    rng = np.random.default_rng(seed)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(6, L)))
    t = torch.tensor(rng.integers(1, T + 1, size=6))
    xt = closed.corrupt(x0, t, torch.Generator().manual_seed(seed))
    p = predictions(6, L, V, seed)
    subs = torch.where((xt == MASK)[..., None], p, torch.eye(V, dtype=torch.float64)[xt])
    posterior = dense.posterior(xt, x0, t)
    reverse = dense.reverse(xt, subs, t)
    close(closed.log_prob(xt, x0, t), dense.log_prob(xt, x0, t))
    close(closed.posterior(xt, x0, t), posterior)
    close(closed.reverse(xt, p, t), reverse)
    pairs = zip(posterior.flatten(0, 1).numpy(), reverse.flatten(0, 1).numpy(), strict=True)
    generic = [kl(q, p) for q, p in pairs]
    close(closed.step_kl(xt, x0, p.log(), t).flatten(), generic, atol=1e-11)


# Fewer steps.


@pytest.mark.parametrize("kind", MARKOV)
@given(data=st.data(), V=sizes, T=st.integers(3, 6), seed=seeds, schedule=schedules)
def test_a_strided_process_is_a_product_of_steps(kind, data, V, T, seed, schedule):
    chosen = data.draw(st.sets(st.integers(1, T - 1), min_size=1))
    stops = [*sorted(chosen), T]
    process, Q = make(kind, V, T, seed, schedule)
    coarse = process.at(stops)
    assert len(stops) == coarse.T and V == coarse.V
    jumps = []
    for s, t in itertools.pairwise([0, *stops]):
        jump = np.eye(V)
        for step in Q[s:t]:
            jump = jump @ step
        jumps.append(jump)
    jumps = np.stack(jumps)
    if isinstance(coarse, SubstitutionProcess):
        x, t = every_state(V, coarse.T)
        close(coarse.step_columns(x, t).mT, jumps)
        close(coarse.rows(x, t), products(Q)[stops])
    xt, x0, t = triples(jumps)
    seen = list(reachable(jumps))
    expected = np.stack([bayes(jumps, *triple) for triple in seen])
    close(coarse.posterior(xt, x0, t)[:, 0], expected)
    log_prob = coarse.log_prob(xt, x0, t)[:, 0]
    close(log_prob.exp(), [products(jumps)[t][i, k] for t, i, k in seen])


@pytest.mark.parametrize("kind", MARKOV)
def test_a_single_stride_goes_all_the_way(kind):
    V, T = 6, 4
    process, Q = make(kind, V, T, seed=2)
    coarse = process.at([T])
    p = predictions(1, V - 2, V, seed=2)
    xt = torch.full((1, V - 2), MASK) if kind == "absorbing" else torch.arange(2, V)[None]
    close(coarse.reverse(xt, p, torch.tensor([1])), p)


@pytest.mark.parametrize("kind", MARKOV)
@pytest.mark.parametrize("stops", [[], [0, 4], [2, 1, 4], [1, 3], [1, 5], [2, 2, 4], [-1, 4]])
def test_times_that_do_not_rise_to_the_end_are_refused(kind, stops):
    process, _ = make(kind, 5, 4, seed=0)
    with pytest.raises(UserError, match="times must rise"):
        process.at(stops)


# Divergences.


@given(V=st.integers(2, 9), seed=seeds)
def test_the_divergence_is_that_of_the_definition(V, seed):
    rng = np.random.default_rng(seed)
    q, p = rng.dirichlet(np.ones(V), size=(2, 5))
    q *= rng.random((5, V)) < 0.7  # 0 log 0 = 0
    expected = [kl(a, b) for a, b in zip(q, p, strict=True)]
    got = categorical_kl(torch.tensor(q), torch.tensor(p))
    close(got, expected)


def test_the_divergence_has_a_gradient_at_zeros():
    q = torch.tensor([[0.0, 0.4, 0.6], [0.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    p = torch.tensor([[0.0, 0.5, 0.5], [0.3, 0.0, 0.7]], dtype=torch.float64, requires_grad=True)
    divergence = categorical_kl(q, p)
    assert_allclose(
        divergence.detach(), [0.4 * math.log(0.8) + 0.6 * math.log(1.2), -math.log(0.7)]
    )
    divergence.sum().backward()
    assert q.grad is not None and q.grad.isfinite().all()
    assert p.grad is not None and p.grad.isfinite().all()
    assert_allclose(p.grad, [[0, -0.8, -1.2], [0, 0, -1 / 0.7]])


@pytest.mark.parametrize("kind", SUBSTITUTIONS)
@given(V=sizes, T=times, seed=seeds)
def test_the_prior_term_is_the_divergence_of_the_last_marginal(kind, V, T, seed):
    process, Q = make(kind, V, T, seed)
    x0 = torch.tensor([[PAD, *valid_states(V)]])
    flat = np.zeros(V)
    flat[MASK + 1 :] = 1 / (V - 2)
    expected = [0.0, *(kl(products(Q)[-1][i], flat) for i in valid_states(V))]
    close(process.prior_kl(x0)[0], expected, atol=1e-11)


# Refusals.


def test_a_single_step_is_refused():
    with pytest.raises(UserError, match="T must be at least 2, got 1"):
        alpha_bar("linear", 1)
    with pytest.raises(UserError, match="T must be at least 2, got 1"):
        CoupledProcess(Table(8, 1, 0), 8, 1)


@pytest.mark.parametrize("kind", ["uniform", "absorbing", "semantic", "dense", "coupled"])
def test_fewer_than_three_valid_states_are_refused(kind):
    V, T = 4, 3
    bar = alpha_bar("linear", T)
    with pytest.raises(UserError, match="3 valid states, got 2"):
        if kind == "uniform":
            UniformProcess(V, steps(bar))
        elif kind == "absorbing":
            AbsorbingProcess(V, bar)
        elif kind == "semantic":
            SemanticProcess(CosineScores(T, TAU), V, D, steps(bar))
        elif kind == "dense":
            DenseProcess(torch.eye(V).expand(T, V, V))
        else:
            CoupledProcess(Table(V, T, 0), V, T)


# Memory.


class Allocations(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation made, forward or backward."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for x in tree_leaves(made):
            if isinstance(x, Tensor):
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size())
        return made


class Careless(torch.autograd.Function):
    """The identity, with a large tensor in its backward pass."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *gradients):
        return gradients[0] + torch.zeros(1000, len(gradients[0])).sum(0)


def test_large_tensors_are_seen():
    rows = torch.ones(10, 8)
    with Allocations() as seen:
        rows.sum(-1)
    assert seen.largest == 10
    with Allocations() as seen:
        (rows[:, :, None] * rows[:, None]).sum()
    assert seen.largest == 10 * 8 * 8
    x = torch.ones(8, requires_grad=True)
    with Allocations() as seen:
        loss = Careless.apply(x).sum()  # pyright: ignore[reportOptionalMemberAccess]
    assert seen.largest <= 8
    with Allocations() as seen:
        loss.backward()
    assert seen.largest == 8000


@pytest.mark.parametrize("kind", [*MARKOV, "coupled"])
@pytest.mark.parametrize(("B", "L", "V", "T"), [(32, 4, 16, 4), (2, 3, 16, 6), (3, 40, 12, 6)])
def test_no_tensor_is_larger_than_a_kernel_or_a_prediction(kind, B, L, V, T, generator):
    process = marginals(V, T, 0) if kind == "coupled" else make(kind, V, T, 0)[0]
    embeddings = random_embeddings(V, seed=0)
    rng = np.random.default_rng(0)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(B, L)))
    t = torch.tensor(rng.integers(1, T + 1, size=B))
    logits = predictions(B, L, V, seed=0).log().requires_grad_()

    def denoiser(x: Tensor, t: Tensor, *_: object) -> Tensor:
        return logits

    with Allocations() as seen:
        game = process
        if isinstance(process, SemanticProcess):
            process.commit(embeddings)
            game = process.draft(embeddings)
        xt = process.corrupt(x0, t, generator)
        process.prior(x0, generator)
        p = logits.softmax(-1)
        loss = game.log_prob(xt, x0, t).sum() + game.prior_kl(x0).sum()
        loss = loss + game.posterior(xt, x0, t).square().sum()
        loss = loss + game.reverse(xt, p, t).square().sum()
        loss = loss + game.step_kl(xt, x0, logits.log_softmax(-1), t).sum()
        loss = loss + token_losses(denoiser, game, x0, [Draw(xt, t, T)]).sum()
        if isinstance(game, Draft):
            loss = loss + game.terminal_kl() + game.row_entropies().sum()
        loss.backward()
    assert logits.grad is not None
    assert B * L * V <= seen.largest <= max((T + 1) * V * V, B * L * V)
