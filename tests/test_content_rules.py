"""What is kept, what expires, and what deleting leaves: rules, where they are easy to miss."""

import os
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.durable import crash
from perdure.errors import (
    ContentExpired,
    InvalidValue,
    PerdureError,
    SessionExists,
    SessionNotFound,
    UnsafeFile,
)
from perdure.runtime import Runtime
from perdure.store import Session, Store
from tests.sources import HEADER, import_one, record

MIB = 1024 * 1024
NOW = 1_900_000_000_000
NOWHERE = "0" * 64


class Fixed(Runtime):
    """A clock that stands, far from that of the machine."""

    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def now_ms(self) -> int:
        return self.now


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def opened(root: Path) -> Callable[[], Store]:
    """Opens the store, as another process would."""
    return lambda: perdure.open(root, encoding="raw")


@pytest.fixture(params=["directory", "memory"])
def store(request: pytest.FixtureRequest, root: Path) -> Iterator[Store]:
    """A store on each medium."""
    with perdure.open(root if request.param == "directory" else "memory:") as made:
        yield made


def folder_of(root: Path, id: str = "s") -> Path:
    return root / "sessions" / id


def written(store: Store, id: str = "s") -> None:
    with store.create(id) as session:
        session.append("x", id)


def refer(session: Session, value: bytes, **more: Any) -> str:
    """Put content, and an event that refers to it."""
    digest = session.put_blob(value)
    session.append("x/ref", {"blob": digest}, **more)
    return digest


def kept(store: Store, id: str = "s") -> list[bytes]:
    return sorted(store.blob(id, blob.digest) for blob in store.blobs(id))


def files(folder: Path) -> dict[str, bytes | None]:
    """Everything below a folder, and what it holds."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


# --- what stays ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [{}, {"older_than": 10}, {"keep_last": 0}, {"kinds": ["x/ref"]}])
@pytest.mark.parametrize("past", ["an old event refers to it", "it had expired"])
def test_a_writer_loses_nothing_that_it_put(store: Store, past: str, rule: Any) -> None:
    """What this writer put stays, whoever referred to it before, and whatever had become of it."""
    with store.create("s") as session:
        digest = refer(session, b"value", time=1)
        other = refer(session, b"other", time=1)
    if past == "it had expired":
        store.expire("s", keep_last=0)
    with store.writer("s") as session:
        assert session.put_blob(b"value") == digest
        report = session.expire(**rule)
        assert digest not in [blob.digest for blob in (*report.expired, *report.unreferenced)]
        assert store.blob("s", digest) == b"value"
        session.append("x/ref", {"blob": digest})
    assert store.blob("s", digest) == b"value"
    if rule and past != "it had expired":
        assert other in [blob.digest for blob in report.expired]


def test_a_writer_keeps_what_it_put_and_expired_itself(store: Store) -> None:
    """Content that expires and is put again by one and the same writer stays as well."""
    with store.create("s") as session:
        digest = refer(session, b"value", time=1)
    with store.writer("s") as session:
        assert [blob.digest for blob in session.expire(keep_last=0).expired] == [digest]
        with pytest.raises(ContentExpired):
            store.blob("s", digest)
        session.put_blob(b"value")
        assert session.expire(keep_last=0).expired == ()
    assert kept(store) == [b"value"]
    assert store.expire("s").expired == ()
    assert kept(store) == [b"value"]


@pytest.mark.parametrize("clock", ["the machine's", "ahead", "behind"])
@pytest.mark.parametrize("medium", ["directory", "memory"])
def test_content_put_again_has_not_expired(root: Path, medium: str, clock: str) -> None:
    """What was put again after it expired stays without a condition, by whatever clock."""
    runtime = {"the machine's": Runtime(), "ahead": Fixed(), "behind": Fixed(1000)}[clock]
    location = root if medium == "directory" else "memory:"
    with perdure.open(location, runtime=runtime) as store:
        with store.create("s") as session:
            digest = refer(session, b"value", time=1)
        assert [blob.digest for blob in store.expire("s", keep_last=0).expired] == [digest]
        with store.writer("s") as session:
            session.put_blob(b"value")
        assert store.expire("s").expired == ()
        assert kept(store) == [b"value"]
        # It expires again like any other, once somebody says so.
        assert [blob.digest for blob in store.expire("s", keep_last=0).expired] == [digest]
        assert kept(store) == []
        assert store.verify("s").status == "ok"


@pytest.mark.parametrize("clock", ["the machine's", "ahead", "behind"])
def test_what_a_crash_left_of_expired_content_goes(root: Path, clock: str) -> None:
    """What a crash spared of expired content goes when it expires again, by whatever clock."""
    runtime = {"the machine's": Runtime(), "ahead": Fixed(), "behind": Fixed(1000)}[clock]

    def die(name: str) -> None:
        if name == "remove.before":
            raise KeyboardInterrupt

    with perdure.open(root, runtime=runtime) as store:
        with store.create("s") as session:
            digest = refer(session, b"value")
        crash.arm(hook=die)
        with pytest.raises(KeyboardInterrupt):
            store.expire("s", keep_last=0)
        crash.arm()
        assert kept(store) == [b"value"]
        assert [blob.digest for blob in store.expire("s", keep_last=0).expired] == [digest]
        assert kept(store) == []


def test_a_pin_discards_an_earlier_expiry(store: Store) -> None:
    """Content that was pinned since it expired, and is no more, goes by a condition only."""
    with store.create("s") as session:
        digest = refer(session, b"value")
    with store.writer("s") as session:
        session.expire(keep_last=0)
        session.put_blob(b"value", pinned=True)
    assert store.expire("s", keep_last=0).expired == ()
    with store.writer("s") as session:
        session.unpin(digest)
    assert store.expire("s").expired == ()
    assert kept(store) == [b"value"]
    assert [blob.digest for blob in store.expire("s", keep_last=0).expired] == [digest]


# --- what a log may hold -------------------------------------------------------------------------


@pytest.mark.parametrize("form", ['noise "{}"', '{{"noise":"{}"}}', "{}", '{{"seq":9,"data":"{}"'])
def test_noise_that_names_content_breaks_no_expiry(
    root: Path, opened: Callable[[], Store], form: str
) -> None:
    """A line that is no record and names content is passed over, and what it names stays."""
    with opened() as store, store.create("s") as session:
        named = refer(session, b"named", time=1)
        other = refer(session, b"other", time=1)
        alone = session.put_blob(b"alone")
        session.append("x", "last")
    log = folder_of(root) / "log.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[3:3] = [form.format(named).encode(), form.format(alone).encode()]
    log.write_bytes(b"\n".join(lines))
    with opened() as store:
        for dry_run in (True, False):
            report = store.expire("s", keep_last=0, dry_run=dry_run)
            assert [blob.digest for blob in report.expired] == [other]
            assert (report.unreferenced, report.kept) == ((), 2)
        assert kept(store) == [b"alone", b"named"]
        with store.writer("s") as session:
            assert session.expire(keep_last=0).expired == ()
        assert kept(store) == [b"alone", b"named"]


def test_damage_that_names_content_breaks_no_look(root: Path, opened: Callable[[], Store]) -> None:
    """Asked what would expire, a damaged log is told as such; nothing else goes wrong."""
    with opened() as store, store.create("s") as session:
        digest = refer(session, b"value")
        session.append("x", "last")
    log = folder_of(root) / "log.jsonl"
    raw = log.read_bytes().replace(b'"x/ref"', b'"x/rfe"')
    log.write_bytes(raw)
    before = files(root)
    with opened() as store:
        for dry_run in (True, False):
            try:
                report = store.expire("s", keep_last=0, dry_run=dry_run)
            except PerdureError as error:
                assert error.code == "session-damaged"  # noqa: PT017 - either is right
            else:
                assert dry_run
                assert report.kept == 1
        assert store.blob("s", digest) == b"value"
    after = files(root)
    for name in ("sessions/s/log.jsonl", f"sessions/s/blobs/{digest[:2]}/{digest}"):
        assert after[name] == before[name]


def test_a_torn_record_that_names_content_breaks_no_expiry(
    root: Path, opened: Callable[[], Store]
) -> None:
    """An unfinished last line that names content is set aside, and what it named is no matter."""
    with opened() as store, store.create("s") as session:
        refer(session, b"value")
        torn = session.put_blob(b"torn")
    with (folder_of(root) / "log.jsonl").open("ab") as log:
        log.write(b'{"data":{"blob":"' + torn.encode())
    with opened() as store:
        store.expire("s", dry_run=True)
        assert store.expire("s").expired == ()
        assert b"value" in kept(store)
        assert store.verify("s").status == "ok"


def test_expiry_of_a_log_full_of_digits_needs_little_memory(opened: Callable[[], Store]) -> None:
    """An event of hex digits is searched within eight times its size, and what it names found."""
    # Where each place in it cost an object, eight megabytes would cost eight hundred.
    with opened() as store:
        with store.create("s") as session:
            digest, unnamed = session.put_blob(b"value"), session.put_blob(b"unnamed")
            inside = session.put_blob(b"inside")
            digits = "ab" * (MIB // 4)
            session.append("x", {"hex": digits + inside + digits, "blob": digest})
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            report = store.expire("s", dry_run=True, keep_last=0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak - before < 8 * MIB
        assert {blob.digest for blob in report.expired} == {digest, inside}
        assert [blob.digest for blob in report.unreferenced] == [unnamed]


# --- putting -------------------------------------------------------------------------------------


def test_content_of_a_refused_first_commit_is_gone(root: Path, opened: Callable[[], Store]) -> None:
    """What was put for a session whose id was deleted meanwhile leaves nothing behind."""
    store = opened()
    session = store.create("s")
    session.put_blob(b"value" * 1000)
    with opened() as other:
        written(other)
        other.delete("s")
        other.empty_trash()
    with pytest.raises(SessionExists) as taken:
        session.append("x")
    assert taken.value.deleted_at is not None
    assert [*(root / "new").iterdir()] == []
    session.close()
    store.close()
    assert [*(root / "new").iterdir()] == []
    with opened() as again:
        assert (again.list(), again.missing()) == ([], [])


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("error", [ConnectionResetError("peer"), OSError(28, "theirs"), KeyError()])
def test_an_error_of_the_source_passes_unchanged(
    store: Store, root: Path, error: Exception, *, begun: bool
) -> None:
    """What the caller's own source raises is none of the store's errors, and leaves nothing."""
    session = store.create("s")
    if begun:
        session.append("x")

    def parts() -> Iterator[bytes]:
        yield b"half"
        raise error

    with pytest.raises(type(error)) as raised:
        session.put_blob(parts())
    assert raised.value is error
    digest = session.put_blob(b"whole")
    session.append("x", {"blob": digest})
    session.close()
    assert kept(store) == [b"whole"]
    if root.exists():
        blobs = folder_of(root) / "blobs"
        assert [path.name for path in blobs.rglob("*") if path.is_file()] == [digest]
        assert [*(root / "new").iterdir()] == []


def test_without_a_store_content_is_taken_and_dropped() -> None:
    """With none: whatever a writer does for content works, before the first commit and after."""
    with perdure.open("none:") as store, store.create("s") as session:
        for _ in range(2):
            digest = session.put_blob(b"value")
            assert len(digest) == 64
            assert session.put_blob([b"val", b"ue"], pinned=True) == digest
            assert session.pin(digest).type == "content/pinned"
            assert session.unpin(digest).type == "content/unpinned"
            report = session.expire(keep_last=0)
            assert (report.expired, report.unreferenced, report.kept) == ((), (), 0)
            assert session.expire(dry_run=True) == session.expire()
            assert session.compact() == (0, 0)
            assert session.append("x", {"blob": digest}).type == "x"
    # In another order: each of them as the very first call.
    calls: list[Callable[[Session], object]] = [
        lambda session: session.expire(),
        lambda session: session.compact(),
        lambda session: session.pin(NOWHERE),
        lambda session: session.put_blob(b"value", pinned=True),
    ]
    for number, call in enumerate(calls):
        with perdure.open("none:") as store, store.create(str(number)) as session:
            call(session)
            session.append("x")
            call(session)


# --- what is asked for ---------------------------------------------------------------------------


def test_what_names_nothing_is_refused(store: Store) -> None:
    """A pin of nothing, types that are none and the empty id are refused by name."""
    with store.create("s") as session:
        digest = session.put_blob(b"value")
        session.append("x", {"blob": digest})
        calls: list[Callable[[], object]] = [
            session.pin,
            session.unpin,
            lambda: session.expire(kinds=[[1]]),  # type: ignore[list-item]
            lambda: session.expire(kinds=[5]),  # type: ignore[list-item]
            lambda: session.expire(kinds=5),  # type: ignore[arg-type]
            lambda: store.expire("s", kinds=[[1]], dry_run=True),  # type: ignore[list-item]
            lambda: store.empty_trash(""),
            lambda: store.empty_trash(5),  # type: ignore[arg-type]
        ]
        for number, call in enumerate(calls):
            with pytest.raises(InvalidValue):
                call()
            assert session.position.seq == 0, number
        assert session.expire(kinds=("x",)).kept == 1
    assert kept(store) == [b"value"]


def test_a_dry_run_writes_nothing_and_needs_no_lock(
    root: Path, opened: Callable[[], Store]
) -> None:
    """Asking what would expire leaves every byte, closes no turn and waits for no writer."""
    with opened() as store:
        session = store.create("s")
        session.append("turn/start", {}, turn="t")
        digest = refer(session, b"value", time=1)
        alone = session.put_blob(b"alone")
        with opened() as other:
            for asked in (store, other):
                report = asked.expire("s", keep_last=0, dry_run=True)
                assert [blob.digest for blob in report.expired] == [digest]
        session.close()
    with (folder_of(root) / "log.jsonl").open("ab") as log:
        log.write(b'{"seq":')
    before = files(root)
    for _ in range(2):
        with opened() as store:
            report = store.expire("s", keep_last=0, dry_run=True)
            assert [blob.digest for blob in report.expired] == [digest]
            assert [blob.digest for blob in report.unreferenced] == [alone]
            assert report.kept == 0
        assert files(root) == before
    with opened() as store, pytest.raises(SessionNotFound):
        store.expire("nobody", dry_run=True)
    assert files(root) == before


def test_archiving_works_from_the_session_and_beside_it(store: Store) -> None:
    """A session archives itself, and its store does it also while the session is open there."""
    with store.create("s") as session:
        session.append("x")
        assert session.archive().type == "session/archived"
        assert session.unarchive().type == "session/unarchived"
        assert store.archive("s").type == "session/archived"
        assert store.unarchive("s").seq == 4
        assert session.append("x").seq == 5
    assert store.archive("s").seq == 6
    kinds = [event.type for event in store.read_from("s")]
    assert kinds[1:5] == ["session/archived", "session/unarchived"] * 2
    for call in (store.archive, store.unarchive):
        with pytest.raises(SessionNotFound):
            call("nobody")


# --- the trash -----------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [False, True])
def test_what_an_interrupted_emptying_left_goes(
    root: Path, opened: Callable[[], Store], *, others: bool
) -> None:
    """Emptying removes what an earlier emptying left half removed, were it the only thing there."""

    def die(name: str) -> None:
        if name == "remove.before":
            raise KeyboardInterrupt

    with opened() as store:
        with store.create("s") as session:
            refer(session, b"secret")
        store.delete("s")
        crash.arm(hook=die)
        with pytest.raises(KeyboardInterrupt):
            store.empty_trash()
        crash.arm()
        if others:
            written(store, "other")
            store.delete("other")
    assert b"secret" in files(root / "trash").values()
    with opened() as store:
        assert [gone.id for gone in store.empty_trash()] == (["other"] if others else [])
    assert [value for value in files(root / "trash").values() if value is not None] == []
    assert [name for name in files(root / "trash") if "purging" in name] == []


def test_a_foreign_mode_blocks_no_emptying(root: Path, opened: Callable[[], Store]) -> None:
    """A deleted session whose folders let others in goes like the others, and holds up none."""
    with opened() as store:
        for id in ("a", "b", "c"):
            with store.create(id) as session:
                refer(session, b"secret")
        (folder_of(root, "b") / "blobs").chmod(0o755)
        next((folder_of(root, "c") / "blobs").iterdir()).chmod(0o777)
        (folder_of(root, "c") / "log.jsonl").chmod(0o644)
        for id in ("a", "b", "c"):
            store.delete(id)
        assert sorted(gone.id for gone in store.empty_trash()) == ["a", "b", "c"]
        assert (store.trash(), store.empty_trash()) == ([], [])
        assert [value for value in files(root / "trash").values() if value is not None] == []
        for id in ("a", "b", "c"):
            with pytest.raises(SessionExists):
                store.create(id)


def test_deleting_succeeds_though_evidence_cannot_be_written(
    root: Path, opened: Callable[[], Store]
) -> None:
    """What was moved to the trash is told, and the trash alone keeps the id until evidence can."""
    evidence = root / "evidence.sqlite"
    with opened() as store:
        written(store)
        written(store, "other")
    evidence.chmod(0o644)
    with opened() as store:
        gone = store.delete("s")
        assert gone.id == "s"
        assert store.trash() == [gone]
        assert [entry.id for entry in store.list()] == ["other"]
        with pytest.raises(SessionExists) as taken:
            store.create("s")
        assert taken.value.deleted_at == gone.deleted_at
        # Purged it would be nobody's to tell: so that waits.
        with pytest.raises(UnsafeFile):
            store.empty_trash()
        assert store.trash() == [gone]
    evidence.chmod(0o600)
    with opened() as store:
        assert store.missing() == []
        assert [each.id for each in store.empty_trash()] == ["s"]
        with pytest.raises(SessionExists):
            store.create("s")
        assert store.missing() == []


def test_a_purged_session_says_when_it_was_deleted(store: Store) -> None:
    """Whoever asks for a session that was purged learns that it was deleted, and when."""
    with store.create("s") as session:
        digest = refer(session, b"value")
    gone = store.delete("s")
    calls: list[Callable[[], object]] = [
        lambda: store.inspect("s"),
        lambda: store.writer("s"),
        lambda: store.prepare("s"),
        lambda: store.load("s"),
        lambda: store.append("s", [{"type": "x"}]),
        lambda: store.append("s", []),
        lambda: [*store.read_from("s")],
        lambda: [*store.raw("s")],
        lambda: store.blobs("s"),
        lambda: store.blob("s", digest),
        lambda: [*store.open_blob("s", digest)],
        lambda: store.delete("s"),
        lambda: store.verify("s"),
        lambda: store.accept("s"),
        lambda: store.compact("s"),
        lambda: store.expire("s"),
        lambda: store.expire("s", dry_run=True),
        lambda: store.archive("s"),
    ]
    for emptied in (False, True):
        if emptied:
            store.empty_trash()
            calls.append(lambda: store.restore("s"))
        told: list[int | None] = []
        for call in calls:
            with pytest.raises(SessionNotFound) as missing:
                call()
            told.append(missing.value.deleted_at)
        assert told == [gone.deleted_at] * len(calls)
    with pytest.raises(SessionNotFound) as unknown:
        store.inspect("nobody")
    assert unknown.value.deleted_at is None


@pytest.mark.parametrize("medium", ["directory", "memory"])
@pytest.mark.parametrize("age", [0, timedelta(0), 0.0])
def test_an_age_of_nothing_takes_everything(root: Path, medium: str, age: Any) -> None:
    """What was deleted in this very millisecond is older than nothing."""
    clock = Fixed()
    location = root if medium == "directory" else "memory:"
    with perdure.open(location, runtime=clock) as store:
        for id in ("a", "b"):
            written(store, id)
            store.delete(id)
        assert store.empty_trash(older_than=0.001) == []
        assert [gone.id for gone in store.empty_trash(older_than=age)] == ["a", "b"]
        written(store, "c")
        store.delete("c")
        clock.now += 1
        assert store.empty_trash(older_than=0.002) == []
        assert [gone.id for gone in store.empty_trash(older_than=0.001)] == ["c"]


def test_only_what_is_remembered_is_forgotten(store: Store) -> None:
    """Forgetting an id that was never used, or was forgotten, says that there is none."""
    written(store)
    with pytest.raises(SessionNotFound) as unknown:
        store.forget("nobody")
    assert unknown.value.session == "nobody"
    store.delete("s")
    store.empty_trash()
    store.forget("s")
    with pytest.raises(SessionNotFound):
        store.forget("s")
    written(store)


def test_a_folder_without_log_has_a_place(root: Path, opened: Callable[[], Store]) -> None:
    """Where the log of a session is or would be is told, whatever became of it."""
    with opened() as store:
        written(store)
        path = store.locate("s")
        assert path == str(folder_of(root) / "log.jsonl")
        os.unlink(path)
        assert store.locate("s") == path
        nobody = store.locate("nobody")
        assert nobody == str(folder_of(root, "nobody") / "log.jsonl")


@pytest.mark.parametrize("stray", ["zzz", "README", "999", "99999999999999x-00", ".hidden", "-"])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_strays_in_the_trash_is_no_session(
    root: Path, opened: Callable[[], Store], stray: str, kind: str
) -> None:
    """Something else in the trash of an id is never restored and does not take the id."""
    with opened() as store:
        written(store, "other")
        place = root / "trash" / "s"
        place.mkdir(mode=0o700, parents=True)
        place.parent.chmod(0o700)
        if kind == "folder":
            (place / stray).mkdir(mode=0o700)
        else:
            (place / stray).write_text("stray")
            (place / stray).chmod(0o600)
        assert store.trash() == []
        with pytest.raises(SessionNotFound) as missing:
            store.restore("s")
        assert missing.value.deleted_at is None
        written(store)
        gone = store.delete("s")
        assert store.trash() == [gone]
        store.restore("s")
        assert [event.data for event in store.read_from("s")] == ["s"]
        assert store.trash() == []
        store.delete("s")
        assert [each.id for each in store.empty_trash()] == ["s"]
        store.forget("s")
        written(store)
        assert (place / stray).exists()


# --- an import that was deleted ------------------------------------------------------------------


@pytest.mark.parametrize("emptied", [False, True])
def test_a_deleted_import_comes_back_under_no_other_id(
    tmp_path: Path, opened: Callable[[], Store], *, emptied: bool
) -> None:
    """A source that was imported without its header, and deleted, stays out when it is mended."""
    source = tmp_path / "session.jsonl"
    source.write_bytes(b"{broken\n" + record("a", 1))
    with opened() as store:
        first = import_one(store, source).session
        assert first is not None
        store.delete(first)
        if emptied:
            store.empty_trash()
        source.write_bytes(HEADER + record("a", 1))
        report = import_one(store, source)
        assert (report.error, report.new) == (None, 0)
        assert "deleted" in str(report.skipped)
        assert store.list() == []
        # Somebody who wants it back says so.
        if emptied:
            store.forget(first)
        else:
            store.restore(first)
        report = import_one(store, source)
        assert (report.error, report.new) == (None, 2)


def test_content_that_goes_while_it_is_read_has_expired(tmp_path: Path) -> None:
    """Bytes that end early because their content is removed meanwhile are no damage."""
    with perdure.open(f"sqlite:{tmp_path / 'store.db'}") as store:
        with store.create("s") as session:
            digest = session.put_blob(b"x" * 3_000_000)
            session.append("x", digest)
        backend = store._backend
        whole = backend.blob("s", digest)
        assert whole is not None

        def cut_off(session: str, _: str) -> Iterator[bytes]:
            store.expire(session, older_than=0)
            yield b"x"

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "blob", cut_off)
            with pytest.raises(ContentExpired):
                store.blob("s", digest)


@pytest.mark.parametrize("comes_back", [True, False])
def test_content_that_comes_back_while_it_is_verified_is_no_damage(
    comes_back: bool, tmp_path: Path
) -> None:
    """What expires and is put again meanwhile is sound; what is named and never there is not."""
    with perdure.open(f"sqlite:{tmp_path / 'store.db'}") as store:
        with store.create("s") as session:
            digest = refer(session, b"content")
        backend = store._backend
        read, looks = backend.blob, 0

        def replaced(session: str, digest: str) -> Iterator[bytes] | None:
            nonlocal looks
            looks += 1
            if comes_back and looks > 1:
                return read(session, digest)
            store.expire(session, older_than=0)
            with store.writer(session) as writer:
                refer(writer, b"content")
            return None

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(backend, "blob", replaced)
            content = store.verify("s").content
        assert content is not None
        assert content.damaged == (() if comes_back else (digest,))
        assert looks > 1
        assert store.verify("s").sound
