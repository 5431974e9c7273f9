"""Drawn histories: whatever is put, a catalog answers as the model does."""

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.catalog.contract import SORTS, Candidate, Catalog, Change, Filters, Listed, Scope
from perdure.catalog.query import parse
from perdure.testing.catalog.model import Model
from perdure.testing.catalog.place import PAGES_MAX, CatalogCase, change, said, session
from perdure.testing.contract import Clockwork

__all__ = ["Agreeing"]

NAMESPACES = ("", "n", "\ud800")
IDS = ("a", "A", "b", "\ud800", "a\0", "é")
NAMES = st.sampled_from(("x", "y", "", "\udfff"))
TIMES = st.sampled_from((0, 1, 2, -1, 10**10, 2 * 10**10, 2**53))
FOLDERS = st.sampled_from(("/w", "/w/a", "/wa", "/", "w"))
TEXTS = st.sampled_from(
    (
        "apple",
        "apple pie",
        "pie apple apple",
        "appendBatch in lib/store.py",
        "重跑后通过",
        "the batch",
        "…",
    )
)
QUERIES = st.sampled_from(
    (
        *(
            "apple",
            "apple ",
            "pie apple",
            '"apple pie"',
            "app",
            "batch",
            "append_batch",
            "store.py",
        ),
        *("", "重跑", "apple batch", "lib/store", "nothing", "…", "the "),
    )
)
MODES: SearchStrategy[Literal["all", "any"]] = st.sampled_from(("all", "any"))
SCALARS = st.sampled_from((None, True, False, 0, 1, 1.5, "red", "1"))


def maybe(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """A value or None."""
    return st.none() | strategy


def some(strategy: SearchStrategy[Any]) -> SearchStrategy[Any]:
    """A few values."""
    return st.lists(strategy, max_size=3)


def passages() -> SearchStrategy[Any]:
    """A text of one of the first events."""
    kinds = st.sampled_from(("user", "error"))
    return st.builds(said, st.integers(0, 5), TEXTS, kinds, agent=maybe(NAMES), time=TIMES)


def sparsely(
    make: Callable[..., Any], may_be: dict[str, SearchStrategy[Any]], most: int
) -> SearchStrategy[Any]:
    """Something made of a few of the members that it may have."""
    names = st.lists(st.sampled_from(sorted(may_be)), max_size=most, unique=True)
    return names.flatmap(
        lambda chosen: st.fixed_dictionaries({name: may_be[name] for name in chosen})
    ).map(lambda told: make(**told))


def sessions() -> SearchStrategy[Listed]:
    """A session, with values that repeat, meet each other and are missing."""
    return sparsely(
        session,
        {
            "title": TEXTS | NAMES,
            "preview": TEXTS,
            "created": TIMES,
            "last_active": TIMES,
            "status": st.just("crashed"),
            "agents": some(NAMES).map(lambda found: tuple(dict.fromkeys(found))),
            "program": st.just("codex"),
            "cwd": FOLDERS,
            "preset": NAMES,
            "parent": st.sampled_from(IDS),
            "relation": st.sampled_from(("subagent", "fork")),
            "source_format": st.sampled_from(("codex", "x")),
            "source_id": NAMES,
            "source_parent": NAMES,
            "events": st.integers(0, 5),
            "tokens": st.integers(0, 5),
            "cost": st.dictionaries(NAMES, st.sampled_from((0.25, 2.0)), max_size=2),
            "size": st.sampled_from((1, 2, 2**60)),
            "archived": st.just(True),
            "problem": NAMES,
            "projection": st.dictionaries(st.sampled_from(("a", "b")), SCALARS),
        },
        5,
    )


def changes() -> SearchStrategy[Change]:
    """A change of one session, of all of it or of a part."""

    def made(id: str, listed: Listed, **told: Any) -> Change:
        return change(msgspec.structs.replace(listed, id=id), **told)

    told = sparsely(
        dict,
        {
            "revision": NAMES,
            "state": st.binary(max_size=3),
            "rules": NAMES,
            "partial": st.just(True),
            "start": st.integers(0, 5),
            "end": st.integers(0, 6),
            "keys": some(st.tuples(NAMES, NAMES, st.integers(0, 5))),
            "skipped": st.just(1),
            "skipped_why": NAMES,
        },
        4,
    )
    said_there = st.lists(passages(), max_size=5)
    return st.builds(
        lambda id, listed, told, texts: made(id, listed, passages=texts, **told),
        # Most of a history is that of one session.
        st.sampled_from(("a",) * 6 + IDS),
        sessions(),
        told,
        said_there,
    )


def filters() -> SearchStrategy[Filters]:
    """Filters of which most are not given."""
    ids = some(st.sampled_from(IDS))
    return sparsely(
        Filters,
        {
            "ids": ids,
            "without": ids,
            "agents": some(NAMES),
            "programs": some(st.sampled_from(("perdure", "codex"))),
            "cwd": FOLDERS,
            "statuses": some(st.sampled_from(("paused", "crashed"))),
            "relations": some(st.sampled_from(("", "subagent", "fork"))),
            "presets": some(NAMES),
            "parents": ids,
            "since": TIMES,
            "until": TIMES,
            "problem": st.booleans(),
            "archived": st.booleans(),
            "projection": some(st.tuples(st.sampled_from(("/a", "/b")), SCALARS)),
            "top": st.booleans(),
        },
        2,
    )


def scopes() -> SearchStrategy[Scope]:
    """Scopes of which most is not given."""
    return sparsely(
        Scope,
        {
            "sessions": filters(),
            "kinds": some(st.sampled_from(("user", "error", "x"))),
            "agents": some(maybe(NAMES)),
            "since": TIMES,
            "until": TIMES,
        },
        3,
    )


@dataclasses.dataclass
class Step:
    """One change of a catalog: what is called, and with what."""

    name: str
    namespace: str
    change: Change
    right: bool
    """With the version that is there."""


def steps() -> SearchStrategy[list[Step]]:
    """A history."""
    names = st.sampled_from(("put",) * 8 + ("remove", "note", "close", "clear"))
    wrong_or_right = st.sampled_from((True,) * 5 + (False,))
    namespaces = st.sampled_from(("",) * 6 + NAMESPACES)
    step = st.builds(Step, names, namespaces, changes(), wrong_or_right)
    return st.lists(step, min_size=1, max_size=8)


@dataclasses.dataclass
class Question:
    """What is asked at the end."""

    namespace: str
    filters: Filters
    scope: Scope
    query: str
    mode: Literal["all", "any"]
    sort: str
    limit: int


def questions() -> SearchStrategy[list[Question]]:
    """A few questions."""
    question = st.builds(
        Question,
        st.sampled_from(NAMESPACES),
        filters(),
        scopes(),
        QUERIES,
        MODES,
        st.sampled_from(SORTS),
        st.integers(1, 4),
    )
    return st.lists(question, min_size=1, max_size=4)


class Agreeing(CatalogCase):
    """What holds for any history."""

    def test_a_catalog_agrees_with_the_model(self, tmp_path: Path) -> None:
        """After any changes every answer is the one that plain dictionaries give."""
        numbers = itertools.count()

        @settings(max_examples=self.examples)
        @given(steps(), questions())
        def agree(history: list[Step], asked: list[Question]) -> None:
            folder = tmp_path / f"{next(numbers)}"
            folder.mkdir(0o700)
            catalog, model = self.make_catalog(folder, Clockwork()), Model()
            try:
                for step in history:
                    _take(step, catalog, model, survives=self.survives_close)
                _compare_all(catalog, model)
                for question in asked:
                    _compare(catalog, model, question)
            finally:
                catalog.close()

        agree()


def _take(step: Step, catalog: Catalog, model: Model, *, survives: bool) -> None:
    namespace, session = step.namespace, step.change.listed.id
    known = model.version(namespace, session)
    if step.name == "put":
        expected = known if step.right else 3
        version = catalog.put(namespace, step.change, expected)
        assert (version is not None) is (expected == known)
        if version is not None:
            model.put(namespace, step.change, version)
    elif step.name == "remove":
        expected = None if step.right else 3
        removed = catalog.remove(namespace, session, expected)
        assert removed is (known is not None and step.right)
        if removed:
            del model.sessions[namespace, session]
    elif step.name == "note":
        catalog.put_note(namespace, session, step.change.rules)
        model.notes[namespace, session] = step.change.rules
    else:
        getattr(catalog, step.name)()
        if step.name == "clear" or not survives:
            model.sessions.clear()
            model.notes.clear()


def _compare_all(catalog: Catalog, model: Model) -> None:
    for namespace in NAMESPACES:
        assert list(catalog.entries(namespace)) == model.entries(namespace)
        for id in IDS:
            assert catalog.standing(namespace, id) == model.standing(namespace, id)
            assert catalog.keys(namespace, id) == model.keys(namespace, id)
            assert catalog.note(namespace, id) == model.notes.get((namespace, id))
        _compare(catalog, model, Question(namespace, Filters(), Scope(), "app", "all", "title", 3))


def _compare(catalog: Catalog, model: Model, asked: Question) -> None:
    namespace, query = asked.namespace, parse(asked.query)
    listed = model.listed(namespace, asked.filters, asked.sort)
    assert _pages(catalog, asked) == listed
    for offset in (1, 3):
        page = catalog.listed(
            namespace, asked.filters, sort=asked.sort, limit=asked.limit, offset=offset
        )
        assert page == listed[offset:][: asked.limit]
    matching = catalog.matching(namespace, asked.filters, query, mode=asked.mode, limit=100)
    found = {each.id for each in matching}
    assert len(found) == len(matching)
    assert found == model.matching(namespace, asked.filters, query, asked.mode)
    parents = asked.filters.ids or IDS
    assert catalog.children(namespace, parents) == model.children(namespace, parents)
    sums, expected = catalog.sums(namespace, asked.filters), model.sums(namespace, asked.filters)
    assert {name: getattr(sums, name) for name in expected} == expected
    _compare_hits(catalog, model, asked)


def _pages(catalog: Catalog, asked: Question) -> list[Listed]:
    found: list[Listed] = []
    after = None
    for _ in range(PAGES_MAX):
        page = catalog.listed(
            asked.namespace, asked.filters, sort=asked.sort, limit=asked.limit, after=after
        )
        found += page
        if len(page) < asked.limit:
            return found
        after = (getattr(page[-1], asked.sort), page[-1].id)
    return found


def _compare_hits(catalog: Catalog, model: Model, asked: Question) -> None:
    hits = model.hits(asked.namespace, asked.scope, parse(asked.query), asked.mode)
    ask = _asker(catalog, asked)
    best = ask(newest=1000, most=1000)
    assert _unranked(best) == _unranked([told for told, _ in hits])
    for newest in (1, 3):
        answer = catalog.candidates(
            asked.namespace,
            asked.scope,
            parse(asked.query),
            mode=asked.mode,
            newest=newest,
            most=1000,
        )
        assert answer.capped is (len(hits) > newest)
        assert len(answer.found) == min(newest, len(hits))
        moments = sorted((moment for _, moment in hits), reverse=True)[:newest]
        new_enough = [told for told, moment in hits if moment >= moments[-1]] if hits else []
        assert set(_unranked(answer.found)) <= set(new_enough)
    ordered = catalog.in_order(
        asked.namespace, asked.scope, parse(asked.query), mode=asked.mode, limit=1000
    ).found
    places = [(each.session, each.seq, each.digest) for each in ordered]
    assert places == sorted(places)
    assert _unranked(ordered) == _unranked(best)


def _asker(catalog: Catalog, asked: Question) -> Callable[..., list[Candidate]]:
    def ask(**bounds: int) -> list[Candidate]:
        query = parse(asked.query)
        answer = catalog.candidates(asked.namespace, asked.scope, query, mode=asked.mode, **bounds)
        scores = [each.relevance for each in answer.found]
        assert scores == sorted(scores, reverse=True)
        return answer.found

    return ask


def _unranked(found: list[Candidate]) -> list[Candidate]:
    return sorted((each._replace(relevance=0.0) for each in found), key=repr)
