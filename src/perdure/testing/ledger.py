"""What a store must hold: a ledger kept by somebody who only heard what the writer was told.

A writer under test reports each step as a `Note`: what it is about to submit, and what was
acknowledged to it. The ledger turns notes into one sequence per session: everything that may be
stored, in its order, and how much of it must be. Whatever happens to the writer, the stored events
are a prefix of that sequence, at least as long as its sure part. There is no third possibility, so
the check needs no tolerance.
"""

import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Self

import msgspec

from perdure.model.event import Event
from perdure.recovery import closers as product

__all__ = ["Expected", "Finding", "Ledger", "Note", "NoteReader", "closers_of", "send"]

_LENGTH = struct.Struct("<I")


class Finding(AssertionError):
    """A store that does not keep what it promised."""


class Note(msgspec.Struct, frozen=True, array_like=True):
    """One step of a writer, in the order in which it happened.

    Attributes:
        kind: created, submitted, acknowledged, opening, opened, closed (about a session); died (its
            process); operation (of the durable layer, see `perdure.durable.crash.observe`);
            finished or failed (the writer's own end).
        session: which one.
        events: what was submitted (numbered -1) or acknowledged (as returned).
        facts: further facts, by kind.

    """

    kind: str
    session: str = ""
    events: tuple[Event, ...] = ()
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Note)
_sending = threading.RLock()


def send(descriptor: int, note: Note) -> None:
    """Write one note into a pipe. A writer that dies in it has not sent it."""
    body = _encoder.encode(note)
    view = memoryview(_LENGTH.pack(len(body)) + body)
    # A writer has a thread in the background that has things to tell as well.
    with _sending:
        while view:
            view = view[os.write(descriptor, view) :]


class NoteReader:
    """Notes from a pipe, until its other end is closed."""

    def __init__(self, descriptor: int) -> None:
        """Read from `descriptor`, which stays the caller's."""
        self._fd = descriptor

    def __iter__(self) -> Iterator[Note]:
        """Yield each whole note; the fragment of one at the end is no note."""
        buffer = b""
        while chunk := os.read(self._fd, 1 << 16):
            buffer += chunk
            while len(buffer) >= _LENGTH.size:
                end = _LENGTH.size + _LENGTH.unpack_from(buffer)[0]
                if len(buffer) < end:
                    break
                yield _decoder.decode(buffer[_LENGTH.size : end])
                buffer = buffer[end:]


class Expected:
    """One session as it may be.

    Attributes:
        log: everything that may be stored, in order.
        sure: how many of these events must be.

    """

    def __init__(self, log: Iterable[Event] = (), sure: int = 0) -> None:
        """Start with what is known."""
        self.log = [*log]
        self.sure = sure
        self._keys = {(e.type, e.key): e for e in self.log if e.key is not None}

    def submit(self, events: Iterable[Event]) -> None:
        """These may be stored from now on, unless their key is stored already."""
        for event in events:
            if event.key is not None and (event.type, event.key) in self._keys:
                continue
            made = msgspec.structs.replace(event, seq=len(self.log))
            self.log.append(made)
            if event.key is not None:
                self._keys[event.type, event.key] = made

    def acknowledge(self, events: Iterable[Event]) -> None:
        """These must be stored from now on, and everything before them."""
        for event in events:
            if not event.seq < len(self.log) or event != self.log[event.seq]:
                raise Finding(f"acknowledged, and not what was submitted: {event}")
            self.sure = max(self.sure, event.seq + 1)

    def check(self, stored: Sequence[Event]) -> None:
        """Demand that `stored` is a prefix of the log and holds all that is sure.

        Raises:
            Finding: something is lost, doubled, changed, out of order, or from nowhere.

        """
        if len(stored) < self.sure:
            raise Finding(f"{self.sure} events were acknowledged, {len(stored)} are stored")
        if len(stored) > len(self.log):
            raise Finding(f"nobody submitted {stored[len(self.log)]}")
        for seq, (found, wanted) in enumerate(zip(stored, self.log, strict=False)):
            if found.seq != seq or found != wanted:
                raise Finding(f"at {seq} stands {found} where {wanted} was submitted")

    def found(self, stored: Sequence[Event]) -> None:
        """Check what a reader found after the writer's death; nothing else can follow any more."""
        self.check(stored)
        self.__init__(stored, min(self.sure, len(stored)))  # type: ignore[misc]

    def copy(self) -> Self:
        """Another one that knows the same."""
        return type(self)(self.log, self.sure)


class Ledger:
    """Every session that a store may hold."""

    def __init__(self) -> None:
        """Nothing was submitted."""
        self.sessions: dict[str, Expected] = {}

    def take(self, note: Note) -> None:
        """Follow a writer by one step.

        Raises:
            Finding: it was acknowledged something it did not submit.

        """
        if note.kind == "created":
            self.sessions.setdefault(note.session, Expected())
        one = self.sessions.get(note.session)
        if one is None:
            return
        if note.kind == "submitted":
            one.submit(note.events)
        elif note.kind == "acknowledged":
            one.acknowledge(note.events)
        elif note.kind == "opening":
            one.submit(closers_of(one.log))
        elif note.kind == "opened":
            if note.facts["seq"] != len(one.log) - 1:
                raise Finding(f"{note.session} was opened at {note.facts}, not {len(one.log) - 1}")
            one.sure = len(one.log)
        elif note.kind == "closed":
            one.sure = len(one.log)
        elif note.kind == "found":
            one.found(note.events)

    def copy(self) -> "Ledger":
        """Another one that knows the same."""
        other = Ledger()
        other.sessions = {name: one.copy() for name, one in self.sessions.items()}
        return other


# --- closers, worked out a second time -----------------------------------------------------------

_TEXTS = {
    "TOOL_NOT_STARTED": product._NOT_STARTED,  # noqa: SLF001
    "TOOL_OUTCOME_UNKNOWN": product._UNKNOWN,  # noqa: SLF001
    "JOB_INTERRUPTED": product._JOB,  # noqa: SLF001
}


def closers_of(events: Sequence[Event]) -> list[Event]:
    """What must close a log of scripted agents: a second opinion, from types and ids alone.

    It asks of each turn and job whether an end stands behind its start, where the product folds
    over the log. Only the words for people are taken from there.
    """
    if not events:
        return []
    out: list[tuple[str, Any, str | None, str | None]] = []
    for at, start in enumerate(events):
        if start.type != "turn/start":
            continue
        inside = [e for e in events[at + 1 :] if _same_turn(start)(e)]
        if not any(event.type == "turn/end" for event in inside):
            out += [(*one, start.agent, start.turn) for one in _turn_closers(inside)]
    for at, start in enumerate(events):
        name = start.data.get("id") if start.type == "job/start" else None
        if name is not None and not _ended(events[at:], "job/end", _names(name)):
            error = {"code": "JOB_INTERRUPTED", "message": _TEXTS["JOB_INTERRUPTED"]}
            data = {"id": name, "status": "interrupted", "error": error}
            out.append(("job/end", data, start.agent, start.turn))
    time, following = events[-1].time, len(events)
    return [
        Event(
            seq, kind, time, agent, turn, key=None, ignorable=False, raw=msgspec.json.encode(data)
        )
        for seq, (kind, data, agent, turn) in enumerate(out, following)
    ]


def _turn_closers(inside: Sequence[Event]) -> Iterator[tuple[str, Any]]:
    asked = [
        block["id"]
        for event in inside
        if event.type == "assistant/message"
        for block in event.data["content"]
        if block["type"] == "tool-call"
    ]
    for call in asked:
        if not _ended(inside, "tool/result", _names(call)):
            started = _ended(inside, "tool/call", _names(call))
            code = "TOOL_OUTCOME_UNKNOWN" if started else "TOOL_NOT_STARTED"
            text = _TEXTS[code]
            content = [{"type": "text", "text": text}]
            yield (
                "tool/result",
                {"id": call, "content": content, "error": {"code": code, "message": text}},
            )
    steps = [e.data["step"] for e in inside if e.type == "step/start"]
    ends = [e for e in inside if e.type == "step/end"]
    if len(steps) > len(ends):
        yield "step/end", {"step": steps[-1], "interrupted": True}
    yield "turn/end", {"reason": "interrupted"}


def _ended(events: Iterable[Event], kind: str, fits: Callable[[Event], bool]) -> bool:
    return any(event.type == kind and fits(event) for event in events)


def _same_turn(start: Event) -> Callable[[Event], bool]:
    return lambda event: (event.agent, event.turn) == (start.agent, start.turn)


def _names(value: str) -> Callable[[Event], bool]:
    return lambda event: bool(event.data.get("id") == value)
