"""A user's mistake: one sentence that says what came and what is accepted."""

import difflib
import re
from collections.abc import Iterable


class UserError(Exception):
    """Told in one sentence, without a traceback; the command then exits with code 2."""

    exit_code = 2


class NotFound(Exception):
    """All went well, but what was asked for was not found; the command then exits with code 1."""

    exit_code = 1


class Stopped(Exception):
    """A signal ended the work early; nothing was lost, and the message says how to go on."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        self.exit_code = exit_code


def out_of_memory(error: Exception) -> bool:
    """Whether memory could not be had: by Python, numpy, or torch, which is not imported for it.

    >>> [out_of_memory(e) for e in (MemoryError(), RuntimeError("CUDA out of memory."), OSError())]
    [True, True, False]
    """
    said = r"can't allocate memory|not enough memory|out of memory|Storage size .* overflowed"
    torch = isinstance(error, RuntimeError) and re.search(said, str(error))
    return isinstance(error, MemoryError) or bool(torch)


def unknown(kind: str, got: str, accepted: Iterable[str]) -> UserError:
    """The error for a name that is not in a table, with the nearest name as a suggestion.

    >>> print(unknown("method", "vsd", ["mdlm", "vsdd"]))
    unknown method 'vsd'; did you mean 'vsdd'? Accepted: mdlm, vsdd
    """
    accepted = list(accepted)
    near = difflib.get_close_matches(got, accepted, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    return UserError(f"unknown {kind} '{got}'{hint} Accepted: {', '.join(accepted)}")
