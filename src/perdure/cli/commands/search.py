"""`perdure search`: where something was said, in all sessions or in some."""

import click

from perdure.catalog import parse
from perdure.catalog.passages import KINDS
from perdure.cli import output
from perdure.cli.chosen import meant
from perdure.cli.finding import (
    embedder_option,
    indexed,
    local_time,
    programs_meant,
    say_coverage,
    time_options,
)
from perdure.cli.options import json_option, opened
from perdure.store.found import Found, Hit
from perdure.store.nearness import MODES

__all__ = ["command"]

_SNIPPET_CHARS = 300
_TITLE_CHARS = 60


@click.command("search")
@click.argument("query", nargs=-1, required=True)
@click.option("--session", metavar="ID", multiple=True, help="Only in this one; repeatable.")
@click.option("--without", metavar="ID", multiple=True, help="Not in this one; repeatable.")
@click.option("--agent", metavar="NAME", multiple=True, help="Only of this agent; repeatable.")
@click.option(
    "--program",
    metavar="NAME",
    multiple=True,
    help="Only in sessions of this program, such as Codex or claude-code, or perdure for its own.",
)
@click.option(
    "--kind",
    multiple=True,
    type=click.Choice(KINDS),
    metavar="KIND",
    help=f"Only what is of this kind; repeatable. Kinds are {', '.join(KINDS)}.",
)
@time_options("Said")
@click.option("--cwd", metavar="PATH", help="Only in sessions of this folder, or below it.")
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default="auto",
    show_default=True,
    help="By the words, by the meaning, or by both; auto is both where `perdure embed` was run.",
)
@embedder_option
@click.option(
    "--sort",
    type=click.Choice(["relevance", "seq"]),
    default="relevance",
    show_default=True,
    help="The best first, or session by session in the order of events.",
)
@click.option(
    "-k", "k", type=click.IntRange(1, 100), default=10, show_default=True, help="How many hits."
)
@click.option("--after", metavar="CURSOR", help="The next page: what the last one gave.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    *,
    query: tuple[str, ...],
    session: tuple[str, ...],
    without: tuple[str, ...],
    agent: tuple[str, ...],
    program: tuple[str, ...],
    kind: tuple[str, ...],
    since: str | None,
    until: str | None,
    cwd: str | None,
    mode: str,
    embedder: str | None,
    sort: str,
    k: int,
    after: str | None,
    as_json: bool,
) -> None:
    """Find where something was said.

    What is typed is taken literally: all of its words are looked for, and phrases within quotes;
    the last word may be the beginning of one. Ids may be cut short where nothing else begins so.
    Messages, thinking, tool calls and their results, errors, answers that broke off, jobs,
    channels, triggers, sub-agents, states, artifacts, summaries and titles are searched. Where
    nothing has all words, what has some of them is shown, and that is said. With the vectors that
    `perdure embed` makes, passages that mean the same in other words are found as well. `perdure
    log ID --from SEQ` shows what stands around a hit.

    JSON: {hits: [{session, seq, kind, agent, time, score, snippet, spans: [[start, end]], cut:
    [before, after], title, cwd}], cursor: text or null, mode, fallback: bool, capped: bool,
    ignored: [text], coverage: {sessions, indexed, skipped, reasons: [[id, reason]]}, model: text or
    null, warnings: [text]}. Spans count characters of the snippet; capped says that there are more
    hits than were ranked; mode is keyword, semantic or hybrid.
    """
    store = opened(ctx, embedder=embedder)
    found = store.search(
        " ".join(query),
        session=[meant(store, id) for id in session] or None,
        without=[meant(store, id) for id in without],
        agent=agent or None,
        program=programs_meant(ctx, store, program) or None,
        kind=kind or None,
        since=since,
        until=until,
        cwd=cwd,
        mode=mode,
        sort=sort,
        k=k,
        after=after,
        snippet_chars=_SNIPPET_CHARS,
        progress=indexed(as_json=as_json),
    )
    if as_json:
        output.document(found.as_dict())
        return
    if parse(" ".join(query)).empty:
        output.warning("there is no word, number or sign in this to look for")
    _print(found)


def _print(found: Found) -> None:
    if found.fallback:
        output.warning("no passage has all of these words; these have some of them")
    if found.ignored:
        output.warning(f"too much for one query, not looked for: {' '.join(found.ignored)}")
    for hit in found.hits:
        _print_hit(hit)
    if not found.hits:
        output.line("nothing was found")
    for warning in found.warnings:
        output.warning(warning)
    if found.capped and found.model is None:
        output.warning("these words are very common: only the newest of their hits were ranked")
    if found.cursor is not None:
        output.warning(f"more: --after {found.cursor}")
    say_coverage(found.coverage)


def _print_hit(hit: Hit) -> None:
    whose = "" if hit.agent is None else f"  {hit.agent}"
    where = "" if hit.cwd is None else f"  {hit.cwd}"
    title = "" if hit.title is None else f" {output.cut(hit.title, _TITLE_CHARS)}"
    output.line(f"{hit.session} {hit.seq}  {hit.kind}{whose}  {local_time(hit.time)}")
    if title or where:
        output.line(f"   {title}{where}")
    before, behind = ("…" if cut else "" for cut in hit.cut)
    output.line(f"    {before}{_one_line(_marked(hit))}{behind}")


def _marked(hit: Hit) -> str:
    """The snippet with what was found between signs; neighbours that nothing parts are one."""
    parts, at, text = "", 0, hit.snippet
    for start, end in hit.spans:
        between = text[at:start]
        if parts and not between.strip():
            parts = parts.removesuffix("»") + between
        else:
            parts += f"{between}«"
        parts += f"{text[start:end]}»"
        at = end
    return parts + text[at:]


def _one_line(text: str) -> str:
    return " ".join(text.split())
