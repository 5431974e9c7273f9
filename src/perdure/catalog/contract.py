"""The contract of a catalog: an index of sessions and of all that was said in them.

A catalog is derived: it can be deleted at any time, and says of each session how far it has read
it. It never reads a log; whoever does tells it what stands there (`Change`). All that is known of a
session is changed in one step, and only by somebody who knew what was there before. The suite in
`perdure.testing.catalog` is the definition.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from perdure.catalog.query import Query
from perdure.catalog.scopes import Filters, Scope
from perdure.model.record import Position

__all__ = [
    "SAYING_MAX",
    "SORTS",
    "Candidate",
    "Candidates",
    "Catalog",
    "Change",
    "Covered",
    "Entry",
    "Filters",
    "KeyedEvents",
    "Listed",
    "Passage",
    "Scope",
    "Standing",
    "Sums",
]

SORTS = ("last_active", "created", "title", "size")
"""What a listing can be sorted by: times and sizes from the largest down, titles from A up."""

SAYING_MAX = 50
"""So many passages of one digest are told of at most."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One session of a listing.

    Attributes:
        id: its id.
        title: given by somebody, or else the beginning of what was asked first; None without both.
        named: whether the title was given.
        preview: the beginning of what was asked first, or None.
        created: Unix milliseconds, or None if its header cannot be read.
        last_active: time of the last event, Unix milliseconds, or None.
        status: "running", "paused", "completed", "crashed", "interrupted" or "damaged".
        agents: the agents that took part, by name.
        program: the program whose session it is: "perdure", or the format of an import.
        cwd: working directory, or None.
        host: name of the machine where it was written last or found, or None.
        preset: name of the preset, or None.
        composition: name of what was configured, or None.
        composition_kind: what kind of thing that is, or None.
        config_path: where its configuration stands, or None.
        parent: id of the session it comes from, or None.
        relation: what it is to that one: "subagent", "fork", "continuation", or "child" where its
            header says no more; None without one.
        source_format: format of an import; None for a session that goes on here.
        source_id: id of an import in its own format, or None.
        source_parent: id, in that format, of the session that it comes from, or None.
        source_path: path of its file, or None.
        events: how many events.
        turns: how many turns were begun.
        messages: how many messages of people and of agents.
        calls: how many tool calls.
        failures: how many errors of tools, turns, jobs and sub-agents.
        tokens: sent to and come from models, of the session itself.
        cost: by currency, "" where none was named.
        size: of its log, in bytes.
        archived: whether it was put away.
        problem: what is wrong with it, or None.
        projection: what a user's projection says of it, any JSON value.

    """

    id: str
    title: str | None = None
    named: bool = False
    preview: str | None = None
    created: int | None = None
    last_active: int | None = None
    status: str = "paused"
    agents: tuple[str, ...] = ()
    program: str = "perdure"
    cwd: str | None = None
    host: str | None = None
    preset: str | None = None
    composition: str | None = None
    composition_kind: str | None = None
    config_path: str | None = None
    parent: str | None = None
    relation: str | None = None
    source_format: str | None = None
    source_id: str | None = None
    source_parent: str | None = None
    source_path: str | None = None
    events: int = 0
    turns: int = 0
    messages: int = 0
    calls: int = 0
    failures: int = 0
    tokens: int = 0
    cost: dict[str, float] = {}
    size: int = 0
    archived: bool = False
    problem: str | None = None
    projection: Any = None


class Passage(NamedTuple):
    """A text of a session, to be found.

    Attributes:
        seq: number of its event.
        kind: one of `perdure.catalog.passages.KINDS`.
        words, parts: its tokens, as `analyse` gives them.
        digest: of its kind and text, a signed integer of 64 bits. With `seq` it names the passage
            within its session.
        agent: whose event it is, or None.
        time: of the event, Unix milliseconds.
        call: digest of the id of the tool call that it is of, as above, or None.

    """

    seq: int
    kind: str
    words: str
    parts: str
    digest: int
    agent: str | None
    time: int
    call: int | None = None


class Standing(NamedTuple):
    """How far a catalog is with a session.

    Attributes:
        version: another one after every change of what is known of the session.
        revision: of its medium, as it was before the log was read.
        position: the last event that was read, and the hash of its record; seq -1 for none.
        floor: number of the first event that has to be read again to go on; at most seq + 1.
        state: what the reading has come to, for whoever goes on with it; opaque.
        rules: what the reading depends on; opaque. Under others it has to begin anew.
        partial: the reading was begun from the start and has not come to the end.
        problem: what is wrong with the session, or None.

    """

    version: int
    revision: str
    position: Position
    floor: int
    state: bytes
    rules: str
    partial: bool
    problem: str | None


class Change(NamedTuple):
    """What was read of a session, in one step or one of several.

    Attributes:
        listed: the session as it is to be listed.
        revision, position, floor, state, rules, partial: as in `Standing`.
        start: passages of this session with a `seq` from here on are replaced by `passages`.
        end: only those before this one are; None: all.
        passages: what was said. Of those with the same seq, kind and digest one is kept; one that
            is there stays as it is. They may lie outside `start` and `end`: then they are added.
        keys: type, key and number of the keyed events from `start` on; with `start` 0 all others
            are forgotten.
        skipped: of how many records nothing can be found, counted over the whole session.
        skipped_why: what was wrong with the first of them, or None.

    """

    listed: Listed
    revision: str
    position: Position
    floor: int
    state: bytes
    rules: str
    partial: bool = False
    start: int = 0
    end: int | None = None
    passages: Sequence[Passage] = ()
    keys: Sequence[tuple[str, str, int]] = ()
    skipped: int = 0
    skipped_why: str | None = None


class Entry(NamedTuple):
    """How far a catalog is with one of all sessions: as in `Standing`, without its state."""

    session: str
    revision: str
    rules: str
    partial: bool
    problem: str | None
    status: str


class KeyedEvents(NamedTuple):
    """The keyed events of a session, as far as it was read.

    Attributes:
        position: the last event that was read.
        seqs: number of the event by type and key.

    """

    position: Position
    seqs: dict[tuple[str, str], int]


class Candidate(NamedTuple):
    """A passage that a query finds.

    Attributes:
        session, seq, kind, agent, time, digest, call: as in `Passage`.
        relevance: the greater, the better it fits; only comparable within one answer.

    """

    session: str
    seq: int
    kind: str
    agent: str | None
    time: int
    digest: int
    call: int | None
    relevance: float


class Candidates(NamedTuple):
    """What a query finds.

    Attributes:
        found: the best ones, the best first, or in the order that was asked for.
        capped: there are more hits than were looked at; those are the newest.

    """

    found: list[Candidate]
    capped: bool


class Sums(NamedTuple):
    """What a catalog holds of some sessions.

    Attributes:
        sessions: how many.
        events: how many events they have.
        size: bytes of their logs.
        tokens: sent to and come from models.
        cost: by currency.
        by_status: how many sessions in each status.
        by_program: how many of each program.
        by_agent: how many each agent took part in.
        passages: how many passages can be found.
        skipped: how many records cannot.
        skipped_in: some sessions that have such records, or a problem, with the reason; 20 at most.
        partial: how many sessions were not read to their ends.
        bytes: what the index takes on its medium, all namespaces together.

    """

    sessions: int
    events: int
    size: int
    tokens: int
    cost: dict[str, float]
    by_status: dict[str, int]
    by_program: dict[str, int]
    by_agent: dict[str, int]
    passages: int
    skipped: int
    skipped_in: list[tuple[str, str]]
    partial: int
    bytes: int


class Covered(NamedTuple):
    """How much of the sessions a catalog knows.

    Attributes:
        sessions: how many there are.
        unread: how many of them were not read to their ends, or have a problem.
        skipped: how many records cannot be found, over all sessions.
        skipped_in: as in `Sums`.

    """

    sessions: int
    unread: int
    skipped: int
    skipped_in: list[tuple[str, str]]


class Catalog(ABC):
    """An index over the sessions of all namespaces of a store.

    A namespace is any text (`perdure.model.identity.namespace_key`). No answer about one holds
    anything of another, nor does its order or any number in it depend on what others hold; only
    `unsaid`, `Sums.bytes` and versions are about all of them. Methods may be called from any
    thread, and several processes may use one index. All raise StorageFull, StorageUnavailable,
    UnsafeFile or FormatUnsupported where the medium refuses; an index that makes no sense any more
    is set aside and begun anew, and one that was removed under a running process is noticed.
    """

    @property
    def place(self) -> str | None:
        """Absolute path of the index; None without a file."""
        return None

    # --- reading on ------------------------------------------------------------------------------

    @abstractmethod
    def standing(self, namespace: str, session: str) -> Standing | None:
        """How far it is with a session; None if it knows of none."""

    @abstractmethod
    def entries(self, namespace: str) -> Iterator[Entry]:
        """How far it is with each session, in the order of the ids; one state of the index."""

    @abstractmethod
    def versions(self, namespace: str) -> dict[str, int]:
        """The version of the standing of each session; one state of the index."""

    @abstractmethod
    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        """Make a change; the new version, or None if somebody else was first.

        `expected` is the version of the standing on which the change was built; None: there was
        none. Where it is another one by now nothing is changed.
        """

    @abstractmethod
    def remove(self, namespace: str, session: str, expected: int | None = None) -> bool:
        """Forget a session; whether it did. With `expected` only if that is its version."""

    @abstractmethod
    def keys(self, namespace: str, session: str) -> KeyedEvents | None:
        """The keyed events of a session as far as it was read; None if it was not, or partially."""

    @abstractmethod
    def note(self, namespace: str, name: str) -> str | None:
        """What was noted under a name, or None."""

    @abstractmethod
    def put_note(self, namespace: str, name: str, text: str) -> None:
        """Note something; it goes with the index."""

    # --- listing ---------------------------------------------------------------------------------

    @abstractmethod
    def listed(
        self,
        namespace: str,
        filters: Filters,
        *,
        sort: str = "last_active",
        limit: int = 20,
        offset: int = 0,
        after: tuple[Any, str] | None = None,
    ) -> list[Listed]:
        """Sessions in an order of `SORTS`, behind the one with this value and id.

        Of these `offset` are passed over first. Equal values go by id. Titles are compared without
        case; what has no value comes last.
        """

    @abstractmethod
    def matching(
        self,
        namespace: str,
        filters: Filters,
        query: Query,
        *,
        mode: Literal["all", "any"] = "all",
        limit: int = 20,
        offset: int = 0,
    ) -> list[Listed]:
        """Sessions whose title, preview, composition, preset, config path, agents or cwd match.

        Ranked by how well they match, as passages are: a word tells the more, the fewer sessions of
        the namespace have it. Of equal ones the one that was active last comes first, then by id.
        """

    @abstractmethod
    def children(self, namespace: str, parents: Collection[str]) -> list[Listed]:
        """The sessions that come from these, by creation and id.

        An import comes from those whose `source_format` and `source_id` are its `source_format` and
        `source_parent`.
        """

    @abstractmethod
    def sums(self, namespace: str, filters: Filters) -> Sums:
        """What it holds of these sessions."""

    @abstractmethod
    def covered(self, namespace: str) -> Covered:
        """How much it knows: asked for each answer, so in no more time than a count takes."""

    # --- searching -------------------------------------------------------------------------------

    @abstractmethod
    def candidates(
        self,
        namespace: str,
        scope: Scope,
        query: Query,
        *,
        mode: Literal["all", "any"] = "all",
        newest: int = 2_000,
        most: int = 200,
    ) -> Candidates:
        """The best passages of `scope` that match: `most` of the `newest` that do.

        "Newest" is by when they were indexed, within the scope.
        """

    @abstractmethod
    def in_order(
        self,
        namespace: str,
        scope: Scope,
        query: Query,
        *,
        mode: Literal["all", "any"] = "all",
        after: tuple[str, int, int] | None = None,
        limit: int = 20,
    ) -> Candidates:
        """The passages of `scope` that match, in the order of session id, seq and digest.

        `after` is those three of the one behind which to begin. `relevance` is 0, and nothing is
        capped.
        """

    @abstractmethod
    def digests(self, namespace: str, scope: Scope) -> Collection[int]:
        """What the passages of `scope` say, each once: their digests, in no order."""

    @abstractmethod
    def saying(self, namespace: str, scope: Scope, digests: Collection[int]) -> list[Candidate]:
        """The passages of `scope` that say one of these, in the order of session id and seq.

        `relevance` is 0. Of what many passages say, the newest `SAYING_MAX` are given.
        """

    @abstractmethod
    def unsaid(self, digests: Collection[int]) -> list[int]:
        """Those of the digests that no passage of any namespace has."""

    # --- the medium ------------------------------------------------------------------------------

    @abstractmethod
    def clear(self) -> None:
        """Forget everything, in all namespaces: the index is as if it had just been made."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held open; a call afterwards opens it again."""
