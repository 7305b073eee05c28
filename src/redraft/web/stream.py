"""A computation as it goes, over one connection (server-sent events)."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from redraft.web.desk import Desk, Event, Job


class Told(StreamingResponse):
    """A job's events as they come; who closes the connection withdraws the job."""

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
