"""What was made fast gives what the plain way gives."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny
from torch import Tensor

from redraft import precision
from redraft.batches import Batches
from redraft.bench import random_tokens
from redraft.config import Config, DenoiserConfig, LeaderConfig, NoiseConfig, TrainConfig
from redraft.denoiser import Denoiser
from redraft.fusion import fusable, fusing
from redraft.model import similar
from redraft.noise import markov
from redraft.noise.draws import categorical, look_up_inverse
from redraft.noise.markov import SMALL, Chain, cumulative_products, scan
from redraft.noise.process import ForwardProcess, categorical_kl
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.objective import Draw, token_losses
from redraft.precision import Compensated, exact_linear, exact_product, parts, product_of_parts
from redraft.sampler import Sampler
from redraft.tokenizers.base import MASK, PAD
from redraft.trainer import assemble

seeds = st.integers(0, 1000)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def stochastic(T: int, V: int, seed: int) -> Tensor:
    return torch.randn(T, V, V, generator=seeded(seed), dtype=torch.float64).softmax(-1)


# Products of many matrices


@given(T=st.integers(1, 9), V=st.integers(2, 6), seed=seeds)
def test_all_ways_to_multiply_a_stack_agree(T, V, seed):
    Q = stochastic(T, V, seed)
    plain = [Q[0]]
    for step in Q[1:]:
        plain.append(plain[-1] @ step)
    for products in (scan, Chain.apply):
        torch.testing.assert_close(products(Q), torch.stack(plain), rtol=1e-12, atol=1e-14)


@given(T=st.integers(1, 7), V=st.integers(2, 5), seed=seeds)
def test_the_chains_own_gradient_is_that_of_autograd(T, V, seed):
    """Through softmax, whose rows sum to one: so do those of every product."""
    logits = torch.randn(T, V, V, generator=seeded(seed), dtype=torch.float64, requires_grad=True)
    weight = torch.randn(T, V, V, generator=seeded(seed + 1), dtype=torch.float64)
    gradients = [
        torch.autograd.grad((products(logits.softmax(-1)).square() * weight).sum(), logits)[0]
        for products in (scan, Chain.apply)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)


def test_large_vocabularies_are_multiplied_as_small_ones(monkeypatch):
    Q = stochastic(5, 7, seed=3)
    small = cumulative_products(Q)
    monkeypatch.setattr(markov, "SMALL", 6)
    torch.testing.assert_close(cumulative_products(Q), small, rtol=1e-12, atol=1e-14)
    assert torch.equal(small[0], torch.eye(7).double())


# Draws


@given(
    B=st.integers(1, 4), L=st.integers(1, 5), T=st.integers(1, 4), V=st.integers(2, 9), seed=seeds
)
def test_bisection_draws_what_inversion_draws(B, L, T, V, seed):
    rng = np.random.default_rng(seed)
    rows = torch.tensor(rng.random((T, V, V)) * (rng.random((T, V, V)) < 0.6) + np.eye(V))
    t, x = (torch.tensor(rng.integers(0, n, size=s)) for n, s in ((T, B), (V, (B, L))))
    u = torch.rand((B, L), generator=seeded(seed), dtype=torch.float64)
    drawn = look_up_inverse(rows.cumsum(-1), u, t, x)
    assert torch.equal(drawn, categorical(rows[t[:, None], x], seeded(seed)))
    assert (rows[t[:, None], x].gather(-1, drawn[..., None]) > 0).all()


def large_process(V: int = SMALL + 5, T: int = 3) -> SemanticProcess:
    torch.manual_seed(0)
    scores = BilinearScores(T, 4, hidden=8)
    torch.nn.init.normal_(scores.head.weight, std=3.0)
    process = SemanticProcess(scores, V, 4, steps(alpha_bar("linear", T)))
    process.commit(torch.randn(V, 4, generator=seeded(1)))
    return process


def test_a_large_process_draws_as_its_rows_say():
    process = large_process()
    x0 = torch.randint(MASK + 1, process.V, (6, 50), generator=seeded(2))
    x0[:, -5:] = PAD
    t = torch.tensor([1, 1, 2, 2, 3, 3])
    drawn = process.corrupt(x0, t, seeded(3))
    assert torch.equal(drawn, categorical(process.rows(x0, t), seeded(3)))
    assert (drawn[:, -5:] == PAD).all()


@given(V=st.integers(5, 40), T=st.integers(2, 9), seed=seeds)
def test_uniform_noise_draws_as_its_rows_say(V, T, seed):
    process = UniformProcess(V, steps(alpha_bar("linear", T)), torch.float64)
    x0 = torch.randint(MASK + 1, V, (T + 1, 30), generator=seeded(seed))
    x0[:, -3:] = PAD
    t = torch.arange(T + 1)
    drawn = process.corrupt(x0, t, seeded(seed))
    assert torch.equal(drawn, categorical(process.rows(x0, t), seeded(seed)))


# The bound


BOUNDS = {
    "looked up, small": large_process(V=9),
    "looked up, large": large_process(),
    "closed": UniformProcess(SMALL + 5, steps(alpha_bar("linear", 3))),
}


@pytest.mark.parametrize("process", BOUNDS.values(), ids=BOUNDS)
def test_the_bound_is_the_divergence_of_posteriors(process):
    x0 = torch.randint(MASK + 1, process.V, (6, 7), generator=seeded(4))
    x0[:, -2:] = PAD
    t = torch.tensor([1, 1, 2, 2, 3, 3])
    xt = process.corrupt(x0, t, seeded(5))
    logits = torch.randn(6, 7, process.V, generator=seeded(6))
    logits[..., : MASK + 1] = -torch.inf
    logits.requires_grad_()
    found = process.step_kl(xt, x0, logits, t)
    plain = ForwardProcess.step_kl(process, xt, x0, logits, t)
    real = x0 != PAD
    torch.testing.assert_close(found[real], plain[real], rtol=1e-4, atol=1e-5)
    assert not found[~real].any()
    gradients = [torch.autograd.grad(kl[real].sum(), logits)[0] for kl in (found, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-5)


# Precision


@given(n=st.integers(1, 40), k=st.integers(1, 40), m=st.integers(1, 40), seed=seeds)
def test_three_rounded_products_are_as_good_as_one_exact(n, k, m, seed):
    """With factors rounded as TF32 rounds them, the error is that of float32."""
    a, b = torch.randn(n, k, generator=seeded(seed)), torch.randn(k, m, generator=seeded(seed + 1))
    for x in (a, b):
        high, low = parts(x)
        assert torch.equal(high + low, x)
        assert torch.equal(rounded(high), high)  # TF32 takes it as it is
        assert (rounded(low) - low).abs().max() <= 2**-21 * x.abs().max()
    scale = a.double().abs() @ b.double().abs()
    exact = a.double() @ b.double()
    (ah, al), (bh, bl) = parts(a), parts(b)
    as_on_tensor_cores = sum(
        rounded(p).double() @ rounded(q).double() for p, q in ((ah, bh), (ah, bl), (al, bh))
    )
    assert ((as_on_tensor_cores - exact).abs() <= 2**-20 * scale).all()
    assert ((product_of_parts(a, b).double() - exact).abs() <= 1e-6 * scale + 1e-12).all()


def rounded(x: Tensor) -> Tensor:
    """To TF32: 10 bits after the leading one, to nearest."""
    return ((x.view(torch.int32) + (1 << 12)) & -(1 << 13)).view(torch.float32)


def test_compensated_products_are_products(monkeypatch):
    """As on a GPU, but for the arithmetic of its units."""
    monkeypatch.setattr(precision, "exact_product", product_of_parts)
    x, layer = torch.randn(3, 5, 8, generator=seeded(1)), torch.nn.Linear(8, 6)
    stack = torch.randn(3, 8, 4, generator=seeded(2))
    with torch.no_grad(), Compensated():
        both = layer(x), x @ stack
    torch.testing.assert_close(both[0], layer(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(both[1], x @ stack, rtol=1e-5, atol=1e-6)
    with Compensated():
        assert layer(x).requires_grad  # with a gradient nothing changes


def test_products_on_a_cpu_are_plain():
    a, b = torch.randn(4, 5, generator=seeded(1)), torch.randn(5, 3, generator=seeded(2))
    assert torch.equal(exact_product(a, b), a @ b)
    assert torch.equal(exact_linear(a, b.mT), a @ b)
    before = torch.backends.cuda.matmul.allow_tf32
    with precision.tf32(not before):
        assert torch.backends.cuda.matmul.allow_tf32 != before
    assert torch.backends.cuda.matmul.allow_tf32 == before


# Fusing


def test_functions_are_fused_only_where_a_step_says_so(monkeypatch):
    calls = []
    monkeypatch.setattr(torch, "compile", lambda f, dynamic: calls.append(f) or (lambda x: -f(x)))
    double = fusable(lambda x: 2 * x)
    one = torch.ones(())
    assert double(one) == 2
    with fusing(True):
        assert double(one) == -2
        with fusing(False):
            assert double(one) == 2
        assert double(one) == -2
    assert double(one) == 2
    assert len(calls) == 1


# Batches of few widths


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=40),
    size=st.integers(1, 5),
    widths=st.integers(1, 9),
    seed=seeds,
)
def test_batches_have_few_widths_and_lose_nothing(lengths, size, widths, seed):
    sequences = [np.full(n, 3 + i) for i, n in enumerate(lengths)]
    few = Batches(sequences, size, seed, widths=widths)
    exact = Batches(sequences, size, seed, widths=max(lengths))
    seen = set()
    for step in range(few.per_epoch):
        batch, plain = few[step], exact[step]
        L = plain.x0.shape[1]
        assert torch.equal(batch.x0[:, :L], plain.x0)
        assert (batch.x0[:, L:] == PAD).all()
        assert batch.padded == bool((batch.x0 == PAD).any())
        assert (batch.tokens, batch.weight) == (plain.tokens, plain.weight)
        seen.add(batch.x0.shape[1])
    assert len(seen) <= widths


@given(
    lengths=st.lists(st.integers(1, 100), min_size=1, max_size=60).map(sorted),
    most=st.integers(1, 20),
    least=st.integers(1, 20),
)
def test_groups_for_sampling_hold_everything_in_order(lengths, most, least):
    sizes = similar(lengths, most, least)
    assert sum(sizes) == len(lengths)
    assert all(1 <= size <= most for size in sizes)
    start = 0
    for size in sizes:
        group = lengths[start : start + size]
        if size > least:
            assert group[-2] <= 1.1 * group[0] or group[-1] <= 1.1 * group[0]
        start += size


# Whole steps


def wide_config(method: str) -> Config:
    return Config(
        method=method,
        noise=NoiseConfig(T=4, hidden=8),
        denoiser=DenoiserConfig(width=16, layers=1, heads=2),
        train=TrainConfig(batch=8, device="cpu"),
        leader=LeaderConfig(batch=4, block=2, probes=2),
    )


@pytest.mark.parametrize("method", ["vsdd", "d3pm-reinforce", "d3pm-semantic"])
def test_large_and_small_vocabularies_take_the_same_steps(method, monkeypatch):
    """The paths for many states, on data that both can take."""
    losses = []
    for limit in (SMALL, 5):
        monkeypatch.setattr("redraft.noise.markov.SMALL", limit)
        monkeypatch.setattr("redraft.noise.committed.SMALL", limit)
        monkeypatch.setattr("redraft.noise.markov.wide", lambda V, dtype: torch.float64)
        run = assemble(wide_config(method), random_tokens(12, 6, n=64))
        losses.append(
            torch.tensor([float(run.method.step(run.batches[i], 0.1)["loss"]) for i in range(5)])
        )
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)


def test_padding_to_a_wider_batch_changes_no_loss():
    run = assemble(tiny("vsdd"))
    method, x0 = run.method, run.batches[0].x0
    t = torch.full((len(x0),), 2)
    xt = method.process.corrupt(x0, t, seeded(1))
    wide_x0, wide_xt = (torch.nn.functional.pad(x, (0, 5), value=PAD) for x in (x0, xt))
    narrow = token_losses(method.denoiser, method.process, x0, [Draw(xt, t, 5)])
    wide = token_losses(method.denoiser, method.process, wide_x0, [Draw(wide_xt, t, 5)])
    torch.testing.assert_close(wide[:, : x0.shape[1]], narrow, rtol=1e-4, atol=1e-5)
    assert not wide[:, x0.shape[1] :].any()


def test_sampling_in_bf16_is_nearly_sampling_in_float32():
    torch.manual_seed(0)
    denoiser = Denoiser(DenoiserConfig(width=32, layers=2, heads=2), V=9, T=4, max_length=12)
    process = large_process(V=9, T=4)
    x = torch.randint(MASK + 1, 9, (64, 10), generator=seeded(1))
    p = [
        Sampler(denoiser, process, precision=precision).predict(x, torch.tensor([2]), False)
        for precision in ("float32", "bf16")
    ]
    assert p[1].dtype == torch.float32
    assert float(categorical_kl(*p).detach().max()) < 1e-3
