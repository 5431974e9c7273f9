"""Codex CLI: rollouts of all generations, its history of prompts, and its list of titles.

The first versions wrote a session as one JSON document, spread over lines, and wrote it anew each
time: `rollout-<day>-<thread>.json`. Since then it is one record a line.
"""

import json
import posixpath
import re
from collections.abc import Sequence
from typing import Any

from perdure.importers.formats import Command, Environment, LineFormat, Opening, below_home
from perdure.importers.heads import created, facts_of, milliseconds
from perdure.importers.signs import CODEX, sure_writer_of, writer_of
from perdure.lenses.pieces import made_at, moment, text

__all__ = ["Codex", "about_session"]

Record = dict[str, Any]

_SUFFIXES = (".jsonl", ".jsonl.zst")
_SQUEEZED = ".zst"
_HEX = "[0-9a-fA-F]"
_UUID = f"{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}"
_THREAD = re.compile(_UUID)
_ROLLOUT = re.compile(
    rf"rollout-[0-9]{{4}}(?:-[0-9]{{2}}){{2}}T(?:[0-9]{{2}}-){{3}}({_UUID})\.jsonl(?:\.zst)?"
)
_DOCUMENT = re.compile(rf"rollout-[0-9]{{4}}(?:-[0-9]{{2}}){{2}}(?:T[0-9-]*)?-({_UUID})\.json")
_DOCUMENT_NAME = re.compile(r"rollout-.*\.json", re.DOTALL)
_SESSION_FIRST = re.compile(r'\s*\{\s*"session"\s*:\s*')
"""How such a document begins."""

_ENVIRONMENT = re.compile(r"\s*<environment_context>.*?<cwd>([^<\n]+)</cwd>", re.DOTALL)
_ENVIRONMENT_CHARS_MAX = 8192


class Codex(LineFormat):
    """The format in the shapes of all versions that are known."""

    name = CODEX
    agent = "Codex"

    def matches(self, path: str) -> bool:
        """Lines of JSON, compressed or not, and the documents of the first versions."""
        return path.endswith(_SUFFIXES) or _is_document(path)

    def owns(self, path: str) -> bool:
        """The name that Codex gives its rollouts: the time or day, and the id of the thread."""
        return _named(path) is not None

    def recognises(self, head: Sequence[Record]) -> bool:
        """By envelopes, the first line or items of old, prompts of the history, or titles."""
        return writer_of(head) == self.name

    def sure(self, head: Sequence[Record]) -> bool:
        """Envelopes, the first line of old, prompts, or titles."""
        return sure_writer_of(head) == self.name

    def opening(self, head: Sequence[Record], path: str) -> Opening:
        """What its lens learns, and when and where it began.

        The id in the first line goes before the one in the name of the file: a file can be renamed
        or copied, and what Codex wrote in it stays.
        """
        facts = facts_of(self, about_session(head))
        id = facts.id or _named(path)
        first = next((said for record in head if (said := _meta(record)) is not None), {})
        # When the thread was started; the line itself was written later, in a fork much later.
        began = created([moment(first.get("timestamp"))])
        written = created(self.record(record)[1] for record in head)
        times = (began, written, None if id is None else made_at(id))
        parent = None if facts.parent == id else facts.parent
        return Opening(
            id=id,
            cwd=text(first.get("cwd")) or _later_cwd(head),
            created_at=next((time for time in times if time is not None), None),
            parent=parent,
            relation=None if parent is None and facts.kind != "subagent" else facts.kind,
        )

    def record(self, value: Record) -> tuple[str | None, int | None]:
        """Type and timestamp; the first versions, the history and the titles name it otherwise."""
        kind = value.get("type")
        dated = (moment(value.get(name)) for name in ("timestamp", "created_at", "updated_at"))
        times = (*dated, milliseconds(value.get("ts"), 1000))
        time = next((time for time in times if time is not None), None)
        return kind if isinstance(kind, str) else None, time

    def folders(self, environment: Environment, home: str) -> list[str]:
        """Its sessions, those put away, the history of prompts, and the list of titles."""
        root = below_home(environment("CODEX_HOME") or "~/.codex", home)
        names = ("sessions", "archived_sessions", "history.jsonl", "session_index.jsonl")
        return [posixpath.join(root, name) for name in names]

    def command(self, id: str) -> Command | None:
        """Resume a thread, which Codex finds from any folder."""
        known = _THREAD.fullmatch(id) is not None
        return Command(("codex", "resume", id), needs_folder=False) if known else None

    def document(self, path: str, start: bytes) -> list[Record] | None:
        """What a document of the first versions says of its session, which stands in front."""
        if not _is_document(path):
            return None
        said = start.decode("utf-8", "replace").removeprefix("\ufeff")
        first = _SESSION_FIRST.match(said)
        try:
            if first is None:
                whole = json.loads(said)
            else:
                session, _ = json.JSONDecoder().raw_decode(said, first.end())
                whole = {"session": session, "items": []}
        except (ValueError, RecursionError):
            return []
        return [whole] if isinstance(whole, dict) else []

    def superseded_by(self, path: str) -> str | None:
        """The rollout that is not compressed: Codex goes on with that one."""
        squeezed = self.owns(path) and path.endswith(_SQUEEZED)
        return path.removesuffix(_SQUEEZED) if squeezed else None

    def lists(self, path: str) -> bool:
        """The list of titles, by its name."""
        return posixpath.basename(path) == "session_index.jsonl"

    def titled(self, value: Record) -> tuple[str, str] | None:
        """What a thread was called; the last line of a thread counts."""
        id, title = text(value.get("id")), text(value.get("thread_name"))
        return None if id is None or title is None else (id, title)


def _named(path: str) -> str | None:
    """The id of the thread in the name of a rollout, or None."""
    name = posixpath.basename(path)
    found = _ROLLOUT.fullmatch(name) or _DOCUMENT.fullmatch(name)
    return None if found is None else found[1]


def _is_document(path: str) -> bool:
    return _DOCUMENT_NAME.fullmatch(posixpath.basename(path)) is not None


def about_session(head: Sequence[Record]) -> Sequence[Record]:
    """What of these records says id, parent and kind of the session.

    First lines do, and lines of old without a type; what stands in front of one tells whether it is
    a parent's. Behind the last there is nothing.
    """
    for end in range(len(head), 0, -1):
        kind = head[end - 1].get("type")
        if kind == "session_meta" or not isinstance(kind, str):
            return head[:end]
    return ()


def _meta(record: Record) -> Record | None:
    """What a first line says of the thread, whatever its version; None: it is no such line."""
    kind, said = record.get("type"), record.get("payload")
    if not isinstance(kind, str):
        whole = record.get("session")
        if isinstance(whole, dict) and isinstance(record.get("items"), list):
            return whole
        first = "id" in record and "timestamp" in record and "role" not in record
        return record if first else None
    return said if kind == "session_meta" and isinstance(said, dict) else None


def _later_cwd(head: Sequence[Record]) -> str | None:
    """The first folder of a turn, or the one that early versions told the model alone."""
    told = (record.get("payload") for record in head if record.get("type") == "turn_context")
    turns = (text(said.get("cwd")) for said in told if isinstance(said, dict))
    items = (record.get("payload", record) for record in head)
    known = (cwd for item in items if isinstance(item, dict) for cwd in _environment(item))
    return next((cwd for cwd in (*turns, *known) if cwd), None)


def _environment(item: Record) -> list[str]:
    """The folder in the context that was told in the user's name."""
    content = item.get("content")
    if item.get("role") != "user" or not isinstance(content, list):
        return []
    texts = (block.get("text") for block in content if isinstance(block, dict))
    found = (
        _ENVIRONMENT.match(said[:_ENVIRONMENT_CHARS_MAX]) for said in texts if isinstance(said, str)
    )
    return [cwd for each in found if each is not None and (cwd := text(each[1].strip()))]
