"""Functions of wide tensors that can be compiled to pass over memory once.

Whether they are is decided where a step begins, not in each function: `with fusing(True): ...`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps

import torch
from torch import Tensor

_active: ContextVar[bool] = ContextVar("fusing", default=False)


@contextmanager
def fusing(active: bool) -> Iterator[None]:
    token = _active.set(active)
    try:
        yield
    finally:
        _active.reset(token)


def fusable(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function of tensors alone; it is compiled once, for all their sizes."""
    compiled = cache(lambda: torch.compile(function, dynamic=True))

    @wraps(function)
    def call(*tensors: Tensor) -> Tensor:
        return (compiled() if _active.get() else function)(*tensors)

    return call
