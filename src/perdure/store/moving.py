"""What a store does to bring its sessions, and what is remembered of them, to another store."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from perdure.backends.base import Backend, Entry
from perdure.errors import (
    InvalidValue,
    PerdureError,
    SessionDamaged,
    SessionNotFound,
    StorageFull,
    StorageUnavailable,
    UnsafeFile,
)
from perdure.evidence import Acceptance, Deleted, Seen
from perdure.model import values
from perdure.model.header import check_id
from perdure.runtime import Runtime
from perdure.store.copying import Copied, Side, copy_session, refuse_same_place
from perdure.store.keeping import check_wait
from perdure.store.retention import Retention
from perdure.store.witness import Witness

__all__ = ["Moving", "NotCopied", "Outcome", "known_digests", "takes_nothing"]


class NotCopied(NamedTuple):
    """What could not be copied, and kept nothing else from being copied.

    Attributes:
        session: its id; None if the error is about the namespace or about what is remembered.
        error: why.
        namespace: where it is below the store that was copied, outermost part first.
        tried: False if it was not read any more, because the error, of one that came before, says
            that the other store takes nothing.

    """

    session: str | None
    error: PerdureError
    namespace: tuple[str, ...] = ()
    tried: bool = True


Outcome = Copied | NotCopied


class Moving(ABC):
    """The moving part of a store; `Store` is what callers see of it."""

    _backend: Backend
    _retention: Retention
    _runtime: Runtime
    _witness: Witness

    @abstractmethod
    def namespace(self, *parts: str) -> "Moving":
        """The store of a namespace."""

    @abstractmethod
    def _check_open(self) -> None: ...

    def copy(self, id: str, other: "Moving", *, wait: float = 0.0) -> Copied:
        """Copy a session to `other`, another store, where it gets the same id.

        Header, records and hashes there are the same, byte for byte; stored content comes along,
        checked on the way. The session may be read and written here meanwhile: what is copied is
        the log as of some moment. No closers are committed. Nothing here is changed.

        Doing it again adds what is new. A copy that broke off leaves the beginning of the log,
        sound in itself, and is continued by the next. `wait`: seconds to wait for a writer there.

        Raises:
            InvalidValue: `other` is no store, or this very place.
            SessionNotFound: there is none here.
            SessionDamaged: the log here, or the one there, does not hold together.
            SessionDiverged: there is another log of this id there.
            SessionExists: the id was deleted there, or vanished.
            SessionBusy: somebody writes it there.
            FormatUnsupported: another version wrote it.
            StorageFull, StorageUnavailable: what came before is there, and can be continued.

        """
        check_id(id)
        check_wait(wait)
        source, target = _sides(self, other)
        with self._retention.telling(id):
            copied = copy_session(id, source, target, wait)
        _carry(target, acceptances=_acceptances(source, target, [id]))
        return copied

    def copy_all(
        self, other: "Moving", *, progress: Callable[[Outcome], object] | None = None
    ) -> list[Outcome]:
        """Copy all sessions to `other`, those of the namespaces below too, as by `copy`.

        What cannot be copied is named in its place and stops nothing else, unless `other` is full
        or takes no session any more: then all further ones are outcomes with the same error that
        were not `tried`. `progress` is called with each outcome as soon as it is known.

        What is remembered beside the logs comes along: the tombstones of deleted sessions, the
        positions of those that vanished, and what was accepted. Deleted sessions themselves stay
        in the trash here. Nothing newer that is remembered there is overwritten.

        Raises:
            InvalidValue: `other` is no store, is this very place or lies in it.

        """
        source, target = _sides(self, other)
        refuse_same_place(source.backend, target.backend, inside=True)
        outcomes: list[Outcome] = []

        def tell(outcome: Outcome) -> None:
            # What keeps a namespace from being read may keep those below it from being found.
            if any(_same_failure(outcome, each) for each in outcomes):
                return
            outcomes.append(outcome)
            if progress is not None:
                progress(outcome)

        refusal: PerdureError | None = None
        for parts in [*_spaces(source.backend, tell)]:
            here, there = _sides(self.namespace(*parts), other.namespace(*parts))
            refusal = _copy_space(here, there, parts, tell, refusal)
        return outcomes

    def _side(self) -> Side:
        self._check_open()
        return Side(self._backend, self._witness, self._retention, self._runtime)


def known_digests(store: Moving) -> dict[str, set[str | None]]:
    """Of each id, the digests of the headers that it has or had here.

    Of what is stored, of what lies in the trash, and of what is remembered as deleted or seen. None
    stands for a header that cannot be read.
    """
    side = store._side()  # noqa: SLF001 - see `_sides`
    witness = side.witness
    found: dict[str, set[str | None]] = {}
    for entry in side.backend.entries():
        digest = entry.header.digest if entry.header is not None else None
        found.setdefault(entry.id, set()).add(digest)
    for trashed in side.backend.trash():
        found.setdefault(trashed.id, set()).add(trashed.digest)
    for deleted in witness.evidence.all_deleted(witness.namespace):
        found.setdefault(deleted.session, set()).add(deleted.digest)
    for seen in witness.evidence.everything_known(witness.namespace):
        found.setdefault(seen.session, set()).add(seen.digest)
    return found


def _sides(source: Moving, target: object) -> tuple[Side, Side]:
    """Both places, open.

    Raises:
        InvalidValue: the other one is no store.
        StoreClosed: one of them was closed.

    """
    if not isinstance(target, Moving):
        reason = f"{values.shown(target)} is no store"
        raise InvalidValue("other", reason, hint="perdure.open(…) gives one")
    return source._side(), target._side()  # noqa: SLF001 - a store knows its own kind


def _copy_space(
    source: Side,
    target: Side,
    parts: tuple[str, ...],
    tell: Callable[[Outcome], None],
    refusal: PerdureError | None,
) -> PerdureError | None:
    """One namespace: its sessions, then what is remembered of them and of others.

    After the `refusal` of a destination, which is also what this returns, all is named and nothing
    is read.
    """
    copied: list[str] = []
    try:
        for entry in [*source.backend.entries()]:
            if refusal is not None:
                tell(NotCopied(entry.id, refusal, parts, tried=False))
                continue
            outcome = _copy_entry(source, target, entry, parts)
            if isinstance(outcome, Copied):
                copied.append(outcome.session)
            elif outcome is not None and _takes_nothing(target, outcome.error, entry):
                refusal = outcome.error
            if outcome is not None:
                tell(outcome)
        if refusal is not None:
            return refusal
        unreadable = source.witness.state().unreadable
        if unreadable is not None:
            raise StorageUnavailable(
                "what is remembered beside the logs",
                f"cannot be read: {unreadable}",
                hint="until a writer of that store has settled it, what is lost goes unnoticed",
            )
        _carry_evidence(source, target, copied)
    except PerdureError as error:
        tell(NotCopied(None, error, parts))
    return refusal


def _same_failure(one: Outcome, other: Outcome) -> bool:
    """Whether both say the same of one namespace."""
    if not (isinstance(one, NotCopied) and isinstance(other, NotCopied)):
        return False
    if one.session is not None or other.session is not None:
        return False
    return (one.namespace, one.error.message) == (other.namespace, other.error.message)


def takes_nothing(source: Moving, target: Moving, session: str, error: PerdureError) -> bool:
    """Whether `target`, which refused a session of `source` with `error`, would refuse all."""
    if isinstance(error, StorageFull):
        return True
    here, there = _sides(source, target)
    try:
        entry = next((each for each in here.backend.entries() if each.id == session), None)
    except PerdureError:
        return False
    return entry is not None and _takes_nothing(there, error, entry)


def _takes_nothing(target: Side, error: PerdureError, entry: Entry) -> bool:
    """Whether a destination that refused one session would refuse all of them."""
    if isinstance(error, StorageFull):
        return True
    if not isinstance(error, StorageUnavailable | UnsafeFile) or entry.header is None:
        return False
    try:
        # Perhaps it was the source, or this session alone: making room for another tells.
        target.backend.stage(entry.header).release()
    except (StorageFull, StorageUnavailable, UnsafeFile):
        return True
    except PerdureError:
        return False
    return False


def _copy_entry(source: Side, target: Side, entry: Entry, parts: tuple[str, ...]) -> Outcome | None:
    """What became of one session; None if it was deleted meanwhile."""
    try:
        with source.retention.telling(entry.id):
            return copy_session(entry.id, source, target)._replace(namespace=parts)
    except SessionNotFound as error:
        if error.deleted_at is not None:
            return None
        if entry.problem is not None:
            # Nobody finds it by the id that its header would tell.
            damaged = SessionDamaged(entry.id, entry.problem.reason, kind=entry.problem.kind)
            return NotCopied(entry.id, damaged, parts)
        return NotCopied(entry.id, error, parts)
    except PerdureError as error:
        return NotCopied(entry.id, error, parts)


# --- what is remembered ---------------------------------------------------------------------------


def _carry_evidence(source: Side, target: Side, copied: Iterable[str]) -> None:
    """Tombstones, positions of what vanished, acceptances; nothing of what is stored there."""
    deleted = [
        one
        for one in _tombstones(source)
        if _lacks(target.backend, one.session) and target.witness.about(one.session).deleted is None
    ]
    seen: list[Seen] = []
    for vanished in source.retention.missing():
        if _lacks(target.backend, vanished.id):
            known = target.witness.about(vanished.id).seen
            seen += [one for one in source.witness.about(vanished.id).seen if one not in known]
    ids = [*copied, *(one.session for one in deleted), *(one.session for one in seen)]
    acceptances = _acceptances(source, target, ids)
    _carry(target, seen=seen, deleted=deleted, acceptances=acceptances)


def _tombstones(side: Side) -> list[Deleted]:
    """Of what was removed for good, and of what lies in the trash, which stays behind."""
    witness = side.witness
    found = {one.session: one for one in witness.evidence.all_deleted(witness.namespace)}
    for each in side.backend.trash():
        found.setdefault(each.id, Deleted(each.id, each.digest, each.deleted_at))
    # A crash may have left one on a session that was restored.
    return [one for one in found.values() if _lacks(side.backend, one.session, trash=True)]


def _acceptances(source: Side, target: Side, sessions: Iterable[str]) -> list[Acceptance]:
    """What was accepted of these sessions, as far as nobody knows it there."""
    mine, theirs = source.witness, target.witness
    now = target.runtime.now_ms()
    found: list[Acceptance] = []
    for session in dict.fromkeys(sessions):
        made = mine.evidence.acceptances(mine.namespace, session)
        known = theirs.evidence.acceptances(theirs.namespace, session) if made else []
        # One from the future would keep positions that are seen now from being noted.
        found += [one for one in made if one.accepted_at < now and one not in known]
    return found


def _carry(
    target: Side,
    *,
    seen: Sequence[Seen] = (),
    deleted: Sequence[Deleted] = (),
    acceptances: Sequence[Acceptance] = (),
) -> None:
    if not (seen or deleted or acceptances):
        return
    witness = target.witness
    carry = partial(
        witness.evidence.carry,
        witness.namespace,
        seen=seen,
        deleted=deleted,
        acceptances=acceptances,
    )
    try:
        carry()
    except StorageUnavailable:
        # Where nothing was ever stored there is no place for it.
        target.backend.make()
        carry()


def _lacks(backend: Backend, session: str, *, trash: bool = False) -> bool:
    """Whether no session of this id is stored, nor, unless with `trash`, in the trash."""
    try:
        backend.stored(session)
    except SessionNotFound as error:
        return trash or error.deleted_at is None
    except PerdureError:
        # Something is there, whatever is wrong with it.
        return False
    return False


def _spaces(
    backend: Backend, tell: Callable[[Outcome], None], parts: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """The namespaces of a backend, itself first, each by its parts below it."""
    yield parts
    try:
        names = [*backend.namespaces()]
    except PerdureError as error:
        tell(NotCopied(None, error, parts))
        return
    for name in names:
        yield from _spaces(backend.namespace(name), tell, (*parts, name))
