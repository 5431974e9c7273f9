"""What belongs to a session: content, artifacts, the file it was imported from, a bundle of it.

Nothing of it is ever shown by a browser as what it says that it is: it is only saved.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from perdure.durable.temporary import PART_BYTES, temporary_folder
from perdure.errors import InvalidValue
from perdure.http.server.calls import Call, Stream
from perdure.http.wire import session as wire
from perdure.importers.stored_lines import last_generation, source_bytes
from perdure.model import values
from perdure.store import open_store

__all__ = [
    "export_bundle",
    "export_source",
    "list_artifacts",
    "list_content",
    "read_artifact",
    "read_content",
    "saved_as",
]

_TAR_BLOCK = 512


def saved_as(name: str) -> dict[str, str]:
    """Headers that have a browser save what comes, under the last part of a name.

    The name in both forms of RFC 6266, section 4.3: ASCII, and UTF-8 for who reads it.
    """
    last = values.text(name).replace("\\", "/").rpartition("/")[2].strip(". ") or "content"
    plain = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "_" for c in last)
    exact = quote(last[:200].encode("utf-8", "replace"), safe="")
    return {
        "Content-Disposition": f"attachment; filename=\"{plain[:200]}\"; filename*=UTF-8''{exact}"
    }


def list_artifacts(call: Call) -> dict[str, Any]:
    """See `Store.artifacts`."""
    return {"artifacts": [each._asdict() for each in call.store.artifacts(call.session)]}


def read_artifact(call: Call) -> Stream:
    """See `Store.open_artifact`."""
    name = call.path["artifact"]
    return Stream(call.store.open_artifact(call.session, name), saved_as(name))


def list_content(call: Call) -> dict[str, Any]:
    """See `Store.blobs`."""
    return {"content": [each._asdict() for each in call.store.blobs(call.session)]}


def read_content(call: Call) -> Stream:
    """See `Store.open_blob`."""
    digest = call.path["digest"]
    return Stream(call.store.open_blob(call.session, digest), saved_as(digest))


def export_source(call: Call) -> Stream:
    """The file of an import as it was found."""
    query: wire.SourceQuery = call.query
    header = call.store.inspect(call.session).header
    if header is not None and not header.is_import:
        reason = f"{values.shown(call.session)} is no import, so it has no source"
        raise InvalidValue("session", reason, hint="GET …/bundle has it whole")
    last = last_generation(call.store, call.session)
    if query.generation is not None and query.generation > last:
        raise InvalidValue("generation", f"there is none of this number, the last is {last}")
    source = None if header is None else header.source
    name = call.session if source is None else source.path or call.session
    parts = source_bytes(call.store, call.session, query.generation)
    return Stream(parts, saved_as(name))


def export_bundle(call: Call) -> Stream:
    """A session with its sub-agents in a bundle, as `perdure export` makes it, and the tar of it.

    It is made on the disk of the server, and removed when it was sent.
    """
    # What it raises says what is wrong, before anything is sent.
    call.store.inspect(call.session)
    sessions = [call.session, *call.store.descendants(call.session)]
    return Stream(_tar(call, sessions), saved_as(f"{call.session}.tar"))


def _tar(call: Call, sessions: list[str]) -> Iterator[bytes]:
    with temporary_folder("perdure-bundle-") as folder:
        place = Path(folder) / "session.perdure"
        with open_store(f"bundle:{place}", index=False) as bundle:
            for id in sessions:
                call.store.copy(id, bundle)
                # Between sessions somebody may have stopped reading.
                yield b""
        # What a bundle consists of; locks and evidence beside it are this machine's.
        yield from _members(Path(folder), [place, place.with_suffix(".artifacts")])


def _members(folder: Path, roots: list[Path]) -> Iterator[bytes]:
    for root in roots:
        if root.exists():
            for place in [root, *sorted(root.rglob("*"))]:
                yield from _member(place, str(place.relative_to(folder)))
    yield bytes(2 * _TAR_BLOCK)


def _member(file: Path, name: str) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    if file.is_dir():
        # Whoever unpacks it has folders that a store takes.
        info.type, info.mode = tarfile.DIRTYPE, 0o700
        yield info.tobuf(tarfile.PAX_FORMAT)
        return
    size = info.size = file.stat().st_size
    info.mode = 0o600
    yield info.tobuf(tarfile.PAX_FORMAT)
    with file.open("rb") as source:
        while part := source.read(PART_BYTES):
            yield part
    yield bytes(-size % _TAR_BLOCK)
