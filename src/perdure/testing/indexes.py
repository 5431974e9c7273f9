"""What listing and search must say: worked out from the logs alone, event by event.

Nothing here asks an index. A passage is found by a word if the word stands in it; a session is
listed as the sum over all of its events. An index that was kept up to date in whatever way has to
answer the same.
"""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from perdure.backends.base import Entry
from perdure.catalog import analyse
from perdure.catalog.contract import Listed
from perdure.catalog.passages import Passages
from perdure.errors import PerdureError, SessionDamaged
from perdure.model.event import Event
from perdure.store import Store
from perdure.store.summing import Sum
from perdure.testing.ledger import Finding

__all__ = ["WORDS", "check_index", "say_something"]

WORDS = tuple(f"word{letter}" for letter in "abcdefghijklmnopqrst")
"""What sessions are made of, so that a search for each of them finds a part of everything."""

_HitKey = tuple[str, int, str]


class _Truth(NamedTuple):
    """What the logs say.

    Attributes:
        listed: each session as it is to be listed, but for what is no fact of its log.
        found: by each word, the session, number and kind of each passage that has it.
        unread: sessions that are not whole, or cannot be read at all.

    """

    listed: dict[str, Listed]
    found: dict[str, set[_HitKey]]
    unread: set[str]


def check_index(store: Store) -> None:
    """Demand that listing and search of a store say what its logs say, all of them.

    Raises:
        Finding: they do not.

    """
    truth = _truth_of(store)
    listed = _all_listed(store)
    if listed.keys() != truth.listed.keys():
        raise Finding(f"listed are {sorted(listed)}, stored {sorted(truth.listed)}")
    for id, row in truth.listed.items():
        if id not in truth.unread and _fact(listed[id]) != _fact(row):
            raise Finding(f"{id} is listed as {_fact(listed[id])}, and is {_fact(row)}")
    for word in WORDS:
        found = _all_hits(store, word)
        if found != truth.found[word]:
            lacks, has = truth.found[word] - found, found - truth.found[word]
            raise Finding(f"{word!r} is not found in {sorted(lacks)}, found in {sorted(has)}")
    coverage = store.search(WORDS[0]).coverage
    named = {session for session, _ in store.stats().sums.skipped_in}
    if not truth.unread <= named:
        raise Finding(
            f"{sorted(truth.unread - named)} cannot be read, and coverage says {coverage}"
        )


def _fact(row: Listed) -> dict[str, Any]:
    """What a log alone decides; who writes it just now is another matter."""
    known = msgspec.structs.asdict(row)
    for name in ("size", "status", "problem"):
        del known[name]
    return known


def _truth_of(store: Store) -> _Truth:
    listed: dict[str, Listed] = {}
    found: dict[str, set[_HitKey]] = {word: set() for word in WORDS}
    unread: set[str] = set()
    for entry in store.list():
        try:
            listed[entry.id], whole = _summed(store, entry, found)
        except PerdureError:
            listed[entry.id], whole = Listed(id=entry.id), False
        if not whole:
            unread.add(entry.id)
    return _Truth(listed, found, unread)


def _summed(store: Store, entry: Entry, found: dict[str, set[_HitKey]]) -> tuple[Listed, bool]:
    header = entry.header
    if header is None:
        return Listed(id=entry.id), False
    sums, reading = Sum(header, None, lambda _: iter(())), Passages()
    last, whole = -1, True
    try:
        for event in store.read_from(entry.id):
            sums.event(event)
            sums.last = event.time
            last = event.seq
            _note(entry.id, event, reading, found)
    except SessionDamaged:
        whole = False
    for said in reading.end():
        _find(entry.id, said.seq, said.kind, said.text, found)
    return sums.listed(events=last + 1, size=0, holder=None, problem=None), whole


def _note(id: str, event: Event, reading: Passages, found: dict[str, set[_HitKey]]) -> None:
    for said in reading.read(event):
        _find(id, said.seq, said.kind, said.text, found)


def _find(id: str, seq: int, kind: str, text: str, found: dict[str, set[_HitKey]]) -> None:
    for word in {*analyse(text).words.split()} & {*WORDS}:
        found[word].add((id, seq, kind))


def _all_listed(store: Store) -> dict[str, Listed]:
    """Every session that pages of a listing have."""
    listed: dict[str, Listed] = {}
    after = None
    while True:
        page = store.sessions(7, after, sort="created")
        for row in page.sessions:
            if row.id in listed:
                raise Finding(f"{row.id} is listed twice")
            listed[row.id] = row
        after = page.cursor
        if after is None:
            return listed


def _all_hits(store: Store, word: str) -> set[_HitKey]:
    """Everything that pages of a search have, in order and by relevance."""
    found: set[_HitKey] = set()
    after = None
    while True:
        page = store.search(f'"{word}"', k=50, sort="seq", after=after)
        found |= {(hit.session, hit.seq, hit.kind) for hit in page.hits}
        after = page.cursor
        if after is None:
            break
    best = store.search(f'"{word}"', k=100)
    stray = {(hit.session, hit.seq, hit.kind) for hit in best.hits} - found
    if stray and not best.fallback:
        raise Finding(f"{word!r} is found in {sorted(stray)} by relevance alone")
    return found


def say_something(rng: random.Random) -> Iterator[dict[str, Any]]:
    """A few events of a turn, each with some of the words."""

    def text() -> list[dict[str, str]]:
        words = rng.choices(WORDS, k=rng.randrange(1, 6))
        return [{"type": "text", "text": " ".join(words)}]

    turn = f"t{rng.randrange(10**9)}"
    yield {"type": "turn/start", "data": {}, "turn": turn}
    yield {"type": "user/message", "data": {"content": text()}, "turn": turn}
    for _ in range(rng.randrange(4)):
        piece = {"kind": "text", "text": f"{rng.choice(WORDS)} "}
        yield {"type": "assistant/delta", "data": piece, "turn": turn}
    if rng.random() < 0.5:
        yield {"type": "assistant/message", "data": {"content": text()}, "turn": turn}
    if rng.random() < 0.3:
        data = {"scope": "x", "key": rng.choice(WORDS), "value": rng.choice(WORDS)}
        yield {"type": "state/set", "data": data, "turn": turn}
    if rng.random() < 0.2:
        yield {"type": "session/titled", "data": {"title": text()[0]["text"]}}
    if rng.random() < 0.8:
        yield {"type": "turn/end", "data": {"reason": "completed"}, "turn": turn}
