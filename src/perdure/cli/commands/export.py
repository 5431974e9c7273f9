"""`perdure export`: a session and its sub-agents in one file, or the file that was imported."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perdure.backends import Backend
from perdure.cli import completing, output
from perdure.cli.chosen import meant
from perdure.cli.copies import BUNDLE, Told, bundle_at, copy_each
from perdure.cli.destination import Counted, put_out, write_new
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, near, opened
from perdure.errors import InvalidValue, PerdureError, SessionNotFound
from perdure.store import Store

if TYPE_CHECKING:
    from perdure.importers.restoring import Restored

__all__ = ["SOURCE", "command"]

SOURCE = "source"
"""What the file that was imported is called among the formats."""

_COMPRESSED = (".zst", ".zstd")

_LOGS = ("-wal", "-journal")
"""What SQLite keeps beside a file that is not complete in itself."""


@click.command("export")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@click.argument("target", metavar="FILE", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice([BUNDLE, SOURCE]),
    default=BUNDLE,
    show_default=True,
    help="The form of the file.",
)
@click.option(
    "--generation",
    type=click.IntRange(min=0),
    metavar="N",
    help="Of a source that was rewritten: as it was before; 0 is before its first rewrite.",
)
@click.option(
    "--with-files",
    is_flag=True,
    help="With a source also what belongs to it: files beside it, and those of sub-agents.",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    session: str,
    target: str,
    form: str,
    generation: int | None,
    with_files: bool,
    as_json: bool,
) -> int:
    """Write a session with its sub-agents to one file, or the file that it was imported from.

    A bundle keeps header, records and hashes as they are; large content is put into a folder
    beside it, `<name>.artifacts`. FILE is a path that ends in .perdure. A file that exists is
    refused, unless it is this very export, which is then continued. `perdure import bundle` reads
    it, and every command does with `--store FILE`.

    With --format source, of an import: its source, byte for byte as it was found, in a new file
    with mode 0600; - is the output. With --with-files also the files beside it and those of its
    sub-agents, in the folder of FILE and below it, by the names that they had beside the source.
    Nothing is written over, nor outside of that folder; what could not be written is named.

    JSON: {session, format, file, sessions and not_tried: as `perdure copy`}; of a source {session,
    format, file, generation, size, compressed, written: [name], skipped: [{name, reason}]}, where
    compressed says that the bytes are those of a compressed file; written and skipped are of
    --with-files. Exit codes as `perdure copy`; 1 if a file was skipped, 2 if the session is no
    import.
    """
    store = opened(ctx)
    session = meant(store, session)
    if form == SOURCE:
        return _export_source(
            ctx, store, session, target, generation, with_files=with_files, as_json=as_json
        )
    if generation is not None or with_files:
        what = "--with-files" if generation is None else "--generation"
        raise click.UsageError(f"{what} goes with --format {SOURCE}", ctx=ctx)
    near(ctx.find_root().obj.location, "export of bundles")
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


def _export_source(
    ctx: click.Context,
    store: Store,
    session: str,
    target: str,
    generation: int | None,
    *,
    with_files: bool,
    as_json: bool,
) -> Exit:
    """Write the source of an import to a new file, or print it.

    Raises:
        InvalidValue: it is no import, or there is no such generation.
        PerdureError: the file exists; or as `source_bytes`.

    """
    from perdure.importers.restoring import Restored
    from perdure.importers.stored_lines import (
        last_generation,
        maybe_compressed,
        source_bytes,
        stored_parts,
    )

    if target == "-" and (as_json or with_files):
        what = "--json" if as_json else "--with-files"
        raise click.UsageError(f"{what} and - do not go together", ctx=ctx)
    header = store.inspect(session).header
    last = last_generation(store, session)
    if header is not None and not header.is_import:
        reason = f"{session!r} is no import, so it has no source"
        raise InvalidValue("ID", reason, hint=f"perdure export ID FILE --format {BUNDLE}")
    if generation is not None and generation > last:
        hint = "it was never rewritten" if not last else f"there are 0 to {last}"
        raise InvalidValue("--generation", f"there is no {generation}", hint=hint)
    squeezed = bool(stored_parts(store, session, generation))
    path = "" if header is None or header.source is None else header.source.path or ""
    may_be = not squeezed and path.endswith(_COMPRESSED)
    if may_be and maybe_compressed(store, session, generation):
        output.warning("its compressed bytes are not kept; this is its text")
    if target == "-":
        what = f"the source of {session}"
        put_out(what, lambda: source_bytes(store, session, generation), force=False)
        return Exit.OK
    counted = Counted(source_bytes(store, session, generation))
    write_new(target, counted)
    more = _write_files(store, session, target, generation) if with_files else Restored((), ())
    if as_json:
        name = str(Path(target).absolute())
        body = {"session": session, "format": SOURCE, "file": name}
        of = last if generation is None else generation
        facts = {"generation": of, "size": counted.size, "compressed": squeezed}
        skipped = [each._asdict() for each in more.skipped]
        output.document({**body, **facts, "written": [*more.written], "skipped": skipped})
    else:
        output.line(f"{output.counted(counted.size, 'byte')} in {target}")
        if with_files:
            output.line(f"{output.counted(len(more.written), 'file')} besides")
        for name, reason in more.skipped:
            output.warning(f"{name} was not written: {reason}")
    return Exit.FAILED if more.skipped else Exit.OK


def _write_files(store: Store, session: str, target: str, generation: int | None) -> "Restored":
    from perdure.importers.restoring import belongings, restore

    files = belongings(store, session, generation)
    return restore(files.items(), os.path.dirname(target) or ".")  # noqa: PTH120


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
    family = {session: header.digest}
    waiting = [session]
    while waiting:
        for child in store.children(waiting.pop()):
            one = child.header
            if child.kind == "subagent" and one is not None and child.session not in family:
                family[child.session] = one.digest
                waiting.append(child.session)
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
