"""`perdure upgrade`: a whole store into a new one, verified at the end."""

from typing import Any

import click

from perdure.cli import output
from perdure.cli.copies import Told
from perdure.cli.exits import Exit, worst
from perdure.cli.options import json_option, opened_at
from perdure.errors import PerdureError, SessionDamaged
from perdure.store import Copied, Store

__all__ = ["command"]


@click.command("upgrade")
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("target", metavar="DST", type=click.Path())
@json_option
@click.pass_context
def command(ctx: click.Context, source: str, target: str, as_json: bool) -> int:
    """Bring a whole store into a new one.

    DST is a store that does not exist yet, in the form and on the medium that you want from now on,
    or one that an earlier upgrade of SRC left unfinished. Everything is copied as by `perdure
    copy`; at the end each session in DST is read whole and compared with the one in SRC. SRC stays
    as it is. Deleted sessions stay in its trash.

    JSON: {source, destination, finished, sessions and not_tried: as `perdure copy`, verified,
    in_trash}, where verified counts sessions and in_trash the deleted ones that stay behind. Exit
    code as `perdure copy`; 3 also if a session in DST is not sound.
    """
    here, there = opened_at(ctx, source), opened_at(ctx, target)
    _refuse_others(here, there, target)
    told = Told(as_json=as_json)
    here.copy_all(there, progress=told)
    verified, code = 0, told.end()
    for done in told.copied:
        try:
            _compare(there.namespace(*done.namespace), done)
            verified += 1
        except PerdureError as error:
            code = worst([code, Exit.DAMAGE])
            output.failure(error, Exit.DAMAGE, as_json=as_json)
    finished = code is Exit.OK
    in_trash = _trashed(here)
    if as_json:
        body: dict[str, Any] = {"source": source, "destination": target, "finished": finished}
        body |= {"sessions": told.rows, "not_tried": told.not_tried}
        body |= {"verified": verified, "in_trash": in_trash}
        output.document(body)
        return code
    if not told.count and not told.failed:
        output.line(f"no sessions in {source}")
        return code
    output.line(f"{output.counted(verified, 'session')} verified in {target}")
    if in_trash:
        output.line(f"left in the trash of {source}: {output.counted(in_trash, 'session')}")
    if finished:
        output.line(f"{source} is as it was: remove it when you are satisfied")
    else:
        output.line(f"not finished: {source} is still needed; run this again when it is settled")
    return code


def _refuse_others(source: Store, target: Store, name: str) -> None:
    """Only what an upgrade of this very store left may be there.

    Raises:
        PerdureError: there is something else.

    """
    mine = {entry.id: entry.header.digest for entry in source.list() if entry.header is not None}
    for entry in target.list():
        if entry.header is None or mine.get(entry.id) != entry.header.digest:
            raise PerdureError(
                f"{name} holds session {entry.id!r}, which is not of this store",
                hint="name a place where there is none yet; `perdure copy` brings stores together",
            )
    for part in target.namespaces():
        _refuse_others(source.namespace(part), target.namespace(part), name)


def _compare(target: Store, done: Copied) -> None:
    """Read one session whole where it arrived.

    Raises:
        SessionDamaged: it is not sound, or not what was copied.

    """
    report = target.verify(done.session)
    damaged = report.content.damaged if report.content is not None else ()
    problems = [each.reason for each in report.problems]
    problems += [f"content {digest} is damaged" for digest in damaged]
    if not report.sound:
        raise SessionDamaged(done.session, "; ".join(problems) or report.status)
    if report.position != done.position:
        raise SessionDamaged(done.session, "it does not stand where its copy ended")


def _trashed(store: Store) -> int:
    below = [store.namespace(part) for part in store.namespaces()]
    return len(store.trash()) + sum(_trashed(each) for each in below)
