"""Stage 4: the denoiser p_theta(x_0 | x_t, t), a bidirectional transformer.

Pre-norm, rotary positions by default, the time added to the input, PAD masked from attention.
Rotary positions are relative; where items are several tokens each, `period` of them, a token is
told which of these it is. With `neighbours` each token is at once told of those beside it, what an
attention head would first have to learn to look for.
With `recall` it is also given its own belief of x_0 one step before (self-conditioning, Chen et al.
2023): what one step draws token by token the next can then hold against a plan of the whole. With
`evidence` Bayes' rule does a part of its work,

    log p(x_0 | x_t) = network(x_t, t) + log q(x_t | x_0) + constant

so that the network learns what the context says of a token, and what the token itself says under
the noise of the day is known: for masks SUBS comes to the same. One that `infills` is told which
tokens are given, where not all are noise: their time is 0.
Shapes: B batch, L length, D width, H heads, V vocabulary.
"""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn

from redraft.attention import attend, rotary_turns
from redraft.config import DenoiserConfig
from redraft.noise.schedule import sinusoid
from redraft.tokenizers.base import MASK, PAD

Evidence = Callable[[Tensor, Tensor], Tensor | None]
"""log q(x_t | x_0) from x_t and t, if the process tells it."""


class Denoiser(nn.Module):
    def __init__(self, config: DenoiserConfig, V: int, T: int, max_length: int):
        super().__init__()
        self.V, self.T = V, T
        self.evidence, self.infills = config.evidence, config.infills
        D, self.head_width = config.width, config.width // config.heads
        self.embed = nn.Embedding(V, D)
        self.position = nn.Embedding(max_length, D) if config.positions == "learned" else None
        self.place = nn.Embedding(config.period, D) if config.period > 1 else None
        self.clock = (
            nn.Sequential(nn.Linear(D, D), nn.SiLU(), nn.Linear(D, D)) if config.time else None
        )
        self.recall = nn.Linear(V, D, bias=False) if config.recall else None
        reach = config.neighbours
        self.near = nn.Conv1d(D, D, 2 * reach + 1, padding=reach, bias=False) if reach else None
        self.blocks = nn.ModuleList(
            Block(D, config.heads, config.bias) for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(D, bias=config.bias)
        self.head = nn.Linear(D, V)
        self._initialise(config.layers)

    def _initialise(self, layers: int) -> None:
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        for name, weight in self.named_parameters():
            if name.endswith(("out.weight", "down.weight")):  # what a layer adds to its input
                nn.init.normal_(weight, std=0.02 / (2 * layers) ** 0.5)
        for added in (self.recall, self.near):
            if added is not None:
                nn.init.zeros_(added.weight)

    @property
    def embeddings(self) -> Tensor:
        """(V, D) token embeddings: what semantic noise is built from."""
        return self.embed.weight

    @property
    def timeless(self) -> bool:
        """Whether it says the same of the same x at every step."""
        return self.clock is None and self.recall is None and not self.evidence

    def forward(
        self,
        x: Tensor,
        t: Tensor,
        padded: bool = True,
        belief: Tensor | None = None,
        evidence: Evidence | None = None,
        given: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, L, V), -inf at PAD and MASK, for x (B, L) or, relaxed, (B, L, V) and t (B,).

        `padded=False` promises that x holds no PAD, so that attention needs no mask. `belief`
        (B, L, V) is p(x_0) as it was a step before, for a denoiser that recalls it; 0 is none.
        `evidence` is that of the process which made x, for a denoiser that is given it. `given`
        (B, L) is what of x is no noise, for one that infills; its logits there mean nothing.
        """
        given = given if self.infills else None
        relaxed = x.is_floating_point()
        h = x @ self.embed.weight.to(x.dtype) if relaxed else self.embed(x)  # (B, L, D)
        if self.position is not None:
            h = h + self.position.weight[: x.shape[1]]
        if self.place is not None:
            positions = torch.arange(x.shape[1], device=x.device)
            h = h + self.place(positions % self.place.num_embeddings)
        if self.clock is not None:
            h = h + self.moments(t, given)
        if self.recall is not None and belief is not None:
            recalled = self.recall(belief.to(h.dtype))
            h = h + (recalled if given is None else recalled.where(~given[..., None], 0))
        keep = None
        if padded:
            keep = x[..., PAD] < 0.5 if relaxed else x != PAD  # (B, L)
        if self.near is not None:
            there = h if keep is None else h * keep[..., None]
            h = h + self.near(there.mT).mT
        if torch.is_autocast_enabled(h.device.type):  # the sum of all layers in low precision too
            h = h.to(torch.get_autocast_dtype(h.device.type))
        turns = None
        if self.position is None:
            turns = rotary_turns(x.shape[1], self.head_width, x.device)
        for block in self.blocks:
            h = block(h, keep, turns)
        logits = self.head(self.norm(h))
        told = evidence(x, t) if self.evidence and evidence is not None else None
        logits = logits if told is None else logits + told
        states = torch.arange(self.V, device=x.device)
        return logits.masked_fill((states == PAD) | (states == MASK), -torch.inf)

    def moments(self, t: Tensor, given: Tensor | None) -> Tensor:
        """(B, 1 or L, D) what tells each token its time: t, or 0 if it is given."""
        moment = self.moment(t)
        if given is None:
            return moment
        return torch.where(given[..., None], self.moment(torch.zeros_like(t[:1])), moment)

    def moment(self, t: Tensor) -> Tensor:
        """(B, 1, D) of times (B,)."""
        assert self.clock is not None
        D, dtype = self.embed.weight.shape[1], self.embed.weight.dtype
        return self.clock(sinusoid(t, self.T, D).to(dtype))[:, None]


class Block(nn.Module):
    """Attention and a four times wider perceptron, each added to what came in."""

    def __init__(self, D: int, heads: int, bias: bool):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(D, bias=bias), nn.LayerNorm(D, bias=bias)
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=bias), nn.Linear(D, D, bias=bias)
        self.up, self.down = nn.Linear(D, 4 * D, bias=bias), nn.Linear(4 * D, D, bias=bias)

    def forward(self, h: Tensor, keep: Tensor | None, turns: Tensor | None) -> Tensor:
        mixed = attend(self.qkv(self.norm1(h)), keep, self.heads, turns)
        h = h + self.out(mixed)
        return h + self.down(nn.functional.gelu(self.up(self.norm2(h)), approximate="tanh"))


def inner_matrices(module: nn.Module) -> list[nn.Parameter]:
    """The weights of all products inside the blocks of a module."""
    blocks = (found for found in module.modules() if isinstance(found, Block))
    return [weight for block in blocks for weight in block.parameters() if weight.ndim == 2]


MOST = 64
"""Compilations of a block."""


def compiled(denoiser: Denoiser) -> Denoiser:
    """The same weights in compiled blocks: one compilation serves all blocks, at any length.

    With and without gradients, padding and low precision, of either player, each is another one: by
    default a process makes no more than eight, and what comes later is left as it is.
    """
    torch._dynamo.config.recompile_limit = MOST
    weights = {id(w): w for w in (*denoiser.parameters(), *denoiser.buffers())}
    twin = copy.deepcopy(denoiser, weights)
    for block in twin.blocks:
        block.compile(dynamic=True)
    return twin
