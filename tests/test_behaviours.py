"""What comparable stores promise, shown here on whole stores in folders: see docs/contract.md."""

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.backends.directory import DirectoryBackend
from perdure.durable import crash
from perdure.errors import SessionDamaged
from perdure.model.vocabulary import TOOL_OUTCOME_UNKNOWN
from perdure.testing.contract import Clockwork
from perdure.testing.contract.place import OPEN, TURN, brief


@pytest.fixture(params=["raw", "zst"])
def encoding(request: pytest.FixtureRequest) -> str:
    """Each encoding in turn."""
    name: str = request.param
    return name


def log_of(root: Path, id: str = "s") -> Path:
    return next((root / "sessions" / id).glob("log.jsonl*"))


def made(root: Path, encoding: str, *ids: str, count: int = 3) -> Path:
    """A store of sessions at rest, each with some events, one commit for each."""
    with perdure.open(root, encoding=encoding, runtime=Clockwork()) as store:
        for id in ids:
            with store.create(id) as session:
                for number in range(count):
                    session.append("x", [id, number])
    return root


# --- what a kill leaves -------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import perdure
from perdure.backends.directory import DirectoryBackend
from perdure.durable import crash

root, encoding, point = sys.argv[1:]
session = perdure.open(root, encoding=encoding).create("s")
session.append("x", "before")
crash.arm(hook=lambda name: name == point and os.kill(os.getpid(), signal.SIGKILL))
session.append("pay", {"amount": 5}, key="k", turn="t")
"""


@pytest.mark.parametrize("point", ["write.after", "sync.after"])
def test_a_key_holds_when_its_writer_was_killed(tmp_path: Path, encoding: str, point: str) -> None:
    """A kill after an event was written and before it was acknowledged: its repeat finds it."""
    # heinzel 1
    root = tmp_path / "store"
    order = [sys.executable, "-c", KILLED, str(root), encoding, point]
    died = subprocess.run(order, check=False, capture_output=True)
    assert died.returncode == -signal.SIGKILL

    store = perdure.open(root)
    assert [event.data for event in store.read_from("s")] == ["before", {"amount": 5}]
    with store.writer("s") as session:
        again = session.append("pay", {"amount": 5}, key="k", turn="t")
        assert session.append("x").seq == 2

    assert again.seq == 1
    assert brief(store.read_from("s")) == [(0, "x"), (1, "pay"), (2, "x")]


def test_a_torn_end_and_an_open_turn(tmp_path: Path, encoding: str) -> None:
    """Torn bytes behind an open turn go aside, the turn is closed once, and the log goes on."""
    # deepseek-harness 52; heinzel 2
    root = tmp_path / "store"
    call = {"type": "tool/call", "turn": "t2", "data": {"id": "c1", "name": "bash"}}
    with perdure.open(root, encoding=encoding) as store, store.create("s") as session:
        session.append_many([*TURN, OPEN[0], call])
    log = log_of(root)
    whole = log.read_bytes()
    log.write_bytes(whole + whole[-20:])
    store = perdure.open(root)

    shown = list(store.inspect("s").events)
    (torn,) = store.inspect("s").problems
    assert (torn.start, torn.end) == (len(whole), len(whole) + 20)
    assert log.read_bytes() == whole + whole[-20:]
    loaded = list(store.load("s").events)

    assert brief(loaded[8:]) == [(8, "tool/result"), (9, "turn/end")]
    assert loaded[8].data["error"]["code"] == TOOL_OUTCOME_UNKNOWN
    assert loaded == shown == list(store.read_from("s"))
    with store.writer("s") as session:
        assert session.append_many([{"type": "x"}] * 2)[0].seq == 10
    assert [event.seq for event in perdure.open(root).load("s").events] == list(range(12))
    (kept,) = root.rglob("aside/*.bytes")
    assert kept.read_bytes() == whole[-20:]


# --- damage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0.3, 0.6, 0.99])
def test_an_edit_that_leaves_no_trace_is_found(tmp_path: Path, encoding: str, at: float) -> None:
    """Same size, same times: the next writer finds the edit, and nothing lands behind it."""
    # heinzel 8, 9
    root = made(tmp_path / "store", encoding, "s", "t", count=20)
    log = log_of(root)
    status, raw = log.stat(), bytearray(log.read_bytes())
    place = int(len(raw) * at)
    if encoding == "zst":
        # Inside a frame, not in what stands between two.
        backend = DirectoryBackend(str(root))
        pieces = backend.scan("s", backend.stored("s").begin)
        place = 20 + max(piece.start for piece in pieces if piece.start <= place)
    raw[place] ^= 4
    log.write_bytes(raw)
    os.utime(log, ns=(status.st_atime_ns, status.st_mtime_ns))
    store = perdure.open(root)

    for _ in range(2):
        with pytest.raises(SessionDamaged) as damaged:
            store.writer("s")
        assert damaged.value.start is not None
        assert damaged.value.start <= place
    with pytest.raises(SessionDamaged):
        store.append("s", [{"type": "x"}])
    assert log.read_bytes() == raw
    with store.writer("t") as session:
        assert session.append("x").seq == 20


def test_a_filter_hides_no_damage(tmp_path: Path, encoding: str) -> None:
    """Who asks for some types learns of damage among the others."""
    # heinzel 12
    root = made(tmp_path / "store", encoding, "s", count=20)
    log = log_of(root)
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 4
    log.write_bytes(raw)
    store = perdure.open(root)

    for types in (("nothing",), ("x",), ()):
        with pytest.raises(SessionDamaged):
            list(store.read_from("s", types=types))


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def garbled(path: Path) -> None:
    path.write_bytes(bytes(reversed(path.read_bytes())))


def removed(path: Path) -> None:
    path.unlink()


def exchanged(path: Path) -> None:
    """The same text in another file: the log, whose inode the tail file names."""
    log = next(path.parent.glob("log.jsonl*"))
    raw = log.read_bytes()
    log.unlink()
    log.write_bytes(raw)
    log.chmod(0o600)


@pytest.mark.parametrize("spoil", [emptied, garbled, removed, exchanged])
def test_what_is_known_beside_the_log_is_made_anew(
    tmp_path: Path, encoding: str, spoil: Any
) -> None:
    """A tail file that is garbage, missing or of another file costs a reading and hides nothing."""
    # heinzel 11
    root = made(tmp_path / "store", encoding, "s", "t")
    before = list(perdure.open(root).read_from("s"))
    spoil(root / "sessions/s/tail")
    store = perdure.open(root)

    assert sorted(entry.id for entry in store.list()) == ["s", "t"]
    assert list(store.inspect("s").events) == before
    assert [store.verify(id).sound for id in ("s", "t")] == [True, True]
    with store.writer("s") as one, store.writer("t") as other:
        assert (one.append("x").seq, other.append("x").seq) == (3, 3)
    assert store.inspect("s").status == "complete"
    assert list(perdure.open(root).read_from("s"))[:3] == before


# --- cost ---------------------------------------------------------------------------------------

COUNTED = ("open", "pread", "pwrite", "fstat", "stat", "listdir", "fsync", "fdatasync", "rename")


def cost_of_an_append(root: Path, patch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """The system calls, and the operations on durable files, of each of five appends."""
    counts = []
    # An index is kept by a thread, whose calls would be counted as well.
    with (
        perdure.open(root, index=False) as store,
        store.writer("s") as session,
        patch.context() as counting,
    ):
        seen: Counter[str] = Counter()
        for name in COUNTED:
            real = getattr(os, name)

            def counted(*given: Any, real: Any = real, name: str = name, **named: Any) -> Any:
                seen[name] += 1
                return real(*given, **named)

            counting.setattr(os, name, counted)
        for number in range(5):
            seen.clear()
            crash.arm(observer=lambda kind, **_: seen.update([f"durable {kind}"]))
            session.append("x", number)
            crash.arm()
            counts.append(+seen)
    return counts


def test_an_append_costs_the_same_beside_many_sessions(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append asks the system as often among 300 sessions, damaged ones included, as alone."""
    # heinzel 20
    alone = made(tmp_path / "alone", encoding, "s")
    crowd = made(tmp_path / "crowd", encoding, "s", *(f"n{n}" for n in range(299)), count=1)
    for number in range(0, 299, 3):
        log = log_of(crowd, f"n{number}")
        if number % 2:
            log.write_bytes(b"\0" * 50)
        else:
            os.truncate(log, log.stat().st_size - 3)

    one, many = (cost_of_an_append(root, monkeypatch) for root in (alone, crowd))

    assert one == many
    assert one[0]["durable sync"] == one[0]["fdatasync"] == 1
    assert one[0]["open"] == 0
