"""Step time and memory of every method at the paper's size, on the device at hand.

    python scripts/paper_size.py SMILES_FILE OUT.json [SECONDS]

One method at a time, on exact-length batches of the given molecules; the first steps, in which
kernels are chosen and caches fill, are not timed. The median is over windows of one block each, so
that the leader's moves are counted in.
"""

import dataclasses
import json
import statistics
import sys
import time

import torch

from redraft import checkpoint
from redraft.batches import Batches
from redraft.config import Config, DataConfig, DenoiserConfig, LeaderConfig, TrainConfig
from redraft.domains import prepare
from redraft.methods import METHODS, entry

BASE = Config(
    denoiser=DenoiserConfig(width=512, layers=10, heads=32),
    train=TrainConfig(batch=512, precision="bf16"),
    leader=LeaderConfig(block=50),
)


def measure(method: str, data, seconds: float) -> dict:
    config = dataclasses.replace(BASE, method=method)
    device = checkpoint.device_of("auto")
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    denoiser, process = checkpoint.build(config, len(data.tokenizer), data.max_length)
    batches = Batches(data.train, config.train.batch, 0, device)
    held_out = Batches(data.held_out, config.leader.batch, 1, device)
    generator = torch.Generator(device).manual_seed(0)
    player = entry(method).method(
        config, denoiser.to(device), process.to(device), held_out, generator
    )
    block, windows, losses, step = config.leader.block, [], [], 0
    begin = time.perf_counter()
    while len(windows) < 5 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(block):
            metrics = player.step(batches[step], 0.1)
            step += 1
        losses.append(float(metrics["loss"]))  # waits for the device
        windows.append((time.perf_counter() - start) / block)
    peak = torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None
    timed = windows[1:]
    return {
        "what": "train-step",
        "method": method,
        "value": 1e3 * statistics.median(timed),
        "unit": "ms",
        "fastest": 1e3 * min(timed),
        "slowest": 1e3 * max(timed),
        "first_window": 1e3 * windows[0],
        "peak_gb": peak,
        "steps": step,
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "finite": all(map(torch.isfinite, map(torch.tensor, losses))),
    }


def main(file: str, out: str, seconds: float = 10.0) -> None:
    data = prepare(DataConfig(file=file), 0)
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    rows = []
    measure("vsdd", data, 0)  # the device wakes up, libraries choose their kernels
    for method in METHODS:
        rows.append(measure(method, data, seconds) | {"hardware": hardware})
        mdlm = rows[0]["value"]
        rows[-1]["ratio_to_mdlm"] = rows[-1]["value"] / mdlm
        print(json.dumps(rows[-1]), flush=True)
        with open(out, "w", encoding="utf-8") as sink:
            settings = BASE.to_dict() | {
                "data": data.origin,
                "torch": torch.__version__,
                "commit": checkpoint.commit(),
            }
            json.dump({"settings": settings, "rows": rows}, sink, indent=1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
