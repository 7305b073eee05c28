"""Stage 6: the table of methods. A new one is a file here and a row below.

method        what every method is              fixed         noise that is not learned
leader        what learned kernels share        reinforce     noise and denoiser descend together
stackelberg   VSDD: noise leads (Algorithm 1)   fldd          learned marginals, coupled
confusion     noise is the denoiser's mistakes
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from torch import nn

from redraft.config import Config, NoiseConfig
from redraft.denoiser import Denoiser
from redraft.errors import unknown
from redraft.methods.confusion import Confusion
from redraft.methods.fixed import Fixed, FixedSemantic
from redraft.methods.fldd import FLDD
from redraft.methods.method import Method
from redraft.methods.reinforce import Reinforce
from redraft.methods.stackelberg import Stackelberg
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.confusion import Confusions, Sum
from redraft.noise.coupled import CoupledProcess
from redraft.noise.process import ForwardProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess


def absorbing(config: Config, V: int, max_length: int) -> ForwardProcess:
    return AbsorbingProcess(V, alpha_bar(config.noise.schedule, config.noise.T))


def uniform(config: Config, V: int, max_length: int) -> ForwardProcess:
    return UniformProcess(V, steps(alpha_bar(config.noise.schedule, config.noise.T)))


def semantic(config: Config, V: int, scores: nn.Module) -> ForwardProcess:
    alpha = steps(alpha_bar(config.noise.schedule, config.noise.T))
    return SemanticProcess(scores, V, config.denoiser.width, alpha)


def cosine(config: Config, V: int, max_length: int) -> ForwardProcess:
    return semantic(config, V, CosineScores(config.noise.T, config.noise.tau))


def confusion(config: Config, V: int, max_length: int) -> ForwardProcess:
    return semantic(config, V, confusions(config.noise, V))


def confusions(noise: NoiseConfig, V: int) -> Confusions:
    return Confusions(noise.T, V, noise.bins, noise.floor, noise.rising, noise.symmetric)


def learned(config: Config, V: int, max_length: int) -> ForwardProcess:
    noise = config.noise
    tau = noise.tau if noise.start == "semantic" else math.inf
    scores = BilinearScores(noise.T, config.denoiser.width, noise.hidden, noise.rank, tau)
    if noise.start == "confusion":
        scores = Sum(scores, confusions(noise, V))
    return semantic(config, V, scores)


def coupled(config: Config, V: int, max_length: int) -> ForwardProcess:
    shape = replace(config.denoiser, recall=False)  # f_phi, of the same size, sees x_0 itself
    network = Denoiser(shape, V, config.noise.T, max_length)
    return CoupledProcess(network, V, config.noise.T)


class Entry(NamedTuple):
    process: Callable[[Config, int, int], ForwardProcess]
    """Makes the forward process from the config, the vocabulary's size and the longest length."""
    method: type[Method]
    """How it and the denoiser learn."""


METHODS = {
    "mdlm": Entry(absorbing, Fixed),
    "d3pm-uniform": Entry(uniform, Fixed),
    "d3pm-semantic": Entry(cosine, FixedSemantic),
    "d3pm-confusion": Entry(confusion, Confusion),
    "d3pm-reinforce": Entry(learned, Reinforce),
    "fldd": Entry(coupled, FLDD),
    "vsdd": Entry(learned, Stackelberg),
}


def entry(name: str) -> Entry:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
