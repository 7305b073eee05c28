"""Where it is shown, and what can be shown there."""

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def in_ascii(text: str) -> str:
    return text.replace("±", "+-")


def takes_blocks(console: "Console") -> bool:
    """Whether the output can hold more than ASCII."""
    return not console.options.ascii_only


def new_console() -> "Console":
    """Standard output; when its reader leaves, that is a BrokenPipeError, as it is for print."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for what is left
            raise BrokenPipeError

    return Piped()
