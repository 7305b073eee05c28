"""The models of the page, by their names, and what their tabs do with them."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

from starlette.responses import Response

from redraft.errors import UserError
from redraft.model import Model
from redraft.web import molecules, playlists, stories
from redraft.web.desk import Desk, Job
from redraft.web.forms import Form
from redraft.web.noise import NoiseView
from redraft.web.stream import Told


class Unknown(UserError):
    """A name that is not on the shelf."""


class Tab(NamedTuple):
    """What the page does with models of one domain."""

    opened: Callable[[Model], Any]
    """What its functions are asked of."""
    examples: Callable[[Any], dict[str, str]]
    """To begin with, by name."""
    first: Callable[[Any, Job], None]
    """Work for nobody, so that the first person need not wait for what is lazy."""
    trouble: str = ""
    """Why a model cannot be opened, in words for everybody."""


TABS = {
    "molecules": Tab(lambda model: model, molecules.examples, molecules.first),
    "stories": Tab(lambda model: model, stories.examples, stories.first),
    "playlists": Tab(
        playlists.Library.of,
        playlists.examples,
        playlists.first,
        "the names of its tracks are not to be had here, the terminal tells why",
    ),
}


@dataclass(frozen=True)
class Served:
    """A model on the page."""

    model: Model
    noise: NoiseView | None
    opened: Any = None
    """What its tab asks; None where it has no tab, or cannot be shown there."""
    examples: Mapping[str, str] = field(default_factory=dict)
    trouble: str = ""
    """Why its tab cannot show it."""

    @classmethod
    def of(cls, model: Model) -> "Served":
        served, tab = cls(model, NoiseView.of(model)), TABS.get(model.config.data.domain)
        if tab is None:
            return served
        try:
            opened = tab.opened(model)
        except UserError as error:
            logging.getLogger(__name__).warning(error)  # which may name a folder
            return replace(served, trouble=tab.trouble)
        return replace(served, opened=opened, examples=tab.examples(opened))

    @property
    def domain(self) -> str:
        return self.model.config.data.domain

    def facts(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "domain": self.domain,
            "method": self.model.config.method,
            "T": self.model.trained.process.T,
            "noise": self.noise is not None,
            "examples": self.examples,
            "trouble": self.trouble,
        }


Shelf = Mapping[str, Served]


def found(shelf: Shelf, name: str) -> Served:
    if name not in shelf:
        raise Unknown(f"no such model is served; accepted: {', '.join(shelf)}")
    return shelf[name]


@dataclass(frozen=True)
class Room:
    """Where the models of one domain are asked, and their work is told."""

    shelf: Shelf
    desk: Desk
    domain: str

    def asked(self, ask: Form) -> Any:
        served = found(self.shelf, ask.model)
        if served.domain != self.domain:
            raise UserError(f"{ask.model} knows {served.domain}, not {self.domain}")
        if served.trouble:
            raise UserError(served.trouble)
        return served.opened

    def told(self, work: Callable[..., None], ask: Form) -> Response:
        return Told(self.desk, partial(work, self.asked(ask), ask))
