"""Where a command gives bytes out: a new private file that is whole or not there, or the output."""

import codecs
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import click

from perdure.cli import output
from perdure.durable.files import Folder, translated
from perdure.errors import PerdureError

__all__ = ["Counted", "output_options", "put_out", "write_new"]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def output_options(what: str) -> Callable[[_Command], _Command]:
    """Add `--output FILE` (as `target`) and `--force` to a command that gives out `what`."""

    def add(command: _Command) -> _Command:
        force = click.option("--force", is_flag=True, help="Write it to a terminal as it is.")
        target = click.option(
            "--output",
            "target",
            type=click.Path(),
            metavar="FILE",
            help=f"A new file for the {what}.",
        )
        return target(force(command))

    return add


class Counted:
    """Bytes in parts, counted as they pass.

    Attributes:
        size: how many bytes passed.

    """

    def __init__(self, parts: Iterator[bytes]) -> None:
        """Nothing passed yet."""
        self._parts = parts
        self.size = 0

    def __iter__(self) -> Iterator[bytes]:
        """The parts."""
        for part in self._parts:
            self.size += len(part)
            yield part


def write_new(path: str, parts: Iterable[bytes]) -> None:
    """Write a file that is not there yet, mode 0600; it stays only if all parts came.

    Raises:
        PerdureError: there is something at `path`, or it cannot be written; or as `parts` raise.

    """
    above, name = os.path.split(path)
    if name in ("", ".", ".."):
        raise PerdureError(f"{path!r} names no file")
    try:
        descriptor = os.open(above or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise translated(error, above) from error
    with Folder(above, descriptor) as folder:
        try:
            folder.create(name, parts)
        except FileExistsError:
            raise PerdureError(f"{path} exists already", hint="name a new file") from None
        except BaseException:
            with suppress(PerdureError):
                folder.remove(name)
            raise


def put_out(what: str, parts: Callable[[], Iterator[bytes]], *, force: bool) -> None:
    """Print bytes as they are; on a terminal, unless `force`, text with escapes and nothing else.

    Raises:
        PerdureError: they are no text, and nothing was printed; or as `parts` raise.

    """
    if sys.stdout.isatty() and not force:
        # Once more than needed: nothing is shown of what turns out to be no text.
        for _ in _text(what, parts()):
            pass
        for text in _text(what, parts()):
            output.line(text)
    else:
        sys.stdout.flush()
        for part in parts():
            output.content(part)


def _text(what: str, parts: Iterable[bytes]) -> Iterator[str]:
    """The lines of text."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    rest = ""
    try:
        for part in parts:
            *lines, rest = (rest + decoder.decode(part)).split("\n")
            if any("\0" in line for line in (*lines, rest)):
                raise UnicodeError
            yield from lines
        rest += decoder.decode(b"", final=True)
    except UnicodeError:
        raise PerdureError(
            f"{what} is no text, and the output is a terminal",
            hint="redirect it, or name a file with --output; --force prints it all the same",
        ) from None
    if rest:
        yield rest
