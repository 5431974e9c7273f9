"""View "jobs": work that may outlive its turn, and of which deaths nobody was told yet."""

from typing import Any, NamedTuple

import msgspec

from perdure.model.event import Event
from perdure.model.vocabulary import Error, JobEnd, JobStart, JobUpdate, SessionRun, fitting
from perdure.views.endings import Endings
from perdure.views.view import History, Rows, View
from perdure.views.windows import key_of

__all__ = ["Job", "Jobs", "jobs"]

_INTERRUPTED = "interrupted"


class Job(NamedTuple):
    """A job that is open, or one of the last that ended.

    Attributes:
        id: its id, unique in the session.
        status: None while it is open, then completed, failed, cancelled or interrupted.
        kind: what kind of work it is, or None.
        name: its name, or None.
        arguments: what it was begun with.
        agent: the agent that began it.
        turn: the turn in which it was begun, or None.
        seq: number of the event that began it.
        updates: how often it told of itself.
        output: what it told last.
        ended: number of the event that ended it, or None.
        result: what came of it.
        error: why it failed, or None.
        untold: it died with its process, and no `session/resumed` says that the agent was told.

    """

    id: str
    status: str | None
    kind: str | None
    name: str | None
    arguments: Any
    agent: str | None
    turn: str | None
    seq: int
    updates: int
    output: Any
    ended: int | None
    result: Any
    error: Error | None
    untold: bool


class Jobs(View):
    """An entry per job, and in a row of its own what it told last.

    Of jobs that have ended the last 100 are kept, and all that are untold.
    """

    name = "jobs"
    version = 1
    types = frozenset({"job/start", "job/update", "job/end", "session/resumed"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Begin, go on with or end a job, or note of which jobs the agent was told."""
        found = fitting(event)
        entries = Endings(rows)
        if isinstance(found, JobStart):
            rows.remove(_updates(found.id))
            facts = {"kind": found.kind, "name": found.name, "arguments": found.arguments}
            entries.begin(event, found.id, facts)
        elif isinstance(found, JobUpdate) and entries.get(found.id) is not None:
            count, _ = rows.get(_updates(found.id), (0, None))
            rows.put(_updates(found.id), [count + 1, found.output])
        elif isinstance(found, JobEnd):
            _end(rows, entries, event, found)
        elif isinstance(found, SessionRun):
            for id in found.told:
                if (row := entries.get(id)) is not None and row.get("untold"):
                    entries.change(id, {"untold": False})
                    _forget_old(rows, entries, id)


def jobs(rows: Rows) -> list[Job]:
    """The jobs in the order in which they began."""
    out = []
    for row in Endings(rows).all():
        updates, output = rows.get(_updates(row["id"]), (0, None))
        error = row.get("error")
        out.append(
            Job(
                id=row["id"],
                status=row.get("status"),
                kind=row.get("kind"),
                name=row.get("name"),
                arguments=row.get("arguments"),
                agent=row["agent"],
                turn=row["turn"],
                seq=row["seq"],
                updates=updates,
                output=output,
                ended=row.get("ended"),
                result=row.get("result"),
                error=None if error is None else Error(**error),
                untold=row.get("untold", False),
            )
        )
    return out


def _end(rows: Rows, entries: Endings, event: Event, how: JobEnd) -> None:
    facts = {
        "status": how.status,
        "result": how.result,
        "error": msgspec.to_builtins(how.error),
        "untold": how.status == _INTERRUPTED,
    }
    gone = entries.end(event, how.id, facts)
    if gone is not None:
        _forget_old(rows, entries, gone)


def _forget_old(rows: Rows, entries: Endings, id: str) -> None:
    row = entries.get(id)
    if row is not None and not row.get("untold") and entries.forget_old(id):
        rows.remove(_updates(id))


def _updates(id: str) -> str:
    return key_of("updates", id)
