"""The recorder: a session's turns, statements and effects, each durable when it has to be."""

import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.model.event import Draft, Event, draft
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.store.book import Book, Said, check_start
from perdure.store.closing import close_behind
from perdure.store.effects import (
    INTENT,
    OUTCOME,
    Gates,
    check_action,
    check_key,
    completed,
    failed,
    happened,
    key_of,
    known_value,
    latest,
    not_awaited,
    settlement,
)
from perdure.store.members import Content, Failure, data_of, failure_of
from perdure.store.queue import Accepted, Queue
from perdure.store.refusing import refuse_import
from perdure.store.statements import Statements
from perdure.store.turns import Turn
from perdure.views import conversation
from perdure.views.endings import Endings
from perdure.views.fold import Fold

__all__ = ["RUNS", "Desk", "Recording"]


RUNS = ("session/started", "session/resumed")
"""Types of events that say who begins to write."""


class Desk:
    """What a recorder knows beside the log: its run, whether it said so, who works at effects."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self.lock = threading.RLock()
        self.gates = Gates()
        self._run: str | None = None
        self._told = False

    def run(self, token: Callable[[], str]) -> str:
        """The id of the run, made by `token` when it is first asked for."""
        with self.lock:
            if self._run is None:
                self._run = token()
            return self._run

    def begins(self, *, again: bool = False) -> bool:
        """Whether the log of a new session has yet to be told who begins; True once.

        `again`: it could not be told, whoever is next does it.
        """
        with self.lock:
            begins = not self._told
            self._told = not again
            return begins


class Recording(Statements[Event]):
    """The recording half of a session."""

    header: Header
    new: bool
    _queue: Queue

    # What the other half does.

    @property
    @abstractmethod
    def position(self) -> Position:
        """The last durable position."""

    @abstractmethod
    def append(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Append one event."""

    @abstractmethod
    def buffer(
        self,
        type: str,  # noqa: A002
        data: Any = None,
        *,
        agent: str | None = None,
        turn: str | None = None,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        """Accept one event."""

    @abstractmethod
    def flush(self) -> None:
        """Wait until everything accepted so far is durable."""

    @abstractmethod
    def admit(
        self,
        drafts: Sequence[Draft],
        own: list[Accepted],
        *,
        at: int | None = None,
        keep: bool = False,
    ) -> None:
        """Number the drafts and queue them."""

    @abstractmethod
    def fold(self) -> Fold:
        """The rows of all views, with everything accepted so far."""

    @abstractmethod
    def _check(self) -> None: ...

    @property
    def _desk(self) -> Desk:
        # Made when it is first asked for. One step of the interpreter: two threads get the same.
        desk: Desk = self.__dict__.setdefault("_recorder_desk", Desk())
        return desk

    # --- turns -----------------------------------------------------------------------------------

    @property
    def run(self) -> str:
        """Id of this run: what a process does with the session from opening to closing it."""
        return self._desk.run(self._runtime.token)

    def turn(
        self,
        id: str | None = None,
        *,
        agent: str | None = None,
        parent: str | None = None,
        replaces: str | None = None,
        how: str | None = None,
    ) -> Turn:
        """Begin a turn of an agent: `with session.turn() as turn`, or `turn.end()`.

        It goes on where the agent stands, or behind the turn `parent`; or it is another version of
        the turn `replaces`: `how` says whether "edit" or "regenerate". Without `id` it gets a
        random one. The first turn of a new session also records who began it (`session/started`).

        Raises:
            InvalidValue: an id cannot be kept, the agent has no turn `parent` or `replaces`, or
                both are given; or the session was imported: a fork of it can be gone on with.
            As `buffer`.

        """
        refuse_import(self.header)
        book = Book(self.header.id, self._runtime.token() if id is None else id, agent)
        self._check()
        members = {"parent": parent, "replaces": replaces, "how": how}
        check_start(book, members)
        for name, other in (("parent", parent), ("replaces", replaces)):
            if other is not None:
                self._check_turn(name, other, agent)
        self._say_run()
        self._say("turn/start", members, agent=agent, turn=book.turn, durable=False)
        return Turn(book, self._write_in_turn, self._hold_all, self.flush)

    def _say_run(self) -> None:
        """Have the log of a new session say who began it, once, with its first turn."""
        if self.new and self._desk.begins():
            try:
                self.record_run()
            except BaseException:
                self._desk.begins(again=True)
                raise

    def rewind(
        self, to: str | None, *, agent: str | None = None, reason: str | None = None
    ) -> Event:
        """Have the agent stand behind the turn `to` again, or before its first one (None).

        What was said since stays in the log, as a branch: a rewind can be taken back by another.
        `to` may be a turn of any branch; to go to one that is not live any more reads the log.

        Raises:
            InvalidValue: the agent has no such turn, or the session was imported.
            As `append`.

        """
        refuse_import(self.header)
        data_of("context/rewound", {"to": to})
        if to is not None:
            self._check_turn("to", to, agent)
        else:
            self._check_agent(agent)
        return super().rewind(to, agent=agent, reason=reason)

    def compact_context(
        self,
        summary: Content,
        *,
        first_kept: int | None = None,
        before: int | None = None,
        after: int | None = None,
        reason: str | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """From here on `summary` stands for what the agent's model was told before.

        `first_kept` is the `seq` of the first message that is kept as it is; without it none is.
        `before` and `after` are sizes of the context in tokens. The log keeps everything; to store
        it in less room is `Session.compact`.

        Raises:
            InvalidValue: there is nothing of that agent, or no event `first_kept` yet.
            As `append`.

        """
        sizes = {"first_kept": first_kept, "before": before, "after": after}
        data_of("context/compacted", {"summary": summary, "reason": reason, **sizes})
        self._check_agent(agent)
        last = self.position.seq
        if first_kept is not None and not 0 <= first_kept <= max(last, 0):
            raise InvalidValue(
                "first_kept",
                f"there is no event {first_kept}, the last one is {last}",
                hint='the "seq" of one of messages()',
            )
        return super().compact_context(summary, **sizes, reason=reason, agent=agent, turn=turn)

    def end_job(
        self,
        id: str,
        status: str = "completed",
        *,
        result: Any = None,
        error: Failure | None = None,
        agent: str | None = None,
        turn: str | None = None,
    ) -> Event:
        """The job is over: "completed", "failed" or "cancelled".

        Raises:
            InvalidValue: another status, or there is no such job.
            As `append`.

        """
        members = {"id": id, "status": status, "result": result, "error": failure_of(error)}
        data_of("job/end", members)
        self._check_known("jobs", id)
        return super().end_job(id, status, result=result, error=error, agent=agent, turn=turn)

    def _check_known(self, view: str, id: str) -> None:
        """Refuse the end of what never began, or so long ago that nobody remembers."""
        entries = Endings(self.fold().rows[view])
        if entries.get(id) is None:
            there = [values.shown(row["id"]) for row in entries.all() if row.get("status") is None]
            what = {"jobs": "job", "subagents": "sub-agent"}[view]
            raise InvalidValue(
                "id",
                f"no {what} {values.shown(id)} was begun in session {values.shown(self.header.id)}",
                hint=f"open are {', '.join(there[:10])}" if there else "none is open",
            )

    def _check_agent(self, agent: str | None) -> None:
        """Refuse an agent that nobody knows where there are others: one of them is meant."""
        there = conversation.agents(self.fold().rows["conversation"])
        if there and agent not in there:
            names = ", ".join("None" if name is None else values.shown(name) for name in there)
            raise InvalidValue(
                "agent", f"there is nothing of the agent {_named(agent)}", hint=f"one of {names}"
            )

    def _check_turn(self, path: str, turn: str, agent: str | None) -> None:
        """Refuse what is no turn of the agent: whoever reads the log could only pass it over."""
        fold = self.fold()
        if conversation.knows(fold.rows["conversation"], agent, turn):
            return
        if not any(turn == each.turn for each in conversation.branches(fold.history(), agent)):
            reason = f"{values.shown(turn)} is no turn of the agent {_named(agent)}"
            raise InvalidValue(path, reason, hint="branches() or `perdure branches` lists them")

    def _say(
        self,
        kind: str,
        members: dict[str, Any],
        *,
        agent: str | None = None,
        turn: str | None = None,
        durable: bool = True,
    ) -> Event:
        put = self.append if durable else self.buffer
        said = put(kind, data_of(kind, members), agent=agent, turn=turn)
        if kind in RUNS:
            self._desk.begins()
        return said

    def _write_in_turn(
        self,
        kind: str,
        data: Any,
        *,
        book: Book,
        step: int | None = None,
        durable: bool = False,
        members: bool = True,
        key: str | None = None,
        time: int | None = None,
        ignorable: bool = False,
    ) -> Event:
        # First of all: a forked child must not wait for a lock that its parent's threads hold.
        self._check()
        data = data_of(kind, data) if members else data
        put = self.append if durable else self.buffer
        # What waits for no commit is said under the lock, so that no end comes in between.
        with nullcontext() if durable else book.lock:
            book.check(step)
            event = put(
                kind,
                data,
                agent=book.agent,
                turn=book.turn,
                key=key,
                time=time,
                ignorable=ignorable,
            )
            book.note(kind, data)
        return event

    def _hold_all(
        self, said: Sequence[Said], agent: str | None, turn: str | None, key: str | None = None
    ) -> None:
        """Accept events that stay accepted whatever becomes of the next commit."""
        now = self._runtime.now_ms()
        drafts = [
            draft(kind, data, time=now, agent=agent, turn=turn, key=key) for kind, data in said
        ]
        self.admit(drafts, [], keep=True)

    # --- effects ---------------------------------------------------------------------------------

    def once(
        self,
        key: str,
        action: Callable[[], Any],
        *,
        about: Any = None,
        agent: str | None = None,
        turn: str | None = None,
        retry: bool = False,
    ) -> Any:
        """Call `action` unless the effect `key` has happened, and return its value, kept as JSON.

        That it is about to happen is durable before `action` is called, how it ended before this
        returns. A repeat, in any process and in forks, returns what is stored; another thread with
        the same key waits for the first. The key alone says which effect it is: `about` (JSON) is a
        note for people who read the log, kept of the first call and compared with nothing.

        With `retry` an effect that failed, or of which nobody knows, is run again as a further
        attempt; one that completed never is.

        Raises:
            EffectUnknown: it was begun, and nothing says how it ended: see `settle_effect`; or
                `action` asks for the effect that it is itself.
            EffectFailed: it failed before.
            InvalidValue: the key or `about` cannot be kept, or `action` is a coroutine function or
                none at all: nothing was done. Or its value cannot be kept (the path begins with
                `value`): then it was done, and null is kept. Or `action` returned what has to be
                awaited: a coroutine was not begun; of anything else the end is unknown.
            As `append`, before `action` is called; or behind it, then what it did stays accepted.
            What `action` raises, recorded as its failure. What is no `Exception` is not: it leaves
            the effect unknown.

        """
        check_key(key)
        check_action(action, awaits=False)
        self._check()
        with self._desk.gates.only(key) as alone:
            last = latest(self._queue.find, key)
            known = known_value(self.header.id, key, last, retry=retry and alone)
            if known is not None:
                self._make_durable(last.outcome)
                return known.value
            own = key_of(key, last.number + 1)
            conclude = partial(self._conclude, own, agent, turn)
            self.append(INTENT, data_of(INTENT, {"about": about}), agent=agent, turn=turn, key=own)
            try:
                value = action()
            except Exception as error:
                close_behind(error, partial(conclude, failed(error)), f"while recording {key!r}")
                raise
            if inspect.isawaitable(value):
                wrong, outcome = not_awaited(value)
                if outcome is not None:
                    conclude(outcome)
                raise wrong
            try:
                data = completed(value)
            except InvalidValue as wrong:
                conclude(completed(None))
                raise happened(wrong) from None
            conclude(data)
            return data.get("value")

    def settle_effect(self, key: str, value: Any = None, *, failed: Failure | None = None) -> None:
        """Say how an effect ended of which nobody knew: with `value`, or `failed`.

        From then on `once` returns the value, or raises EffectFailed.

        Raises:
            InvalidValue: no such effect was begun, or the value cannot be kept.
            KeyConflict: it ended in another way, as the log says.
            As `append`.

        """
        check_key(key)
        self._check()
        with self._desk.gates.only(key):
            last = latest(self._queue.find, key)
            self.append(OUTCOME, **settlement(self.header.id, key, last, value, failed))

    def _conclude(
        self, key: str, agent: str | None, turn: str | None, outcome: dict[str, Any]
    ) -> None:
        self._hold_all([(OUTCOME, outcome)], agent, turn, key)
        self.flush()

    def _make_durable(self, event: Event | None) -> None:
        if event is not None and event.seq > self.position.seq:
            self.flush()


def _named(agent: str | None) -> str:
    return "without a name" if agent is None else values.shown(agent)
