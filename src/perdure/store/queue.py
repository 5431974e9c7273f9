"""The events of one session that are accepted and not durable yet, in order, with their keys.

Every method is called with the session's mutex, but for `look_up` and `find`, which may read the
disk.
"""

from collections.abc import Callable, Sequence

import msgspec

from perdure.errors import KeyConflict, PerdureError
from perdure.model.event import Draft, Event

__all__ = ["Accepted", "Keys", "Queue"]

Keys = dict[tuple[str, str], int]
"""Sequence number of the stored event that holds a (type, key)."""


class Accepted(msgspec.Struct, eq=False):
    """An accepted event and what became of it.

    Attributes:
        draft: what was accepted.
        event: the event it becomes; its number may change until it is durable.
        kept: somebody was told that it is held, so it is never withdrawn.
        awaited: how many durable appends wait for it.
        durable: it is stored.
        withdrawn: it was taken back.
        failure: why it can never be stored, or None.

    """

    draft: Draft
    event: Event
    kept: bool = False
    awaited: int = 0
    durable: bool = False
    withdrawn: bool = False
    failure: PerdureError | None = None

    @property
    def settled(self) -> bool:
        """Nothing more will come of it."""
        return self.durable or self.withdrawn


class Queue:
    """What waits for the next commit, and which keys are taken."""

    def __init__(
        self,
        session: str,
        durable: int,
        keys: Keys | None,
        *,
        read_keys: Callable[[], Keys],
        read_event: Callable[[str, int], Event],
        persistent: bool,
    ) -> None:
        """Begin behind the event `durable`, with the `keys` that are stored.

        Where they are None they are read when an event with a key is added first.
        """
        self._session = session
        self._durable = durable
        self._keys: Keys = {} if keys is None else keys
        self._read_keys = read_keys if keys is None else None
        self._read_event = read_event
        self._waiting: list[Accepted] = []
        self._by_key: dict[tuple[str, str], Accepted] = {}
        # Facts found again, by number. Without a store nothing can be read back, so all stay here.
        self._facts: dict[int, Event] = {}
        self._persistent = persistent
        self._new = False
        self.bytes = 0

    @property
    def next_seq(self) -> int:
        """The number that the next accepted event gets."""
        return self._waiting[-1].event.seq + 1 if self._waiting else self._durable + 1

    @property
    def keys(self) -> Keys | None:
        """The keys of stored events; None if nobody asked for them yet."""
        return self._keys if self._read_keys is None else None

    def waiting(self) -> list[Accepted]:
        """What is pending now, in order."""
        return list(self._waiting)

    def events(self) -> list[Event]:
        """The pending events, for those who must be told that they are lost."""
        return [one.event for one in self._waiting]

    def look_up(self, drafts: Sequence[Draft]) -> None:
        """Read stored events that share a key with `drafts`, before the mutex is taken.

        Raises:
            SessionDamaged, StorageUnavailable: the log cannot be read for its keys.

        """
        for one in drafts:
            if one.key is not None:
                self._know_keys()
                seq = self._keys.get((one.type, one.key))
                if seq is not None and seq not in self._facts:
                    self._facts = {**self._facts, seq: self._read_event(self._session, seq)}

    def find(self, kind: str, key: str) -> Event | None:
        """The event, pending or stored, that has this (type, key). May read the disk; no lock."""
        pending = self._by_key.get((kind, key))
        if pending is not None:
            return pending.event
        self._know_keys()
        seq = self._keys.get((kind, key))
        if seq is None:
            return None
        return self._facts.get(seq) or self._read_event(self._session, seq)

    def _know_keys(self) -> None:
        """Read the keys of the log, once; those that become durable meanwhile are here already."""
        read = self._read_keys
        if read is not None and not self._new:
            for name, seq in read().items():
                self._keys.setdefault(name, seq)
            self._read_keys = None

    def know_new(self) -> None:
        """From here on no key that comes is in the log already, but for those of this writer."""
        self._new = True

    def may_store(self, one: Draft) -> bool:
        """Whether the log may hold an event with the key of `one`; no lock is needed to ask."""
        return self._read_keys is not None or (one.type, one.key) in self._keys

    def accept(self, drafts: Sequence[Draft], out: list[Accepted], *, keep: bool) -> None:
        """Number the drafts, or find the events that their keys name already, into the empty `out`.

        Raises:
            KeyConflict: none of them was accepted.

        """
        before = len(self._waiting)
        try:
            seq, size = self.next_seq, 0
            for made in drafts:
                found = None if made.key is None else self._repeated(made, made.key)
                if found is None:
                    found = Accepted(made, made.at(seq), keep)
                    self._waiting.append(found)
                    seq += 1
                    size += len(made.raw)
                    if made.key is not None:
                        self._by_key[made.type, made.key] = found
                elif keep:
                    found.kept = True
                out.append(found)
                found.awaited += 1
            self.bytes += size
        except BaseException:
            for one in out:
                one.awaited -= 1
            out.clear()
            # The new ones stand at the end, and no commit under way has seen them.
            self._remove(self._waiting[before:])
            raise
        if self._persistent:
            self._facts = {}

    def _repeated(self, made: Draft, key: str) -> Accepted | None:
        name = (made.type, key)
        found = self._by_key.get(name)
        if found is None:
            self._know_keys()
            seq = self._keys.get(name)
            if seq is None:
                return None
            event = self._facts.get(seq) or self._read_event(self._session, seq)
            found = Accepted(made, event, durable=True)
        if not made.same_fact(found.event):
            raise KeyConflict(self._session, type=made.type, key=key, seq=found.event.seq)
        return found

    def settle(self, durable: int) -> None:
        """Take note that the log is durable up to the event `durable`."""
        durable = self._durable = max(durable, self._durable)
        stored = 0
        for one in self._waiting:
            if one.event.seq > durable:
                break
            stored += 1
            one.durable = True
            if one.draft.key is not None:
                name = (one.draft.type, one.draft.key)
                self._keys[name] = one.event.seq
                self._by_key.pop(name, None)
                if not self._persistent:
                    self._facts[one.event.seq] = one.event
        if stored:
            del self._waiting[:stored]
            self.bytes = sum(len(one.draft.raw) for one in self._waiting)

    def withdraw(self, own: Sequence[Accepted]) -> None:
        """Take back what one caller waited for and nobody else wants; no commit is under way."""
        for one in own:
            one.awaited -= 1
        self._remove([one for one in own if not one.settled and not one.kept and one.awaited <= 0])
        seq = self._durable
        for one in self._waiting:
            seq += 1
            if one.event.seq != seq:
                msgspec.structs.force_setattr(one.event, "seq", seq)

    def _remove(self, gone: Sequence[Accepted]) -> None:
        for one in gone:
            one.withdrawn = True
            if one.draft.key is not None:
                self._by_key.pop((one.draft.type, one.draft.key), None)
        if gone:
            self._waiting = [one for one in self._waiting if not one.withdrawn]
            self.bytes = sum(len(one.draft.raw) for one in self._waiting)

    def fail(self, error: PerdureError) -> None:
        """None of the pending events can be stored any more."""
        for one in self._waiting:
            one.failure = error
        self._waiting.clear()
        self._by_key.clear()
        self.bytes = 0
