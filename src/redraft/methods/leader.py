"""What methods that learn a Markov kernel share: its likelihood, restraints and figures."""

import logging
import math

from torch import Tensor

from redraft.config import LeaderConfig
from redraft.noise.committed import Draft
from redraft.noise.process import ForwardProcess
from redraft.objective import Draw
from redraft.tokenizers.base import EOS, PAD

COLLAPSED = 0.25
"""A kernel whose mean row entropy is below this share of the largest possible has collapsed."""


def log_prob(process: ForwardProcess, x0: Tensor, draws: list[Draw]) -> Tensor:
    """(B,) log q_phi of all corruptions of each sequence, summed over its tokens."""
    tokens = sum(draw.counted(process.log_prob(draw.xt, x0, draw.t)) for draw in draws)
    assert isinstance(tokens, Tensor)
    return tokens.where(x0 != PAD, 0).sum(-1)


def regularisation(noise: Draft, config: LeaderConfig) -> Tensor:
    """lambda_T KL(Qbar_T || uniform), and what pushes row entropies back above their floor."""
    loss = config.terminal * noise.terminal_kl()
    if config.entropy_floor > 0:
        missing = config.entropy_floor - noise.row_entropies() / largest_entropy(noise)
        loss = loss + config.entropy_weight * missing.clamp_min(0).mean()
    return loss


def largest_entropy(noise: Draft) -> float:
    """ln(V' - 1): the entropy of a row of uniform noise."""
    return math.log(noise.V - EOS - 1)


def kernel_metrics(noise: Draft) -> dict[str, Tensor]:
    """What to watch of a learned kernel."""
    entropies = noise.row_entropies().detach()
    return {
        "leader/entropy_mean": entropies.mean(),
        "leader/entropy_min": entropies.min(),
        "leader/entropy_share": entropies.mean() / largest_entropy(noise),
        "leader/largest_transition": noise.M[:, EOS:].detach().max(),
        "leader/terminal_kl": noise.terminal_kl().detach(),
    }


def warn_of_collapse(metrics: dict[str, float]) -> bool:
    """Whether there was reason to."""
    share = metrics.get("leader/entropy_share", 1.0)
    collapsed = share < COLLAPSED
    if collapsed:
        logging.getLogger("redraft").warning(
            "the noise kernel has collapsed: its mean row entropy is %.0f %% of uniform noise's",
            100 * share,
        )
    return collapsed
