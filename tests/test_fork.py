"""A fork begins with the same bytes as its parent, and owes it nothing from then on."""

import errno
import itertools
import os
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.backends.directory import holding
from perdure.backends.memory import MemoryBackend
from perdure.errors import (
    FormatUnsupported,
    InvalidValue,
    KeyConflict,
    PersistenceDisabled,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    StoreClosed,
)
from perdure.importers import import_sessions
from perdure.model.event import Event, draft
from perdure.model.record import Record, digest, seal
from perdure.runtime import SYSTEM
from perdure.store import Store, forkpoint
from tests.media import ALL, KEPT, contents, lines, open_medium, records
from tests.sources import FORMAT, PLAIN
from tests.support import scaled, soaked

Events = list[dict[str, Any]]


def turn(name: str, agent: str | None = None, deltas: int = 4) -> Events:
    """A turn of one answer that was streamed."""
    where = {"turn": name, "agent": agent}
    return [
        {"type": "turn/start", "data": {}, **where},
        *(
            {"type": "assistant/delta", "data": {"text": f"{name} {n}"}, **where}
            for n in range(deltas)
        ),
        {"type": "turn/end", "data": {"reason": "completed"}, **where},
    ]


def write(store: Store, id: str = "p", **options: Any) -> None:
    """Write two turns of six events with content behind each (0 to 5, 6; 7 to 12, 13)."""
    with store.create(id, cwd="/srv/a", config={"model": [1, 2.5]}, preset="coder", **options) as s:
        for name in ("a", "b"):
            s.append_many(turn(name))
            s.append("note", {"blob": s.put_blob(name.encode() * 5000)}, key=name)


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_medium(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Store]:
    with open_medium("raw", tmp_path) as store:
        yield store


def assert_fork(store: Store, child: str, parent: str, at: int, *, own: int = 1) -> None:
    """Demand the parent's records up to `at`, byte for byte, and own ones behind them."""
    theirs, mine = records(store, parent), records(store, child)
    whole = [record for record in theirs if record.last <= at]
    assert [record.line for record in mine[: len(whole)]] == [record.line for record in whole]
    inherited = list(itertools.islice(store.read_from(parent), at + 1))
    found = list(store.read_from(child))
    assert found[: at + 1] == inherited
    assert len(found) == at + 1 + own
    header = store.inspect(child).header
    assert header is not None
    assert found[at + 1].type == "session/forked"
    assert found[at + 1].data == {"header": header.digest, "session": parent, "seq": at}
    assert (header.parent, header.seed) == (perdure.Parent(parent, at), at + 1)
    report = store.verify(child)
    assert report.sound, report
    assert report.problems == []


# --- what it inherits -----------------------------------------------------------------------------


def test_it_begins_with_the_same_bytes(store: Store) -> None:
    """A fork has the parent's records up to the place, and a header that says where it is from."""
    write(store)
    before = lines(store, "p")
    with store.fork("p", 6, new_id="c") as child:
        assert child.position.seq == 7
        header = child.header
    assert_fork(store, "c", "p", 6)
    parent = store.inspect("p").header
    assert parent is not None
    assert header.genesis == parent.genesis
    assert (header.cwd, header.preset) == ("/srv/a", "coder")
    assert header.config == {"model": [1, 2.5]}
    assert (header.depth, header.origin, header.vocabulary) == (0, None, "perdure/1")
    assert lines(store, "p") == before


def test_it_goes_its_own_way(store: Store) -> None:
    """What either of the two appends later is not in the other."""
    write(store)
    with store.fork("p", new_id="c", cwd="/srv/b", preset="other", config=[1]) as child:
        child.append("mine")
        assert (child.header.cwd, child.header.preset, child.header.config) == (
            "/srv/b",
            "other",
            [1],
        )
    with store.writer("p") as parent:
        parent.append("theirs")
    assert [event.type for event in store.read_from("c", 14)] == ["session/forked", "mine"]
    assert [event.type for event in store.read_from("p", 14)] == ["theirs"]
    with store.writer("c") as child:
        assert child.position.seq == 15


def test_a_record_that_the_place_cuts_is_encoded_again(store: Store) -> None:
    """Where the place lies within a packed run, its first events are inherited all the same."""
    with store.create("p") as session:
        session.append("x")
        session.append_many([{"type": "delta", "data": {"text": str(n)}} for n in range(9)])
    assert [(r.first, r.last) for r in records(store, "p")] == [(0, 0), (1, 9)]
    for at in range(10):
        store.fork("p", at, new_id=f"c{at}").close()
        assert_fork(store, f"c{at}", "p", at)
    assert [(r.first, r.last) for r in records(store, "c7")] == [(0, 0), (1, 7), (8, 8)]


def test_the_place_is_the_last_outside_a_turn(store: Store) -> None:
    """Without a place it is forked behind the last event at which no turn is open."""
    write(store)
    with store.writer("p") as session:
        session.append_many(turn("c")[:-1])
        with store.fork("p", new_id="c") as child:
            assert child.header.seed == 14
    assert_fork(store, "c", "p", 13)


def test_a_turn_names_a_place(store: Store) -> None:
    """`turn` stands for the event that ends it; of several of that name, for the newest."""
    write(store)
    store.fork("p", turn="a", new_id="c").close()
    assert_fork(store, "c", "p", 5)
    store.append("p", turn("a"))
    store.fork("p", turn="a", new_id="d").close()
    assert_fork(store, "d", "p", 19)
    with pytest.raises(InvalidValue, match="no turn 'z'"):
        store.fork("p", turn="z")


def test_a_turn_belongs_to_an_agent(store: Store) -> None:
    """Where several agents have a turn of that name, the agent says which; else it need not."""
    with store.create("p") as session:
        session.append_many([*turn("t", "x"), *turn("t", "y"), *turn("only", "y")])
    for agent, at in (("x", 5), ("y", 11)):
        store.fork("p", turn="t", agent=agent, new_id=agent).close()
        assert_fork(store, agent, "p", at)
    store.fork("p", turn="only", new_id="c").close()
    assert_fork(store, "c", "p", 17)
    with pytest.raises(InvalidValue) as refused:
        store.fork("p", turn="t")
    assert refused.value.hint == "agents that have one: 'x', 'y'"
    with pytest.raises(InvalidValue, match="no turn 'only' of agent 'x'"):
        store.fork("p", turn="only", agent="x")


def test_within_a_turn_it_is_refused(store: Store) -> None:
    """A place within an open turn is refused, and the nearest ones are named."""
    write(store)
    for at in range(7, 12):
        with pytest.raises(InvalidValue) as refused:
            store.fork("p", at)
        assert refused.value.path == "at"
        assert refused.value.hint == "the nearest places to fork it are at=6 or at=12"
    with pytest.raises(InvalidValue) as refused:
        store.fork("p", 2)
    assert refused.value.hint == "the nearest places to fork it are at=-1 or at=5"
    store.append("p", turn("c")[:2])
    with pytest.raises(InvalidValue) as refused:
        store.fork("p", 14)
    assert refused.value.hint == "the nearest places to fork it are at=13"
    with pytest.raises(InvalidValue, match="still open"):
        store.fork("p", turn="c")
    assert [entry.id for entry in store.list()] == ["p"]


def test_turns_of_other_agents_count(store: Store) -> None:
    """A place lies within an open turn whoever's it is."""
    mine, theirs = turn("a", "x"), turn("b", "y")
    with store.create("p") as session:
        session.append_many([mine[0], theirs[0], mine[-1], theirs[-1]])
    for at in (0, 1, 2):
        with pytest.raises(InvalidValue) as refused:
            store.fork("p", at)
        assert refused.value.hint == "the nearest places to fork it are at=-1 or at=3"
    with pytest.raises(InvalidValue):
        store.fork("p", turn="a")
    store.fork("p", turn="b", new_id="c").close()
    assert_fork(store, "c", "p", 3)


@pytest.mark.parametrize(
    ("at", "options", "path"),
    [
        (99, {}, "at"),
        (-2, {}, "at"),
        (1.0, {}, "at"),
        (True, {}, "at"),
        ("6", {}, "at"),
        (6, {"turn": "a"}, "turn"),
        (None, {"turn": 5}, "turn"),
        (None, {"agent": "x"}, "agent"),
        (6, {"new_id": ""}, "id"),
        (6, {"cwd": "relative"}, "cwd"),
        (6, {"config": {1: 2}}, "config"),
    ],
)
def test_nonsense_is_refused(at: Any, options: dict[str, Any], path: str) -> None:
    """What names no place, or no header, is refused, and no session comes of it."""
    with perdure.open("memory:") as store:
        write(store)
        with pytest.raises(InvalidValue) as refused:
            store.fork("p", at, **options)
        assert refused.value.path.startswith(path)
        assert [entry.id for entry in store.list()] == ["p"]


def test_nothing_can_be_inherited(store: Store) -> None:
    """A fork before the first event has the lineage and no more; only on request."""
    with store.create("p") as session:
        session.append_many(turn("a")[:-1])
    with pytest.raises(InvalidValue) as refused:
        store.fork("p")
    assert "at=-1" in refused.value.hint
    store.fork("p", -1, new_id="c").close()
    assert_fork(store, "c", "p", -1)


def test_its_id_is_its_own(store: Store) -> None:
    """An id that is taken, or was, is refused; without one it gets a new one."""
    write(store)
    store.create("gone").append("x")
    for session in list(store._sessions.values()):
        session.close()
    store.delete("gone")
    for taken in ("p", "gone"):
        with pytest.raises(SessionExists):
            store.fork("p", new_id=taken)
    store.empty_trash()
    with pytest.raises(SessionExists):
        store.fork("p", new_id="gone")
    one, other = store.fork("p"), store.fork("p")
    assert len({"p", one.id, other.id}) == 3


def test_keys_are_inherited(store: Store) -> None:
    """A key of an inherited event is used; one behind the place is free."""
    write(store)
    digest = next(store.read_from("p", 6)).data["blob"]
    with store.fork("p", 6, new_id="c") as child:
        assert child.append("note", {"blob": digest}, key="a").seq == 6
        with pytest.raises(KeyConflict):
            child.append("note", {"blob": "another"}, key="a")
        assert child.append("note", "free", key="b").seq == 8
    with store.writer("c") as child:
        assert child.append("note", {"blob": digest}, key="a").seq == 6


def test_jobs_end_in_the_child(store: Store) -> None:
    """A job that runs in the parent is ended in the fork, where nobody works on it."""
    with store.create("p") as session:
        session.append("job/start", {"id": "j"}, agent="x")
        with store.fork("p", new_id="c") as child:
            assert child.position.seq == 2
            child.append("mine")
    ended = next(store.read_from("c", 2))
    assert (ended.type, ended.data["id"], ended.agent) == ("job/end", "j", "x")
    assert ended.data["status"] == "interrupted"
    assert_fork(store, "c", "p", 0, own=3)
    with store.writer("c") as child:
        assert child.position.seq == 3


def test_a_fork_of_a_fork(store: Store) -> None:
    """A fork can be forked, before its own beginning and behind it, as often as one likes."""
    write(store)
    store.fork("p", 6, new_id="c").close()
    store.append("c", turn("c"))
    store.fork("c", 5, new_id="d").close()
    store.fork("c", new_id="e").close()
    store.fork("e", new_id="f").close()
    for child, parent, at in (("d", "c", 5), ("e", "c", 13), ("f", "e", 14)):
        assert_fork(store, child, parent, at)
    headers = [store.inspect(each).header for each in "pcdef"]
    assert len({header.genesis for header in headers if header is not None}) == 1


# --- a parent that is being written ---------------------------------------------------------------


def test_what_is_buffered_stays(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session that is open, only what is durable is inherited, and it stays open."""
    with store.create("p") as session:
        session.append_many(turn("a"))
        monkeypatch.setattr(session._flusher, "schedule", lambda *_: True)
        session.buffer("later")
        with store.fork("p", new_id="c") as child:
            assert child.header.seed == 6
        session.flush()
        assert session.position.seq == 6
    assert_fork(store, "c", "p", 5)


def test_a_commit_under_way_is_not_inherited(tmp_path: Path) -> None:
    """Records that stand in the log and are not acknowledged are not inherited while it is open."""
    with open_medium("raw", tmp_path) as store:
        session = store.create("p")
        session.append_many(turn("a"))
        session.append_many(turn("b")[:3])
        log = Path(str(store.locate("p")))
        more = seal(session.position, [draft("turn/end", {}, time=1, turn="b")])
        size = log.stat().st_size
        with log.open("ab") as file:
            file.write(more[0].line)
        try:
            store.fork("p", new_id="c").close()
            assert_fork(store, "c", "p", 5)
            with pytest.raises(InvalidValue, match="has no event 9; its last is 8"):
                store.fork("p", 9)
            with pytest.raises(InvalidValue, match="still open"):
                store.fork("p", turn="b")
            with pytest.raises(InvalidValue) as refused:
                store.fork("p", 7)
            assert refused.value.hint == "the nearest places to fork it are at=5"
        finally:
            os.truncate(log, size)
        session.close()


def test_a_parent_that_is_replaced_meanwhile(raw: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the parent's log becomes another one while it is read, there is no child."""
    write(raw)
    publish = raw._backend.publish
    log = Path(str(raw.locate("p")))
    before = log.read_bytes()

    def replace(header: Any, *rest: Any) -> Any:
        log.write_bytes(before[:-40] + b"\n")
        return publish(header, *rest)

    monkeypatch.setattr(raw._backend, "publish", replace)
    with pytest.raises(StorageUnavailable) as refused:
        raw.fork("p", new_id="c")
    assert refused.value.retryable
    log.write_bytes(before)
    monkeypatch.undo()
    assert [entry.id for entry in raw.list()] == ["p"]
    raw.fork("p", new_id="c").close()
    assert_fork(raw, "c", "p", 13)


# --- content --------------------------------------------------------------------------------------


def test_content_comes_along(store: Store) -> None:
    """Content that inherited events refer to is copied, and none that later ones refer to."""
    write(store)
    store.fork("p", 6, new_id="c").close()
    digest = next(store.read_from("p", 6)).data["blob"]
    assert contents(store, "c") == {digest: b"a" * 5000}
    store.fork("p", new_id="d").close()
    assert contents(store, "d") == contents(store, "p")
    store.delete("p")
    store.empty_trash()
    assert store.blob("c", digest) == b"a" * 5000
    assert store.verify("c").sound


def test_copies_are_no_links(raw: Store) -> None:
    """Content of the child is a file of its own."""
    write(raw)
    raw.fork("p", new_id="c").close()
    folder = Path(str(raw.locate("c"))).parent
    blobs = [path for path in folder.glob("blobs/*/*") if path.is_file()]
    assert len(blobs) == 2
    for path in [*blobs, folder / "log.jsonl"]:
        assert (path.stat().st_nlink, path.stat().st_mode & 0o777) == (1, 0o600)


@pytest.mark.parametrize("kind", ["raw", "zst"])
def test_room_on_the_disk_is_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """In a folder, content is copied by the system, which shares its room where it can."""
    with open_medium(kind, tmp_path) as store:
        write(store)
        real = os.copy_file_range
        copied = []

        def count(source: int, target: int, size: int, *at: int) -> int:
            # A system may copy less than it was asked for.
            copied.append(real(source, target, min(size, 1999), *at))
            return copied[-1]

        monkeypatch.setattr(os, "copy_file_range", count)
        store.fork("p", new_id="c").close()
        assert sum(copied) == 10_000
        assert len(copied) == 6
        assert contents(store, "c") == contents(store, "p")
        assert_fork(store, "c", "p", 13)


@pytest.mark.parametrize("kind", ["raw", "zst"])
@pytest.mark.parametrize("number", [errno.EXDEV, errno.EOPNOTSUPP, None])
def test_where_it_cannot_be_shared_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: int | None
) -> None:
    """Where the system has no call that shares, or not for these files, bytes are copied."""

    def refuse(*_: int) -> int:
        raise OSError(number, "cannot")

    with open_medium(kind, tmp_path) as store:
        write(store)
        if number is None:
            monkeypatch.delattr(os, "copy_file_range")
        else:
            monkeypatch.setattr(os, "copy_file_range", refuse)
        store.fork("p", new_id="c").close()
        assert contents(store, "c") == contents(store, "p")
        assert_fork(store, "c", "p", 13)
        assert not [*tmp_path.glob("**/blobs/.*")]


@pytest.mark.parametrize(
    ("number", "error"), [(errno.ENOSPC, StorageFull), (errno.EIO, StorageUnavailable)]
)
def test_content_that_cannot_be_stored_ends_it(
    raw: Store, monkeypatch: pytest.MonkeyPatch, number: int, error: type[Exception]
) -> None:
    """If content cannot be stored, there is no child, and nothing is left of it."""
    write(raw)

    def refuse(*_: int) -> int:
        raise OSError(number, "cannot")

    monkeypatch.setattr(os, "copy_file_range", refuse)
    with pytest.raises(error):
        raw.fork("p", new_id="c")
    monkeypatch.undo()
    assert [entry.id for entry in raw.list()] == ["p"]
    assert not [*Path(str(raw.locate("p"))).parents[2].glob("new/*")]
    raw.fork("p", new_id="c").close()
    assert_fork(raw, "c", "p", 13)


def test_pins_are_inherited(store: Store) -> None:
    """What is pinned in the inherited events does not expire in the child."""
    with store.create("p") as session:
        digest = session.put_blob(b"x", pinned=True)
    store.fork("p", new_id="c").close()
    assert store.expire("c", keep_last=0).kept == 1
    assert store.blob("c", digest) == b"x"


def test_what_expired_is_said(store: Store) -> None:
    """Content that expired in the parent behind the place is written down as expired."""
    write(store)
    digests = sorted(contents(store, "p"))
    store.expire("p", keep_last=0)
    store.append("p", [{"type": "note", "data": {"sha": "f" * 64}}])
    store.fork("p", 13, new_id="c").close()
    assert_fork(store, "c", "p", 13, own=2)
    said = next(store.read_from("c", 15))
    assert (said.type, said.data["blobs"]) == ("content/expired", digests)
    assert contents(store, "c") == {}
    store.fork("p", new_id="d").close()
    assert_fork(store, "d", "p", 15)


def test_what_is_damaged_stays_behind(raw: Store) -> None:
    """Damaged content is not copied: the child says that it expired, and why."""
    write(raw)
    digest = next(raw.read_from("p", 6)).data["blob"]
    path = Path(str(raw.locate("p"))).parent / "blobs" / digest[:2] / digest
    path.write_bytes(b"other")
    raw.fork("p", new_id="c").close()
    assert_fork(raw, "c", "p", 13, own=2)
    said = next(raw.read_from("c", 15))
    assert said.data == {"blobs": [digest], "rule": {"reason": "its bytes are damaged"}}
    assert len(contents(raw, "c")) == 1


# --- other vocabularies and imports ---------------------------------------------------------------


def test_other_vocabularies_know_no_turns(store: Store) -> None:
    """A session whose types are the caller's can be forked at every event, and stays his."""
    with store.create("p", vocabulary=None) as session:
        session.append_many([*turn("a", deltas=1), {"type": "job/start", "data": {"id": "j"}}])
    for at in range(4):
        with store.fork("p", at, new_id=f"c{at}") as child:
            assert child.header.vocabulary is None
        assert_fork(store, f"c{at}", "p", at)
    with pytest.raises(InvalidValue, match="no turn 'a'"):
        store.fork("p", turn="a")


def test_an_import_is_continued_in_a_fork(store: Store) -> None:
    """The fork of an import has its events, and speaks the vocabulary for those of its own."""
    (source,) = import_sessions(store, FORMAT, [PLAIN[0]]).sources
    assert source.session is not None
    imported = store.inspect(source.session).header
    assert imported is not None
    assert imported.vocabulary is None
    assert imported.source is not None
    child = store.fork(source.session, new_id="c")
    last = child.position.seq
    assert child.header.vocabulary == "perdure/1"
    assert child.header.source == perdure.Source(FORMAT, imported.source.id, imported.source.host)
    child.append("turn/start", {}, turn="t")
    child.append("tool/call", {"id": "k", "name": "bash"}, turn="t")
    child.close()
    assert_fork(store, "c", source.session, last - 1, own=3)
    with store.writer("c") as child:
        closed = [event.type for event in store.read_from("c", last + 3)]
    assert closed == ["tool/result", "turn/end"]


def test_a_place_of_another_system_is_no_place_here(store: Store) -> None:
    """A working directory of an import that is none here is left out of the fork."""
    source = perdure.Source("other", "1", None, "C:\\x")
    with store.create("p", cwd="C:\\work", source=source, vocabulary=None) as session:
        session.append("other/line", "x")
    with store.fork("p", new_id="c") as child:
        assert child.header.cwd is None
    with store.fork("p", new_id="d", cwd="/srv") as child:
        assert child.header.cwd == "/srv"


# --- damage ---------------------------------------------------------------------------------------


def damage(store: Store, id: str, record: int) -> None:
    """Change a byte within a record of a plain log."""
    log = Path(str(store.locate(id)))
    found = log.read_bytes().splitlines(keepends=True)
    line = bytearray(found[record + 1])
    line[-30] ^= 1
    log.write_bytes(b"".join([*found[: record + 1], bytes(line), *found[record + 2 :]]))


def test_before_damage_it_can_be_forked(raw: Store) -> None:
    """A damaged session is refused, but for places before the damage that are asked for."""
    write(raw)
    at = [(record.first, record.last) for record in records(raw, "p")].index((8, 11))
    damage(raw, "p", at)
    with pytest.raises(SessionDamaged) as refused:
        raw.fork("p")
    assert "up to event 7, with at=" in refused.value.hint
    for asked in ({"at": 8}, {"at": 13}, {"turn": "b"}):
        with pytest.raises(SessionDamaged):
            raw.fork("p", **asked)
    with pytest.raises(InvalidValue) as wrong:
        raw.fork("p", 7)
    assert wrong.value.hint == "the nearest places to fork it are at=6"
    raw.fork("p", 6, new_id="c").close()
    raw.fork("p", turn="a", new_id="d").close()
    for child, last in (("c", 6), ("d", 5)):
        assert raw.verify(child).sound
        assert [event.type for event in raw.read_from(child, last)][1:] == ["session/forked"]
    assert not raw.verify("p").sound


def test_a_lost_header_cannot_be_forked(raw: Store) -> None:
    """Without its header nobody knows what a session is."""
    write(raw)
    log = Path(str(raw.locate("p")))
    log.write_bytes(b"#" + log.read_bytes()[1:])
    for at in (None, 6):
        with pytest.raises(SessionDamaged):
            raw.fork("p", at)


def test_what_is_not_there_cannot_be_forked(tmp_path: Path) -> None:
    """A session that is not stored, was deleted, or is in no store, is refused."""
    with open_medium("zst", tmp_path) as store:
        with pytest.raises(SessionNotFound):
            store.fork("p")
        write(store)
        store.delete("p")
        with pytest.raises(SessionNotFound) as refused:
            store.fork("p")
        assert refused.value.deleted_at is not None
    with pytest.raises(StoreClosed):
        store.fork("p")
    with perdure.open("none:") as store, pytest.raises(PersistenceDisabled):
        store.fork("p")


def test_a_newer_format_cannot_be_forked(raw: Store) -> None:
    """What another version wrote is not guessed at."""
    write(raw)
    log = Path(str(raw.locate("p")))
    bare = b'{"format":9,"id":"p","created_at":1}\n'
    log.write_bytes(b'%s,"digest":"%s"}\n' % (bare[:-2], digest(bare).encode()))
    with pytest.raises(FormatUnsupported):
        raw.fork("p", 0)


# --- deleted parents, swapped headers -------------------------------------------------------------


def test_a_child_outlives_its_parent(store: Store) -> None:
    """A child is whole when its parent is deleted, and says so."""
    write(store)
    store.fork("p", 6, new_id="c").close()
    store.fork("c", new_id="d").close()
    told = [each[:4] for each in store.lineage("d")]
    assert told == [("c", "fork", 7, "stored"), ("p", "fork", 6, "stored")]
    store.delete("p")
    assert [each[:4] for each in store.lineage("d")][1] == ("p", "fork", 6, "deleted")
    assert [each[:4] for each in store.children("p")] == [("c", "fork", 6, "stored")]
    store.empty_trash()
    assert store.lineage("c")[0][:4] == ("p", "fork", 6, "deleted")
    assert store.verify("c").sound
    with store.writer("c") as child:
        child.append("on")
    store.delete("c")
    assert [each.session for each in store.lineage("d")] == ["c"]


def test_a_swapped_header_is_noticed(raw: Store) -> None:
    """A fork whose header is exchanged for that of another fork is damaged."""
    write(raw)
    for child in ("c", "d"):
        raw.fork("p", 6, new_id=child, config=child).close()
    mine, theirs = (Path(str(raw.locate(child))) for child in ("c", "d"))
    own = mine.read_bytes().splitlines(keepends=True)
    other = theirs.read_bytes().splitlines(keepends=True)[0]
    mine.write_bytes(b"".join([other, *own[1:]]))
    assert not raw.verify("c").sound


def test_who_comes_from_whom(store: Store) -> None:
    """Children and lineage are told from headers alone, in the order of their places."""
    write(store)
    store.fork("p", 13, new_id="b").close()
    store.fork("p", 6, new_id="c").close()
    store.fork("p", 6, new_id="a").close()
    with store.create("x", parent=perdure.Parent("p", 3)) as session:
        session.append("x")
    found = [each[:4] for each in store.children("p")]
    assert found == [
        ("x", "child", 3, "stored"),
        ("a", "fork", 6, "stored"),
        ("c", "fork", 6, "stored"),
        ("b", "fork", 13, "stored"),
    ]
    assert store.children("b") == store.lineage("p") == []
    for ask in (store.children, store.lineage, store.descendants):
        with pytest.raises(SessionNotFound):
            ask("nobody")
        with pytest.raises(InvalidValue):
            ask("")


def test_a_name_that_was_used_again_is_no_parent(raw: Store) -> None:
    """If another session has the parent's id, it is not taken for the parent."""
    write(raw)
    raw.fork("p", new_id="c").close()
    raw.delete("p")
    raw.empty_trash()
    raw.forget("p")
    with raw.create("p", config="another") as session:
        session.append("x")
    assert [each[:4] for each in raw.lineage("c")] == [("p", "fork", 13, "other")]
    assert [each[:4] for each in raw.children("p")] == [("c", "fork", 13, "other")]


def test_lineage_ends_where_nothing_is_to_be_read(raw: Store) -> None:
    """A circle of headers, a parent that vanished and one that is damaged end the lineage."""
    for id, parent in (("a", "b"), ("b", "a"), ("c", "nobody"), ("e", "d"), ("d", "a")):
        with raw.create(id, parent=perdure.Parent(parent, 0)) as session:
            session.append("x")
    assert [each[:4] for each in raw.lineage("a")] == [("b", "child", 0, "stored")]
    assert [each[:4] for each in raw.lineage("c")] == [("nobody", "child", 0, "missing")]
    log = Path(str(raw.locate("d")))
    log.write_bytes(b"#" + log.read_bytes()[1:])
    assert [each[:4] for each in raw.lineage("e")] == [("d", "child", 0, "unreadable")]
    with pytest.raises(SessionDamaged):
        raw.lineage("d")
    shutil.rmtree(log.parent)
    assert [each[:4] for each in raw.lineage("e")] == [("d", "child", 0, "missing")]


# --- whole or not at all --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KEPT)
def test_nothing_is_left_of_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """If reading or writing fails in the middle of a fork, there is no child and nothing of it."""
    with open_medium(kind, tmp_path) as store:
        write(store)
        real = forkpoint.shortened

        def fail(record: Record, last: int) -> Any:
            if record.first == 8:
                raise StorageFull("here", "no space left")
            return real(record, last)

        monkeypatch.setattr("perdure.store.forking.shortened", fail)
        with pytest.raises(StorageFull):
            store.fork("p", new_id="c")
        monkeypatch.undo()
        assert [entry.id for entry in store.list()] == ["p"]
        assert store.verify("p").sound
        assert not list(tmp_path.glob("**/new/*"))
        with store.fork("p", new_id="c") as child:
            child.append("on")
        assert_fork(store, "c", "p", 13, own=2)


@pytest.mark.parametrize("kind", ["zst", "sqlite", *soaked("raw")])
def test_memory_does_not_grow_with_the_log(tmp_path: Path, kind: str) -> None:
    """A fork of a log that is eight times as long takes no more memory."""
    peaks = []
    with open_medium(kind, tmp_path) as store:
        for id, count in (("short", 24), ("long", 192)):
            with store.create(id) as session:
                for _ in range(count):
                    session.append_many([{"type": "x", "data": {"n": "x" * 20_000}}] * 8)
            tracemalloc.start()
            store.fork(id, new_id=f"{id} child").close()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert_fork(store, f"{id} child", id, count * 8 - 1)
    assert peaks[1] < peaks[0] * 1.5 + 500_000


def test_it_is_written_in_parts(raw: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of a directory is built in parts of bounded size before it gets its name."""
    monkeypatch.setattr(holding, "MERGED_PLAIN", 2_000)
    write(raw)
    raw.fork("p", new_id="c").close()
    assert_fork(raw, "c", "p", 13)


# --- every session, every place -------------------------------------------------------------------

KINDS = ("turn/start", "turn/end", "assistant/delta", "job/start", "job/end", "note")


@st.composite
def logs(draw: st.DrawFn) -> list[Events]:
    """Commits of events that open and close turns of two agents, in any order."""
    event = st.fixed_dictionaries(
        {
            "type": st.sampled_from(KINDS),
            "data": st.fixed_dictionaries({"id": st.sampled_from(("i", "j")), "text": st.text()}),
            "agent": st.sampled_from((None, "x")),
            "turn": st.sampled_from((None, "t", "u")),
        }
    )
    runs = st.builds(
        lambda one, texts: [{**one, "data": {**one["data"], "text": text}} for text in texts],
        event,
        st.lists(st.text(max_size=3), min_size=1, max_size=6),
    )
    parts = st.lists(runs, min_size=1, max_size=4).map(lambda found: [*itertools.chain(*found)])
    return draw(st.lists(parts, min_size=1, max_size=4))


def open_behind(events: list[Event]) -> list[bool]:
    """Whether a turn is open behind each event, told in the plainest way."""
    turns: set[tuple[str | None, str | None]] = set()
    found = []
    for event in events:
        if event.type == "turn/start":
            turns.add((event.agent, event.turn))
        elif event.type == "turn/end":
            turns.discard((event.agent, event.turn))
        found.append(bool(turns))
    return found


def jobs_behind(events: list[Event]) -> list[str]:
    jobs: dict[str, None] = {}
    for event in events:
        if event.type == "job/start":
            jobs[event.data["id"]] = None
        elif event.type == "job/end":
            jobs.pop(event.data["id"], None)
    return list(jobs)


@settings(max_examples=scaled(300), deadline=None)
@given(logs())
def test_every_place_of_every_session(commits: list[Events]) -> None:
    """At each event, a fork is refused within a turn, and is else the parent's prefix, sound."""
    with Store(MemoryBackend(), runtime=SYSTEM) as store, store.create("p") as session:
        for commit in commits:
            session.append_many(commit)
        events = list(store.read_from("p"))
        inside = open_behind(events)
        for at in range(len(events)):
            _try_place(store, events, at, inside)


def _try_place(store: Store, events: list[Event], at: int, inside: list[bool]) -> None:
    if inside[at]:
        before = max((seq for seq in range(at) if not inside[seq]), default=-1)
        after = next((seq for seq in range(at, len(events)) if not inside[seq]), None)
        named = f"at={before}" + ("" if after is None else f" or at={after}")
        with pytest.raises(InvalidValue) as refused:
            store.fork("p", at)
        assert refused.value.hint == f"the nearest places to fork it are {named}"
        return
    child = f"c{at}"
    store.fork("p", at, new_id=child).close()
    jobs = jobs_behind(events[: at + 1])
    assert_fork(store, child, "p", at, own=1 + len(jobs))
    ended = [event.data["id"] for event in store.read_from(child, at + 2)]
    assert sorted(ended) == sorted(jobs)
    stands = store.inspect(child).position
    with store.writer(child) as writer:
        assert writer.position == stands
    theirs = [record.hash for record in records(store, "p") if record.last <= at]
    assert [record.hash for record in records(store, child)][: len(theirs)] == theirs


def test_it_works_where_its_parent_works_by_now(store: Store, tmp_path: Path) -> None:
    """A session that moved has forks that begin where it was at the place, and can be resumed."""
    homes = [tmp_path / name for name in ("one", "two", "three")]
    for home in homes:
        home.mkdir()
    with store.create("p", cwd=str(homes[0])) as session:
        session.append_many(turn("a"))
    for home in homes[1:]:
        store.resume("p", cwd=str(home)).close()
    resumed = [event.seq for event in store.read_from("p") if event.type == "session/resumed"]
    homes[0].rmdir()
    for at, home in ((resumed[0], homes[1]), (resumed[1], homes[2]), (None, homes[2])):
        with store.fork("p", at) as child:
            name = child.id
            assert child.header.cwd == str(home)
        with store.resume(name) as child:
            assert child.state.cwd == str(home)
    with store.fork("p", resumed[0] - 1) as child:
        assert child.header.cwd == str(homes[0])


def test_what_it_inherits_can_be_another_ones_place(store: Store, tmp_path: Path) -> None:
    """A fork of a fork works where the fork does, wherever the events before it were."""
    with store.create("p", cwd="/gone") as session:
        session.append_many(turn("a"))
    store.resume("p", cwd=str(tmp_path)).close()
    store.fork("p", new_id="c", cwd="/srv/c").close()
    for at in (6, None):
        with store.fork("c", at) as child:
            assert child.header.cwd == "/srv/c"


def test_what_it_takes_over_can_be_left_out(store: Store) -> None:
    """None says that the child has no working directory, preset or config; left out, it has."""
    write(store)
    with store.fork("p", cwd=None, preset=None, config=None) as child:
        assert (child.header.cwd, child.header.preset, child.header.config) == (None, None, None)
    with store.fork("p", config=None) as child:
        assert (child.header.cwd, child.header.preset, child.header.config) == (
            *("/srv/a", "coder", None),
        )
