"""What a request may say: every field has a strict type and a limit."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from redraft.playlist import TEMPERATURE

LONGEST = 400
"""Characters of a SMILES string."""
PAGES = 4000
"""Characters of a story."""

TRACKS = 200
"""Of a playlist."""

Name = Annotated[str, Field(min_length=1, max_length=80)]
Smiles = Annotated[str, Field(min_length=1, max_length=LONGEST, pattern=r"^[!-~]+$")]
"""Visible ASCII, as SMILES are."""
Story = Annotated[str, Field(min_length=1, max_length=PAGES, pattern=r"\S")]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Strength = Annotated[float, Field(gt=0, le=1)]
Temperature = Annotated[float, Field(ge=0, le=2)]


class Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name
    """One of those that are served."""


class Drawing(Form):
    n: Annotated[int, Field(ge=1, le=6)] = 4
    """Candidates, side by side."""
    steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    temperature: Temperature = 1.0
    renew: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Seed | None = None

    @property
    def options(self) -> dict[str, Any]:
        """Those of the sampler."""
        return {"steps": self.steps, "temperature": self.temperature, "renew": self.renew}


class Sample(Drawing):
    pass


# ------------------------------------------------------------------ molecules


class Look(Form):
    smiles: Smiles


class Break(Look):
    seed: Seed | None = None


class Repair(Look):
    original: Smiles | None = None
    """What it was before it was broken, where that is known: for similarities alone."""
    seed: Seed | None = None


class Revise(Drawing):
    smiles: Smiles
    strength: Strength = 0.3


# ------------------------------------------------------------------ stories


class Read(Form):
    text: Story


class Infill(Drawing):
    text: Story
    hidden: Annotated[list[Annotated[int, Field(ge=0, lt=PAGES)]], Field(max_length=PAGES)] = []
    """Words of it, counted from 0."""


class Rewrite(Drawing):
    text: Story
    strength: Strength = 0.3


# ------------------------------------------------------------------ playlists

Tracks = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(max_length=TRACKS)]
"""By their numbers."""


class Search(Form):
    text: Annotated[str, Field(min_length=1, max_length=100)]


class Playlist(Form):
    tracks: Tracks


class Voting(Drawing):
    tracks: Tracks
    temperature: Temperature = TEMPERATURE
    draws: Annotated[int, Field(ge=1, le=20)] = 20
    """What is put to the vote."""


class Continue(Voting):
    """`n` is how many tracks are to come."""


class Redraft(Voting):
    at: Annotated[list[Annotated[int, Field(ge=1, le=TRACKS)]], Field(max_length=TRACKS)] = []
    """Places, counted from 1; where none is named, those whose track comes again."""
    strength: Strength = 1.0
