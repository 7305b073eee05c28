"""One computation at a time, in the order of asking; a line that is full says for how long.

A job is a function that says what it finds, event by event. Whoever stops listening withdraws it:
one that waits is forgotten, one that runs ends at its next word.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from redraft.errors import UserError

Event = dict[str, Any]

FIRST_GUESS = 2.0
"""Seconds that a job takes, before any was seen."""


class Busy(UserError):
    """The line is full."""

    def __init__(self, waiting: int, seconds: int):
        super().__init__(
            f"busy: {waiting} others are waiting; try again in about {seconds} seconds"
        )
        self.seconds = seconds


class Withdrawn(Exception):
    """Nobody listens any more."""


class Job:
    def __init__(self, work: "Callable[[Job], None]", tell: Callable[[Event | None], None]):
        self.work, self.tell = work, tell
        self.withdrawn = threading.Event()

    def check(self) -> None:
        """Ends the work where nobody listens."""
        if self.withdrawn.is_set():
            raise Withdrawn

    def say(self, kind: str, **facts: Any) -> None:
        self.check()
        self.tell({"kind": kind, **facts})

    def run(self) -> None:
        """To its end, whichever: an error is one sentence, and None closes the story."""
        try:
            self.work(self)
        except Withdrawn:
            pass
        except UserError as error:
            self.tell({"kind": "error", "message": str(error)})
        except Exception:
            logging.getLogger(__name__).exception("a computation failed")
            self.tell({"kind": "error", "message": "this failed here; the terminal tells why"})
        finally:
            self.tell(None)


class Desk:
    """A thread that takes one job after the other, and so many seats for those that wait."""

    def __init__(self, seats: int = 32):
        self.seats, self.pace = seats, FIRST_GUESS
        self.line: deque[Job] = deque()
        self.current: Job | None = None
        self.open = True
        self.change = threading.Condition()
        self.thread = threading.Thread(target=self._serve, name="desk", daemon=True)
        self.thread.start()

    def ask(self, job: Job) -> None:
        with self.change:
            if len(self.line) >= self.seats or not self.open:
                raise Busy(len(self.line), self._seconds(len(self.line)))
            self.line.append(job)
            self.change.notify()

    def waiting(self, job: Job) -> tuple[int, int] | None:
        """How many come first, and about how many seconds they take; None once it has begun."""
        with self.change:
            if job not in self.line:
                return None
            ahead = self.line.index(job) + (self.current is not None)
            return ahead, self._seconds(ahead)

    def withdraw(self, job: Job) -> None:
        job.withdrawn.set()
        with self.change:
            if job in self.line:
                self.line.remove(job)

    def close(self) -> None:
        """Ends what runs, forgets what waits."""
        with self.change:
            self.open = False
            left = [*self.line, *([self.current] if self.current else [])]
            self.line.clear()
            self.change.notify()
        for job in left:
            job.withdrawn.set()
        self.thread.join(timeout=10)

    def _seconds(self, jobs: int) -> int:
        return max(1, round(jobs * self.pace))

    def _next(self) -> Job | None:
        with self.change:
            self.current = None
            self.change.wait_for(lambda: self.line or not self.open)
            self.current = self.line.popleft() if self.line else None
            return self.current

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            started = time.monotonic()
            job.run()
            self.pace = 0.8 * self.pace + 0.2 * (time.monotonic() - started)
            del job  # or the last one would be kept until the next comes
