"""How far the losses of compiled and recorded steps are from those of plain ones.

Both start from the same seed. Four batches come again and again, so that each is run as it is,
recorded and replayed, and a short block lets the leader move several times. The learning rate is
small, as in a warm-up: at its peak, and from the first step on, runs part in ways that say nothing.
"""

from dataclasses import replace

from redraft.bench.measure import Row
from redraft.config import Config
from redraft.domains import Dataset
from redraft.trainer import assemble

BATCHES, ROUNDS = 4, 6
PROGRESS = 0.002


def agreement(config: Config, data: Dataset, methods: list[str]) -> list[Row]:
    """One row a method: the largest difference, relative to the plain loss."""
    rows = []
    for name in methods:
        plain, fast = (losses(config, name, data, compiled) for compiled in (False, True))
        apart = [abs(b - a) / abs(a) for a, b in zip(plain, fast, strict=True)]
        value = {"value": max(apart), "unit": "of the loss"}
        rows.append({"what": "agreement", "method": name, **value, "plain": plain, "fast": fast})
    return rows


def losses(config: Config, method: str, data: Dataset, compiled: bool) -> list[float]:
    """Of `BATCHES * ROUNDS` steps."""
    settings = replace(config.train, compile=compiled)
    leader = replace(config.leader, block=ROUNDS)
    run = assemble(replace(config, method=method, train=settings, leader=leader), data)
    steps = (run.method.step(run.batches[i % BATCHES], PROGRESS) for i in range(BATCHES * ROUNDS))
    return [float(metrics["loss"]) for metrics in steps]
