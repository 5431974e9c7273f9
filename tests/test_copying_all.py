"""Whole stores go to other stores: every session, every namespace, and what is remembered."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.errors import (
    FormatUnsupported,
    SessionBusy,
    SessionDamaged,
    SessionDiverged,
    SessionExists,
    SessionNotFound,
    StorageUnavailable,
)
from perdure.importers import import_sessions
from perdure.store.moving import Outcome
from tests.media import ALL, FILES, KEPT, assert_equal, contents, lines, open_medium
from tests.sources import FOLDERS, FORMAT, SAMPLES
from tests.test_copying import extend, flip, log_of, write


@pytest.fixture
def here(tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium("raw", tmp_path, "here") as store:
        yield store


@pytest.fixture(params=ALL)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path, "target") as store:
        yield store


def told(outcomes: list[Outcome]) -> list[tuple[str, str | None, str]]:
    """Return namespace, session, and status or code of each outcome."""
    return [
        (
            "/".join(each.namespace),
            each.session,
            each.status if isinstance(each, perdure.Copied) else each.error.code,
        )
        for each in outcomes
    ]


# --- sessions -------------------------------------------------------------------------------------


def test_all_namespaces_are_copied(here: perdure.Store, target: perdure.Store) -> None:
    """Each session is copied into the same namespace, and told as soon as it is known."""
    write(here, "a")
    write(here, "b/é ")
    write(here.namespace("tenant", "user 1"), "a", count=1)
    heard: list[Outcome] = []
    outcomes = here.copy_all(target, progress=heard.append)
    assert told(outcomes) == [
        ("", "a", "copied"),
        ("", "b/é ", "copied"),
        ("tenant/user 1", "a", "copied"),
    ]
    assert heard == outcomes
    for parts, session in (((), "a"), ((), "b/é "), (("tenant", "user 1"), "a")):
        assert_equal(here.namespace(*parts), target.namespace(*parts), session)
    assert {each[2] for each in told(here.copy_all(target))} == {"unchanged"}


def test_a_namespace_is_copied_into_another(here: perdure.Store, target: perdure.Store) -> None:
    """The store of a namespace is a store like any other, on either side."""
    write(here.namespace("from"), "a")
    write(here, "not this")
    outcomes = here.namespace("from").copy_all(target.namespace("to"))
    assert told(outcomes) == [("", "a", "copied")]
    assert target.list() == []
    assert_equal(here.namespace("from"), target.namespace("to"), "a")


def test_stores_can_be_brought_together(tmp_path: Path, target: perdure.Store) -> None:
    """Copies from two stores meet in a third, each session what it was."""
    for name in ("one", "two"):
        with open_medium("raw", tmp_path, name) as store:
            write(store, name)
            store.copy_all(target)
            assert_equal(store, target, name)
    assert [entry.id for entry in target.list()] == ["one", "two"]


def test_what_cannot_be_copied_stops_nothing_else(
    here: perdure.Store, target: perdure.Store
) -> None:
    """Damaged, unsupported, diverged, busy and deleted sessions are named; others are copied."""
    for session in ("busy", "damaged", "deleted", "diverged", "header", "newer", "sound"):
        write(here, session)
    for session in ("busy", "deleted", "diverged"):
        here.copy(session, target)
    extend(here, "busy")
    target.delete("deleted")
    for store in (here, target):
        extend(store, "diverged", text=repr(store))
    flip(log_of(here, "damaged"), log_of(here, "damaged").stat().st_size // 2)
    flip(log_of(here, "header"), 12)
    newer = perdure.Header(format=1, id="newer", created_at=0)
    log = log_of(here, "newer")
    log.write_bytes(header_line(newer) + log.read_bytes().partition(b"\n")[2])
    with target.writer("busy"):
        outcomes = here.copy_all(target)
    failed = {each.session: each.error for each in outcomes if isinstance(each, perdure.NotCopied)}
    assert {session: type(error) for session, error in failed.items()} == {
        "busy": SessionBusy,
        "damaged": SessionDamaged,
        "deleted": SessionExists,
        "diverged": SessionDiverged,
        "header": SessionDamaged,
        "newer": FormatUnsupported,
    }
    assert [each.session for each in outcomes if isinstance(each, perdure.Copied)] == ["sound"]
    assert_equal(here, target, "sound")


def header_line(header: perdure.Header) -> bytes:
    from perdure.model import header as module

    bare = module._encode(header)
    return b'%s,"digest":"%s"}\n' % (bare[:-2], module._digest_of(bare).encode())


def test_a_folder_whose_name_tells_no_session_is_named(
    here: perdure.Store, target: perdure.Store, tmp_path: Path
) -> None:
    """A folder of a store that holds no session is damage, and named by what it is called."""
    write(here, "a")
    (tmp_path / "here-raw/sessions/%zz").mkdir(mode=0o700)
    outcomes = here.copy_all(target)
    assert told(outcomes) == [("", "%zz", "session-damaged"), ("", "a", "copied")]


def test_an_empty_store_makes_nothing(here: perdure.Store, tmp_path: Path) -> None:
    """Where there is nothing to copy, nothing appears."""
    for kind in KEPT:
        with open_medium(kind, tmp_path) as target:
            assert here.copy_all(target) == []
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("way", [("raw", *FILES, "zst"), ("zst", "memory", "raw")])
def test_real_logs_go_round(tmp_path: Path, way: tuple[str, ...]) -> None:
    """All logs that can be imported go from a folder through other stores into a folder, equal."""
    with open_medium(way[0], tmp_path, "first") as first:
        assert len(import_sessions(first, FORMAT, FOLDERS).sources) == len(SAMPLES)
        stores = [open_medium(kind, tmp_path, f"on-the-way-{kind}") for kind in way[1:]]
        before = first
        for store in stores:
            outcomes = before.copy_all(store)
            assert {each[2] for each in told(outcomes)} == {"copied"}
            assert len(outcomes) == len(first.list())
            before = store
        for entry in first.list():
            assert_equal(first, stores[-1], entry.id)
        for store in stores:
            store.close()


# --- what is remembered ---------------------------------------------------------------------------


def test_deleted_ids_stay_taken(here: perdure.Store, target: perdure.Store) -> None:
    """Tombstones come along, of what was purged and of what is in the trash; no session does."""
    for session in ("in the trash", "kept", "purged"):
        write(here, session)
    purged = here.delete("purged")
    here.empty_trash()
    trashed = here.delete("in the trash")
    assert told(here.copy_all(target)) == [("", "kept", "copied")]
    assert target.trash() == []
    for gone in (purged, trashed):
        with pytest.raises(SessionExists) as refused, target.create(gone.id) as writer:
            writer.append("note")
        assert refused.value.deleted_at == gone.deleted_at
    target.forget("purged")
    here.copy_all(target)
    with pytest.raises(SessionNotFound) as missed:
        target.inspect("purged")
    assert missed.value.deleted_at is None


def test_a_restored_session_takes_no_tombstone_along(
    here: perdure.Store, target: perdure.Store
) -> None:
    """What is stored here is not called deleted there, and what is stored there never is."""
    write(here, "a")
    here.copy_all(target)
    here.delete("a")
    assert told(here.copy_all(target)) == []
    assert target.verify("a").sound
    extend(target, "a")
    here.restore("a")
    assert told(here.copy_all(target)) == [("", "a", "ahead")]


def test_what_vanished_is_missed_there_too(tmp_path: Path, target: perdure.Store) -> None:
    """A session that is gone from here is missing there, with the position that is remembered."""
    with open_medium("raw", tmp_path, "here") as store:
        write(store, "gone")
        write(store, "kept")
        folder = log_of(store, "gone").parent
    folder.rename(tmp_path / "taken")
    with open_medium("raw", tmp_path, "here") as store:
        (missing,) = store.missing()
        store.copy_all(target)
        assert target.missing() == [missing]
        (tmp_path / "taken").rename(folder)
        target.forget("gone")
        assert {each[2] for each in told(store.copy_all(target))} == {"copied", "unchanged"}
        assert target.missing() == []


def test_what_is_stored_there_is_accused_of_nothing(tmp_path: Path, target: perdure.Store) -> None:
    """A position of a session that vanished here says nothing against another one there."""
    with open_medium("raw", tmp_path, "here") as store:
        write(store, "a")
        folder = log_of(store, "a").parent
    folder.rename(tmp_path / "taken")
    with target.create("a") as writer:
        writer.append("note", "another one")
    with open_medium("raw", tmp_path, "here") as store:
        assert told(store.copy_all(target)) == []
    assert target.verify("a").sound
    extend(target, "a")


def test_acceptances_come_along(here: perdure.Store, target: perdure.Store) -> None:
    """That an older log was accepted is on record there, once, and takes no position back."""
    write(here, "a")
    cut = b"".join(log_of(here, "a").read_bytes().splitlines(keepends=True)[:-1])
    log_of(here, "a").write_bytes(cut)
    here.accept("a")
    (accepted,) = here._witness.evidence.acceptances("", "a")
    here.copy_all(target)
    for _ in range(2):
        assert target._witness.evidence.acceptances("", "a") == [accepted]
        here.copy("a", target)
    extend(target, "a")
    target._witness.push()
    (seen,) = target._witness.about("a").seen
    assert seen.position == target.inspect("a").position


@pytest.mark.parametrize("parts", [(), ("tenant",)])
def test_a_tombstone_alone_arrives(
    here: perdure.Store, target: perdure.Store, parts: tuple[str, ...]
) -> None:
    """Where every session was deleted, the new store knows that, though it holds none."""
    space, there = here.namespace(*parts), target.namespace(*parts)
    write(space, "a")
    deleted_at = space.delete("a").deleted_at
    assert here.copy_all(target) == []
    with pytest.raises(SessionNotFound) as missed:
        there.inspect("a")
    assert missed.value.deleted_at == deleted_at
    assert there.list() == []


def test_evidence_that_cannot_be_read_is_said(tmp_path: Path, target: perdure.Store) -> None:
    """The sessions are copied; that nobody can tell what else was here is an outcome of its own."""
    with open_medium("raw", tmp_path, "here") as store:
        write(store, "a")
        store.delete("a")
        write(store, "b")
    (tmp_path / "here-raw/evidence.sqlite").write_bytes(b"nonsense" * 1000)
    with open_medium("raw", tmp_path, "here") as store:
        outcomes = store.copy_all(target)
    assert told(outcomes) == [("", "b", "copied"), ("", None, "storage-unavailable")]


def test_a_namespace_that_cannot_be_listed_is_said(
    here: perdure.Store, target: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing medium keeps nothing from being copied that it still gives."""

    def fails() -> list[str]:
        raise StorageUnavailable("/p", "Input/output error")

    write(here, "a")
    monkeypatch.setattr(here._backend, "namespaces", fails)
    outcomes = here.copy_all(target)
    assert {*told(outcomes)} == {("", "a", "copied"), ("", None, "storage-unavailable")}
    assert contents(target, "a") == contents(here, "a")
    assert lines(target, "a") == lines(here, "a")
