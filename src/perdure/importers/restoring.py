"""What belongs to an import besides its file, written as files again.

Those are the files beside the source, and the files of its sub-agents that lie below its folder,
with what lies beside them. Their names come from logs, which may be anybody's: nothing is written
outside of the folder that is named, through a link, or over anything that is there.
"""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

from perdure.durable.files import Folder
from perdure.errors import InvalidValue, PerdureError, StorageFull
from perdure.importers.files import NoSourceError, SourceFile, UnreadableSourceError
from perdure.importers.stored_lines import source_bytes, stored_files
from perdure.model import values
from perdure.model.header import Source
from perdure.store import Store
from perdure.store.families import one_machine

__all__ = ["Restored", "Unwritten", "belongings", "restore"]

_STEP_BYTES = 1024 * 1024

Bytes = Callable[[], Iterator[bytes]]
"""Reads what is kept, as often as it is called."""


class Unwritten(NamedTuple):
    """A file that was not written, and why."""

    name: str
    reason: str


class Restored(NamedTuple):
    """What became of the files that were to be written.

    Attributes:
        written: names of those that are there now, as they are kept.
        skipped: the others, with the reason.

    """

    written: tuple[str, ...]
    skipped: tuple[Unwritten, ...]


def belongings(store: Store, id: str, generation: int | None = None) -> dict[str, Bytes]:
    """What belongs to an import besides its file: names, relative to its folder, and the bytes.

    Of the files beside it and of sub-agents the last that was kept; `generation` leaves out the
    files that came behind that one. A name may be anything.

    Raises:
        SessionNotFound, SessionDamaged: a session cannot be read.

    """
    found: dict[str, Bytes] = {}
    seen = {id}
    root = _source(store, id)
    waiting = [(id, "", generation)]
    while waiting:
        session, above, number = waiting.pop()
        try:
            beside = stored_files(store, session, number)
        except PerdureError:
            if session == id:
                raise
            # That this sub-agent cannot be read is told of when its own file is to be written.
            beside = {}
        for name, digest in beside.items():
            found[_joined(above, name)] = _content(store, session, digest)
        for child in store.children(session):
            source = None if child.header is None else child.header.source
            place = _below(root, source)
            if child.kind == "subagent" and child.session not in seen and place is not None:
                seen.add(child.session)
                found[place] = _file(store, child.session)
                waiting.append((child.session, os.path.dirname(place), None))  # noqa: PTH120
    return found


def restore(files: Iterable[tuple[str, Bytes]], folder: str) -> Restored:
    """Write files, as `belongings` has them, into a folder that is there, whatever their names say.

    Folders below it are made, with mode 0700; files get mode 0600. No link is followed, and what is
    there stays: a file that has the same bytes already counts as written. What cannot be written is
    skipped and named.

    Raises:
        StorageUnavailable, UnsafeFile: the folder cannot be used.
        StorageFull: what was written before is there.

    """
    written: list[str] = []
    skipped: list[Unwritten] = []
    place = os.path.abspath(folder)  # noqa: PTH100
    with _opened(place) as root:
        for name, content in files:
            try:
                _write(root, name, content)
            except StorageFull:
                raise
            except PerdureError as error:
                reason = error.reason if isinstance(error, InvalidValue) else error.message
                skipped.append(Unwritten(name, reason))
            else:
                written.append(name)
    return Restored(tuple(written), tuple(skipped))


def _opened(folder: str) -> Folder:
    """The folder, which may be anybody's, as those below it: none is led through by a link."""
    try:
        return Folder.open_shared(folder, any_owner=True)
    except FileNotFoundError as error:
        raise InvalidValue("folder", f"{values.shown(folder)} is not there") from error


def _write(root: Folder, name: str, content: Bytes) -> None:
    """Write one file.

    Raises:
        PerdureError: it was not written.

    """
    *above, last = _parts(name)
    with ExitStack() as stack:
        folder = root
        for part in above:
            folder = stack.enter_context(folder.child(part, make=True))
        try:
            folder.create(last, content())
        except FileExistsError:
            path = os.path.join(folder.path, last)  # noqa: PTH118
            if not _is_same(path, content):
                raise InvalidValue("name", "something else is there already") from None
        folder.sync()


def _parts(name: str) -> list[str]:
    """The parts of a name.

    Raises:
        InvalidValue: it could lead out of its folder, or can be no path of this system.

    """
    parts = name.split("/")
    odd = any(part in ("", ".", "..") or "\0" in part or os.sep in part for part in parts)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        odd = True
    if odd:
        raise InvalidValue("name", "leads out of its folder, or is no path")
    return parts


def _is_same(path: str, content: Bytes) -> bool:
    """Whether a regular file has just these bytes."""
    wanted, size = hashlib.sha256(), 0
    for part in content():
        wanted.update(part)
        size += len(part)
    try:
        with SourceFile(path) as file:
            return file.fingerprint.size == size and file.digest(size) == wanted.hexdigest()
    except (NoSourceError, UnreadableSourceError):
        return False


def _source(store: Store, id: str) -> Source | None:
    header = store.inspect(id).header
    return None if header is None else header.source


def _below(root: Source | None, source: Source | None) -> str | None:
    """The path of a sub-agent's file from the folder of its parent's; None: it is not below it."""
    if root is None or source is None or not root.path or not source.path:
        return None
    folder = os.path.dirname(root.path).rstrip("/") + "/"  # noqa: PTH120
    inside = source.path.startswith(folder) and one_machine(root, source)
    return source.path[len(folder) :] if inside else None


def _joined(above: str, name: str) -> str:
    return f"{above}/{name}" if above else name


def _content(store: Store, id: str, digest: str) -> Bytes:
    return lambda: store.open_blob(id, digest)


def _file(store: Store, id: str) -> Bytes:
    return lambda: source_bytes(store, id)
