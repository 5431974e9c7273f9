"""The session that keeps a source: what it is called, and what comes out of it again."""

import hashlib
import os
from collections.abc import Iterator

from perdure.errors import InvalidValue
from perdure.lenses.lines import SourceLines
from perdure.store import Store

__all__ = [
    "BYTES",
    "FILE",
    "FOUND",
    "GONE",
    "PLAIN",
    "last_generation",
    "maybe_compressed",
    "place_of",
    "session_id",
    "source_bytes",
    "source_text",
    "stored_files",
    "stored_parts",
]

BYTES, FILE, PLAIN = "source/bytes", "source/file", "source/plain"
"""A part of a compressed source, a file beside a source, and that a source which was compressed is
so no more; see `perdure.importers.beside`."""

GONE, FOUND = "source/gone", "source/found"
"""The source is not there any more, and it is there again; see `perdure.importers.absence`."""


def session_id(
    format: str,  # noqa: A002
    path: str,
    source_id: str | None = None,
    *,
    machine: str = "",
) -> str:
    """Id of the session that keeps the file at the absolute `path` of a machine.

    Both are part of it: the files of a fork or a copy carry the same id, and so may those of
    another machine.
    """
    stem = os.path.basename(path).partition(".")[0]  # noqa: PTH119
    named = source_id or stem or "file"
    # What cannot be typed names nothing on a command line; the place tells sessions apart.
    typed = "".join(each if each.isprintable() and each != " " else "_" for each in named)
    return f"{format}:{typed}:{place_of(machine, path)}"


def place_of(machine: str, path: str) -> str:
    """What machine and absolute path make of the id of a session, whatever its agent calls it."""
    return hashlib.sha256(os.fsencode(f"{machine}\0{path}")).hexdigest()[:12]


def source_text(store: Store, id: str, *, generation: int | None = None) -> Iterator[bytes]:
    """The imported text of a source, byte for byte as it was found, compressed or not.

    By default it is what stood in the source last. `generation` gives what stood there before it
    was rewritten: 0 before it was rewritten for the first time, with all that it had grown by until
    then.

    Raises:
        SessionNotFound: there is none.
        SessionDamaged: raised by the iteration, after the last line that holds.
        ContentExpired, ContentDamaged: as that, of a line too long for a record.

    """
    _check(generation)
    lines = _lines(store, id)
    starts = lines.starts(store.read_from(id), generation)
    return _text(store, id, lines, starts)


def source_bytes(store: Store, id: str, generation: int | None = None) -> Iterator[bytes]:
    """The file of a source as it was found: of a compressed one its very bytes, else its text.

    `generation` as for `source_text`. A file that was compressed, unpacked, or compressed anew with
    the same text is one generation, and comes in the form that it had last. Where a compressed file
    is not kept as it was found, because the import of it was broken off, it is the text all the
    same; `stored_parts` tells.

    Raises:
        As `source_text`.

    """
    parts = stored_parts(store, id, generation)
    if not parts:
        return source_text(store, id, generation=generation)
    return (piece for digest in parts for piece in store.open_blob(id, digest))


def stored_parts(store: Store, id: str, generation: int | None = None) -> list[str]:
    """Digests of the content that makes up a compressed file; none where its text is all there is.

    Raises:
        InvalidValue: `generation` is not a count.
        SessionNotFound, SessionDamaged: as `source_text`.

    """
    return _form(store, id, generation)[1]


def maybe_compressed(store: Store, id: str, generation: int | None = None) -> bool:
    """Whether the file may have been compressed when it was found last: nothing says it was not.

    Raises:
        As `stored_parts`.

    """
    return _form(store, id, generation)[0]


def _form(store: Store, id: str, generation: int | None) -> tuple[bool, list[str]]:
    """Whether it may be compressed, and the digests of its parts, if these are all of it."""
    _check(generation)
    lines = _lines(store, id)
    parts: list[str] = []
    plain = behind = False
    for event in store.read_from(id):
        place = lines.place(event)
        if place is not None:
            if generation is not None and place.generation > generation:
                break
            # Bytes are stored behind their lines: until they come, those that are there lack some.
            behind = True
        elif event.type == BYTES and isinstance(event.data, dict):
            first = event.data.get("offset") == 0
            parts = [*(() if first else parts), str(event.data.get("blob"))]
            plain = behind = False
        elif event.type == PLAIN:
            plain, parts = True, []
    return not plain, [] if behind else parts


def stored_files(store: Store, id: str, generation: int | None = None) -> dict[str, str]:
    """The files beside a source that are kept: name to digest of the content, as stored last.

    A name is relative to the folder of the source, and the log may have it from anybody: nothing is
    to be written by it that was not checked. `generation` leaves out what was stored behind that
    one.

    Raises:
        InvalidValue: `generation` is not a count.
        SessionNotFound, SessionDamaged: as `source_text`.

    """
    _check(generation)
    lines = _lines(store, id)
    files: dict[str, str] = {}
    for event in store.read_from(id):
        place = lines.place(event)
        if place is not None and generation is not None and place.generation > generation:
            break
        if event.type == FILE and isinstance(event.data, dict):
            name, digest = event.data.get("name"), event.data.get("blob")
            if isinstance(name, str) and isinstance(digest, str):
                files[name] = digest
    return files


def last_generation(store: Store, id: str) -> int:
    """How often lines of the source were stored anew: the number of its last generation.

    Raises:
        SessionNotFound, SessionDamaged: as `source_text`.

    """
    return max(_lines(store, id).starts(store.read_from(id)), default=0)


def _lines(store: Store, id: str) -> SourceLines:
    header = store.inspect(id).header
    # A session that keeps no source has no lines of one.
    return SourceLines("") if header is None else SourceLines.of(header)


def _check(generation: int | None) -> None:
    if generation is not None and (type(generation) is not int or generation < 0):
        raise InvalidValue("generation", "is not a count", hint="0 is before the first rewrite")


def _text(store: Store, id: str, lines: SourceLines, starts: dict[int, int]) -> Iterator[bytes]:
    for line in lines.lines(store.read_from(id), starts):
        if line.raw is not None:
            yield line.raw
        elif line.blob is not None:
            yield from store.open_blob(id, line.blob)
