"""A mark for each session that is being written: what a crash leaves for the catalog to read.

A writer sets its mark before its first commit and takes it away when the catalog has followed it
to its end. Marks are never synced: they are there after a kill, and what a loss of power takes with
it is found by looking at every log.
"""

import hashlib
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from perdure.durable import derived
from perdure.durable.files import Folder
from perdure.errors import PerdureError
from perdure.model import values
from perdure.runtime import Runtime

__all__ = ["FOLDER", "Mark", "Marking", "Marks"]

FOLDER = "writing"
_BYTES_MAX = 16 * 1024


class Mark(NamedTuple):
    """A session that somebody writes, or wrote.

    Attributes:
        name: of the mark.
        session: its id, or None: who set the mark died before it said which.

    """

    name: str
    session: str | None


class Marking(Protocol):
    """Where the marks of one namespace are kept."""

    def set(self, session: str) -> str | None:
        """See `Marks.set`."""

    def clear(self, name: str | None) -> None:
        """See `Marks.clear`."""

    def all(self) -> Iterator[Mark]:
        """See `Marks.all`."""


class _Told(msgspec.Struct):
    namespace: str
    session: str


class Marks:
    """The marks of one namespace, in the folder that belongs to a medium."""

    def __init__(self, beside: str | None, namespace: str, runtime: Runtime) -> None:
        """Nothing is touched; without a folder there are no marks."""
        self._beside = beside
        # A namespace may have a longer name than a small file has room for.
        self._named = _digest(namespace)
        self._runtime = runtime

    def set(self, session: str) -> str | None:
        """Mark a session as being written; the name of the mark, None if it cannot be set.

        Each writer has a mark of its own, so that none takes away another's.
        """
        if self._beside is None:
            return None
        name = f"{_digest(session)[:24]}-{self._runtime.token()}"
        told = values.encode({"namespace": self._named, "session": session})
        try:
            with (
                Folder.open(self._beside) as beside,
                beside.child(FOLDER, make=True, sync=False) as folder,
            ):
                # Under another name first: an empty mark would say that somebody died here.
                derived.create(folder, f".{name}", told)
                folder.move(f".{name}", folder, name)
        except (PerdureError, OSError):
            # The log is the truth; a mark only says where to look first.
            return None
        return name

    def clear(self, name: str | None) -> None:
        """Take a mark away; one that is not there is no error."""
        if self._beside is None or name is None:
            return
        with (
            suppress(PerdureError, OSError),
            Folder.open(self._beside) as beside,
            beside.child(FOLDER) as folder,
        ):
            folder.remove(name)

    def all(self) -> Iterator[Mark]:
        """The marks of this namespace, and those that say nothing."""
        if self._beside is None:
            return
        with (
            suppress(PerdureError, OSError),
            Folder.open(self._beside) as beside,
            beside.child(FOLDER) as folder,
        ):
            for name in folder.names():
                if name.startswith("."):
                    continue
                with suppress(FileNotFoundError):
                    told = _told(folder, name)
                    if told is None:
                        yield Mark(name, None)
                    elif told.namespace == self._named:
                        yield Mark(name, told.session)


def _digest(text: str) -> str:
    return hashlib.sha256(values.encode(text)).hexdigest()


def _told(folder: Folder, name: str) -> _Told | None:
    """What a mark says; None: nothing that can be read.

    Raises:
        FileNotFoundError: it was taken away.

    """
    try:
        return msgspec.convert(values.decode(folder.read(name, _BYTES_MAX)), _Told)
    except FileNotFoundError:
        raise
    except (PerdureError, OSError, ValueError, msgspec.ValidationError):
        return None
