"""Many sessions in the tables of one schema.

See `DESIGN.md` beside this module for the invariants and the crash story.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar

from psycopg import errors

from perdure.backends.base import Blob, Entry, Hold, Stored, Tail
from perdure.backends.postgres import content, logs
from perdure.backends.postgres.discarding import DiscardingBackend, remove
from perdure.backends.postgres.evidence import ServerRows
from perdure.backends.postgres.holding import PostgresHold, own
from perdure.backends.postgres.keeping import KeepingBackend
from perdure.backends.postgres.leases import Leases
from perdure.backends.postgres.listening import Listener
from perdure.backends.postgres.presence import Presence, told_as
from perdure.backends.postgres.reading import (
    Found,
    disagreements,
    end_of,
    find,
    page,
    pieces,
    stored_of,
)
from perdure.databases.postgres import NotMade, Server, Unsure, Work, parse_address
from perdure.databases.postgres.keys import is_shortened, within
from perdure.durable.locks import Holder
from perdure.durable.temporary import gathered
from perdure.errors import PerdureError, SessionExists, SessionNotFound, StorageUnavailable
from perdure.evidence import Evidence
from perdure.model.header import Header, check_id, encode_header
from perdure.model.identity import namespace_key, namespace_parts
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece, Problem
from perdure.runtime import SYSTEM, Runtime

__all__ = ["PostgresBackend"]

T = TypeVar("T")

_LOOKS = 3
"""So often a session that is stored is found to be gone before that is believed."""

_REMOVED = "what was staged was removed"


class PostgresBackend(KeepingBackend, DiscardingBackend):
    """Sessions as rows of a PostgreSQL server."""

    scheme = "postgresql"

    def __init__(self, rest: str, *, runtime: Runtime = SYSTEM, **_: Any) -> None:
        """Name the place; nothing is connected or created before it is needed.

        `rest` is what follows the scheme: `//user@host:port/database?schema=…`.

        Raises:
            InvalidValue: it is no such address.

        """
        self._runtime = runtime
        self._server = Server(parse_address(f"{self.scheme}:{rest}"), runtime)
        self._presence = Presence(self._server)
        self._listener = Listener(self._server)
        self._evidence = Evidence(None, runtime=runtime, form=ServerRows(self._server))
        self._enter(())

    def _enter(self, parts: tuple[str, ...]) -> None:
        self._parts = parts
        self._space = namespace_key(parts)
        self._namespace = within(self._space)
        self._leases = Leases(self._server, self._presence, self._namespace)

    def __repr__(self) -> str:
        return self._server.place

    @property
    def place(self) -> str:
        return self._server.place

    @property
    def database(self) -> Server:
        return self._server

    def make(self) -> None:
        self._server.make()

    # --- namespaces ------------------------------------------------------------------------------

    def namespace(self, part: str) -> Self:
        check_id(part)
        below = object.__new__(type(self))
        below._runtime = self._runtime
        below._server = self._server
        below._presence = self._presence
        below._listener = self._listener
        below._evidence = self._evidence
        below._enter((*self._parts, part))
        return below

    def namespaces(self) -> Iterator[str]:
        # Behind "a/" and before "a0" is what begins with "a/": "0" is the character after "/".
        low = f"{self._space}/" if self._parts else ""
        high = f"{self._space}0" if self._parts else "\x7f"
        # From each name to the next one, so that the sessions between them are not read.
        query = (
            "WITH RECURSIVE each AS ("
            " (SELECT min(namespace) AS name FROM @sessions WHERE namespace > %s"
            " AND namespace < %s AND state IN ('stored', 'deleted'))"
            " UNION ALL SELECT (SELECT min(namespace) FROM @sessions"
            " WHERE namespace > each.name AND namespace < %s AND state IN ('stored', 'deleted'))"
            " FROM each WHERE each.name IS NOT NULL"
            ") SELECT name FROM each WHERE name IS NOT NULL"
        )
        shortened = (
            "SELECT p.full_name FROM @spaces p WHERE starts_with(p.full_name, %s) AND EXISTS ("
            "SELECT 1 FROM @sessions s WHERE s.namespace = p.namespace"
            " AND s.state IN ('stored', 'deleted'))"
        )
        depth, nothing = len(self._parts), set[str]()

        def below(work: Work) -> set[str]:
            found = {name for (name,) in work.rows(query, low, high, high)}
            # What stands shortened says by its row what it is; there are few.
            found = {name for name in found if not is_shortened(name)}
            found |= {name for (name,) in work.rows(shortened, low)}
            return {part for name in found if (part := _part_of(name, depth)) is not None}

        return iter(sorted(self._ask(below, nothing)))

    @property
    def parts(self) -> tuple[str, ...]:
        return self._parts

    @property
    def evidence(self) -> Evidence:
        return self._evidence

    # --- finding ---------------------------------------------------------------------------------

    def _ask(self, question: Callable[[Work], T], nothing: T) -> T:
        """The answer to a question, or `nothing` if no table is there."""
        try:
            return self._server.read(question)
        except NotMade:
            return nothing

    def _find(self, session: str) -> Found:
        """The row of a stored session.

        Raises:
            SessionNotFound: there is none.

        """
        check_id(session)
        found = self._ask(lambda work: find(work, self._namespace, session), None)
        if isinstance(found, Found):
            return found
        raise SessionNotFound(session, deleted_at=found)

    # --- writing ---------------------------------------------------------------------------------

    def lock(self, session: str, *, wait: float = 0.0) -> Hold:
        until = self._runtime.monotonic() + wait
        numbers: list[int] = []
        while numbers.count(number := self._find(session).number) < _LOOKS:
            numbers.append(number)
            # It may be replaced while it is waited for, or deleted and brought back.
            with suppress(SessionNotFound):
                left = max(0.0, until - self._runtime.monotonic())
                return self._leases.take(session, number, left)
        raise SessionNotFound(session)

    def holder(self, session: str) -> Holder | None:
        found = self._find(session)
        if found.owner is None:
            return None
        owner, since = found.owner, found.since
        return self._ask(lambda work: self._leases.holder(work, owner, since), None)

    def stage(self, header: Header) -> Hold:
        self._server.make()
        self._sweep()
        hold = self._hold(header)
        hold.abandon = self._abandon
        return hold

    def _hold(self, header: Header) -> PostgresHold:
        hold = PostgresHold(header.id, self._namespace, self._server, self._presence)
        hold.entered = self._presence.enter(hold.token)
        hold.begin(0, Position(-1, header.genesis))
        hold.header = header
        return hold

    def _abandon(self, hold: PostgresHold) -> None:
        """Remove what was staged, if it was not published after all: others may write it by now."""

        def abandon(work: Work) -> None:
            query = "SELECT state FROM @sessions WHERE namespace = %s AND session = %s FOR UPDATE"
            # Where its row is gone, what is left of it is nobody's.
            if work.row(query, *hold.mine) in (None, ("new",)):
                remove(work, hold.mine)

        if hold.number:
            with suppress(PerdureError, NotMade, Unsure):
                self._server.change(abandon, repeatable=True, patient=False)

    def _sweep(self) -> None:
        """Remove what writers that died left half built."""
        query = (
            "SELECT session, builder FROM @sessions WHERE namespace = %s AND state = 'new'"
            " AND builder IS NOT NULL ORDER BY session FOR UPDATE SKIP LOCKED"
        )

        def sweep(work: Work) -> None:
            for number, builder in work.rows(query, self._namespace):
                if not self._leases.builder_lives(work, builder, surely=False):
                    remove(work, (self._namespace, number))

        with suppress(PerdureError, NotMade, Unsure):
            self._server.change(sweep, repeatable=True)

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        self._server.make()
        room = None if staged is None else own(staged)
        hold = room if room is not None else self._hold(header)
        try:
            self._build(hold, header, records)
        except BaseException as error:
            if room is None or isinstance(error, SessionExists):
                hold.release()
            raise
        hold.header, hold.abandon = None, None
        self._presence.changed(self._namespace, header.id)
        return hold

    def _build(self, hold: PostgresHold, header: Header, records: Iterable[Record]) -> None:
        """Store the whole session in one transaction."""
        done: dict[str, tuple[int, Position, int]] = {}
        # What can be gone through once is not sent again.
        again = isinstance(records, Sequence)

        def build(work: Work) -> None:
            taken = find(work, self._namespace, header.id)
            if "at" in done and isinstance(taken, Found) and self._is_ours(work, hold, taken):
                return
            if taken is not None:
                deleted_at = None if isinstance(taken, Found) else taken
                raise SessionExists(header.id, deleted_at=deleted_at)
            number = self._published(work, hold, header)
            hold.touched.append(number)
            position, size = logs.fill(work, self._namespace, number, header, records)
            work.run(
                "INSERT INTO @tails (namespace, session, tail_seq, tail_hash, size, revision,"
                " epoch, owner, hold, since) VALUES (%s, %s, %s, %s, %s, 1, 1, %s, %s, %s)",
                self._namespace,
                number,
                *position,
                size,
                hold.entered,
                hold.token,
                self._runtime.now_ms(),
            )
            logs.count_arrival(work, self._namespace, hold.token)
            done["at"] = (number, position, size)

        def confirm(work: Work) -> bool:
            taken = find(work, self._namespace, header.id)
            return isinstance(taken, Found) and self._is_ours(work, hold, taken)

        try:
            try:
                self._server.change(build, repeatable=again, once=not again)
            except StorageUnavailable as error:
                taken = isinstance(error.__cause__, errors.UniqueViolation)
                if not taken and error.reason != _REMOVED:
                    raise
                # Published meanwhile: by what was sent before, or by another one.
                if "at" not in done or not self._confirmed(confirm):
                    if not taken:
                        raise
                    raise SessionExists(header.id) from error
        except Unsure as error:
            if not self._confirmed(confirm):
                told = StorageUnavailable(
                    self._server.place,
                    "the answer to the commit was lost",
                    hint="look whether it is there, and try again",
                )
                told.uncertain = told.retryable = True
                raise told from error
        hold.begin(*done["at"])
        hold.epoch = 1

    def _is_ours(self, work: Work, hold: PostgresHold, found: Found) -> bool:
        """Whether a session is what this hold published, though the answer was lost."""
        query = "SELECT hold FROM @tails WHERE namespace = %s AND session = %s AND epoch = 1"
        return work.row(query, *found.mine) == (hold.token,)

    def _confirmed(self, question: Callable[[Work], bool]) -> bool:
        """The answer to a question about what was stored; if it is yes, it is on the standbys."""

        def confirm(work: Work) -> bool:
            if not question(work):
                return False
            self._server.mark(work)
            return True

        with suppress(PerdureError, NotMade, Unsure):
            return self._server.change(confirm, repeatable=True)
        return False

    def _inserted(self, work: Work, header: Header, state: str, builder: int | None = None) -> int:
        """The number of a new session."""
        if self._space != self._namespace:
            work.run(
                "INSERT INTO @spaces VALUES (%s, %s) ON CONFLICT DO NOTHING",
                self._namespace,
                self._space,
            )
        return logs.insert_session(work, self._namespace, header, state, builder)

    def _published(self, work: Work, hold: PostgresHold, header: Header) -> int:
        """The row of a session that is published: that of its room, or a new one."""
        if not hold.number:
            return self._inserted(work, header, "stored")
        changed = work.run(
            "UPDATE @sessions SET state = 'stored', builder = NULL, header = %s, created_at = %s"
            " WHERE namespace = %s AND session = %s AND state = 'new'",
            encode_header(header),
            header.created_at,
            *hold.mine,
        )
        if not changed:
            raise StorageUnavailable(self._server.place, _REMOVED)
        return hold.number

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        own(hold).commit(expected, records)

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        logs.settle(own(hold), ending, seen)

    # --- reading ---------------------------------------------------------------------------------

    def stored(self, session: str) -> Stored:
        return stored_of(self._find(session), session)

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        found = self._find(session)
        yield from pieces(self._server, session, found, begin, seq)

    def disagreements(self, session: str) -> Iterator[Problem]:
        found = self._find(session)
        if found.id != session:
            yield Problem("column", None, 0, 0, "the row of the session has another id")
        yield from disagreements(self._server, found.mine)

    def tail(self, session: str) -> Tail:
        mine = self._find(session).mine
        found = self._server.read(lambda work: end_of(work, mine))
        if found is None:
            raise SessionNotFound(session)
        tail, size, end = found
        return Tail(tail, settled=end == (tail.seq, size), size=size)

    def entries(self) -> Iterator[Entry]:
        for found in self._all():
            stored = stored_of(found, found.id)
            yield Entry(found.id, found.id, stored.header, stored.problem, found.told)

    def revisions(self) -> Iterator[tuple[str, str]]:
        return ((found.id, found.told) for found in self._all())

    def _all(self) -> Iterator[Found]:
        behind, nothing = b"", list[Found]()
        while found := self._ask(partial(page, self._namespace, behind), nothing):
            yield from found
            behind = found[-1].name

    def arrangement(self) -> str | None:
        query = "SELECT coalesce(sum(changes), 0)::bigint FROM @arrivals WHERE namespace = %s"
        found = self._ask(lambda work: work.row(query, self._namespace), None)
        return "" if found is None else str(found[0])

    def revision(self, session: str) -> str:
        return self._find(session).told

    def subscribe(self, session: str, told: Callable[[], None]) -> Callable[[], None] | None:
        return self._listener.subscribe(told_as(self._namespace, session), told)

    def locate(self, session: str) -> str | None:
        check_id(session)
        return None

    # --- content ---------------------------------------------------------------------------------

    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        mine = own(hold)
        mine.check()
        with gathered(parts, None) as found:
            mine.check()
            blob = Blob(found.digest, found.size, self._runtime.now_ms())
            self._room(mine)
            mine.change(lambda work: content.store(work, mine.mine, blob, found.parts()))
        return blob

    def _room(self, hold: PostgresHold) -> None:
        """A session that is being built gets a row for what it has to keep."""
        header = hold.header
        if hold.number or header is None:
            return

        def make(work: Work) -> int:
            return self._inserted(work, header, "new", hold.entered)

        try:
            # If its answer is lost, a row is left that the next sweep removes.
            hold.number = self._server.change(make, repeatable=True)
        except Unsure as error:
            raise self._server.unsure(error) from error

    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        mine = self._find(session).mine
        if "\0" in digest or not digest.isascii():
            return None
        return content.opened(self._server, mine, digest)

    def blobs(self, session: str) -> Iterator[Blob]:
        mine = self._find(session).mine
        return iter(self._server.read(lambda work: content.stored(work, mine)))

    def drop_blobs(self, hold: Hold, digests: Collection[str]) -> None:
        mine = own(hold)
        mine.check()
        if not digests:
            return

        def drop(work: Work) -> None:
            for digest in digests:
                content.remove(work, mine.mine, digest)

        mine.change(drop)

    def close(self) -> None:
        if not self._parts:
            self._listener.close()
            self._presence.close()
            self._server.close()


def _part_of(name: str, depth: int) -> str | None:
    """The part of a namespace at a depth; None if no namespace of ours is called so."""
    try:
        parts = namespace_parts(name)
    except UnicodeDecodeError:
        return None
    return parts[depth] if len(parts) > depth and namespace_key(parts) == name else None
