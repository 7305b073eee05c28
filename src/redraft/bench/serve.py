"""The page as a visitor meets it: `redraft serve` in a process of its own, asked over HTTP.

start        from the command to the first repaired molecule
first step   from a click to the first step that is seen, another molecule each time
at once      twenty visitors: when the last one has all, over what one alone waits
memory       of the server, after many requests over that after a fifth of them
"""

import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from redraft.bench.measure import Row
from redraft.errors import UserError

BROKEN = (
    "CC(=O)Nc1ccc(O)cc",
    "CC(=O)Oc1ccccc1C(=O",
    "Cn1c(=O)c2c(ncn2C)n(C)c1=",
    "CC(C)Cc1ccc(C=Occ1",
)
VISITORS = 20
REPAIR, SAMPLE = "molecules/repair", "molecules/sample"
Ask = tuple[str, dict[str, Any]]


def serve(requests: int) -> list[Row]:
    """Of the models that come with the package."""
    began = time.perf_counter()
    with served() as (address, process):
        answer(address, (REPAIR, {"smiles": BROKEN[0]}))
        start = time.perf_counter() - began
        asked = [first_step(address, (REPAIR, {"smiles": smiles})) for smiles in BROKEN]
        alone, together = crowd(address, 1), crowd(address, VISITORS)
        every = requests // 5
        sizes = [memory_after(every, address, process) for _ in range(5)]
    rows = (
        {"what": "serve: start to a repaired molecule", "value": start, "unit": "s"},
        {"what": "serve: first step", "value": 1e3 * statistics.median(asked), "unit": "ms"},
        {
            "what": f"serve: {VISITORS} at once",
            "value": together,
            "unit": "s",
            "ratio_to_one": together / alone,
        },
        {
            "what": f"serve: memory after {5 * every} requests",
            "value": sizes[-1],
            "unit": "MB",
            "ratio_to_fifth": sizes[-1] and sizes[0] and sizes[-1] / sizes[0],
        },
    )
    shipped = {"recipe": "shipped", "data": "the models that come with the package"}
    return [shipped | row for row in rows if row["value"] is not None]


@contextmanager
def served(*models: str) -> Iterator[tuple[str, int]]:
    """Where `redraft serve` answers, and its process."""
    words = [sys.executable, "-m", "redraft", "serve", *models, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"http://\S+", server.stdout.readline())
            if found is None:
                raise UserError("redraft serve did not start")
            yield found[0], server.pid
        finally:
            server.terminate()


def events(address: str, ask: Ask) -> Iterator[dict[str, Any]]:
    """What is told to who asks, as it comes."""
    path, fields = ask
    body = json.dumps({"model": path.partition("/")[0], "seed": 0, **fields}).encode()
    request = Request(f"{address}api/{path}", body, {"Content-Type": "application/json"})
    with urlopen(request) as lines:
        for line in lines:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def answer(address: str, ask: Ask) -> None:
    last = list(events(address, ask))[-1]
    if last["kind"] != "done":
        raise UserError(f"{ask[0]} was not answered: {last}")


def first_step(address: str, ask: Ask) -> float:
    """Seconds to it, after the frame that shows what was given; all of the answer is waited for."""
    began = time.perf_counter()
    seen = [time.perf_counter() for event in events(address, ask) if event["kind"] == "frame"]
    return seen[1] - began


def crowd(address: str, visitors: int) -> float:
    """Seconds until each of so many has three molecules."""
    asks: list[Ask] = [(SAMPLE, {"n": 3, "steps": 10, "seed": seed}) for seed in range(visitors)]
    began = time.perf_counter()
    with ThreadPoolExecutor(visitors) as pool:
        list(pool.map(lambda ask: answer(address, ask), asks))
    return time.perf_counter() - began


def memory_after(requests: int, address: str, process: int) -> float | None:
    """What the server holds after so many more requests of all kinds, one after the other."""
    kinds: list[Ask] = [
        *((REPAIR, {"smiles": smiles}) for smiles in BROKEN),
        (SAMPLE, {"n": 4, "steps": 10}),
        ("stories/infill", {"n": 1, "steps": 3, "text": "Lily had a red ball.", "hidden": [3]}),
        ("playlists/continue", {"n": 2, "steps": 3, "draws": 2, "tracks": [1, 2, 3, 4]}),
    ]
    for ask in islice(cycle(kinds), requests):
        answer(address, ask)
    return memory_mb(process)


def memory_mb(process: int) -> float | None:
    """What a process holds, where the system tells."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return None
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1e3
