"""Products of float32 matrices on a GPU: rounded to TF32 for speed, or that fast without rounding.

TF32 keeps 11 bits of each factor's mantissa. A float32 number is the sum of two such numbers but
for its last bits, so that three rounded products make an exact one (within about 2^-22), in less
than half of the time that float32 units take:

    a b = a_high b_high + a_high b_low + a_low b_high
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

DROPPED = 13
"""Bits of a float32 mantissa that TF32 does not have."""


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    """Whether products of float32 matrices may be rounded."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class Compensated(TorchFunctionMode):
    """Within it, matrix products are `exact_product`s, where no gradient is asked for."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.is_grad_enabled():
            return func(*args, **(kwargs or {}))
        if func is linear:
            return exact_linear(*args, **(kwargs or {}))
        if func in (torch.matmul, Tensor.matmul, Tensor.__matmul__):
            return exact_product(*args)
        return func(*args, **(kwargs or {}))


def exact_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = exact_product(x.reshape(-1, x.shape[-1]), weight.mT).view(*x.shape[:-1], len(weight))
    return y if bias is None else y + bias


def exact_product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b in the precision of its factors, of matrices or of stacks; no gradient passes."""
    if a.is_cuda and a.dtype == torch.float32:
        return product_of_parts(a, b)
    return a @ b


def product_of_parts(a: Tensor, b: Tensor) -> Tensor:
    """a @ b from three products whose factors have no more bits than TF32."""
    (a_high, a_low), (b_high, b_low) = parts(a), parts(b)
    with tf32(True):
        total = torch.matmul(a_high, b_high)
        add = total.addmm_ if total.ndim == 2 else total.baddbmm_
        add(a_high, b_low)
        return add(a_low, b_high)


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = high + low exactly: its first 11 bits, and the rest."""
    high = (x.view(torch.int32) & -(1 << DROPPED)).view(torch.float32)
    return high, x - high
