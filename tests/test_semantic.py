"""Semantic noise: what is learned, what is drafted, what is committed."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from processes import (
    TAU,
    D,
    bilinear,
    bilinear_by_hand,
    close,
    every_state,
    kl,
    lengths,
    make,
    move,
    products,
    random_embeddings,
    schedules,
    seeds,
    sizes,
    softmax_kernel,
    substitution_steps,
    times,
    valid_states,
)
from torch import Tensor

from redraft.noise.committed import Draft
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess
from redraft.tokenizers.base import MASK, PAD

LEARNED = ["learned", "low rank"]


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


def moved(
    kind: str, V: int, T: int, seed: int
) -> tuple[SemanticProcess, BilinearScores, torch.Tensor]:
    """Noise whose leader has left its start, and embeddings."""
    process, scores = bilinear(V, T, rank=2 if kind == "low rank" else None)
    move(scores, seed)
    return process, scores, random_embeddings(V, seed)


@pytest.mark.parametrize("kind", LEARNED)
@given(V=sizes, T=times, seed=seeds)
def test_a_draft_has_a_gradient_in_phi_alone(kind, V, T, seed):
    process, scores, embeddings = moved(kind, V, T, seed)
    embeddings.requires_grad_()
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
    process, scores, embeddings = moved(kind, V, T, seed)
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
    process, scores, embeddings = moved(kind, V, T, seed)
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
