"""What is kept beside a log: `aside/<place>.bytes`, and `aside/<place>.json` that says why.

The note is written last, by a rename, so bytes that have one are whole. Bytes without one are what
a dead writer left: whoever keeps the same place again writes them anew.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from perdure.backends.base import Aside
from perdure.durable.appending import ReadFile
from perdure.durable.files import Folder
from perdure.errors import PerdureError
from perdure.model import values

__all__ = ["kept", "put", "read"]

_ASIDE = "aside"
_BYTES = ".bytes"
_NOTE = ".json"
_NOTE_BYTES_MAX = 64 * 1024


def put(
    session: Folder, place: str, parts: Callable[[], Iterable[bytes]], note: dict[str, Any]
) -> None:
    """Keep bytes in a session's folder; durable when this returns. At a place in use, nothing.

    `note` has `reason` (text) and `time` (Unix milliseconds), and what else is worth knowing.
    """
    with session.child(_ASIDE, make=True) as folder:
        # Whoever made it may have died before its entry was durable.
        session.sync()
        if folder.stat(place + _NOTE) is None:
            for name in folder.names():
                if name.startswith(".") or name == place + _BYTES:
                    folder.remove(name)
            folder.create(place + _BYTES, parts())
            # The note vouches for the bytes: it must not be there without them.
            folder.sync()
            folder.replace(place + _NOTE, values.encode(note) + b"\n")
        else:
            # It may have been seen and not be durable.
            folder.sync()


def kept(session: Folder) -> Iterator[Aside]:
    """What is kept, oldest first; a note that cannot be read hides no other."""
    found = []
    with suppress(FileNotFoundError), session.child(_ASIDE) as folder:
        for name in folder.names():
            place = name.removesuffix(_NOTE)
            status = folder.stat(place + _BYTES)
            if place != name and not name.startswith(".") and status is not None:
                note = _note(folder, name)
                reason, time = note.get("reason"), note.get("time")
                set_at = time if type(time) is int else status.st_mtime_ns // 1_000_000
                text = reason if isinstance(reason, str) else "its note cannot be read"
                found.append(Aside(place, text, status.st_size, set_at))
    return iter(sorted(found, key=lambda aside: (aside.set_at, aside.place)))


def _note(folder: Folder, name: str) -> dict[str, Any]:
    with suppress(FileNotFoundError, ValueError, PerdureError):
        note = values.decode(folder.read(name, _NOTE_BYTES_MAX))
        if isinstance(note, dict):
            return note
    return {}


def read(session: Folder, place: str) -> Iterator[bytes] | None:
    """The bytes in parts, or None; the file is opened before this returns."""
    try:
        with session.child(_ASIDE) as folder:
            if folder.stat(place + _NOTE) is None:
                return None
            file = ReadFile(folder, place + _BYTES)
    except FileNotFoundError:
        return None
    return file.parts()
