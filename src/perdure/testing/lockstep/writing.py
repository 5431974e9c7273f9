"""Steps of writers and readers: appending, keys, buffering, stale commits, pages, recovery."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from hypothesis.strategies import SearchStrategy

from perdure.errors import PerdureError
from perdure.model.event import draft
from perdure.model.record import Position, decode_line, seal
from perdure.recovery.walk import Known, Walk
from perdure.testing.contract.place import OPEN, TURN, texts
from perdure.testing.lockstep.machine import Row
from perdure.testing.lockstep.media import Name, Site, Space
from perdure.testing.lockstep.outcomes import (
    Outcome,
    found,
    numbered,
    reported,
    stored_lines,
)
from perdure.testing.strategies import json_values

__all__ = ["Writing", "batches", "drawn_names", "settled"]

_SPACES: tuple[Space, ...] = (*[()] * 6, ("n",), ("n", "A/."))
_IDS = ("s", "s", "s", "S", "../\u00e9")

Fields = Mapping[str, Any]


def drawn_names() -> SearchStrategy[Name]:
    """A few sessions, some of them in namespaces, so that steps meet."""
    return st.tuples(st.sampled_from(_SPACES), st.sampled_from(_IDS))


def _values() -> SearchStrategy[Any]:
    small = st.sampled_from((None, 0, {"a": [1]}, "\ud800", {"text": "x"}))
    large = st.sampled_from((1000, 70_000, 300_000)).map(lambda size: "0123 \u00e9" * (size // 6))
    return small | small | json_values(max_leaves=4) | large


def _fields() -> SearchStrategy[Fields]:
    """One event; its key is one of a few, so that it is repeated, rightly and wrongly."""
    types = st.sampled_from(("note", "note", "pay", "turn/start", "tool/call", "turn/end"))
    plain = st.fixed_dictionaries({"type": types, "data": _values()})
    keyed = st.fixed_dictionaries(
        {
            "type": st.sampled_from(("pay", "note")),
            "data": st.sampled_from((1, 1, 2, {"a": 1})),
            "key": st.sampled_from(("k1", "k2", "k3")),
            "turn": st.sampled_from((None, None, "t1")),
        }
    )
    whole = st.fixed_dictionaries(
        {
            "type": types,
            "data": _values(),
            "agent": st.sampled_from((None, "a", "b")),
            "turn": st.sampled_from((None, "t1", "t2")),
            "time": st.integers(-5, 2**40),
            "ignorable": st.booleans(),
        }
    )
    return plain | plain | keyed | keyed | whole


def _streams() -> SearchStrategy[list[Fields]]:
    """Deltas, which are packed into one record."""
    return st.integers(2, 9).map(
        lambda count: [
            {"type": "assistant/delta", "data": texts(f"{n} "), "turn": "t2"} for n in range(count)
        ]
    )


def batches() -> SearchStrategy[list[Fields]]:
    """Events of one commit."""
    fixed = st.sampled_from(([*TURN], [*OPEN], [*TURN, *OPEN]))
    return st.lists(_fields(), min_size=1, max_size=5) | _streams() | fixed


def settled(site: Site, name: Name) -> Any:
    """The right to write a stored session, taken without a store."""
    backend = site.backend(name[0])
    hold = backend.lock(name[1])
    try:
        stored, tail = backend.stored(name[1]), backend.tail(name[1])
        assert stored.header is not None
        known, begin = Known(tail.acknowledged), stored.begin
        with Walk(stored.header, backend.scan(name[1], begin), known=known, begin=begin) as walk:
            for _ in walk.records():
                pass
            ending = walk.ending
        backend.settle(hold, ending, tail.acknowledged)
    except BaseException:
        hold.release()
        raise
    return hold


class Writing(Row):
    """What writers and readers do."""

    # --- opening ---------------------------------------------------------------------------------

    @initialize(batch=batches())
    def begin(self, batch: Sequence[Fields]) -> None:
        """One session is there from the start."""
        self.create(((), "s"), {})
        self._append_many(((), "s"), batch)

    @rule(
        name=drawn_names(),
        fields=st.fixed_dictionaries(
            {},
            optional={
                "cwd": st.just("/w"),
                "config": json_values(max_leaves=3),
                "depth": st.integers(0, 3),
                "vocabulary": st.sampled_from((None, "other/1")),
            },
        ),
    )
    def create(self, name: Name, fields: Fields) -> None:
        """A writer of a new session, if the id is free; nothing is stored yet."""
        if self.open(name):
            return

        def act(site: Site) -> object:
            session = site.space(name[0]).create(name[1], **fields)
            site.sessions[name] = session
            return session.header, session.position

        self.together("create", act, name)

    @rule(name=drawn_names())
    def writer(self, name: Name) -> None:
        """The writer of a stored session; the second one is refused."""

        def act(site: Site) -> object:
            session = site.space(name[0]).writer(name[1])
            site.sessions[name] = session
            site.torn.discard(name)
            return session.header, session.position

        self.together("writer", act, name)

    @rule(name=drawn_names(), use=st.booleans())
    def prepare(self, name: Name, use: bool) -> None:
        """A reservation, used or given back."""

        def act(site: Site) -> object:
            with site.space(name[0]).prepare(name[1]) as prepared:
                site.torn.discard(name)
                if use:
                    site.sessions[name] = prepared.session()
                return prepared.header, prepared.position

        self.together("prepare", act, name, use=use)

    @rule(name=drawn_names(), elsewhere=st.booleans())
    def load(self, name: Name, elsewhere: bool) -> None:
        """Closers are committed, by this process or by another one."""

        def act(site: Site) -> object:
            inspection = site.space(name[0], elsewhere=elsewhere).load(name[1])
            site.torn.discard(name)
            return found(inspection, torn=False)

        self.together("load", act, name, elsewhere=elsewhere)

    @rule(name=drawn_names())
    def close_writer(self, name: Name) -> None:
        """What is buffered is stored, and the session given back."""
        if self.open(name):
            self.together("close writer", lambda site: site.sessions[name].close(), name)

    @rule(name=drawn_names(), batch=batches())
    def rival(self, name: Name, batch: Sequence[Fields]) -> None:
        """Of two writers of a session that is not stored yet, the first to commit gets the id."""

        def act(site: Site) -> object:
            if name not in site.sessions:
                site.sessions[name] = site.space(name[0]).create(name[1])
            with site.space(name[0], elsewhere=True).create(name[1], preset="rival") as session:
                return numbered(session.append_many(batch))

        self.together("rival", act, name)

    # --- appending -------------------------------------------------------------------------------

    @rule(name=drawn_names(), fields=_fields(), keep=st.booleans())
    def append(self, name: Name, fields: Fields, keep: bool) -> None:
        """One event, through a writer or the store."""

        def act(site: Site) -> object:
            if keep:
                return numbered([site.writer(name).append(**fields)])
            return numbered(site.append(name, [fields]))

        self.together("append", act, name)

    @rule(name=drawn_names(), batch=batches(), keep=st.booleans())
    def append_many(self, name: Name, batch: Sequence[Fields], keep: bool) -> None:
        """Several events in one commit, through a writer or the store."""
        self._append_many(name, batch, keep=keep)

    def _append_many(self, name: Name, batch: Sequence[Fields], *, keep: bool = True) -> Outcome:
        def act(site: Site) -> object:
            if keep:
                return numbered(site.writer(name).append_many(batch))
            return numbered(site.append(name, batch))

        step = "append many" if self.length(name) else "first append many"
        return self.together(step, act, name)

    @rule(name=drawn_names(), batch=batches(), off=st.integers(-2, 2))
    def append_at(self, name: Name, batch: Sequence[Fields], off: int) -> None:
        """Events that say which number they get, rightly or not."""
        at = self.length(name) + off
        numbers = [{**fields, "seq": at + n} for n, fields in enumerate(batch)]

        def act(site: Site) -> object:
            return numbered(site.append(name, numbers))

        self.together("append at", act, name, at=at)

    @rule(name=drawn_names(), fields=_fields())
    def buffer(self, name: Name, fields: Fields) -> None:
        """An event that is stored later."""

        def act(site: Site) -> object:
            return numbered([site.writer(name).buffer(**fields)])

        self.together("buffer", act, name)

    @precondition(lambda self: self.model.sessions)
    @rule(name=drawn_names())
    def flush(self, name: Name) -> None:
        """What is buffered is stored now."""

        def act(site: Site) -> object:
            session = site.writer(name)
            session.flush()
            return session.position

        self.together("flush", act, name)

    @precondition(lambda self: self.model.busy)
    @rule()
    def later(self) -> None:
        """The background thread comes by, and stores what is due."""
        self.together("later", Site.run_later, *self.model.sessions)

    def stored(self, name: Name) -> None:
        """See to it that there is such a session, and that nobody writes it."""
        first = [{"type": "note", "data": {"text": "a first event"}}]
        if not self.length(name) and self._append_many(name, first).error:
            # Its id is taken by a session that was deleted, or that was removed from the trash.
            if self.together("restore", lambda at: at.space(name[0]).restore(name[1]), name).error:
                self.together("forget", lambda at: at.space(name[0]).forget(name[1]), name)
            self._append_many(name, first)
        if self.open(name):
            self.close_writer(name)

    @rule(name=drawn_names(), wrong=st.integers(0, 3), count=st.integers(1, 3))
    def commit_stale(self, name: Name, wrong: int, count: int) -> None:
        """A commit that expects another position is refused; the one that follows it is not."""
        self.stored(name)

        def act(site: Site) -> object:
            backend = site.backend(name[0])
            hold = settled(site, name)
            site.torn.discard(name)
            try:
                stands = hold.position
                before = decode_line(stored_lines(backend, name[1])[-1])
                other = (
                    Position(before.first - 1, before.prev),
                    Position(stands.seq, "0" * 64),
                    Position(stands.seq + 1, stands.hash),
                    Position(stands.seq - 1, stands.hash),
                )[wrong]
                drafts = [draft("note", n, time=n) for n in range(count)]
                refused = None
                try:
                    backend.commit(hold, other, seal(other, drafts))
                except PerdureError as error:
                    refused = error.code
                lines = stored_lines(backend, name[1])
                backend.commit(hold, stands, seal(stands, drafts, pack=False))
                return refused, lines, hold.position
            finally:
                hold.release()

        self.together("commit stale", act, name, wrong=wrong)

    # --- reading: what it changes, if anything, shows at the next step that writes ----------------

    @rule(name=drawn_names(), elsewhere=st.booleans())
    def inspect(self, name: Name, elsewhere: bool) -> None:
        """A session as found."""

        def act(site: Site) -> object:
            inspection = site.space(name[0], elsewhere=elsewhere).inspect(name[1])
            return found(inspection, torn=name in site.torn)

        self.together("inspect", act, name=name, elsewhere=elsewhere)

    @rule(
        name=drawn_names(),
        share=st.floats(0, 1.2),
        types=st.none() | st.sets(st.sampled_from(("note", "pay", "assistant/delta"))),
        elsewhere=st.booleans(),
    )
    def read_from(self, name: Name, share: float, types: set[str] | None, elsewhere: bool) -> None:
        """A page from anywhere on, of some types."""
        seq = int(self.length(name) * share)

        def act(site: Site) -> object:
            store = site.space(name[0], elsewhere=elsewhere)
            return numbered(store.read_from(name[1], seq, types))

        self.together("read from", act, name=name, seq=seq, types=types)

    @rule(name=drawn_names(), elsewhere=st.booleans())
    def verify(self, name: Name, elsewhere: bool) -> None:
        """Everything of one session is read, its content too."""

        def act(site: Site) -> object:
            report = site.space(name[0], elsewhere=elsewhere).verify(name[1])
            return reported(report, torn=name in site.torn)

        self.together("verify", act, name=name)

    @rule(name=drawn_names())
    def raw(self, name: Name) -> None:
        """The stored lines, header first, byte for byte."""

        def act(site: Site) -> object:
            lines = [*site.space(name[0]).raw(name[1])]
            # What is torn stands behind all the others.
            return lines[: len(lines) - (name in site.torn)]

        self.together("raw", act, name=name)
