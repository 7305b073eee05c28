"""Many processes as one: torchrun starts them, this file joins them. One process is a world of one.

Every process holds the same players, sees its rows of every batch, and draws the noise of the whole
batch to take its rows of it. Losses are divided by the tokens of the whole batch, so that sums over
processes are what a single process would have computed.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class World(NamedTuple):
    rank: int
    size: int


def world() -> World:
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_rank(), dist.get_world_size())
    return World(0, 1)


@contextmanager
def joined() -> Iterator[World]:
    """Join the processes that torchrun started, if it did."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield world()
        return
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        yield world()
        dist.barrier()  # nobody leaves while another one still listens
    finally:
        dist.destroy_process_group()


def leave(code: int) -> None:
    """End this process; one of many without waiting for threads that its peers may hold up."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code)


def total(x: Tensor) -> Tensor:
    """The sum over all processes, without a gradient."""
    x = x.detach()
    if world().size > 1:
        x = x.clone()
        dist.all_reduce(x)
    return x


def sum_all(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Sums over all processes of many tensors, in one message."""
    if world().size == 1:
        return list(tensors)
    flat = total(torch.cat([x.reshape(-1) for x in tensors]))
    pieces = flat.split([x.numel() for x in tensors])
    return [piece.view_as(x) for piece, x in zip(pieces, tensors, strict=True)]


def sum_gradients(parameters: Sequence[torch.nn.Parameter]) -> None:
    """Every process gets the gradient of the whole batch."""
    if world().size > 1:
        touched = [p for p in parameters if p.grad is not None]
        sums = sum_all([p.grad for p in touched if p.grad is not None])
        for p, grad in zip(touched, sums, strict=True):
            p.grad = grad


def gathered(value: Any) -> list[Any]:
    """What each process says."""
    said: list[Any] = [value] * world().size
    if world().size > 1:
        dist.all_gather_object(said, value)
    return said


def in_order(mine: list[Any], count: int) -> list[Any]:
    """Items 0 .. count-1, of which this process made rank, rank + size, ...; all get them all."""
    said, size = gathered(mine), world().size
    return [said[i % size][i // size] for i in range(count)]


def agreed(value: Any) -> Any:
    """What the first process says."""
    return gathered(value)[0]
