"""Where the sessions of one principal are, and how their errors are told."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import NamedTuple

from perdure.conversations.facts import Marks
from perdure.conversations.gates import Gates
from perdure.errors import ConversationBusy, ConversationNotFound, SessionBusy, SessionNotFound
from perdure.runtime import Runtime
from perdure.store import Store

__all__ = ["NAMESPACE", "Ends", "Place", "busy_told", "missing_told"]

NAMESPACE = "perdure.principals"

_ENDS_MAX = 4096
_PATIENCE_SECONDS = 0.1


class Ends:
    """Where control logs ended when they were looked at last: a place to look from.

    Only ever a beginning: whoever looks reads on from there.
    """

    def __init__(self) -> None:
        """Nothing is known."""
        self._mutex = Lock()
        self._ends: OrderedDict[tuple[str, str], tuple[int, Marks]] = OrderedDict()

    def get(self, principal: str, conversation: str) -> tuple[int, Marks] | None:
        """The number of the last event that is known, and the marks there."""
        return self._ends.get((principal, conversation))

    def put(self, principal: str, conversation: str, seq: int, marks: Marks) -> None:
        """Take note of an end; one that was known before may be further on."""
        key = (principal, conversation)
        # In a forked child nobody may be left to give it back; what is not noted is read again.
        if not self._mutex.acquire(timeout=_PATIENCE_SECONDS):
            return
        try:
            known = self._ends.get(key)
            if known is None or known[0] <= seq:
                self._ends[key] = (seq, marks)
                self._ends.move_to_end(key)
                while len(self._ends) > _ENDS_MAX:
                    self._ends.popitem(last=False)
        finally:
            self._mutex.release()

    def drop(self, principal: str, conversation: str) -> None:
        """Know nothing of one any more."""
        self._ends.pop((principal, conversation), None)


class Place(NamedTuple):
    """The three namespaces of a principal, and what all principals of a process share.

    Attributes:
        principal: whose they are.
        catalog: has the one session in which creations stand.
        main: has the turns, one session for each conversation.
        control: has what is accepted, one session for each conversation.
        gates: the queues of short writers.
        ends: where control logs ended last.
        runtime: clock and ids.

    """

    principal: str
    catalog: Store
    main: Store
    control: Store
    gates: Gates
    ends: Ends
    runtime: Runtime


@contextmanager
def missing_told(conversation: str) -> Iterator[None]:
    """Let a session that is not there say that the conversation is not, whatever became of it."""
    try:
        yield
    except SessionNotFound as error:
        if error.session != conversation:
            raise
        raise ConversationNotFound(conversation) from None


@contextmanager
def busy_told(conversation: str) -> Iterator[None]:
    """Let a main session that is being written say that a turn is running."""
    try:
        yield
    except SessionBusy as error:
        if error.session != conversation:
            raise
        raise ConversationBusy(
            conversation, pid=error.pid, host=error.host, since=error.since, here=error.here
        ) from None
