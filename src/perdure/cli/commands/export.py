"""`perdure export`: a session and its sub-agents in one file."""

import os
from pathlib import Path

import click

from perdure.backends import Backend
from perdure.cli import completing, output
from perdure.cli.copies import BUNDLE, Told, bundle_at, copy_each
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.errors import PerdureError, SessionNotFound
from perdure.store import Store

__all__ = ["command"]

_LOGS = ("-wal", "-journal")
"""What SQLite keeps beside a file that is not complete in itself."""


@click.command("export")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@click.argument("target", metavar="FILE", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice([BUNDLE]),
    default=BUNDLE,
    show_default=True,
    help="The form of the file.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, session: str, target: str, form: str, as_json: bool) -> int:
    """Write a session with its sub-agents to one file.

    A bundle keeps header, records and hashes as they are; large content is put into a folder
    beside it, `<name>.artifacts`. FILE is a path that ends in .perdure. A file that exists is
    refused, unless it is this very export, which is then continued. `perdure import bundle` reads
    it, and every command does with `--store FILE`.

    JSON: {session, format, file, sessions and not_tried: as `perdure copy`}. Exit codes as `perdure
    copy`.
    """
    store = opened(ctx)
    headers = _family(store, session)
    told = Told(as_json=as_json)
    backend = bundle_at(target)
    with Store(backend) as bundle:
        if not os.path.lexists(target):
            # What is remembered beside it is of a file of this name that was moved away.
            backend.evidence.forget_all()
        for entry in bundle.list():
            if entry.header is None or headers.get(entry.id) != entry.header.digest:
                raise PerdureError(
                    f"{target} holds session {entry.id!r}, which is not of this export",
                    hint="name a new file",
                )
        copy_each(store, bundle, [*headers], told)
    code = told.end()
    _complete(backend, target)
    if as_json:
        name = str(Path(target).absolute())
        body = {"session": session, "format": form, "file": name, "sessions": told.rows}
        output.document(body | {"not_tried": told.not_tried})
    elif code is Exit.OK:
        output.line(f"{output.counted(len(headers), 'session')} in {target}")
    return code


def _family(store: Store, session: str) -> dict[str, str]:
    """A session and its sub-agents, theirs too, by id; the digests of their headers.

    Raises:
        SessionNotFound: there is none.
        SessionDamaged, FormatUnsupported: its header cannot be read.

    """
    header = store.inspect(session).header
    if header is None:
        # What it raises says what is wrong.
        for _ in store.read_from(session):
            break
        raise SessionNotFound(session)
    spawned: dict[str, list[str]] = {}
    digests = {session: header.digest}
    for entry in store.list():
        one = entry.header
        if one is not None and one.origin == "subagent" and one.parent is not None:
            spawned.setdefault(one.parent.session, []).append(one.id)
            digests.setdefault(one.id, one.digest)
    family = {session: header.digest}
    waiting = [session]
    while waiting:
        for child in spawned.get(waiting.pop(), ()):
            if child not in family:
                family[child] = digests[child]
                waiting.append(child)
    return family


def _complete(backend: Backend, target: str) -> None:
    """Make sure that the file alone is everything.

    Raises:
        PerdureError: part of it stands in a file beside it, or cannot be brought into it.

    """
    if _halves(target):
        # Of an export that was killed, if nobody has it open.
        backend.make()
    for beside in _halves(target):
        raise PerdureError(
            f"{target} is not complete without {beside.name}",
            hint="somebody has it open; when that ended, run this again",
        )


def _halves(target: str) -> list[Path]:
    halves = [Path(target + suffix) for suffix in _LOGS]
    return [each for each in halves if each.exists() and each.stat().st_size]
