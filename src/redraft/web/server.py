"""The address, and the process behind it."""

import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import uvicorn

from redraft.errors import UserError
from redraft.model import load
from redraft.web.app import create
from redraft.web.desk import Desk, Job
from redraft.web.shelf import TABS, Served, Shelf

MOST = 128
"""Connections at once."""


def serve(names: Sequence[str], host: str, port: int, public: bool, device: str) -> None:
    """Until Ctrl-C."""
    door = listen(host, port)
    shelf = shelf_of(names, device)
    desk = Desk()
    warm(shelf, desk)
    config = uvicorn.Config(
        create(shelf, desk, public),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MOST,
        timeout_graceful_shutdown=2,
    )
    print(f"redraft shows {', '.join(shelf)} at {address(door)}   (Ctrl-C ends it)", flush=True)
    uvicorn.Server(config).run(sockets=[door])


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, or the reason why not, before any model is loaded."""
    if not 0 <= port <= 65535:
        raise UserError(f"--port must be in 0..65535, got {port}")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot listen at {host} port {port}: {reason}") from None


def address(door: socket.socket) -> str:
    host, port = door.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def shelf_of(names: Sequence[str], device: str) -> Shelf:
    """Models by the last part of their names; a second one of a name gets a number."""
    shelf: dict[str, Served] = {}
    for name in names:
        last = Path(name).resolve().name[:70] if Path(name).is_dir() else name[:70]
        label, number = last, 2
        while label in shelf:
            label, number = f"{last} {number}", number + 1
        shelf[label] = Served.of(load(name, device))
    return shelf


def warm(shelf: Shelf, desk: Desk) -> None:
    """What is lazy is done before the first person asks."""
    for served in shelf.values():
        if served.opened is not None:
            work = partial(TABS[served.domain].first, served.opened)
            desk.ask(Job(work, lambda event: None))
