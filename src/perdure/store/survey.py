"""Reading whole logs, and remembering what was found for as long as they do not change.

What is remembered are facts, never events: where a log ends, which keys it holds, what would close
it. So a session that was inspected is opened for writing without being read again.
"""

import threading
from collections import OrderedDict
from typing import NamedTuple

from perdure.backends.base import Backend
from perdure.model.event import Draft
from perdure.model.header import VOCABULARY, Header
from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Ending, Known, Problem, Walk
from perdure.store.queue import Keys

__all__ = ["FACTS_MAX", "KEYS_MAX", "Facts", "Survey"]

FACTS_MAX = 32
"""How many sessions are remembered; the one used longest ago is forgotten first."""

KEYS_MAX = 50_000
"""A session with more keys is read again rather than remembered."""


class Facts(NamedTuple):
    """What one pass over a whole log found.

    Attributes:
        known: what it was held against.
        ending: where it ends.
        further: places behind the first problem, and noise.
        closers: what would close the turns and jobs that are open.
        keys: which event holds which (type, key).
        later: number of intact events behind damage.

    """

    known: Known
    ending: Ending
    further: tuple[Problem, ...]
    closers: tuple[Draft, ...]
    keys: Keys
    later: int = 0

    @property
    def damaged(self) -> bool:
        """Whether appends are refused."""
        return self.ending.verdict is Verdict.DAMAGED


class Survey:
    """The facts about the sessions of one namespace."""

    def __init__(self, backend: Backend) -> None:
        """Remember nothing yet."""
        self._backend = backend
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self._mutex = threading.RLock()
        self._facts: OrderedDict[str, tuple[str, Header, Facts]] = OrderedDict()

    def read(self, session: str, header: Header, begin: int, known: Known) -> Facts:
        """Read the whole log, and remember what was found."""
        revision = self._backend.lasting_revision(session)
        facts = self._read(session, header, begin, known)
        if revision is not None and not facts.damaged:
            self._remember(session, revision, header, facts)
        return facts

    def recall(self, session: str, header: Header, begin: int, known: Known) -> Facts:
        """What is remembered, if the log is as it was then; else it is read."""
        with self._mutex:
            remembered = self._facts.get(session)
        if remembered is not None:
            before, same, facts = remembered
            as_it_was = (same.digest, facts.known) == (header.digest, known)
            if as_it_was and self._backend.lasting_revision(session) == before:
                return facts
        return self.read(session, header, begin, known)

    def _remember(self, session: str, revision: str, header: Header, facts: Facts) -> None:
        if len(facts.keys) > KEYS_MAX or self._backend.lasting_revision(session) != revision:
            return
        with self._mutex:
            self._facts[session] = (revision, header, facts)
            self._facts.move_to_end(session)
            while len(self._facts) > FACTS_MAX:
                self._facts.popitem(last=False)

    def _read(self, session: str, header: Header, begin: int, known: Known) -> Facts:
        keys: Keys = {}
        work = OpenWork()
        with Walk(header, self._backend.scan(session, begin), known=known, begin=begin) as walk:
            for record in walk.records():
                work.record(record)
                if record.fields.key is not None:
                    keys[record.type, record.fields.key] = record.first
            ending, later = walk.ending, 0
            closers = tuple(work.closers()) if header.vocabulary == VOCABULARY else ()
            if ending.verdict is Verdict.DAMAGED:
                later = sum(record.last - record.first + 1 for record in walk.later())
                closers = ()
            return Facts(known, ending, tuple(walk.further), closers, keys, later)
