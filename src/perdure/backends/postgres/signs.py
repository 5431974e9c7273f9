"""Signs of life of other writers: what their rows and locks say."""

from typing import NamedTuple

from perdure.databases.postgres import Work
from perdure.durable.locks import Holder

__all__ = ["INCARNATION", "LOCKED", "Sign", "sign_of"]

INCARNATION = "extract(epoch FROM pg_postmaster_start_time())::text"
"""This life of the server, in which locks of writers say something."""

# Exclusive: whoever waits for the end of a writer has the same lock for a moment, shared.
LOCKED = (
    "FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted AND l.mode = 'ExclusiveLock'"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND l.classid = hashtext('perdure ' || %s)::oid AND l.objid = %s AND l.objsubid = 2"
)
_STATE = (
    f"SELECT w.held AND w.incarnation = {INCARNATION}, EXISTS (SELECT 1 {LOCKED}),"
    " w.beat_at NOT BETWEEN clock_timestamp() - make_interval(secs => %s)"
    " AND clock_timestamp() + make_interval(secs => %s), w.pid, w.host"
    " FROM @writers w WHERE w.id = %s"
)


class Sign(NamedTuple):
    """What is known of a writer that is not known to be gone.

    Attributes:
        holder: who it is.
        broken: whether its connection is gone. Then its process is as well, or is about to make
            another one.

    """

    holder: Holder
    broken: bool


def sign_of(work: Work, schema: str, lease: float, writer: int) -> Sign | None:
    """None if a writer is gone or has not given a sign of life for too long."""
    # Nor does one from a time to come count: the clock of the server was set back.
    found = work.row(_STATE, schema, writer, lease, lease, writer)
    if found is None:
        return None
    exact, there, silent, pid, host = found
    if silent:
        return None
    return Sign(Holder(pid, host, None), broken=exact and not there)
