"""Taking the right to write: who has it, whether they are gone, and the epoch against them."""

from contextlib import suppress
from typing import NamedTuple

from psycopg import errors

from perdure.backends.postgres.holding import PostgresHold
from perdure.backends.postgres.presence import Presence
from perdure.backends.postgres.signs import Sign, sign_of
from perdure.backends.postgres.waiting import wait_for
from perdure.databases.postgres import NotMade, Server, Unsure, Work
from perdure.durable.locks import Holder
from perdure.errors import PerdureError, SessionBusy, SessionNotFound, StorageUnavailable

__all__ = ["Leases"]

_STEP_SECONDS = 0.02
_LOCK_SECONDS = 2
"""So long the transaction of a writer who is stopped in the middle of it is waited for."""

_STUCK_SECONDS_MIN = 5.0
_BROKEN_SECONDS = 0.3
"""A writer whose connection broke makes another one within this, if it lives."""

# Whoever replaces or deletes it changes this row first, and is waited for here; the statement after
# this one sees what became of it.
_LOCKED = (
    "SELECT 1 FROM @sessions WHERE namespace = %s AND session = %s AND state = ANY(%s) FOR SHARE"
)
_STANDS = (
    "SELECT t.epoch, t.owner, t.hold, t.since FROM @tails t JOIN @sessions s"
    " ON s.namespace = t.namespace AND s.session = t.session"
    " WHERE t.namespace = %s AND t.session = %s AND s.state = ANY(%s)"
)
_TAKE = (
    "UPDATE @tails t SET epoch = epoch + 1, owner = %s, hold = %s, since = %s"
    " FROM @sessions s WHERE s.namespace = t.namespace AND s.session = t.session"
    " AND s.state = ANY(%s) AND t.namespace = %s AND t.session = %s AND t.epoch = %s"
    " AND t.owner IS NOT DISTINCT FROM %s RETURNING t.epoch"
)

# Who has locked the rows of a session for longer than a lease is in no hurry any more. The numbers
# of rows that several have locked are of another kind: that the transaction uses the tables is
# asked as well. Of other roles' transactions the beginning is seen only by a few.
_END_STUCK = (
    "SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks l JOIN pg_stat_activity a"
    " ON a.pid = l.pid WHERE l.locktype = 'transactionid' AND l.granted"
    " AND l.mode = 'ExclusiveLock' AND l.transactionid IN ("
    "SELECT xmax FROM @sessions WHERE namespace = %s AND session = %s"
    " UNION ALL SELECT xmax FROM @tails WHERE namespace = %s AND session = %s)"
    " AND a.xact_start < clock_timestamp() - make_interval(secs => %s)"
    " AND EXISTS (SELECT 1 FROM pg_locks r WHERE r.pid = l.pid AND r.locktype = 'relation'"
    " AND r.relation IN ('@sessions'::regclass, '@tails'::regclass))"
)


class _Stands(NamedTuple):
    epoch: int
    owner: int | None
    hold: str | None
    since: int | None


class _Broken:
    """A writer whose connection is gone, and since when that is seen."""

    def __init__(self) -> None:
        self.writer = 0
        self._since = 0.0

    def lasts(self, writer: int, now: float) -> bool:
        """Whether it is so for long enough to believe that the writer has gone with it."""
        if writer != self.writer:
            self.writer, self._since = writer, now
        return now - self._since >= _BROKEN_SECONDS


class Leases:
    """The rights to write the sessions of one namespace."""

    def __init__(self, server: Server, presence: Presence, namespace: str) -> None:
        """Nothing is taken yet."""
        self._server = server
        self._presence = presence
        self._namespace = namespace

    def take(
        self,
        session: str,
        number: int,
        wait: float = 0.0,
        *,
        states: tuple[str, ...] = ("stored",),
    ) -> PostgresHold:
        """The right to write a session, as soon as nobody has it.

        Raises:
            SessionNotFound: it is not there any more.
            SessionBusy: another writer has it, after `wait` seconds.

        """
        runtime = self._server.runtime
        hold = PostgresHold(session, self._namespace, self._server, self._presence)
        hold.entered = self._presence.enter(hold.token)
        hold.number = number
        deadline = runtime.monotonic() + wait
        waited = False
        broken = _Broken()
        try:
            while True:
                who = self._try(hold, states, broken)
                if who is None:
                    return hold
                if not waited or broken.writer or runtime.monotonic() < deadline:
                    waited = self._wait(hold, who[0])
                    continue
                _, said = who
                here = (said.pid, said.host) == (runtime.pid(), runtime.host())
                raise SessionBusy(
                    session, pid=said.pid, host=said.host, since=said.since, here=here
                )
        except BaseException:
            hold.release()
            raise

    def _wait(self, hold: PostgresHold, owner: int) -> bool:
        """A moment, within which a connection that was just broken off is noticed."""
        self._presence.tidy()
        if owner != self._presence.id:
            wait_for(self._server, owner)
        self._server.runtime.sleep(_STEP_SECONDS)
        hold.check()
        return True

    def _try(
        self, hold: PostgresHold, states: tuple[str, ...], broken: _Broken
    ) -> tuple[int, Holder] | None:
        """Take it if it is free; else who has it."""
        runtime = self._server.runtime
        gone = False

        def take(work: Work) -> tuple[int, Holder] | None:
            nonlocal gone
            found = work.row(_STANDS, *hold.mine, [*states])
            if found is None:
                raise SessionNotFound(hold.session)
            stands = _Stands(*found)
            if stands.hold == hold.token:
                # The answer to the last try was lost.
                hold.epoch, hold.touched = stands.epoch, [hold.number]
                return None
            sign = None
            hold.epoch = 0
            if stands.owner is not None and not self._is_nobodys(stands):
                sign = self._sign(work, stands.owner)
            if sign is None or not sign.broken:
                broken.writer = 0
            if sign is not None and stands.owner is not None:
                now = runtime.monotonic()
                if not sign.broken or not broken.lasts(stands.owner, now):
                    return stands.owner, sign.holder._replace(since=stands.since)
            gone = stands.owner is not None
            work.run(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'")
            if work.row(_LOCKED, *hold.mine, [*states]) is None:
                raise SessionNotFound(hold.session)
            before, hold.touched = hold.touched, [hold.number]
            taken = work.row(
                _TAKE,
                hold.entered,
                hold.token,
                runtime.now_ms(),
                [*states],
                *hold.mine,
                stands.epoch,
                stands.owner,
            )
            if taken is None:
                # What was sent before may be ours all the same.
                hold.touched = before
                return 0, Holder()
            hold.epoch = int(taken[0])
            return None

        try:
            return self._server.change(take, repeatable=True)
        except Unsure as error:
            raise self._server.unsure(error) from error
        except StorageUnavailable as error:
            if not isinstance(error.__cause__, errors.LockNotAvailable):
                raise
            # That it is gone is believed, and yet it has not let go: no more is to be waited for.
            broken.writer = 0
            if gone:
                self._end_stuck(hold)
            return 0, Holder()

    def _end_stuck(self, hold: PostgresHold) -> None:
        """End the transaction in the middle of which a writer that is gone was stopped."""
        # Nor those that wait for the same lock, for two seconds.
        lease = max(self._server.address.lease, _STUCK_SECONDS_MIN)
        with suppress(PerdureError, NotMade):
            self._server.read(lambda work: work.row(_END_STUCK, *hold.mine, *hold.mine, lease))

    def _is_nobodys(self, stands: _Stands) -> bool:
        """Whether no hold of this process has it, although its row says so.

        The answer to what gave it back, or to what took it, was lost.
        """
        return stands.owner == self._presence.id and stands.hold not in self._presence.tokens

    def _sign(self, work: Work, owner: int) -> Sign | None:
        address = self._server.address
        sign = sign_of(work, address.schema, address.lease, owner)
        if owner == self._presence.id:
            # Of this process, which lives, whatever became of its connection.
            holder = Holder(self._server.runtime.pid()) if sign is None else sign.holder
            return Sign(holder, broken=False)
        return sign

    def holder(self, work: Work, owner: int, since: int | None) -> Holder | None:
        """Who writes a session that `owner` has; None if that one is gone."""
        sign = self._sign(work, owner)
        return None if sign is None or sign.broken else sign.holder._replace(since=since)

    def builder_lives(self, work: Work, builder: int | None, *, surely: bool = True) -> bool:
        """Whether somebody is in the middle of moving a session, or of building it.

        Without `surely`, also if there is only a chance that they go on.
        """
        sign = None if builder is None else self._sign(work, builder)
        return sign is not None and not (sign.broken and surely)
