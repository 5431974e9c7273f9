"""Several processes write, list and search one store at once, and some of them are killed."""

import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.store import Store
from perdure.store.indexer import Indexer
from perdure.testing.indexes import check_index
from perdure.testing.searching import Hand, word_of
from tests.support import scaled

pytestmark = pytest.mark.proof

WRITERS, SEARCHERS = 4, 2
HANDS = WRITERS + SEARCHERS
OTHERS = scaled(500)
ALONE = 300
"""Of so many texts it is asked where their own words stand."""
PATIENCE = 60.0


class Place:
    """Where a store is, as every process names it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.url = f"sqlite:{folder}/s.db" if kind == "sqlite" else str(folder / "store")
        self.encoding = "" if kind == "sqlite" else kind

    def open(self) -> Store:
        return perdure.open(self.url, encoding=self.encoding or None)

    def hand(self, stack: ExitStack) -> Hand:
        return stack.enter_context(Hand(self.url, self.encoding))


@pytest.fixture(params=["zst", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def indexer_of(store: Store) -> Indexer:
    indexer = store._indexer
    assert indexer is not None
    return indexer


def quantiles(samples: list[float]) -> str:
    ordered = sorted(samples)
    half, most = (ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95))
    return f"{len(ordered)}, p50 {half:.1f} ms, p95 {most:.1f} ms"


@pytest.mark.reads_for_itself(reason="check_index reads every log")
def test_writers_and_searchers_at_once(
    place: Place, seed: int, rng: random.Random, tmp_path: Path
) -> None:
    """Nobody meets an error, and in the end everything that was written is found and listed."""
    seconds = scaled(30)
    names = [f"writer{letter}" for letter in "abcdefgh"[:WRITERS]]
    with ExitStack() as stack:
        writers = {name: place.hand(stack) for name in names}
        searchers = [place.hand(stack) for _ in range(SEARCHERS)]
        for name, hand in writers.items():
            hand.tell("write", writer=name, seconds=seconds, seed=seed)
        for number, hand in enumerate(searchers):
            hand.tell("search", writers=names, seconds=seconds, seed=seed + number)
        wrote = [hand.hear(seconds) for hand in writers.values()]
        looked = [hand.hear(seconds) for hand in searchers]
        assert [answer["errors"] for answer in [*wrote, *looked]] == [[]] * HANDS
        assert [hand.close() for hand in [*writers.values(), *searchers]] == [0] * HANDS
    written = {id: words for answer in wrote for id, words in answer["written"].items()}
    count = sum(map(len, written.values()))
    report(f"{place.url.removeprefix(str(tmp_path))} (seed {seed})", looked, written)
    assert count > 10 * WRITERS
    assert sum(answer["hits"] for answer in looked) > 0
    with place.open() as store:
        store.refresh()
        whose = {word: id for id, words in written.items() for word in words}
        assert all_said(store) == [*sorted((id, word) for word, id in whose.items())]
        for word in rng.sample([*whose], min(len(whose), ALONE)):
            found = store.search(f'"{word}"')
            assert [(word, hit.session) for hit in found.hits] == [(word, whose[word])]
        assert store.search("says").coverage == (len(written), len(written), 0, ())
        # It compares the listing with all logs, page by page.
        check_index(store)
        assert {row.id for row in all_listed(store)} == written.keys()


def report(title: str, looked: list[Any], written: dict[str, list[str]]) -> None:
    words = sum(map(len, written.values()))
    sys.stdout.write(f"\n{title}: {len(written)} sessions, {words} texts")
    for name in ("listings", "searches"):
        samples = [each for answer in looked for each in answer[name]]
        sys.stdout.write(f"; {name}: {quantiles(samples)}")
    sys.stdout.write("\n")


def all_listed(store: Store) -> list[Any]:
    rows, after = [], None
    while True:
        page = store.sessions(100, after)
        rows += page.sessions
        after = page.cursor
        if after is None:
            return rows


def all_said(store: Store) -> list[tuple[str, str]]:
    """Session and word of each text, by a search for what all texts say."""
    said, after = [], None
    while True:
        page = store.search('"says"', sort="seq", k=100, after=after)
        said += [(hit.session, hit.snippet.split()[1]) for hit in page.hits]
        after = page.cursor
        if after is None:
            return sorted(said)


@pytest.mark.parametrize("fresh", [False, True])
def test_after_a_kill_only_what_is_marked_is_read(
    place: Place, rng: random.Random, *, fresh: bool
) -> None:
    """Who asks first reads the sessions that dead writers marked, no others, and finds their words.

    A writer that lives keeps its mark, and one that made a session leaves all of it to be read.
    """
    with place.open() as store:
        for number in range(OTHERS):
            store.create(f"s{number}").append("user/message", said(f"other{number}"))
        if place.encoding:
            look_until_settled(store)
        else:
            store.refresh()
    chosen = rng.sample(range(OTHERS), 4)
    names = [f"dead{number}" if fresh else f"s{number}" for number in chosen]
    words = [word_of("dead", number) for number in chosen]
    with ExitStack() as stack:
        hands = [place.hand(stack) for _ in names]
        for hand, name, word in zip(hands, names, words, strict=True):
            assert hand.ask("begin", session=name, word=word, fresh=fresh)["seq"] > 0
        *dying, _ = hands
        *dead, alive = names
        for hand in dying:
            hand.kill()
        with place.open() as store:
            marked = {mark.session for mark in indexer_of(store)._marks.all()}
        assert marked == {*names}
        first = place.hand(stack).ask("ask_first", word=words[0])
        assert {*dead} <= {*first["read"]} <= {*names}
        assert {*dead} <= {*first["scanned"]} <= {*names}
        assert len(first["read"]) == len({*first["read"]})
        if not fresh and place.encoding:
            # Nothing came or went: the other logs are not even looked at.
            assert (sorted(first["read"]), first["looks"]) == (sorted(dead), 0)
        assert [session for session, _ in first["hits"]] == [names[0]]
        assert first["complete"]
        for name, word in zip(dead, words[:-1], strict=True):
            again = place.hand(stack).ask("ask_first", word=word)
            assert {*again["read"]} <= {alive}
            assert [session for session, _ in again["hits"]] == [name]
        with place.open() as store:
            marked = {mark.session for mark in indexer_of(store)._marks.all()}
            assert marked == {alive}
            status = {row.id: row.status for row in all_listed(store) if row.id in names}
        assert status == {**dict.fromkeys(dead, "crashed"), alive: "running"}


def look_until_settled(store: Store) -> None:
    """Refresh until what was made last is older than a tick of the clock, which a folder shows."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        store.refresh()
        if indexer_of(store)._is_arranged():
            return
    pytest.fail("sessions never settle")


def said(word: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"what {word} says"}]}
