"""Commands that learn, and what they learn from: quickstart, data, train."""

import dataclasses
import re
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from redraft.config import Config, DataConfig, check, read_recipe, recipe_names
from redraft.errors import NotFound, UserError, unknown

if TYPE_CHECKING:
    from redraft.data.playlists import Prepared


@dataclass
class Quickstart:
    """The first minute: generate and repair molecules, fill in and correct a story, train.

    It needs two CPU cores and no network, and leaves a small model and its figures in OUT.
    """

    out: Path = Path("quickstart")
    """Folder for the model and the figures; that of an earlier quickstart is replaced."""
    seed: int = 0
    """Seed of weights, batches, noise and samples."""

    def run(self) -> None:
        from redraft.quickstart import quickstart

        quickstart(self.out, self.seed)


@dataclass
class Data:
    """Fetch and prepare a data set, or check a file of your own.

    For example:
    $ redraft data zinc250k
    $ redraft data molecules --file my.smi
    $ redraft data stories
    $ redraft data stories --file a.jsonl.gz b.jsonl.gz --validation c.txt -n 100000
    $ redraft data playlists --file tracks.jsonl.gz sequences.jsonl.gz
    $ redraft data playlists --file mpd.slice.*.json --features features.csv

    What was prepared lies in a cache: $REDRAFT_CACHE, else ~/.cache/redraft.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    """What to prepare. zinc250k, moses: molecules, fetched once.
    molecules: nothing is prepared, --file is checked.
    stories: TinyStories, fetched once, or those of --file.
    playlists: those of --file."""
    file: tuple[str, ...] = ()
    """Files of your own, also as .gz. Molecules: SMILES, one a line.
    Stories: .jsonl or .txt.
    Playlists: .jsonl of tracks and of sequences, .csv of sequence, position, item,
    or .json slices of the Million Playlist Dataset."""
    validation: str | None = None
    """Stories: another file to validate with; by default a tenth of --file is kept for that."""
    n: Annotated[int | None, arg(aliases=["-n"])] = None
    """Stories: how many to learn from at most, chosen by hash; by default 100,000."""
    origin: str | None = None
    """Stories or playlists of --file: one sentence on what they are, which all results repeat."""
    features: str | None = None
    """Playlists: a CSV of how tracks sound (danceability, energy, ...), and their tags.
    It has a header, and names tracks by track_uri, id or item."""
    embeddings: str | None = None
    """Playlists: an .npy file with a row for each track.
    Rows are in the order of "index" in the .jsonl of tracks, or of their first mention.
    By default embeddings are learned from what is played together."""
    draw: Path | None = None
    """Playlists: also draw how often near tracks share a tag, against chance, as .svg or .png."""

    def run(self) -> None:
        from redraft.domains import NAMED

        domains = {**NAMED, "molecules": "molecules"}
        if self.name not in domains:
            check(
                not Path(self.name).is_file(),
                f"{self.name} is a file: say first what it holds, molecules, stories or "
                f"playlists, as in redraft data molecules --file {self.name}",
            )
            raise unknown("data set", self.name, domains)
        prepare, options = {
            "molecules": (self.prepare_molecules, ()),
            "stories": (self.prepare_stories, ("validation", "n", "origin")),
            "playlists": (self.prepare_playlists, ("features", "embeddings", "origin", "draw")),
        }[domains[self.name]]
        for option in ("validation", "n", "origin", "features", "embeddings", "draw"):
            foreign = option not in options and getattr(self, option) is not None
            check(not foreign, f"--{option} is not for {self.name}")
        prepare()

    def prepare_molecules(self) -> None:
        from redraft.data import molecules
        from redraft.tokenizers import SmilesTokenizer

        own = self.name == "molecules"
        check(own == (len(self.file) == 1), "one --file and the name molecules go together")
        if own:
            print(molecules.inspect(self.file[0], SmilesTokenizer.split, foreground=True))
        else:
            print(molecules.prepare_named(self.name, foreground=True))
            print(f"use: redraft train RECIPE --data.file {self.name}")

    def prepare_stories(self) -> None:
        from redraft.data.stories import MOST, Request
        from redraft.domains import prepare_stories

        most = MOST if self.n is None else self.n
        print(prepare_stories(Request(self.file, self.validation, most, self.origin)))
        print("use: redraft train stories/vsdd")

    def prepare_playlists(self) -> None:
        from redraft.data.playlists import Request
        from redraft.domains import prepare_playlists

        check_drawing(self.draw)
        found = prepare_playlists(Request(self.file, self.features, self.embeddings, self.origin))
        print(found)
        if self.draw is not None:
            draw_neighbours(found, self.draw)
        print("use: redraft train RECIPE --data.domain playlists --data.file playlists")


def check_drawing(path: Path | None) -> None:
    """Whether a figure can be written there, before there is something to lose."""
    if path is not None:
        from redraft.commands.drawing import check_place
        from redraft.report.style import DRAWINGS

        check(path.suffix in DRAWINGS, f"--draw takes {' or '.join(DRAWINGS)}, got {path.name}")
        check_place(path)


def draw_neighbours(found: "Prepared", path: Path) -> None:
    from redraft.report import playlists, style

    if not (sane := playlists.sanity(found)):
        raise NotFound(f"{path} is not drawn: too few tracks have tags in common")
    print(f"drawn in: {style.save(playlists.neighbours(sane), path)}")


@dataclass
class Train:
    """Train a model from a recipe, or on a file of your own.

    For example:
    $ redraft train tiny/vsdd
    $ redraft train --data my.txt --tokenizer chars
    $ redraft train my-recipe.toml --train.steps 5000 --out runs/mine
    $ redraft train --resume runs/mine
    $ torchrun --nproc-per-node 8 -m redraft train my-recipe.toml
    """

    recipe: Annotated[Positional[str | None], arg(metavar="RECIPE")] = None
    """A recipe by name (tiny/vsdd) or a TOML file; all flags below override it.
    With --data alone it is tiny/vsdd."""
    data: str | None = None
    """A UTF-8 file with one sequence a line; or zinc250k, moses, stories or playlists.
    With a recipe a file holds what the recipe is for (molecules, stories).
    Without one, or with --tokenizer, it is just lines."""
    tokenizer: str | None = None
    """Take --data for lines, whatever the recipe, and cut them into chars, words, bpe or smiles."""
    out: Path | None = None
    """Folder for the run; by default a new one under runs/."""
    resume: str | None = None
    """Continue this run folder; `auto` takes --out, or else the newest under runs/."""
    config: Annotated[Config, arg(name="")] = field(default_factory=Config)

    @classmethod
    def default(cls, arguments: list[str]) -> "Train":
        """The recipe's values are the flags' defaults, so it has to be read first."""
        first = [a for a in arguments[:1] if not a.startswith("-")]
        known = [a for a in arguments if a.endswith(".toml") or a in recipe_names()]
        named = next(iter(first + known), None)
        own, cut = given("--data", arguments), given("--tokenizer", arguments)
        other = {"-h", "--help", "--resume"} | {a for a in arguments if a.startswith("--resume=")}
        if named is None and own is None and not other & set(arguments):
            raise UserError(f"give a recipe or --data FILE; recipes: {', '.join(recipe_names())}")
        mine = any(a not in known and Path(a).is_file() for a in first)
        check(not mine, f"{named} is no recipe; data of your own come with --data {named}")
        config = read_recipe(named or "tiny/vsdd")
        if own is not None:
            lines = named is None or cut is not None
            data = data_of(own, DataConfig(domain="lines") if lines else config.data)
            config = dataclasses.replace(config, data=data)
        return cls(recipe=named, config=config)

    def run(self) -> None:
        from redraft.distributed import agreed, joined, world
        from redraft.model import resume, train, training_config
        from redraft.terminal import TrainingDisplay

        with joined():
            again = self.interrupted()
            config = self.resolved() if again is None else training_config(again)
            out = agreed(again or self.out or fresh_folder(Path("runs"), config))
            budget, first = config.train, world().rank == 0
            display = TrainingDisplay(budget.steps, budget.seconds, config.method)
            with display if first else nullcontext():
                watch = display.update
                model = train(config, out, watch) if again is None else resume(out, watch)
                display.step = model.trained.summary["steps"]  # also of a run at its end
        if first:
            self.report(model.trained.summary, out)

    def report(self, summary: dict[str, Any], out: Path) -> None:
        print(f"data: {summary['data']} {summary['items']}")
        print(
            f"bound on validation data: {summary['bound_start']:.3f} -> "
            f"{summary['bound_end']:.3f} nats per token"
        )
        print(f"model: {out}   try: redraft sample {out}")

    def interrupted(self) -> Path | None:
        """The run to continue, if any."""
        if self.resume is None:
            return None
        plain = dataclasses.replace(self.default(["--resume"]), resume=self.resume, out=self.out)
        check(
            self == plain, "--resume takes everything from the run; give no recipe or flags with it"
        )
        if self.resume != "auto":
            return Path(self.resume)
        runs = sorted(Path("runs").glob("*/state"), key=lambda state: state.stat().st_mtime)
        found = self.out or (runs[-1].parent if runs else None)
        check(found is not None, "--resume auto found no run under runs/; name its folder")
        return found

    def resolved(self) -> Config:
        if self.data is None:
            check(
                self.tokenizer is None,
                "--tokenizer goes with --data; in a recipe it is data.tokenizer",
            )
            return self.config
        tokenizer = self.tokenizer or self.config.data.tokenizer
        data = dataclasses.replace(self.config.data, file=self.data, tokenizer=tokenizer)
        return dataclasses.replace(self.config, data=data)


def given(flag: str, arguments: list[str]) -> str | None:
    """The value of a flag, before the others can be parsed."""
    for n, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name == flag:
            return value if equals else next(iter(arguments[n + 1 :]), "")
    return None


def data_of(name: str, otherwise: DataConfig) -> DataConfig:
    """Settings for data of some name: those of the domain that it says, if it says another one."""
    from redraft.domains import NAMED

    domain = NAMED.get(name, otherwise.domain)
    return otherwise if domain == otherwise.domain else DataConfig(domain=domain)


def fresh_folder(root: Path, config: Config) -> Path:
    """root/METHOD-1, or the first number that is free."""
    taken = {
        int(m[1]) for p in root.glob(f"{config.method}-*") if (m := re.search(r"-(\d+)$", p.name))
    }
    return root / f"{config.method}-{max(taken, default=0) + 1}"
