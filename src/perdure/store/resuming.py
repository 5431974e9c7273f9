"""Resume: the six steps from a stored session to a writer that knows where the run stood.

What the session was made with is looked at first (the header), and what is missing for it is said
before anything is locked or written. Then the writer is taken, which closes what a dead one left
open; conversations, state and sub-agents come from the views, triggers are made again by those who
know how, the output gets the scrollback, and last the log says that the run goes on.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from perdure.backends.base import Backend, Entry
from perdure.errors import (
    InvalidValue,
    PerdureError,
    PersistenceDisabled,
    PresetUnknown,
    SessionNotFound,
    WorkspaceMissing,
)
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import check_cwd
from perdure.runtime import Runtime
from perdure.store.inspection import Inspection
from perdure.store.refusing import refuse_import
from perdure.store.resumed import Resumed
from perdure.store.session import Session

__all__ = ["LAST", "Last", "Output", "Resuming", "TriggerMaker"]


class Last(Enum):
    """Stands for an id: the session in which something happened last."""

    LAST = "last"


LAST = Last.LAST
"""The session, no sub-agent's, whose last event is the latest."""

TriggerMaker = Callable[[Any], Any]
"""Makes a trigger of the state that was kept of it: the `from_resume_dict` of its class."""


class Output(Protocol):
    """What shows a run to people, and can show what was before."""

    def on_resume(self, pages: Iterator[list[Event]], /) -> None:
        """Show the events of the past: the newest page first, older ones read when asked for."""


class Resuming(ABC):
    """The part of a store that brings runs back."""

    _backend: Backend
    _runtime: Runtime

    @abstractmethod
    def _writer_of_views(self, id: str, wait: float) -> Session:
        """As `Store.writer`, for whoever asks for its views at once."""

    @abstractmethod
    def inspect(self, id: str) -> Inspection:
        """A session as found."""

    @abstractmethod
    def list(self) -> "list[Entry]":
        """Every stored session."""

    @abstractmethod
    def read_from(
        self, id: str, seq: int = 0, types: Collection[str] | None = None
    ) -> Iterator[Event]:
        """Stored events from `seq` on."""

    def resume(
        self,
        id: str | Last,
        *,
        wait: float = 0.0,
        cwd: str | None = None,
        presets: Collection[str] | None = None,
        triggers: Mapping[str, TriggerMaker] | None = None,
        output: Output | None = None,
    ) -> Session:
        """Bring a run back: its writer, with `.state`, `.messages()` and `.resumed`.

        Costs what is live and what came since the last checkpoint, not what is past. `cwd` takes
        the place of a working directory that has moved. `presets` are the names of all that can be
        built here; None: the caller does not ask. `triggers` make triggers again, by
        their kind. `output` gets the scrollback. The log gets a `session/resumed`.

        Raises:
            SessionNotFound: there is none; LAST: there is none at all.
            WorkspaceMissing, PresetUnknown: nothing was locked or written.
            InvalidValue: `cwd` is no absolute path, `presets` are no names, or it was imported:
                fork it to go on. Nothing was locked or written.
            PersistenceDisabled: the store keeps nothing.
            As `writer`. What a trigger or the output raises goes on, and the session is closed.

        """
        if isinstance(id, Last):
            id = self.last()
        place = self._check_before(id, cwd, presets)
        session = self._writer_of_views(id, wait)
        try:
            session.resumed = _resumed(session, place, triggers or {})
            if output is not None:
                output.on_resume(session.scrollback())
            told = [job.id for job in session.resumed.interrupted]
            session.record_run("session/resumed", cwd=cwd, told=told)
            session.flush()
        except BaseException:
            session.close()
            raise
        return session

    def _check_before(
        self, id: str, cwd: str | None, presets: Collection[str] | None
    ) -> str | None:
        """Where the run goes on; whether it can is found out without a lock."""
        if cwd is not None:
            check_cwd(cwd)
        given: object = presets
        if isinstance(given, str) or not isinstance(given, Collection | None):
            # A part of a string would be taken for a name.
            reason = f"{values.shown(given)} is no collection of names"
            raise InvalidValue("presets", reason, hint='["coder"]')
        found = self.inspect(id)
        header = found.header
        if header is None:
            # The writer says it best.
            return cwd
        refuse_import(header)
        if presets is not None and header.preset not in presets:
            raise PresetUnknown(id, header.preset, sorted(presets))
        place = header.cwd if cwd is None else cwd
        if cwd is None and place is not None and not _is_folder(place):
            # Perhaps an earlier resume said where it is now.
            place = found.state.cwd
        if place is not None and not _is_folder(place):
            raise WorkspaceMissing(id, place)
        return place

    def last(self) -> str:
        """The id of the session in which something happened last, sub-agents' left out.

        What counts is the time of the last event. Reads the end of every log.

        Raises:
            SessionNotFound: there is none that can be read; its `session` is "".
            PersistenceDisabled: the store keeps nothing.

        """
        if not self._backend.persistent:
            raise PersistenceDisabled("resuming the last session")
        latest: tuple[int, str] | None = None
        for entry in self.list():
            if entry.header is None or entry.header.origin is not None:
                continue
            time = self._last_time(entry.id)
            if time is not None and (latest is None or time >= latest[0]):
                latest = (time, entry.id)
        if latest is None:
            raise SessionNotFound("")
        return latest[1]

    def _last_time(self, id: str) -> int | None:
        """When something happened last in a session; None if that cannot be told."""
        try:
            position = self.inspect(id).position
            if position is None or position.seq < 0:
                return None
            return max(event.time for event in self.read_from(id, position.seq))
        except (PerdureError, ValueError):
            # One that cannot be read hides no other.
            return None


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):
        # Too long, or no path at all: a header may say anything.
        return False


def _resumed(session: Session, cwd: str | None, makers: Mapping[str, TriggerMaker]) -> Resumed:
    state = session.state
    made: dict[str, Any] = {}
    unmade: list[str] = []
    for id, trigger in state.triggers.items():
        make = makers.get(trigger.kind)
        if make is None:
            unmade.append(id)
        else:
            made[id] = make(trigger.state)
    running = tuple(each for each in state.subagents.values() if each.status is None)
    unknown = tuple(state.effects.values())
    return Resumed(cwd, tuple(state.untold_jobs), made, tuple(unmade), running, unknown)
