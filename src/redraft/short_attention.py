"""Attention over short sequences as two Triton kernels, one program for each sequence and head.

A program holds the whole (L, L) score tile of its head, so that memory sees the projections and
the result and nothing between; the backward kernel computes the softmax again, as that costs less
than to store it. With P = softmax(Q K^T / sqrt(d)) and O = P V:

    dV = P^T dO    dP = dO V^T    dS = P (dP - rowsum(P dP)) / sqrt(d)    dQ = dS K    dK = dS^T Q

Shapes: B batch, L length, D width, H heads of d = D / H, BLOCK the power of 2 that holds L.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def load(x, l, L, stride, d: tl.constexpr):
    """(BLOCK, d) rows l of x, 0 beyond L."""
    at = x + l[:, None] * stride + tl.arange(0, d)[None, :]
    return tl.load(at, mask=l[:, None] < L, other=0.0)


@triton.jit
def store(x, tile, l, L, stride, d: tl.constexpr):
    at = x + l[:, None] * stride + tl.arange(0, d)[None, :]
    tl.store(at, tile.to(x.dtype.element_ty), mask=l[:, None] < L)


@triton.jit
def load_turns(turns, l, L, d: tl.constexpr):
    """cos and sin (BLOCK, d / 2) of the rotary angles; 1 and 0, which turn nothing, for None."""
    if turns is None:
        cos = tl.full((l.shape[0], d // 2), 1.0, tl.float32)
        sin = tl.full((l.shape[0], d // 2), 0.0, tl.float32)
    else:
        cos = load(turns, l, L, d // 2, d // 2)
        sin = load(turns + L * (d // 2), l, L, d // 2, d // 2)
    return cos, sin


@triton.jit
def load_turned(x, l, L, stride, cos, sin, d: tl.constexpr):
    """(BLOCK, d) queries or keys, turned, each pair (i, i + d/2) in columns 2i and 2i + 1.

    Q K^T is the same in any order of the columns, and neighbours are cheap to part again.
    """
    a = load(x, l, L, stride, d // 2).to(tl.float32)
    b = load(x + d // 2, l, L, stride, d // 2).to(tl.float32)
    return tl.interleave(a * cos - b * sin, b * cos + a * sin).to(x.dtype.element_ty)


@triton.jit
def store_returned(x, tile, l, L, stride, cos, sin, d: tl.constexpr):
    """Store the gradient of what `load_turned` gave as the gradient of what it loaded."""
    a, b = tl.split(tl.reshape(tile, (tile.shape[0], d // 2, 2)))
    store(x, a * cos + b * sin, l, L, stride, d // 2)
    store(x + d // 2, b * cos - a * sin, l, L, stride, d // 2)


@triton.jit
def product(a, b):
    return tl.dot(a, b, input_precision="ieee")  # float32 stays float32: no TF32


@triton.jit
def softmax(q, k, keep, l, L, d: tl.constexpr):
    """softmax(Q K^T / sqrt(d)) over the keys seen: powers (BLOCK, BLOCK), to be divided by sums."""
    seen = l < L
    if keep is not None:
        seen = tl.load(keep + l, mask=seen, other=0) != 0
    hide = tl.where(seen, 0.0, -float("inf"))
    scale: tl.constexpr = 1.4426950408889634 * d**-0.5  # log2(e), as powers of 2 are the fast ones
    scores = product(q, tl.trans(k)) * scale + hide[None, :]
    highest = tl.maximum(tl.max(scores, 1), -1e30)  # finite, even where no key is seen
    powers = tl.exp2(scores - highest[:, None])
    return powers, tl.maximum(tl.sum(powers, 1), 1.0)  # the highest score alone gives 1


# L changes from batch to batch: without `do_not_specialize`, multiples of 16 compile anew.
@triton.jit(do_not_specialize=["L"])
def forward_kernel(qkv, keep, turns, out, L, H: tl.constexpr, d: tl.constexpr, BLOCK: tl.constexpr):
    D: tl.constexpr = H * d
    b = (tl.program_id(0) // H).to(tl.int64)  # B L 3 D may pass 2^31
    h = tl.program_id(0) % H  # heads of a sequence run side by side: they share cache lines
    qkv += b * L * 3 * D + h * d
    out += b * L * D + h * d
    if keep is not None:
        keep += b * L
    l = tl.arange(0, BLOCK)
    cos, sin = load_turns(turns, l, L, d)
    q = load_turned(qkv, l, L, 3 * D, cos, sin, d)
    k = load_turned(qkv + D, l, L, 3 * D, cos, sin, d)
    v = load(qkv + 2 * D, l, L, 3 * D, d)
    powers, sums = softmax(q, k, keep, l, L, d)
    mixed = product(powers.to(v.dtype), v) / sums[:, None]
    store(out, mixed, l, L, D, d)


@triton.jit(do_not_specialize=["L"])
def backward_kernel(
    dout, qkv, keep, turns, dqkv, L, H: tl.constexpr, d: tl.constexpr, BLOCK: tl.constexpr
):
    D: tl.constexpr = H * d
    b = (tl.program_id(0) // H).to(tl.int64)
    h = tl.program_id(0) % H
    qkv += b * L * 3 * D + h * d
    dqkv += b * L * 3 * D + h * d
    dout += b * L * D + h * d
    if keep is not None:
        keep += b * L
    l = tl.arange(0, BLOCK)
    cos, sin = load_turns(turns, l, L, d)
    q = load_turned(qkv, l, L, 3 * D, cos, sin, d)
    k = load_turned(qkv + D, l, L, 3 * D, cos, sin, d)
    v = load(qkv + 2 * D, l, L, 3 * D, d)
    do = load(dout, l, L, D, d)
    powers, sums = softmax(q, k, keep, l, L, d)
    p = powers * (1.0 / sums)[:, None]
    dv = product(tl.trans(p.to(q.dtype)), do)
    dp = product(do, tl.trans(v))
    ds = (p * (dp - tl.sum(p * dp, 1)[:, None]) * d**-0.5).to(q.dtype)
    store(dqkv + 2 * D, dv, l, L, 3 * D, d)
    store_returned(dqkv, product(ds, k), l, L, 3 * D, cos, sin, d)
    store_returned(dqkv + D, product(tl.trans(ds), q), l, L, 3 * D, cos, sin, d)


def warps(BLOCK: int, d: int, itemsize: int) -> int:
    """As many as leave a thread 64 bytes of the largest tile: several tiles live in registers."""
    return min(max(BLOCK * max(BLOCK, d) * itemsize // (32 * 64), 1), 8)


def launch(kernel: Any, qkv: Tensor, heads: int, *tensors: Tensor | None) -> None:
    """Run one program of `kernel` for each sequence and head."""
    B, L, width = qkv.shape
    d, BLOCK = width // (3 * heads), max(16, triton.next_power_of_2(L))
    tensors = tuple(tensor if tensor is None else tensor.contiguous() for tensor in tensors)
    with torch.cuda.device_of(qkv):  # not always the current device
        count = warps(BLOCK, d, qkv.itemsize)
        kernel[(B * heads,)](*tensors, L, heads, d, BLOCK, num_warps=count)


@torch.library.custom_op("redraft::short_attention", mutates_args=())
def short_attention(qkv: Tensor, keep: Tensor | None, turns: Tensor | None, heads: int) -> Tensor:
    """(B, L, D) from projections qkv (B, L, 3 D), keep (B, L) and rotary turns (2, L, d / 2)."""
    out = like_result(qkv, keep, turns, heads)
    keep = None if keep is None else keep.view(torch.uint8)
    launch(forward_kernel, qkv, heads, qkv, keep, turns, out)
    return out


@torch.library.custom_op("redraft::short_attention_backward", mutates_args=())
def short_attention_backward(
    dout: Tensor, qkv: Tensor, keep: Tensor | None, turns: Tensor | None, heads: int
) -> Tensor:
    """The gradient (B, L, 3 D) of qkv where dout (B, L, D) is that of the result."""
    dqkv = like_qkv(dout, qkv, keep, turns, heads)
    keep = None if keep is None else keep.view(torch.uint8)
    launch(backward_kernel, qkv, heads, dout, qkv, keep, turns, dqkv)
    return dqkv


@short_attention.register_fake
def like_result(qkv: Tensor, keep: Tensor | None, turns: Tensor | None, heads: int) -> Tensor:
    B, L, width = qkv.shape
    return qkv.new_empty(B, L, width // 3)


@short_attention_backward.register_fake
def like_qkv(
    dout: Tensor, qkv: Tensor, keep: Tensor | None, turns: Tensor | None, heads: int
) -> Tensor:
    return qkv.new_empty(qkv.shape)


def remember(ctx: Any, inputs: tuple, output: Tensor) -> None:
    *tensors, ctx.heads = inputs
    ctx.save_for_backward(*tensors)


def differentiate(ctx: Any, dout: Tensor) -> tuple[Tensor, None, None, None]:
    return short_attention_backward(dout, *ctx.saved_tensors, ctx.heads), None, None, None


short_attention.register_autograd(differentiate, setup_context=remember)
