"""A store of every kind, for tests that bring sessions from one to another."""

from pathlib import Path
from typing import Any

import perdure
from perdure.model.record import BadRecordError, Record, decode_line
from tests.postgres.fixtures import url_in

FOLDERS = ("raw", "zst")
FILES = ("bundle", "sqlite")
KEPT = (*FOLDERS, *FILES)
"""What outlives the store object."""
ALL = ("memory", *KEPT)
SERVED = ("postgres",)
"""What a server of the tests keeps; a test that opens it needs the fixture `postgres`."""


def open_medium(kind: str, folder: Path, name: str = "store", **options: Any) -> perdure.Store:
    """Open the store of this kind and name in a folder; one in memory is new each time."""
    if kind == "memory":
        return perdure.open("memory:", **options)
    if kind in SERVED:
        return perdure.open(url_in(folder / name), **options)
    if kind in FILES:
        suffix = "perdure" if kind == "bundle" else kind
        return perdure.open(f"{kind}:{folder / name}.{suffix}", **options)
    return perdure.open(folder / f"{name}-{kind}", encoding=kind, **options)


def lines(store: perdure.Store, session: str) -> list[bytes]:
    """Return header and records of a session, to the last byte."""
    found = []
    for line in store.raw(session):
        assert isinstance(line, bytes), line
        found.append(line)
    return found


def records(store: perdure.Store, session: str) -> list[Record]:
    found = []
    for line in lines(store, session):
        try:
            found.append(decode_line(line))
        except BadRecordError:
            assert not found
    return found


def contents(store: perdure.Store, session: str) -> dict[str, bytes]:
    return {blob.digest: store.blob(session, blob.digest) for blob in store.blobs(session)}


def assert_equal(source: perdure.Store, target: perdure.Store, session: str) -> None:
    """Demand the same bytes, the same place, the same content, and that all of it is sound."""
    assert lines(target, session) == lines(source, session)
    here, there = (store.inspect(session).position for store in (source, target))
    assert here == there
    assert contents(target, session) == contents(source, session)
    report = target.verify(session)
    assert report.sound, report
    assert report.problems == []
