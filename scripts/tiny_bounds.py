"""What the tiny recipes reach: exact bounds before and after, and the share of valid samples.

    python scripts/tiny_bounds.py [METHOD...]

Trains each recipe on the CPU and writes results/molecules/bound-METHOD-tiny.json. Intervals are
95 % bootstrap intervals over sequences; they leave out the variance between training seeds.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

import redraft
from redraft.batches import collate
from redraft.checkpoint import build
from redraft.data.molecules import canonical_or_none
from redraft.domains import prepare
from redraft.evaluation import results, statistics
from redraft.evaluation.statistics import Estimate
from redraft.methods import METHODS
from redraft.objective import exact_bound

ROOT = Path(__file__).parents[1]
SAMPLES = 2000


def bound(denoiser, process, sequences) -> Estimate:
    """In nats per token."""
    generator = torch.Generator().manual_seed(0)
    nats = exact_bound(denoiser, process, collate(sequences), generator)
    return statistics.bootstrap_ratio(nats.numpy(), [len(s) for s in sequences])


def measure(method: str) -> dict[str, Any]:
    config = redraft.read_recipe(f"tiny/{method}")
    data = prepare(config.data, config.seed)
    torch.manual_seed(config.seed)
    start = build(config, len(data.tokenizer), data.max_length)
    with tempfile.TemporaryDirectory() as folder:
        model = redraft.train(config, Path(folder) / "run")
    trained = model.trained
    valid = [canonical_or_none(s) is not None for s in model.sample(SAMPLES, seed=0, renew=0)]
    metrics = {
        "bound_nats_per_token_start": bound(*start, data.validation),
        "bound_nats_per_token": bound(trained.denoiser, trained.process, data.validation),
        "validity": statistics.share(valid),
    }
    n = {"bound": len(data.validation), "validity": SAMPLES}
    return results.result(trained, "bound", n, metrics)


if __name__ == "__main__":
    for name in sys.argv[1:] or METHODS:
        found = measure(name)
        results.write(found, ROOT / "results", variant="tiny")
        print(name, {k: round(v["value"], 3) for k, v in found["metrics"].items()}, flush=True)
