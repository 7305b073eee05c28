"""A learned kernel: what it costs to build, to build with its gradient, and to use."""

import torch

from redraft.bench.measure import Row, forget_peak, milliseconds, peak_gb
from redraft.config import Config
from redraft.domains import Dataset
from redraft.methods import learned
from redraft.noise.semantic import SemanticProcess
from redraft.objective import corrupt, draw_times
from redraft.precision import tf32
from redraft.trainer import assemble


def kernel(config: Config, data: Dataset, windows: int) -> list[Row]:
    """For the vocabulary, T and batch of a recipe."""
    run = assemble(config, data)
    device, V, T = run.method.generator.device, len(data.tokenizer), config.noise.T
    torch.manual_seed(config.seed)
    process = learned(config, V, data.max_length).to(device)
    assert isinstance(process, SemanticProcess)
    embeddings = run.method.denoiser.embeddings.detach()
    x0 = run.batches[0].x0
    logits = torch.randn(*x0.shape, V, device=device, requires_grad=True)
    (draw,) = corrupt(process, x0, draw_times(x0, [(1, T)]))

    def with_gradient() -> None:
        draft = process.draft(embeddings)
        (draft.terminal_kl() + draft.log_prob(draw.xt, x0, draw.t).mean()).backward()

    def bound() -> None:
        with tf32(run.method.rough):
            process.step_kl(draw.xt, x0, logits, draw.t).sum().backward()

    work = {
        "build": lambda: process.commit(embeddings),
        "build with gradient": with_gradient,
        "corrupt": lambda: process.corrupt(x0, draw.t),
        "posterior + bound, forward and backward, not compiled": bound,
    }
    rows = []
    for what, piece in work.items():
        forget_peak()
        value = milliseconds(piece, device, windows)
        shape = {"V": V, "T": T, "B": x0.shape[0], "L": x0.shape[1]}
        memory = {"peak_gb": peak_gb()}
        rows.append({"what": what, "value": value, "unit": "ms", **shape, **memory})
    return rows
