"""Searching: what is found, how it is told, in which order, and how much of it."""

from typing import Literal

from perdure.catalog.contract import Candidate, Catalog, Filters, Scope
from perdure.catalog.query import parse
from perdure.testing.catalog.place import NOW, CatalogCase, digest, found, put, said

__all__ = ["Searching"]


class Searching(CatalogCase):
    """Passages that match a query."""

    def test_a_passage_is_told_whole(self, catalog: Catalog) -> None:
        """A candidate says where its passage is, whose, when, and of which call."""
        put(
            catalog,
            "s",
            [said(3, "read store.py", "tool-call", agent="main", time=-5, call=-(2**63))],
        )

        (one,) = catalog.candidates("", Scope(), parse("store.py")).found
        assert one.relevance > 0
        told = Candidate(
            "s", 3, "tool-call", "main", -5, digest("read store.py"), -(2**63), one.relevance
        )
        assert one == told
        (ordered,) = catalog.in_order("", Scope(), parse("store.py")).found
        assert ordered == told._replace(relevance=0.0)

    def test_words_parts_phrases_and_beginnings_find(self, catalog: Catalog) -> None:
        """A query means what `Query.match` says of words and parts."""
        put(
            catalog,
            "s",
            [
                said(0, "appendBatch writes to lib/acme/store.py"),
                said(1, "the batch was appended; nothing was lost"),
                said(2, "重跑后通过"),
            ],
        )
        assert found(catalog, "batch") == [("s", 0), ("s", 1)]
        assert found(catalog, "append_batch") == [("s", 0)]
        assert found(catalog, "store.py") == [("s", 0)]
        assert found(catalog, '"nothing was"') == [("s", 1)]
        assert found(catalog, '"was nothing"') == []
        assert found(catalog, "noth") == [("s", 1)]
        assert found(catalog, "noth ") == []
        assert found(catalog, "跑后") == [("s", 2)]
        assert found(catalog, "batch lost") == [("s", 1)]
        assert found(catalog, "batch 通过") == []
        assert found(catalog, "batch 通过", mode="any") == [("s", 0), ("s", 1), ("s", 2)]

    def test_nothing_is_found_by_nothing(self, catalog: Catalog) -> None:
        """A query without a word finds no passage."""
        put(catalog, "s", [said(0, "apple"), said(1, "- ‖ …")])
        for text in ("", " ", "-", '""', "‖", "\ue000s1", "*", "\0"):
            assert found(catalog, text) == found(catalog, text, mode="any") == [], text

    def test_nothing_that_is_typed_is_a_command(self, catalog: Catalog) -> None:
        """What looks like a query language is looked for like any text."""
        put(catalog, "s", [said(0, "apple OR pear NOT plum NEAR words:x scope")])
        for text in ("apple OR pear", "NOT plum", "words:x", "NEAR(", "apple AND NOT pear"):
            assert found(catalog, text) == ([] if "AND" in text else [("s", 0)]), text
        for text in ('") OR ("', "{words}: x y", "^apple*", "'; DROP TABLE passages; --"):
            catalog.candidates("", Scope(), parse(text))
        assert found(catalog, "apple") == [("s", 0)]

    def test_tokens_of_a_scope_are_no_words(self, catalog: Catalog) -> None:
        """What a catalog notes of a passage beside its words finds nothing by itself."""
        put(catalog, "s", [said(0, "apple", agent="main")])
        for text in ("s1", "n1", "k1", "a1", "a0", "user", "main", "\ue000s1", "t"):
            assert found(catalog, text) == [], text

    def test_the_best_come_first(self, catalog: Catalog) -> None:
        """Hits are ranked: what is rare, often said and in a short passage counts more."""
        filler = " ".join(f"word{number}" for number in range(80))
        texts = [f"apple {filler}", "apple", "apple apple pie", f"pear {filler}", "apple common"]
        put(catalog, "s", [said(seq, text) for seq, text in enumerate(texts)])
        put(catalog, "t", [said(seq, f"common {seq}") for seq in range(20)])

        def order(text: str, mode: Literal["all", "any"] = "all") -> list[int]:
            answer = catalog.candidates("", Scope(), parse(text), mode=mode)
            scores = [each.relevance for each in answer.found]
            assert scores == sorted(scores, reverse=True)
            return [each.seq for each in answer.found if each.session == "s"]

        assert order("apple ") == [2, 1, 4, 0]
        assert order("pear common ", "any")[0] == 3

    def test_the_best_of_the_newest_are_given(self, catalog: Catalog) -> None:
        """Of more hits than are looked at the newest are ranked, and that is told."""
        for number in range(10):
            put(catalog, f"s{number}", [said(0, "apple")])
        put(catalog, "s0", [said(1, "apple apple apple")], start=1)

        everything = catalog.candidates("", Scope(), parse("apple"), newest=11)
        assert (len(everything.found), everything.capped) == (11, False)
        assert everything.found[0][:2] == ("s0", 1)
        some = catalog.candidates("", Scope(), parse("apple"), newest=4)
        assert some.capped
        assert sorted(each[:2] for each in some.found) == [
            ("s0", 1),
            ("s7", 0),
            ("s8", 0),
            ("s9", 0),
        ]
        best = catalog.candidates("", Scope(), parse("apple"), newest=4, most=1)
        assert best.capped
        assert [each[:2] for each in best.found] == [("s0", 1)]
        most = catalog.candidates("", Scope(), parse("apple"), most=3)
        assert (len(most.found), most.capped) == (3, False)

    def test_the_newest_are_those_of_the_scope(self, catalog: Catalog) -> None:
        """Hits outside the scope take nobody's place among the newest."""
        put(catalog, "old", [said(seq, "apple", "error") for seq in range(3)])
        put(catalog, "new", [said(seq, "apple", time=NOW - seq) for seq in range(30)])
        for scope in (
            Scope(Filters(ids=["old"])),
            Scope(kinds=["error"]),
            Scope(Filters(without=["new"])),
            Scope(Filters(statuses=["paused"], ids=["old"])),
        ):
            answer = catalog.candidates("", scope, parse("apple"), newest=5)
            assert not answer.capped
            assert [each.session for each in answer.found] == ["old"] * 3
        assert catalog.candidates("", Scope(kinds=["user"]), parse("apple"), newest=5).capped

    def test_what_was_said_again_is_as_new_as_the_first_time(self, catalog: Catalog) -> None:
        """Reading a session again does not make its passages new."""
        for id in ("a", "b", "c"):
            put(catalog, id, [said(0, "apple")])
        put(catalog, "a", [said(0, "apple")])
        answer = catalog.candidates("", Scope(), parse("apple"), newest=2)
        assert sorted(each.session for each in answer.found) == ["b", "c"]

    # --- in order ---------------------------------------------------------------------------------

    def test_hits_come_in_order_page_by_page(self, catalog: Catalog) -> None:
        """In order of session id, number and digest every hit comes once, whatever its page."""
        places = []
        for id in ("b", "a", "\ud800", "c"):
            texts = [f"apple {seq % 3} {word}" for seq in range(4) for word in ("x", "y")]
            passages = [said(number // 2, text) for number, text in enumerate(texts)]
            put(catalog, id, passages)
            places += [(id, each.seq, each.digest) for each in passages]
        for limit in (1, 3, 7, 100):
            pages: list[tuple[str, int, int]] = []
            after = None
            for _ in range(len(places) + 1):
                page = catalog.in_order("", Scope(), parse("apple"), after=after, limit=limit)
                assert not page.capped
                pages += [(each.session, each.seq, each.digest) for each in page.found]
                if len(page.found) < limit:
                    break
                after = pages[-1]
            assert pages == sorted(places)
        behind = catalog.in_order("", Scope(), parse("apple"), after=("aa", -5, 2**90), limit=1)
        assert behind.found[0].session == "b"

    def test_any_number_of_hits_comes_in_order(self, catalog: Catalog) -> None:
        """Thousands of hits in hundreds of sessions come in order as a few do."""
        places = []
        for number in range(300):
            id = f"{number * 7 % 300:03}"
            passages = [said(seq, f"apple {seq}") for seq in range(20)]
            put(catalog, id, passages if number % 10 else passages[:1])
            places += [(id, each.seq) for each in (passages if number % 10 else passages[:1])]
        places.sort()
        after = None
        for start in range(0, 90, 30):
            page = catalog.in_order("", Scope(), parse("apple"), after=after, limit=30).found
            assert [each[:2] for each in page] == places[start : start + 30]
            after = (page[-1].session, page[-1].seq, page[-1].digest)
        late = catalog.in_order("", Scope(), parse("apple"), after=("290", 0, 2**63 - 1), limit=5)
        assert [each[:2] for each in late.found] == [
            place for place in places if place > ("290", 0)
        ][:5]
        some = Scope(Filters(statuses=["paused"], without=["000"]), kinds=["user"])
        first = catalog.in_order("", some, parse("apple"), limit=3).found
        assert [each[:2] for each in first] == [place for place in places if place[0] > "000"][:3]
