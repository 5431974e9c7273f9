"""Reading whole logs, and remembering what was found for as long as they do not change.

What is remembered are facts, never events: where a log ends, which keys it holds, what would close
it. So a session that was inspected is opened for writing without being read again.
"""

import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import NamedTuple

from perdure.backends.base import Backend, Hold
from perdure.model.event import Draft
from perdure.model.header import VOCABULARY, Header
from perdure.model.record import Position
from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Ending, Known, Problem, Walk
from perdure.store.checkpoints import Handy
from perdure.store.content import expired_in
from perdure.store.queue import Keys

__all__ = ["FACTS_MAX", "KEYS_MAX", "PROGRESS_EVENTS", "Facts", "Survey"]

FACTS_MAX = 32
"""How many sessions are remembered; the one used longest ago is forgotten first."""

KEYS_MAX = 50_000
"""How many keys are remembered of all sessions together."""

PROGRESS_EVENTS = 4096
"""After so many verified events whoever waits is told how many they are."""

_PROVEN_MAX = 32
"""So many of the newest proven positions go from one writer to the next.

Evidence is noted in the background, so it may still come to any of the latest.
"""


class Facts(NamedTuple):
    """What one pass over a whole log found.

    Attributes:
        proven: remembered positions that were found in it, and where it ends.
        ending: where it ends.
        further: places behind the first problem, and noise.
        closers: what would close the turns and jobs that are open.
        keys: which event holds which (type, key); None if only what follows a checkpoint was read.
        later: number of intact events behind damage.
        expired: digests of content that the log says has expired; nothing where it was not read.
        kept: the last event that a checkpoint takes into account; -1 if none is known of.
        handy: the checkpoint, and what follows it, if they were just read.

    """

    proven: frozenset[Position]
    ending: Ending
    further: tuple[Problem, ...]
    closers: tuple[Draft, ...]
    keys: Keys | None
    later: int = 0
    expired: frozenset[str] = frozenset()
    kept: int = -1
    handy: Handy | None = None

    def proves(self, known: Known) -> bool:
        """Whether the log, as it was read, holds what is known now."""
        remembered = {position for position in known[:2] if position is not None}
        return known.instead is None and remembered <= self.proven

    def handed_on(self, known: Known) -> "Facts":
        """As a writer takes them over: the proven positions that may matter after it, no more."""
        remembered = {position for position in known[:2] if position is not None}
        newest = heapq.nlargest(_PROVEN_MAX, self.proven)
        return self._replace(proven=frozenset({*newest, *(remembered & self.proven)}))

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

    def read(
        self,
        session: str,
        header: Header,
        begin: int,
        known: Known,
        progress: Callable[[int], None] | None = None,
    ) -> Facts:
        """Read the whole log, and remember what was found.

        `progress` is called every few thousand events with the number of those verified so far.
        """
        revision = self._backend.lasting_revision(session)
        facts = self._read(session, header, begin, known, progress)
        if revision is not None and not facts.damaged:
            self._remember(session, revision, header, facts)
        return facts

    def recall(self, session: str, header: Header, begin: int, known: Known) -> Facts:
        """What is remembered of the whole log, if it is as it was then; else it is read."""
        facts = self.remembered(session, header, known)
        if facts is not None and facts.keys is not None:
            return facts
        return self.read(session, header, begin, known)

    def remembered(self, session: str, header: Header, known: Known) -> Facts | None:
        """What is remembered, if the log is as it was then."""
        with self._mutex:
            remembered = self._facts.get(session)
        if remembered is not None:
            before, same, facts = remembered
            as_it_was = same.digest == header.digest and facts.proves(known)
            if as_it_was and self._backend.revision(session) == before:
                return facts.handed_on(known)
        return None

    def left(
        self,
        hold: Hold,
        header: Header,
        work: OpenWork,
        keys: Keys | None,
        *,
        proven: Collection[Position],
        kept: int,
    ) -> None:
        """Remember how a writer leaves a log, while it still holds the session.

        `keys` is the writer's own, which it does not change any more; `kept` is the event of its
        checkpoint. `proven` are positions that
        lie in this log: it was opened with proof of them, or this very store noted them.
        """
        position, size = hold.position, self._backend.tail(hold.session).size
        ending = Ending(position, size, size, size, None, Verdict.COMPLETE)
        closers = tuple(work.closers()) if header.vocabulary == VOCABULARY else ()
        proof = frozenset({position, *proven})
        facts = Facts(proof, ending, (), closers, keys, kept=kept)
        self._keep(hold.session, self._backend.revision(hold.session), header, facts)

    def _remember(self, session: str, revision: str, header: Header, facts: Facts) -> None:
        if self._backend.lasting_revision(session) == revision:
            self._keep(session, revision, header, facts)

    def _keep(self, session: str, revision: str, header: Header, facts: Facts) -> None:
        if len(facts.keys or ()) > KEYS_MAX:
            return
        with self._mutex:
            self._facts[session] = (revision, header, facts)
            self._facts.move_to_end(session)
            while len(self._facts) > FACTS_MAX or self._keys() > KEYS_MAX:
                self._facts.popitem(last=False)

    def _keys(self) -> int:
        return sum(len(facts.keys or ()) for _, _, facts in self._facts.values())

    def _read(
        self,
        session: str,
        header: Header,
        begin: int,
        known: Known,
        progress: Callable[[int], None] | None,
    ) -> Facts:
        keys: Keys = {}
        told = 0
        expired: set[str] = set()
        work = OpenWork()
        with Walk(header, self._backend.scan(session, begin), known=known, begin=begin) as walk:
            for record in walk.records():
                work.record(record)
                if record.fields.key is not None:
                    keys[record.type, record.fields.key] = record.first
                expired |= expired_in(record)
                if progress is not None and record.last + 1 - told >= PROGRESS_EVENTS:
                    told = record.last + 1
                    progress(told)
            ending, later = walk.ending, 0
            closers = tuple(work.closers()) if header.vocabulary == VOCABULARY else ()
            if ending.verdict is Verdict.DAMAGED:
                later = sum(record.last - record.first + 1 for record in walk.later())
                closers = ()
            proven = {position for position in known[:2] if position is not None}
            if ending.verdict is Verdict.DAMAGED:
                proven = set()
            proven.add(ending.position)
            return Facts(
                frozenset(proven),
                ending,
                tuple(walk.further),
                closers,
                keys,
                later,
                frozenset(expired),
            )
