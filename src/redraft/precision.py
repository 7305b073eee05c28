"""Products of float32 matrices on a GPU: rounded to TF32 for speed, or that fast without rounding.

TF32 keeps 11 bits of each factor's mantissa. A float32 number is the sum of two such numbers but
for its last bits, so that three rounded products make an exact one (within about 2^-22), in less
than half of the time that float32 units take:

    a b = a_high b_high + a_high b_low + a_low b_high
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode

PRODUCTS = (torch.matmul, Tensor.matmul, Tensor.__matmul__)
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
    """Within it, products of float32 matrices without a gradient are made of three TF32 ones."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in (*PRODUCTS, linear) and not torch.is_grad_enabled() and single(*args[:2]):
            if func is linear:
                return linear_of_parts(*args, **kwargs)
            return product_of_parts(*args)
        return func(*args, **kwargs)


def single(*factors: Tensor) -> bool:
    return all(x.is_cuda and x.dtype == torch.float32 and x.ndim > 1 for x in factors)


def linear_of_parts(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    y = product_of_parts(x.reshape(-1, x.shape[-1]), weight.mT).view(*x.shape[:-1], len(weight))
    return y if bias is None else y + bias


def product_of_parts(
    a: Tensor, b: Tensor, multiply: Callable[[Tensor, Tensor], Tensor] = torch.matmul
) -> Tensor:
    """a @ b from three products whose factors have no more bits than TF32."""
    (a_high, a_low), (b_high, b_low) = parts(a), parts(b)
    with tf32(True):
        return multiply(a_high, b_high) + (multiply(a_high, b_low) + multiply(a_low, b_high))


def parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """x = high + low exactly: its first 11 bits, and the rest."""
    high = (x.view(torch.int32) & -(1 << DROPPED)).view(torch.float32)
    return high, x - high
