"""Stage 6: the table of methods. A new one is a file here and a row below.

method        what every method is              fixed         noise that is not learned
leader        what learned kernels share        reinforce     noise and denoiser descend together
stackelberg   VSDD: noise leads (Algorithm 1)   fldd          learned marginals, coupled
confusion     noise is the denoiser's mistakes
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from redraft.config import Config
from redraft.denoiser import Denoiser
from redraft.errors import unknown
from redraft.methods.confusion import Confusion
from redraft.methods.fixed import Fixed, FixedSemantic
from redraft.methods.fldd import FLDD
from redraft.methods.method import Method
from redraft.methods.reinforce import Reinforce
from redraft.methods.stackelberg import Stackelberg
from redraft.noise.absorbing import AbsorbingProcess
from redraft.noise.confusion import ConfusionProcess
from redraft.noise.coupled import CoupledProcess
from redraft.noise.process import ForwardProcess
from redraft.noise.schedule import alpha_bar, steps
from redraft.noise.semantic import BilinearScores, CosineScores, SemanticProcess
from redraft.noise.uniform import UniformProcess


def absorbing(config: Config, V: int, max_length: int) -> ForwardProcess:
    return AbsorbingProcess(V, alpha_bar(config.noise.schedule, config.noise.T))


def uniform(config: Config, V: int, max_length: int) -> ForwardProcess:
    return UniformProcess(V, steps(alpha_bar(config.noise.schedule, config.noise.T)))


def fixed_semantic(config: Config, V: int, max_length: int) -> ForwardProcess:
    alpha = steps(alpha_bar(config.noise.schedule, config.noise.T))
    scores = CosineScores(config.noise.T, config.noise.tau)
    return SemanticProcess(scores, V, config.denoiser.width, alpha)


def confusion(config: Config, V: int, max_length: int) -> ForwardProcess:
    alpha = steps(alpha_bar(config.noise.schedule, config.noise.T))
    return ConfusionProcess(V, alpha, config.noise.bins, config.noise.floor)


def learned_semantic(config: Config, V: int, max_length: int) -> ForwardProcess:
    noise, width = config.noise, config.denoiser.width
    tau = {"uniform": math.inf, "semantic": noise.tau}[noise.start]
    scores = BilinearScores(noise.T, width, noise.hidden, noise.rank, tau)
    return SemanticProcess(scores, V, width, steps(alpha_bar(noise.schedule, noise.T)))


def coupled(config: Config, V: int, max_length: int) -> ForwardProcess:
    network = Denoiser(config.denoiser, V, config.noise.T, max_length)  # f_phi, of the same size
    return CoupledProcess(network, V, config.noise.T)


class Entry(NamedTuple):
    process: Callable[[Config, int, int], ForwardProcess]
    """Makes the forward process from the config, the vocabulary's size and the longest length."""
    method: type[Method]
    """How it and the denoiser learn."""


METHODS = {
    "mdlm": Entry(absorbing, Fixed),
    "d3pm-uniform": Entry(uniform, Fixed),
    "d3pm-semantic": Entry(fixed_semantic, FixedSemantic),
    "d3pm-confusion": Entry(confusion, Confusion),
    "d3pm-reinforce": Entry(learned_semantic, Reinforce),
    "fldd": Entry(coupled, FLDD),
    "vsdd": Entry(learned_semantic, Stackelberg),
}


def entry(name: str) -> Entry:
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]
