"""Stage 4: the denoiser p_theta(x_0 | x_t, t), a bidirectional transformer.

Pre-norm, rotary positions by default, the time added to the input, PAD masked from attention.
Shapes: B batch, L length, D width, H heads, V vocabulary.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from redraft.config import DenoiserConfig
from redraft.noise.schedule import sinusoid
from redraft.tokenizers.base import MASK, PAD


class Denoiser(nn.Module):
    def __init__(self, config: DenoiserConfig, V: int, T: int, max_length: int):
        super().__init__()
        self.V, self.T, self.time = V, T, config.time
        D = config.width
        self.embed = nn.Embedding(V, D)
        self.position = nn.Embedding(max_length, D) if config.positions == "learned" else None
        self.clock = (
            nn.Sequential(nn.Linear(D, D), nn.SiLU(), nn.Linear(D, D)) if config.time else None
        )
        self.blocks = nn.ModuleList(
            Block(D, config.heads, rotary=self.position is None) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, V)
        self._initialise(config.layers)

    def _initialise(self, layers: int) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # what a layer adds to its input
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5)

    @property
    def embeddings(self) -> Tensor:
        """(V, D) token embeddings: what semantic noise is built from."""
        return self.embed.weight

    def forward(self, x: Tensor, t: Tensor, padded: bool = True) -> Tensor:
        """Logits (B, L, V), -inf at PAD and MASK, for x (B, L) or, relaxed, (B, L, V) and t (B,).

        `padded=False` promises that x holds no PAD, so that attention needs no mask.
        """
        relaxed = x.is_floating_point()
        h = x @ self.embed.weight.to(x.dtype) if relaxed else self.embed(x)  # (B, L, D)
        if self.position is not None:
            h = h + self.position.weight[: x.shape[1]]
        if self.clock is not None:
            h = h + self.clock(sinusoid(t, self.T, h.shape[-1]).to(h.dtype))[:, None]
        keep = None
        if padded:
            keep = (x[..., PAD] < 0.5 if relaxed else x != PAD)[:, None, None]  # (B, 1, 1, L)
        for block in self.blocks:
            h = block(h, keep)
        logits = self.head(self.norm(h))
        states = torch.arange(self.V, device=x.device)
        return logits.masked_fill((states == PAD) | (states == MASK), -torch.inf)


class Block(nn.Module):
    """Attention and a four times wider perceptron, each added to what came in."""

    def __init__(self, D: int, heads: int, rotary: bool):
        super().__init__()
        self.heads, self.rotary = heads, rotary
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, h: Tensor, keep: Tensor | None) -> Tensor:
        B, L, D = h.shape
        qkv = self.qkv(self.norm1(h)).view(B, L, 3, self.heads, D // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, H, L, D / H)
        if self.rotary:
            q, k = rotate(q), rotate(k)
        mixed = scaled_dot_product_attention(q, k, v, attn_mask=keep)
        h = h + self.out(mixed.transpose(1, 2).reshape(B, L, D))
        return h + self.down(nn.functional.gelu(self.up(self.norm2(h)), approximate="tanh"))


def rotate(x: Tensor) -> Tensor:
    """Rotary positions: pair (i, i + d/2) of position l is turned by l * 10000^(-2i/d)."""
    L, d = x.shape[-2:]
    frequencies = 10_000 ** (-torch.arange(0, d, 2, device=x.device, dtype=torch.float32) / d)
    angles = torch.arange(L, device=x.device)[:, None] * frequencies  # (L, d / 2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)
