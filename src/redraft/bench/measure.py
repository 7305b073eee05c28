"""Clocks that wait for the device, medians, and what the hardware could do at best."""

import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from redraft import checkpoint

Row = dict[str, Any]
"""what, method, recipe, hardware, value, unit; more where it applies."""


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def milliseconds(work: Callable[[], Any], device: torch.device, repeats: int = 10) -> float:
    """Median time of a piece of work: of the device by its own clock, where it has one."""
    work()
    times = []
    for _ in range(repeats):
        wait(device)
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            wait(device)
            times.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            work()
            times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times)


def product_flops(device: torch.device, precision: str, size: int | None = None) -> float:
    """Operations a second of a large matrix product, measured: what a step could reach at best."""
    size = size or (8192 if device.type == "cuda" else 1024)
    dtype = {"bf16": torch.bfloat16, "float32": torch.float32}[precision]
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    return 2 * size**3 / (1e-3 * milliseconds(lambda: a @ b, device))


def peak_gb() -> float | None:
    """Memory held at most since `forget_peak`, recorded steps' included; on a GPU alone."""
    return torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else None


def forget_peak() -> None:
    """Let go of what is no longer used, and count from here."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def process_age() -> float | None:
    """Seconds since this process began, where the system tells."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        uptime = float(Path("/proc/uptime").read_text().split()[0])
        return uptime - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError):
        return None


def write(what: str, rows: list[Row], folder: Path) -> Path:
    """One file a bench, each row with what it was measured on."""
    common = {
        "hardware": checkpoint.hardware(),
        "torch": torch.__version__,
        "commit": checkpoint.commit(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{what}.json"
    kept = [
        {key: value for key, value in {**row, **common}.items() if value is not None}
        for row in rows
    ]
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    return path
