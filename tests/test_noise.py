"""Laws of the forward processes, against matrices built by hand from their definitions.

Letters: V states (PAD and MASK among them), T steps; Q and Q_bar[t] are arrays, Q_bar[0] = I.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from redraft.errors import UserError
from redraft.noise import coupled, draws
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.committed import Draft
from redraft.noise.coupled import CoupledProcess, couple, relax, token_log_prob
from redraft.noise.draws import categorical, uniform
from redraft.noise.markov import DenseProcess, MarkovProcess, SubstitutionProcess
from redraft.noise.process import categorical_kl
from redraft.noise.schedule import SCHEDULES, alpha_bar, sinusoid, steps
from redraft.noise.semantic import BilinearScores, CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import Draw, token_losses
from redraft.tokenizers.base import MASK, PAD

SUBSTITUTIONS = ["uniform", "learned", "low rank", "fixed", "dense"]
MARKOV = [*SUBSTITUTIONS, "absorbing"]
LEARNED = ["learned", "low rank"]
D = 4
TAU = 0.3

sizes = st.integers(5, 8)
lengths = st.integers(1, 4)
times = st.integers(2, 5)
seeds = st.integers(0, 10_000)
schedules = st.sampled_from(sorted(SCHEDULES))


def close(got: Tensor | np.ndarray, expected: object, atol: float = 1e-12) -> None:
    """Equal as far as float64 goes."""
    got = got.detach().numpy() if isinstance(got, Tensor) else got
    assert_allclose(got, np.asarray(expected), rtol=1e-9, atol=atol)


# By hand: the definitions, with plain arrays and loops.


def valid_states(V: int) -> list[int]:
    return [i for i in range(V) if i not in (PAD, MASK)]


def substitution_steps(M: np.ndarray, bar: np.ndarray) -> np.ndarray:
    """Q_t = alpha_t I + (1 - alpha_t) M_t, on valid states; specials are fixed points."""
    T, V, _ = M.shape
    Q = np.zeros((T, V, V))
    for t in range(T):
        alpha = bar[t + 1] / bar[t]
        for i, j in itertools.product(range(V), repeat=2):
            if i in (PAD, MASK) or j in (PAD, MASK):
                Q[t, i, j] = float(i == j)
            else:
                Q[t, i, j] = alpha * (i == j) + (1 - alpha) * M[t, i, j]
    return Q


def flat_kernel(V: int, T: int) -> np.ndarray:
    return np.full((T, V, V), 1 / (V - 3)) * (1 - np.eye(V))


def softmax_kernel(s: np.ndarray) -> np.ndarray:
    """M[i, j] = softmax over the valid j != i of s[i, j]."""
    T, V, _ = s.shape
    M = np.zeros((T, V, V))
    for t, i in itertools.product(range(T), valid_states(V)):
        others = [j for j in valid_states(V) if j != i]
        weights = np.exp(s[t, i, others] - s[t, i, others].max())
        M[t, i, others] = weights / weights.sum()
    return M


def masking_steps(V: int, bar: np.ndarray) -> np.ndarray:
    Q = np.zeros((len(bar) - 1, V, V))
    for t in range(len(bar) - 1):
        alpha = bar[t + 1] / bar[t]
        for i in range(V):
            if i in (PAD, MASK):
                Q[t, i, i] = 1
            else:
                Q[t, i, i], Q[t, i, MASK] = alpha, 1 - alpha
    return Q


def products(Q: np.ndarray) -> np.ndarray:
    """(T + 1, V, V): the identity, Q_1, Q_1 Q_2, ..."""
    Q_bar = [np.eye(Q.shape[-1])]
    for step in Q:
        Q_bar.append(Q_bar[-1] @ step)
    return np.stack(Q_bar)


def bayes(Q: np.ndarray, t: int, i: int, k: int) -> np.ndarray:
    """q(x_{t-1} | x_t = k, x_0 = i), (V,)."""
    Q_bar = products(Q)
    return Q_bar[t - 1][i] * Q[t - 1][:, k] / Q_bar[t][i, k]


def bayes_by_paths(Q: np.ndarray, t: int, i: int, k: int) -> np.ndarray:
    """The same, by summing over every path x_1 .. x_{t-1} from i to k."""
    V = Q.shape[-1]
    mass = np.zeros(V)
    for path in itertools.product(range(V), repeat=t - 1):
        states = (i, *path, k)
        mass[states[-2]] += math.prod(Q[s, states[s], states[s + 1]] for s in range(t))
    return mass / mass.sum()


def kl(q: np.ndarray, p: np.ndarray) -> float:
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True) if a > 0)


def bilinear_by_hand(scores: BilinearScores, embeddings: Tensor) -> np.ndarray:
    e = embeddings.numpy()
    e = e / np.sqrt((e**2).sum(-1, keepdims=True))

    def layer(linear: nn.Linear, x: np.ndarray) -> np.ndarray:
        return linear.weight.detach().numpy() @ x + linear.bias.detach().numpy()

    s = []
    for t in range(1, scores.T + 1):
        features = sinusoid(torch.tensor(t), scores.T, scores.trunk.in_features).double().numpy()
        h = layer(scores.trunk, features)
        h = h / (1 + np.exp(-h))
        A = layer(scores.head, h).reshape(scores.width, -1)
        if scores.other is not None:
            A = A @ layer(scores.other, h).reshape(scores.width, -1).T
        s.append(e @ A @ e.T)
    return np.stack(s)


# The processes under test, each with its matrices Q (T, V, V) by hand.


def move(module: nn.Module, seed: int, scale: float = 0.5) -> None:
    """Weights as training would leave them: none is zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(scale * torch.randn(weight.shape, generator=generator).to(weight))


def bilinear(
    V: int, T: int, schedule: str = "linear", rank: int | None = None
) -> tuple[SemanticProcess, BilinearScores]:
    scores = BilinearScores(T, D, hidden=6, rank=rank)
    process = SemanticProcess(scores, V, D, steps(alpha_bar(schedule, T))).double()
    return process, scores


def random_embeddings(V: int, seed: int) -> Tensor:
    rng = np.random.default_rng(seed)
    return torch.tensor(rng.normal(size=(V, D)))


def make(
    kind: str, V: int, T: int, seed: int, schedule: str = "linear"
) -> tuple[MarkovProcess, np.ndarray]:
    bar = alpha_bar(schedule, T)
    rng = np.random.default_rng(seed)
    embeddings = random_embeddings(V, seed)
    if kind == "uniform":
        process = UniformProcess(V, steps(bar), torch.float64)
        return process, substitution_steps(flat_kernel(V, T), bar.numpy())
    if kind == "absorbing":
        return AbsorbingProcess(V, bar, torch.float64), masking_steps(V, bar.numpy())
    if kind == "dense":
        M = softmax_kernel(rng.normal(size=(T, V, V)))
        Q = substitution_steps(M, bar.numpy())
        return DenseProcess(torch.tensor(Q)), Q
    if kind == "fixed":
        process = SemanticProcess(CosineScores(T, TAU), V, D, steps(bar)).double()
        process.commit(embeddings)
        e = embeddings.numpy()
        cosine = np.array([[a @ b / math.sqrt((a @ a) * (b @ b)) for b in e] for a in e])
        M = softmax_kernel(np.repeat(cosine[None] / TAU, T, axis=0))
        return process, substitution_steps(M, bar.numpy())
    process, scores = bilinear(V, T, schedule, rank=2 if kind == "low rank" else None)
    move(scores, seed)
    process.commit(embeddings)
    M = softmax_kernel(bilinear_by_hand(scores, embeddings))
    return process, substitution_steps(M, bar.numpy())


def substitution(
    kind: str, V: int, T: int, seed: int, schedule: str = "linear"
) -> tuple[SubstitutionProcess, np.ndarray]:
    process, Q = make(kind, V, T, seed, schedule)
    assert isinstance(process, SubstitutionProcess)
    return process, Q


def every_state(V: int, T: int) -> tuple[Tensor, Tensor]:
    """x (T, V) with all states in each row, and t (T,) = 1..T."""
    return torch.arange(V).expand(T, V), torch.arange(1, T + 1)


def reachable(Q: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Every (t, x_0, x_t) that the process allows; MASK is no clean token."""
    T, V, _ = Q.shape
    Q_bar = products(Q)
    for t, i, k in itertools.product(range(1, T + 1), range(V), range(V)):
        if Q_bar[t][i, k] > 1e-300 and i != MASK:
            yield t, i, k


def triples(Q: np.ndarray) -> tuple[Tensor, Tensor, Tensor]:
    """The same as a batch of sequences of one token: xt (B, 1), x0 (B, 1), t (B,)."""
    t, x0, xt = torch.tensor(list(reachable(Q))).unbind(-1)
    return xt[:, None], x0[:, None], t


def predictions(B: int, L: int, V: int, seed: int) -> Tensor:
    """p (B, L, V) on valid states, as a denoiser gives it."""
    rng = np.random.default_rng(seed)
    p = np.zeros((B, L, V))
    p[..., MASK + 1 :] = rng.dirichlet(np.ones(V - 2), size=(B, L))
    return torch.tensor(p)


def mixtures(Q: np.ndarray, p: Tensor, seen: list[tuple[int, int, int]]) -> np.ndarray:
    """sum_i p(i) q(. | k, i) for each (t, _, k); SUBS carries over tokens that are not MASK."""
    masks = bool(Q[0, MASK + 1 :, MASK].any())
    out = []
    for (t, _, k), row in zip(seen, p[:, 0].numpy(), strict=True):
        if masks and k != MASK:
            out.append(np.eye(len(row))[k])
        else:
            out.append(sum(row[i] * bayes(Q, t, i, k) for i in valid_states(len(row))))
    return np.stack(out)


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


@pytest.mark.parametrize("rank", [None, 2])
@given(V=sizes, L=lengths, T=times, seed=seeds, schedule=schedules)
def test_a_fresh_leader_is_uniform_noise(rank, V, L, T, seed, schedule):
    process, _ = bilinear(V, T, schedule, rank)
    embeddings = random_embeddings(V, seed)
    process.commit(embeddings)
    reference = UniformProcess(V, steps(alpha_bar(schedule, T)), torch.float64)
    x, t = every_state(V, T)
    for game in (process, process.draft(embeddings)):
        for name in ("rows", "columns", "step_columns"):
            got = getattr(game, name)(x, t).detach()
            close(got, getattr(reference, name)(x, t))


# Semantic noise: what is learned, what is drafted, what is committed.


@pytest.mark.parametrize("rank", [None, 2])
@given(V=st.integers(5, 8), T=st.integers(2, 6), seed=st.integers(0, 100))
def test_learned_noise_may_begin_at_the_fixed_semantic_kernel(rank, V, T, seed):
    alpha, e = steps(alpha_bar("linear", T)), random_embeddings(V, seed)
    scores = BilinearScores(T, D, hidden=6, rank=rank, tau=TAU)
    learned = SemanticProcess(scores, V, D, alpha).double()
    fixed = SemanticProcess(CosineScores(T, TAU), V, D, alpha).double()
    learned.commit(e)
    fixed.commit(e)
    torch.testing.assert_close(learned.Q, fixed.Q)
    move(scores, seed)
    assert not torch.allclose(learned.draft(e).Q, fixed.Q)


def test_only_one_factor_of_a_low_rank_kernel_starts_at_zero():
    process, scores = bilinear(6, 3, rank=2)
    assert scores.other is not None
    head, other = scores.head, scores.other
    assert not head.weight.any() and not head.bias.any()
    assert other.weight.all()
    embeddings = random_embeddings(6, seed=0)
    before = other.weight.detach().clone()

    def loss() -> Tensor:
        x = torch.tensor([[2, 3, 4, 5]] * 3)
        return process.draft(embeddings).log_prob(x.roll(1, 1), x, torch.tensor([1, 2, 3])).sum()

    optimizer = torch.optim.SGD(scores.parameters(), lr=0.1)
    loss().backward()
    assert head.weight.grad is not None and head.weight.grad.any()
    optimizer.step()
    assert head.weight.any()
    optimizer.zero_grad()
    loss().backward()  # now that U has moved, W learns too
    optimizer.step()
    assert not torch.equal(other.weight, before)


@pytest.mark.parametrize("kind", LEARNED)
@given(V=sizes, T=times, seed=seeds)
def test_a_draft_has_a_gradient_in_phi_alone(kind, V, T, seed):
    process, scores = bilinear(V, T, rank=2 if kind == "low rank" else None)
    move(scores, seed)
    embeddings = random_embeddings(V, seed).requires_grad_()
    draft = process.draft(embeddings)
    x = torch.arange(MASK + 1, V)[None]
    t = torch.tensor([T])
    (draft.log_prob(x.roll(1, 1), x, t).sum() + draft.terminal_kl()).backward()
    assert embeddings.grad is None
    for name, weight in scores.named_parameters():
        assert weight.grad is not None and weight.grad.isfinite().all(), name
        assert weight.grad.any(), name
    assert all(weight.grad is None for weight in process.committed.parameters())
    assert not draft.detached().Q_bar.requires_grad


@pytest.mark.parametrize("kind", LEARNED)
@given(V=sizes, T=times, seed=seeds)
def test_a_commitment_holds_until_the_next(kind, V, T, seed):
    process, scores = bilinear(V, T, rank=2 if kind == "low rank" else None)
    move(scores, seed)
    embeddings = random_embeddings(V, seed)
    process.commit(embeddings)
    Q, Q_bar = process.Q.clone(), process.Q_bar.clone()
    draft = process.draft(embeddings)
    assert torch.equal(draft.Q, Q) and torch.equal(draft.Q_bar, Q_bar)

    move(scores, seed + 1)
    embeddings += 1
    process.rebuild()
    assert torch.equal(process.Q, Q) and torch.equal(process.Q_bar, Q_bar)
    assert not torch.allclose(process.draft(embeddings).Q_bar, Q_bar)
    process.commit(embeddings)
    assert not torch.allclose(process.Q_bar, Q_bar)
    assert torch.equal(process.Q_bar, process.draft(embeddings).Q_bar)


@pytest.mark.parametrize("kind", [*LEARNED, "fixed"])
@given(V=sizes, T=times, seed=seeds)
def test_a_saved_process_is_the_one_that_was_committed(kind, V, T, seed):
    process, _ = make(kind, V, T, seed)
    assert isinstance(process, SemanticProcess)
    move(process.scores, seed + 1)  # learned since, not committed
    loaded, _ = make(kind, V, T, seed + 2)
    assert isinstance(loaded, SemanticProcess)
    assert not torch.allclose(loaded.Q_bar, process.Q_bar)
    loaded.load_state_dict(process.state_dict())
    loaded.rebuild()
    assert torch.equal(loaded.Q, process.Q) and torch.equal(loaded.Q_bar, process.Q_bar)
    drafts = [game.draft(game.embeddings).Q_bar for game in (loaded, process)]
    assert torch.equal(*drafts)


@pytest.mark.parametrize("kind", LEARNED)
@given(V=sizes, T=times, seed=seeds)
def test_terminal_divergence_and_row_entropies(kind, V, T, seed):
    process, scores = bilinear(V, T, rank=2 if kind == "low rank" else None)
    move(scores, seed)
    embeddings = random_embeddings(V, seed)
    draft = process.draft(embeddings)
    M = softmax_kernel(bilinear_by_hand(scores, embeddings))
    Q_bar = products(substitution_steps(M, alpha_bar("linear", T).numpy()))
    valid = valid_states(V)
    flat = np.full(V, 1 / len(valid))
    terminal = np.mean([kl(Q_bar[-1][i], flat) for i in valid])
    entropies = [[-sum(m * math.log(m) for m in M[t, i] if m > 0) for i in valid] for t in range(T)]
    close(draft.terminal_kl().detach(), terminal)
    close(draft.row_entropies().detach(), entropies)
    assert (draft.row_entropies() <= math.log(len(valid) - 1) + 1e-12).all()


def test_gradients_are_finite_where_both_posteriors_are_zero():
    """At t = T nothing stays, so that q and p are both 0 at j = x_t."""
    V, T = 6, 3
    process, scores = bilinear(V, T)
    move(scores, seed=3)
    draft: Draft = process.draft(random_embeddings(V, seed=3))
    x0 = torch.tensor([[2, 3, 4, 5, PAD]] * 4)
    t = torch.tensor([T, T, T - 1, 1])
    xt = torch.tensor([[3, 4, 5, 2, PAD], [2, 3, 4, 5, PAD]] * 2)
    logits = torch.randn(4, 5, V, dtype=torch.float64)
    logits[..., : MASK + 1] = -torch.inf
    logits.requires_grad_()
    assert (draft.posterior(xt, x0, t)[:2, :4].gather(-1, xt[:2, :4, None]) == 0).all()
    loss = draft.step_kl(xt, x0, logits.log_softmax(-1), t)
    assert loss.isfinite().all() and (loss >= -1e-12).all()
    loss[:, :4].sum().backward()
    for gradient in [logits.grad, *(weight.grad for weight in scores.parameters())]:
        assert gradient is not None and gradient.isfinite().all() and gradient.any()


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


# Coupled marginals (FLDD).


class Table:
    """Stands in for a network over the whole sequence: known logits, -inf at PAD and MASK."""

    def __init__(self, V: int, T: int, seed: int):
        rng = np.random.default_rng(seed)
        self.own = torch.tensor(rng.normal(size=(T + 1, V, V)))
        self.others = torch.tensor(rng.normal(size=(V, V)))

    def __call__(self, x0: Tensor, t: Tensor) -> Tensor:
        logits = self.own[t[:, None], x0] + self.others[x0].sum(1, keepdim=True)
        return logits.index_fill(-1, torch.tensor([PAD, MASK]), -torch.inf)


def marginals(V: int, T: int, seed: int) -> CoupledProcess:
    return CoupledProcess(Table(V, T, seed), V, T).double()


def marginal_by_hand(process: CoupledProcess, x0: Tensor, t: int) -> np.ndarray:
    V, r = process.V, t / process.T
    logits = process.network(x0, torch.full_like(x0[:, 0], t)).numpy()
    u = np.zeros((*x0.shape, V))
    for b, l in np.ndindex(*x0.shape):
        f = np.exp(logits[b, l])
        u[b, l] = 2 * r * (1 - r) * f / f.sum()
        u[b, l, valid_states(V)] += r**2 / (V - 2)
        u[b, l, x0[b, l]] += (1 - r) ** 2
    return u


def couple_by_hand(u_s: np.ndarray, u_t: np.ndarray, k: int) -> np.ndarray:
    stay = min(u_s[k], u_t[k]) / u_t[k]
    gain = np.array([max(0.0, a - b) for a, b in zip(u_s, u_t, strict=True)])
    moved = gain / gain.sum() if gain.sum() > 0 else gain
    return stay * np.eye(len(u_s))[k] + (1 - stay) * moved


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_coupled_marginals(V, L, T, seed):
    process = marginals(V, T, seed)
    x0 = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(3, L)))
    for t in range(T + 1):
        u = process.marginal(x0, torch.full((3,), t))
        close(u, marginal_by_hand(process, x0, t))
        close(u.sum(-1), 1)
    start, end = (process.marginal(x0, torch.full((3,), t)) for t in (0, T))
    assert torch.equal(start, torch.eye(V, dtype=torch.float64)[x0])
    close(end[..., MASK + 1 :], 1 / (V - 2))
    assert not end[..., : MASK + 1].any()
    assert not process.prior_kl(x0).any()


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_the_coupling_joins_its_marginals_and_stays_as_often_as_can_be(V, L, T, seed):
    process = marginals(V, T, seed)
    rng = np.random.default_rng(seed)
    x0 = torch.tensor(rng.integers(MASK + 1, V, size=(1, L)))
    for t in range(1, T + 1):
        at = torch.tensor([t])
        u_s, u_t = process.marginal(x0, at - 1), process.marginal(x0, at)
        joint = np.zeros((L, V, V))  # of z_t = k and z_s = j
        for k in valid_states(V):
            zt = torch.full((1, L), k)
            posterior = process.posterior(zt, x0, at)
            expected = [couple_by_hand(u_s[0, l].numpy(), u_t[0, l].numpy(), k) for l in range(L)]
            close(posterior[0], expected, atol=1e-11)
            assert (posterior >= 0).all()
            close(posterior.sum(-1), 1)
            onehot = torch.eye(V, dtype=torch.float64)[zt]
            assert torch.equal(couple(u_s, u_t, onehot), posterior)
            joint[:, k] = u_t[0, :, k, None] * posterior[0]
        close(joint.sum(1), u_s[0])
        staying = np.einsum("lkk->l", joint)
        close(staying, torch.minimum(u_s, u_t)[0].sum(-1))


@given(V=sizes, seed=seeds)
def test_the_relaxed_coupling_is_linear_in_z(V, seed):
    u_s, u_t, z = (predictions(2, 3, V, seed + n) for n in range(3))
    mixed = couple(u_s, u_t, z).numpy()
    close(mixed.sum(-1), 1)
    for b, l in np.ndindex(2, 3):
        s, t = u_s[b, l].numpy(), u_t[b, l].numpy()
        expected = sum(z[b, l, k].item() * couple_by_hand(s, t, k) for k in valid_states(V))
        close(mixed[b, l], expected)


@given(V=sizes, seed=seeds, temperature=st.sampled_from([1e-3, 0.1, 1.0, 10.0]))
def test_relaxed_draws_lie_on_the_simplex(V, seed, temperature):
    u = predictions(4, 3, V, seed)
    z = relax(u, temperature, torch.Generator().manual_seed(seed))
    assert (z >= 0).all() and z.isfinite().all()
    close(z.sum(-1), 1)


def test_cold_relaxed_draws_are_draws(generator):
    V, N = 6, 5000
    u = predictions(1, 1, V, seed=4).expand(N, 1, V)
    z = relax(u, 1e-3, generator)
    assert (z.max(-1).values > 0.99).double().mean() > 0.95
    counts = np.bincount(z.argmax(-1).flatten(), minlength=V)
    assert counts[PAD] == counts[MASK] == 0
    expected = u[0, 0, MASK + 1 :].numpy() * N
    assert chisquare(counts[MASK + 1 :], expected).pvalue > 1e-4


def test_the_largest_number_that_can_be_drawn_relaxes_to_no_state_of_weight_zero(monkeypatch):
    u = torch.tensor([[[0, 0, 0.5, 0.3, 0.2]]])  # float32, as in training
    numbers = torch.tensor([[[1 - 2.0**-53, 0.5, 0.5, 0.5, 0.5]]], dtype=torch.float64)
    monkeypatch.setattr(coupled, "uniform", lambda *args: numbers)
    z = relax(u, 1.0)
    assert z[..., PAD].item() < 1e-6


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_coupled_draws_have_a_likelihood(V, L, T, seed):
    process = marginals(V, T, seed)
    x0 = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(T, L)))
    t = torch.arange(1, T + 1)
    zt = process.corrupt(x0, t, torch.Generator().manual_seed(seed))
    u = process.marginal(x0, t)
    expected = [[math.log(u[b, l, zt[b, l]]) for l in range(L)] for b in range(T)]
    close(process.log_prob(zt, x0, t), expected)
    close(token_log_prob(u, zt), expected)


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_coupled_tokens_stay_or_go_where_the_denoiser_says(V, L, T, seed):
    process = marginals(V, T, seed)
    zt = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(T, L)))
    t, p = torch.arange(1, T + 1), predictions(T, L, V, seed)
    v = process.reverse(zt, p, t)
    for b, l in np.ndindex(T, L):
        kept = (b / (b + 1)) ** 2
        expected = (1 - kept) * p[b, l]
        expected[zt[b, l]] += kept
        close(v[b, l], expected)
    assert torch.equal(v[0], p[0])  # at t = 1 the denoiser alone decides


@given(V=sizes, L=lengths, T=times, seed=seeds)
def test_no_coupled_token_leaves_more_readily_than_the_reverse_step_can(V, L, T, seed):
    """If its network does not look at t: the true v is (s/t)^2 onehot, and what some p adds."""
    table = Table(V, T, seed)
    table.own[:] = table.own[0]
    process = CoupledProcess(table, V, T).double()
    x0 = torch.tensor(np.random.default_rng(seed).integers(MASK + 1, V, size=(T, L)))
    t = torch.arange(1, T + 1)
    for k in valid_states(V):
        zt = torch.full_like(x0, k)
        rest = process.posterior(zt, x0, t) - process.reverse(zt, torch.zeros(T, L, V), t)
        assert rest.min() > -1e-12


# Draws.


@given(V=st.integers(2, 9), seed=seeds)
def test_a_state_of_weight_zero_is_never_drawn(V, seed):
    rng = np.random.default_rng(seed)
    weights = rng.random((50, 20, V)) * (rng.random((50, 20, V)) < 0.5)
    weights[..., rng.integers(V)] += 0.1
    drawn = categorical(torch.tensor(weights), torch.Generator().manual_seed(seed))
    assert (np.take_along_axis(weights, drawn.numpy()[..., None], -1) > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_have_the_frequencies_of_their_weights(dtype, generator):
    weights = np.array([0.0, 3.0, 0.5, 0.0, 1.5, 7.0, 0.0])  # need not sum to one
    N = 20_000
    drawn = categorical(torch.tensor(weights, dtype=dtype).expand(N, 7), generator)
    counts = np.bincount(drawn, minlength=7)
    likely = weights > 0
    assert (counts[~likely] == 0).all()
    expected = weights[likely] / weights.sum() * N
    assert chisquare(counts[likely], expected).pvalue > 1e-4


@pytest.mark.parametrize(
    "weights",
    [
        [0, 0, 1, 1e-9, 1e-12, 0],
        [1e-9, 0, 0.5, 1e-9, 0.5, 1e-9],
        [0.3, 0.3, 1e-9, 0.4],
        [0, 0, 7, 1e-9, 0, 0],
    ],
)
def test_the_tail_is_drawn_by_exact_inversion(weights, monkeypatch):
    """A number u in [0, 1) means the state whose share of the total, laid end to end, holds u."""
    probs = torch.tensor(weights, dtype=torch.float32)
    shares = probs.double().numpy() / math.fsum(probs.tolist())
    edges = np.concatenate([[0], np.cumsum(shares)])
    likely = [state for state, weight in enumerate(weights) if weight > 0]
    numbers = [(edges[state] + edges[state + 1]) / 2 for state in likely]
    numbers += [0.0, 1 - 2.0**-53]
    monkeypatch.setattr(draws, "uniform", lambda *args: torch.tensor(numbers, dtype=torch.float64))
    drawn = categorical(probs.expand(len(numbers), -1))
    assert drawn.tolist() == [*likely, likely[0], likely[-1]]


@given(B=st.integers(1, 5), L=lengths, V=sizes, seed=seeds)
def test_a_row_with_its_own_generator_does_not_depend_on_the_others(B, L, V, seed):
    def own(b: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed + b)

    p = predictions(B, L, V, seed)
    numbers = uniform((B, L), p.device, [own(b) for b in range(B)])
    assert numbers.dtype == torch.float64 and numbers.shape == (B, L)
    together = categorical(p, [own(b) for b in range(B)])
    process, _ = make("learned", V, 3, seed)
    x0, t = together, torch.full((B,), 2)
    noised = process.corrupt(x0, t, [own(b) for b in range(B)])
    for b in range(B):
        assert torch.equal(numbers[b : b + 1], uniform((1, L), p.device, own(b)))
        assert torch.equal(together[b : b + 1], categorical(p[b : b + 1], own(b)))
        alone = process.corrupt(x0[b : b + 1], t[b : b + 1], own(b))
        assert torch.equal(noised[b : b + 1], alone)


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
