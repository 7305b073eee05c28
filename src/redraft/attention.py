"""Multi-head attention in both directions, with rotary positions and a mask of the keys to see.

Shapes: B batch, L length, D width, H heads of d = D / H.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

try:
    from redraft.short_attention import short_attention
except ImportError:  # no Triton: a machine without a GPU
    short_attention = None

# The longest L that the kernels take, by type and d. Beyond these the tiles of a head (q, k, v, the
# gradient and the scores) overflow the 99 KiB of memory that a small GPU lends to a program.
HALF = {16: 128, 32: 128, 64: 128, 128: 64}
LONGEST = {
    torch.bfloat16: HALF,
    torch.float16: HALF,
    torch.float32: {16: 128, 32: 64, 64: 64, 128: 32},
}


def attend(qkv: Tensor, keep: Tensor | None, heads: int, turns: Tensor | None) -> Tensor:
    """(B, L, D) from projections qkv (B, L, 3 D): queries, keys and values of every head.

    Keys where keep (B, L) is False are not seen. Positions are rotary, if turns are given.
    """
    B, L, width = qkv.shape
    d = width // (3 * heads)
    longest = LONGEST.get(qkv.dtype, {}).get(d, 0)
    if short_attention is not None and qkv.is_cuda and longest >= L:
        return short_attention(qkv, keep, turns, heads)
    q, k, v = qkv.view(B, L, 3, heads, d).permute(2, 0, 3, 1, 4)  # each (B, H, L, d)
    if turns is not None:
        q, k = rotate(q, turns), rotate(k, turns)
    mask = None if keep is None else keep[:, None, None]  # (B, 1, 1, L)
    mixed = scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return mixed.transpose(1, 2).reshape(B, L, heads * d)


def rotary_turns(L: int, d: int, device: torch.device) -> Tensor:
    """cos and sin (2, L, d / 2) of the angles l * 10000^(-2i/d) by which position l is turned."""
    frequencies = 10_000 ** (-torch.arange(0, d, 2, device=device, dtype=torch.float32) / d)
    angles = torch.arange(L, device=device)[:, None] * frequencies  # (L, d / 2)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Pairs (i, i + d/2) of (..., L, d) turned by their position's angles."""
    cos, sin = turns.to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
