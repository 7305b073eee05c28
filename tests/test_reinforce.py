"""D3PM-Reinforce: its gradient, averaged over all noise, is that of the expected bound."""

import math

import pytest
import torch
from games import (
    STILL,
    VALID,
    T,
    brute_kl,
    brute_posterior,
    brute_products,
    brute_steps,
    every_draw,
    every_state,
    flat,
    gradients,
    make_method,
)

from redraft.batches import Batch
from redraft.noise.committed import Draft
from redraft.noise.schedule import alpha_bar, steps
from redraft.objective import Draw, token_losses, token_mean
from redraft.tokenizers.base import EOS


@pytest.mark.parametrize("bound", ["joint", "split"])
def test_reinforce_descends_the_expected_bound(bound, monkeypatch):
    """Enumerated over times and noise, at a batch weight other than one."""
    method = make_method(
        "d3pm-reinforce",
        train={"bound": bound},
        optimizer=STILL,
        leader={"terminal": 0.7, "optimizer": STILL},
    )
    x0 = torch.tensor([[3]])
    batch = Batch(x0, padded=False, weight=1.5)
    i = int(x0)
    noise = method.process.draft(method.denoiser.embeddings)
    Q = brute_steps(noise.M, method.process.alpha)
    Q_bar = brute_products(Q)

    value = torch.zeros(())
    for t in range(1, T + 1):
        for k in VALID:
            p = method.denoiser(torch.tensor([[k]]), torch.tensor([t])).softmax(-1)[0, 0]
            posterior = brute_posterior(Q, t, k)
            value = value + Q_bar[t, i, k] * brute_kl(posterior[i], p @ posterior)
    end = Q_bar[T, EOS:, EOS:]
    terminal = (end * (end * len(VALID)).log()).sum(-1).mean()
    both = method.player.parameters + method.leader.parameters
    exact = flat(torch.autograd.grad(1.5 * value + 0.7 * terminal, both))

    mean = torch.zeros_like(exact)
    for times, chance in every_draw(bound, x0):
        for xs in every_state(len(times), L=1):
            draws = [Draw(x, t, n) for x, (t, n) in zip(xs, times, strict=True)]
            q = math.prod(float(Q_bar[d.t, i, d.xt].detach()) for d in draws)
            monkeypatch.setattr(method, "draw", lambda process, x0, draws=draws: draws)
            method.step(batch, 0.5)
            mean += chance * q * flat([gradients(method.player), gradients(method.leader)])
            plain = token_mean(token_losses(method.denoiser, method.process, x0, draws), x0)
            theta = flat(torch.autograd.grad(1.5 * plain, method.player.parameters))
            torch.testing.assert_close(gradients(method.player), theta)
    torch.testing.assert_close(mean, exact, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("scale", [1, 30, 300])
def test_a_collapsed_kernel_has_the_gradient_it_has_in_float64(scale):
    """Where rows are so sure of themselves that evidence is as small as float32 can tell."""
    V, T = 12, 20
    random = torch.Generator().manual_seed(scale)
    s = scale * torch.randn(T, V, V, generator=random, dtype=torch.float64)
    s[:, torch.eye(V, dtype=torch.bool)] = -torch.inf
    s[:, :, :EOS] = -torch.inf
    s[:, :EOS] = torch.eye(V)[:EOS].log()
    x0 = torch.randint(EOS, V, (64, 8), generator=random)
    times = torch.randint(1, T + 1, (64,), generator=random)
    logits = 4 * torch.randn(64, 8, V, generator=random, dtype=torch.float64)

    def gradient(dtype: torch.dtype) -> torch.Tensor:
        scores = s.clone().requires_grad_()
        noise = Draft(scores.softmax(-1).to(dtype), steps(alpha_bar("linear", T)))
        xt = noise.corrupt(x0, times, torch.Generator().manual_seed(0))

        def denoiser(xt, t, padded, belief, evidence, given):
            return logits.to(dtype) + evidence(xt, t)

        token_losses(denoiser, noise, x0, [Draw(xt, times, T)]).sum().backward()
        assert scores.grad is not None
        return scores.grad

    torch.testing.assert_close(
        gradient(torch.float32), gradient(torch.float64), rtol=1e-3, atol=1e-3
    )
