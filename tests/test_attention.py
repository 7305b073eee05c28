"""Laws of attention: the plain path against its definition, the Triton kernels against that path.

The kernels need a GPU, or Triton's interpreter: TRITON_INTERPRET=1.
"""

import os
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from redraft import attention
from redraft.attention import LONGEST, rotary_turns, short_attention

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
kernels = pytest.mark.skipif(
    short_attention is None or (DEVICE == "cpu" and not INTERPRETED),
    reason="the kernels need Triton, and a GPU or TRITON_INTERPRET=1",
)

batches = st.integers(1, 3)
lengths = st.integers(1, 7)
head_counts = st.integers(1, 3)
halves = st.integers(1, 4)  # of d
seeds = st.integers(0, 10_000)

MASKS: dict[str, Callable[[int, int], Tensor | None]] = {
    "none": lambda B, L: None,
    "padding": lambda B, L: torch.arange(L) < torch.randint(1, L + 1, (B, 1)),
    "any": lambda B, L: (torch.rand(B, L) < 0.6).index_fill_(1, torch.tensor(L // 2), True),
}


def close(got: Tensor, expected: Tensor) -> None:
    """Equal as far as float32 goes."""
    torch.testing.assert_close(got.double(), expected.double(), rtol=1e-5, atol=1e-5)


def table_for(qkv: Tensor, heads: int) -> Tensor:
    return rotary_turns(qkv.shape[1], qkv.shape[2] // (3 * heads), qkv.device)


def attend(qkv: Tensor, keep: Tensor | None, heads: int, rotary: bool) -> Tensor:
    return attention.attend(qkv, keep, heads, table_for(qkv, heads) if rotary else None)


def by_hand(qkv: Tensor, keep: Tensor, heads: int, rotary: bool) -> Tensor:
    """Attention from its definition: one sequence, head and query at a time, in float64."""
    B, L, width = qkv.shape
    d = width // (3 * heads)
    q, k, v = qkv.double().view(B, L, 3, heads, d).unbind(2)  # each (B, L, H, d)
    out = torch.zeros(B, L, heads, d, dtype=torch.float64)
    for b in range(B):
        seen = keep[b].nonzero().flatten().tolist()
        for h in range(heads):
            for l in range(L):
                query = turn(q[b, l, h], l if rotary else 0)
                keys = torch.stack([turn(k[b, m, h], m if rotary else 0) for m in seen])
                weights = (keys @ query / d**0.5).exp()
                out[b, l, h] = weights @ v[b, seen, h] / weights.sum()
    return out.reshape(B, L, heads * d)


def turn(x: Tensor, l: int) -> Tensor:
    """x (d,) at position l: pair (i, i + d/2) as a complex number, times e^(j l 10000^(-2i/d))."""
    half = len(x) // 2
    angles = l * 10_000 ** (-torch.arange(half, dtype=torch.float64) / half)
    turned = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag])


@given(batches, lengths, head_counts, halves, st.sampled_from(sorted(MASKS)), st.booleans(), seeds)
def test_attention_is_its_definition(B, L, heads, half, mask, rotary, seed) -> None:
    torch.manual_seed(seed)
    qkv, keep = torch.randn(B, L, 3 * heads * 2 * half), MASKS[mask](B, L)
    seen = torch.ones(B, L, dtype=torch.bool) if keep is None else keep
    close(attend(qkv, keep, heads, rotary), by_hand(qkv, seen, heads, rotary))


@given(batches, lengths, head_counts, halves, st.booleans(), seeds)
def test_keys_not_kept_do_not_matter(B, L, heads, half, rotary, seed) -> None:
    torch.manual_seed(seed)
    qkv, keep = torch.randn(B, L, 3 * heads * 2 * half), MASKS["any"](B, L)
    assert keep is not None
    other = torch.where(keep[..., None], qkv, torch.randn_like(qkv))
    before, after = attend(qkv, keep, heads, rotary), attend(other, keep, heads, rotary)
    close(after[keep], before[keep])


@given(batches, lengths, head_counts, halves, st.integers(1, 5), seeds)
def test_rotary_positions_are_relative(B, L, heads, half, shift, seed) -> None:
    torch.manual_seed(seed)
    qkv = torch.randn(B, L, 3 * heads * 2 * half)
    later = torch.cat([torch.randn(B, shift, qkv.shape[-1]), qkv], dim=1)
    keep = (torch.arange(shift + L) >= shift).expand(B, -1)
    moved = attend(later, keep, heads, rotary=True)[:, shift:]
    close(moved, attend(qkv, None, heads, rotary=True))


# ------------------------------------------------------------------ the kernels


def fused(qkv: Tensor, keep: Tensor | None, heads: int, rotary: bool) -> Tensor:
    """`attend` by the kernels, on any device."""
    B, L, width = qkv.shape
    table = table_for(qkv, heads) if rotary else None
    assert short_attention is not None
    return short_attention(qkv, keep, table, heads)


def gradient(function: Callable[..., Tensor], qkv: Tensor, dout: Tensor, *inputs) -> list[Tensor]:
    """function(qkv, *inputs), and the gradient of qkv where dout is that of the result."""
    qkv = qkv.detach().clone().requires_grad_()
    out = function(qkv, *inputs)
    return [out.detach(), *torch.autograd.grad(out, qkv, dout)]


def drawn(L: int, d: int, mask: str, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    B, heads = 2, 2
    qkv, dout = torch.randn(B, L, 3 * heads * d), torch.randn(B, L, heads * d)
    keep = MASKS[mask](B, L)
    return qkv.to(DEVICE, dtype), dout.to(DEVICE, dtype), keep if keep is None else keep.to(DEVICE)


@kernels
@pytest.mark.parametrize("rotary", [True, False], ids=["rotary", "plain"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("d", [16, 32, 64])
@pytest.mark.parametrize("L", [1, 5, 16, 17, 39, 64, 73])
def test_kernels_are_the_plain_path(L: int, d: int, mask: str, rotary: bool) -> None:
    if LONGEST[torch.float32][d] < L:
        pytest.skip("float32 of this size is left to the plain path")
    qkv, dout, keep = drawn(L, d, mask, torch.float32)
    got = gradient(fused, qkv, dout, keep, 2, rotary)
    expected = gradient(attend, qkv.double(), dout.double(), keep, 2, rotary)
    for x, y in zip(got, expected, strict=True):
        close(x, y)


@kernels
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("mask", ["none", "any"])
@pytest.mark.parametrize("d", [16, 32, 64])
@pytest.mark.parametrize("L", [5, 39, 73])
def test_kernels_in_half_precision(L: int, d: int, mask: str, dtype: torch.dtype) -> None:
    if INTERPRETED and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16, not the numbers")
    qkv, dout, keep = drawn(L, d, mask, dtype)
    got = gradient(fused, qkv, dout, keep, 2, True)
    expected = gradient(attend, qkv.double(), dout.double(), keep, 2, True)
    for x, y in zip(got, expected, strict=True):
        assert x.dtype == dtype
        allowed = 2 * torch.finfo(dtype).eps * float(y.abs().max())  # q, k, P and the sums round
        assert (x - y).abs().max() <= allowed


@kernels
def test_a_sequence_of_which_no_key_is_seen_gives_zeros() -> None:
    qkv, dout, _ = drawn(L=19, d=16, mask="none", dtype=torch.float32)
    keep = torch.tensor([[True], [False]], device=DEVICE).expand(2, 19)
    for x in gradient(fused, qkv, dout, keep, 2, True):
        assert x.isfinite().all()
        assert (x[1] == 0).all()
        assert (x[0] != 0).any()


@kernels
def test_kernels_take_any_strides() -> None:
    qkv, dout, keep = drawn(L=9, d=16, mask="any", dtype=torch.float32)
    expected = gradient(fused, qkv, dout, keep, 2, True)
    assert keep is not None
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (qkv, dout, keep)]
    for x, y in zip(gradient(fused, *strided, 2, True), expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


@kernels
@pytest.mark.parametrize("mask", ["none", "any"])
def test_the_op_is_what_it_says_to_the_compiler(mask: str) -> None:
    qkv, _, keep = drawn(L=9, d=16, mask=mask, dtype=torch.float32)
    table = rotary_turns(9, 16, qkv.device)
    torch.library.opcheck(short_attention, (qkv.requires_grad_(), keep, table, 2))
