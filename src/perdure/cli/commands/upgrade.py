"""`perdure upgrade`: a whole store into a new one, verified at the end."""

from collections.abc import Iterator
from typing import Any

import click

from perdure.cli import output
from perdure.cli.copies import Told, source_at
from perdure.cli.exits import Exit, worst
from perdure.cli.options import json_option, opened_at, shown_location
from perdure.errors import PerdureError, SessionDamaged
from perdure.store import Copied, Store
from perdure.store.moving import known_digests

__all__ = ["command"]


@click.command("upgrade")
@click.argument("source", metavar="SRC", type=click.Path())
@click.argument("target", metavar="DST", type=click.Path())
@json_option
@click.pass_context
def command(ctx: click.Context, source: str, target: str, as_json: bool) -> int:
    """Bring a whole store into a new one.

    DST is a store that does not exist yet, in the form and on the medium that you want from now on,
    or one that an earlier upgrade of SRC made. Everything is copied as by `perdure copy`; at the
    end each session in DST is read whole and compared with the one in SRC. SRC stays as it is.
    Deleted sessions stay in its trash; those that an earlier upgrade brought before they were
    deleted stay in DST, and are named.

    JSON: {source, destination, finished, sessions and not_tried: as `perdure copy`, verified,
    in_trash, left_over: [{session, namespace}]}, where verified counts sessions, in_trash the
    deleted ones that stay behind, and left_over are those that are in DST alone. Exit code as
    `perdure copy`; 3 also if a session in DST is not sound.
    """
    here, there = source_at(ctx, source), opened_at(ctx, target)
    source, target = shown_location(source), shown_location(target)
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
    in_trash, left_over = _trashed(here), [*_left_over(here, there)]
    if as_json:
        body: dict[str, Any] = {"source": source, "destination": target, "finished": finished}
        body |= {"sessions": told.rows, "not_tried": told.not_tried}
        body |= {"verified": verified, "in_trash": in_trash}
        body["left_over"] = [{"session": one, "namespace": [*parts]} for one, parts in left_over]
        output.document(body)
        return code
    for one, parts in left_over:
        where = f" in namespace {' / '.join(parts)}" if parts else ""
        output.line(f"still in {target}, though no more in {source}: {one}{where}")
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
    """Only what an upgrade of this very store left may be there, in the trash neither.

    Raises:
        PerdureError: there is something else.

    """
    # What was deleted or lost here since an earlier upgrade is there rightly.
    mine = known_digests(source)
    there = [(each.id, each.header.digest if each.header else None, "") for each in target.list()]
    there += [(each.id, each.digest, " in its trash") for each in target.trash()]
    for session, digest, where in there:
        if digest not in mine.get(session, ()):
            raise PerdureError(
                f"{name} holds session {session!r}{where}, which is not of this store",
                hint="name a place where there is none yet; `perdure copy` brings stores together",
            )
    for part in target.namespaces():
        _refuse_others(source.namespace(part), target.namespace(part), name)


def _left_over(
    source: Store, target: Store, parts: tuple[str, ...] = ()
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What an earlier upgrade brought and is not in the old store any more, with its namespace."""
    stored = {entry.id for entry in source.list()}
    for entry in target.list():
        if entry.id not in stored:
            yield entry.id, parts
    for part in target.namespaces():
        yield from _left_over(source.namespace(part), target.namespace(part), (*parts, part))


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
