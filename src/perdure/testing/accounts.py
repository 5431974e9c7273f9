"""What a store answers while something around it fails, and whether that was true.

A `Player` asks one store, in one thread. It keeps for each session what was acknowledged, what is
only held, what was refused and what was named as lost; nothing of it is taken from the store.
Answers that are wrong at the call are findings at once; `Player.judge` compares the rest with what
is stored in the end. What is asked in which order is in `perdure.testing.scripts`.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from perdure.errors import PerdureError, SessionNotFound
from perdure.model.event import Event
from perdure.store.session import Session
from perdure.store.store import Store
from perdure.testing.ledger import Finding

__all__ = ["TORN", "Account", "Player", "serial_of"]

_CLOSERS = frozenset({"tool/result", "step/end", "turn/end", "job/end"})
_BOOKS = frozenset({"content/expired", "session/forked"})
"""What the store writes into a log by itself, apart from closers."""

_REFUSALS = frozenset({"storage-full", "storage-unavailable", "session-busy", "session-closed"})
"""What a store may say when the system fails; anything else is said of something that is not so."""

TORN = frozenset({"record", "frame"})
"""Problems that a dead writer leaves at the end of a log, and that are no damage."""


def serial_of(event: Event) -> int | None:
    """The number that the script gave an event; None for a closer."""
    data = event.data
    return data.get("serial") if isinstance(data, dict) else None


class Account:
    """What became of one session, as told.

    Attributes:
        acknowledged: by serial, events that are stored for certain.
        held: by serial, buffered events that nobody has answered for yet.
        owed: serials of held events that a writer left without naming them: they must be stored.
        unknown: serials of events named as lost: stored or not.
        refused: serials of events whose call raised: they must not be stored.
        repeatable: facts with a key.
        content: by digest, what was put and is referred to.
        may_expire: digests whose content may be gone.
        deleted: "no", "yes", or "perhaps" after a call that raised.
        purged: the trash was emptied while it may have been there.

    """

    def __init__(self, name: str) -> None:
        """Nothing is known."""
        self.name = name
        self.acknowledged: dict[int, Event] = {}
        self.held: dict[int, Event] = {}
        self.owed: set[int] = set()
        self.unknown: set[int] = set()
        self.refused: set[int] = set()
        self.repeatable: list[dict[str, Any]] = []
        self.content: dict[str, bytes] = {}
        self.may_expire: set[str] = set()
        self.deleted = "no"
        self.purged = False

    def acknowledge(self, events: Iterable[Event]) -> None:
        """These are stored, and so is all that was held and has a smaller number."""
        made = [*events]
        last = max((event.seq for event in made), default=-1)
        earlier = [event for event in self.held.values() if event.seq < last]
        for event in (*earlier, *made):
            serial = serial_of(event)
            if serial is None:
                raise Finding(f"{self.name}: acknowledged what was never submitted: {event}")
            before = self.acknowledged.get(serial)
            if before is not None and before != event:
                raise Finding(f"{self.name}: acknowledged as {before}, then as {event}")
            # A copy, so that what the store does to its own object later shows.
            self.acknowledged[serial] = msgspec.structs.replace(event)
            for others in (self.held, self.owed, self.unknown, self.refused):
                others.pop(serial, None) if isinstance(others, dict) else others.discard(serial)

    def settle(self) -> None:
        """Everything that is held was made durable."""
        self.acknowledge([*self.held.values()])

    def refuse(self, serials: Iterable[int], lost: Iterable[Event], *, stored: bool) -> None:
        """A call raised; `stored`: what it names as lost may be in the log all the same."""
        named = {serial for event in lost if (serial := serial_of(event)) is not None}
        (self.unknown if stored else self.refused).update(named)
        for serial in named:
            self.held.pop(serial, None)
        self.refused.update(
            {*serials} - named - self.unknown - self.acknowledged.keys() - self.held.keys()
        )

    def abandon(self) -> None:
        """The writer is gone: what it holds and did not name has to be stored."""
        self.owed |= self.held.keys()
        self.held.clear()

    def check(self, events: Iterable[Event]) -> None:
        """Demand of the stored events that they are what was told.

        Raises:
            Finding: lost, doubled, out of order, or from nowhere.

        """
        stored = [*events]
        if [event.seq for event in stored] != [*range(len(stored))]:
            raise Finding(f"{self.name}: numbered {[event.seq for event in stored]}")
        for serial, event in self.acknowledged.items():
            if not event.seq < len(stored) or stored[event.seq] != event:
                raise Finding(f"{self.name}: acknowledged event {serial} is not at {event.seq}")
        serials = [serial_of(event) for event in stored]
        known = [serial for serial in serials if serial is not None]
        keyed = {serial_of(event) for event in stored if event.key is not None}
        plain = [serial for serial in known if serial not in keyed]
        if len({*known}) < len(known) or plain != sorted(plain):
            raise Finding(f"{self.name}: stored in the order {known}")
        if missing := self.owed - {*known}:
            raise Finding(f"{self.name}: lost in silence: {sorted(missing)}")
        if wrong := self.refused & {*known}:
            raise Finding(f"{self.name}: refused and yet stored: {sorted(wrong)}")
        told = self.acknowledged.keys() | self.held.keys() | self.owed | self.unknown
        if strange := {*known} - told:
            raise Finding(f"{self.name}: from nowhere: {sorted(strange)}")
        self._check_closers([e for e, s in zip(stored, serials, strict=True) if s is None])

    def _check_closers(self, closers: list[Event]) -> None:
        ends = [
            (e.type, e.turn, e.data.get("id"), e.data.get("step"))
            for e in closers
            if e.type not in _BOOKS
        ]
        if len({*ends}) < len(ends) or {end[0] for end in ends} - _CLOSERS:
            raise Finding(f"{self.name}: closed more than once: {ends}")


class Player:
    """Takes steps on one store and keeps the accounts.

    Attributes:
        accounts: by session.
        writers: the open writers.
        failing: whether the system fails just now, so that refusals are in order.
        errors: how often each code was raised.
        last: the last of them, in words.

    """

    def __init__(self, store: Store, path: str, rng: random.Random) -> None:
        """Work on `store`, which keeps its files at `path`."""
        self.store = store
        self.path = path
        self.rng = rng
        self.accounts: dict[str, Account] = {}
        self.writers: dict[str, Session] = {}
        self.failing: Callable[[], bool] = lambda: False
        self.errors: Counter[str] = Counter()
        self.last = ""
        self._serial = 0

    # --- asking ----------------------------------------------------------------------------------

    def ask(self, call: Callable[[], Any], *also: str) -> tuple[Any, PerdureError | None]:
        """The answer to a call, or the error of the tree that it raised; `also` may be its code.

        Raises:
            Finding: it raised something else, or an error that says what is not so.

        """
        try:
            return call(), None
        except Finding:
            raise
        except PerdureError as error:
            self.errors[error.code] += 1
            self.last = f"{type(error).__name__}: {error}"
            if not error.hint:
                raise Finding(f"an error without a hint: {error!r}") from error
            if error.code not in {*_REFUSALS, *also}:
                raise Finding(f"said {error.code}: {error}") from error
            return None, error
        except BaseException as error:
            raise Finding(f"a foreign exception: {error!r}") from error

    def event(self, type: str, data: Any = None, **fields: Any) -> dict[str, Any]:  # noqa: A002
        """An event as `Session.append_many` takes it, with a number that no other has."""
        self._serial += 1
        return {"type": type, "data": {"serial": self._serial, **(data or {})}, **fields}

    def append(self, name: str, *events: dict[str, Any]) -> bool:
        """Append in one commit; whether it was acknowledged."""
        session = self.writers[name]
        made, error = self.ask(lambda: session.append_many(events))
        if error is None:
            self.accounts[name].acknowledge(made)
        else:
            self.note_refusal(name, error, [event["data"]["serial"] for event in events])
        return error is None

    def buffer(self, name: str, event: dict[str, Any]) -> None:
        """Buffer one event."""
        session = self.writers[name]
        made, error = self.ask(lambda: session.buffer(**event))
        if error is None:
            self.accounts[name].held[event["data"]["serial"]] = made
        else:
            self.note_refusal(name, error, [event["data"]["serial"]])

    def flush(self, name: str) -> None:
        """Ask for durability of what is buffered."""
        session = self.writers[name]
        _, error = self.ask(session.flush)
        if error is None:
            self.accounts[name].settle()
        else:
            self.note_refusal(name, error)

    def close(self, name: str) -> None:
        """Close a writer."""
        session = self.writers[name]
        _, error = self.ask(session.close, "session-exists")
        if error is None:
            self.accounts[name].settle()
        else:
            self.note_refusal(name, error)
        self.writers.pop(name, None)
        self.accounts[name].abandon()

    def open(self, name: str) -> None:
        """Open the writer of a session that may be stored."""
        session, error = self.ask(lambda: self.store.writer(name), *self.absent(name))
        if error is None:
            self.writers[name] = session

    def note_refusal(self, name: str, error: PerdureError, serials: Iterable[int] = ()) -> None:
        """Take note of an error that a writer raised; a dead one is let go."""
        account = self.accounts[name]
        uncertain = error.code != "stale-writer"
        account.refuse(serials, getattr(error, "lost", ()), stored=uncertain)
        if name in self.writers and self.writers[name].closed:
            del self.writers[name]
            account.abandon()

    def absent(self, name: str) -> list[str]:
        """The code that may be raised if nothing of a session is certain to be stored."""
        account = self.accounts[name]
        sure = (account.acknowledged or account.owed) and account.deleted == "no"
        return [] if sure else ["session-not-found"]

    def any_writer(self) -> str | None:
        """Some open writer."""
        return self.rng.choice([*self.writers]) if self.writers else None

    def any_stored(self) -> str | None:
        """Some session that something was done to, and that was not deleted."""
        names = [name for name, account in self.accounts.items() if account.deleted == "no"]
        return self.rng.choice(names) if names else None

    def at_rest(self) -> str | None:
        """A session without a writer: one is closed if need be."""
        name = self.any_stored()
        if name in self.writers:
            self.close(name)
        return name

    # --- the end ---------------------------------------------------------------------------------

    def end(self) -> None:
        """Show that each writer goes on if nothing fails any more, and close everything."""
        for name in [*self.writers]:
            stored = self.append(name, self.event("note/after"))
            if not stored and name in self.writers and not self.failing():
                raise Finding(f"{name}: its writer neither goes on nor is it over: {self.last}")
        for name in [*self.writers]:
            self.close(name)
        self.ask(self.store.close)

    def judge(self, store: Store) -> None:
        """Compare what a fresh store finds, with nothing failing, with the accounts.

        Raises:
            Finding: they differ, or something cannot be written on.

        """
        listed = {entry.id: entry for entry in store.list()}
        for name, account in self.accounts.items():
            if name in listed and account.deleted == "yes":
                raise Finding(f"{name} was deleted and is listed")
            if name not in listed and not self._bring_back(store, account):
                continue
            entry = listed.pop(name, None)
            if entry is not None and entry.header is None:
                raise Finding(f"{name} has lost its header")
            account.check(store.read_from(name))
            found = store.verify(name)
            if not found.sound or {problem.kind for problem in found.problems} - TORN:
                raise Finding(f"{name}: {found}")
            for digest in account.content:
                self.read_content(store, account, digest)
            self._write_on(store, account)
        if listed:
            raise Finding(f"listed and never created: {[*listed]}")

    def read_content(self, store: Store, account: Account, digest: str) -> None:
        """Read what was put: it is there and right, or may have expired."""
        expired = ["content-expired"] if digest in account.may_expire else []
        data, error = self.ask(lambda: store.blob(account.name, digest), *expired)
        if error is None and data != account.content[digest]:
            raise Finding(f"{account.name}: content {digest} is {len(data)} other bytes")

    def _bring_back(self, store: Store, account: Account) -> bool:
        """Restore a deleted session; False if nothing of it had to be there."""
        if account.deleted != "no":
            with suppress(SessionNotFound):
                store.restore(account.name)
                return True
        if (account.acknowledged or account.owed) and not account.purged:
            raise Finding(f"{account.name} is lost with {len(account.acknowledged)} events")
        return False

    def _write_on(self, store: Store, account: Account) -> None:
        event = self.event("note/continued")
        with store.writer(account.name) as session:
            account.acknowledge(session.append_many([event]))
        account.check(store.read_from(account.name))
        report = store.verify(account.name)
        if report.status != "ok" or report.problems:
            raise Finding(f"{account.name} after it was written on: {report}")
