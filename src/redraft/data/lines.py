"""Bring your own: any UTF-8 text file, plain or gzipped, one sequence a line."""

import gzip
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from redraft.errors import UserError


def read(path: str | Path) -> list[str]:
    """The lines of a file that are not blank."""
    return require(path, [line for _, line in numbered(path) if line.strip()])


def numbered(path: str | Path, errors: str = "strict") -> Iterator[tuple[int, str]]:
    """Every line with its number, from 1, without its ending; `errors` as in bytes.decode."""
    path = Path(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            yield from decoded(file, path, errors)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder, a text file is needed") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path} is named .gz, but is no complete gzip file") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None


def decoded(
    rows: Iterable[bytes], source: str | Path, errors: str = "strict"
) -> Iterator[tuple[int, str]]:
    """The same of an open file, or of what else gives bytes line by line."""
    for number, raw in enumerate(rows, 1):
        # Only the first line may start with a byte order mark.
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8", errors)
        except UnicodeDecodeError:
            raise UserError(f"{source} must be UTF-8 text, line {number} is not") from None
        yield number, line.rstrip("\r\n")


def require(path: str | Path, found: list[str]) -> list[str]:
    """What was found in a file, if anything was."""
    if not found:
        raise UserError(f"{path} holds no sequences, at least one line of text is needed")
    return found
