"""How a repair decides, what its plan is worth after a crash, and who has to wait for it."""

import errno
import hashlib
import itertools
import json
import os
import shutil
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.backends.memory import MemoryBackend
from perdure.durable import crash
from perdure.errors import (
    FormatUnsupported,
    SessionBusy,
    SessionDamaged,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
)
from perdure.evidence import Seen
from perdure.model.record import Position
from perdure.store import Store
from perdure.store.findings import Basis, Claims, Log, decide

ENCODINGS = ("raw", "zst")


class Dies(BaseException):
    """Stands for the end of the process."""


def damaged(folder: Path, encoding: str = "raw", *, content: bool = False) -> Path:
    """A store whose session `s` has a broken record; the path of its log."""
    with perdure.open(folder, encoding=encoding) as store:
        with store.create("s") as session:
            digest = session.put_blob(b"content")
            for number in range(8):
                session.append("x", {"number": number, "blob": digest})
        log = Path(str(store.locate("s")))
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    if content:
        [blob] = folder.glob("sessions/s/blobs/??/*")
        blob.write_bytes(b"other")
    return log


def types(store: Store) -> list[str]:
    return [event.type for event in store.read_from("s")]


# --- deciding -------------------------------------------------------------------------------------


@pytest.mark.parametrize("claims", [Claims(*x) for x in itertools.product([False, True], repeat=4)])
def test_what_a_log_is_held_against(claims: Claims) -> None:
    """Records from the start count if they are remembered, or nothing speaks against them."""
    basis = decide(claims)

    assert (basis is Basis.HEADER) <= claims.header_there
    assert (basis is Basis.NOTHING) <= (not claims.header_there)
    if basis is Basis.RECORDS:
        assert claims.from_start
    if claims.from_start and claims.remembered:
        assert basis is Basis.RECORDS
    if claims.header_there or claims.elsewhere:
        assert (basis is Basis.RECORDS) == (claims.from_start and claims.remembered)


# --- broken off and taken up again ----------------------------------------------------------------


def break_off(folder: Path, visit: int, **options: Any) -> bool:
    """Repair until the so-manieth crash point; False if it came to its end before."""
    left = [visit]
    # No loss of power comes in between, so that syncs would cost time only.

    def hook(_: str) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise Dies

    store = perdure.open(folder)
    crash.arm(hook=hook, without_sync=True)
    try:
        store.repair("s", **options)
    except Dies:
        return True
    finally:
        crash.arm()
        store.close()
    return False


@pytest.mark.parametrize(
    ("encoding", "salvage"),
    [
        ("raw", True),
        ("zst", False),
        pytest.param("raw", False, marks=pytest.mark.soak),
        pytest.param("zst", True, marks=pytest.mark.soak),
    ],
)
def test_a_repair_that_was_broken_off_is_finished(
    tmp_path: Path, encoding: str, salvage: bool
) -> None:
    """Wherever it was broken off, the next finishes what was planned, whatever it is asked for."""
    resumed = 0
    template = tmp_path / "template"
    harmed = damaged(template, encoding, content=True).read_bytes()
    for visit in itertools.count(1):
        folder = tmp_path / f"{visit}"
        shutil.copytree(template, folder)
        if not break_off(folder, visit, salvage=salvage):
            break
        planned = (folder / "sessions/s/repair.json").exists()
        with perdure.open(folder) as store:
            foretold = store.repair("s", dry_run=True, salvage=not salvage)
            assert foretold.resumed == planned
            done = store.repair("s", salvage=salvage if not planned else not salvage)
            assert done.resumed == planned
            resumed += planned
            if done.needed:
                assert (done.aside, bool(done.salvaged)) == ("repair-1", salvage)
            assert store.verify("s").sound
            assert (types(store).count("session/repaired"), store.reports()) == (1, [])
            assert types(store).count("content/expired") == 1
            kept = b"".join(store._backend.aside("s", "repair-1") or ())
            assert kept == harmed
            assert not store.repair("s").needed
        if visit % 10:
            # What is left is read once more at the end of the test, which a sample is enough for.
            shutil.rmtree(folder)
    assert resumed > 30


def test_what_is_planned_keeps_its_time(tmp_path: Path) -> None:
    """A repair that is finished later writes what was planned, with the time of the plan."""
    times = {}
    for name in ("once", "later"):
        folder = tmp_path / name
        damaged(folder)
        visits = itertools.count(1)
        if name == "later":
            while not (folder / "sessions/s/repair.json").exists():
                assert break_off(folder, next(visits))
            times["planned"] = json.loads((folder / "sessions/s/repair.json").read_bytes())["time"]
        with perdure.open(folder) as store:
            assert store.repair("s").resumed == (name == "later")
            [event] = store.read_from("s", types=["session/repaired"])
            times[name] = event.time
    assert times["later"] == times["planned"]
    assert times["once"] != times["later"]


def planned(folder: Path) -> Path:
    """Break a repair off when its plan stands and nothing else was done."""
    plan = folder / "sessions/s/repair.json"
    visits = itertools.count(1)
    while not plan.exists():
        assert break_off(folder, next(visits))
    return plan


def test_a_plan_that_does_not_fit_any_more_is_made_anew(tmp_path: Path) -> None:
    """If the log was harmed again meanwhile, a new plan takes the place of the old one."""
    log = damaged(tmp_path)
    planned(tmp_path)
    data = log.read_bytes()
    log.write_bytes(data[: len(data) // 4])
    with perdure.open(tmp_path) as store:
        done = store.repair("s")
        assert (done.done, done.resumed) == (True, False)
        kept = b"".join(store._backend.aside("s", done.aside or "") or ())
        assert kept == data[: len(data) // 4]
        assert store.verify("s").sound
        assert types(store).count("session/repaired") == 1


def test_a_plan_whose_damage_went_away_is_dropped(tmp_path: Path) -> None:
    """If the right bytes came back meanwhile, nothing is repaired and the plan is removed."""
    log = damaged(tmp_path)
    plan = planned(tmp_path)
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with perdure.open(tmp_path) as store:
        done = store.repair("s")
        assert (done.needed, done.done, done.sound) == (False, False, True)
        assert types(store) == ["x"] * 8
    assert not plan.exists()


def test_a_plan_of_another_version_is_refused(tmp_path: Path) -> None:
    """What another version planned is not finished by this one."""
    log = damaged(tmp_path)
    before = log.read_bytes()
    plan = planned(tmp_path)
    plan.write_bytes(b'{"format": 1, "place": "repair-1"}\n')
    with perdure.open(tmp_path) as store:
        for dry_run in (False, True):
            with pytest.raises(FormatUnsupported) as refused:
                store.repair("s", dry_run=dry_run)
            assert refused.value.found == 1
    assert log.read_bytes() == before


@pytest.mark.parametrize("text", ["", "?", "[]", '{"format": 0}', '{"format": 0, "time": "x"}'])
def test_a_plan_that_cannot_be_read_is_made_anew(tmp_path: Path, text: str) -> None:
    """A plan that makes no sense is none: what stands there is looked at anew."""
    damaged(tmp_path)
    plan = planned(tmp_path)
    plan.write_text(text, encoding="utf-8")
    with perdure.open(tmp_path) as store:
        done = store.repair("s")
        assert (done.done, done.resumed) == (True, False)
        assert store.verify("s").sound
    assert not plan.exists()


def test_damage_to_the_new_log_is_not_taken_for_the_old(tmp_path: Path) -> None:
    """If the new log is harmed before the repair was finished, that is repaired, too."""
    log = damaged(tmp_path)
    inode, visits = log.stat().st_ino, itertools.count(1)
    while log.stat().st_ino == inode:
        assert break_off(tmp_path, next(visits))
    assert (tmp_path / "sessions/s/repair.json").exists()
    data = bytearray(log.read_bytes())
    data[len(data) // 3] ^= 1
    log.write_bytes(data)
    with perdure.open(tmp_path) as store:
        done = store.repair("s")
        assert (done.resumed, done.aside) == (False, "repair-2")
        assert store.verify("s").sound
        assert [each.place for each in store._backend.asides("s")] == ["repair-1", "repair-2"]
        assert b"".join(store._backend.aside("s", "repair-2") or ()) == data


def test_a_writer_between_two_halves_loses_nothing(tmp_path: Path) -> None:
    """Where only noise was removed a writer may come before the plan is; its events stay."""
    with perdure.open(tmp_path, encoding="raw") as store:
        store.create("s").append("x")
        log = Path(str(store.locate("s")))
    log.write_bytes(log.read_bytes().replace(b"\n", b"\nnoise\n", 1))
    inode, visits = log.stat().st_ino, itertools.count(1)
    while log.stat().st_ino == inode or not (tmp_path / "sessions/s/repair.json").exists():
        assert break_off(tmp_path, next(visits))
    with perdure.open(tmp_path) as store:
        try:
            with store.writer("s") as session:
                session.append("y")
            wrote = ["y"]
        except SessionDamaged:
            wrote = []
        assert store.repair("s").resumed
        assert types(store) == ["x", "session/repaired", *wrote]
        assert store.verify("s").sound


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_disk_that_fails_costs_nothing(tmp_path: Path, encoding: str, code: int) -> None:
    """Whatever write, sync or rename fails, the old log is there, and the next repair is whole."""
    template = tmp_path / "template"
    harmed = damaged(template, encoding).read_bytes()
    failures = 0
    for visit in itertools.count(1):
        folder = tmp_path / f"{visit}"
        shutil.copytree(template, folder)
        left = itertools.count(1)

        def hook(name: str, visit: int = visit, left: Iterator[int] = left) -> None:
            fails = name in ("write.before", "sync.before", "move.before", "folder.make")
            if fails and next(left) == visit:
                raise OSError(code, os.strerror(code))

        with perdure.open(folder) as store:
            crash.arm(hook=hook)
            try:
                store.repair("s")
                over = next(left) <= visit
            except (StorageFull, StorageUnavailable):
                over = False
                failures += 1
            finally:
                crash.arm()
        session = folder / "sessions/s"
        kept = [path.read_bytes() for path in [*session.iterdir(), *session.glob("aside/*.bytes")]
                if path.is_file()]  # fmt: skip
        assert harmed in kept
        with perdure.open(folder) as store:
            store.repair("s")
            assert store.verify("s").sound
            assert types(store).count("session/repaired") == 1
        if over:
            break
        shutil.rmtree(folder)
    assert failures > 8


# --- who has to wait, and who is refused ----------------------------------------------------------


def test_a_session_that_is_written_is_busy(tmp_path: Path) -> None:
    """While somebody writes, a repair is refused; what it would do can be asked all the same."""
    with perdure.open(tmp_path) as store:
        session = store.create("s")
        session.append("x")
        with pytest.raises(SessionBusy):
            perdure.open(tmp_path).repair("s")
        assert not perdure.open(tmp_path).repair("s", dry_run=True).needed
        session.close()


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    """A missing or deleted session is told as anywhere."""
    with perdure.open(tmp_path) as store:
        store.create("s").append("x")
        store.close()
    with perdure.open(tmp_path) as store:
        store.delete("s")
        for dry_run in (False, True):
            with pytest.raises(SessionNotFound):
                store.repair("nobody", dry_run=dry_run)
            with pytest.raises(SessionNotFound) as gone:
                store.repair("s", dry_run=dry_run)
            assert gone.value.deleted_at is not None


def test_another_format_is_not_repaired(tmp_path: Path) -> None:
    """What another version wrote is not broken, and stays as it is."""
    log = damaged(tmp_path)
    lines = log.read_bytes().splitlines(keepends=True)
    header = lines[0].replace(b'"format":0', b'"format":7')

    bare = header[:-78] + b"}\n"
    digest = hashlib.sha256(bare).hexdigest().encode()
    log.write_bytes(bare[:-2] + b',"digest":"' + digest + b'"}\n' + b"".join(lines[1:]))
    before = log.read_bytes()
    with perdure.open(tmp_path) as store:
        for dry_run in (False, True):
            with pytest.raises(FormatUnsupported):
                store.repair("s", dry_run=dry_run)
    assert log.read_bytes() == before


@pytest.mark.parametrize("id", ["s", "a/b", "\ud800x", "é" * 300])
def test_ids_of_every_kind_are_repaired(tmp_path: Path, id: str) -> None:
    """Whatever an id looks like, plan, events and evidence carry it."""
    makers: list[Callable[[Path], Store]] = [
        lambda _: Store(MemoryBackend()),
        lambda folder: perdure.open(folder / "store"),
    ]
    for make in makers:
        store = make(tmp_path)
        session = store.create(id)
        session.append("x")
        session.close()
        header = store.inspect(id).header
        assert header is not None
        store._witness.push()
        seen = Seen(id, header.digest, Position(5, "ab" * 32), 2**52)
        store._backend.evidence.note([("", seen)])

        done = store.repair(id)

        assert (done.session, done.kept, done.lost) == (id, 1, (1, 5))
        assert store.verify(id).sound
        store.close()


def test_much_behind_the_damage_takes_little_memory() -> None:
    """What is kept in mind of each intact record behind damage is little more than its hash."""
    events = 5_000
    with perdure.open("memory:", pack=False) as store:
        with store.create("s") as session:
            session.append_many([{"type": "x", "data": [number]} for number in range(events)])
        backend = store._backend
        assert isinstance(backend, MemoryBackend)
        backend._sessions["s"].lines[2] = b"broken\n"
        tracemalloc.start()
        found = Log(backend, "s", ()).findings()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert (found.later, len(found.stretches)) == (events - 3, 1)
    assert peak / events < 250
