"""Reading a whole log before something is built on it: by a reader, or by whoever writes next."""

from collections.abc import Callable

from perdure.backends.base import Backend, Hold, Tail
from perdure.errors import SessionExists, SessionNotFound
from perdure.model.header import Header
from perdure.recovery.walk import Known, Walk
from perdure.store.checkpoints import NAMES
from perdure.store.refusing import damage
from perdure.store.survey import Facts
from perdure.store.witness import Witness, known_of

__all__ = ["Reader", "bare", "refuse_taken", "settled", "verified"]

Reader = Callable[[str, Header, int, Known], Facts]
"""Reads the log of a session from where its records begin, held against what is known of it."""

Quick = Callable[[str, Header, int, Known, Tail], Facts | None]
"""Finds the same without reading the whole log, or gives None where that cannot be trusted."""


def bare(backend: Backend) -> Reader:
    """A reader in bounded memory: it finds where a log ends, no keys and nothing to be closed."""

    def read(session: str, header: Header, begin: int, known: Known) -> Facts:
        with Walk(header, backend.scan(session, begin), known=known, begin=begin) as walk:
            for _ in walk.records():
                pass
            return Facts(frozenset(), walk.ending, (), (), {})

    return read


def verified(
    backend: Backend, witness: Witness, session: str, read: Reader
) -> tuple[Header, Facts]:
    """What the log of a session holds that holds together; nobody is waited for.

    Raises:
        SessionNotFound: there is none.
        SessionDamaged: it does not hold together.
        FormatUnsupported: another version wrote it.

    """
    stored = backend.stored(session)
    if stored.header is None:
        raise damage(session, stored)
    known = known_of(stored.header, backend.tail(session), witness.about(session).seen)
    facts = read(session, stored.header, stored.begin, known)
    if facts.damaged:
        raise damage(session, stored, facts.ending.problem)
    return stored.header, facts


def settled(
    backend: Backend, witness: Witness, hold: Hold, read: Reader, quick: Quick | None = None
) -> tuple[Header, Facts]:
    """Verify the log of a session that is held, set a torn tail aside, take the position.

    All of it is read, but where `quick` knows enough and nobody was refused before.

    Raises:
        As `verified`. Damage is remembered, for the next who asks.

    """
    session = hold.session
    stored = backend.stored(session)
    if stored.header is None:
        if stored.unsupported is None:
            witness.report(session, stored.problem)
        raise damage(session, stored)
    tail = backend.tail(session)
    about = witness.about_to_write(session)
    known = known_of(stored.header, tail, about.seen)
    facts, ours = None, witness.knows(stored.header, about.seen)
    if quick is not None and not about.damage and ours:
        facts = quick(session, stored.header, stored.begin, known, tail)
    if facts is None:
        facts = read(session, stored.header, stored.begin, known)
    if facts.damaged:
        witness.report(session, facts.ending.problem)
        raise damage(session, stored, facts.ending.problem)
    witness.sound(session, about)
    witness.begin(session, about)
    backend.settle(hold, facts.ending, tail.acknowledged)
    if not ours and backend.persistent:
        # From now on this store knows the log; rows that came with it are still nobody's.
        for name in NAMES:
            backend.drop_derived(hold, name)
    return stored.header, facts


def refuse_taken(backend: Backend, session: str) -> None:
    """Refuse an id under which something is stored, or lies in the trash.

    Raises:
        SessionExists: there is.

    """
    try:
        backend.stored(session)
    except SessionNotFound as error:
        if error.deleted_at is not None:
            raise SessionExists(session, deleted_at=error.deleted_at) from None
    else:
        raise SessionExists(session)
