"""What is not known just now is not taken for an answer: evidence, readers and clocks."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import perdure
import perdure.aio
from perdure.durable import files
from perdure.errors import (
    PerdureError,
    SessionExists,
    SessionNotFound,
    StorageUnavailable,
    StoreClosed,
)
from perdure.evidence import database
from perdure.runtime import Runtime

NAME = "evidence.sqlite"


class Shifted(Runtime):
    """The clock of the machine, some time ahead."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(database, "_READER_WAIT_MS", 10)
    monkeypatch.setattr(database, "_WRITER_WAIT_MS", 20)
    return tmp_path / "store"


def written(store: perdure.Store, id: str = "s", *, count: int = 3) -> None:
    with store.create(id) as session:
        for number in range(count):
            session.append("x", number)
    store._witness.push()


@contextmanager
def busy(root: Path) -> Iterator[None]:
    """Somebody is in the middle of a commit to the evidence."""
    connection = apsw.Connection(str(root / NAME))
    # A thread of the store may be in the middle of one of its own.
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.execute("ROLLBACK")
        connection.close()


def test_another_threads_answer_is_not_taken_for_ones_own(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes is refused while evidence is busy, whatever others were told meanwhile."""
    with perdure.open(root) as store:
        written(store)
        store.delete("s")
        store.empty_trash()
        told = property(lambda _: None, lambda _, __: None)
        monkeypatch.setattr(database.Database, "unreadable", told, raising=False)
        with busy(root), pytest.raises(StorageUnavailable) as refused:
            store.create("s")
        assert refused.value.retryable
        with pytest.raises(SessionExists):
            store.create("s")


@pytest.mark.parametrize("settled", ["accepted", "forgotten"])
def test_a_clock_that_was_ahead_stops_no_evidence(root: Path, settled: str) -> None:
    """What is written after an acceptance is noted, though the clock went back since."""
    runtime = Shifted()
    with perdure.open(root, runtime=runtime) as store:
        written(store)
        runtime.ahead_ms = 10**10
        if settled == "accepted":
            store.accept("s")
        else:
            store.delete("s")
            store.empty_trash()
            store.forget("s")
        runtime.ahead_ms = 0
        with store.create("s") if settled == "forgotten" else store.writer("s") as session:
            session.append("x", "later")
            position = session.position
    with perdure.open(root) as store:
        (seen,) = store._witness.evidence.known("", "s")
        assert seen.position == position


def test_what_could_not_be_noted_is_noted_later(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure on the way to evidence loses no position."""
    with perdure.open(root) as store:
        written(store)
        with store.writer("s") as session:
            session.append("x", "more")
        plain = store._backend.stored

        def refuses(id: str) -> Any:
            raise StorageUnavailable(id, "too many open files")

        monkeypatch.setattr(store._backend, "stored", refuses)
        with pytest.raises(StorageUnavailable):
            store._witness.push()
        monkeypatch.setattr(store._backend, "stored", plain)
        store._witness.push()
        (seen,) = store._witness.evidence.known("", "s")
        assert seen.position.seq == 3


def test_nobody_is_missed_by_who_cannot_tell(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While evidence is busy a deleted session is not called missing, and verify says why."""
    with perdure.open(root) as store:
        written(store)
        written(store, "other")
        store.delete("s")
        store.empty_trash()
        everything = store._witness.evidence.everything_known("")
        monkeypatch.setattr(
            store._witness.evidence, "everything_known", lambda _namespace: everything
        )
        with busy(root):
            assert store.missing() == []
            report = store.verify("other")
            assert (report.status, report.sound) == ("ok", True)
            assert report.evidence is not None
            assert store.evidence().unreadable is not None
            with pytest.raises(SessionNotFound):
                store.verify("s")
        assert store.verify("other").evidence is None


def test_verify_tells_what_it_was_told_itself(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That evidence could be read a moment later says nothing of the look that was made."""
    with perdure.open(root) as store:
        written(store)

        def meanwhile(*look: Any, **options: Any) -> perdure.Inspection:
            with busy(root):
                found = perdure.Inspection(*look, **options)
                assert found.problems == []
            return found

        monkeypatch.setattr("perdure.store.looking.Inspection", meanwhile)
        assert store.verify("s").evidence is not None


def test_content_of_a_session_that_goes_is_not_damaged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A deletion or a refusal of the system in the middle of verify accuses no content."""
    with perdure.open(root) as store:
        with store.create("s") as session:
            session.append("x", [session.put_blob(b"one"), session.put_blob(b"two")])
        blob = store._backend.blob
        failure: PerdureError

        def fails(_id: str, _digest: str) -> Any:
            raise failure

        monkeypatch.setattr(store._backend, "blob", fails)
        failure = StorageUnavailable("/blob", "too many open files")
        content = store.verify("s").content
        assert content is not None
        assert (content.damaged, content.unreadable is not None) == ((), True)
        failure = SessionNotFound("s")
        assert store.verify("s").content is None
        monkeypatch.setattr(store._backend, "blob", blob)
        assert store.verify("s").sound


def test_a_file_system_that_counts_no_links_is_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where files that are there have no links by what the system says, reading still ends."""
    with perdure.open(root) as store:
        written(store)
    plain = files.status_of

    def linkless(descriptor: int, path: str) -> os.stat_result:
        found = plain(descriptor, path)
        named: Any = found.__reduce__()[1]
        return os.stat_result((*found[:3], 0, *found[4:]), named[1])

    monkeypatch.setattr(files, "status_of", linkless)
    with perdure.open(root) as store:
        assert [event.data for event in store.read_from("s")] == [0, 1, 2]


def test_a_closed_store_has_no_namespaces(root: Path) -> None:
    """From the call of close on, tasks get no store of a namespace either."""

    async def main() -> None:
        store = perdure.aio.open(root)
        before = store.namespace("a")
        await store.close()
        for name in ("a", "b"):
            with pytest.raises(StoreClosed):
                store.namespace(name)
        assert before.closed

    asyncio.run(main())
