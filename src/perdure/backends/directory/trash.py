"""The trash of a namespace: `trash/<name>/<time>-<token>` is a session as it was when deleted.

Deleting and restoring are renames, so a session is in one place or the other. While a name has a
folder in the trash that is not empty, its id is not given to a new session.

What is not to be seen in the trash may still be there after a loss of power, if whoever moved it
out died before that was durable. So nobody builds on its absence before it is: not who removes what
was moved, nor who removes the folder that it stood in, nor who gives its id to a new session.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple

from perdure.durable.files import Folder
from perdure.durable.locks import Lock
from perdure.errors import SessionExists, SessionNotFound, UnsafeFile
from perdure.model.identity import escape_id
from perdure.runtime import Runtime

__all__ = [
    "Discarded",
    "deleted_at",
    "discard",
    "discarded",
    "open_entry",
    "purge",
    "restore",
    "sweep",
    "vouch",
]

_TRASH = "trash"
_PURGING = ".purging-"
_ENTRY = re.compile("[0-9]{15}-[0-9a-f]+")


class Discarded(NamedTuple):
    """One entry: the session's name, the entry's own, and when it was deleted (Unix ms)."""

    name: str
    entry: str
    deleted_at: int


def _time_of(entry: str) -> int:
    return int(entry.partition("-")[0])


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
                    for entry in _entries(place):
                        yield Discarded(name, entry, _time_of(entry))


def deleted_at(space: Folder, name: str) -> int | None:
    """When the session `name` was deleted last (Unix ms), or None if it is not in the trash."""
    with suppress(FileNotFoundError), space.child(_TRASH) as trash, trash.child(name) as place:
        return max(map(_time_of, _entries(place)), default=None)
    return None


def restore(
    space: Folder, sessions: Folder, session: str, runtime: Runtime, then: Callable[[], None]
) -> None:
    """Move the session that was deleted last back; durable when `then` is called.

    Raises:
        SessionNotFound: there is none.
        SessionExists: a session that is not deleted has the name.
        SessionBusy: somebody else restores or removes it.

    """
    name = escape_id(session)
    try:
        with space.child(_TRASH) as trash, trash.child(name) as place:
            entries = _entries(place)
            if not entries:
                raise SessionNotFound(session)
            with _alone(place, entries[-1], session, runtime):
                if sessions.stat(name) is not None:
                    raise SessionExists(session)
                try:
                    place.move(entries[-1], sessions, name)
                except FileExistsError:
                    raise SessionExists(session) from None
                sessions.sync()
                place.sync()
                then()
                # Before the next deletion can begin, which would need it.
                trash.remove_if_empty(name)
    except FileNotFoundError:
        raise SessionNotFound(session) from None


def _entries(place: Folder) -> list[str]:
    """The deleted sessions of one name, the oldest first; what else stands there is not ours."""
    return [entry for entry in place.names() if _ENTRY.fullmatch(entry)]


@contextmanager
def _alone(place: Folder, entry: str, session: str, runtime: Runtime) -> Iterator[None]:
    """Hold the lock of a deleted session, which is its own lock file.

    Raises:
        FileNotFoundError: it is not there any more.
        SessionBusy: somebody else holds it.

    """
    with place.child(entry) as folder:
        lock = Lock(folder, session, runtime=runtime)
        try:
            there = place.stat(entry)
            if there is None or there.st_ino != folder.inode:
                raise FileNotFoundError(entry)
            yield
        finally:
            lock.release()


def purge(
    space: Folder, found: Discarded, session: str, runtime: Runtime, first: Callable[[], None]
) -> bool:
    """Remove one entry for good; False if it is gone. `first` is called before that.

    Raises:
        SessionBusy: somebody else restores or removes it.

    """
    try:
        with space.child(_TRASH) as trash:
            with trash.child(found.name) as place, ExitStack() as stack:
                if place.stat(found.entry) is None:
                    return False
                with suppress(UnsafeFile):
                    # What is not private cannot be restored either, so nobody is in the way.
                    stack.enter_context(_alone(place, found.entry, session, runtime))
                first()
                # Out of sight: a part of a session shall not be taken for a session.
                hidden = f"{_PURGING}{runtime.token()}"
                place.move(found.entry, trash, hidden)
                trash.sync()
                place.sync()
                _drop_place(space, trash, found.name)
            trash.remove_tree(hidden)
    except FileNotFoundError:
        return False
    return True


def _drop_place(space: Folder, trash: Folder, name: str) -> None:
    """Remove the folder of a name from which everything was moved away, durably."""
    with suppress(FileNotFoundError), space.child("sessions") as sessions:
        if sessions.stat(name) is not None:
            # It may have been restored by somebody who died before that was durable: the session
            # would come back to a folder that is gone.
            sessions.sync()
    trash.remove_if_empty(name)


def sweep(space: Folder) -> None:
    """Remove what an interrupted `purge` left; nothing that is gone comes back after this."""
    with suppress(FileNotFoundError), space.child(_TRASH) as trash:
        for left in _hidden(trash):
            trash.remove_tree(left)


def vouch(space: Folder) -> None:
    """See to it that what was removed from the trash does not come back."""
    with suppress(FileNotFoundError), space.child(_TRASH) as trash:
        _hidden(trash)


def _hidden(trash: Folder) -> list[str]:
    """What was moved out of sight, and not removed yet; durably out of sight.

    Whoever moved it may have died before. Nobody removes any of it before this, so where nothing is
    left there is nothing to make up for.
    """
    left = [name for name in trash.names() if name.startswith(_PURGING)]
    if left:
        trash.sync()
    return left


def open_entry(space: Folder, found: Discarded) -> Folder:
    """The folder of an entry.

    Raises:
        FileNotFoundError: it is gone.

    """
    with space.child(_TRASH) as trash, trash.child(found.name) as place:
        return place.child(found.entry)
