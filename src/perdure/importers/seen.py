"""What the last import saw of a source: a note beside its session, so that little is read again.

It is believed only for the log that it was made of, and only where the source is untouched, or has
the same bytes in front of what was added. Otherwise source and log are compared line by line.
"""

import zlib

import msgspec

from perdure.importers.beside import Beside
from perdure.importers.files import Fingerprint
from perdure.importers.report import SourceProblem
from perdure.model.record import Position
from perdure.store import Session, Store
from perdure.store.notes import note_of, put_note

__all__ = ["Seen", "remember", "seen", "seen_once"]

_NAME = "source"
_VERSION = 2


class Seen(msgspec.Struct, kw_only=True):
    """What an import saw.

    Attributes:
        position: where the log ended behind it.
        fingerprint: of the file.
        digest: SHA-256 of its bytes, 64 hex digits.
        end: byte of its text up to which all lines are whole and stored.
        lines: how many those are.
        torn: whether the source ended inside a line, which is stored behind them.
        generation: of the lines that were stored last.
        last: the last generation that was begun, whether or not it counts.
        time: of the last of them, Unix milliseconds.
        large: how many of them are kept as content.
        large_behind: how many lines behind them are.
        doubt: what was wrong with the source as a whole, or None.
        problems: those of the lines up to `end`, as far as they are listed.
        problem_count: how many they are.
        behind: the problems behind `end`, as far as they are listed.
        behind_count: how many they are.
        beside: the files beside the source that are stored, by their names.
        gone: whether the source was found to be gone since.
        title: the one that a list of the agent's gave the session, or None.

    """

    position: Position
    fingerprint: Fingerprint
    digest: str
    end: int
    lines: int
    torn: bool
    generation: int
    last: int
    time: int
    large: int = 0
    large_behind: int = 0
    doubt: SourceProblem | None = None
    problems: list[SourceProblem] = []
    problem_count: int = 0
    behind: list[SourceProblem] = []
    behind_count: int = 0
    beside: dict[str, Beside] = {}
    gone: bool = False
    title: str | None = None
    version: int = _VERSION


_decoder = msgspec.json.Decoder(Seen)


def seen(store: Store, session: str, position: Position | None) -> Seen | None:
    """What the last import saw, if the log still ends where it did then."""
    found = seen_once(store, session)
    return found if found is not None and found.position == position else None


def seen_once(store: Store, session: str) -> Seen | None:
    """What an import saw, whatever came into the log since: nothing is to depend on it."""
    stored = note_of(store, session, _NAME)
    if stored is None:
        return None
    sum_, _, line = stored.partition(b" ")
    if sum_ != b"%08x" % zlib.crc32(line):
        # It is never synced: after a crash it may be anything.
        return None
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if found.version == _VERSION else None


def remember(session: Session, found: Seen) -> None:
    """Keep it beside the session, as far as that is possible."""
    try:
        line = msgspec.json.encode(found)
    except UnicodeEncodeError:
        # A path that is no UTF-8: the source is compared each time.
        return
    put_note(session, _NAME, b"%08x %b" % (zlib.crc32(line), line))
