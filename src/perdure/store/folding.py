"""Folds of stored logs: made for readers from a checkpoint and what came after it, and for writers.

A writer's fold takes records into account when somebody asks, and is stored soon after the end of
each turn. All of it is derived: where a checkpoint is missing, torn, of other views or of another
log, the log is folded from its first event, and the rows are the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perdure.backends.base import Backend, Hold, Stored, Tail
from perdure.errors import PerdureError, SessionDamaged
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header
from perdure.model.record import Position, Record
from perdure.recovery.closers import OpenWork
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Known, Walk
from perdure.store.checkpoints import NAME, OPEN, Checkpoint, Handy, Keeper, read_checkpoint
from perdure.store.content import content_of
from perdure.store.history import History, history_of
from perdure.store.imported import (
    Content,
    RewrittenError,
    Translation,
    Understanding,
    lens_version,
    starts_in,
)
from perdure.store.own_views import views_of
from perdure.store.reading import Pages, behind, page_from
from perdure.store.refusing import damage
from perdure.store.state import State
from perdure.store.survey import Facts
from perdure.store.witness import Witness, known_of
from perdure.views.fold import Fold
from perdure.views.view import View

__all__ = ["Folding", "Folds", "Loaded"]

WAITING_MAX = 4096
WAITING_BYTES_MAX = 4 * 1024 * 1024
"""So many records, or bytes of them, wait for the end of the turn before they are folded."""

STEP_EVENTS = 500
"""The end of a step is worth a checkpoint after so many events."""

PLACE_EVENTS = 256
"""Of a log with kinds of its owner's, where it stands is stored after so many events."""

BEHIND_EVENTS_MAX = 4096
"""A checkpoint that is older is renewed at the end of a turn by a writer that was not asked either.
"""


class Loaded(NamedTuple):
    """What a stored log was folded to.

    Attributes:
        fold: the rows of all views at its end.
        work: what is open there.
        checkpoint: the checkpoint that it was made from, or None.
        history: reads the log for views that ask for it.
        understanding: what the lens made of it, where it was read through one from the start.

    """

    fold: Fold
    work: OpenWork
    checkpoint: Checkpoint | None
    history: History
    understanding: Understanding | None = None

    def close(self, closers: list[Event]) -> Fold:
        """The fold with events that would come behind the log."""
        self.history.behind = closers
        self.fold.events(closers)
        return self.fold


class Folds:
    """Makes the folds of the sessions of one namespace."""

    def __init__(
        self, backend: Backend, witness: Witness, pages: Pages, own: Sequence[View]
    ) -> None:
        """Nothing is read; `own` are a user's views.

        Raises:
            InvalidValue: as `views_of`.

        """
        self._backend = backend
        self._witness = witness
        self._pages = pages
        self.views = views_of(own)
        self._versions = {view.name: view.version for view in self.views}

    def begin(self, header: Header) -> Fold:
        """The fold of a log without events."""
        return Fold(self.views, header, self.history(header))

    def told(self, header: Header, first: int, last: int) -> Iterator[Event]:
        """What the events of these numbers say in our vocabulary; of a log of ours, the events.

        Raises:
            As `Pages.read`.

        """
        return self.history(header).between(first, last)

    def history(self, header: Header, starts: dict[int, int] | None = None) -> History:
        """Reads the log for views that ask for it; for `starts` see `history_of`."""
        return history_of(self._pages, header, self.content(header.id), starts)

    def content(self, session: str) -> Content:
        """Gives the content beside a log by its digest."""
        return lambda digest: b"".join(content_of(self._backend, session, digest))

    def starts(self, header: Header) -> dict[int, int]:
        """Where the generations of an imported source begin; reads everything."""
        return starts_in(header, self._pages.read(header.id, 0, None))

    # --- loading ---------------------------------------------------------------------------------

    def load(self, session: str) -> Loaded:
        """Fold a stored log up to its end: from its checkpoint, or else from event 0.

        Nobody is waited for and nothing is written. What is read is verified. A checkpoint is only
        believed where evidence remembers the log: it was made by this store, not handed over with
        a file.

        Raises:
            SessionNotFound: there is none.
            SessionDamaged: it does not hold together where it was read.
            FormatUnsupported: another version wrote it.
            PersistenceDisabled: nothing is stored.

        """
        stored = self._backend.stored(session)
        if stored.header is None:
            raise damage(session, stored)
        seen = self._witness.about(session).seen
        # Before the log, which is then never behind it.
        believed = self._witness.knows(stored.header, seen)
        found = self._checkpoint(session, stored.header) if believed else None
        known = known_of(stored.header, self._backend.tail(session), seen)
        if found is not None and self._current(found, stored.header):
            loaded = self._from(found, stored, known)
            if loaded is not None:
                return loaded
        return self._anew(stored.header, stored, known)

    def understanding(self, session: str) -> Understanding | None:
        """What a lens makes of the lines of a session; None: there are none. Reads everything.

        Raises:
            As `load`.

        """
        stored = self._backend.stored(session)
        if stored.header is None:
            raise damage(session, stored)
        if stored.header.source is None:
            return None
        seen = self._witness.about(session).seen
        known = known_of(stored.header, self._backend.tail(session), seen)
        return self._anew(stored.header, stored, known).understanding

    def _anew(self, header: Header, stored: Stored, known: Known) -> Loaded:
        try:
            return self._from_the_start(header, stored, known, None)
        except RewrittenError:
            return self._from_the_start(header, stored, known, self.starts(header))

    def _from_the_start(
        self, header: Header, stored: Stored, known: Known, starts: dict[int, int] | None
    ) -> Loaded:
        history = self.history(header, starts or {})
        fold, work = Fold(self.views, header, history), OpenWork()
        lens = Translation(header, self.content(header.id), starts)
        pieces = self._backend.scan(header.id, stored.begin)
        with Walk(header, pieces, known=known, begin=stored.begin) as walk:
            for record in walk.records():
                if lens.reads:
                    for event in record.events():
                        fold.events(lens.read(event))
                    fold.position = record.position
                else:
                    fold.record(record)
                work.record(record)
            if walk.verdict is Verdict.DAMAGED:
                raise damage(header.id, stored, walk.problem)
        fold.events(lens.end())
        return Loaded(fold, work, None, history, lens.understanding())

    def _current(self, found: Checkpoint, header: Header) -> bool:
        """Whether a checkpoint has the rows that would be made now, and can be folded on from.

        What a lens is in the middle of is not stored, so no line of a source may follow.
        """
        follows = header.source is None or found.position.seq >= header.seed > 0
        lens = lens_version(header)
        return found.views == self._versions and found.lens == lens and (follows or not lens)

    def _checkpoint(self, session: str, header: Header, name: str = NAME) -> Checkpoint | None:
        try:
            return read_checkpoint(self._backend.derived(session, name), header)
        except PerdureError:
            # It cannot be read just now, or is not ours: the log says the same.
            return None

    def _from(self, found: Checkpoint, stored: Stored, known: Known) -> Loaded | None:
        """Fold what came after a checkpoint; None if it is not of this log, or makes no sense."""
        header = stored.header
        if header is None:
            return None
        try:
            with self._pass(header, stored.begin, known, found.position.seq) as walk:
                loaded = self._made_of(found, header, behind(walk, found.position))
                return None if walk.verdict is Verdict.DAMAGED else loaded
        except PerdureError:
            raise
        except Exception:  # noqa: BLE001 - rows that no view made may do anything to a view
            return None

    def of_handy(self, handy: Handy, header: Header) -> Loaded | None:
        """The fold of a checkpoint and what follows it, both just read; None if it makes none."""
        if not self._current(handy.checkpoint, header):
            return None
        try:
            return self._made_of(handy.checkpoint, header, handy.records)
        except PerdureError:
            raise
        except Exception:  # noqa: BLE001 - rows that no view made may do anything to a view
            return None

    def _made_of(self, found: Checkpoint, header: Header, records: Iterable[Record]) -> Loaded:
        rows = found.rows()
        history = self.history(header)
        fold = Fold(self.views, header, history, rows=rows, position=found.position)
        fold.skipped.update(found.skipped)
        work = found.work()
        for record in records:
            fold.record(record)
            work.record(record)
        # Rows that no view of this version made shall show now, while there is the log to ask.
        State(fold).check()
        return Loaded(fold, work, found, history)

    def _pass(self, header: Header, begin: int, known: Known, seq: int) -> Walk:
        """A pass from a place at or before an event.

        Raises:
            ValueError: the log has none.

        """
        walk = page_from(self._backend, header, begin, known, seq)
        if walk is None:
            raise ValueError("the log has no such event")
        return walk

    # --- opening to write ------------------------------------------------------------------------

    def since(
        self, session: str, header: Header, begin: int, known: Known, tail: Tail, *, views: bool
    ) -> Facts | None:
        """What a writer has to know, from the checkpoint on; None if all has to be read for it.

        Without `views` it is known from what takes no room: the rows are not read.

        What stands before the checkpoint is trusted, which asks for three things: the medium is as
        the last acknowledgement left it, evidence remembers nothing else, and a change that came
        since would show.
        """
        agreed = known.acknowledged == tail.acknowledged and known.instead is None
        if not (tail.settled and agreed) or self._backend.lasting_revision(session) is None:
            return None
        if self._backend.plan(session) is not None:
            # A repair was begun, so there is something to be repaired.
            return None
        found = None if views else self._checkpoint(session, header, OPEN)
        found = found or self._checkpoint(session, header)
        if found is None:
            return None
        # What is remembered besides has to be found as well.
        start = min(place.seq for place in (found.position, known.earlier) if place is not None)
        if start < 0:
            return None
        records: list[Record] = []
        size = 0
        try:
            work = found.work()
            with self._pass(header, begin, known, start) as walk:
                for record in behind(walk, found.position):
                    work.record(record)
                    size += len(record.line)
                    if views and size <= WAITING_BYTES_MAX:
                        records.append(record)
                ending = walk.ending
        except ValueError:
            return None
        if ending.verdict is not Verdict.COMPLETE or ending.problem is not None or walk.further:
            return None
        closers = tuple(work.closers()) if header.vocabulary == VOCABULARY else ()
        remembered = {place for place in known[:2] if place is not None}
        proven = frozenset({*remembered, ending.position})
        handy = Handy(found, tuple(records)) if views and size <= WAITING_BYTES_MAX else None
        return Facts(proven, ending, (), closers, None, kept=found.position.seq, handy=handy)


# --- writing --------------------------------------------------------------------------------------


class Folding:
    """The views of one session that is being written, as far as somebody needs them.

    Every method is called by whoever holds the session's lock for commits.
    """

    def __init__(
        self,
        folds: Folds,
        backend: Backend,
        header: Header,
        *,
        begun: bool,
        kept: int = -1,
        handy: Handy | None = None,
    ) -> None:
        """`begun` says that the log has no events yet; `kept` is the event of its checkpoint.

        `handy` is what was just read of both, for whoever asks for the fold at once.
        """
        self._folds = folds
        self._header = header
        self._persistent = backend.persistent
        # Lines that come are read by a lens from the first one on.
        self._foreign = header.vocabulary != VOCABULARY and bool(lens_version(header))
        self._keeper = Keeper(backend, header, kept)
        self._live: tuple[Fold, OpenWork] | None = None
        # Records that are durable and not folded yet; None if some were missed.
        follows = begun and header.vocabulary == VOCABULARY
        self._waiting: list[Record] | None = [] if follows else None
        self._bytes = 0
        self._shared = False
        # Whether the rows are to be stored.
        self._due = False
        self._handy = handy

    @property
    def kept(self) -> int:
        """The last event that the stored checkpoint takes into account; -1 if none is known of."""
        return self._keeper.seq

    def events(self, first: int, last: int) -> Iterator[Event]:
        """Events of the session, in our vocabulary."""
        return self._folds.told(self._header, first, last)

    def fold(self, position: Position) -> Fold:
        """The rows at the position of the writer; they stay as they are.

        Raises:
            As `Folds.load`.

        """
        fold, _ = self._at(position)
        self._shared = True
        return fold

    def _at(self, position: Position) -> tuple[Fold, OpenWork]:
        """What is folded, up to the position of the writer."""
        if self._waiting is None and position.seq < 0 and not self._foreign:
            self._waiting = []
        self._catch_up()
        if self._standing(position) is None:
            self._load()
        live = self._standing(position)
        if live is None:
            reason = f"its log does not end where its writer stands, at event {position.seq}"
            raise SessionDamaged(self._header.id, reason, record=position.seq + 1)
        return live

    def _standing(self, position: Position) -> tuple[Fold, OpenWork] | None:
        live = self._live
        return live if live is not None and live[0].position == position else None

    def _load(self) -> None:
        """Take the log as it is stored."""
        self._live, self._waiting = None, None
        handy, self._handy = self._handy, None
        loaded = None if handy is None else self._folds.of_handy(handy, self._header)
        loaded = loaded or self._folds.load(self._header.id)
        self._keeper.continues(loaded.checkpoint)
        self._live = loaded.fold, loaded.work
        self._waiting = None if self._foreign else []
        self._bytes, self._shared = 0, False

    def committed(self, records: Sequence[Record]) -> bool:
        """Take note of records that became durable; whether it is time to `keep` the rows.

        Whatever goes wrong is no failure of the commit. What was folded is let go of then, and made
        anew when somebody asks.
        """
        self._handy = None
        try:
            self._take(records)
            self._due = self._due or self._ends(records)
        except Exception:  # noqa: BLE001 - a view of a user's may raise anything
            self._live, self._waiting = None, None
        return self._due

    def keep(self, hold: Hold, most: int | None = None, *, last: bool = False) -> bool:
        """Store the rows if that is due; False: `most` records were folded, and more are to be.

        `last` says that the writer stores nothing after it. Whatever goes wrong is nobody's
        failure: as for `committed`.
        """
        try:
            if self._due:
                if most is not None and not self._catch_up(most):
                    return False
                self._due = False
                fold, work = self._at(hold.position)
            elif last and not self._foreign and (live := self._standing(hold.position)):
                fold, work = live
            else:
                self._keep_place(hold, last=last)
                return True
            if not hold.dead:
                self._keeper.keep(hold, fold, work, last=last)
        except BaseException as error:
            self._live, self._waiting, self._due = None, None, False
            if not isinstance(error, Exception):
                # An interrupt, or a view that wants to exit: the caller's, once.
                raise
        return True

    def _keep_place(self, hold: Hold, *, last: bool) -> None:
        """Have the next writer of a long log that nobody closes turns in not read all of it."""
        new = hold.position.seq - self._keeper.seq
        native = self._header.vocabulary == VOCABULARY
        if last and self._persistent and not native and not hold.dead and new >= PLACE_EVENTS:
            self._keeper.keep_place(hold)

    def _take(self, records: Sequence[Record]) -> None:
        if self._waiting is None:
            return
        self._waiting.extend(records)
        self._bytes += sum(len(record.line) for record in records)
        if len(self._waiting) > WAITING_MAX or self._bytes > WAITING_BYTES_MAX:
            self._catch_up()

    def _ends(self, records: Sequence[Record]) -> bool:
        """Whether something ends with these records that is worth a checkpoint."""
        if not self._persistent:
            return False
        behind = records[-1].last - self._keeper.seq
        kinds = {record.type for record in records}
        if self._waiting is None and (
            behind < BEHIND_EVENTS_MAX or self._header.vocabulary != VOCABULARY
        ):
            return False
        # A rewind may have read the log again, and so may a resume: nobody after this writer has
        # to.
        ends = not kinds.isdisjoint(("turn/end", "context/rewound"))
        late = "step/end" in kinds and behind >= STEP_EVENTS
        return ends or late or ("session/resumed" in kinds and behind >= BEHIND_EVENTS_MAX)

    def _catch_up(self, most: int | None = None) -> bool:
        """Fold what waits, at most so many records of it; False if there are more."""
        waiting = self._waiting
        if waiting is None or (not waiting and self._live is not None):
            return True
        # Whatever comes in between, a signal included, leaves nothing that is half folded.
        live, self._live, self._waiting = self._live, None, None
        fold, work = live or (self._folds.begin(self._header), OpenWork())
        if self._shared:
            # Whoever was given it reads on in it.
            fold, self._shared = fold.copy(), False
        left = [] if most is None else waiting[most:]
        for record in waiting[:most]:
            if record.prev != fold.position.hash:
                return True
            fold.record(record)
            work.record(record)
        self._live, self._waiting = (fold, work), left
        self._bytes = sum(len(record.line) for record in left)
        return not left
