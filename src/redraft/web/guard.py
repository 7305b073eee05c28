"""Whom the page answers, and how: the host, the origin, the size, the headers.

A page elsewhere can make a browser ask this address under a name of its own (DNS rebinding), so a
name that is not ours gets no answer; an address in digits cannot be pretended.
"""

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LARGEST = 32768
"""Bytes of a request's body."""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True)
class Guard:
    app: ASGIApp
    public: bool = False
    """Whether others than this machine may ask."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a page of ours opens no socket
        refusal = self.refusal(Headers(scope=scope))
        app = self.app if refusal is None else refusal
        await app(scope, limited(receive), labelled(send))

    def refusal(self, headers: Headers) -> ASGIApp | None:
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.ours(host):
            return answer(421, "this server answers to its own address alone, not to this name")
        if origin is not None and urlsplit(origin).netloc != host:
            return answer(403, "pages from elsewhere may not ask this server")
        size = headers.get("content-length", "0")
        if not size.isdecimal() or len(size) > 9 or int(size) > LARGEST:
            return answer(413, f"a request has at most {LARGEST} bytes")
        return None

    def ours(self, host: str) -> bool:
        """Whether a Host header names this machine, or is an address in digits."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name == "localhost" or (self.public and name == socket.gethostname().lower()):
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.public or address.is_loopback


def answer(status: int, sentence: str, **headers: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status, headers)


def limited(receive: Receive) -> Receive:
    """A body without a stated length may not be larger either."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > LARGEST:
            raise HTTPException(413, f"a request has at most {LARGEST} bytes")
        return message

    return counted


def labelled(send: Send) -> Send:
    async def with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return with_headers
