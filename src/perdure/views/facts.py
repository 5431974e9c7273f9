"""View "session": title, archived or not, and the run that writes."""

from typing import NamedTuple

import msgspec

from perdure.model.event import Event
from perdure.model.vocabulary import (
    SessionEnded,
    SessionForked,
    SessionRun,
    SessionTitled,
    fitting,
)
from perdure.views.view import History, Rows, View

__all__ = ["Run", "SessionFacts", "archived", "cwd", "ended", "run", "title"]


class Run(NamedTuple):
    """A process that writes a session, or wrote it last.

    Attributes:
        id: id of the run.
        resumed: it went on with what an earlier run left.
        host: name of the machine, or None.
        pid: number of the process, or None.
        seq: number of the event with which it began.
        time: when it began, in Unix milliseconds.

    """

    id: str
    resumed: bool
    host: str | None
    pid: int | None
    seq: int
    time: int


class SessionFacts(View):
    """One row per fact."""

    name = "session"
    version = 1
    types = frozenset(
        {
            "session/archived",
            "session/unarchived",
            "session/ended",
            "session/forked",
            "session/resumed",
            "session/started",
            "session/titled",
        }
    )

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Take what the event says for what holds now."""
        found = fitting(event)
        if found is None:
            return
        if isinstance(found, SessionTitled):
            rows.put("title", found.title)
        elif isinstance(found, SessionEnded):
            rows.put("ended", [event.seq, found.reason])
        elif isinstance(found, SessionForked):
            # What was said of the parent as a whole is not said of its fork.
            for key in ("archived", "cwd", "ended", "run"):
                rows.remove(key)
        elif isinstance(found, SessionRun):
            again = event.type == "session/resumed"
            new = Run(found.run, again, found.host, found.pid, event.seq, event.time)
            rows.put("run", new._asdict())
            rows.remove("ended")
            if found.cwd is not None:
                rows.put("cwd", found.cwd)
        else:
            rows.put("archived", event.type == "session/archived")


def title(rows: Rows) -> str | None:
    """The title that was given last, or None."""
    return msgspec.convert(rows.get("title"), str | None)


def archived(rows: Rows) -> bool:
    """Whether it is archived."""
    return bool(rows.get("archived"))


def cwd(rows: Rows) -> str | None:
    """Where a run said that it works from now on; None: where the header says."""
    return msgspec.convert(rows.get("cwd"), str | None)


def run(rows: Rows) -> Run | None:
    """The run that writes or wrote last, or None if none said its name."""
    row = rows.get("run")
    return None if row is None else Run(**row)


def ended(rows: Rows) -> bool:
    """Whether the last run said that nothing more will come of it."""
    return "ended" in rows
