"""Content that expires and sessions that are deleted are whole or gone, whoever dies meanwhile."""

import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.durable import crash
from perdure.errors import ContentExpired, PerdureError, SessionNotFound
from perdure.model.record import decode_line
from perdure.runtime import Runtime
from perdure.store import Session, Store
from perdure.testing.agents import open_folder
from perdure.testing.crash import ENCODINGS, crash_points, in_own_process
from perdure.testing.ledger import Finding
from perdure.testing.scenes import scenes
from tests.proof.summary import summarise
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

KILL = "perdure.testing.keeping:kill_keepers"


def test_deaths_leave_everything_before_or_after(tmp_path: Path, seed: int) -> None:
    """Whoever dies while content expires or sessions are deleted: all is whole, none is lost."""
    share = scaled(10) / 10
    counts = in_own_process(KILL, folder=str(tmp_path), seed=seed, share=share)
    summarise("deaths of keepers", seed, counts)
    assert {f"scene {scene.name}" for scene in scenes(str(seed))} <= counts.keys()
    assert counts["observations"] > 0
    assert counts["events of the neighbour"] > 0
    if SOAK:
        points = {*crash_points(), *crash_points("perdure.evidence")}
        # No turn ends in these scenes: checkpoints have a proof of their own.
        points = {point for point in points if not point.startswith("derived.")}
        reached = {f"{point} {encoding}" for point in points for encoding in ENCODINGS}
        assert reached - counts.keys() == set()


# --- the harness finds stores that keep less ------------------------------------------------------


def open_careless(path: str, encoding: str, runtime: Runtime) -> Store:
    """Removes content before the log says so."""
    append = Session.append

    def careless(session: Session, type: str, data: Any = None, **more: Any) -> Any:  # noqa: A002
        for digest in data["blobs"] if type == "content/expired" else ():
            for blob in Path(path).rglob(digest):
                blob.unlink()
                crash.point("remove.before")
        return append(session, type, data, **more)

    if append.__name__ == "append":
        setattr(Session, "append", careless)  # noqa: B010
    return open_folder(path, encoding, runtime)


def open_copying(path: str, encoding: str, runtime: Runtime) -> Store:
    """Deletes by copying to the trash and removing, not by one rename."""
    from perdure.durable.files import Folder

    move = Folder.move

    def copied(folder: Folder, name: str, target: Folder, new_name: str) -> None:
        if "trash" not in target.path:
            move(folder, name, target, new_name)
            return
        source = os.path.join(folder.path, name)
        shutil.copytree(source, os.path.join(target.path, new_name))
        crash.point("move.before")
        shutil.rmtree(source)

    if move.__name__ == "move":
        setattr(Folder, "move", copied)  # noqa: B010
    return open_folder(path, encoding, runtime)


@pytest.mark.parametrize(
    ("opener", "scene", "complaint"),
    [
        ("open_careless", "content", "lost [0-9a-f]{64}, which is needed|expired"),
        ("open_copying", "trash", r"is in \['stored', 'trash'\]|between"),
    ],
    ids=["expiry", "deletion"],
)
def test_the_harness_finds_a_careless_store(
    tmp_path: Path, seed: int, opener: str, scene: str, complaint: str
) -> None:
    """Removing before it is on record, and moving in two steps, are found out."""
    with pytest.raises(Finding, match=complaint):
        in_own_process(
            KILL,
            folder=str(tmp_path),
            seed=seed,
            share=1.0,
            names=[scene],
            opener=f"tests.proof.test_keeping:{opener}",
        )


# --- readers in the middle of it ------------------------------------------------------------------


@pytest.mark.parametrize("then", ["compact", "expire", "delete", "purge", "replace"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_reader_goes_on_in_what_it_opened(tmp_path: Path, encoding: str, then: str) -> None:
    """A reader in the middle of a log and of content reads on, whatever happens to the session."""
    large = os.urandom(3 << 20)
    store = perdure.open(tmp_path / "store", encoding=encoding)
    with store.create("s") as session:
        digest = session.put_blob(large)
        for number in range(300):
            session.append("x", {"number": number, "blob": digest, "text": "the same " * 20})
    events = store.read_from("s")
    page = store.read_from("s", 150)
    parts = store.open_blob("s", digest)
    seen = [next(events)]
    paged = [next(page)]
    content = [next(parts)]
    if then == "compact":
        done = store.compact("s")
        assert encoding == "raw" or done.after < done.before
    elif then == "expire":
        assert store.expire("s", older_than=0).expired
    else:
        store.delete("s")
    if then in ("purge", "replace"):
        store.empty_trash()
    if then == "replace":
        store.forget("s")
        with store.create("s") as other:
            other.append("x", {"number": "another"})
    seen += events
    paged += page
    content += parts

    # What was appended after the reading began may be there: the event that names what expired.
    assert [event.data["number"] for event in seen if event.type == "x"] == [*range(300)]
    assert [event.data["number"] for event in paged if event.type == "x"] == [*range(150, 300)]
    assert b"".join(content) == large
    with suppress(ContentExpired, SessionNotFound):
        assert store.blob("s", digest) == large
    store.close()


class _Between:
    """Does something right after a file or folder was opened for reading, once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.then: dict[str, Callable[[], object]] = {}
        self._open = os.open
        patch.setattr(os, "open", self._opened)

    def _opened(self, name: Any, flags: int, *args: Any, **more: Any) -> int:
        descriptor = self._open(name, flags, *args, **more)
        if not flags & (os.O_WRONLY | os.O_RDWR):
            self.then.pop(os.path.basename(name), lambda: None)()
        return descriptor


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> _Between:
    return _Between(monkeypatch)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_readers_that_open_between_two_steps(
    tmp_path: Path, encoding: str, between: _Between
) -> None:
    """Opening a log or content that is replaced or removed right then is no unsafe file."""
    store = perdure.open(tmp_path / "store", encoding=encoding)
    with store.create("s") as session:
        digest = session.put_blob(b"content")
        for number in range(50):
            session.append("x", {"number": number, "blob": digest})
    between.then[os.path.basename(str(store.locate("s")))] = lambda: store.compact("s")
    assert len([*store.read_from("s")]) == 50
    between.then[digest] = lambda: store.expire("s", keep_last=0)
    with suppress(ContentExpired):
        assert store.blob("s", digest) == b"content"
    assert not between.then
    store.close()


def _remove(store: Store, id: str) -> None:
    store.delete(id)
    store.empty_trash()


def test_a_session_that_is_purged_while_it_is_opened(tmp_path: Path, between: _Between) -> None:
    """A reader that opened its folder right before that finds no session, and no damaged one."""
    store = perdure.open(tmp_path / "store")
    reads: dict[str, Callable[[str], object]] = {
        "read": lambda id: [*store.read_from(id)],
        "verify": store.verify,
        "inspect": lambda id: store.inspect(id).problems,
        "blobs": store.blobs,
    }
    for name, read in reads.items():
        with store.create(name) as session:
            session.append("x")
        between.then[name] = partial(_remove, store, name)
        with suppress(SessionNotFound):
            assert read(name) == []
        assert not between.then
    store.close()


@pytest.mark.parametrize("rest", [0, 300])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_torn_tail_is_cut_while_it_is_read(
    tmp_path: Path, encoding: str, rest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader on its way to a torn tail that a writer cuts off reads what is whole."""
    store = perdure.open(tmp_path / "store", encoding=encoding)
    with store.create("s") as session:
        for number in range(5):
            session.append("x", number)
    torn = b"\x28\xb5\x2f\xfd\x04" if encoding == "zst" else b'{"seq":'
    torn += b"x" * rest
    left = [0]

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any) -> Any:
            left[0] -= threading.current_thread() is threading.main_thread()
            assert left[0] > -10_000, "it goes round and round"
            if left[0] == 0:
                left[0] = -1
                with perdure.open(tmp_path / "store") as other:
                    other.load("s")
            return call(*args)

        return called

    for name in ("pread", "fstat"):
        monkeypatch.setattr(os, name, before(getattr(os, name)))
    reads: list[Callable[[], list[object]]] = [
        lambda: [event.data for event in store.read_from("s")],
        lambda: [decode_line(x).first for x in [*store.raw("s")][1:6] if isinstance(x, bytes)],
    ]
    for read in reads:
        for moment in range(1, 1000):
            with open(str(store.locate("s")), "ab") as log:
                log.write(torn)
            left[0] = moment
            assert read() == [*range(5)]
            if left[0] > 0:
                break
        assert moment > 5
    store.close()


def test_a_dry_run_over_a_torn_tail_foretells_the_run(tmp_path: Path) -> None:
    """What a torn commit names is neither spared nor foretold to be."""
    store = perdure.open(tmp_path / "store", encoding="raw")
    with store.create("s") as session:
        digest = session.put_blob(b"content")
        session.append("x", {"blob": digest})
    with open(str(store.locate("s")), "a", encoding="ascii") as log:
        log.write(f'{{"seq":1,"type":"content/expired","data":{{"blobs":["{digest}"')
    foretold = store.expire("s", older_than=0, dry_run=True)
    assert [blob.digest for blob in foretold.expired] == [digest]
    assert store.expire("s", older_than=0) == foretold
    store.close()


def test_emptying_the_trash_again_finishes_it(tmp_path: Path) -> None:
    """What an emptying left that was broken off is removed by the next one."""

    def breaks_off(name: str) -> None:
        if name == "remove.before":
            raise KeyboardInterrupt

    store = perdure.open(tmp_path / "store")
    with store.create("s") as session:
        session.append("x", {"blob": session.put_blob(b"private")})
    store.delete("s")
    crash.arm(hook=breaks_off)
    with pytest.raises(KeyboardInterrupt):
        store.empty_trash()
    crash.arm()
    assert store.trash() == []
    assert store.empty_trash() == []
    assert [path for path in (tmp_path / "store/trash").rglob("*") if path.is_file()] == []
    store.close()


def test_a_session_that_goes_while_it_is_listed(tmp_path: Path) -> None:
    """A session that is deleted in the middle of a listing is in it, or is not; never damaged."""
    store = perdure.open(tmp_path / "store")
    for name in "abc":
        with store.create(name) as session:
            session.append("x")
    entries = iter(store._backend.entries())
    assert next(entries).id == "a"
    store.delete("b")
    rest = [*entries]
    assert [entry.problem for entry in rest] == [None] * len(rest)
    assert [entry.id for entry in rest][-1] == "c"
    store.close()


def test_a_session_that_appears_is_not_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is stored or restored while somebody looks for what is missing is not."""
    store = perdure.open(tmp_path / "store")
    with store.create("s") as session:
        session.append("x")
    store.delete("s")
    backend = store._backend
    entries, trash = backend.entries, backend.trash

    def restored_after(read: Any) -> Any:
        found = [*read()]
        with suppress(PerdureError):
            store.restore("s")
        return iter(found)

    monkeypatch.setattr(backend, "entries", lambda: restored_after(entries))
    monkeypatch.setattr(backend, "trash", lambda: restored_after(trash))
    store._witness.push()
    assert store.missing() == []
    store.close()
