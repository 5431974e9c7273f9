"""Namespaces: what is said of one is the same whatever the others hold."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perdure.catalog.contract import SORTS, Catalog, Filters, Scope
from perdure.catalog.query import parse
from perdure.testing.catalog.place import CatalogCase, put, said, session
from perdure.testing.contract import Clockwork

__all__ = ["Isolating"]

OWN, OTHER = "own", "other"
COMMON = 4_500
"""So many passages of a session have one word: more than a catalog counts one by one."""

QUERIES = (
    "apple",
    "apple banana",
    "banana apple pear",
    "appl",
    '"apple pie"',
    "pear plum",
    "common rare",
    "quokka",
    "main",
    "/w/pies apple",
)
WORDS = ("apple", "banana", "pear", "plum", "pie", "quokka", "common")


def some(draw: random.Random, words: int) -> str:
    """A text of words that the queries look for."""
    return " ".join(draw.choices(WORDS, k=words))


def fill(catalog: Catalog, namespace: str, seed: int, sessions: int) -> None:
    """Sessions whose titles and passages have words of the queries."""
    draw = random.Random(seed)
    for number in range(sessions):
        listed = session(
            f"{namespace}{number:03}",
            title=some(draw, draw.randint(1, 4)),
            preview=some(draw, draw.randint(0, 9)),
            cwd=f"/w/{draw.choice(('pies', 'jam'))}",
            agents=("main",) if number % 3 else (),
            last_active=draw.randint(0, 3),
            size=draw.randint(0, 3),
            events=number,
        )
        passages = [said(seq, some(draw, draw.randint(1, 12))) for seq in range(8)]
        put(catalog, listed, passages, namespace)


def much(catalog: Catalog, namespace: str, start: int, end: int, word: str) -> None:
    """A session in which the events of a range say a word."""
    passages = [said(seq, f"{word} {seq}") for seq in range(start, end)]
    put(catalog, session("much"), passages, namespace, start=start, end=end)


def answers(catalog: Catalog, namespace: str) -> Iterator[Any]:
    """All that can be asked about a namespace, with every score, and page by page."""
    yield catalog.covered(namespace)
    yield catalog.sums(namespace, Filters())._replace(bytes=0)
    yield list(catalog.entries(namespace))
    for sort in SORTS:
        yield catalog.listed(namespace, Filters(), sort=sort, limit=500)
    for text in QUERIES:
        query = parse(text)
        for mode in ("all", "any"):
            told: dict[str, Any] = {"mode": mode}
            yield text, mode, catalog.matching(namespace, Filters(), query, limit=500, **told)
            for offset in (0, 3, 6):
                yield catalog.matching(namespace, Filters(), query, limit=3, offset=offset, **told)
            yield text, mode, catalog.candidates(namespace, Scope(), query, most=10, **told)
            few = Scope(Filters(agents=["main"]), kinds=["user"])
            yield catalog.candidates(namespace, few, query, newest=5, **told)
            yield catalog.in_order(namespace, Scope(), query, limit=7, **told)
    yield sorted(catalog.digests(namespace, Scope()))


def all_of(catalog: Catalog) -> list[str]:
    """The answers about our own, each as text: floats to their last digit."""
    return [repr(each) for each in answers(catalog, OWN)]


def disturb(catalog: Catalog) -> Iterator[None]:
    """What others may do, step by step."""
    for number in range(40):
        put(catalog, session(f"b{number}", title="banana"), [said(0, "banana")], OTHER)
    yield
    fill(catalog, OTHER, 5, 120)
    yield
    much(catalog, OTHER, 0, COMMON, "rare")
    fill(catalog, "", 6, 30)
    yield
    # The same ids, too.
    fill(catalog, OWN + "\0", 7, 10)
    put(catalog, session("own000", title="apple", problem="torn"), [said(0, "apple")], OTHER)
    yield
    for number in range(0, 120, 2):
        catalog.remove(OTHER, f"{OTHER}{number:03}")
    catalog.remove(OTHER, "much")
    catalog.put_note(OTHER, "note", "text")
    yield


class Isolating(CatalogCase):
    """One namespace among others."""

    def test_others_change_no_answer(self, catalog: Catalog) -> None:
        """Answers about a namespace, their order and scores stay, whatever others do."""
        fill(catalog, OWN, 1, 40)
        much(catalog, OWN, 0, COMMON, "common")
        before = all_of(catalog)
        for _ in disturb(catalog):
            assert all_of(catalog) == before

    @pytest.mark.parametrize("first", [True, False])
    def test_others_in_between_change_no_answer(
        self, catalog: Catalog, tmp_path: Path, first: bool
    ) -> None:
        """A namespace is told of as if it were alone, whatever came before, between and after."""
        folder = tmp_path / "alone"
        folder.mkdir(0o700)
        alone = self.make_catalog(folder, Clockwork())
        steps = disturb(catalog)
        try:
            if first:
                next(steps)
            for step, sessions in enumerate((40, 40, 20)):
                for one in (alone, catalog):
                    fill(one, OWN, step, sessions)
                    much(one, OWN, step * COMMON // 3, (step + 1) * COMMON // 3, "common")
                    one.remove(OWN, f"{OWN}00{step}")
                next(steps)
                much(catalog, OTHER, step * COMMON, (step + 1) * COMMON, "common")
            assert all_of(catalog) == all_of(alone)
        finally:
            alone.close()
