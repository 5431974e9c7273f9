"""Reading on: versions, ranges, keys, notes, and who sees them."""

import pytest

from perdure.catalog.contract import (
    Catalog,
    Covered,
    Entry,
    Filters,
    KeyedEvents,
    Passage,
    Scope,
    Standing,
)
from perdure.catalog.query import parse
from perdure.model.record import Position
from perdure.testing.catalog.place import (
    HASH,
    CatalogCase,
    change,
    digest,
    found,
    ids,
    put,
    said,
    session,
)

__all__ = ["Putting"]

TEXTS = [
    "",
    "a",
    "\0",
    "a\0",
    "A",
    "é",
    "e\u0301",
    "\ud800",
    "\ud800\udc00",
    "\U00010000",
    "\udfff",
]
"""Texts that are easily taken for each other, or for the end of one."""


class Putting(CatalogCase):
    """What is known of a session is changed in one step, by somebody who knew what was there."""

    def test_nothing_is_known_at_first(self, catalog: Catalog) -> None:
        """An empty catalog knows of no session, in any namespace."""
        for namespace in ("", "a"):
            assert catalog.standing(namespace, "s") is None
            assert list(catalog.entries(namespace)) == []
            assert catalog.keys(namespace, "s") is None
            assert catalog.note(namespace, "n") is None
            assert not catalog.remove(namespace, "s")
            assert catalog.listed(namespace, Filters()) == []

    def test_what_is_put_is_known(self, catalog: Catalog) -> None:
        """A standing says what the last change said, with the version that it gave."""
        version = catalog.put(
            "", change(session("s", problem="torn"), state=b"\0\xff", partial=True), None
        )

        assert version is not None
        position = Position(9, HASH)
        assert catalog.standing("", "s") == Standing(
            version, "r", position, 10, b"\0\xff", "rules", partial=True, problem="torn"
        )
        assert list(catalog.entries("")) == [
            Entry("s", "r", "rules", partial=True, problem="torn", status="paused")
        ]
        empty = change("s", position=Position(-1, ""), floor=0, revision="", rules="", state=b"")
        later = catalog.put("", empty, version)
        assert later is not None
        assert catalog.standing("", "s") == Standing(
            later, "", Position(-1, ""), 0, b"", "", partial=False, problem=None
        )

    def test_only_who_knew_changes(self, catalog: Catalog) -> None:
        """A change that was built on another version changes nothing."""
        first = catalog.put("", change("s", [said(0, "apple")]), None)
        assert first is not None

        for wrong in (None, first - 1, first + 1, 0, -1, 2**70):
            assert catalog.put("", change("s", [said(0, "pear")], revision="x"), wrong) is None
        assert catalog.put("", change("other", [said(0, "pear")]), first) is None

        standing = catalog.standing("", "s")
        assert standing is not None
        assert (standing.version, standing.revision) == (first, "r")
        assert found(catalog, "apple") == [("s", 0)]
        assert found(catalog, "pear") == []
        assert catalog.standing("", "other") is None

    def test_versions_never_repeat(self, catalog: Catalog) -> None:
        """No two states of a session have one version, not even with a removal between them."""
        versions = []
        for _ in range(3):
            first = catalog.put("", change("s"), None)
            second = catalog.put("", change("s"), first)
            versions += [first, second]
            assert catalog.remove("", "s")
        catalog.clear()
        versions.append(catalog.put("", change("s"), None))

        assert None not in versions
        assert len(set(versions)) == 7

    def test_removal_is_compared_as_well(self, catalog: Catalog) -> None:
        """With a version a session is only forgotten if it has that one."""
        first = put(catalog)
        second = put(catalog)

        assert not catalog.remove("", "s", first)
        assert catalog.standing("", "s") is not None
        assert catalog.remove("", "s", second)
        assert not catalog.remove("", "s", second)
        assert catalog.standing("", "s") is None

    def test_a_removed_session_leaves_nothing(self, catalog: Catalog) -> None:
        """Nothing of a session that was forgotten is found, listed or counted."""
        listed = session(
            "s", title="apple pie", agents=("main",), cwd="/w", projection={"a": 1}, cost={"": 1.0}
        )
        put(catalog, listed, [said(0, "apple")], keys=[("t", "k", 0)], skipped=1)
        put(catalog, "other", [said(0, "apple")])
        catalog.remove("", "s")

        assert found(catalog, "apple") == [("other", 0)]
        assert ids(catalog.listed("", Filters())) == ["other"]
        sums = catalog.sums("", Filters())
        assert (sums.sessions, sums.passages, sums.skipped) == (1, 1, 0)
        assert (sums.by_agent, sums.cost) == ({}, {})
        assert catalog.keys("", "s") is None
        put(catalog, "s")
        keyed = catalog.keys("", "s")
        assert keyed is not None
        assert keyed.seqs == {}
        assert catalog.listed("", Filters(projection=[("/a", 1)])) == []
        assert found(catalog, "apple") == [("other", 0)]

    def test_what_is_not_covered_is_told(self, catalog: Catalog) -> None:
        """How many sessions were not read whole, how many records not, and where."""
        assert catalog.covered("") == Covered(0, 0, 0, [])
        put(catalog, "a")
        assert catalog.covered("") == Covered(1, 0, 0, [])
        put(catalog, session("bad", problem="torn"))
        put(catalog, "half", partial=True)
        put(catalog, "some", skipped=2, skipped_why="odd")
        put(catalog, "other", namespace="b")
        found = catalog.covered("")
        assert (found.sessions, found.unread, found.skipped) == (4, 2, 2)
        assert found.skipped_in == [("bad", "torn"), ("some", "odd")]
        for gone in ("bad", "half", "some"):
            catalog.remove("", gone)
        assert catalog.covered("") == Covered(1, 0, 0, [])

    def test_namespaces_see_their_own(self, catalog: Catalog) -> None:
        """What is put, noted and removed in one namespace is nothing to another."""
        for namespace in ("", "a", "a/b", "A"):
            put(catalog, session("s", title=f"in {namespace}"), [said(0, "apple")], namespace)
            catalog.put_note(namespace, "n", namespace)
        catalog.remove("a", "s")

        assert catalog.standing("a", "s") is None
        assert found(catalog, "apple", namespace="a") == []
        for namespace in ("", "a/b", "A"):
            assert [each.title for each in catalog.listed(namespace, Filters())] == [
                f"in {namespace}"
            ]
            assert found(catalog, "apple", namespace=namespace) == [("s", 0)]
            assert catalog.sums(namespace, Filters()).passages == 1
        assert [catalog.note(each, "n") for each in ("", "a", "A")] == ["", "a", "A"]

    def test_texts_that_look_alike_are_different(self, catalog: Catalog) -> None:
        """Two ids, namespaces or names never meet, whatever is in them."""
        for namespace in ("", "\0", "\ud800"):
            for number, id in enumerate(TEXTS):
                put(catalog, session(id, title=id, size=number), [said(0, "apple")], namespace)
                catalog.put_note(namespace, id, f"{namespace}{id}")
            entries = [each.session for each in catalog.entries(namespace)]
            assert entries == sorted(TEXTS)
            for number, id in enumerate(TEXTS):
                assert catalog.listed(namespace, Filters(ids=[id])) == [
                    session(id, title=id, size=number)
                ]
                assert catalog.note(namespace, id) == f"{namespace}{id}"
            pairs = [(id, 0) for id in sorted(TEXTS)]
            assert found(catalog, "apple", namespace=namespace) == pairs

    def test_a_session_comes_back_as_it_was(self, catalog: Catalog) -> None:
        """Everything that is listed of a session is given back, whatever it is."""
        texts = {name: f"{name} \ud800 \0" for name in ("title", "preview", "cwd", "host")}
        texts |= {name: name for name in ("preset", "composition", "composition_kind")}
        texts |= dict.fromkeys(("config_path", "parent", "relation", "problem"), "�")
        texts |= {name: name for name in ("source_format", "source_id", "source_parent")}
        numbers = dict.fromkeys(("created", "last_active", "events", "turns"), 2**63 - 1)
        numbers |= dict.fromkeys(("messages", "calls", "failures", "tokens"), 2**53)
        listed = session(
            "s",
            named=True,
            status="running",
            agents=("b", "a", ""),
            program="codex",
            source_path="/x",
            cost={"USD": 0.5, "": 1.0, "\ud83d": 2.0},
            size=2**40,
            archived=True,
            projection={"big": 2**200, "\ud800\udc00": ["\U00010000", None, True, 1.5, {}]},
            **texts,
            **numbers,
        )
        put(catalog, listed)

        assert catalog.listed("", Filters()) == [listed]

    def test_numbers_that_fit_nowhere_are_kept_near(self, catalog: Catalog) -> None:
        """Numbers of more than 64 bits become the nearest that has no more, and nothing raises."""
        listed = session("s", last_active=2**70, created=-(2**70), size=2**64, tokens=10**30)
        passage = said(2**70, "apple", time=-(2**70), call=2**64)._replace(digest=-(2**65))
        put(
            catalog,
            listed,
            [passage],
            position=Position(2**70, HASH),
            floor=2**70,
            keys=[("t", "k", 2**70)],
            skipped=2**70,
        )

        (kept,) = catalog.listed("", Filters())
        assert (kept.last_active, kept.created) == (2**63 - 1, -(2**63))
        assert (kept.size, kept.tokens) == (2**63 - 1, 2**63 - 1)
        assert found(catalog, "apple") == [("s", 2**63 - 1)]
        keyed = catalog.keys("", "s")
        assert keyed is not None
        assert keyed.seqs == {("t", "k"): 2**63 - 1}
        put(catalog, session("t", size=2**64, events=2**64))
        assert catalog.sums("", Filters()).size == 2 * (2**63 - 1)

    def test_titles_may_be_huge(self, catalog: Catalog) -> None:
        """A title of a million characters is listed as it was given."""
        title = "huge \ud800" * 150_000
        put(catalog, session("s", title=title))
        put(catalog, session("t", title="short"))

        assert [each.title for each in catalog.listed("", Filters(), sort="title")] == [
            title,
            "short",
        ]

    def test_entries_are_in_order_and_of_one_state(self, catalog: Catalog) -> None:
        """Entries come by id, and what is changed while they are read changes none of them."""
        for id in ("b", "c", "a", "B", "\ud800", "é"):
            put(catalog, id)
        entries = catalog.entries("")
        first = next(entries)
        put(catalog, "aa")
        catalog.remove("", "c")

        names = [first.session, *(each.session for each in entries)]
        assert names == sorted(["b", "c", "a", "B", "\ud800", "é"])

    # --- passages ---------------------------------------------------------------------------------

    def test_a_range_is_replaced(self, catalog: Catalog) -> None:
        """Passages from `start` on, or up to `end`, give way to those of the change."""
        put(catalog, "s", [said(seq, f"apple number{seq}") for seq in range(6)])
        put(catalog, "s", [said(4, "apple late")], start=4)
        assert found(catalog, "apple") == [("s", seq) for seq in range(5)]
        assert found(catalog, "number4") == []
        assert found(catalog, "late") == [("s", 4)]

        put(catalog, "s", [said(1, "apple early")], start=1, end=3)
        assert found(catalog, "apple") == [("s", 0), ("s", 1), ("s", 3), ("s", 4)]
        assert found(catalog, "number1") == found(catalog, "number2") == []

        put(catalog, "s", [], start=0)
        assert found(catalog, "apple") == []
        assert catalog.sums("", Filters()).passages == 0

    def test_an_empty_range_replaces_nothing(self, catalog: Catalog) -> None:
        """Where `start` is `end`, or lies behind it, passages are only added."""
        put(catalog, "s", [said(0, "apple"), said(5, "apple")])
        put(catalog, "s", [said(5, "pear")], start=5, end=5)
        put(catalog, "s", [said(6, "plum")], start=9, end=2)

        assert found(catalog, "apple") == [("s", 0), ("s", 5)]
        assert found(catalog, "pear") == [("s", 5)]
        assert found(catalog, "plum") == [("s", 6)]

    def test_passages_outside_the_range_are_added(self, catalog: Catalog) -> None:
        """What lies before `start` or behind `end` is added to what is there, once."""
        put(catalog, "s", [said(0, "apple"), said(8, "apple")])
        for _ in range(2):
            more = [said(0, "apple"), said(0, "pear"), said(5, "plum"), said(8, "pear")]
            put(catalog, "s", more, start=4, end=6)

        assert found(catalog, "apple") == [("s", 0), ("s", 8)]
        assert found(catalog, "pear") == [("s", 0), ("s", 8)]
        assert found(catalog, "plum") == [("s", 5)]
        assert catalog.sums("", Filters()).passages == 5

    def test_passages_that_are_there_stay(self, catalog: Catalog) -> None:
        """Of those with one seq, kind and digest the first is kept, and reading again adds none."""
        first = said(0, "apple", agent="one", time=1, call=7)
        put(catalog, "s", [first, first._replace(agent="two", time=2), said(0, "apple", "error")])
        put(catalog, "s", [first._replace(agent="three", time=3), said(0, "apple", "error")])

        answer = catalog.in_order("", Scope(), parse("apple"))
        kept = [(each.kind, each.agent, each.time, each.call) for each in answer.found]
        assert sorted(kept) == [("error", None, said(0, "").time, None), ("user", "one", 1, 7)]
        assert catalog.sums("", Filters()).passages == 2

    def test_a_passage_without_words_is_counted(self, catalog: Catalog) -> None:
        """A passage of which no token is found is one nevertheless, and can be replaced."""
        put(catalog, "s", [Passage(0, "user", "", "", digest("…"), None, 0)])
        assert catalog.sums("", Filters()).passages == 1
        put(catalog, "s")
        assert catalog.sums("", Filters()).passages == 0

    def test_tokens_may_be_odd(self, catalog: Catalog) -> None:
        """Tokens that no analysis gives raise nothing, and those beside them are found."""
        odd = 'apple \ud800 \0 "x" AND (y* \udfff'
        put(catalog, "s", [Passage(0, "user", odd, odd, 1, None, 0)])
        assert found(catalog, "apple") == [("s", 0)]

    # --- keys and notes ---------------------------------------------------------------------------

    def test_keys_are_kept_by_type_and_key(self, catalog: Catalog) -> None:
        """Keyed events are known with the position up to which the session was read."""
        keys = [("pay", "k", 3), ("pay", "K", 4), ("x", "k", 5), ("x", "", 6), ("", "\ud800", 7)]
        put(catalog, "s", keys=keys)

        expected = {(kind, key): seq for kind, key, seq in keys}
        assert catalog.keys("", "s") == KeyedEvents(Position(9, HASH), expected)

    def test_keys_are_added_or_forgotten(self, catalog: Catalog) -> None:
        """A change from the start forgets all other keys; one that goes on adds to them."""
        put(catalog, "s", keys=[("t", "a", 0), ("t", "b", 1)])
        put(catalog, "s", keys=[("t", "b", 1), ("t", "c", 2)], start=1)
        keyed = catalog.keys("", "s")
        assert keyed is not None
        assert keyed.seqs == {("t", "a"): 0, ("t", "b"): 1, ("t", "c"): 2}

        put(catalog, "s", keys=[("t", "c", 5)], start=0)
        keyed = catalog.keys("", "s")
        assert keyed is not None
        assert keyed.seqs == {("t", "c"): 5}

    @pytest.mark.parametrize("namespace", ["", "a"])
    def test_keys_of_a_partial_reading_are_not_told(self, catalog: Catalog, namespace: str) -> None:
        """Nobody may rely on the keys of a session that was not read to its end."""
        put(catalog, "s", namespace=namespace, keys=[("t", "a", 0)], partial=True)
        assert catalog.keys(namespace, "s") is None
        put(catalog, "s", namespace=namespace, keys=[("t", "b", 1)], start=1)
        keyed = catalog.keys(namespace, "s")
        assert keyed is not None
        assert keyed.seqs == {("t", "a"): 0, ("t", "b"): 1}

    def test_a_note_is_the_last_one(self, catalog: Catalog) -> None:
        """What was noted under a name is what was noted last."""
        for told in ("one", "", "\ud800\0", "two" * 10_000):
            catalog.put_note("", "name", told)
            assert catalog.note("", "name") == told
        assert catalog.note("", "Name") is None
