"""`perdure ls`: the sessions of the store, those at work last first."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from perdure.catalog.contract import SORTS, Listed
from perdure.cli import output
from perdure.cli.finding import (
    indexed,
    listed_json,
    local_time,
    program_name,
    programs_meant,
    say_coverage,
    time_options,
)
from perdure.cli.options import json_option, opened
from perdure.store import Store
from perdure.store.asking import STATUSES
from perdure.store.found import Listing

__all__ = ["command"]

_RELATIONS = {None: "", "subagent": ", sub-agent"}

_TITLE_CHARS = 60
"""What is shown of a title where nothing tells how wide the terminal is."""

_TITLE_CHARS_MIN = 12
_COLUMNS = 80


@click.command("ls")
@click.argument("query", nargs=-1)
@click.option(
    "--agent",
    metavar="NAME",
    multiple=True,
    help="Only where this agent took part; repeatable.",
)
@click.option(
    "--program",
    metavar="NAME",
    multiple=True,
    help="Only sessions of this program, such as Codex, or perdure for its own; repeatable.",
)
@click.option("--cwd", metavar="PATH", help="Only those at work in this folder, or below it.")
@click.option(
    "--status", multiple=True, type=click.Choice(STATUSES), help="Only in this one; repeatable."
)
@click.option("--preset", metavar="NAME", multiple=True, help="Only of this one; repeatable.")
@click.option("--problems", is_flag=True, help="Only those with which something is wrong.")
@click.option("--archived", is_flag=True, help="Only those that were put away.")
@time_options("Last active")
@click.option(
    "--sort",
    type=click.Choice(SORTS),
    default="last_active",
    show_default=True,
    help="The newest, the largest, or by title.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="How many at most; sub-agents stand below these.",
)
@click.option("--after", metavar="CURSOR", help="The next page: what the last one gave.")
@click.option("--flat", is_flag=True, help="Sub-agents in the order of all, not below others.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    query: tuple[str, ...],
    agent: tuple[str, ...],
    program: tuple[str, ...],
    cwd: str | None,
    status: tuple[str, ...],
    preset: tuple[str, ...],
    problems: bool,
    archived: bool,
    since: str | None,
    until: str | None,
    sort: str,
    limit: int,
    after: str | None,
    flat: bool,
    as_json: bool,
) -> None:
    """List the sessions, the one first in which something came last.

    QUERY looks in titles, first prompts, presets, configurations, agents and folders, and lists
    what fits best first; what was said is found by `perdure search`. Without a title it is what
    somebody asked first. On a terminal titles are cut so that a line fits, and ids are not. Without
    a filter, sub-agents stand below the session that they work for. The namespaces directly below
    are named; their sessions are listed with --namespace.

    JSON: {sessions: [{id, title, named, preview, created, last_active, status, agents: [name],
    program, cwd, host, preset, composition, composition_kind, config_path, parent, relation,
    source_format, source_id, source_parent, source_path, events, turns, messages, calls, failures,
    tokens, cost: {currency: sum}, size, archived, problem, projection}], cursor: text or null,
    fallback: bool, coverage: {sessions, indexed, skipped, reasons: [[id, reason]]}, namespaces:
    [name]}. Named says that the title was given; relation what it is to its parent: subagent, fork
    or continuation. Times are Unix milliseconds; what is not known is null.
    """
    store = opened(ctx)
    filters = (query, agent, program, cwd, status, preset, since, until)
    # What fits is listed by itself, be it a sub-agent of a session that does not.
    nested = not (flat or problems or archived or any(filters))
    found = store.sessions(
        limit,
        after,
        sort,
        " ".join(query) or None,
        agent=agent or None,
        program=programs_meant(ctx, store, program) or None,
        cwd=cwd,
        status=status or None,
        preset=preset or None,
        problem=True if problems else None,
        archived=True if archived else None,
        since=since,
        until=until,
        nested=nested,
        progress=indexed(as_json=as_json),
    )
    below = store.namespaces()
    if as_json:
        below_them = _below(store, found.sessions) if nested else ()
        rows = [*map(listed_json, found.sessions), *(listed_json(each) for _, each in below_them)]
        coverage = found.coverage.as_dict()
        facts = {"sessions": rows, "cursor": found.cursor, "fallback": found.fallback}
        output.document({**facts, "coverage": coverage, "namespaces": below})
        return
    _print(store, found, nested=nested)
    if not found.sessions:
        _say_none(ctx, found)
    if below:
        output.line(f"namespaces here: {', '.join(below)} (--namespace NAME)")


def _say_none(ctx: click.Context, found: Listing) -> None:
    stored = found.coverage.sessions
    which = "such " if stored else ""
    of = f"; it has {output.counted(stored, 'session')}" if stored else ""
    output.line(f"no {which}sessions in {ctx.find_root().obj}{of}")
    if not stored:
        output.line("`perdure sync` brings in what other agents keep on this machine")


def _print(store: Store, found: Listing, *, nested: bool) -> None:
    if found.fallback and found.sessions:
        output.warning("no session has all of these words; these have some of them")
    below: dict[str, list[Listed]] = {}
    for parent, each in _below(store, found.sessions) if nested else ():
        below.setdefault(parent, []).append(each)
    rows = [row for each in found.sessions for row in _rows(each, below, 0)]
    if rows:
        headings = ["STATUS", "LAST EVENT", "PROGRAM", "TITLE", "ID"]
        output.table(_fitting([headings, *rows]))
    if found.cursor is not None:
        output.warning(f"more: --after {found.cursor}")
    say_coverage(found.coverage)


def _below(store: Store, sessions: list[Listed]) -> Iterator[tuple[str, Listed]]:
    """The sub-agents of these sessions, and theirs, each with the session it stands below."""
    known = {each.id for each in sessions}
    waiting = sessions
    while waiting:
        found = [
            each
            for each in store.children_of([one.id for one in waiting])
            if each.relation == "subagent" and each.id not in known
        ]
        for each in found:
            known.add(each.id)
            yield _parent(each, waiting), each
        waiting = found


def _parent(child: Listed, elders: list[Listed]) -> str:
    """Which of these it works for."""
    for each in elders:
        if child.parent == each.id:
            return each.id
    own = (child.source_format, child.source_parent)
    return next(each.id for each in elders if (each.source_format, each.source_id) == own)


def _rows(session: Listed, below: dict[str, list[Listed]], depth: int) -> Iterator[list[str]]:
    relation = "" if depth else _RELATIONS.get(session.relation, f", {session.relation}")
    title = session.title or "-"
    if session.problem is not None:
        title = f"({session.problem})"
    yield [
        f"{session.status}, archived" if session.archived else session.status,
        local_time(session.last_active),
        program_name(session.program) + relation,
        "  " * depth + ("└ " if depth else "") + title,
        session.id,
    ]
    for each in below.get(session.id, ()):
        yield from _rows(each, below, depth + 1)


def _columns() -> int:
    """How many characters a line of the terminal has."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _COLUMNS
    except (OSError, ValueError):
        return _COLUMNS


def _fitting(rows: list[list[Any]]) -> list[list[str]]:
    """The rows with titles of a length that lets them stand on one line each."""
    room = _TITLE_CHARS
    if sys.stdout.isatty():
        widths = [
            max(len(output.safe(cell)) for cell in column) for column in zip(*rows, strict=True)
        ]
        others = sum(widths) - widths[3] + 2 * (len(widths) - 1)
        room = max(_columns() - others, _TITLE_CHARS_MIN)
    return [[*row[:3], output.cut(output.safe(row[3]), room), row[4]] for row in rows]
