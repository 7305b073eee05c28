"""The command `redraft`: a table of words."""

import errno
import importlib
import io
import logging
import os
import sys
from collections.abc import Callable
from functools import partial

from redraft.errors import NotFound, Stopped, UserError, out_of_memory, unknown

COMMANDS = {
    "quickstart": "a minute on a CPU: generate, repair, fill in, train, see the learned noise",
    "data": "fetch and prepare a data set, or check a file of your own",
    "train": "train a model from a recipe, or on a file of your own",
    "sample": "generate new sequences with a trained model",
    "infill": "fill the [MASK]s of a sequence",
    "revise": "re-draft sequences: noise them a little, and come back",
    "repair": "bring molecules that do not parse to the nearest ones that do",
    "playlist": "continue a playlist, or replace what it repeats",
    "evaluate": "the numbers of a trained model, with intervals",
    "noise": "what a learned noise has become, in numbers and maps",
    "compare": "several recipes under one budget, one table with intervals",
    "report": "one HTML file on some runs: numbers, figures, samples, how to reproduce",
    "serve": "a local page: watch a sequence being re-drafted, step by step",
    "bench": "measure speed, as ratios within one run",
}

TOO_MUCH = (
    "memory did not suffice; lower what was asked for: -n, or in training the recipe's sizes, "
    "such as denoiser.width or train.batch"
)


def usage() -> str:
    rows = "\n".join(f"  {word:<11} {what}" for word, what in COMMANDS.items())
    return (
        "redraft: discrete diffusion that learns how to corrupt\n\n"
        f"usage: redraft COMMAND ...\n\n{rows}\n\n"
        "redraft COMMAND --help tells more."
    )


def complain(error: Exception | str) -> None:
    """One sentence on standard error; of many processes, the first one speaks for all."""
    if os.environ.get("RANK", "0") == "0":
        print(f"redraft: {error}", file=sys.stderr)


def act(word: str, rest: list[str]) -> None:
    if word in ("-h", "--help"):
        print(usage())
    elif word == "--version":
        print(importlib.import_module("redraft").__version__)
    elif word in COMMANDS:
        # Recorded steps of many shapes share memory better in segments that can grow.
        os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        importlib.import_module("redraft.commands").run(word, rest)
    else:
        raise unknown("command", word, COMMANDS)
    sys.stdout.flush()  # or what cannot be written would only be known at exit


def main(arguments: list[str] | None = None) -> int:
    word, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    logging.basicConfig(format="redraft: %(message)s")
    logging.getLogger("huggingface_hub").propagate = False  # it speaks for itself
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # where an encoding lacks characters
    return outcome(partial(act, word, rest))


def outcome(action: Callable[[], object]) -> int:
    """The exit code of what a user asked for; a mistake is told in one sentence."""
    try:
        action()
        return 0
    except (UserError, NotFound, Stopped) as error:
        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 141
    except OSError as error:
        if error.errno == errno.ENOSPC and not error.filename:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing more at exit
            complain(f"the output cannot be written: {error.strerror}")
            return 2
        if not (error.filename and error.strerror):  # nothing that a user could mend
            raise
        complain(f"{error.filename} cannot be used: {error.strerror}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        print(f"redraft: {TOO_MUCH}", file=sys.stderr)  # of each process, whose memory is its own
        return 2
