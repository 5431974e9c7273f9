"""Content of a session: put beside its log, referred to by digest, expired when somebody says so.

A reference is the digest anywhere in the data of an event: whatever an event says of a blob, it
names it. What expires is written down first and removed then, so the log always knows why a blob
that it refers to is not there.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from perdure.backends.base import Backend, Blob
from perdure.errors import ContentDamaged, ContentExpired, InvalidValue
from perdure.model import values
from perdure.model.record import BadRecordError, Record, decode_line

__all__ = [
    "DIGESTS_MAX",
    "Expiry",
    "Mentions",
    "References",
    "Rule",
    "check_digest",
    "check_digests",
    "content_of",
    "expired_in",
    "parts_of",
    "rule_of",
]

DIGESTS_MAX = 10_000
"""Blobs that one `content/expired` event names at most."""

_CHUNK = 1024 * 1024
_DIGEST_CHARS = 64
_DIGITS = re.compile(rb"[0-9a-f]{64,}")
_EXPIRED, _PINNED, _UNPINNED = "content/expired", "content/pinned", "content/unpinned"
_BOOKKEEPING = frozenset({_EXPIRED, _PINNED, _UNPINNED})


def check_digest(digest: object) -> str:
    """Refuse what names no content.

    Raises:
        InvalidValue: not 64 hex digits, small letters.

    """
    if isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest):
        return digest
    raise InvalidValue(
        "digest",
        f"{values.shown(digest)} names no content",
        hint="the 64 hex digits that put_blob returned; `perdure blob ID` lists them",
    )


def check_digests(digests: Sequence[object]) -> list[str]:
    """Refuse what names no content, and nothing at all.

    Raises:
        InvalidValue: there is none, or one is not 64 hex digits.

    """
    if not digests:
        raise InvalidValue("digests", "there is none", hint="the digests that put_blob returned")
    return [check_digest(each) for each in digests]


def parts_of(value: Any) -> Iterable[bytes]:
    """The bytes of what a caller puts, in parts: bytes, a binary file, or an iterable of bytes.

    Raises:
        InvalidValue: it is none of these; for a later part, while it is read.

    """
    if isinstance(value, bytes | bytearray | memoryview):
        return (bytes(value),)
    if isinstance(value, str):
        raise InvalidValue("value", "is text", hint='encode it: text.encode("utf-8")')
    if hasattr(value, "read"):
        return _checked(iter(lambda: value.read(_CHUNK), b""))
    if isinstance(value, Iterable):
        return _checked(value)
    raise InvalidValue(
        "value", f"{values.shown(value)} is no content", hint="bytes, a binary file, or parts"
    )


def _checked(parts: Iterable[Any]) -> Iterator[bytes]:
    for part in parts:
        if not isinstance(part, bytes | bytearray | memoryview):
            raise InvalidValue(
                "value", f"a part is {values.shown(part)}, not bytes", hint='open it with "rb"'
            )
        yield bytes(part)


def content_of(backend: Backend, session: str, digest: str) -> Iterator[bytes]:
    """The stored bytes in parts; the last part comes only if all of them have that digest.

    Raises:
        SessionNotFound: the session is gone, with all it had.
        ContentExpired: they are not there.
        ContentDamaged: raised by the iteration; nothing that came before is to be trusted.

    """
    parts = backend.blob(session, check_digest(digest))
    if parts is None:
        # Perhaps the session went between finding it and finding its content.
        backend.stored(session)
        raise ContentExpired(session, digest)
    return _verified(backend, session, digest, parts)


def _verified(
    backend: Backend, session: str, digest: str, parts: Iterator[bytes]
) -> Iterator[bytes]:
    found, held = hashlib.sha256(), b""
    for part in parts:
        if held:
            yield held
        found.update(part)
        held = part
    if found.hexdigest() != digest:
        if digest not in {blob.digest for blob in backend.blobs(session)}:
            # It was removed while it was read.
            raise ContentExpired(session, digest)
        raise ContentDamaged(session, digest, f"its bytes have the SHA-256 {found.hexdigest()}")
    if held:
        yield held


def expired_in(record: Record) -> set[str]:
    """Digests that a record says have expired."""
    named: set[str] = set()
    if record.type == _EXPIRED:
        for event in record.events():
            blobs = event.data.get("blobs") if isinstance(event.data, dict) else None
            if isinstance(blobs, list):
                named.update(each for each in blobs if isinstance(each, str))
    return named


class Rule(NamedTuple):
    """Which content expires: what satisfies every condition that is given.

    Attributes:
        older_than_ms: age of the last event that refers to it, in milliseconds.
        kinds: every event that refers to it is of one of these types.
        keep_last: not one of the so many that were referred to last.

    """

    older_than_ms: int | None = None
    kinds: frozenset[str] | None = None
    keep_last: int | None = None

    @property
    def empty(self) -> bool:
        """Whether no condition is given: then nothing expires."""
        return self == Rule()

    def as_data(self) -> dict[str, Any]:
        """The conditions, as the log keeps them."""
        kinds = None if self.kinds is None else sorted(self.kinds)
        given = {**self._asdict(), "kinds": kinds}
        return {name: value for name, value in given.items() if value is not None}


def rule_of(
    older_than: float | dt.timedelta | None,
    kinds: Collection[str] | None,
    keep_last: int | None,
) -> Rule:
    """A rule of what a caller asks for; `older_than` in seconds.

    Raises:
        InvalidValue: a condition is out of its range.

    """
    age = None
    if older_than is not None:
        given: Any = older_than
        seconds = given.total_seconds() if isinstance(given, dt.timedelta) else given
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise InvalidValue("older_than", f"{values.shown(given)} is no age", hint="seconds")
        if not 0 <= seconds < float("inf"):
            raise InvalidValue("older_than", f"{values.shown(given)} is no age", hint="seconds")
        age = int(seconds * 1000)
    strings = kinds is None or (
        isinstance(kinds, Collection) and all(isinstance(each, str) for each in kinds)
    )
    if isinstance(kinds, str) or not strings:
        raise InvalidValue(
            "kinds", f"{values.shown(kinds)} are no event types", hint="a list or a set of them"
        )
    if keep_last is not None and (keep_last.__class__ is not int or keep_last < 0):
        raise InvalidValue("keep_last", f"{values.shown(keep_last)} is not a count")
    return Rule(age, None if kinds is None else frozenset(kinds), keep_last)


class Expiry(NamedTuple):
    """What `expire` removed, or with `dry_run` would remove.

    Attributes:
        session: the id.
        expired: content that events refer to.
        unreferenced: content that no event refers to, left by a writer that died.
        kept: number of blobs that stay.

    """

    session: str
    expired: tuple[Blob, ...]
    unreferenced: tuple[Blob, ...]
    kept: int


class _Reference:
    """Who refers to one blob."""

    __slots__ = ("kinds", "seq", "time")

    def __init__(self) -> None:
        self.seq = -1
        self.time = 0
        self.kinds: set[str] = set()


class Mentions:
    """Which of some content the lines of a log refer to, pin and let expire.

    Attributes:
        pinned: digests of what must stay.
        expired: digests of what the log last says is gone, stored all the same.

    """

    def __init__(self, session: str, stored: Iterable[Blob]) -> None:
        """Look for the digests of what is `stored`; nothing was read yet."""
        self._session = session
        self._stored = list(stored)
        self._names = {blob.digest.encode(): blob.digest for blob in self._stored}
        self._found: dict[str, _Reference] = {}
        self.pinned: set[str] = set()
        self.expired: set[str] = set()

    @property
    def wanted(self) -> set[str]:
        """Digests that events refer to or pin, and that did not expire since."""
        return (self._found.keys() | self.pinned) - self.expired

    def read(self, line: bytes) -> None:
        """Take the next line into account; only one that names such content is decoded."""
        named = set(self._named(line))
        if not named:
            return
        try:
            record = decode_line(line if line.endswith(b"\n") else line + b"\n")
        except BadRecordError:
            # Noise, or a damaged record: what it names is kept rather than lost.
            self.pinned |= named
            return
        if record.type in _BOOKKEEPING:
            self._keep_books(record, named)
            return
        self.expired -= named
        for digest in named:
            reference = self._found.setdefault(digest, _Reference())
            reference.seq = record.last
            reference.time = max(event.time for event in record.events())
            reference.kinds.add(record.type)

    def _named(self, line: bytes) -> Iterator[str]:
        for run in _DIGITS.finditer(line):
            for at in range(run.start(), run.end() - _DIGEST_CHARS + 1):
                digest = self._names.get(line[at : at + _DIGEST_CHARS])
                if digest is not None:
                    yield digest

    def _keep_books(self, record: Record, named: set[str]) -> None:
        if record.type == _PINNED:
            self.pinned |= named
            self.expired -= named
        elif record.type == _UNPINNED:
            self.pinned -= named
        else:
            self.expired |= named

    def expiry(self, rule: Rule, now: int, fresh: Collection[str] = ()) -> Expiry:
        """What expires by the rule at `now`, and what nobody refers to; nothing that is `fresh`."""
        by_age = sorted(self._found, key=lambda digest: -self._found[digest].seq)
        latest = set(by_age[: rule.keep_last or 0])
        expired, unreferenced = [], []
        for blob in self._stored:
            digest = blob.digest
            if digest in self.pinned or digest in fresh:
                continue
            reference = self._found.get(digest)
            if reference is None:
                unreferenced.append(blob)
            elif digest not in latest and _falls_under(reference, rule, now):
                expired.append(blob)
        kept = len(self._stored) - len(expired) - len(unreferenced)
        return Expiry(self._session, tuple(expired), tuple(unreferenced), kept)


class References(Mentions):
    """Which content that is stored beside a log the events of it refer to, pin and let expire."""

    def __init__(self, backend: Backend, session: str, end: int | None = None) -> None:
        """Read the log up to `end`."""
        super().__init__(session, backend.blobs(session))
        if self._names:
            for piece in backend.scan(session, backend.stored(session).begin):
                start = piece.start
                for line in piece.lines:
                    if end is None or start < end:
                        self.read(line)
                    start += 0 if piece.framed else len(line)


def _falls_under(reference: _Reference, rule: Rule, now: int) -> bool:
    if rule.empty:
        return False
    if rule.older_than_ms is not None and now - reference.time < rule.older_than_ms:
        return False
    return rule.kinds is None or reference.kinds <= rule.kinds
