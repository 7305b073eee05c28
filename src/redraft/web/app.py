"""Paths to functions: the page, and what it asks for."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from redraft.errors import UserError
from redraft.model import Model
from redraft.web import forms, molecules
from redraft.web.desk import Busy, Desk, Event, Job
from redraft.web.guard import Guard, answer
from redraft.web.noise import NoiseView

STATIC = Path(__file__).parent / "static"
KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True)
class Served:
    """A model on the page."""

    model: Model
    noise: NoiseView | None

    @classmethod
    def of(cls, model: Model) -> "Served":
        return cls(model, NoiseView.of(model))

    def facts(self, name: str) -> dict[str, Any]:
        config, process = self.model.config, self.model.trained.process
        return {
            "name": name,
            "domain": config.data.domain,
            "method": config.method,
            "T": process.T,
            "noise": self.noise is not None,
        }


Shelf = Mapping[str, Served]


class Unknown(UserError):
    """A name that is not on the shelf."""


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
    for routes in (static_routes(), molecule_routes(shelf, desk), noise_routes(shelf)):
        app.include_router(routes)
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


def molecule_routes(shelf: Shelf, desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/api")

    def chosen(ask: forms.Form) -> Model:
        return of_molecules(shelf, ask.model)

    def told(work: Callable[..., None], ask: Any) -> Response:
        return Told(desk, partial(work, chosen(ask), ask))

    @router.get("/models")
    def models() -> dict[str, Any]:
        facts = [served.facts(name) for name, served in shelf.items()]
        return {"models": facts, "examples": molecules.EXAMPLES}

    @router.post("/look")
    def look(ask: forms.Look) -> dict[str, Any]:
        return molecules.look(chosen(ask), ask)

    @router.post("/break")
    def broken(ask: forms.Break) -> dict[str, Any]:
        return molecules.broken(chosen(ask), ask)

    @router.post("/repair")
    async def repair(ask: forms.Repair) -> Response:
        molecules.check_length(chosen(ask), ask.smiles)
        return told(molecules.repair, ask)

    @router.post("/revise")
    async def revise(ask: forms.Revise) -> Response:
        model = chosen(ask)
        molecules.check_length(model, ask.smiles)
        model.tokenizer.ids(ask.smiles)  # known tokens alone
        return told(molecules.revise, ask)

    @router.post("/sample")
    async def sample(ask: forms.Sample) -> Response:
        return told(molecules.sample, ask)

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


def found(shelf: Shelf, name: str) -> Served:
    if name not in shelf:
        raise Unknown(f"no such model is served; accepted: {', '.join(shelf)}")
    return shelf[name]


def of_molecules(shelf: Shelf, name: str) -> Model:
    model = found(shelf, name).model
    if model.config.data.domain != "molecules":
        raise UserError(f"{name} knows {model.config.data.domain}, not molecules")
    return model


# ------------------------------------------------------------------ streams


class Told(StreamingResponse):
    """A job's events as they come (server-sent); who closes the connection withdraws the job."""

    def __init__(self, desk: Desk, work: Callable[[Job], None]):
        loop, self.outbox = asyncio.get_running_loop(), asyncio.Queue()

        def tell(event: Event | None) -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self.outbox.put_nowait, event)

        self.desk, self.job = desk, Job(work, tell)
        desk.ask(self.job)  # or says that it is busy
        super().__init__(self.events(), media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.desk.withdraw(self.job)

    async def events(self) -> AsyncIterator[str]:
        """While the job waits, every second how long; a comment shows that the line still holds."""
        yield self.patience()
        while True:
            try:
                event = await asyncio.wait_for(self.outbox.get(), 1)
            except TimeoutError:
                yield self.patience()
                continue
            if event is None:
                return
            yield written(event)

    def patience(self) -> str:
        waiting = self.desk.waiting(self.job)
        if waiting is None:
            return ":\n\n"
        return written({"kind": "waiting", "ahead": waiting[0], "seconds": waiting[1]})


def written(event: Event) -> str:
    return f"data: {json.dumps(event)}\n\n"


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
