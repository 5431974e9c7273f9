"""The trash of a namespace: `trash/<name>/<time>-<token>` is a session as it was when deleted.

Deleting and restoring are renames, so a session is in one place or the other. While a name has a
folder in the trash that is not empty, its id is not given to a new session.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from perdure.durable.files import Folder
from perdure.errors import SessionExists, SessionNotFound, UnsafeFile

__all__ = [
    "Discarded",
    "deleted_at",
    "discard",
    "discarded",
    "open_entry",
    "purge",
    "restore",
]

_TRASH = "trash"
_PURGING = ".purging-"


class Discarded(NamedTuple):
    """One entry: the session's name, the entry's own, and when it was deleted (Unix ms)."""

    name: str
    entry: str
    deleted_at: int


def _time_of(entry: str) -> int:
    time = entry.partition("-")[0]
    return int(time) if time.isascii() and time.isdigit() else 0


def discard(space: Folder, sessions: Folder, name: str, now: int, token: str) -> Discarded:
    """Move the session `name` to the trash of `space`; durable when this returns."""
    entry = f"{now:015d}-{token}"
    with space.child(_TRASH, make=True) as trash, trash.child(name, make=True) as place:
        # Whoever made them may have died before they were durable.
        space.sync()
        trash.sync()
        sessions.move(name, place, entry)
        place.sync()
        sessions.sync()
    return Discarded(name, entry, now)


def discarded(space: Folder) -> Iterator[Discarded]:
    """What is in the trash, by name, the oldest of each name first."""
    with suppress(FileNotFoundError), space.child(_TRASH) as trash:
        for name in trash.names():
            if not name.startswith("."):
                with suppress(FileNotFoundError, UnsafeFile), trash.child(name) as place:
                    for entry in place.names():
                        yield Discarded(name, entry, _time_of(entry))


def deleted_at(space: Folder, name: str) -> int | None:
    """When the session `name` was deleted last (Unix ms), or None if it is not in the trash."""
    with suppress(FileNotFoundError), space.child(_TRASH) as trash, trash.child(name) as place:
        return max(map(_time_of, place.names()), default=None)
    return None


def restore(space: Folder, sessions: Folder, name: str, session: str) -> None:
    """Move the session that was deleted last under `name` back; durable when this returns.

    Raises:
        SessionNotFound: there is none.
        SessionExists: a session that is not deleted has the name.

    """
    try:
        with space.child(_TRASH) as trash:
            with trash.child(name) as place:
                entries = place.names()
                if not entries:
                    raise SessionNotFound(session)
                if sessions.stat(name) is not None:
                    raise SessionExists(session)
                try:
                    place.move(max(entries), sessions, name)
                except FileExistsError:
                    raise SessionExists(session) from None
                sessions.sync()
                place.sync()
            trash.remove_if_empty(name)
    except FileNotFoundError:
        raise SessionNotFound(session) from None


def purge(space: Folder, name: str, entry: str, token: str) -> None:
    """Remove one entry for good, and what an earlier removal left when it was broken off."""
    with suppress(FileNotFoundError), space.child(_TRASH) as trash:
        with suppress(FileNotFoundError), trash.child(name) as place:
            if place.stat(entry) is not None:
                # Out of sight first: a part of a session shall not be taken for a session.
                place.move(entry, trash, f"{_PURGING}{token}")
                trash.sync()
                place.sync()
        trash.remove_if_empty(name)
        for left in trash.names():
            if left.startswith(_PURGING):
                trash.remove_tree(left)


def open_entry(space: Folder, found: Discarded) -> Folder:
    """The folder of an entry.

    Raises:
        FileNotFoundError: it is gone.

    """
    with space.child(_TRASH) as trash, trash.child(found.name) as place:
        return place.child(found.entry)
