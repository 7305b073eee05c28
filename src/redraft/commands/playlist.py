"""Commands for people with playlists: playlist continue, playlist repair."""

import dataclasses
import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import OmitArgPrefixes, Positional, arg, subcommand

from redraft.commands.drawing import Drawing, progress, standard_input
from redraft.errors import NotFound, UserError

if TYPE_CHECKING:
    from rich.text import Text

    from redraft.playlist import Change, Continued, Curator, Named, Proposal, Repaired


@dataclass
class Curating(Drawing):
    """What both take."""

    model: Annotated[str, arg(metavar="MODEL")]
    """A run folder, the shipped model (playlists, of made-up tracks) or a hub id."""
    playlist: Annotated[Positional[str], arg(metavar="[PLAYLIST]")] = "-"
    """A file with a track a line, as an id or "artist - title", or with a JSON list of them.
    By default standard input."""
    temperature: float = 0.7
    """How freely tracks are drawn: below 1 plays safe, 0 takes the most probable."""
    draws: int = 20
    """How often the model draws; what is drawn most often wins."""
    json: bool = False
    """One JSON object instead of lines for people."""

    def read(self) -> "tuple[Curator, list[int]]":
        """Who answers, and the playlist."""
        from redraft.playlist import Curator, listed

        names = listed(self.text())
        options = self.options()
        options.pop("seed", None)
        curator = Curator.of(self.load(), self.draws, **options)
        return curator, curator.names.tracks(names)

    def text(self) -> str:
        from redraft.data.lines import numbered

        if self.playlist != "-":
            rows = numbered(self.playlist)
        else:
            rows = standard_input("name a file with a playlist, or pipe one in, a track a line")
        return "\n".join(line for _, line in rows)

    def show(self, found: Any, lines: "list[Text]", remark: str) -> None:
        """On standard output for programs or for people; to the latter also what became of it."""
        if self.json:
            print(json.dumps(dataclasses.asdict(found), ensure_ascii=False))
            return
        from redraft.terminal import new_console

        console = new_console()
        for line in lines:
            console.print(line, soft_wrap=True)
        print(remark, file=sys.stderr)


@dataclass
class Continue(Curating):
    """What may follow a playlist: artists and titles, and how many draws have them.

    For example:
    $ redraft playlist continue mine.txt --model runs/playlists
    $ redraft playlist continue mine.txt --model runs/playlists -n 5 --alternatives 5 --json
    """

    n: Annotated[int, arg(aliases=["-n"])] = 3
    """How many tracks to add."""
    alternatives: int = 0
    """How many more to name that were drawn less often."""

    def run(self) -> None:
        curator, tracks = self.read()
        with progress("drawing") as callback:
            found = curator.continued(
                tracks, self.n, self.alternatives, seed=self.seed, callback=callback
            )
        self.show(found, continuation(found), about_continuation(found))
        wanted = self.n + self.alternatives
        got = len(found.tracks) + len(found.alternatives)
        if got < wanted:
            raise NotFound(f"only {got} of {wanted} were found in {found.draws:,} draws")


@dataclass
class Repair(Curating):
    """Replace tracks that a playlist repeats, or those at places of your choice, given the rest.

    For example:
    $ redraft playlist repair mine.txt --model runs/playlists
    $ redraft playlist repair mine.txt --model runs/playlists --at 3,7 --strength 0.5
    """

    at: str | None = None
    """Places to re-draft instead of repeated tracks, from 1 on, such as 3,7."""
    strength: float = 1.0
    """How far to go: 1 forgets the track that stands there, less keeps nearer to it."""

    def run(self) -> None:
        places = None if self.at is None else places_of(self.at)
        curator, tracks = self.read()
        with progress("redrafting") as callback:
            found = curator.repaired(
                tracks, places, self.strength, seed=self.seed, callback=callback
            )
        self.show(found, before_and_after(found), about_repair(found))
        if found.changes and all(change.after is None for change in found.changes):
            raise NotFound(f"nothing could be redrafted in {found.draws:,} draws")


@dataclass
class Playlist:
    """Continue a playlist, or repair it; in artists and titles."""

    playlist: OmitArgPrefixes[
        Annotated[Continue, subcommand("continue")] | Annotated[Repair, subcommand("repair")]
    ]

    def run(self) -> None:
        self.playlist.run()


def places_of(text: str) -> list[int]:
    """
    >>> places_of("3, 7")
    [3, 7]
    """
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise UserError(f"--at takes places with commas between them, got {text!r}") from None


# ------------------------------------------------------------------ for people


def continuation(found: "Continued") -> "list[Text]":
    """A track a line, with its rank and its share of the draws."""
    ranked = enumerate([*found.tracks, *found.alternatives], 1)
    return [
        told(f"{rank:>2}  {track.share:>6.1%}  ", track, "bold", sharing(track))
        for rank, track in ranked
    ]


def about_continuation(found: "Continued") -> str:
    return (
        f"shares of {found.draws:,} draws, given the last {found.read} of {found.given} tracks; "
        f"{found.known:.0%} of what was drawn is the codes of any track"
    )


def before_and_after(found: "Repaired") -> "list[Text]":
    """All tracks; those that go after a minus, those that come after a plus."""
    changes = {change.place: change for change in found.changes}
    lines = []
    for place, track in enumerate(found.before, 1):
        if place in changes:
            lines += changed(changes[place], found.draws)
        else:
            lines.append(told(f"  {place:>3}  ", track))
    return lines


def changed(change: "Change", draws: int) -> "list[Text]":
    place, before, after = f"{change.place:>3}  ", change.before, change.after
    if after is None:
        why = f"({change.reason}, but none of {draws:,} draws is a track that is not here yet)"
        return [told(f"! {place}", before, "yellow", why)]
    why = f"({after.share:.1%} of {draws:,} draws) {sharing(after)}".rstrip()
    return [
        told(f"- {place}", before, "red", f"({change.reason})"),
        told(f"+ {place}", after, "bold green", why),
    ]


def sharing(track: "Proposal") -> str:
    """Whether its codes mean other tracks, too."""
    return f"({track.sharing:,} tracks share its codes)" if track.sharing > 1 else ""


def told(head: str, track: "Named", style: str = "", remark: str = "") -> "Text":
    from rich.text import Text

    return Text.assemble(head, (str(track), style), (f"  {remark}".rstrip(), "dim"))


def about_repair(found: "Repaired") -> str:
    if not found.changes:
        return "no track is repeated; --at names places to redraft"
    done = sum(change.after is not None for change in found.changes)
    sounds = (found.smoothness_before, found.smoothness_after)
    heard = "" if None in sounds else "; smoothness {:.3f} before, {:.3f} after".format(*sounds)
    return f"{done} of {len(found.changes)} places redrafted{heard}"
