"""Content beside a log: one file for each blob, named by the SHA-256 of its bytes.

`blobs/<first two digits>/<64 digits>`. A file appears whole, by a rename, and is never changed:
readers need no lock, and the same bytes put again take the place of the same bytes.
"""

import hashlib
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from perdure.backends.base import Blob
from perdure.durable.appending import ReadFile
from perdure.durable.cloning import clone
from perdure.durable.files import Folder
from perdure.errors import PerdureError, UnsafeFile

__all__ = ["drop", "put", "read", "share", "stored", "sweep"]

_BLOBS = "blobs"
_DIGITS = frozenset("0123456789abcdef")
_DIGEST_CHARS = 64


def put(session: Folder, parts: Iterable[bytes], token: str, now: int) -> Blob:
    """Store the bytes in a session's folder; durable when this returns."""
    size, digest = 0, hashlib.sha256()

    def counted() -> Iterator[bytes]:
        nonlocal size
        for part in parts:
            size += len(part)
            digest.update(part)
            yield part

    def build(blobs: Folder, building: str) -> str:
        blobs.create(building, counted())
        return digest.hexdigest()

    name = _shelve(session, token, build)
    return Blob(str(name), size, now)


def share(origin: Folder, session: Folder, digest: str, token: str, now: int) -> Blob | None:
    """Store content that another session's folder has, sharing its room on the disk.

    None if it is not there, has other bytes, or cannot be shared.
    """
    try:
        with origin.child(_BLOBS) as blobs, blobs.child(digest[:2]) as shelf:
            file = ReadFile(shelf, digest)
    except (FileNotFoundError, UnsafeFile):
        return None
    try:
        size, found = file.size(), hashlib.sha256()
        for part in file.chunks(0, size):
            found.update(part)
        if found.hexdigest() != digest:
            return None
        shared = _shelve(session, token, lambda *at: digest if clone(file, *at) else None)
        return Blob(digest, size, now) if shared is not None else None
    finally:
        file.close()


def _shelve(session: Folder, token: str, build: Callable[[Folder, str], str | None]) -> str | None:
    """Put what `build` makes, and names by its digest, in its place; nothing if that is None."""
    with session.child(_BLOBS, make=True) as blobs:
        # Whoever made it may have died before its entry was durable.
        session.sync()
        building = f".{token}"
        try:
            name = build(blobs, building)
            if name is None:
                return None
            with blobs.child(name[:2], make=True) as shelf:
                blobs.sync()
                blobs.move(building, shelf, name)
                shelf.sync()
        except BaseException:
            with suppress(PerdureError):
                blobs.remove(building)
            raise
    return name


def read(session: Folder, digest: str) -> Iterator[bytes] | None:
    """The bytes in parts, unchecked, or None; the file is opened before this returns."""
    try:
        with session.child(_BLOBS) as blobs, blobs.child(digest[:2]) as shelf:
            file = ReadFile(shelf, digest)
    except FileNotFoundError:
        return None
    return file.parts()


def stored(session: Folder) -> Iterator[Blob]:
    """What is stored, in order of the digests; only regular files are content."""
    try:
        blobs = session.child(_BLOBS)
    except FileNotFoundError:
        return
    with blobs:
        for prefix in blobs.names():
            if len(prefix) == 2 and _DIGITS.issuperset(prefix):
                # One shelf that is not ours hides no other.
                with suppress(UnsafeFile, FileNotFoundError), blobs.child(prefix) as shelf:
                    yield from _shelved(shelf, prefix)


def _shelved(shelf: Folder, prefix: str) -> Iterator[Blob]:
    for name in shelf.names():
        status = shelf.stat(name)
        named = len(name) == _DIGEST_CHARS and name.startswith(prefix) and _DIGITS.issuperset(name)
        if named and status is not None and stat.S_ISREG(status.st_mode):
            yield Blob(name, status.st_size, status.st_mtime_ns // 1_000_000)


def sweep(session: Folder) -> None:
    """Remove what writers that died left half written; nobody puts content now."""
    with suppress(FileNotFoundError), session.child(_BLOBS) as blobs:
        for name in blobs.names():
            if name.startswith("."):
                blobs.remove(name)


def drop(session: Folder, digests: Collection[str]) -> None:
    """Remove content. Called by the writer only."""
    try:
        blobs = session.child(_BLOBS)
    except FileNotFoundError:
        return
    with blobs:
        for prefix in sorted({digest[:2] for digest in digests}):
            with suppress(FileNotFoundError, UnsafeFile), blobs.child(prefix) as shelf:
                for digest in sorted(digests):
                    if digest.startswith(prefix):
                        shelf.remove(digest)
                shelf.sync()
