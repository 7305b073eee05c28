"""Paths to functions: the page, and what it asks for."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from redraft.errors import UserError
from redraft.web import forms, molecules, playlists, stories
from redraft.web.desk import Busy, Desk
from redraft.web.guard import Guard, answer
from redraft.web.shelf import Room, Shelf, Unknown, found

STATIC = Path(__file__).parent / "static"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


def create(shelf: Shelf, desk: Desk | None = None, public: bool = False) -> ASGIApp:
    """The whole page over these models, as an ASGI application."""
    desk = desk or Desk()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(
        title="redraft", openapi_url=None, lifespan=lifespan, exception_handlers=dict(COMPLAINTS)
    )
    for routes in (static_routes(), model_routes(shelf), noise_routes(shelf)):
        app.include_router(routes)
    for domain, routes_of in ROUTES.items():
        app.include_router(routes_of(Room(shelf, desk, domain)))
    return Guard(app, public)


# ------------------------------------------------------------------ paths


def static_routes() -> APIRouter:
    """Files of the page, read once: no path of a request is ever looked up on the disk."""
    router = APIRouter()
    for file in sorted(path for path in STATIC.iterdir() if path.suffix in KINDS):
        path = "/" if file.name == "index.html" else f"/{file.name}"
        page = partial(Response, file.read_bytes(), media_type=KINDS[file.suffix])
        router.add_api_route(path, _constantly(page), methods=["GET"])
    return router


def _constantly(page: Callable[[], Response]) -> Callable[[], Response]:
    return lambda: page()


def model_routes(shelf: Shelf) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/models")
    def models() -> dict[str, Any]:
        return {"models": [served.facts(name) for name, served in shelf.items()]}

    return router


def molecule_routes(room: Room) -> APIRouter:
    router = APIRouter(prefix="/api/molecules")

    @router.post("/look")
    def look(ask: forms.Look) -> dict[str, Any]:
        return molecules.look(room.asked(ask), ask)

    @router.post("/break")
    def broken(ask: forms.Break) -> dict[str, Any]:
        return molecules.broken(room.asked(ask), ask)

    @router.post("/repair")
    async def repair(ask: forms.Repair) -> Response:
        molecules.check_length(room.asked(ask), ask.smiles)
        return room.told(molecules.repair, ask)

    @router.post("/revise")
    async def revise(ask: forms.Revise) -> Response:
        model = room.asked(ask)
        molecules.check_length(model, ask.smiles)
        model.tokenizer.ids(ask.smiles)  # known tokens alone
        return room.told(molecules.revise, ask)

    @router.post("/sample")
    async def sample(ask: forms.Sample) -> Response:
        return room.told(molecules.sample, ask)

    return router


def story_routes(room: Room) -> APIRouter:
    router = APIRouter(prefix="/api/stories")

    @router.post("/read")
    def read(ask: forms.Read) -> dict[str, Any]:
        return stories.read(room.asked(ask), ask)

    @router.post("/infill")
    async def infill(ask: forms.Infill) -> Response:
        stories.holes(room.asked(ask), ask)
        return room.told(stories.infill, ask)

    @router.post("/revise")
    async def revise(ask: forms.Rewrite) -> Response:
        stories.whole(room.asked(ask), ask.text)
        return room.told(stories.revise, ask)

    @router.post("/sample")
    async def sample(ask: forms.Sample) -> Response:
        return room.told(stories.sample, ask)

    return router


def playlist_routes(room: Room) -> APIRouter:
    router = APIRouter(prefix="/api/playlists")

    @router.post("/search")
    def search(ask: forms.Search) -> dict[str, Any]:
        return playlists.search(room.asked(ask), ask)

    @router.post("/look")
    def look(ask: forms.Playlist) -> dict[str, Any]:
        return playlists.look(room.asked(ask), ask)

    @router.post("/continue")
    async def continued(ask: forms.Continue) -> Response:
        room.asked(ask).check(ask.tracks)
        return room.told(playlists.continued, ask)

    @router.post("/redraft")
    async def redrafted(ask: forms.Redraft) -> Response:
        library = room.asked(ask)
        library.check(ask.tracks)
        playlists.check_places(library, ask)
        return room.told(playlists.redrafted, ask)

    return router


def noise_routes(shelf: Shelf) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/noise")
    def noise(
        model: str = Query(min_length=1, max_length=80), t: int = Query(ge=1, le=100_000)
    ) -> dict[str, Any]:
        view = found(shelf, model).noise
        if view is None:
            raise UserError(f"the noise of {model} was not learned: it is as it was made")
        return view.map(t)

    return router


ROUTES: dict[str, Callable[[Room], APIRouter]] = {
    "molecules": molecule_routes,
    "stories": story_routes,
    "playlists": playlist_routes,
}


# ------------------------------------------------------------------ mistakes


def mistaken(request: Request, error: Exception) -> Response:
    return answer(404 if isinstance(error, Unknown) else 422, str(error))


def busy(request: Request, error: Busy) -> Response:
    return answer(503, str(error), **{"Retry-After": str(error.seconds)})


def malformed(request: Request, error: RequestValidationError) -> Response:
    """The first thing that is wrong: where, and what is accepted; never what came."""
    first = error.errors()[0]
    where = ".".join(str(part)[:40] for part in first["loc"][1:]) or "the request"
    said = "must be JSON" if "json" in first["type"] else first["msg"][:200]
    return answer(422, f"{where}: {said}")


def refused(request: Request, error: HTTPException) -> Response:
    said = {404: "there is nothing at this address", 405: "this address takes other methods"}
    return answer(error.status_code, said.get(error.status_code, str(error.detail)))


def failed(request: Request, error: Exception) -> JSONResponse:
    return answer(500, "this failed here; the terminal tells why")


COMPLAINTS: dict[Any, Any] = {
    Busy: busy,
    UserError: mistaken,
    RequestValidationError: malformed,
    HTTPException: refused,
    Exception: failed,
}
