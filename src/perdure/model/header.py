"""The session header: what is true of a session from its first byte and never changes.

It stands before the events and outside their numbering. Its line ends with its own digest, and the
chain of records starts from its `genesis`, so a header that was exchanged does not go unnoticed.
"""

import hashlib
import posixpath
from typing import Annotated, Any

import msgspec

from perdure.errors import FormatUnsupported, InvalidValue
from perdure.model import limits, values

__all__ = [
    "FORMAT",
    "VOCABULARY",
    "BadHeaderError",
    "Header",
    "Parent",
    "Source",
    "check_id",
    "decode_header",
    "encode_header",
    "new_header",
]

FORMAT = 0
"""Format of header and records. 0 until the first release."""

VOCABULARY = "perdure/1"
"""The vocabulary of `perdure.model.vocabulary`; sessions that name it get closers."""

_DIGEST_TAIL = len(b',"digest":""}\n') + 64


class BadHeaderError(Exception):
    """A line that is not an intact header. Internal: readers turn it into a problem report."""


class Parent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a fork or a sub-agent comes from: a session and the last event it shares with it."""

    session: str
    seq: int


class Source(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an import comes from.

    Attributes:
        format: name of its format.
        id: its id in that format.
        host: name of the machine on which it was found, for people.
        path: of its file, as found.
        parent: the id, in its format, of the session that it comes from.
        relation: what it is to that one: "subagent", "fork" or "continuation".
        machine: what tells the machine from others; see `Runtime.machine`.

    """

    format: str
    id: str | None = None
    host: str | None = None
    path: str | None = None
    parent: str | None = None
    relation: str | None = None
    machine: str | None = None


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """What is fixed when a session is created.

    Attributes:
        format: storage format of header and records.
        id: any non-empty string up to 1,024 characters.
        created_at: Unix milliseconds, 0 to 2**53 - 1.
        cwd: working directory; absolute for native sessions, as found for imports.
        parent: the session it was forked or spawned from.
        seed: count of leading events inherited by a fork.
        origin: "subagent", or None.
        depth: delegation depth, 0 at the top.
        preset: name of the agent preset a resume rebuilds.
        config: configuration a resume rebuilds, any JSON value.
        source: where an import was found.
        vocabulary: "perdure/1"; anything else, or None: the caller owns all event types, and
            recovery closes nothing.
        genesis: 64 hex digits that the first record links to.
        digest: SHA-256 of the header line without this member, 64 hex digits.

    """

    format: int
    id: str
    created_at: int
    cwd: str | None = None
    parent: Parent | None = None
    seed: int = 0
    origin: str | None = None
    depth: int = 0
    preset: str | None = None
    config: Any = None
    source: Source | None = None
    vocabulary: str | None = None
    inherited_genesis: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = (
        msgspec.field(default=None, name="genesis")
    )
    digest: str = ""

    @property
    def is_import(self) -> bool:
        """Whether it keeps what another agent wrote, as that has it: nobody goes on in it here."""
        return self.source is not None and self.vocabulary is None

    @property
    def genesis(self) -> str:
        """What record 0 links to: the parent's genesis in a fork, elsewhere the own digest."""
        return self.inherited_genesis or self.digest

    def as_dict(self) -> dict[str, Any]:
        """A plain dict in the order of the header line; absent members are left out."""
        return {"format": self.format, **values.decode(encode_header(self))}


def check_cwd(cwd: object) -> None:
    """Demand a working directory that means the same wherever it is read: an absolute path.

    Raises:
        InvalidValue: it is none.

    """
    if not isinstance(cwd, str) or not posixpath.isabs(cwd):
        raise InvalidValue(
            "cwd", f"{values.shown(cwd)} is not absolute", hint="use os.path.abspath"
        )


def new_header(
    id: str,
    *,
    created_at: int,
    cwd: str | None = None,
    parent: Parent | None = None,
    seed: int = 0,
    origin: str | None = None,
    depth: int = 0,
    preset: str | None = None,
    config: Any = None,
    source: Source | None = None,
    vocabulary: str | None = VOCABULARY,
    genesis: str | None = None,
) -> Header:
    """Check the fields and give the header its digest.

    Raises:
        InvalidValue: a field is out of its range; nothing is reserved by the attempt.

    """
    check_id(id)
    if created_at.__class__ is not int or not 0 <= created_at <= limits.TIME_MS_MAX:
        raise InvalidValue(
            "created_at",
            f"{values.shown(created_at)} is not a creation time",
            hint="integer Unix milliseconds from 0 to 2**53 - 1",
        )
    if type(cwd) is str and source is None:
        check_cwd(cwd)
    for name, given, kind in (("parent", parent, Parent), ("source", source, Source)):
        if given is not None and not isinstance(given, kind):
            raise InvalidValue(
                name,
                f"{values.shown(given)} is no {kind.__name__}",
                hint=f"perdure.{kind.__name__}(…)",
            )
    if origin is not None and (type(origin) is not str or origin != "subagent"):
        raise InvalidValue("origin", f"{values.shown(origin)} is not 'subagent' or None")
    for name, number in (("seed", seed), ("depth", depth)):
        if number.__class__ is not int or number < 0:
            raise InvalidValue(name, f"{values.shown(number)} is not a count")
    plain = Header(
        format=FORMAT,
        id=id,
        created_at=created_at,
        cwd=cwd,
        parent=parent,
        seed=seed,
        origin=origin,
        depth=depth,
        preset=preset,
        config=values.snapshot(config, "config"),
        source=source,
        vocabulary=vocabulary,
        inherited_genesis=genesis,
    )
    try:
        msgspec.convert(msgspec.to_builtins(msgspec.structs.replace(plain, config=None)), Header)
    except (msgspec.MsgspecError, TypeError, UnicodeEncodeError) as error:
        # What would not be read back as it is must not be written: "... - at `$.preset`".
        reason, _, place = str(error).partition(" - at `$.")
        raise InvalidValue(place.rstrip("`") or "header", reason) from error
    line = _encode(plain)
    if len(line) > limits.RECORD_BYTES_MAX:
        raise InvalidValue("config", f"a header of {len(line)} bytes is longer than any record")
    return _remember(msgspec.structs.replace(plain, digest=_digest_of(line)))


def _remember(header: Header, line: bytes | None = None) -> Header:
    """Keep the line: `config` is a value that its holder can change, what is stored is not."""
    header.__dict__["line"] = line or _encode(header)
    return header


def check_id(id: object) -> None:
    """Refuse what cannot name a session.

    Raises:
        InvalidValue: not a string of 1 to 1,024 characters.

    """
    if not isinstance(id, str) or not 1 <= len(id) <= limits.ID_CHARS_MAX:
        raise InvalidValue(
            "id",
            f"{values.shown(id)} is not a string of 1 to {limits.ID_CHARS_MAX} characters",
            hint='any text of that length, as in "run-7"',
        )
    values.check_text("id", id)


def encode_header(header: Header) -> bytes:
    """The header line, newline included, as it was when the header was made or read."""
    line: bytes | None = header.__dict__.get("line")
    return line or _encode(header)


def _encode(header: Header) -> bytes:
    """The line; the digest, its last member, is taken of the line without that member."""
    members = msgspec.to_builtins(header)
    members.pop("digest", None)
    body = values.encode(members, "header")
    if not header.digest:
        return body + b"\n"
    return b'%s,"digest":"%s"}\n' % (body[:-1], header.digest.encode())


def _digest_of(line_without_digest: bytes) -> str:
    return hashlib.sha256(line_without_digest).hexdigest()


def decode_header(line: bytes, what: str) -> Header:
    """Read a header line; `what` names the session in errors.

    Raises:
        BadHeaderError: it is not an intact header.
        FormatUnsupported: it is intact, in a format that this version does not read.

    """
    try:
        members = values.decode(line)
    except ValueError as error:
        raise BadHeaderError(f"not JSON: {error}") from error
    if not isinstance(members, dict) or "format" not in members:
        raise BadHeaderError("not a session header")
    bare, tail = line[:-_DIGEST_TAIL] + b"}\n", line[-_DIGEST_TAIL:]
    if tail != b',"digest":"%s"}\n' % _digest_of(bare).encode():
        raise BadHeaderError("digest does not match")
    if members["format"] != FORMAT or isinstance(members["format"], bool):
        raise FormatUnsupported(what, found=members["format"], supported=FORMAT)
    try:
        config = members.pop("config", None)
        header = msgspec.convert(members, Header)
        check_id(header.id)
    except (msgspec.MsgspecError, InvalidValue, UnicodeEncodeError) as error:
        raise BadHeaderError(f"not a session header: {error}") from error
    return _remember(msgspec.structs.replace(header, config=config), line)
