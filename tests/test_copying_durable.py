"""What a copy says of a destination has to last, and what cannot be brought there is named."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.backends.base import Blob
from perdure.backends.registry import open_backend
from perdure.backends.sqlite.bundle import ARTIFACT_BYTES
from perdure.errors import (
    ContentDamaged,
    InvalidValue,
    SessionBusy,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.store.moving import NotCopied
from tests.media import FILES, KEPT, assert_equal, contents, lines, open_medium
from tests.test_copying import extend, log_of, write


@pytest.fixture
def here(tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium("raw", tmp_path, "here") as store:
        yield store


@pytest.fixture
def there(tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium("raw", tmp_path, "there") as store:
        yield store


def settles(store: perdure.Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the sessions that are settled in this store from now on."""
    found: list[str] = []
    settle = store._backend.settle

    def counted(hold: Any, *rest: Any) -> None:
        found.append(hold.session)
        settle(hold, *rest)

    monkeypatch.setattr(store._backend, "settle", counted)
    return found


def forget_evidence(folder: Path) -> None:
    for file in folder.rglob("evidence.sqlite*"):
        file.unlink()


# --- what was found there is made durable ---------------------------------------------------------


@pytest.mark.parametrize("kind", KEPT)
@pytest.mark.parametrize("status", ["unchanged", "ahead"])
def test_records_that_nobody_noted_are_settled(
    here: perdure.Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    status: str,
) -> None:
    """Whoever wrote them may have died before the sync: they count when it was made up for."""
    write(here)
    with open_medium(kind, tmp_path / "to") as target:
        here.copy("s", target)
        if status == "ahead":
            extend(target)
        whole = lines(target, "s")
    forget_evidence(tmp_path / "to")
    with open_medium(kind, tmp_path / "to") as target:
        found = settles(target, monkeypatch)
        assert here.copy("s", target).status == status
        assert found == ["s"]
        assert here.copy("s", target).status == status
        assert found == ["s"]
        assert lines(target, "s") == whole
    with open_medium(kind, tmp_path / "to") as target:
        found = settles(target, monkeypatch)
        assert here.copy("s", target).status == status
        assert found == []


@pytest.mark.parametrize("kind", KEPT)
def test_a_busy_destination_says_what_was_noted(
    here: perdure.Store, tmp_path: Path, kind: str
) -> None:
    """While somebody writes there, what is remembered of the log counts, and nothing else."""
    write(here)
    with open_medium(kind, tmp_path / "to") as target:
        here.copy("s", target)
    forget_evidence(tmp_path / "to")
    with (
        open_medium(kind, tmp_path / "to") as target,
        open_medium(kind, tmp_path / "to") as other,
        other.writer("s"),
    ):
        if other._witness.about("s").seen:
            pytest.fail("it was noted too early for this test")
        with pytest.raises(SessionBusy):
            here.copy("s", target)
        other._witness.push()
        assert here.copy("s", target).status == "unchanged"


def test_content_that_nobody_noted_is_put_again(
    here: perdure.Store, there: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put last, since the log was noted, may not be durable; all else is not touched."""
    write(here)
    here.copy("s", there)
    extend(here)
    hold = there._backend.lock("s")
    blob = there._backend.put_blob(hold, [b"more"])
    hold.release()
    path = log_of(there).parent / "blobs" / blob.digest[:2] / blob.digest
    os.utime(path, (later := path.stat().st_mtime + 60, later))
    put: list[bytes] = []
    put_blob = there._backend.put_blob

    def watched(hold: Any, parts: Any) -> Blob:
        put.append(b"".join(parts))
        return put_blob(hold, [put[-1]])

    monkeypatch.setattr(there._backend, "put_blob", watched)
    assert here.copy("s", there)[2:5] == (1, 0, "continued")
    assert put == [b"more"]
    assert_equal(here, there, "s")


# --- content that stays behind --------------------------------------------------------------------


def open_to_all(store: perdure.Store, digest: str) -> None:
    (log_of(store).parent / "blobs" / digest[:2] / digest).chmod(0o644)


def linked(store: perdure.Store, digest: str) -> None:
    path = log_of(store).parent / "blobs" / digest[:2] / digest
    os.link(path, path.parents[3] / "another name")


@pytest.mark.parametrize("spoil", [open_to_all, linked])
def test_content_in_a_file_that_is_not_private_is_named(
    here: perdure.Store, there: perdure.Store, spoil: Any
) -> None:
    """A file that is not opened keeps only its own content from being copied."""
    write(here)
    good = contents(here, "s")
    bad = min(good)
    spoil(here, bad)
    copied = here.copy("s", there)
    (problem,) = copied.problems
    assert isinstance(problem, ContentDamaged)
    assert (problem.digest, copied.blobs) == (bad, 2)
    del good[bad]
    assert contents(there, "s") == good
    assert lines(there, "s") == lines(here, "s")


def test_content_in_a_folder_that_is_not_private_is_named(
    here: perdure.Store, there: perdure.Store
) -> None:
    """If none of it may be opened, the events come along all the same."""
    write(here)
    (log_of(here).parent / "blobs").chmod(0o755)
    copied = here.copy("s", there)
    assert [type(each) for each in copied.problems] == [UnsafeFile]
    assert copied.blobs == 0
    assert lines(there, "s") == lines(here, "s")


def test_a_name_that_is_no_digest_is_named(
    here: perdure.Store, there: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Content that a damaged source lists under no digest is named, and all other is copied."""
    write(here)
    stored = [*here._backend.blobs("s")]
    monkeypatch.setattr(here._backend, "blobs", lambda _: iter([Blob("x", 1, 0), *stored]))
    copied = here.copy("s", there)
    assert [type(each) for each in copied.problems] == [ContentDamaged]
    assert (copied.blobs, copied.status) == (3, "copied")


@pytest.mark.parametrize("error", [UnsafeFile("/p", "x"), StorageFull("/p", "x")])
def test_what_is_wrong_in_the_destination_is_no_problem_of_content(
    here: perdure.Store, there: perdure.Store, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Where content cannot be put, nothing is copied."""
    write(here)

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(there._backend, "put_blob", fails)
    with pytest.raises(type(error)):
        here.copy("s", there)
    assert there.list() == []


def bundle_with(folder: Path) -> tuple[perdure.Store, str]:
    store = open_medium("bundle", folder, "from")
    with store.create("s") as writer:
        digest = writer.put_blob(b"x" * (ARTIFACT_BYTES + 1))
        writer.append("note", {"blob": digest, "small": writer.put_blob(b"small")})
    return store, digest


def test_content_whose_bytes_are_missing_is_named(tmp_path: Path, there: perdure.Store) -> None:
    """A bundle without its artifacts gives all but these, and says so each time."""
    store, digest = bundle_with(tmp_path)
    (tmp_path / "from.artifacts" / digest).unlink()
    with store:
        copied = store.copy("s", there)
        (problem,) = copied.problems
        assert isinstance(problem, ContentDamaged)
        assert (problem.digest, problem.reason) == (digest, "its bytes are not there")
        assert [*contents(there, "s").values()] == [b"small"]
        assert len(store.copy("s", there).problems) == 1


def test_content_that_the_log_let_expire_is_no_problem(
    tmp_path: Path, there: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the log says why the bytes are not there, all is well."""
    store, digest = bundle_with(tmp_path)
    with store:
        with monkeypatch.context() as patch:
            patch.setattr(store._backend, "drop_blobs", lambda *_: None)
            store.expire("s", keep_last=0)
        (tmp_path / "from.artifacts" / digest).unlink()
        assert store.copy("s", there).problems == ()


# --- where a store is -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEPT)
def test_two_ways_to_one_place_are_the_same_place(tmp_path: Path, kind: str) -> None:
    """By whatever name it was opened, a medium has one place, and is not copied onto itself."""
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "other").symlink_to(tmp_path / "real")
    with (
        open_medium(kind, tmp_path / "real") as store,
        open_medium(kind, tmp_path / "other") as again,
        open_medium(kind, tmp_path / "real", "more") as more,
    ):
        write(store)
        place = store._backend.place
        assert place is not None
        assert Path(place).exists()
        assert place == again._backend.place == store.namespace("x")._backend.place
        assert place != more._backend.place
        for copying in (lambda: store.copy("s", again), lambda: store.copy_all(again)):
            with pytest.raises(InvalidValue):
                copying()
        with pytest.raises(InvalidValue):
            store.copy_all(again.namespace("below"))
        assert store.copy("s", again.namespace("x")).status == "copied"


def test_what_is_nowhere_has_no_place() -> None:
    """A medium without files says so, and is told from another one all the same."""
    for location in ("memory:", "none:"):
        assert open_backend(location).place is None
    with perdure.open("memory:") as one, perdure.open("memory:") as other:
        write(one)
        assert one.copy("s", other).status == "copied"
        with pytest.raises(InvalidValue):
            one.copy("s", one)


@pytest.mark.parametrize("kind", KEPT)
def test_a_medium_is_made_empty(tmp_path: Path, kind: str) -> None:
    """A place for what is remembered holds no session, and nothing half made."""
    with open_medium(kind, tmp_path) as store:
        store._backend.make()
        store._backend.make()
        assert store.list() == []
        assert Path(str(store._backend.place)).exists()
        if kind not in FILES:
            assert [*(Path(str(store._backend.place)) / "new").iterdir()] == []


# --- a destination that takes nothing -------------------------------------------------------------


def refuse(
    store: perdure.Store, monkeypatch: pytest.MonkeyPatch, error: Exception, *methods: str
) -> None:
    def fails(*_: object) -> None:
        raise error

    for method in methods:
        monkeypatch.setattr(store._backend, method, fails)


@pytest.mark.parametrize(
    ("error", "methods"),
    [
        (StorageFull("/p", "no space left"), ("put_blob",)),
        (StorageUnavailable("/p", "read-only"), ("put_blob", "stage")),
    ],
)
def test_nothing_more_is_tried_where_nothing_fits(
    here: perdure.Store,
    there: perdure.Store,
    monkeypatch: pytest.MonkeyPatch,
    error: StorageFull | StorageUnavailable,
    methods: tuple[str, ...],
) -> None:
    """The first session tells why; the others are named with the same error, and not read."""
    for session in "abc":
        write(here, session)
    write(here.namespace("x"), "d")
    read: list[str] = []
    scan = here._backend.scan

    def watched(session: str, *rest: Any, **more: Any) -> Any:
        read.append(session)
        return scan(session, *rest, **more)

    monkeypatch.setattr(here._backend, "scan", watched)
    refuse(there, monkeypatch, error, *methods)
    outcomes = here.copy_all(there)
    assert [
        each for each in outcomes if not isinstance(each, NotCopied) or each.error != error
    ] == []
    told = [(each.session, each.tried) for each in outcomes if isinstance(each, NotCopied)]
    assert told == [("a", True), ("b", False), ("c", False), ("d", False)]
    assert {*read} == {"a"}


def test_one_session_that_is_refused_stops_no_other(
    here: perdure.Store, there: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the medium fails for one session and takes another, the others are copied."""
    for session in "ab":
        write(here, session)
    stored = there._backend.stored

    def fails_for_a(session: str) -> Any:
        if session == "a":
            raise StorageUnavailable("/p", "Input/output error")
        return stored(session)

    monkeypatch.setattr(there._backend, "stored", fails_for_a)
    failed, copied = here.copy_all(there)
    assert isinstance(failed, NotCopied)
    assert (failed.session, failed.tried) == ("a", True)
    assert isinstance(copied, perdure.Copied)
