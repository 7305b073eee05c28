"""Many processes are one: two of them, and a batch in parts, give what a single process gives."""

import dataclasses
import os
import socket
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp
from tiny import tiny

from redraft import checkpoint, trainer
from redraft.batches import Batch
from redraft.config import Config, DataConfig
from redraft.distributed import joined, leave
from redraft.methods import METHODS
from redraft.model import Model, load
from redraft.noise.draws import Sliced, uniform
from redraft.objective import stratified

BASE = dataclasses.replace(
    tiny("mdlm", steps=8, log_every=2, save_every=100, validate=16),
    data=DataConfig(max_length=17, long="drop"),
)


def case(method: str, **changes) -> Config:
    train = {k: v for k, v in changes.items() if k in ("accumulate", "bound", "drafts")}
    leader = {k: v for k, v in changes.items() if k in ("credit",)}
    denoiser = {k: v for k, v in changes.items() if k in ("recall", "infills", "evidence")}
    return dataclasses.replace(
        BASE,
        method=method,
        denoiser=dataclasses.replace(BASE.denoiser, **denoiser),
        train=dataclasses.replace(BASE.train, **train),
        leader=dataclasses.replace(BASE.leader, **leader),
    )


CASES = {
    **{name: case(name) for name in METHODS},
    # of central differences in float32 Adam makes much of the last bits, the more so with these on
    "vsdd-sequence": case("vsdd", credit="sequence", recall=False, evidence=False, drafts=False),
    "vsdd-split": case("vsdd", bound="split"),
    "reinforce-accumulated": case("d3pm-reinforce", accumulate=2),
    "vsdd-accumulated": case("vsdd", accumulate=4),
    "fldd-accumulated": case("fldd", accumulate=2),
    "without-infilling": case("d3pm-uniform", infills=False),
}


def work(rank: int, size: int, port: int, root: str) -> None:
    """One of several processes: trains all cases with the others, and samples."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}  # as torchrun does
    with joined():
        for name, config in CASES.items():
            trained = trainer.train(config, Path(root) / name)
            if name == "vsdd":
                rows = Model(trained, batch=3).sample(10, seed=5)
                (Path(root) / f"rows-{rank}.txt").write_text("\n".join(rows), encoding="utf-8")
    leave(0)


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folders of two processes.

    A process of gloo's has been seen to abort, in C++ and rarely ("terminate called without an
    active exception"), for a reason not yet found: then once more.
    """
    for last in (False, True):
        root = tmp_path_factory.mktemp("together")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        try:
            mp.spawn(work, (2, port, str(root)), nprocs=2)
        except mp.ProcessExitedException as error:
            if last or error.signal_name != "SIGABRT":
                raise
        else:
            return root
    raise AssertionError


@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_what_one_gives(name: str, together: Path, tmp_path: Path):
    accumulate = dataclasses.replace(CASES[name].train, accumulate=1)
    config = dataclasses.replace(CASES[name], train=accumulate)
    alone = trainer.train(config, tmp_path / "run")
    shared = checkpoint.load_state(together / name)
    for key, value in alone.denoiser.state_dict().items():
        other = shared.trained.denoiser.state_dict()[key]
        torch.testing.assert_close(other, value, atol=1e-5, rtol=1e-4, msg=key)
    for key, value in alone.process.state_dict().items():
        other = shared.trained.process.state_dict()[key]
        torch.testing.assert_close(other, value, atol=1e-5, rtol=1e-4, msg=key)
    assert shared.trained.summary["bound_end"] == pytest.approx(
        alone.summary["bound_end"], rel=1e-4
    )


def test_samples_come_back_in_order_to_every_process(together: Path):
    rows = [(together / f"rows-{rank}.txt").read_text(encoding="utf-8") for rank in (0, 1)]
    alone = Model(load(together / "vsdd", "cpu").trained, batch=3).sample(10, seed=5)
    assert rows[0] == rows[1] == "\n".join(alone)


def test_parts_of_the_noise_make_up_the_noise_of_the_whole():
    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(3)

    device = torch.device("cpu")
    whole = uniform((12, 5), device, generator())
    parts = [uniform((4, 5), device, Sliced(generator(), i, 3)) for i in range(3)]
    assert torch.equal(torch.cat(parts), whole)
    times = stratified(12, (1, 7), device, generator())
    parts = [stratified(4, (1, 7), device, Sliced(generator(), i, 3)) for i in range(3)]
    assert torch.equal(torch.cat(parts), times)


def test_parts_of_a_batch_keep_its_tokens():
    batch = Batch(torch.arange(12).view(6, 2) + 2, padded=False, weight=1.0, tokens=12)
    parts = [batch.part(i, 3) for i in range(3)]
    assert torch.equal(torch.cat([part.x0 for part in parts]), batch.x0)
    assert {part.tokens for part in parts} == {12}
    assert {part.parts for part in parts} == {3}
