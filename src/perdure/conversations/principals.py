"""Conversations of authenticated users: who has which, how they begin and how they go."""

import re
from typing import Any

from perdure.conversations.control import Control, found_in
from perdure.conversations.conversation import Conversation
from perdure.conversations.gates import WAIT_SECONDS, Gates
from perdure.conversations.places import NAMESPACE, Ends, Place, busy_told
from perdure.conversations.requests import check_name, check_profile, check_same, digest_of
from perdure.durable import crash
from perdure.errors import (
    ConversationNotFound,
    InvalidValue,
    SessionBusy,
    SessionExists,
    SessionNotFound,
)
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import check_id
from perdure.runtime import SYSTEM, Runtime
from perdure.store import Listing, Session, Store

__all__ = ["CREATIONS", "Conversations", "Principal"]

CREATIONS = "creations"
"""The one session of a catalog."""

_BEGUN = "catalog/begun"
_RESERVED = "conversation/reserved"
_DELETED = "conversation/deleted"
_CREATED = "conversation/created"

_NUMBERED = re.compile(r".+-([0-9a-f]{1,12})\Z", re.DOTALL)
"""An id ends with the number of its reservation, so that it is found without a search."""

_TRIES = 3
_STEP_SECONDS = 0.02


class Conversations:
    """The conversations in a store, principal by principal."""

    def __init__(self, store: Store, *, runtime: Runtime = SYSTEM) -> None:
        """`store` is a root store; nothing is read or created.

        Raises:
            InvalidValue: it is no store.
            NotOffered: it is one behind a URL, where `/api/conversations` has them.

        """
        given: object = store
        if not isinstance(given, Store):
            raise InvalidValue("store", f"{values.shown(given)} is no perdure.Store")
        store._check_conversing()  # noqa: SLF001 - one behind a URL refuses
        self._store = store
        self._runtime = runtime
        self._gates = Gates(runtime)
        self._ends = Ends()

    def __repr__(self) -> str:
        """Of which store."""
        return f"<Conversations of {self._store!r}>"

    def of(self, principal: str) -> "Principal":
        """Those of one principal: to be asked for with every call, by who was authenticated.

        `principal` is any text of 1 to 1,024 characters. There is none that is taken if none is
        named, and nothing is found out about others from it.

        Raises:
            InvalidValue: it is no such text.
            SessionClosed: the store was closed.

        """
        check_name("principal", principal)
        own = self._store.namespace(NAMESPACE, principal)
        return Principal(
            Place(
                principal,
                own.namespace("catalog"),
                own.namespace("main"),
                own.namespace("control"),
                self._gates,
                self._ends,
                self._runtime,
            )
        )

    def principals(self) -> list[str]:
        """The principals of whom something is stored, in order; for who serves them all."""
        return self._store.namespace(NAMESPACE).namespaces()


class Principal:
    """One principal, and what belongs to it; made by `Conversations.of`."""

    def __init__(self, place: Place) -> None:
        """Nothing is read."""
        self._place = place

    def __repr__(self) -> str:
        """Whose conversations these are."""
        return f"<Principal {values.shown(self._place.principal)}>"

    # --- beginning -------------------------------------------------------------------------------

    def create(self, request: str, profile: dict[str, Any] | None = None) -> Conversation:
        """Begin a conversation; durable when this returns.

        Idempotent by `request`, any text of 1 to 1,024 characters: a repeat gives the same one, and
        finishes what a crash left of it. `profile`, a JSON object of at most 256 KiB, is what it is
        set to at first.

        Raises:
            InvalidValue: an argument cannot be; nothing was written.
            RequestConflict: the request was made before, with another profile.
            ConversationNotFound: it was made before, and what it began was deleted.
            SessionBusy: others have been writing the catalog for seconds.
            As `Session.append`.

        """
        check_name("request", request)
        wanted = check_profile(profile)
        id = self._reserve(request, digest_of({"profile": wanted}))
        crash.point("conversation.reserved")
        for left in reversed(range(_TRIES)):
            try:
                Control(self._place, id).begin(wanted)
                crash.point("conversation.control")
                self._begin_main(id)
                break
            except SessionExists as error:
                if error.deleted_at is not None:
                    raise _was_deleted(id, request) from None
                # Somebody finishes the same request just now: once more, to see that it is there.
                if error.missing is not None or not left:
                    raise
        crash.point("conversation.created")
        return Conversation(self._place, id)

    def _reserve(self, request: str, digest: str) -> str:
        with self._place.gates.writing(self._gate, self._open) as session:
            event = found_in(session, _RESERVED, request)
            if event is None:
                number = session.position.seq + 1
                id = f"{self._place.runtime.session_id()}-{number:x}"
                data = {"conversation": id, "hash": digest}
                session.append(_RESERVED, data, key=request)
                return id
            check_same(event, request, digest)
            id = str(event.data["conversation"])
            if found_in(session, _DELETED, id) is not None:
                raise _was_deleted(id, request)
            return id

    @property
    def _gate(self) -> tuple[str, ...]:
        return ("catalog", self._place.principal, CREATIONS)

    def _open(self) -> Session:
        """The writer of the catalog, which the first one makes."""
        catalog = self._place.catalog
        for _ in range(_TRIES):
            try:
                return catalog.writer(CREATIONS, wait=WAIT_SECONDS)
            except SessionNotFound as error:
                if error.deleted_at is not None or error.missing is not None:
                    raise
            session: Session | None = None
            try:
                session = catalog.create(CREATIONS, vocabulary=None)
                session.append(_BEGUN, {})
            except SessionExists:
                # Another process came first.
                if session is not None:
                    session.close()
            else:
                return session
        return catalog.writer(CREATIONS, wait=WAIT_SECONDS)

    def _begin_main(self, id: str) -> None:
        """See that the main log is there, which comes last: what it is of is complete then."""
        if self._is_there(id):
            return
        with self._place.main.create(id) as session:
            session.append(_CREATED, {"conversation": id})

    def _is_there(self, id: str) -> bool:
        try:
            self._place.main.inspect(id)
        except SessionNotFound as error:
            if error.missing is not None:
                raise
            return False
        return True

    # --- finding ---------------------------------------------------------------------------------

    def conversation(self, id: str) -> Conversation:
        """The conversation of an id; it has to be this principal's, and complete.

        Raises:
            ConversationNotFound: it is not, whoever has one of this id.
            InvalidValue: `id` is no text of 1 to 1,024 characters.

        """
        check_id(id)
        if not self._is_listed(id):
            raise ConversationNotFound(id)
        try:
            self._place.main.inspect(id)
        except SessionNotFound:
            raise ConversationNotFound(id) from None
        return Conversation(self._place, id)

    def _is_listed(self, id: str) -> bool:
        """Whether the catalog has a reservation of an id, which says itself where it stands."""
        number = _NUMBERED.match(id)
        if number is None:
            return False
        try:
            events = self._place.catalog.read_from(CREATIONS, int(number[1], 16))
            return any(_reserves(event, id) for event, _ in zip(events, range(1), strict=False))
        except SessionNotFound as error:
            if error.missing is not None:
                raise
            return False

    def conversations(
        self, limit: int = 20, after: str | None = None, *, sort: str = "created"
    ) -> Listing:
        """A page of this principal's conversations, the newest first: `Store.sessions` of main.

        With `sort` "last_active" those come first in which a turn was at work last. `after` is the
        `cursor` of the page before, of the same sort.

        Raises:
            InvalidValue: an argument cannot be, or the store has no index.
            As `Store.sessions`.

        """
        return self._place.main.sessions(limit, after, sort, nested=True)

    # --- ending ----------------------------------------------------------------------------------

    def delete(self, id: str) -> None:
        """Move a conversation to the trash, and say so in the catalog.

        The main log goes first, and nobody finds the conversation from then on. Whatever a crash
        leaves is finished by doing it again.

        Raises:
            ConversationNotFound: this principal has none of this id.
            ConversationBusy: a turn is running.
            SessionBusy: others have been writing the control log for seconds.
            InvalidValue: `id` is no text of 1 to 1,024 characters.

        """
        check_id(id)
        if not self._is_listed(id):
            raise ConversationNotFound(id)
        again = False
        try:
            with busy_told(id):
                self._place.main.delete(id, subagents=True)
        except SessionNotFound as error:
            if error.deleted_at is None:
                raise ConversationNotFound(id) from None
            again = True
        crash.point("conversation.main-deleted")
        self._delete_control(id)
        crash.point("conversation.control-deleted")
        with self._place.gates.writing(self._gate, self._open) as session:
            if again and found_in(session, _DELETED, id) is not None:
                raise ConversationNotFound(id)
            session.append(_DELETED, {"conversation": id}, key=id)
            crash.point("conversation.deleted")

    def _delete_control(self, id: str) -> None:
        """Move the control log away, between two of its short writers."""
        runtime = self._place.runtime
        with self._place.gates.alone(Control(self._place, id).gate):
            deadline = runtime.monotonic() + WAIT_SECONDS
            while True:
                try:
                    self._place.control.delete(id)
                except SessionNotFound as error:
                    if error.missing is not None:
                        raise
                except SessionBusy:
                    if runtime.monotonic() >= deadline:
                        raise
                    runtime.sleep(_STEP_SECONDS)
                    continue
                break
            self._place.ends.drop(self._place.principal, id)


def _was_deleted(id: str, request: str) -> ConversationNotFound:
    error = ConversationNotFound(id)
    error.hint = f"request {request!r} began it, and it was deleted: use another request id"
    return error


def _reserves(event: Event, id: str) -> bool:
    told = event.data if isinstance(event.data, dict) else {}
    return event.type == _RESERVED and told.get("conversation") == id
