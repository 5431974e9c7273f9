"""Killed writers lose nothing that was acknowledged."""

from pathlib import Path

import pytest

from perdure.runtime import Runtime
from perdure.store import Store
from perdure.testing.agents import open_folder
from perdure.testing.crash import ENCODINGS, crash_points, in_own_process
from perdure.testing.ledger import Finding
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof


def test_kills_lose_nothing(tmp_path: Path, seed: int) -> None:
    """Whatever named point or moment a writer is killed at, no acknowledged event is lost."""
    kills = scaled(600)
    counts = in_own_process(
        "perdure.testing.crash:kill_writers", folder=str(tmp_path), seed=seed, kills=kills
    )
    summarise("kills", seed, counts)
    assert sum(counts.values()) - counts.get("finished", 0) >= kills
    unhit = {f"{point} {encoding}" for point in crash_points() for encoding in ENCODINGS}
    assert unhit - counts.keys() == set()
    assert counts["moment zst"] + counts["moment raw"] > 0


def test_crash_points_are_found() -> None:
    """The names of crash points are read from the source, conditional ones included."""
    assert {"write.before", "write.half", "write.after", "move.after"} <= {*crash_points()}


class _Hasty:
    """A store whose writers say that an event is stored as soon as it is accepted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def create(self, *args: object) -> object:
        return _hasty(self._store.create(*args))  # type: ignore[arg-type]

    def writer(self, *args: object) -> object:
        return _hasty(self._store.writer(*args))  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    def __enter__(self) -> object:
        return self

    def __exit__(self, *exc: object) -> None:
        self._store.close()


def _hasty(session: object) -> object:
    session.append = session.buffer  # type: ignore[attr-defined]
    return session


def open_hasty(path: str, encoding: str, runtime: Runtime) -> object:
    return _Hasty(open_folder(path, encoding, runtime))


def test_kills_find_a_hasty_writer(tmp_path: Path, seed: int) -> None:
    """The harness finds a writer that acknowledges what is only buffered."""
    with pytest.raises(Finding):
        in_own_process(
            "perdure.testing.crash:kill_writers",
            folder=str(tmp_path),
            seed=seed,
            kills=50,
            opener="tests.proof.test_crash:open_hasty",
        )
