"""Passages by what they say: the digests of a scope, who says one, and what nobody says."""

from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.catalog.contract import SAYING_MAX, Candidate, Catalog, Filters, Scope
from perdure.catalog.query import parse
from perdure.catalog.sqlite import SqliteCatalog
from perdure.testing.catalog.agreeing import IDS, NAMESPACES, scopes, sessions
from perdure.testing.catalog.place import NOW, digest, put, said
from tests.support import scaled

TEXTS = ("apple", "apple pie", "an apple", "apple \ud800")
"""All have one word, by which a query finds all."""

DIGESTS = [digest(text) for text in TEXTS] + [0, -(2**63), 2**63 - 1]
TIMES = st.sampled_from((0, 1, 2, -1, 10**10, 2 * 10**10))
AGENTS = st.sampled_from((None, "x", "y", "", "\udfff"))

Told = list[tuple[str, Any, list[Any]]]


def passages() -> SearchStrategy[Any]:
    """Something that is said; the same by several."""
    kinds = st.sampled_from(("user", "error"))
    texts = st.sampled_from(TEXTS)
    return st.builds(said, st.integers(0, 5), texts, kinds, agent=AGENTS, time=TIMES)


def histories() -> SearchStrategy[Told]:
    """Sessions of some namespaces, each with what is said in it."""
    named = st.tuples(st.sampled_from(IDS), sessions())
    listed = named.map(lambda pair: msgspec.structs.replace(pair[1], id=pair[0]))
    some = st.lists(passages(), max_size=4)
    return st.lists(st.tuples(st.sampled_from(NAMESPACES), listed, some), max_size=6)


def all_of(catalog: Catalog, namespace: str, scope: Scope) -> list[Candidate]:
    """Every passage of a scope, as a query finds it that all passages answer."""
    found = catalog.in_order(namespace, scope, parse("apple"), limit=10_000).found
    return [each._replace(relevance=0.0) for each in found]


@settings(max_examples=scaled(1_000))
@given(histories(), st.lists(scopes(), max_size=3), st.lists(st.sampled_from(DIGESTS)))
def test_what_is_said_is_what_is_found(history: Told, some: list[Scope], asked: list[int]) -> None:
    """Digests and passages of any scope are those of the passages that a query finds in it."""
    catalog = SqliteCatalog(None)
    for namespace, listed, texts in history:
        put(catalog, listed, texts, namespace)
    everywhere = {each.digest for name in NAMESPACES for each in all_of(catalog, name, Scope())}
    unsaid = catalog.unsaid(asked)
    assert set(unsaid) == set(asked) - everywhere
    for namespace in NAMESPACES:
        for scope in (Scope(), *some):
            expected = all_of(catalog, namespace, scope)
            digests = list(catalog.digests(namespace, scope))
            assert len(digests) == len(set(digests))
            assert set(digests) == {each.digest for each in expected}
            found = catalog.saying(namespace, scope, asked)
            assert sorted(found, key=order) == found
            assert sorted(found, key=whole) == sorted(
                (each for each in expected if each.digest in asked), key=whole
            )
    catalog.close()


def order(each: Candidate) -> tuple[str, int]:
    return each.session, each.seq


def whole(each: Candidate) -> tuple[str, int, str, int]:
    return each.session, each.seq, each.kind, each.digest


def test_of_what_many_say_the_newest_are_given() -> None:
    """Of a text that is said everywhere so many passages are given, the last that were put."""
    catalog = SqliteCatalog(None)
    for number in range(SAYING_MAX + 10):
        put(catalog, f"{number:03}", [said(0, "apple"), said(1, f"apple {number}")])
    put(catalog, "other", [said(0, "apple")], "n")
    found = catalog.saying("", Scope(), [digest("apple"), digest("apple 3")])
    assert [each.session for each in found if each.seq == 0] == [
        f"{number:03}" for number in range(10, SAYING_MAX + 10)
    ]
    assert [each.session for each in found if each.seq == 1] == ["003"]
    inside = Scope(Filters(ids=["000", "001"]))
    found = catalog.saying("", inside, [digest("apple")])
    assert [each.session for each in found] == ["000", "001"]


def test_what_is_removed_is_said_by_nobody(tmp_path: Path) -> None:
    """A text counts as said as long as one passage of any namespace says it."""
    tmp_path.chmod(0o700)
    catalog = SqliteCatalog(str(tmp_path))
    for namespace in ("", "n"):
        put(catalog, "s", [said(0, "apple")], namespace)
    wanted = [digest("apple"), 5]
    assert catalog.unsaid(wanted) == [5]
    catalog.remove("", "s")
    assert catalog.unsaid(wanted) == [5]
    assert list(catalog.digests("", Scope())) == []
    assert catalog.saying("", Scope(), wanted) == []
    put(catalog, "s", [said(1, "pear", time=NOW + 1)], "n")
    assert catalog.unsaid(wanted) == wanted
    assert list(catalog.digests("n", Scope(since=NOW + 1))) == [digest("pear")]
    catalog.close()
    assert catalog.unsaid([*wanted, digest("pear")]) == wanted


def test_a_namespace_that_nobody_knows_says_nothing() -> None:
    """Where nothing was put nothing is said, and everything is unsaid."""
    catalog = SqliteCatalog(None)
    put(catalog, "s", [said(0, "apple")])
    assert list(catalog.digests("unknown", Scope())) == []
    assert catalog.saying("unknown", Scope(), [digest("apple")]) == []
    assert catalog.unsaid([]) == []
    many = list(range(20_000))
    assert catalog.unsaid(many) == many
