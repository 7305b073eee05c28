"""What a request may say: every field has a strict type and a limit."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

LONGEST = 400
"""Characters of a SMILES string."""

Name = Annotated[str, Field(min_length=1, max_length=80)]
Smiles = Annotated[str, Field(min_length=1, max_length=LONGEST, pattern=r"^[!-~]+$")]
"""Visible ASCII, as SMILES are."""
Seed = Annotated[int, Field(ge=0, lt=2**31)]


class Form(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    model: Name
    """One of those that are served."""


class Look(Form):
    smiles: Smiles


class Break(Look):
    seed: Seed | None = None


class Repair(Look):
    original: Smiles | None = None
    """What it was before it was broken, where that is known: for similarities alone."""
    seed: Seed | None = None


class Drawing(Form):
    n: Annotated[int, Field(ge=1, le=6)] = 4
    """Candidates, side by side."""
    steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    seed: Seed | None = None


class Sample(Drawing):
    pass


class Revise(Drawing):
    smiles: Smiles
    strength: Annotated[float, Field(gt=0, le=1)] = 0.3
