"""`perdure verify`: whether every byte of the sessions holds together, and none has vanished."""

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import click

from perdure.backends.base import Entry
from perdure.cli import completing, output
from perdure.cli.chosen import meant
from perdure.cli.exits import Exit, exit_code, worst
from perdure.cli.options import json_option, opened
from perdure.cli.progress import Progress
from perdure.errors import InvalidValue, NotOffered, PerdureError, SessionNotFound
from perdure.evidence import Damage
from perdure.store import Report, Store
from perdure.store.verification import missing

__all__ = ["command"]

_PROBLEMS_SHOWN = 5
_NOT_FOR_REPAIR = frozenset({"evidence", "missing-tail", "unreadable", "unsupported"})
"""For these, look for the newer copy first, or for another version, or try again."""


@click.command("verify")
@click.argument("sessions", metavar="[ID]...", nargs=-1, shell_complete=completing.sessions)
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], as_json: bool) -> int:
    """Check that everything stored holds together.

    Reads everything of the sessions named, or of all, and changes nothing. Each log is held against
    what was acknowledged, each blob against its digest. Without ids, sessions that were stored and
    are gone are named too, unless they were deleted; namespaces below are only named.

    JSON: {"sound": bool, "sessions": [{session, status, sound, torn, events, hash, closers, later,
    problems: [{kind, record, start, end, reason}], content: {count, bytes, damaged: [digest],
    unreadable, expired}, reports: [{kind, record, reason, reported_at}]}], "namespaces": [name],
    "evidence": {unreadable, set_aside: [path]}}. Content is null if it cannot be listed; reports
    are refusals of a writer that are not settled yet; unreadable says why evidence knew nothing,
    or is null. Exit code 3 if any session is not sound or its content is damaged; a session that
    a crash interrupted or tore is sound, one that is missing is not. Exit code 1 if evidence or a
    session cannot be read now, as where a server is away.
    """
    told = _Telling(opened(ctx), as_json=as_json)
    evidence = told.evidence()
    below: list[str] = []
    if sessions:
        told.named(sessions)
    else:
        told.everything()
        below = told.store.namespaces()
    if as_json:
        output.document(
            {
                "sound": told.sound,
                "sessions": told.bodies,
                "namespaces": below,
                "evidence": evidence,
            }
        )
    elif not sessions:
        if not told.bodies:
            output.line(f"no sessions in {ctx.find_root().obj}")
        if below:
            output.line(f"not looked at: namespaces {', '.join(below)} (--namespace NAME)")
    return told.code


class _Telling:
    """Verifies sessions and tells of each as soon as it is known."""

    def __init__(self, store: Store, *, as_json: bool) -> None:
        self.store = store
        self.code = Exit.OK
        self.bodies: list[dict[str, Any]] = []
        self._as_json = as_json
        self._progress = Progress(as_json=as_json)
        self._reports: dict[str, list[Damage]] = defaultdict(list)
        # What cannot be read is told by `evidence`; the logs are looked at all the same.
        with suppress(PerdureError):
            for damage in store.reports():
                self._reports[damage.session].append(damage)

    @property
    def sound(self) -> bool:
        """Whether all is well with all that was asked for."""
        return self.code is Exit.OK

    def evidence(self) -> dict[str, Any]:
        """Whether what is remembered can be read; if not, nothing that is gone is missed."""
        try:
            unreadable, aside = self.store.evidence()
        except NotOffered:
            # Of a store behind a URL each verdict says it of its session.
            unreadable, aside = None, ()
        if unreadable is not None:
            self.code = Exit.FAILED
        if not self._as_json:
            if unreadable is not None:
                output.line(f"evidence     cannot be read: {unreadable}")
                output.line("    until a writer has settled that, what is lost may go unnoticed")
            for path in aside:
                output.line(f"evidence     was damaged once: {path}")
        return {"unreadable": unreadable, "set_aside": [*aside]}

    def named(self, sessions: tuple[str, ...]) -> None:
        """The sessions of these ids."""
        for session in sessions:
            try:
                id = self._meant(session)
                self._tell(self.store.verify(id, progress=self._counter(id)))
            except (SessionNotFound, InvalidValue) as error:
                self._progress.clear()
                self.code = worst([self.code, exit_code(error)])
                output.failure(error, exit_code(error), as_json=self._as_json)

    def _meant(self, session: str) -> str:
        """The id; of one that is not stored, itself: a session that vanished has a report."""
        try:
            return meant(self.store, session)
        except SessionNotFound:
            return session

    def everything(self) -> None:
        """All that is stored, then what is not there any more."""
        entries = self.store.list()
        for number, entry in enumerate(entries, 1):
            what = f"{number} of {len(entries)}: {entry.id}"
            self._progress.show(what)
            self._tell(_verify(self.store, entry, self._counter(what)))
        self._progress.clear()
        with suppress(PerdureError):
            for vanished in self.store.missing():
                self._tell(missing(vanished.id, vanished.position))

    def _counter(self, what: str) -> Callable[[int], None]:
        """Shows how many events of a session are verified."""
        return lambda events: self._progress.show(
            f"{output.counted(events, 'event')} verified, {what}"
        )

    def _tell(self, report: Report) -> None:
        reports = self._reports[report.session]
        body = {
            **report.as_dict(),
            "reports": [
                {
                    "kind": each.kind,
                    "record": each.record,
                    "reason": each.reason,
                    "reported_at": each.reported_at,
                }
                for each in reports
            ],
        }
        self.bodies.append(body)
        if report.status == "unreadable":
            # The medium or the server refused; nobody knows whether anything is wrong.
            self.code = worst([self.code, Exit.FAILED])
        elif not report.sound:
            self.code = Exit.DAMAGE  # the gravest of all
        if not self._as_json:
            self._progress.clear()
            _print(report, reports)


def _verify(store: Store, entry: Entry, progress: Callable[[int], None]) -> Report:
    """The report of a listed session; one without a header may not be found by its id."""
    try:
        return store.verify(entry.id, progress=progress)
    except SessionNotFound:
        problems = [entry.problem] if entry.problem is not None else []
        return Report(entry.id, "damaged", 0, None, 0, problems, 0)


def _repairable(report: Report) -> bool:
    """Whether a repair is what helps."""
    kinds = {problem.kind for problem in report.problems}
    damaged = report.content is not None and report.content.damaged
    due = bool(damaged) or (bool(kinds) and not kinds & _NOT_FOR_REPAIR)
    return due and not report.sound and report.status != "unsafe"


def _print(report: Report, reports: list[Damage]) -> None:
    text = f"{report.status:<12} {report.session}"
    if report.status == "missing":
        output.line(text)
        output.line(f"    {report.problems[0].reason}")
        output.line("    bring it back from a backup, or give up on it with `perdure forget`")
        return
    text += f"  {output.counted(report.events, 'event')}"
    if report.content is not None and report.content.blobs:
        text += f", {output.counted(report.content.blobs, 'blob')}"
    if report.content is not None and report.content.expired:
        text += f", {output.counted(report.content.expired, 'blob')} expired"
    if report.torn:
        text += ", torn tail"
    if report.closers:
        text += f", {report.closers} to be added for what a crash left open"
    if report.later:
        text += f", {output.counted(report.later, 'intact one')} behind the damage"
    output.line(text)
    for problem in report.problems[:_PROBLEMS_SHOWN]:
        output.line(f"    {output.place(problem._asdict())}: {problem.reason}")
    if len(report.problems) > _PROBLEMS_SHOWN:
        output.line(f"    and {len(report.problems) - _PROBLEMS_SHOWN} more")
    if report.content is not None and report.content.unreadable is not None:
        output.line(f"    its content cannot be listed: {report.content.unreadable}")
    for digest in report.content.damaged if report.content is not None else ():
        output.line(f"    content {digest} is damaged")
    if _repairable(report) and not report.problems:
        output.line("    put the same bytes back, or give up on them with `perdure repair`")
    elif _repairable(report):
        output.line("    `perdure repair` keeps what holds together and goes on from there")
    if report.status == "unreadable":
        output.line("    nothing is known of it now; try again when it can be read")
    if any(problem.kind == "missing-tail" for problem in report.problems):
        output.line("    bring back what is missing, or let `perdure accept` take the log as it is")
    for each in reports:
        when = output.timestamp(each.reported_at)
        output.line(f"    a writer was refused at {when} UTC: {each.reason}")
