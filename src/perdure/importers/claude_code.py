"""Claude Code: transcripts, files of sub-agents, and its history of prompts.

The files of sub-agents carry the id of the session that they belong to, so of those the agent's id
is their own. A transcript may begin with dozens of records that say little, or with records of
another session; where it holds several, its name says which is its own.
"""

import posixpath
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from perdure.importers.formats import Command, Environment, LineFormat, Opening, below_home
from perdure.importers.heads import created, facts_of, milliseconds
from perdure.importers.signs import CLAUDE_CODE, sure_writer_of, writer_of
from perdure.lenses import SourceFacts
from perdure.lenses.pieces import ident, moment, text

__all__ = ["ClaudeCode", "about_session"]

Record = dict[str, Any]

_SUFFIX = ".jsonl"
_AGENT = "agent-"
_HEX = "[0-9a-fA-F]"
_UUID = f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"
_SESSION = re.compile(_UUID)
_OWN = re.compile(
    rf"(?:.*/)?projects/[^/]+/(?:(?:{_UUID}|agent-[^/]+)|{_UUID}/subagents/(?:.+/)?agent-[^/]+)"
    rf"\.jsonl",
    re.DOTALL,
)
"""Where Claude Code alone keeps sessions."""

_WITHIN = re.compile(rf"(?:.*/)?({_UUID})/subagents/(?:.+/)?[^/]+", re.DOTALL)
"""Where the files of sub-agents lie since version 2.1."""

_ABOUT_SESSION = ("type", "sessionId", "isSidechain", "agentId", "forkedFrom", "uuid", "parentUuid")
"""By these members alone the lens knows whose a record is."""

_JOURNAL = re.compile(r"(?:.*/)?subagents/workflows/[^/]+/journal\.jsonl", re.DOTALL)
"""What a workflow keeps of its sub-agents: no session."""


class ClaudeCode(LineFormat):
    """The format in the shapes of all versions that are known."""

    name = CLAUDE_CODE
    agent = "Claude Code"

    def matches(self, path: str) -> bool:
        """Lines of JSON but for the journals of workflows; the list of sessions is none."""
        return path.endswith(_SUFFIX) and _JOURNAL.fullmatch(path) is None

    def owns(self, path: str) -> bool:
        """A session or sub-agent in the folder of a project, by the names they have there."""
        return _OWN.fullmatch(path) is not None

    def recognises(self, head: Sequence[Record]) -> bool:
        """By the records of its tree, those about sessions, or prompts of its history."""
        return writer_of(head) == self.name

    def sure(self, head: Sequence[Record]) -> bool:
        """Records of its tree, or about sessions."""
        return sure_writer_of(head) == self.name

    def opening(self, head: Sequence[Record], path: str) -> Opening:
        """What its lens learns, whose file it is by its place, and when and where it began."""
        facts, place = facts_of(self, about_session(head)), _Place.of(path)
        whose = _whose(head, facts, place)
        own = [record for record in head if _is_own(record, whose)]
        times = [self.record(record)[1] for record in own if not _forked(record)]
        return Opening(
            id=whose.id,
            cwd=_first_cwd(own) or _first_cwd(head),
            # Of a fork that begins with more copies, no record of its own is known.
            created_at=created(times) or created(self.record(record)[1] for record in head),
            parent=whose.parent,
            relation=whose.relation,
        )

    def record(self, value: Record) -> tuple[str | None, int | None]:
        """Type and timestamp; prompts of the history have no type, and a number for the time."""
        kind, time = value.get("type"), value.get("timestamp")
        at = moment(time) if isinstance(time, str) else milliseconds(time)
        return kind if isinstance(kind, str) else None, at

    def folders(self, environment: Environment, home: str) -> list[str]:
        """The projects and the history of each folder of settings; commas stand between them."""
        named = (environment("CLAUDE_CONFIG_DIR") or "").split(",")
        roots = [folder.strip() for folder in named if folder.strip()] or ["~/.claude"]
        return [
            posixpath.join(below_home(root, home), name)
            for root in dict.fromkeys(roots)
            for name in ("projects", "history.jsonl")
        ]

    def command(self, id: str) -> Command | None:
        """Resume a session; sub-agents, whose ids are no UUIDs, cannot be resumed."""
        known = _SESSION.fullmatch(id) is not None
        return Command(("claude", "--resume", id)) if known else None

    def companions(self, path: str) -> list[str]:
        """What describes a sub-agent; of a session large outputs and journals of workflows."""
        stem = Path(path.removesuffix(_SUFFIX))
        if _Place.of(path).agent is not None:
            found = [stem.with_name(f"{stem.name}.meta.json")]
        else:
            found = [*_listed(stem, "tool-results")]
            for workflow in _listed(stem, "subagents", "workflows"):
                found += (each for each in _listed(workflow) if each.name == "journal.jsonl")
        return sorted(str(each) for each in found if stat.S_ISREG(_mode(each)))


def about_session(head: Sequence[Record]) -> list[Record]:
    """What of these records says id, parent and kind of the session: all of them, without texts."""
    return [{name: record[name] for name in _ABOUT_SESSION if name in record} for record in head]


# --- whose file it is ---------------------------------------------------------------------------


class _Place(NamedTuple):
    """What the path of a file says.

    Attributes:
        session: the id that names the file of a session.
        agent: the id that names the file of a sub-agent.
        parent: the id of the session in whose folder the file of a sub-agent lies.

    """

    session: str | None
    agent: str | None
    parent: str | None

    @classmethod
    def of(cls, path: str) -> "_Place":
        """Read a path."""
        stem = posixpath.basename(path).removesuffix(_SUFFIX)
        session = stem if _SESSION.fullmatch(stem) else None
        agent = ident(stem[len(_AGENT) :]) if stem.startswith(_AGENT) else None
        within = _WITHIN.fullmatch(path)
        return cls(session, agent, None if within is None else within[1])


class _Whose(NamedTuple):
    """Whose file it is.

    Attributes:
        id: its own id.
        session: the id that its own records carry; of a sub-agent that of its parent.
        parent: as in `Opening`.
        relation: as in `Opening`.

    """

    id: str | None
    session: str | None
    parent: str | None = None
    relation: str | None = None


def _whose(head: Sequence[Record], facts: SourceFacts, place: _Place) -> _Whose:
    """The records decide, and the file's name where they do not."""
    sessions = {_session(record) for record in head if isinstance(record.get("type"), str)}
    named = place.session if place.session in sessions else None
    if facts.kind == "subagent" and named is None:
        return _Whose(facts.id, None, facts.parent or place.parent, "subagent")
    aside = all(record.get("isSidechain") is not False for record in head)
    if place.agent is not None and aside:
        itself = facts.id in (place.agent, f"{_AGENT}{place.agent}")
        parent = None if itself else facts.id
        return _Whose(place.agent, None, parent or place.parent, "subagent")
    id = named or facts.id or place.session
    forked = facts.parent if facts.kind == "fork" and facts.parent != id else None
    if forked is not None:
        return _Whose(id, id, forked, "fork")
    followed = _followed(head, id)
    return _Whose(id, id, followed, None if followed is None else "continuation")


def _followed(head: Sequence[Record], id: str | None) -> str | None:
    """The other session behind whose records, copied here, the own ones go on; None: none."""
    others: dict[str, str] = {}
    for record in head:
        session, own = _session(record), ident(record.get("uuid"))
        if session is not None and session != id and own is not None:
            others[own] = session
        up = ident(record.get("parentUuid"))
        if session == id and id is not None and up in others:
            return others[up]
    return None


def _is_own(record: Record, whose: _Whose) -> bool:
    return whose.session is None or _session(record) in (None, whose.session)


def _session(record: Record) -> str | None:
    return ident(record.get("sessionId"))


def _forked(record: Record) -> bool:
    """Whether it is a copy of a record of the session that this one was forked from."""
    return isinstance(record.get("forkedFrom"), dict)


def _first_cwd(head: Sequence[Record]) -> str | None:
    return next((cwd for record in head if (cwd := text(record.get("cwd")))), None)


# --- files beside it ----------------------------------------------------------------------------


def _listed(folder: Path, *below: str) -> Iterator[Path]:
    """What a folder further below holds; nothing, if a symbolic link leads there."""
    for name in ("", *below):
        folder /= name
        if not stat.S_ISDIR(_mode(folder)):
            return
    try:
        yield from folder.iterdir()
    except OSError:
        return


def _mode(path: Path) -> int:
    """Of what stands there itself; 0 if nothing does."""
    try:
        return path.lstat().st_mode
    except (OSError, ValueError):
        return 0
