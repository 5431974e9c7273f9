"""Where a contract test keeps its sessions, and the clock that it runs by."""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from perdure.backends.base import Backend
from perdure.model.event import Event
from perdure.runtime import Runtime
from perdure.store import Store

__all__ = ["OPEN", "TURN", "Clockwork", "ContractCase", "Place", "brief", "dicts", "texts"]


class Clockwork(Runtime):
    """A clock that ticks when it is read, sleep that only moves it, tokens that repeat each run."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        """Begin at `start` (Unix milliseconds)."""
        self._start = start
        self._ticks = itertools.count()
        self._tokens = itertools.count()
        self._slept = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def now_ms(self) -> int:
        """One millisecond later with each call."""
        return self._start + next(self._ticks)

    def monotonic(self) -> float:
        """The seconds slept so far."""
        return self._slept

    def sleep(self, seconds: float) -> None:
        """Return at once, that much later; `on_sleep` may let something happen meanwhile."""
        self._slept += seconds
        self.on_sleep()

    def token(self, size: int = 8) -> str:
        """Hex digits that no other call of this clockwork got."""
        return hashlib.sha256(b"%d" % next(self._tokens)).hexdigest()[: 2 * size]


class Place:
    """One location of a backend under test; opens stores there as often as a test likes."""

    def __init__(
        self,
        make: Callable[[Path, Runtime], Backend],
        folder: Path,
        runtime: Clockwork,
        *,
        survives_reopen: bool,
    ) -> None:
        """`make` opens the backend; where nothing survives, it is called once."""
        self.runtime = runtime
        self._make = make
        self._folder = folder
        self._survives = survives_reopen
        self._backends: list[Backend] = []
        self._stores: list[Store] = []
        self._others: list[Place] = []

    def backend(self) -> Backend:
        """The backend as another process would open it, if what it keeps outlives the process."""
        if self._survives or not self._backends:
            self._backends.append(self._make(self._folder, self.runtime))
        return self._backends[-1]

    def store(self, *, pack: bool = True) -> Store:
        """A store that shares nothing with the stores opened before but what is stored."""
        opened = Store(self.backend(), runtime=self.runtime, pack=pack)
        self._stores.append(opened)
        return opened

    def elsewhere(self) -> "Place":
        """Another location of the same kind."""
        other = Place(
            self._make,
            self._folder.with_name(f"{self._folder.name}-{len(self._others) + 2}"),
            self.runtime,
            survives_reopen=self._survives,
        )
        self._others.append(other)
        return other

    def close(self) -> None:
        """Close everything; what is left must be sound."""
        for other in self._others:
            other.close()
        for store in self._stores:
            store.close()
        if not self._backends:
            return
        left = Store(self.backend(), runtime=self.runtime)
        try:
            reports = [left.verify(entry.id) for entry in left.list()]
            assert [report.as_dict() for report in reports if not report.sound] == []
        finally:
            left.close()


class ContractCase:
    """What every part of the suite needs: the backend under test and what it declares."""

    survives_reopen: ClassVar[bool] = True
    """Sessions outlive the backend object: a second one at the same place sees them."""

    has_files: ClassVar[bool] = False
    """`locate` names a file."""

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        """Open the backend under test at `folder`, which may not exist yet."""
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Iterator[Place]:
        """Where this test keeps its sessions."""
        made = Place(
            self.make_backend,
            tmp_path / "store",
            Clockwork(),
            survives_reopen=self.survives_reopen,
        )
        yield made
        made.close()

    @pytest.fixture
    def store(self, place: Place) -> Store:
        """A store at that place."""
        return place.store()


def texts(*lines: str) -> dict[str, Any]:
    """A payload of text blocks."""
    return {"content": [{"type": "text", "text": line} for line in lines]}


TURN: tuple[dict[str, Any], ...] = (
    {"type": "turn/start", "turn": "t1", "data": {}},
    {"type": "user/message", "turn": "t1", "data": texts("why does the test fail?")},
    {"type": "step/start", "turn": "t1", "data": {"step": 1}},
    {"type": "assistant/message", "turn": "t1", "data": texts("Let me look.")},
    {"type": "step/end", "turn": "t1", "data": {"step": 1}},
    {"type": "turn/end", "turn": "t1", "data": {"reason": "completed"}},
)
"""Six events of a turn that came to its end."""

OPEN: tuple[dict[str, Any], ...] = (
    {"type": "turn/start", "turn": "t2", "data": {"parent": "t1"}},
    {"type": "step/start", "turn": "t2", "data": {"step": 1}},
)
"""Two events of a turn that did not."""


def dicts(events: Iterable[Event]) -> list[dict[str, Any]]:
    """Everything about some events, as plain values."""
    return [event.as_dict() for event in events]


def brief(events: Iterable[Event]) -> list[tuple[int, str]]:
    """Number and type of some events."""
    return [(event.seq, event.type) for event in events]
