"""What the six tiny recipes reach: exact bounds before and after, and the share of valid samples.

    python scripts/tiny_bounds.py [SAMPLES]

Trains each recipe on the CPU and writes results/molecules/bound-METHOD-tiny.json. Intervals are
95 % bootstrap intervals over sequences; they leave out the variance between training seeds.
"""

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from rdkit import Chem, rdBase

import redraft
from redraft.batches import collate
from redraft.checkpoint import build
from redraft.domains import prepare
from redraft.methods import METHODS
from redraft.objective import exact_bound

ROOT = Path(__file__).parents[1]


def interval(total: np.ndarray, count: np.ndarray, seed: int = 0) -> dict[str, float]:
    """sum(total) / sum(count) with a bootstrap interval over rows."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(len(total), size=(2000, len(total)))
    low, high = np.quantile(total[rows].sum(1) / count[rows].sum(1), [0.025, 0.975])
    return {"value": total.sum() / count.sum(), "low": low, "high": high}


def bound(denoiser, process, sequences) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    nats = exact_bound(denoiser, process, collate(sequences), generator)
    return interval(nats.numpy(), np.array([len(s) for s in sequences]))


def measure(method: str, samples: int) -> dict:
    config = redraft.read_recipe(f"tiny/{method}")
    data = prepare(config.data, config.seed)
    torch.manual_seed(config.seed)
    start = build(config, len(data.tokenizer), data.max_length)
    with tempfile.TemporaryDirectory() as folder:
        model = redraft.train(config, Path(folder) / "run")
    trained = model.trained
    smiles = model.sample(samples, seed=0)
    with rdBase.BlockLogs():
        valid = np.array([bool(s) and Chem.MolFromSmiles(s) is not None for s in smiles])
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    return {
        "domain": "molecules",
        "experiment": "bound",
        "method": method,
        "recipe": f"tiny/{method}",
        "commit": commit,
        "seed": config.seed,
        "hardware": f"{torch.get_num_threads()} CPU threads, {platform.machine()}",
        "data": data.origin,
        "train_seconds": trained.summary["seconds"],
        "steps": trained.summary["steps"],
        "n": {"bound": len(data.validation), "validity": samples},
        "metrics": {
            "bound_nats_per_token_start": bound(*start, data.validation),
            "bound_nats_per_token": bound(trained.denoiser, trained.process, data.validation),
            "validity": interval(valid.astype(float), np.ones(samples)),
        },
    }


if __name__ == "__main__":
    for name in METHODS:
        result = measure(name, int(sys.argv[1]) if len(sys.argv) > 1 else 2000)
        path = ROOT / f"results/molecules/bound-{name}-tiny.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(name, {k: round(v["value"], 3) for k, v in result["metrics"].items()}, flush=True)
