"""Content beside a log: stored by digest, checked when read, expired on request and on record."""

import hashlib
import io
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from perdure.errors import (
    ContentExpired,
    InvalidValue,
    SessionBusy,
    SessionClosed,
    SessionNotFound,
)
from perdure.store import Session, Store
from perdure.testing.contract.place import ContractCase, Place, brief

__all__ = ["Content"]

LARGE = b"0123456789abcdef" * 200_000
NOWHERE = "0" * 64


def digest_of(value: bytes) -> str:
    """The name of content."""
    return hashlib.sha256(value).hexdigest()


def refer(session: Session, value: bytes, kind: str = "tool/result", **more: Any) -> str:
    """Put content, and an event that refers to it."""
    digest = session.put_blob(value)
    session.append(kind, {"content": [{"type": "file", "blob": digest}]}, **more)
    return digest


def kept(store: Store, id: str = "s") -> set[bytes]:
    """What content is stored, each read and checked."""
    return {store.blob(id, blob.digest) for blob in store.blobs(id)}


class Content(ContractCase):
    """Blobs and their expiry."""

    def test_content_comes_back_as_it_was(self, place: Place) -> None:
        """Bytes are found by their SHA-256 by another store, whole or in parts."""
        # heinzel 15
        values = (b"", b"a", bytes(range(256)) * 17, LARGE)
        with place.store().create("s") as session:
            session.append("x")
            for value in values:
                assert session.put_blob(value) == digest_of(value)

        store = place.store()
        for value in values:
            assert store.blob("s", digest_of(value)) == value
            assert b"".join(store.open_blob("s", digest_of(value))) == value
        assert [(b.digest, b.size) for b in store.blobs("s")] == sorted(
            (digest_of(value), len(value)) for value in values
        )

    def test_content_is_taken_in_parts(self, place: Place) -> None:
        """A file, a generator and a view are stored as the bytes that they give."""

        def parts() -> Iterator[bytes]:
            yield from (b"one ", b"", b"two")

        with place.store().create("s") as session:
            assert session.put_blob(parts()) == digest_of(b"one two")
            assert session.put_blob(io.BytesIO(LARGE)) == digest_of(LARGE)
            assert session.put_blob(memoryview(b"view")) == digest_of(b"view")
            session.append("x")

        assert kept(place.store()) == {b"one two", LARGE, b"view"}

    @pytest.mark.parametrize("value", ["text", 5, None, ["text"], io.StringIO("text"), [1]])
    def test_what_is_not_bytes_is_refused(self, store: Store, value: Any) -> None:
        """Text and other values are no content; the error says how to make it some."""
        with store.create("s") as session:
            session.append("x")
            with pytest.raises(InvalidValue) as refused:
                session.put_blob(value)
            assert refused.value.path == "value"
            assert store.blobs("s") == []
            assert session.append("y").seq == 1

    def test_a_source_that_fails_leaves_nothing(self, store: Store) -> None:
        """An error of the caller's own generator passes through, and no half content stays."""

        def breaks() -> Iterator[bytes]:
            yield b"half"
            raise LookupError("source")

        with store.create("s") as session:
            session.append("x")
            with pytest.raises(LookupError):
                session.put_blob(breaks())
            assert store.blobs("s") == []
            assert session.put_blob(b"whole") == digest_of(b"whole")

    def test_content_may_come_before_the_first_event(self, place: Place) -> None:
        """What was put before anything was stored comes with the first commit, or not at all."""
        with place.store().create("s") as session:
            digest = session.put_blob(b"early")
            assert place.store().list() == []
            with pytest.raises(SessionNotFound):
                place.store().blob("s", digest)
            session.append("x", {"blob": digest})
            later = session.put_blob(b"later")
            assert session.append("x", {"blob": later}).seq == 1
        assert kept(place.store()) == {b"early", b"later"}

        with place.store().create("t") as session:
            session.put_blob(b"never referred to")
        assert [entry.id for entry in place.store().list()] == ["s"]
        with place.store().create("t") as session:
            session.append("x")
        assert place.store().blobs("t") == []

    def test_missing_content_has_expired(self, store: Store) -> None:
        """Content that is not there is expired, never damage; what is no digest is refused."""
        # heinzel 15
        with store.create("s") as session:
            session.append("x", {"blob": NOWHERE})
        for read in (store.blob, store.open_blob):
            with pytest.raises(ContentExpired) as expired:
                read("s", NOWHERE)
            assert (expired.value.session, expired.value.digest) == ("s", NOWHERE)
        with pytest.raises(SessionNotFound):
            store.blob("t", NOWHERE)
        for wrong in ("", "0" * 63, "A" * 64, "../" + "0" * 61, 5, None):
            with pytest.raises(InvalidValue):
                store.blob("s", wrong)  # type: ignore[arg-type]
        assert store.verify("s").sound

    def test_a_reader_keeps_what_it_opened(self, store: Store) -> None:
        """Content that is being read stays readable while it expires."""
        # heinzel 15
        with store.create("s") as session:
            digest = refer(session, LARGE)
        parts = store.open_blob("s", digest)
        store.expire("s", older_than=0)
        assert b"".join(parts) == LARGE
        with pytest.raises(ContentExpired):
            store.blob("s", digest)

    def test_expiry_is_on_record(self, place: Place) -> None:
        """What expires is named in the log first; the events that refer to it stay as they were."""
        store = place.store()
        with store.create("s") as session:
            digest = refer(session, b"gone")
        before = [event.as_dict() for event in store.read_from("s")]
        report = store.expire("s", older_than=timedelta(0), kinds=["tool/result"], keep_last=0)

        assert ([b.digest for b in report.expired], report.unreferenced) == ([digest], ())
        assert report.kept == 0
        events = [event.as_dict() for event in place.store().read_from("s")]
        assert events[:-1] == before
        assert events[-1]["type"] == "content/expired"
        assert events[-1]["data"] == {
            "blobs": [digest],
            "rule": {"older_than_ms": 0, "kinds": ["tool/result"], "keep_last": 0},
        }
        assert store.verify("s").status == "ok"

    def test_what_expires_satisfies_every_condition(self, store: Store) -> None:
        """Age, kinds and number are held against the last event that refers to the content."""
        hour = 3_600_000
        with store.create("s") as session:
            now = session.append("x").time
            old = refer(session, b"old", time=now - 3 * hour)
            mixed = refer(session, b"mixed", time=now - 3 * hour)
            refer(session, b"mixed", kind="user/message", time=now - 3 * hour)
            again = refer(session, b"again", time=now - 3 * hour)
            refer(session, b"again", time=now)
            new = refer(session, b"new", time=now)

        def would(**rule: Any) -> set[str]:
            return {b.digest for b in store.expire("s", dry_run=True, **rule).expired}

        assert would() == set()
        assert would(older_than=2 * 3600) == {old, mixed}
        assert would(older_than=2 * 3600, kinds={"tool/result"}) == {old}
        assert would(kinds=["tool/result"]) == {old, again, new}
        assert would(kinds=["user/message"]) == set()
        assert would(keep_last=1) == {old, mixed, again}
        assert would(keep_last=2) == {old, mixed}
        assert would(keep_last=0) == {old, mixed, again, new}
        assert would(older_than=2 * 3600, keep_last=3) == {old}
        assert len(store.blobs("s")) == 4

        assert {b.digest for b in store.expire("s", older_than=2 * 3600).expired} == {old, mixed}
        assert kept(store) == {b"again", b"new"}
        assert would(keep_last=0) == {again, new}

    @pytest.mark.parametrize(
        "rule",
        [
            {"older_than": -1},
            {"older_than": "1d"},
            {"older_than": True},
            {"older_than": float("inf")},
            {"kinds": "tool/result"},
            {"keep_last": -1},
            {"keep_last": 1.5},
        ],
    )
    def test_a_rule_that_makes_no_sense_is_refused(self, store: Store, rule: Any) -> None:
        """A condition out of its range is refused by name, and nothing expires."""
        with store.create("s") as session:
            refer(session, b"stays")
        with pytest.raises(InvalidValue) as refused:
            store.expire("s", **rule)
        assert refused.value.path in rule
        assert kept(store) == {b"stays"}

    def test_pinned_content_stays(self, store: Store) -> None:
        """What is pinned never expires, referred to or not, until it is unpinned."""
        with store.create("s") as session:
            pinned = session.put_blob(b"pinned", pinned=True)
            other = refer(session, b"other")
            session.pin(other)
            loose = refer(session, b"loose")
        assert [b.digest for b in store.expire("s", keep_last=0).expired] == [loose]
        assert kept(store) == {b"pinned", b"other"}

        with store.writer("s") as session:
            session.unpin(other)
        assert [b.digest for b in store.expire("s", keep_last=0).expired] == [other]
        assert store.blob("s", pinned) == b"pinned"
        assert "content/unpinned" in [kind for _, kind in brief(store.read_from("s"))]

    def test_unreferenced_content_is_collected(self, place: Place) -> None:
        """What no event refers to goes with any expiry, but not under the writer that put it."""
        store = place.store()
        with store.create("s") as session:
            refer(session, b"referred to")
            fresh = session.put_blob(b"fresh")
        with store.writer("s") as session:
            mine = session.put_blob(b"mine")
            report = session.expire()
            assert [b.digest for b in report.unreferenced] == [fresh]
            session.append("x", {"deep": [{"here": f"sha256:{mine}"}]})
        assert store.expire("s").unreferenced == ()
        assert kept(store) == {b"referred to", b"mine"}
        assert "content/expired" not in [kind for _, kind in brief(store.read_from("s"))]

    def test_content_that_expired_can_be_put_again(self, store: Store) -> None:
        """The same bytes, put and referred to again, are there again and expire by themselves."""
        with store.create("s") as session:
            digest = refer(session, b"twice")
        store.expire("s", keep_last=0)
        with store.writer("s") as session:
            assert refer(session, b"twice") == digest
        assert store.expire("s").expired == ()
        assert store.blob("s", digest) == b"twice"
        assert len(store.expire("s", keep_last=0).expired) == 1

    def test_references_in_packed_runs_count(self, store: Store) -> None:
        """A digest within a run of streamed pieces keeps its content."""
        with store.create("s") as session:
            digest = session.put_blob(b"streamed")
            texts = ["a", f"see {digest}!", "b", "c"]
            session.append_many([{"type": "assistant/delta", "data": {"text": t}} for t in texts])
        assert store.expire("s").unreferenced == ()
        assert store.blob("s", digest) == b"streamed"

    def test_only_the_writer_changes_content(self, store: Store) -> None:
        """Expiry needs the session's writer; a closed one puts nothing."""
        with store.create("s") as session:
            refer(session, b"kept")
            with pytest.raises(SessionBusy):
                store.expire("s", keep_last=0)
        with pytest.raises(SessionClosed):
            session.put_blob(b"late")
        with pytest.raises(SessionNotFound):
            store.expire("t")
        assert kept(store) == {b"kept"}
