"""Damaged SQLite files: nothing untrue is read, and no loss is called sound."""

import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import PerdureError
from perdure.testing.contract import Clockwork
from tests.proof.summary import summarise
from tests.support import scaled

Truth = dict[str, list[dict[str, Any]]]


def written(place: Path) -> Truth:
    """A store of several sessions with packed runs, long lines, keys and content; its events."""
    truth: Truth = {}
    with perdure.open(f"sqlite:{place}", runtime=Clockwork()) as store:
        for number in range(3):
            with store.create(f"s{number}") as session:
                for turn in range(4):
                    session.append("x", {"turn": turn, "text": f"{number} " * 200}, key=f"k{turn}")
                    session.append_many([{"type": "d", "data": f"w{n}"} for n in range(40)])
                session.append("y", session.put_blob(b"content %d" % number))
            truth[session.id] = [event.as_dict() for event in store.read_from(session.id)]
    return truth


def broken(data: bytes, rng: random.Random) -> bytes:
    """The file with bytes changed, a page emptied or exchanged, or its end cut off."""
    pages, size = len(data) // 4096, len(data)
    out = bytearray(data)
    kind = rng.choice(("flips", "flip", "zero page", "swap pages", "noise", "cut"))
    if kind in ("flip", "flips"):
        for _ in range(1 if kind == "flip" else rng.randint(2, 30)):
            out[rng.randrange(size)] ^= 1 << rng.randrange(8)
    elif kind == "zero page":
        at = 4096 * rng.randrange(pages)
        out[at : at + 4096] = bytes(4096)
    elif kind == "swap pages":
        one, other = (4096 * rng.randrange(pages) for _ in range(2))
        out[one : one + 4096], out[other : other + 4096] = (
            data[other : other + 4096],
            data[one : one + 4096],
        )
    elif kind == "noise":
        at, length = rng.randrange(size), rng.randint(1, 3000)
        out[at : at + length] = rng.randbytes(min(length, size - at))
    else:
        del out[rng.randrange(size) :]
    return bytes(out)


def outcome(store: perdure.Store, id: str, expected: list[dict[str, Any]]) -> str:
    """What a damaged store says of one session; everything that it gives out has to be true."""
    found: list[dict[str, Any]] = []
    kind = "whole"
    try:
        found.extend(event.as_dict() for event in store.read_from(id))
    except PerdureError as error:
        kind = type(error).__name__
    assert found == expected[: len(found)]
    try:
        verdict = store.verify(id)
    except PerdureError as error:
        return f"{kind}, {type(error).__name__}"
    if verdict.sound:
        assert (kind, found) == ("whole", expected)
    if kind == "whole" and found != expected:
        assert not verdict.sound
    return f"{kind}, {verdict.status}"


@pytest.mark.proof
def test_damaged_files_never_lie(tmp_path: Path, rng: random.Random, seed: int) -> None:
    """Whatever bytes change, events that are read are true, and a loss is no success."""
    place = tmp_path / "store.db"
    truth = written(place)
    sound = place.read_bytes()
    beside = tmp_path / "beside"
    shutil.copytree(f"{place}.d", beside)
    seen: dict[str, int] = {}
    trials = scaled(1500)
    for _ in range(trials):
        data = broken(sound, rng)
        shutil.rmtree(f"{place}.d")
        shutil.copytree(beside, f"{place}.d")
        for suffix in ("-wal", "-shm"):
            Path(f"{place}{suffix}").unlink(missing_ok=True)
        # Another file, as a backup that is put in place: a writer of the one before, which an error
        # keeps for a while, writes its WAL back into that one when it is collected.
        place.unlink()
        place.touch(0o600)
        place.write_bytes(data)
        with perdure.open(f"sqlite:{place}") as store:
            try:
                listed = {entry.id for entry in store.list()}
                assert [id for id in listed if id in truth] or listed != set(truth)
            except PerdureError as error:
                seen[type(error).__name__] = seen.get(type(error).__name__, 0) + 1
            for id, expected in truth.items():
                said = outcome(store, id, expected)
                seen[said] = seen.get(said, 0) + 1
            assert place.read_bytes() == data
            for id, expected in truth.items():
                with suppress(PerdureError), store.writer(id) as session:
                    later = session.append("x", "later")
                    assert later.seq == len(expected)
                    # Where SQLite's own structure is damaged it may not be found again: never in
                    # silence.
                    outcome(store, id, [*expected, later.as_dict()])
    summarise("damaged SQLite files", seed, seen)
    assert seen["whole, ok"]
    assert any("damaged" in said for said in seen)
