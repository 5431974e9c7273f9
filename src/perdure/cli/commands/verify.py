"""`perdure verify`: whether every byte of the sessions holds together."""

import click

from perdure.backends.base import Entry
from perdure.cli import output
from perdure.cli.exits import Exit, exit_code
from perdure.cli.options import json_option, opened
from perdure.errors import SessionNotFound
from perdure.store import Report, Store

__all__ = ["command"]

_PROBLEMS_SHOWN = 5


@click.command("verify")
@click.argument("sessions", metavar="[ID]...", nargs=-1)
@json_option
@click.pass_context
def command(ctx: click.Context, sessions: tuple[str, ...], as_json: bool) -> int:
    """Check that everything stored holds together.

    Reads everything of the sessions named, or of all, and changes nothing.

    JSON: {"sound": bool, "sessions": [{session, status, sound, events, hash, closers, later,
    problems: [{kind, record, start, end, reason}]}]}. Exit code 3 if any session is not sound; a
    session that a crash interrupted or tore is sound.
    """
    store = opened(ctx)
    code = Exit.OK
    reports = []
    if sessions:
        for session in sessions:
            try:
                reports.append(_told(store.verify(session), as_json=as_json))
            except SessionNotFound as error:
                code = exit_code(error)
                output.failure(error, code, as_json=as_json)
    else:
        reports = [_told(_verify(store, entry), as_json=as_json) for entry in store.list()]
    sound = all(report.sound for report in reports)
    if as_json:
        body = [report.as_dict() for report in reports]
        output.document({"sound": sound and code is Exit.OK, "sessions": body})
    elif not reports and code is Exit.OK:
        output.line(f"no sessions in {ctx.obj}")
    return code if sound else Exit.DAMAGE


def _verify(store: Store, entry: Entry) -> Report:
    """The report of a listed session; one without a header may not be found by its id."""
    try:
        return store.verify(entry.id)
    except SessionNotFound:
        problems = [entry.problem] if entry.problem is not None else []
        return Report(entry.id, "damaged", 0, None, 0, problems, 0)


def _told(report: Report, *, as_json: bool) -> Report:
    """Print the line of one session as soon as it is known."""
    if not as_json:
        text = f"{report.status:<12} {report.session}  {report.events} events"
        if report.closers:
            text += f", {report.closers} to be added for what a crash left open"
        if report.later:
            text += f", {report.later} intact ones behind the damage"
        output.line(text)
        for problem in report.problems[:_PROBLEMS_SHOWN]:
            output.line(f"    {output.place(problem._asdict())}: {problem.reason}")
        if len(report.problems) > _PROBLEMS_SHOWN:
            output.line(f"    and {len(report.problems) - _PROBLEMS_SHOWN} more")
    return report
