"""`perdure accept`: an older log is the truth now."""

import click

from perdure.cli import completing, output
from perdure.cli.chosen import in_full, stored
from perdure.cli.exits import Exit
from perdure.cli.options import confirmed, json_option, opened, yes_option
from perdure.errors import SessionNotFound

__all__ = ["command"]


@click.command("accept")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@yes_option
@json_option
@click.pass_context
def command(ctx: click.Context, session: str, yes: bool, as_json: bool) -> int:
    """Say that a log is the truth though more was acknowledged.

    For an older copy that was restored on purpose. What is missing is shown first, as `verify`
    names it, and then somebody is asked; where nobody can be, --yes is needed. A log that does not
    hold together in itself is refused with exit code 3.

    JSON: {session, accepted, position: {seq, hash}, problems: [{kind, record, start, end,
    reason}]}. `accepted` is false if nothing was missing; the position is that of the last event.
    """
    store = opened(ctx)
    with in_full(session, lambda: stored(store)):
        report = store.verify(session)
    if report.status == "missing":
        error = SessionNotFound(session)
        error.hint = f"{report.problems[0].reason}; `perdure forget` gives up on it"
        raise error
    due = not report.sound
    if not as_json:
        for problem in report.problems:
            output.line(f"{output.place(problem._asdict())}: {problem.reason}")
        if not due:
            output.line("nothing that was acknowledged is missing")
    position = report.position
    if due:
        last = "before its first event" if report.events == 0 else f"at event {report.events - 1}"
        confirmed(ctx, f"Shall the log of {session} end {last} from now on?", yes=yes)
        position = store.accept(session)
    if as_json:
        output.document(
            {
                "session": session,
                "accepted": due,
                "position": position._asdict() if position is not None else None,
                "problems": [problem._asdict() for problem in report.problems],
            }
        )
    elif position is not None:
        said = "accepted: the log ends" if due else "the log ends"
        output.line(f"{said} with event {position.seq}, hash {position.hash}")
    return Exit.OK
