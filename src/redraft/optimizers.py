"""Muon beside Adam: orthogonalised momentum for the matrices inside layers (Jordan et al. 2024).

    m <- momentum m + (1 - momentum) g
    W <- W - lr 0.2 sqrt(larger side of W) U V^T,   U S V^T = (1 - momentum) g + momentum m

so that an update is as large in every direction of the weights. The factor makes it about as large
as one of Adam's, whose learning rate then serves both (Liu et al. 2025). PyTorch's own Muon reads
the learning rate on the host, which a recorded step cannot do, and takes matrices one by one.
"""

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from redraft.config import OptimizerConfig

SPREADING = (
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
)
"""Odd polynomials a s + b s^3 + c s^5 that, one after the other, bring all s in (0, 1] near 1."""


def optimizers(
    parameters: Iterable[nn.Parameter], matrices: Iterable[nn.Parameter], config: OptimizerConfig
) -> list[Optimizer]:
    """Adam for all parameters, or for all but the matrices, which go to Muon.

    Gains and biases do not decay: towards 0 they would close a layer, not make it simpler.
    """
    parameters = list(parameters)
    device = parameters[0].device
    gpu = device.type == "cuda"  # there a recorded step reads the rate from the device
    lr = torch.tensor(config.lr, device=device) if gpu else config.lr
    chosen = {id(p) for p in matrices} if config.kind == "muon" else set()
    inner = [p for p in parameters if id(p) in chosen]
    outer = [p for p in parameters if id(p) not in chosen]
    groups = [
        {"params": [p for p in outer if p.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [p for p in outer if p.ndim < 2], "weight_decay": 0.0},
    ]
    adam = AdamW(groups, lr=lr, betas=config.betas, fused=gpu, capturable=gpu)
    return [adam, Muon(inner, lr, config.momentum, config.weight_decay)] if inner else [adam]


class Muon(Optimizer):
    def __init__(
        self,
        matrices: list[nn.Parameter],
        lr: float | Tensor,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ):
        super().__init__(matrices, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            moved = [p for p in group["params"] if p.grad is not None]
            for p in moved:
                if p not in self.state:
                    self.state[p]["exp_avg"] = torch.zeros_like(p)
            grads, means = [p.grad for p in moved], [self.state[p]["exp_avg"] for p in moved]
            torch._foreach_lerp_(means, grads, 1 - group["momentum"])
            ahead = list(torch._foreach_lerp(grads, means, group["momentum"]))
            if group["weight_decay"]:
                torch._foreach_mul_(moved, 1 - group["lr"] * group["weight_decay"])
            for shape, found in together(moved, ahead).items():
                size = group["lr"] * 0.2 * math.sqrt(max(shape))
                updates = orthogonal(torch.stack([update for _, update in found])) * size
                torch._foreach_sub_([part for part, _ in found], list(updates))


MEMORY = {AdamW: ("step", "exp_avg", "exp_avg_sq"), Muon: ("exp_avg",)}
"""What an optimizer remembers of a parameter."""


def holds(optimizer: Optimizer, parameter: nn.Parameter) -> bool:
    return any(parameter is p for group in optimizer.param_groups for p in group["params"])


def together(
    matrices: list[Tensor], updates: list[Tensor]
) -> dict[torch.Size, list[tuple[Tensor, Tensor]]]:
    """Matrices with their updates, by shape.

    The projections to queries, keys and values lie in one matrix, three times as tall as wide: here
    they are three.
    """
    found: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
    for matrix, update in zip(matrices, updates, strict=True):
        parts = 3 if len(matrix) == 3 * matrix.shape[1] else 1
        for piece in zip(matrix.chunk(parts), update.chunk(parts), strict=True):
            found.setdefault(piece[0].shape, []).append(piece)
    return found


def orthogonal(G: Tensor) -> Tensor:
    """U V^T, nearly, of each matrix U S V^T of a stack; on a GPU in bf16, as is usual."""
    X = G.bfloat16() if G.is_cuda else G
    X = X.mT if G.shape[-2] > G.shape[-1] else X
    X = X / X.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-7)
    for a, b, c in SPREADING:
        A = X @ X.mT
        X = torch.baddbmm(X, torch.baddbmm(A, A, A, beta=b, alpha=c), X, beta=a)
    X = X.mT if G.shape[-2] > G.shape[-1] else X
    return X.to(G.dtype)
