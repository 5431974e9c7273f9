"""`perdure repair`: going on after damage."""

import click

from perdure.cli import completing, output
from perdure.cli.chosen import in_full, stored
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.store import Repair

__all__ = ["command"]

_PROBLEMS_SHOWN = 5


@click.command("repair")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@click.option("--salvage", is_flag=True, help="Take intact events behind the damage over, too.")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@json_option
@click.pass_context
def command(
    ctx: click.Context, *, session: str, salvage: bool, dry_run: bool, as_json: bool
) -> int:
    """Make a new log from what holds together; the old one is kept aside, untouched.

    Behind the events that are kept stands one that says what happened (session/repaired). With
    --salvage, the intact events behind the damage follow it with new numbers, behind events that
    say where they come from (session/salvaged). Damaged content is kept aside and expires. Where
    nothing is wrong nothing is done. A repair that was broken off is finished as it was begun.

    JSON: {session, done, resumed, needed, sound, problems: [{kind, record, start, end, reason}],
    kept, acknowledged, lost: [first, last], later, salvaged, header_lost, aside, content: [digest],
    unsafe: [digest]}. Exit code 0 if the session is sound now, 3 if not, 4 if it is being written.
    """
    store = opened(ctx)
    with in_full(session, lambda: stored(store)):
        done = store.repair(session, salvage=salvage, dry_run=dry_run)
    if as_json:
        output.document(done.as_dict())
    else:
        _print(done, dry_run=dry_run)
    return Exit.OK if done.sound else Exit.DAMAGE


def _print(done: Repair, *, dry_run: bool) -> None:
    for problem in done.problems[:_PROBLEMS_SHOWN]:
        output.line(f"{output.place(problem._asdict())}: {problem.reason}")
    if len(done.problems) > _PROBLEMS_SHOWN:
        output.line(f"and {len(done.problems) - _PROBLEMS_SHOWN} more")
    for digest in done.content:
        output.line(f"content {digest} is damaged")
    for digest in done.unsafe:
        output.line(f"content {digest}: its file is not private, see its mode and owner")
    if not done.needed:
        if not done.unsafe:
            output.line(f"{done.session}: nothing to repair")
        return
    text = "would be repaired" if dry_run else "repaired"
    if done.resumed:
        text = "a repair that was broken off would be finished" if dry_run else "repair finished"
    output.line(f"{done.session}: {text}")
    if done.aside is not None:
        output.line(f"    {output.counted(done.kept, 'event')} kept")
        if done.header_lost:
            output.line("    the header is lost; a new one says what the events tell")
        if done.lost is not None:
            first, last = done.lost
            output.line(f"    events {first} to {last} were acknowledged and are not kept")
        if done.later:
            said = f"{done.salvaged} of them taken over" if done.salvaged else "none taken over"
            if dry_run and not done.salvaged:
                # Afterwards the log is sound, and nothing is left to do for a repair.
                said += "; --salvage would, and only now"
            intact = output.counted(done.later, "intact event")
            output.line(f"    {intact} behind the damage, {said}")
        output.line(f"    the log as it was: aside, as {done.aside}")
    if done.content:
        output.line(f"    {output.counted(len(done.content), 'blob')} put aside and expired")
