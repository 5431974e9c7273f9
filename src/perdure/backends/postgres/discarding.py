"""The trash: sessions change their state, and whoever moves one says so until it is done."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from psycopg import errors

from perdure.backends.base import Backend, Trashed
from perdure.backends.postgres.holding import GIVE_BACK
from perdure.backends.postgres.leases import Leases
from perdure.backends.postgres.logs import count_arrival
from perdure.backends.postgres.presence import Presence
from perdure.backends.postgres.reading import Found, discarded, find, trashed
from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.databases.postgres.keys import key
from perdure.errors import (
    SessionBusy,
    SessionExists,
    SessionNotFound,
    StorageUnavailable,
)
from perdure.model.header import check_id
from perdure.runtime import Runtime

__all__ = ["DiscardingBackend", "remove"]

T = TypeVar("T")

_WHICH = "namespace = %s AND session = %s"
_CLAIMED = f"SELECT state, builder FROM @sessions WHERE {_WHICH} FOR UPDATE"
_BUSY = f"SELECT builder FROM @sessions WHERE {_WHICH} AND state = 'deleted' FOR UPDATE"


def remove(work: Work, mine: tuple[str, int]) -> None:
    """Remove all rows of a session, and of the logs that were replaced in it."""
    kept = f"SELECT log FROM @asides WHERE {_WHICH} AND log IS NOT NULL"
    for each in (*(log for (log,) in work.rows(kept, *mine)), mine[1]):
        for table in (
            "records",
            "blob_parts",
            "blobs",
            "aside_parts",
            "asides",
            "derived",
            "tails",
            "sessions",
        ):
            work.run(f"DELETE FROM @{table} WHERE {_WHICH}", mine[0], each)


class DiscardingBackend(Backend):
    """The half of the backend that deletes."""

    _server: Server
    _runtime: Runtime
    _presence: Presence
    _leases: Leases
    _namespace: str

    @abstractmethod
    def _find(self, session: str) -> Found: ...

    @abstractmethod
    def _ask(self, question: Callable[[Work], T], nothing: T) -> T: ...

    def discard(self, session: str, then: Callable[[Trashed], None]) -> Trashed:
        hold = self._leases.take(session, self._find(session).number)
        try:
            found = self._find(session)
            now = self._runtime.now_ms()

            def discard(work: Work) -> None:
                work.run(
                    "UPDATE @sessions SET state = 'deleted', deleted_at = %s, builder = %s"
                    f" WHERE {_WHICH} AND state IN ('stored', 'deleted')",
                    now,
                    hold.entered,
                    *found.mine,
                )
                count_arrival(work, self._namespace, hold.token)

            told = trashed(found, now)
            try:
                with self._presence.moves.moving(found.mine, session):
                    hold.change(discard, alone=True)
                    then(told)
            finally:
                self._moved(found.number, hold.entered)
            return told
        finally:
            hold.release()

    def _moved(self, number: int, writer: int) -> None:
        """Whoever moved it is done."""
        mine = (self._namespace, number)
        self._presence.moves.give_back(
            mine,
            lambda: self._presence.soon(
                f"UPDATE @sessions SET builder = NULL WHERE {_WHICH} AND builder = %s",
                *(*mine, writer),
                again=lambda: self._moved(number, writer),
            ),
        )

    def trash(self) -> Iterator[Trashed]:
        nothing: list[Found] = []
        found = self._ask(lambda work: discarded(work, self._namespace), nothing)
        return iter([trashed(each, each.deleted_at or 0) for each in found])

    def restore(self, session: str, then: Callable[[], None]) -> None:
        check_id(session)
        number, token = self._last(session), self._runtime.token(8)
        with self._moving(session, number, token) as writer:

            def restore(work: Work) -> None:
                taken = find(work, self._namespace, session)
                if isinstance(taken, Found):
                    if taken.number == number:
                        return
                    raise SessionExists(session)
                changed = work.run(
                    "UPDATE @sessions SET state = 'stored', deleted_at = NULL"
                    f" WHERE {_WHICH} AND state = 'deleted' AND builder = %s",
                    self._namespace,
                    number,
                    writer,
                )
                if not changed:
                    raise SessionNotFound(session)
                # Nobody writes or deletes it before `then` was called.
                work.run(
                    "UPDATE @tails SET revision = revision + 1, epoch = epoch + 1, owner = %s,"
                    f" hold = %s, since = %s WHERE {_WHICH}",
                    writer,
                    token,
                    self._runtime.now_ms(),
                    self._namespace,
                    number,
                )
                count_arrival(work, self._namespace, token)

            try:
                self._changed(restore)
                then()
            except StorageUnavailable as error:
                if isinstance(error.__cause__, errors.UniqueViolation):
                    raise SessionExists(session) from error
                raise
            finally:
                self._presence.soon(GIVE_BACK, self._namespace, [number], token)

    def _last(self, session: str) -> int:
        """The number of what was deleted last under an id."""

        def question(work: Work) -> int | None:
            if isinstance(find(work, self._namespace, session), Found):
                raise SessionExists(session)
            found = work.row(
                "SELECT session FROM @sessions WHERE namespace = %s AND state = 'deleted'"
                " AND name = %s ORDER BY deleted_at DESC, session DESC LIMIT 1",
                self._namespace,
                key(session),
            )
            return None if found is None else int(found[0])

        number = self._ask(question, None)
        if number is None:
            raise SessionNotFound(session)
        return number

    def _changed(self, change: Callable[[Work], None]) -> None:
        try:
            self._server.change(change, repeatable=True)
        except Unsure as error:
            raise self._server.unsure(error) from error

    @contextmanager
    def _moving(self, session: str, number: int, token: str) -> Iterator[int]:
        """Nobody else restores or removes a deleted session while this lasts; `token` names it."""
        writer = self._presence.enter(token)
        try:
            claimed = False

            def claim(work: Work) -> None:
                nonlocal claimed
                found = work.row(_BUSY, self._namespace, number)
                if found is None:
                    raise SessionNotFound(session)
                # Whose answer was lost has claimed it already, perhaps; and what was claimed before
                # may not have been given back yet. No other thread is at it.
                if found[0] != writer and self._leases.builder_lives(work, found[0]):
                    raise SessionBusy(session)
                claimed = True
                work.run(
                    f"UPDATE @sessions SET builder = %s WHERE {_WHICH}",
                    writer,
                    self._namespace,
                    number,
                )

            try:
                with self._presence.moves.moving((self._namespace, number), session):
                    self._server.change(claim, repeatable=True)
                    yield writer
            except (NotMade, Unsure) as error:
                # Whether it is claimed or not: nothing was done yet.
                raise SessionBusy(session) from error
            finally:
                if claimed:
                    self._moved(number, writer)
        finally:
            self._presence.leave(token)

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:
        number = int(trashed.place)
        try:
            with self._moving(trashed.id, number, self._runtime.token(8)) as writer:
                first(trashed)

                def purge(work: Work) -> None:
                    # It may have taken so long that somebody has brought it back meanwhile.
                    found = work.row(_CLAIMED, self._namespace, number)
                    if found is not None and found != ("deleted", writer):
                        raise SessionBusy(trashed.id)
                    remove(work, (self._namespace, number))

                self._changed(purge)
        except SessionNotFound:
            return False
        return True
