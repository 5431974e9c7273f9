"""`perdure show`: one session, everything that can be said without its content."""

import json
from collections import Counter
from typing import Any

import click

from perdure.cli import completing, output
from perdure.cli.chosen import meant
from perdure.cli.exits import Exit
from perdure.cli.options import json_option, opened
from perdure.errors import PerdureError
from perdure.store import Inspection, Store
from perdure.store.abstract import abstract_of

__all__ = ["command"]


@click.command("show")
@click.argument("session", metavar="ID", shell_complete=completing.sessions)
@json_option
@click.pass_context
def command(ctx: click.Context, session: str, as_json: bool) -> int:
    """Show header, end, state and problems of a session.

    Reads all of it and changes nothing. Of an import it also says which agent wrote which file,
    whether that is gone, how often it was rewritten, and how much of its lines a lens understands:
    for that they are all read once more.

    JSON: {session, status, header, position: {seq, hash}, holder: {pid, host, since}, counts:
    {type: number}, content: {count, bytes}, import, closers: [event], problems: [{kind, record,
    start, end, reason}], later}. Import is null, or {agent, title, path, gone, reason, generations,
    relation, parent, lens: version or null, understood, raw, missed, superseded}: the last four
    count records; gone is what the last sync found, null if that cannot be read, and reason what
    was at its path instead, null if nothing was. Closers are what a writer would add to close an
    interrupted turn; content is null if it cannot be listed. Exit code 3 if something is damaged.
    """
    store = opened(ctx)
    session = meant(store, session)
    found = store.inspect(session)
    facts = _facts(found)
    facts["content"] = _content(store, session)
    facts["import"] = _import(store, found)
    if as_json:
        output.document(facts)
    else:
        _print(facts)
    # A torn tail is the ordinary trace of a crash, and the next writer sets it aside.
    worse = facts["problems"][1 if facts["status"] == "torn" else 0 :]
    return Exit.DAMAGE if facts["status"] == "damaged" or worse else Exit.OK


def _facts(found: Inspection) -> dict[str, Any]:
    closers = found.closers
    verified = found.verified
    counts = Counter(
        event.type for event in found.events if verified is not None and event.seq <= verified.seq
    )
    return {
        "session": found.id,
        "status": found.status if found.header is None or not found.damaged else "damaged",
        "header": found.header.as_dict() if found.header is not None else None,
        "position": verified._asdict() if verified is not None else None,
        "holder": found.holder._asdict() if found.holder is not None else None,
        "counts": dict(sorted(counts.items())),
        "content": None,
        "import": None,
        "closers": [event.as_dict() for event in closers],
        "problems": [problem._asdict() for problem in found.problems],
        "later": found.later_count,
    }


def _content(store: Store, session: str) -> dict[str, int] | None:
    try:
        blobs = store.blobs(session)
    except PerdureError as error:
        output.warning(f"the content cannot be listed: {error}")
        return None
    return {"count": len(blobs), "bytes": sum(blob.size for blob in blobs)}


def _import(store: Store, found: Inspection) -> dict[str, Any] | None:
    """What there is to say of an import besides; as far as its log can be read."""
    header = found.header
    if header is None or header.source is None or not header.is_import:
        return None
    from perdure.importers.source import Stored
    from perdure.importers.taking_up import agent_of

    source = header.source
    facts: dict[str, Any] = {
        "agent": agent_of(header),
        "title": None,
        "path": source.path,
        "gone": None,
        "reason": None,
        "generations": None,
        "relation": source.relation,
        "parent": source.parent,
        "lens": None,
        "understood": None,
        "raw": None,
        "missed": None,
        "superseded": None,
    }
    try:
        stored = Stored.of(source.format, store.read_from(found.id))
        facts |= {"gone": stored.gone, "reason": stored.reason}
        facts["generations"] = stored.generation + 1
        facts["title"] = abstract_of(store, found.id).title
        read = found.understanding
    except PerdureError as error:
        output.warning(f"the import cannot be read whole: {error.message}")
        return facts
    if read is not None and read.version is not None:
        facts |= {"lens": read.version, "missed": read.missed, "superseded": read.superseded}
        facts |= {"understood": sum(read.understood.values()), "raw": sum(read.raw.values())}
    return facts


def _print_import(facts: dict[str, Any]) -> None:
    output.line(f"agent     {facts['agent']}")
    if facts["title"] is not None:
        output.line(f"title     {output.cut(facts['title'], 100)}")
    why = f"gone: {facts['reason']}" if facts["reason"] else "which is not there any more"
    gone = f", {why}" if facts["gone"] else ""
    output.line(f"file      {facts['path'] or '-'}{gone}")
    if facts["relation"] is not None:
        of = "a session that nothing names" if facts["parent"] is None else facts["parent"]
        output.line(f"relation  {facts['relation']} of {of}")
    if (facts["generations"] or 0) > 1:
        output.line(f"rewritten {output.counted(facts['generations'] - 1, 'time')}")
    if facts["lens"] is not None:
        said = f"{facts['understood']} understood, {facts['raw']} left as they are"
        said += f", {facts['missed']} that could not be read" if facts["missed"] else ""
        said += f", {facts['superseded']} replaced since" if facts["superseded"] else ""
        output.line(f"records   {said}")
    elif facts["gone"] is not None:
        output.line("records   kept, and understood by no lens that is installed")


def _print(facts: dict[str, Any]) -> None:
    output.line(f"session   {facts['session']}")
    output.line(f"status    {facts['status']}")
    for name, value in (facts["header"] or {}).items():
        if name == "created_at":
            when = "-" if not value else f"{output.timestamp(value)} UTC"
            output.line(f"  {name:<10} {when} ({value})")
        elif name not in ("id", "digest"):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            output.line(f"  {name:<10} {output.cut(text, 300)}")
    if facts["import"] is not None:
        _print_import(facts["import"])
    if facts["holder"] is not None:
        output.line("written by pid {pid} on {host}".format_map(facts["holder"]))
    if facts["position"] is not None:
        output.line(f"events    {facts['position']['seq'] + 1}, verified")
        output.line(f"hash      {facts['position']['hash']}")
    for kind, count in facts["counts"].items():
        output.line(f"{count:>8}  {kind}")
    content = facts["content"]
    if content is not None and content["count"]:
        blobs = output.counted(content["count"], "blob")
        output.line(f"content   {blobs}, {content['bytes']} bytes")
    if facts["closers"]:
        output.line("left open by the last writer; the next one will add:")
        for event in facts["closers"]:
            output.line(f"  {event['seq']:>6}  {event['type']}  {_outcome(event['data'])}".rstrip())
    for problem in facts["problems"]:
        output.line(f"problem   {output.place(problem)}: {problem['reason']}")
    if facts["later"]:
        output.line(f"{facts['later']} intact events stand behind the damage, unverified")


def _outcome(data: dict[str, Any]) -> str:
    error = data.get("error") or {}
    return str(error.get("code") or data.get("reason") or "")
