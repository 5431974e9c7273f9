"""What a list says of a session, summed up event by event, so that it can be gone on with later."""

from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from perdure.catalog.contract import Listed
from perdure.durable.locks import Holder
from perdure.lenses.registry import told
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import VOCABULARY, Header
from perdure.model.record import Position
from perdure.recovery.closers import OpenWork
from perdure.views import facts
from perdure.views.facts import SessionFacts
from perdure.views.fold import Fold
from perdure.views.listing import ListingView, listing
from perdure.views.projection import Projection
from perdure.views.usage import UsageView, usage
from perdure.views.view import View

__all__ = ["Sum", "listed_unread", "proven_keys", "rules_of"]

T = TypeVar("T")

_OWN: tuple[View, ...] = (SessionFacts(), UsageView(), ListingView())
_CRASHED, _INTERRUPTED = "crashed", ("aborted", "interrupted")
_TITLE_CHARS = 1000
_WRAP = 1 << 53
"""JSON carries no larger integers that all readers take."""


class _Dumped(msgspec.Struct):
    """What `Sum.dump` gives."""

    rows: dict[str, dict[str, Any]]
    work: Any
    last: int | None
    skipped: int
    why: str | None
    failed: bool
    keys: int = 0
    keyed: int = 0


def rules_of() -> str:
    """What the sums of a session depend on besides its log, its lens and a projection."""
    return " ".join(f"{view.name}/{view.version}" for view in _OWN)


class Sum:
    """The sums over the events of one session up to one of them.

    Attributes:
        last: time of the event that came last, Unix milliseconds, or None.
        skipped: how many records could not be read; a projection that failed counts as one.
        why: what was wrong with the first of them, or with the projection; or None.
        keys: how many keyed events there are.
        keyed: their sum, as `key_sum` makes it.
        unvalued: why the projection gave no value when it was asked last, or None.

    """

    def __init__(
        self,
        header: Header,
        projection: Projection | None,
        read: Callable[[int], Iterator[Event]],
        state: bytes | None = None,
    ) -> None:
        """Begin before event 0, or where `dump` gave the `state`.

        `read` gives the events before one of a number, to a projection that asks for them.

        Raises:
            ValueError: no `dump` gave this state.

        """
        self._header = header
        self._projection = projection
        self._work = OpenWork()
        self.last: int | None = None
        self.skipped, self._failed = 0, False
        self.keys = self.keyed = 0
        self.why: str | None = None
        self.unvalued: str | None = None
        rows: dict[str, Any] = {}
        if state is not None:
            try:
                known = msgspec.convert(values.decode(state), _Dumped)
            except msgspec.ValidationError as error:
                raise ValueError(str(error)) from error
            rows, self.last = known.rows, known.last
            self.skipped, self.why, self._failed = known.skipped, known.why, known.failed
            self.keys, self.keyed = known.keys, known.keyed
            self._work = OpenWork.restored(known.work)
        at = None if state is None else Position(-1, header.genesis)
        self._fold = Fold(_OWN, header, read, rows=rows, position=at)
        # One that fails takes nothing else with it.
        self._own: Fold | None = None
        if projection is not None and not self._failed:
            made = lambda: Fold((projection,), header, read, rows=rows, position=at)  # noqa: E731
            self._own = self._guarded(made)

    def _guarded(self, do: Callable[[], T]) -> T | None:
        try:
            return do()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is a user's
            self._own, self._failed = None, True
            self.skipped += 1
            self.why = self.why or f"the projection failed: {told(error)}"
            return None

    def key(self, type: str, key: str, seq: int) -> None:  # noqa: A002
        """An event has a key."""
        self.keys, self.keyed = self.keys + 1, (self.keyed + _key_digest(type, key, seq)) % _WRAP

    def skip(self, why: str) -> None:
        """A record could not be read."""
        self.skipped += 1
        self.why = self.why or values.text(why[:300])

    def event(self, event: Event) -> None:
        """Take the next event into account."""
        self._fold.event(event)
        if self._header.source is None or event.seq >= self._header.seed:
            # What an import left open, nobody here works on.
            self._work.event(event)
        if self._own is not None:
            own = self._own
            self._guarded(lambda: own.event(event))

    def dump(self) -> bytes:
        """The sums, to go on with."""
        rows = {name: dict(each.all) for name, each in self._fold.rows.items()}
        own = self._own
        if own is not None:
            # What it keeps may be nothing that can be written down.
            kept = self._guarded(lambda: [*_rows_of(own).items(), values.encode(_rows_of(own))])
            rows |= _rows_of(own) if kept is not None else {}
        facts = (self.last, self.skipped, self.why, self._failed, self.keys, self.keyed)
        known = _Dumped(rows, self._work.dump(), *facts)
        return values.encode(msgspec.structs.asdict(known))

    def listed(
        self, *, events: int, size: int, holder: Holder | None, problem: str | None
    ) -> Listed:
        """The session as it is to be listed."""
        header, found = self._header, listing(self._fold.rows["listing"])
        session = self._fold.rows["session"]
        given, run = facts.title(session), facts.run(session)
        named = given is not None and bool(given.strip())
        used = usage(self._fold.rows["usage"]).own
        source = header.source
        projected, self.unvalued = None, None
        own, projection = self._own, self._projection
        if own is not None and projection is not None:
            rows = own.rows[projection.name]
            try:
                given = values.snapshot(projection.value(rows), "projection")
                projected = values.decode(values.encode(given))
            except (Exception, SystemExit) as error:  # noqa: BLE001 - it is a user's
                # Said of this value alone: the fold goes on.
                self.unvalued = f"the projection gives no value: {told(error)}"
        return msgspec.structs.replace(
            _of_header(header),
            title=_title(given) if named else found.preview,
            named=named,
            preview=found.preview,
            last_active=header.created_at if self.last is None else self.last,
            status=self._status(found.ended, holder, problem),
            agents=found.agents,
            cwd=facts.cwd(session) or header.cwd,
            host=run.host if run is not None else None if source is None else source.host,
            events=events,
            turns=found.turns,
            messages=found.messages,
            calls=found.calls,
            failures=found.failures,
            tokens=used.input + used.output,
            cost=used.cost,
            size=size,
            archived=facts.archived(session),
            problem=problem,
            projection=projected,
        )

    def _status(self, ended: str | None, holder: Holder | None, problem: str | None) -> str:
        if problem is not None:
            return "damaged"
        if holder is not None:
            return "running"
        if self._header.vocabulary == VOCABULARY and self._work.closers():
            return _CRASHED
        if facts.ended(self._fold.rows["session"]):
            return "completed"
        return "interrupted" if ended in _INTERRUPTED else "paused"


def _rows_of(fold: Fold) -> dict[str, dict[str, Any]]:
    return {name: dict(each.all) for name, each in fold.rows.items()}


def proven_keys(state: bytes, seqs: Mapping[tuple[str, str], int]) -> bool:
    """Whether these are the keyed events that were summed up in a state, all of them.

    Rows of an index may be of another time than what stands beside them, or damaged; a key that
    is missing or has another number would let an event be stored twice.
    """
    try:
        known = msgspec.convert(values.decode(state), _Dumped)
    except (ValueError, msgspec.ValidationError):
        return False
    found = sum(_key_digest(*name, seq) for name, seq in seqs.items()) % _WRAP
    return (known.keys, known.keyed) == (len(seqs), found)


def _key_digest(type: str, key: str, seq: int) -> int:  # noqa: A002
    found = blake2b(values.encode([type, key, seq]), digest_size=8).digest()
    return int.from_bytes(found, "big") >> 11


def listed_unread(id: str, header: Header | None, size: int, problem: str) -> Listed:
    """A session of which nothing but its header is known, if that."""
    known = Listed(id=id) if header is None else _of_header(header)
    return msgspec.structs.replace(known, status="damaged", size=size, problem=problem)


def _of_header(header: Header) -> Listed:
    source, config = header.source, header.config
    known: dict[str, Any] = config if isinstance(config, dict) else {"path": config}
    parent = header.parent
    return Listed(
        id=header.id,
        created=header.created_at,
        last_active=header.created_at,
        program=source.format if source is not None and header.is_import else "perdure",
        cwd=header.cwd,
        host=None if source is None else source.host,
        preset=header.preset,
        composition=_text(known.get("name")),
        composition_kind=_text(known.get("kind")),
        config_path=_text(known.get("path")),
        parent=None if parent is None else parent.session,
        relation=_relation(header),
        source_format=source.format if source is not None and header.is_import else None,
        source_id=source.id if source is not None and header.is_import else None,
        source_parent=source.parent if source is not None and header.is_import else None,
        source_path=None if source is None else source.path,
    )


def _relation(header: Header) -> str | None:
    """What it is to another session, here or in its own agent."""
    if header.origin is not None:
        return header.origin
    if header.is_import:
        return None if header.source is None else header.source.relation
    if header.parent is None:
        return None
    return "fork" if header.inherited_genesis is not None else "child"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _title(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())[:_TITLE_CHARS]
