"""What saving a state every so many steps adds to the time of a run."""

import statistics
import tempfile
import time
from pathlib import Path

from redraft.bench.measure import Row, wait
from redraft.config import Config
from redraft.domains import Dataset
from redraft.trainer import Log, assemble, save


def checkpoint(config: Config, data: Dataset, windows: int, every: int = 100) -> list[Row]:
    run = assemble(config, data)
    stepping, saving = [], []
    with tempfile.TemporaryDirectory() as folder, Log(Path(folder), 0, None) as log:
        for _ in range(windows + 1):
            start = time.perf_counter()
            for _ in range(every):
                log.note(run.method.step(run.batches[run.step], 0.1))
                run.step += 1
            wait(run.method.generator.device)
            middle = time.perf_counter()
            save(run, Path(folder), log.latest)
            stepping.append(middle - start)
            saving.append(time.perf_counter() - middle)
    stepping, saving = stepping[1:], saving[1:]  # the first window warms up
    share = statistics.median(b / a for a, b in zip(stepping, saving, strict=True))
    one = {"what": "checkpoint", "value": 1e3 * statistics.median(saving), "unit": "ms"}
    many = {"what": f"checkpoint every {every} steps", "value": share, "unit": "of a run"}
    return [{**row, "method": config.method} for row in (one, many)]
