"""Bearer tokens: who may ask the service, and as whom. Of a secret only its digest is kept.

They are events of one session, `tokens` in the namespace `perdure.access`: created and revoked. So
they are durable, chained and in every kind of store, and what was ever given out can be read there.
"""

import hashlib
import hmac
import re
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from perdure.errors import (
    InvalidValue,
    PerdureError,
    PersistenceDisabled,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
)
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import check_id
from perdure.model.limits import TIME_MS_MAX
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Store

__all__ = ["NAMESPACE", "SESSION", "Token", "Tokens"]

NAMESPACE = "perdure.access"
SESSION = "tokens"

_NAME_CHARS_MAX = 200
_ID_BYTES = 8
_SECRET_BYTES = 32
_FORM = re.compile(r"perdure_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)
_WAIT_SECONDS = 10.0
"""Creating and revoking take milliseconds, so that several can wait for each other."""

_NOBODY = bytes(32)
"""Stands for the digest of a token that is not there; no text has it."""


class Token(NamedTuple):
    """A token, without its secret.

    Attributes:
        id: what names it: 16 hex digits.
        name: what whoever made it calls it.
        principal: as whom its bearer acts; None: as the owner, who sees the whole store.
        created: Unix milliseconds.
        expires: when it stops to count, Unix milliseconds, or None.
        revoked: since when it does not count any more, Unix milliseconds, or None.

    """

    id: str
    name: str
    principal: str | None
    created: int
    expires: int | None = None
    revoked: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return self._asdict()

    def counts(self, now: int) -> bool:
        """Whether it lets its bearer in at this time, Unix milliseconds."""
        return self.revoked is None and (self.expires is None or now < self.expires)


class _Created(msgspec.Struct, frozen=True, kw_only=True):
    """`token/created`."""

    id: str
    principal: str | None
    name: str
    sha256: str
    created: int
    expires: int | None = None


class _Revoked(msgspec.Struct, frozen=True, kw_only=True):
    """`token/revoked`."""

    id: str


class _Kept(NamedTuple):
    """A token and the digest of its secret."""

    token: Token
    digest: bytes


class _Folded(NamedTuple):
    """All tokens, as the log stood at a revision; None: there is no log."""

    revision: str | None
    kept: dict[str, _Kept]


class Tokens:
    """The tokens of a store. Methods may be called from any thread."""

    def __init__(self, store: Store, runtime: Runtime = SYSTEM) -> None:
        """`store` is the root, not a namespace of it. Nothing is read."""
        self._store = store.namespace(NAMESPACE)
        self._runtime = runtime
        self._mutex = threading.Lock()
        self._folded: _Folded | None = None

    def create(
        self, name: str, *, principal: str | None = None, expires_in: float | None = None
    ) -> tuple[Token, str]:
        """A new token and its text, which is nowhere kept: it is shown once.

        Without a `principal` it is the owner's. `expires_in` seconds it stops to count.

        Raises:
            InvalidValue: an argument cannot be.
            PersistenceDisabled: the store keeps nothing.
            SessionExists: the tokens of this store were deleted; restore or forget them first.
            As `Store.writer`.

        """
        _check_name(name)
        _check_principal(principal)
        now = self._runtime.now_ms()
        expires = _end(now, expires_in)
        token = Token(self._runtime.token(_ID_BYTES), name, principal, now, expires)
        secret = self._runtime.token(_SECRET_BYTES)
        data = {
            "id": token.id,
            "principal": principal,
            "name": name,
            "sha256": _digest(secret).hex(),
            "created": now,
            "expires": expires,
        }
        self._append("token/created", data)
        return token, f"perdure_{token.id}_{secret}"

    def all(self) -> list[Token]:
        """Every token that was ever created, in that order.

        Raises:
            As `find`.

        """
        return [each.token for each in self._current().values()]

    def any(self) -> bool:
        """Whether there is one that lets somebody in.

        Raises:
            As `find`.

        """
        now = self._runtime.now_ms()
        return any(token.counts(now) for token in self.all())

    def revoke(self, id: str) -> Token:
        """Let a token count no more, from the next request on; again: nothing happens.

        Raises:
            InvalidValue: there is none with exactly this id.
            As `Store.writer`.

        """
        kept = self._current().get(id) if isinstance(id, str) else None
        if kept is None:
            reason = f"{values.shown(id)} is no token here"
            raise InvalidValue("id", reason, hint="`perdure token ls` lists their ids")
        if kept.token.revoked is None:
            self._append("token/revoked", {"id": id})
        return self._current()[id].token

    def find(self, text: str) -> Token | None:
        """The token with this text, if it lets its bearer in; None for any other text.

        Reads the log only where it changed since the last time.

        Raises:
            SessionDamaged: the log of the tokens does not hold together, so nobody is let in.
            SessionNotFound: it vanished.
            StorageUnavailable, FormatUnsupported: it cannot be read.

        """
        form = _FORM.fullmatch(text) if isinstance(text, str) else None
        if form is None:
            return None
        kept = self._current().get(form[1])
        # An id that is not there costs the same as one that is: an id is no secret, but who has
        # tokens is nobody's affair.
        expected = _NOBODY if kept is None else kept.digest
        same = hmac.compare_digest(_digest(form[2]), expected)
        if kept is None or not same or not kept.token.counts(self._runtime.now_ms()):
            return None
        return kept.token

    # --- the log ---------------------------------------------------------------------------------

    def _append(self, type: str, data: dict[str, Any]) -> None:  # noqa: A002
        """Add an event to the log of the tokens, which begins with the first one."""
        if self._is_there() or not self._begin(type, data):
            with self._store.writer(SESSION, wait=_WAIT_SECONDS) as session:
                session.append(type, data)

    def _is_there(self) -> bool:
        try:
            # Says as well that a store keeps nothing.
            self._store.inspect(SESSION)
        except SessionNotFound as error:
            if error.missing is not None:
                raise
            return False
        return True

    def _begin(self, type: str, data: dict[str, Any]) -> bool:  # noqa: A002
        """Begin the log; False: somebody else did."""
        try:
            with self._store.create(SESSION, vocabulary=None) as session:
                session.append(type, data)
        except SessionExists as error:
            if error.deleted_at is not None or error.missing is not None:
                raise
            return False
        return True

    def _current(self) -> dict[str, _Kept]:
        """All tokens by id, as the log stands now; what is returned does not change."""
        with self._mutex:
            # Asked before the log is read: what comes meanwhile has another revision.
            revision = self._revision()
            known = self._folded
            if known is None or known.revision is None or known.revision != revision:
                # A failure leaves nothing behind that somebody could be let in by.
                self._folded = None
                known = self._folded = _Folded(revision, self._read())
            return known.kept

    def _revision(self) -> str | None:
        """What changes with the log; None: there is none, or something is wrong with it."""
        try:
            return self._store.revision(SESSION)
        except PerdureError:
            return None

    def _read(self) -> dict[str, _Kept]:
        try:
            return _fold(self._store.read_from(SESSION))
        except SessionNotFound as error:
            if error.missing is not None:
                raise
            return {}
        except PersistenceDisabled:
            return {}


def _fold(events: Iterable[Event]) -> dict[str, _Kept]:
    """The tokens that these events come to.

    What a repair could not keep may have been a revocation, so that no token from before it counts,
    nor one that it brought over from behind the damage.

    Raises:
        SessionDamaged: an event of tokens is none that is written here.

    """
    kept: dict[str, _Kept] = {}
    doubtful = -1
    for event in events:
        if event.type == "token/created":
            created = _payload(event, _Created)
            if created.id in kept:
                raise SessionDamaged(SESSION, f"token {created.id} twice", record=event.seq)
            token = Token(
                created.id, created.name, created.principal, created.created, created.expires
            )
            if event.seq <= doubtful:
                token = token._replace(revoked=event.time)
            kept[token.id] = _Kept(token, bytes.fromhex(created.sha256))
        elif event.type == "token/revoked":
            _revoke(kept, _payload(event, _Revoked).id, event.time)
        elif event.type == "session/repaired":
            for id in kept:
                _revoke(kept, id, event.time)
        elif event.type == "session/salvaged":
            doubtful = event.seq + int(event.data["events"])
    return kept


def _revoke(kept: dict[str, _Kept], id: str, time: int) -> None:
    found = kept.get(id)
    if found is not None and found.token.revoked is None:
        kept[id] = found._replace(token=found.token._replace(revoked=time))


def _payload(event: Event, kind: Any) -> Any:
    try:
        found = msgspec.convert(event.data, kind)
        if isinstance(found, _Created) and len(bytes.fromhex(found.sha256)) != len(_NOBODY):
            raise ValueError(found.sha256)
    except (msgspec.ValidationError, ValueError) as error:
        reason = f"event {event.seq} is no {event.type}"
        raise SessionDamaged(SESSION, reason, record=event.seq) from error
    return found


def _digest(secret: str) -> bytes:
    """What is kept of a secret.

    A secret has 256 random bits: nobody finds it by trying, however fast a digest is. What makes a
    digest slow protects passwords, which people choose, and would cost every request.
    """
    return hashlib.sha256(secret.encode("ascii")).digest()


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 1 <= len(name.strip()) <= len(name) <= _NAME_CHARS_MAX:
        reason = f"{values.shown(name)} is not 1 to {_NAME_CHARS_MAX} characters"
        raise InvalidValue("name", reason, hint="say what it is for: laptop, ci")


def _check_principal(principal: str | None) -> None:
    if principal is None:
        return
    try:
        check_id(principal)
    except InvalidValue as error:
        raise InvalidValue("principal", error.reason, hint=error.hint) from None


def _end(now: int, expires_in: float | None) -> int | None:
    """When a token expires that was made now."""
    if expires_in is None:
        return None
    number = isinstance(expires_in, int | float) and not isinstance(expires_in, bool)
    if not number or not 0 < expires_in * 1000 <= TIME_MS_MAX - now:
        reason = f"{values.shown(expires_in)} is no number of seconds above 0"
        raise InvalidValue("expires_in", reason, hint="30 days are 30 * 86400")
    return now + max(1, int(expires_in * 1000))
