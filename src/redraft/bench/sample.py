"""Sequences a second from noise, with weights that were never trained: speed is the same."""

import statistics
import time
from dataclasses import replace

from redraft.bench.measure import Row, forget_peak, peak_gb
from redraft.config import Config
from redraft.domains import Dataset
from redraft.model import Model
from redraft.trainer import assemble


def sample(config: Config, data: Dataset, methods: list[str], windows: int, n: int) -> list[Row]:
    """One row a method: n sequences of the data's lengths, all T steps; strings come out."""
    rows: list[Row] = []
    for name in dict.fromkeys(("mdlm", *methods)):
        run = assemble(replace(config, method=name), data)
        model = Model(run.trained)
        forget_peak()
        paces = []
        for window in range(windows + 1):
            start = time.perf_counter()
            model.sample(n, seed=window)
            paces.append(n / (time.perf_counter() - start))
        rows.append(
            {
                "what": "sample",
                "method": name,
                "value": statistics.median(paces[1:]),
                "unit": "sequences/s",
                "first": paces[0],
                "n": n,
                "batch": model.batch,
                "steps": config.noise.T,
                "peak_gb": peak_gb(),
            }
        )
        rows[-1]["ratio_to_mdlm"] = rows[-1]["value"] / rows[0]["value"]
    return rows
