"""Taking the right to write: who has it, whether they are gone, and the epoch that shuts them out."""

from typing import NamedTuple

from perdure.backends.postgres.holding import PostgresHold
from perdure.backends.postgres.presence import Presence, gone, wait_for
from perdure.databases.postgres import Server, Unsure, Work
from perdure.durable.locks import Holder
from perdure.errors import SessionBusy, SessionNotFound, StorageUnavailable

__all__ = ["Leases"]

_STEP_SECONDS = 0.02
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


class _Stands(NamedTuple):
    epoch: int
    owner: int | None
    hold: str | None
    since: int | None


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
        hold.entered = self._presence.enter()
        hold.number = number
        deadline = runtime.monotonic() + wait
        waited = False
        try:
            while True:
                who = self._try(hold, states)
                if who is None:
                    return hold
                if not waited or runtime.monotonic() < deadline:
                    waited = self._wait(hold, who[0])
                    continue
                owner, said = who
                here = owner == self._presence.id
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

    def _try(self, hold: PostgresHold, states: tuple[str, ...]) -> tuple[int, Holder] | None:
        """Take it if it is free; else who has it."""
        runtime = self._server.runtime

        def take(work: Work) -> tuple[int, Holder] | None:
            found = work.row(_STANDS, *hold.mine, [*states])
            if found is None:
                raise SessionNotFound(hold.session)
            stands = _Stands(*found)
            if stands.hold == hold.token:
                # The answer to the last try was lost.
                hold.epoch = stands.epoch
                return None
            who = None
            if stands.owner is not None:
                who = self._alive(work, stands.owner)
            if who is not None and stands.owner is not None:
                return stands.owner, who._replace(since=stands.since)
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
                return 0, Holder()
            hold.epoch = int(taken[0])
            return None

        try:
            return self._server.change(take, repeatable=True)
        except Unsure as error:
            hint = "see the standbys: without one that answers no commit is durable"
            raise StorageUnavailable(self._server.place, "cannot commit", hint=hint) from error

    def _alive(self, work: Work, owner: int) -> Holder | None:
        address = self._server.address
        return gone(work, address.schema, address.lease, owner)

    def holder(self, work: Work, owner: int, since: int | None) -> Holder | None:
        """Who writes a session that `owner` has; None if that one is gone."""
        who = self._alive(work, owner)
        return None if who is None else who._replace(since=since)

    def builder_lives(self, work: Work, builder: int | None) -> bool:
        """Whether somebody is in the middle of moving a session, or of building it."""
        return builder is not None and self._alive(work, builder) is not None
