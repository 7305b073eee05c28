"""A run is one frozen Config: a TOML recipe, overridden by flags, saved beside the weights.

Nothing here imports torch, so that `--help` answers at once.
"""

import dataclasses
import tomllib
import types
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from redraft.errors import UserError, unknown


def check(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def check_numbers(found: Any, where: str = "") -> None:
    """All numbers of a dataclass, and of those inside it, can be computed with."""
    for name, value in vars(found).items():
        if dataclasses.is_dataclass(value):
            check_numbers(value, f"{where}{name}.")
        for number in value if isinstance(value, tuple) else (value,):
            check_number(f"{where}{name}", number)


def check_number(name: str, value: Any) -> None:
    """A seed has 63 bits; any other number is finite, and small enough to be added and squared."""
    if not isinstance(value, int | float):
        return
    if name.endswith("seed"):
        check(0 <= value < 2**63, f"{name} must be from 0 to 2^63 - 1, got {value}")
    else:
        fits = abs(value) < 10**18
        check(fits, f"{name} must be a finite number of at most 18 digits, got {value}")


@dataclass(frozen=True)
class DataConfig:
    domain: str = "molecules"
    """What the sequences are: molecules, stories, playlists, or lines of your own."""
    file: str | None = None
    """A file of sequences; zinc250k or moses, which are fetched once;
    or stories or playlists, which `redraft data` prepares. By default what the package brings."""
    tokenizer: str | None = None
    """smiles, chars, words, bpe or semantic-id; by default the domain's own."""
    vocabulary: int = 2048
    """Largest vocabulary, for the tokenizers that choose one (bpe, words)."""
    max_length: int | None = None
    """Longest sequence in tokens, its end included; by default that of the data."""
    long: Literal["error", "drop", "cut"] = "error"
    """What to do with sequences above max_length."""
    unknown: Literal["error", "drop"] = "error"
    """What to do with sequences that hold unknown tokens."""
    synthetic: int = 20_000
    """How many sequences to make up, where stories or playlists come from no file."""
    codes: Literal["lsh", "kmeans", "ranked"] = "lsh"
    """Playlists: how tracks get their codes.
    lsh: by random hyperplanes, as in the paper; kmeans: by residual k-means; ranked: likewise, the
    last by how often a track is played, so that hardly any two share all codes."""
    shared: bool = True
    """Playlists: whether the three codes of a track share their tokens (131 in the paper).
    Else each has its own."""

    def __post_init__(self):
        check(
            6 <= self.vocabulary <= 10**6,
            f"data.vocabulary must be from 6 to {10**6}, got {self.vocabulary}",
        )
        check(
            self.max_length is None or self.max_length >= 2,
            f"data.max_length must be at least 2, got {self.max_length}",
        )
        check(self.synthetic >= 10, f"data.synthetic must be at least 10, got {self.synthetic}")


@dataclass(frozen=True)
class NoiseConfig:
    T: int = 50
    """Number of diffusion steps T, from a clean sequence to noise."""
    schedule: Literal["linear", "cosine", "late"] = "linear"
    """How alpha_bar, the share of tokens not yet replaced, falls from 1 to 0."""
    rank: int | None = None
    """Learned noise: rank of the matrix A_t between embeddings; None is the paper's full D x D."""
    hidden: int = 128
    """Learned noise: hidden width of the network that gives A_t."""
    start: Literal["uniform", "semantic", "confusion"] = "uniform"
    """Where learned noise begins: uniform (the paper's); semantic: similar tokens;
    confusion: what the denoiser confuses, as far as it is known."""
    tau: float = 0.3
    """Temperature of semantic noise, softmax(cosine / tau): the lower, the more alike."""
    bins: int = 5
    """Confusion noise: how many noise levels it tells apart."""
    floor: float = 0.2
    """Confusion noise: share that is uniform, whatever is confused."""
    rising: bool = False
    """Confusion noise: whether that share rises to 1 at T, so that noise ends uniform."""
    symmetric: bool = False
    """Confusion noise: whether i becomes j only as far as j is taken for i as well."""
    forget: float = 0.9
    """Confusion noise: how much of what was seen before is kept at each look."""

    def __post_init__(self):
        check(self.T >= 2, f"noise.T must be at least 2, got {self.T}")
        check(
            self.rank is None or self.rank >= 1, f"noise.rank must be at least 1, got {self.rank}"
        )
        check(self.hidden >= 1, f"noise.hidden must be at least 1, got {self.hidden}")
        check(self.tau > 0, f"noise.tau must be above 0, got {self.tau}")
        check(self.bins >= 1, f"noise.bins must be at least 1, got {self.bins}")
        check(0 < self.floor <= 1, f"noise.floor must be in (0, 1], got {self.floor}")
        check(0 <= self.forget < 1, f"noise.forget must be in [0, 1), got {self.forget}")


Told = Literal["share", "t"]


@dataclass(frozen=True)
class DenoiserConfig:
    width: int = 512
    """Width D of the embeddings and of every layer."""
    layers: int = 10
    """Number of transformer layers."""
    heads: int = 16
    """Number of attention heads; width must be an even multiple of it."""
    bias: bool = True
    """Whether the layers add biases; without them a step is faster."""
    positions: Literal["rotary", "learned"] = "rotary"
    """How the denoiser knows positions."""
    period: int = 1
    """Tokens of one item, such as 3 codes of a track: each token is told its place in its item."""
    neighbours: int = 0
    """How many tokens to each side every token is told of before all attention."""
    time: bool = True
    """Whether the denoiser is told the time t (masked diffusion does not need to be)."""
    recall: bool = False
    """Whether it is also told what it believed of the clean sequence one step before."""
    infills: bool = False
    """Whether it also learns to infill: up to half of the sequences have a part that is given."""
    told: Told = "share"
    """What time it is told where only a part is drawn, unless it infills.
    share: that share of t, as if so much were noisy; t: as if all were, which is the paper's."""
    evidence: bool = False
    """Whether log q(x_t | x_0) is added to its logits: then it need not learn the noise itself."""

    def __post_init__(self):
        for name in ("width", "heads", "period"):
            value = getattr(self, name)
            check(value >= 1, f"denoiser.{name} must be at least 1, got {value}")
        check(
            1 <= self.layers <= 1000, f"denoiser.layers must be from 1 to 1000, got {self.layers}"
        )
        check(
            0 <= self.neighbours <= 100,
            f"denoiser.neighbours must be from 0 to 100, got {self.neighbours}",
        )
        check(
            self.time or not self.infills,
            "denoiser.infills needs denoiser.time, which tells what is given; got time false",
        )
        check(
            self.told == "share" or not self.infills,
            "denoiser.told is for one that does not infill, which is told what is given; "
            f"got told {self.told} and infills true",
        )
        head, rest = divmod(self.width, self.heads)
        check(
            rest == 0 and head % 2 == 0,
            f"denoiser.width must be an even multiple of denoiser.heads, "
            f"got width {self.width} and heads {self.heads}",
        )


@dataclass(frozen=True)
class OptimizerConfig:
    kind: Literal["adam", "muon"] = "adam"
    """Adam, the paper's; or Muon for the matrices inside the denoiser's layers, else Adam."""
    lr: float = 1e-3
    """Peak learning rate."""
    betas: tuple[float, float] = (0.9, 0.99)
    """Adam's two decay rates."""
    momentum: float = 0.95
    """Muon's decay rate."""
    weight_decay: float = 0.0
    """Decoupled weight decay, of matrices; gains and biases have none."""
    clip: float = 1.0
    """Largest gradient norm; 0 means no clipping."""
    warmup: float = 0.02
    """Share of the run in which the learning rate rises."""
    decay: Literal["cosine", "linear", "constant"] = "cosine"
    """How the learning rate falls after warm-up (the paper's is constant)."""

    def __post_init__(self):
        check(self.lr > 0, f"lr must be above 0, got {self.lr}")
        check(
            all(0 <= beta < 1 for beta in self.betas), f"betas must be in [0, 1), got {self.betas}"
        )
        check(0 <= self.momentum < 1, f"momentum must be in [0, 1), got {self.momentum}")
        for name in ("weight_decay", "clip"):
            value = getattr(self, name)
            check(value >= 0, f"{name} must be at least 0, got {value}")
        check(0 <= self.warmup < 1, f"warmup must be in [0, 1), got {self.warmup}")


@dataclass(frozen=True)
class TrainConfig:
    steps: int | None = 2000
    """Optimizer steps of the denoiser; None leaves it to train.seconds."""
    seconds: float | None = None
    """Stop after so many seconds of training, if that comes before train.steps.
    What is compiled is compiled before they begin."""
    batch: int = 512
    """Sequences in a batch."""
    accumulate: int = 1
    """Parts of a batch whose gradients are summed one after the other, where memory is short."""
    bound: Literal["joint", "split"] = "joint"
    """Estimator of the bound: one pass with t in 1..T, or the paper's two passes."""
    auxiliary: float = 0.0
    """Weight of -log p(x_0 | x_t) beside the bound; FLDD, which has no p(x_0), goes without."""
    drafts: bool = False
    """Whether half of a batch is what the denoiser itself makes of its noise in one step.
    That is what it meets when it samples; FLDD, whose noise must be its own, goes without."""
    precision: Literal["float32", "bf16"] = "float32"
    """Arithmetic of the denoiser; the bound itself is always computed in float32."""
    ema: float = 0.999
    """Decay of the averaged weights used for sampling."""
    device: str = "auto"
    """cpu, cuda, or auto: the GPU where there is one."""
    compile: bool = False
    """Compile the denoiser (pays on a GPU)."""
    log_every: int = 50
    """Steps between two lines of metrics.jsonl."""
    save_every: int = 500
    """Steps between two saved states, from which a stopped run goes on."""
    keep: int = 2
    """How many of these states to keep."""
    validate: int = 256
    """Validation sequences on which the exact bound is computed at the start and the end."""

    def __post_init__(self):
        check(
            self.steps is not None or self.seconds is not None,
            "give train.steps or train.seconds, got neither",
        )
        for name in ("steps", "seconds"):
            value = getattr(self, name)
            check(value is None or value > 0, f"train.{name} must be above 0, got {value}")
        check(self.batch >= 1, f"train.batch must be at least 1, got {self.batch}")
        check(
            self.accumulate >= 1 and self.batch % self.accumulate == 0,
            f"train.batch must be a multiple of train.accumulate, got {self.batch} and "
            f"{self.accumulate}",
        )
        check(self.auxiliary >= 0, f"train.auxiliary must be at least 0, got {self.auxiliary}")
        check(0 <= self.ema < 1, f"train.ema must be in [0, 1), got {self.ema}")
        check(self.log_every >= 1, f"train.log_every must be at least 1, got {self.log_every}")
        check(self.save_every >= 1, f"train.save_every must be at least 1, got {self.save_every}")
        check(self.keep >= 1, f"train.keep must be at least 1, got {self.keep}")
        check(self.validate >= 1, f"train.validate must be at least 1, got {self.validate}")


@dataclass(frozen=True)
class LeaderConfig:
    """The player that learns the noise (VSDD, and where it applies D3PM-Reinforce and FLDD)."""

    optimizer: OptimizerConfig = field(
        default_factory=lambda: OptimizerConfig(lr=2e-4, warmup=0.0, decay="constant")
    )
    """Its own Adam; decay = "constant" is the paper's, another lets it follow the denoiser's."""
    block: int = 100
    """Denoiser steps N between two moves of the leader; kernels are rebuilt as often."""
    probes: int = 8
    """Corruptions K that are tried at each move, the probes."""
    gamma: float = 1e-2
    """Size of the denoiser's trial step on each of them."""
    credit: Literal["batch", "sequence"] = "batch"
    """One reward for each probe (the paper's), or one for each sequence of each probe."""
    judge: Literal["own", "reference"] = "own"
    """Whose reverse steps rewards are measured through.
    own: the leader's (the paper's); reference: those of uniform noise."""
    batch: int = 128
    """Held-out sequences on which the leader tries its corruptions."""
    clip_reward: float = 3.0
    """Normalised rewards are clipped at this c."""
    variance_decay: float = 0.9
    """How much of the running variance of rewards is kept at each move."""
    terminal: float = 1.0
    """Weight lambda_T of KL(Qbar_T || uniform), which has the noise end uniform."""
    rest_first: float = 0.0
    """Share of the run before the leader's first move."""
    rest_last: float = 0.0
    """Share of the run after the leader's last move."""
    entropy_floor: float = 0.0
    """Against collapse: rows with less than this share of the largest entropy are pushed back."""
    entropy_weight: float = 10.0
    """How strongly they are pushed."""

    def __post_init__(self):
        check(self.block >= 1, f"leader.block must be at least 1, got {self.block}")
        check(2 <= self.probes <= 1000, f"leader.probes must be from 2 to 1000, got {self.probes}")
        check(self.gamma > 0, f"leader.gamma must be above 0, got {self.gamma}")
        check(self.batch >= 1, f"leader.batch must be at least 1, got {self.batch}")
        check(self.clip_reward > 0, f"leader.clip_reward must be above 0, got {self.clip_reward}")
        check(
            0 <= self.variance_decay < 1,
            f"leader.variance_decay must be in [0, 1), got {self.variance_decay}",
        )
        for name in ("terminal", "entropy_weight"):
            value = getattr(self, name)
            check(value >= 0, f"leader.{name} must be at least 0, got {value}")
        check(
            0 <= self.entropy_floor < 1,
            f"leader.entropy_floor must be in [0, 1), got {self.entropy_floor}",
        )
        check(
            self.rest_first >= 0 and self.rest_last >= 0 and self.rest_first + self.rest_last <= 1,
            f"leader.rest_first and leader.rest_last are shares of the run that add up to at most "
            f"1, got {self.rest_first} and {self.rest_last}",
        )


@dataclass(frozen=True)
class FlddConfig:
    warmup: float = 0.3
    """Share of the run on Concrete relaxations, before the score-function estimator begins."""
    temperature: tuple[float, float] = (1.0, 1e-3)
    """Temperature of the relaxation at the start and at the end of that warm-up."""

    def __post_init__(self):
        check(0 <= self.warmup <= 1, f"fldd.warmup must be in [0, 1], got {self.warmup}")
        check(min(self.temperature) > 0, f"fldd.temperature must be above 0: {self.temperature}")


@dataclass(frozen=True)
class Config:
    method: str = "vsdd"
    """How noise and denoiser learn: mdlm, d3pm-uniform, d3pm-semantic, d3pm-confusion,
    d3pm-reinforce, fldd or vsdd."""
    seed: int = 0
    """Seed of weights, batches and noise."""
    data: DataConfig = field(default_factory=DataConfig)
    noise: NoiseConfig = field(default_factory=NoiseConfig)
    denoiser: DenoiserConfig = field(default_factory=DenoiserConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    leader: LeaderConfig = field(default_factory=LeaderConfig)
    fldd: FlddConfig = field(default_factory=FlddConfig)

    def __post_init__(self):
        check_numbers(self)
        rank, width = self.noise.rank, self.denoiser.width
        check(
            rank is None or rank <= width,
            f"noise.rank must be at most denoiser.width, got {rank} and {width}",
        )

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Config":
        return _build(cls, values, where="")


def _build(cls: type, values: dict[str, Any], where: str, base: Any = None) -> Any:
    """A dataclass from nested dicts over its defaults; an unknown key or wrong type is an error."""
    base = cls() if base is None else base
    hints = typing.get_type_hints(cls)
    changes = {}
    for key, value in values.items():
        if key not in hints:
            raise unknown(f"key in {where or 'the recipe'}", key, hints)
        kind, path = hints[key], f"{where}.{key}".lstrip(".")
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            check(isinstance(value, dict), f"{path} must be a table, got {value!r}")
            changes[key] = _build(kind, value, path, getattr(base, key))
        else:
            changes[key] = _coerce(kind, value, path)
    return dataclasses.replace(base, **changes)


def _coerce(kind: Any, value: Any, path: str) -> Any:
    """`value` as the annotated type, or one sentence that says what is accepted."""
    check_number(path, value)
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        if value not in options:
            raise unknown(f"value of {path}", str(value), map(str, options))
        return value
    if origin is tuple:
        check(
            isinstance(value, list | tuple) and len(value) == len(options),
            f"{path} must be {len(options)} numbers, got {value!r}",
        )
        return tuple(_coerce(option, v, path) for option, v in zip(options, value, strict=True))
    if origin in (typing.Union, types.UnionType):
        if value is None or value == "none":
            return None
        return _coerce(next(o for o in options if o is not type(None)), value, path)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise UserError(f"{path} must be {kind.__name__}, got {value!r}")
    return value


def recipes_folder() -> Path:
    """The recipes of the checkout, or those inside the installed package."""
    checkout = Path(__file__).parents[2] / "recipes"
    return checkout if checkout.is_dir() else Path(__file__).parent / "recipes"


def recipe_names() -> list[str]:
    root = recipes_folder()
    return sorted(str(p.relative_to(root).with_suffix("")) for p in root.rglob("*.toml"))


def read_recipe(name: str | Path) -> Config:
    """A recipe by name (`tiny/vsdd`) or by path (`my.toml`).

    >>> read_recipe("tiny/vsdd").method
    'vsdd'
    """
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in recipe_names():
            raise unknown("recipe", str(name), recipe_names())
        path = recipes_folder() / f"{name}.toml"
    if not path.is_file():
        raise UserError(f"no recipe file at {path}; recipes by name: {', '.join(recipe_names())}")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # a number of thousands of digits is one, too
        raise UserError(f"{path} is not a TOML file: {error}") from None
    try:
        return Config.from_dict(values)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
