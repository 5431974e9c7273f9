"""What a lens is: it reads the records of another agent's session as events of perdure's own.

An imported session keeps each record of its source verbatim. Whoever wants to know what was said
feeds the stored events, in their order, to a lens of their format and gets events that the views
understand. Nothing of that is stored, so a better lens reads old imports better.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from perdure.model import values
from perdure.model.event import Event

__all__ = [
    "KINDS_MAX",
    "KIND_CHARS_MAX",
    "OTHER_KINDS",
    "Kinds",
    "Lens",
    "SourceFacts",
    "record_of",
]

KINDS_MAX = 1000
"""So many kinds of records are counted by their names."""

KIND_CHARS_MAX = 64
"""The name of a kind is cut behind so many characters."""

OTHER_KINDS = "(other kinds)"
"""All further kinds are counted as this one: the names are the source's, and it may have any."""

_BOM = "\ufeff"


class Kinds(Counter[str]):
    """How many records of each kind there are, of no more kinds and no longer names than is sane.

    `kinds[name] += 1` counts a record; behind the first `KINDS_MAX` names a new one counts as
    `OTHER_KINDS`.
    """

    def __getitem__(self, kind: str) -> int:
        """How many records count under this name."""
        return super().__getitem__(self._name(kind))

    def __setitem__(self, kind: str, count: int) -> None:
        """Let so many records count under this name."""
        super().__setitem__(self._name(kind), count)

    def _name(self, kind: str) -> str:
        name = values.text(str(kind)[:KIND_CHARS_MAX])
        return name if name in self or len(self) < KINDS_MAX else OTHER_KINDS


class SourceFacts(msgspec.Struct, kw_only=True):
    """What a source says of its session, as far as it was read.

    Attributes:
        id: the session's id in its own format; of a sub-agent its own, not its parent's.
        cwd: the last working directory.
        title: the last title that a person or the agent gave it; None: only prompts can name it.
        parent: the id of the session that it comes from, in its own format.
        kind: what it is to its parent: "subagent", "fork" or "continuation"; None without one. A
            sub-agent is one also where nothing tells whose.
        model: the last model that answered.
        branch: the last git branch.
        agent: what a sub-agent is called, or its type.
        gaps: how many records are named by others as what they follow, and were not there. What
            stood in them, and where it stood, nobody knows.

    """

    id: str | None = None
    cwd: str | None = None
    title: str | None = None
    parent: str | None = None
    kind: str | None = None
    model: str | None = None
    branch: str | None = None
    agent: str | None = None
    gaps: int = 0


class Lens(ABC):
    """Reads one session; a new one is made for each reading. It is pure: no clock, no files.

    Attributes:
        name: of the format, as the types of stored events begin.
        version: raised with every change of what it says.
        facts: what was learned of the session up to here.
        understood: how many records of each kind it read; kinds are its format's own names, of
            which `Kinds` bounds number and length.
        raw: how many records of each kind it left as they are: it does not know what they mean, or
            they mean nothing for a conversation. None is in both.
        told: how many records it read that are messages, calls or results.
        missed: how many records that are such it could not read.

    """

    name: ClassVar[str]
    version: ClassVar[int]

    def __init__(self) -> None:
        """Begin before the first record."""
        self.facts = SourceFacts()
        self.understood = Kinds()
        self.raw = Kinds()
        self.told = 0
        self.missed = 0

    @abstractmethod
    def read(self, event: Event) -> Iterator[Event]:
        """What the next stored event says, perhaps nothing, perhaps what earlier ones led to.

        Events have the number and the time of the record that they come from, so that several may
        share one. It never raises: a record that is not as its format wants it counts as raw, or
        as `missed`.
        """

    def end(self) -> Iterator[Event]:
        """What is still to be said when no further record comes."""
        return iter(())

    @staticmethod
    def said(
        record: Event,
        type: str,  # noqa: A002
        data: Any,
        *,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """An event of the vocabulary that comes from a stored one."""
        return Event(record.seq, type, record.time, agent, turn, None, False, values.encode(data))


def record_of(event: Event) -> dict[str, Any] | None:
    """The JSON object of a stored line, as it was found; None if it is none.

    Bytes that were no UTF-8 show as U+FFFD, and zero bytes or a byte order mark around the object
    are passed over. Of several objects in one line there is none.
    """
    text = event.data
    if not isinstance(text, str):
        return None
    inner = text.removeprefix(_BOM).strip("\0 \t\r\n")
    try:
        value = values.decode(
            inner.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()
        )
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
