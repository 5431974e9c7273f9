"""The session that keeps a source: what it is called, and the text that comes out of it again."""

import hashlib
import os
from collections.abc import Iterator

from perdure.errors import InvalidValue
from perdure.lenses.lines import lines_of, place_of, starts_of
from perdure.store import Store

__all__ = ["last_generation", "session_id", "source_bytes", "source_text", "stored_parts"]

_BYTES = "source/bytes"
"""As `perdure.importers.beside` says it, which is built on this."""


def session_id(
    format: str,  # noqa: A002
    path: str,
    source_id: str | None = None,
    *,
    host: str = "",
) -> str:
    """Id of the session that keeps the file at the absolute `path` of a machine.

    Both are part of it: the files of a fork or a copy carry the same id, and so may those of
    another machine.
    """
    stem = os.path.basename(path).partition(".")[0]  # noqa: PTH119
    place = hashlib.sha256(os.fsencode(f"{host}\0{path}")).hexdigest()[:12]
    return f"{format}:{source_id or stem or 'file'}:{place}"


def source_text(store: Store, id: str, *, generation: int | None = None) -> Iterator[bytes]:
    """The imported text of a source, byte for byte as it was found, compressed or not.

    `generation` gives the text as it was before the source was rewritten; 0 is what was found
    first, by default it is the last.

    Raises:
        SessionNotFound: there is none.
        SessionDamaged: raised by the iteration, after the last line that holds.
        ContentExpired, ContentDamaged: as that, of a line too long for a record.

    """
    _check(generation)
    starts = starts_of(store.read_from(id), generation)
    return _text(store, id, starts, generation)


def source_bytes(store: Store, id: str, generation: int | None = None) -> Iterator[bytes]:
    """The file of a source as it was found: of a compressed one its very bytes, else its text.

    `generation` as for `source_text`. Where a compressed file is not kept as it was found, because
    the import of it was broken off, it is the text all the same; `stored_parts` tells.

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
    _check(generation)
    parts: list[str] = []
    behind = False
    for event in store.read_from(id):
        place = place_of(event)
        if place is not None:
            if generation is not None and place.generation > generation:
                break
            # Bytes are stored behind their lines: until they come, those that are there lack some.
            behind = True
        elif event.type == _BYTES and isinstance(event.data, dict):
            first = event.data.get("offset") == 0
            parts = [*(() if first else parts), str(event.data.get("blob"))]
            behind = False
    return [] if behind else parts


def last_generation(store: Store, id: str) -> int:
    """How often lines of the source were stored anew: the number of its last generation.

    Raises:
        SessionNotFound, SessionDamaged: as `source_text`.

    """
    return max(starts_of(store.read_from(id)), default=0)


def _check(generation: int | None) -> None:
    if generation is not None and (type(generation) is not int or generation < 0):
        raise InvalidValue("generation", "is not a count", hint="0 is what was found first")


def _text(store: Store, id: str, starts: dict[int, int], generation: int | None) -> Iterator[bytes]:
    for line in lines_of(store.read_from(id), starts):
        if generation is not None and line.place.generation > generation:
            return
        if line.raw is not None:
            yield line.raw
        elif line.blob is not None:
            yield from store.open_blob(id, line.blob)
