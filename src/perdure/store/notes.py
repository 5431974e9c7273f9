"""What importers ask and keep of a store besides its calls.

A note is derived data beside a session: it can be made from the log and its source again, is never
synced and may be gone.
"""

from perdure.errors import PerdureError
from perdure.store.session import Session
from perdure.store.store import Store

__all__ = ["deleted_ids", "know_new", "note_of", "put_note"]


def note_of(store: Store, id: str, name: str) -> bytes | None:
    """A note of a session, or None; also where it cannot be read."""
    try:
        return store._backend.derived(id, name)  # noqa: SLF001 - of this package
    except PerdureError:
        return None


def put_note(session: Session, name: str, data: bytes) -> None:
    """Store a note, as far as that is possible: nobody is to depend on it."""
    hold = session._hold  # noqa: SLF001 - of this package
    if hold is None or session.closed:
        return
    try:
        session._backend.put_derived(hold, name, data)  # noqa: SLF001 - of this package
    except PerdureError:
        return


def deleted_ids(store: Store) -> set[str]:
    """The ids that are taken by what was deleted; one of them may have been restored since."""
    witness = store._witness  # noqa: SLF001 - of this package
    buried = witness.evidence.all_deleted(witness.namespace)
    return {one.session for one in buried} | {one.id for one in store.trash()}


def know_new(session: Session) -> None:
    """Have no key that comes looked up in the log: whoever appends knows that none is there yet.

    Without this the first event with a key has all of the log read.
    """
    session._queue.know_new()  # noqa: SLF001 - of this package
