"""A training step: its time by parts, sequences a second, memory, and its ratio to MDLM's.

Windows are one block long, so that each holds one move of the leader. Parts are differences between
beginnings of a step that go further and further, each run by itself (recorded, where steps are).
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import torch

from redraft.batches import Batch
from redraft.bench.measure import (
    Row,
    forget_peak,
    milliseconds,
    peak_gb,
    process_age,
    product_flops,
    wait,
)
from redraft.config import Config
from redraft.domains import Dataset
from redraft.fusion import fusing
from redraft.precision import tf32
from redraft.trainer import Run, assemble, follow_average

PROGRESS = 0.5
"""Every measured step is one from the middle of a run."""


def train(config: Config, data: Dataset, methods: list[str], windows: int, warm: int) -> list[Row]:
    """One row a method, MDLM first: all others are held against it.

    On a CPU, which others may use too, windows of MDLM go on beside those of every other method.
    """
    rows: list[Row] = []
    beside: Run | None = None
    for name in dict.fromkeys(("mdlm", *methods)):
        row, run = measure(replace(config, method=name), data, windows, warm, beside)
        rows.append(row)
        row.setdefault("ratio_to_mdlm", row["value"] / rows[0]["value"])
        if beside is None and run.method.generator.device.type == "cpu":
            beside = run  # the first one
    for later in rows[1:]:
        del later["start_to_first_step_seconds"]  # nothing was loaded or compiled before the first
    return rows


def measure(
    config: Config, data: Dataset, windows: int, warm: int, beside: Run | None = None
) -> tuple[Row, Run]:
    forget_peak()
    begin = time.perf_counter()
    run = assemble(config, data)
    advance(run, 1)
    wait(run.method.generator.device)
    first, age = time.perf_counter() - begin, process_age()
    losses = [advance(run, config.leader.block) for _ in range(warm)]
    paces, others, start = [], [], run.step
    for _ in range(windows):
        if beside is not None:
            others.append(pace(beside, losses=[]))
        paces.append(pace(run, losses))
    row = {
        "what": "train-step",
        "method": config.method,
        **rates(run, data, statistics.median(paces), range(start, run.step)),
        "fastest": 1e3 * min(paces),
        "slowest": 1e3 * max(paces),
        "peak_gb": peak_gb(),
        "first_step_seconds": first,
        "start_to_first_step_seconds": age,
        "parts_ms": parts(run),
        "losses": [float(loss) for loss in losses],
    }
    if others:
        row["ratio_to_mdlm"] = statistics.median(a / b for a, b in zip(paces, others, strict=True))
    return row, run


def pace(run: Run, losses: list) -> float:
    """Seconds a step takes, over one block."""
    device, block = run.method.generator.device, run.config.leader.block
    wait(device)
    start = time.perf_counter()
    losses.append(advance(run, block))
    wait(device)
    return (time.perf_counter() - start) / block


def rates(run: Run, data: Dataset, seconds: float, steps: range) -> Row:
    """What a step of so many seconds means, for the batches of those steps."""
    tokens = sum(float(run.batches[i].tokens or 0) for i in steps) / len(steps)
    limit = product_flops(run.method.generator.device, run.config.train.precision)
    return {
        "value": 1e3 * seconds,
        "unit": "ms",
        "sequences_per_second": run.config.train.batch / seconds,
        "tokens_per_second": tokens / seconds,
        "mfu": tokens / seconds * operations(run, data) / limit,
        "product_tflops": limit / 1e12,
    }


def advance(run: Run, steps: int) -> torch.Tensor | float:
    """So many steps as the trainer makes them; the last one's loss."""
    loss = 0.0
    for _ in range(steps):
        loss = run.method.step(run.batches[run.step], PROGRESS)["loss"]
        follow_average(run.trained.denoiser, run.method.denoiser, run.config.train.ema, run.step)
        run.step += 1
    return loss


def operations(run: Run, data: Dataset) -> float:
    """Of the denoiser, forward and backward, a token: 6 a weight, 12 L D a layer for attention."""
    denoiser, shape = run.method.denoiser, run.config.denoiser
    weights = sum(p.numel() for p in (*denoiser.blocks.parameters(), *denoiser.head.parameters()))
    mean_length = sum(map(len, data.train)) / len(data.train)
    return 6 * weights + 12 * shape.layers * shape.width * mean_length


def parts(run: Run) -> dict[str, float]:
    """Milliseconds of each part of a step, on the batch of middle length."""
    method, config, device = run.method, run.config, run.method.generator.device
    lengths = [(run.batches[i].x0.shape[1], i) for i in range(min(run.batches.per_epoch, 101))]
    middle = sorted(lengths)[len(lengths) // 2][1]
    batch = run.batches[middle]

    def corrupt(batch: Batch) -> dict[str, torch.Tensor]:
        with fusing(method.fuses):
            method.draw(method.process, batch.x0)
        return {}

    def forward(batch: Batch) -> dict[str, torch.Tensor]:
        with fusing(method.fuses):
            draws = method.draw(method.process, batch.x0)
        with method.autocast():
            for draw in draws:
                method.predictor(draw.xt, draw.t, batch.padded)
        return {}

    def bound(batch: Batch) -> dict[str, torch.Tensor]:
        with tf32(method.rough), fusing(method.fuses):
            method.objective(batch)
        return {}

    def backward(batch: Batch) -> dict[str, torch.Tensor]:
        for player in method.players:
            player.forget_gradients()
        with tf32(method.rough), fusing(method.fuses):
            method.objective(batch)[0].backward()
        return {}

    def timed(step: Callable[[Batch], dict[str, torch.Tensor]]) -> float:
        for _ in range(2):  # once as it is, once to record
            method.run(step, batch, step)
        return milliseconds(lambda: method.run(step, batch, step), device)

    beginnings = [0.0, *map(timed, (corrupt, forward, bound, backward, method.update))]
    names = ("corrupt", "forward", "posterior + bound", "backward", "optimizer")
    split = {n: b - a for n, (a, b) in zip(names, pairwise(beginnings), strict=True)}
    average, denoiser, decay = run.trained.denoiser, method.denoiser, config.train.ema
    return {
        "data": milliseconds(lambda: run.batches[middle], device),
        **split,
        "average": milliseconds(lambda: follow_average(average, denoiser, decay, 9999), device),
        "leader, amortised": at_block_ends(run) / config.leader.block,
    }


def at_block_ends(run: Run) -> float:
    """Milliseconds that the first and the last step of a block take beyond the others."""
    block, edges, inner = run.config.leader.block, [], []
    for _ in range(block):
        at_edge = run.method.steps_done % block in (0, block - 1)
        wait(run.method.generator.device)
        start = time.perf_counter()
        advance(run, 1)
        wait(run.method.generator.device)
        (edges if at_edge else inner).append(1e3 * (time.perf_counter() - start))
    return sum(edges) - len(edges) * statistics.median(inner or edges)
