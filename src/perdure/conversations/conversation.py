"""One conversation of one principal, as callers see it."""

import datetime as dt
from typing import Any

from perdure.conversations.control import ACCEPTED, CREATED, UPDATED, Control, ControlWriter
from perdure.conversations.cursors import place_of
from perdure.conversations.facts import Accepted, Marks, Message, MessagePage, Profile
from perdure.conversations.gates import WAIT_SECONDS
from perdure.conversations.pages import Reader
from perdure.conversations.places import Place, busy_told, missing_told
from perdure.conversations.requests import (
    body_of,
    check_content,
    check_name,
    check_profile,
    check_same,
    check_when_busy,
    digest_of,
)
from perdure.conversations.turns import REPLY, RunningTurn
from perdure.durable import crash
from perdure.errors import ConversationBusy, InvalidValue, RevisionConflict
from perdure.model import values
from perdure.model.event import Event
from perdure.store.members import Content

__all__ = ["PAGE_MAX", "Conversation"]

PAGE_MAX = 200
"""So many messages a page has at most."""


class Conversation:
    """One conversation; made by `Principal.create` and `Principal.conversation`.

    Methods may be called from any thread, and by any number of processes at once.

    Attributes:
        id: its id, which its main and its control session have as well.

    """

    def __init__(self, place: Place, id: str) -> None:
        """Nothing is read."""
        self.id = id
        self._place = place
        self._control = Control(place, id)
        self._reader = Reader(place, id)

    def __repr__(self) -> str:
        """Which one."""
        return f"<Conversation {self.id!r}>"

    # --- what users do ---------------------------------------------------------------------------

    def post(self, request: str, content: Content, *, when_busy: str = "follow-up") -> Accepted:
        """Accept a message of the user: durable when this returns; no turn is waited for.

        `content` is a text, or blocks as in docs/events.md. Of a message that comes while a turn
        runs, `when_busy` says what becomes: "follow-up" waits for the next turn, "steer" may be
        taken by the one that runs, and "refuse" is not accepted then. Idempotent by `request`: a
        repeat gives what was accepted, whoever is busy.

        Raises:
            InvalidValue: an argument cannot be; nothing was written.
            RequestConflict: the request was made before, with other content or `when_busy`.
            ConversationBusy: a turn is running, and that was to be refused; nothing was written.
            ConversationNotFound: it was deleted.
            SessionBusy: others have been writing the control log for seconds.
            As `Session.append`.

        """
        check_name("request", request)
        check_when_busy(when_busy)
        blocks = check_content(content, by_user=True)
        digest = digest_of({"content": blocks, "when_busy": when_busy})
        with self._control.writing() as control:
            event = control.find(ACCEPTED, request)
            replayed = event is not None
            if event is None:
                if when_busy == "refuse":
                    self._refuse_busy()
                body = control.session.put_blob(body_of(request, blocks))
                crash.point("conversation.body")
                data = {"hash": digest, "body": body, "when_busy": when_busy}
                event = control.append(ACCEPTED, data, _one_more, key=request)
                crash.point("conversation.accepted")
            else:
                check_same(event, request, digest)
            taken = event.seq <= control.end.marks.taken(when_busy)
        return Accepted(event.seq, event.time, "taken" if taken else "accepted", replayed)

    def _refuse_busy(self) -> None:
        with missing_told(self.id):
            who = self._place.main.inspect(self.id).holder
        if who is not None:
            here = who.pid is not None and who.pid == self._place.runtime.pid()
            raise ConversationBusy(self.id, pid=who.pid, host=who.host, since=who.since, here=here)

    @property
    def busy(self) -> bool:
        """Whether a turn is running; nobody is waited for.

        Raises:
            ConversationNotFound: it was deleted.

        """
        with missing_told(self.id):
            return self._place.main.inspect(self.id).holder is not None

    def messages(self, cursor: str | None = None, *, limit: int = 50) -> MessagePage:
        """A page of messages, the oldest first, from the beginning or behind a cursor.

        Numbers leave gaps and never change, nor does their order. A cursor stays good: what comes
        later is found behind it. Takes no lock and waits for nobody.

        Raises:
            InvalidValue: `limit` is not 1 to 200; or `cursor` is none, is of another conversation,
                or is ahead of the log.
            ConversationNotFound: it was deleted.
            As `Store.read_from`.

        """
        if type(limit) is not int or not 1 <= limit <= PAGE_MAX:
            raise InvalidValue("limit", f"{values.shown(limit)} is not 1 to {PAGE_MAX}")
        after = -1 if cursor is None else place_of(self.id, cursor)
        self._check_there()
        return self._reader.page(after, limit)

    def waiting(self) -> list[Message]:
        """What was accepted and no turn took yet, in order. Takes no lock.

        Raises:
            ConversationNotFound: it was deleted.
            As `Store.read_from`.

        """
        self._check_there()
        return self._reader.waiting(self._control.end())

    def _check_there(self) -> None:
        with missing_told(self.id):
            self._place.main.inspect(self.id)

    # --- how it is set ---------------------------------------------------------------------------

    def profile(self) -> Profile:
        """What it is set to now. Takes no lock.

        Raises:
            ConversationNotFound: it was deleted.
            As `Store.read_from`.

        """
        self._check_there()
        return self._profile_at(self._control.end().marks.profile)

    def set_profile(
        self, request: str, profile: dict[str, Any], *, expected_revision: int
    ) -> Profile:
        """Set it to something else, if it is what the caller has seen; no turn is waited for.

        `profile`, a JSON object of at most 256 KiB, takes the place of the one before as a whole.
        Idempotent by `request`: a repeat gives what was set then.

        Raises:
            InvalidValue: an argument cannot be; nothing was written.
            RevisionConflict: it stands at another revision, `current`; nothing was written.
            RequestConflict: the request was made before, and set something else.
            ConversationNotFound: it was deleted.
            SessionBusy: others have been writing the control log for seconds.
            As `Session.append`.

        """
        check_name("request", request)
        wanted = check_profile(profile)
        if type(expected_revision) is not int or expected_revision < 0:
            reason = f"{values.shown(expected_revision)} is no revision"
            raise InvalidValue("expected_revision", reason, hint="profile().revision")
        digest = digest_of({"profile": wanted, "expected_revision": expected_revision})
        with self._control.writing() as control:
            event = control.find(UPDATED, request)
            if event is None:
                event = self._update(control, request, wanted, digest, expected_revision)
            else:
                check_same(event, request, digest)
        return _profile_of(event)

    def _update(
        self,
        control: ControlWriter,
        request: str,
        wanted: dict[str, Any],
        digest: str,
        expected: int,
    ) -> Event:
        current = control.end.marks.profile
        if expected != current:
            raise RevisionConflict(self.id, expected=expected, current=current)
        data = {"hash": digest, "profile": wanted}
        event = control.append(UPDATED, data, _set_here, key=request)
        crash.point("conversation.profile")
        return event

    def _profile_at(self, seq: int) -> Profile:
        for event in self._control.read(seq):
            if event.type in (CREATED, UPDATED):
                return _profile_of(event)
            break
        return Profile(0, {}, 0)

    # --- what agents do --------------------------------------------------------------------------

    def turn(self, *, wait: float = 0.0) -> RunningTurn:
        """Run a turn: `with chat.turn() as turn`, or `turn.end()`. It holds the writer of main.

        One at a time, in all processes. What a turn that died left open is closed, and what it left
        between the two logs is finished, before this returns.

        Raises:
            ConversationBusy: one is running, after `wait` seconds.
            ConversationNotFound: it was deleted.
            As `Store.writer`.

        """
        with missing_told(self.id):
            with busy_told(self.id):
                session = self._place.main.writer(self.id, wait=wait)
            try:
                return RunningTurn(self._place, self.id, session)
            except BaseException:
                session.close()
                raise

    # --- what expires ----------------------------------------------------------------------------

    def expire(self, *, older_than: float | dt.timedelta | None = None, wait: float = 0.0) -> int:
        """Remove the bodies of messages that are older than so many seconds; how many went.

        Replies first, whose bodies are in the main log: a turn that runs is waited for `wait`
        seconds. The messages stay in their places, with the status "expired". What an agent was
        told, or said, stands in the events of the main log, and goes with that alone (`delete`).

        Raises:
            InvalidValue: `older_than` is no age.
            ConversationBusy: a turn is running; nothing was removed.
            ConversationNotFound: it was deleted.
            As `Store.expire`.

        """
        if older_than is None:
            raise InvalidValue("older_than", "has to be said", hint="seconds, 0 for all")
        with missing_told(self.id):
            with busy_told(self.id):
                said = self._place.main.expire(
                    self.id, older_than=older_than, kinds=[REPLY], wait=wait
                )
            with self._place.gates.alone(self._control.gate):
                accepted = self._place.control.expire(
                    self.id, older_than=older_than, kinds=[ACCEPTED], wait=WAIT_SECONDS
                )
        return len(said.expired) + len(accepted.expired)


def _one_more(_seq: int, marks: Marks) -> Marks:
    return Marks(
        follow_up=marks.follow_up,
        steer=marks.steer,
        waiting=marks.waiting + 1,
        profile=marks.profile,
        reply=marks.reply,
        main=marks.main,
    )


def _set_here(seq: int, marks: Marks) -> Marks:
    return Marks(
        follow_up=marks.follow_up,
        steer=marks.steer,
        waiting=marks.waiting,
        profile=seq,
        reply=marks.reply,
        main=marks.main,
    )


def _profile_of(event: Event) -> Profile:
    found = event.data.get("profile") if isinstance(event.data, dict) else None
    return Profile(event.seq, found if isinstance(found, dict) else {}, event.time)
