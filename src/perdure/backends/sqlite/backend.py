"""Many sessions in one SQLite file.

See `DESIGN.md` beside this module for the invariants and the crash story.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, Self, TypeVar

import apsw

from perdure.backends.base import (
    Blob,
    Entry,
    Hold,
    Stored,
    Tail,
    Trashed,
)
from perdure.backends.sqlite import content, schema, trash
from perdure.backends.sqlite.deriving import DerivingBackend
from perdure.backends.sqlite.file import path_of
from perdure.backends.sqlite.holding import SqliteHold, insert_session, own
from perdure.backends.sqlite.locking import Locks
from perdure.backends.sqlite.medium import Medium
from perdure.backends.sqlite.reading import Found, disagreements, end_of, find, pieces, stored_of
from perdure.backends.sqlite.repairing import RepairingBackend
from perdure.backends.sqlite.snapshots import Snapshot
from perdure.durable.locks import Holder
from perdure.durable.temporary import Gathered, gathered
from perdure.errors import (
    PerdureError,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
)
from perdure.evidence import Evidence
from perdure.model.header import Header, check_id
from perdure.model.identity import escape_id, namespace_key, namespace_parts
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece, Problem
from perdure.runtime import SYSTEM, Runtime

__all__ = ["SqliteBackend"]

T = TypeVar("T")

_PUBLISH_SECONDS = 5.0
_STALE_MS = 60_000
_TOKEN = re.compile("[0-9a-f]{16}")


class SqliteBackend(RepairingBackend, DerivingBackend):
    """Sessions as rows of one file."""

    scheme = "sqlite"
    kind: ClassVar[schema.Kind] = schema.STORE

    def __init__(
        self, path: str, *, runtime: Runtime = SYSTEM, untrusted: bool = False, **_: Any
    ) -> None:
        """Name the file; nothing is created or opened before it is needed.

        `path` may begin with `//`, as in `sqlite:///home/me/agents.db`. With `untrusted` the file
        may belong to anybody and be open to all, and is only read.
        """
        self._runtime = runtime
        self._medium = Medium(path_of(path, self.scheme), self.kind, runtime, untrusted=untrusted)
        self._evidence = Evidence(None if untrusted else self._medium.beside, runtime=runtime)
        self._enter(())

    def _enter(self, parts: tuple[str, ...]) -> None:
        self._parts = parts
        self._namespace = namespace_key(parts)
        self._locks = Locks(self._medium, parts)
        self._building = Locks(self._medium, parts, "++new")

    def __repr__(self) -> str:
        return f"{self.scheme}:{self._medium.path}"

    @property
    def place(self) -> str:
        return os.path.realpath(self._medium.path)

    def make(self) -> None:
        self._medium.make()

    # --- namespaces ------------------------------------------------------------------------------

    def namespace(self, part: str) -> Self:
        check_id(part)
        below = object.__new__(type(self))
        below._runtime = self._runtime
        below._medium = self._medium
        below._evidence = self._evidence
        below._enter((*self._parts, part))
        return below

    def namespaces(self) -> Iterator[str]:
        # Behind "a/" and before "a0" is what begins with "a/": "0" is the character after "/".
        low = f"{self._namespace}/" if self._parts else ""
        high = f"{self._namespace}0" if self._parts else "\U0010ffff"
        query = (
            "SELECT DISTINCT namespace FROM sessions"
            " WHERE state IN ('stored', 'deleted') AND namespace > ? AND namespace < ?"
        )
        depth, nothing = len(self._parts), set[str]()

        def below(db: apsw.Connection) -> set[str]:
            found = schema.ask(db, query, (low, high), [str])
            return {namespace_parts(key)[depth] for (key,) in found}

        return iter(sorted(self._ask(below, nothing)))

    @property
    def parts(self) -> tuple[str, ...]:
        return self._parts

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    # --- finding ---------------------------------------------------------------------------------

    def _ask(self, question: Callable[[apsw.Connection], T], nothing: T) -> T:
        """The answer to a question, or `nothing` if there is no file."""
        try:
            return self._medium.read(question)
        except FileNotFoundError:
            return nothing

    def _find(self, session: str) -> Found:
        """The row of a stored session.

        Raises:
            SessionNotFound: there is none.

        """
        check_id(session)
        found = self._ask(lambda db: find(db, self._namespace, session), None)
        if isinstance(found, Found):
            return found
        raise SessionNotFound(session, deleted_at=found)

    @contextmanager
    def _changing(self, session: str) -> Iterator[apsw.Connection]:
        try:
            with self._medium.transaction() as db:
                yield db
        except FileNotFoundError:
            raise SessionNotFound(session) from None

    # --- writing ---------------------------------------------------------------------------------

    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        self._find(session)
        hold = self._hold(session, escape_id(session), wait)
        try:
            # While it was waited for, its holder may have deleted it.
            hold.number = self._find(session).number
        except BaseException:
            hold.release()
            raise
        return hold

    def _hold(self, session: str, name: str, wait: float = 0.0) -> SqliteHold:
        return SqliteHold(session, self._medium, name, *self._locks.take(session, name, wait))

    def holder(self, session: str) -> Holder | None:
        self._find(session)
        return self._locks.holder(escape_id(session))

    def stage(self, header: Header) -> Hold:
        self._medium.make()
        self._sweep()
        token = self._runtime.token()
        taken = self._building.take(header.id, token)
        hold = SqliteHold(header.id, self._medium, token, *taken)
        hold.begin(0, Position(-1, header.genesis))
        hold.header = header
        hold.abandon = lambda: self._abandon(hold)
        return hold

    def _abandon(self, hold: SqliteHold) -> None:
        if hold.number:
            with suppress(PerdureError, FileNotFoundError):
                self._remove_new(hold.number)
        self._building.drop(hold.folder, hold.name)

    def _remove_new(self, number: int) -> None:
        with self._medium.transaction() as db:
            query = "SELECT 1 FROM sessions WHERE number = ? AND state = 'new'"
            if schema.ask(db, query, (number,)):
                trash.remove(db, number)
        self._swept()

    def _sweep(self) -> None:
        """Remove what writers that died left half built."""
        horizon = self._runtime.now_ms() - _STALE_MS
        query = (
            "SELECT number, plan FROM sessions WHERE state = 'new' AND namespace = ?"
            " AND deleted_at < ?"
        )
        with suppress(PerdureError, FileNotFoundError):
            bound = (self._namespace, horizon)
            kinds = (int, bytes)
            for number, plan in self._medium.read(lambda db: schema.ask(db, query, bound, kinds)):
                token = plan.decode("ascii", "replace")
                # Another name is none of ours, and leads nowhere.
                if _TOKEN.fullmatch(token) and self._building.holder(token) is None:
                    self._remove_new(number)
        self._building.sweep(horizon)

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        self._medium.make()
        self._sweep()
        room = None if staged is None else own(staged)
        try:
            hold = self._claim(header.id)
            try:
                self._build(hold, header, records, room)
            except BaseException as error:
                hold.release()
                if hold.dead and isinstance(error, StorageFull | StorageUnavailable):
                    # A commit that failed half-way may be found by whoever opens the file next.
                    told = StorageUnavailable(error.path, error.reason)
                    told.uncertain = True
                    raise told from error
                raise
        except SessionExists:
            if room is not None:
                room.release()
            raise
        if room is not None:
            room.number, room.abandon = 0, None
            self._building.drop(room.folder, room.name)
            room.release()
        return hold

    def _claim(self, session: str) -> SqliteHold:
        """The lock of an id that is free.

        Raises:
            SessionExists: it is not.
            SessionBusy: somebody has held it for seconds without storing anything.

        """
        deadline = self._runtime.monotonic() + _PUBLISH_SECONDS
        while True:
            found = self._ask(lambda db: find(db, self._namespace, session), None)
            if found is not None:
                raise SessionExists(session, deleted_at=None if isinstance(found, Found) else found)
            try:
                return self._hold(session, escape_id(session), wait=0.05)
            except SessionBusy:
                # It is being published, or moved to the trash.
                if self._runtime.monotonic() >= deadline:
                    raise

    def _build(
        self,
        hold: SqliteHold,
        header: Header,
        records: Iterable[Record],
        room: SqliteHold | None,
    ) -> None:
        """Store the whole session in one transaction."""
        with self._medium.transaction(hold.died) as db:
            taken = find(db, self._namespace, header.id)
            if taken is not None:
                deleted_at = None if isinstance(taken, Found) else taken
                raise SessionExists(header.id, deleted_at=deleted_at)
            number = insert_session(db, self._namespace, header, "stored")
            if room is not None and room.number:
                content.hand_over(db, room.number, number)
            hold.begin(number, Position(-1, header.genesis))
            position, size = hold.fill(db, number, header, records)
        hold.begin(number, position, size)

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        own(hold).commit(expected, records)

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        own(hold).settle(ending, seen)

    # --- reading ---------------------------------------------------------------------------------

    def stored(self, session: str) -> Stored:
        return stored_of(self._find(session), session)

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        # Found in the state that is read: in between it may be removed for good.
        query = "SELECT 1 FROM sessions WHERE number = ?"
        while True:
            found, snapshot = self._find(session), Snapshot(self._medium)
            if snapshot.rows(query, (found.number,)):
                break
            snapshot.close()
        yield from pieces(snapshot, found.number, begin, seq)

    def disagreements(self, session: str) -> Iterator[Problem]:
        yield from disagreements(Snapshot(self._medium), self._find(session))

    def tail(self, session: str) -> Tail:
        found = self._find(session)
        end = self._ask(lambda db: end_of(db, found.number), None)
        settled = end == (found.tail.seq, found.size)
        return Tail(found.tail, settled=settled, size=found.size)

    def entries(self) -> Iterator[Entry]:
        page = self._page("")
        while page:
            for found in page:
                stored = stored_of(found, found.id)
                yield Entry(
                    found.id, found.id, stored.header, stored.problem, self._revision(found)
                )
            page = self._page(page[-1].name)

    @property
    def beside(self) -> str | None:
        # A bundle is for handing on: nothing is put beside it for those who look into it.
        return self._medium.beside if self.kind is schema.STORE else None

    def revisions(self) -> Iterator[tuple[str, str]]:
        page = self._page("")
        while page:
            yield from ((found.id, self._revision(found)) for found in page)
            page = self._page(page[-1].name)

    def arrangement(self) -> str | None:
        # No number is given twice, and by chance no two sets of them agree in all of these sums.
        query = (
            "SELECT count(*), ifnull(sum(number), 0), ifnull(sum(number * number % 1000003), 0),"
            " ifnull(sum(number * number % 998244353 * 7919 % 1000033), 0), ifnull(max(number), 0)"
            " FROM sessions WHERE state = 'stored' AND namespace = ?"
        )
        bound, kinds = (self._namespace,), (int,) * 5
        none: list[Any] = []
        found = self._ask(lambda db: schema.ask(db, query, bound, kinds), none)
        return ":".join(str(number) for row in found for number in row)

    def _page(self, behind: str | bytes) -> list[Found]:
        nothing: list[Found] = []
        return self._ask(lambda db: trash.page(db, self._namespace, behind), nothing)

    def revision(self, session: str) -> str:
        return self._revision(self._find(session))

    def _revision(self, found: Found) -> str:
        # The hash tells apart what grew from two copies of one file.
        return f"sqlite:{found.store}:{found.number}:{found.revision}:{found.tail.hash[:16]}"

    def locate(self, session: str) -> str | None:
        check_id(session)
        return None

    # --- content ---------------------------------------------------------------------------------

    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        mine = own(hold)
        mine.check()
        with gathered(parts, self._medium.beside) as found:
            mine.check()
            blob = Blob(found.digest, found.size, self._runtime.now_ms())
            self._keep(mine, blob, found)
        return blob

    def _keep(self, hold: SqliteHold, blob: Blob, found: Gathered) -> None:
        """Store content that was read to its end."""
        with hold.transaction() as db:
            number = self.room(db, hold)
            content.store(db, number, blob, found.parts())
        hold.number = number

    def room(self, db: apsw.Connection, hold: SqliteHold) -> int:
        """The number of a session; one that is being built gets a row for what it has to keep."""
        if hold.number or hold.header is None:
            return hold.number
        number = insert_session(db, self._namespace, hold.header, "new")
        # Who may remove it, and when, if nobody publishes it.
        mark = (self._runtime.now_ms(), hold.name.encode(), number)
        db.execute("UPDATE sessions SET deleted_at = ?, plan = ? WHERE number = ?", mark)
        return number

    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        found = content.opened(self._medium, self._find(session).number, digest)
        return found[1] if found is not None else None

    def blobs(self, session: str) -> Iterator[Blob]:
        yield from content.stored(self._medium, self._find(session).number)

    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> None:
        mine = own(hold)
        mine.check()
        if digests:
            with mine.transaction() as db:
                for digest in digests:
                    content.remove(db, mine.number, digest)
            self._swept()

    def _swept(self) -> None:
        """What only a removed row referred to may go."""

    # --- the trash -------------------------------------------------------------------------------

    def discard(self, session: str, then: Callable[[Trashed], None]) -> Trashed:
        hold = self.lock(session)
        try:
            found = self._find(session)
            with self._locks.held(session, _moving(found.number)):
                now = self._runtime.now_ms()
                with self._changing(session) as db:
                    trash.discard(db, found.number, session, now)
                trashed = trash.trashed(found, now)
                then(trashed)
                return trashed
        finally:
            hold.release()

    def trash(self) -> Iterator[Trashed]:
        nothing: list[Trashed] = []
        return iter(self._ask(lambda db: trash.discarded(db, self._namespace), nothing))

    def restore(self, session: str, then: Callable[[], None]) -> None:
        check_id(session)
        found = self._ask(lambda db: find(db, self._namespace, session), None)
        if isinstance(found, Found):
            raise SessionExists(session)
        last = self._ask(lambda db: trash.last(db, self._namespace, session), None)
        if last is None:
            raise SessionNotFound(session)
        lock, folder = self._locks.take(session, escape_id(session))
        try:
            with self._locks.held(session, _moving(last)):
                with self._changing(session) as db:
                    trash.restore(db, last, session)
                then()
        finally:
            lock.release()
            folder.close()

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:
        number = int(trashed.place)
        query = "SELECT 1 FROM sessions WHERE number = ? AND state = 'deleted' AND namespace = ?"

        def there(db: apsw.Connection) -> bool:
            return bool(schema.ask(db, query, (number, self._namespace)))

        if not self._ask(there, nothing=False):
            return False
        with self._locks.held(trashed.id, _moving(number)):
            if not self._ask(there, nothing=False):
                return False
            first(trashed)
            with self._changing(trashed.id) as db:
                trash.remove(db, number)
            self._medium.shrink()
        self._swept()
        self._drop_lock(trashed.id)
        return True

    def _drop_lock(self, session: str) -> None:
        """The lock of an id that nobody has any more leaves its file behind."""
        if self._ask(lambda db: find(db, self._namespace, session), None) is None:
            with suppress(SessionBusy), self._locks.held(session, escape_id(session)):
                pass

    def close(self) -> None:
        if not self._parts:
            self._medium.close()


def _moving(number: int) -> str:
    """The lock of what is being moved to the trash, back, or out of it."""
    return f"+moving-{number}"
