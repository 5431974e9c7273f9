"""Listings: orders, pages, words, children and sums."""

import pytest

from perdure.catalog.contract import SORTS, Catalog, Filters
from perdure.catalog.query import parse
from perdure.errors import InvalidValue
from perdure.testing.catalog.place import (
    CatalogCase,
    everything,
    ids,
    put,
    said,
    session,
)

__all__ = ["Listing"]


def some(catalog: Catalog) -> None:
    """Sessions with ties, and with values that are missing."""
    put(catalog, session("a", last_active=5, created=None, title="beta", size=1))
    put(catalog, session("b", last_active=None, created=9, title=None, size=7))
    put(catalog, session("c", last_active=5, created=9, title="Alpha", size=7))
    put(catalog, session("d", last_active=-3, created=None, title="", size=0))
    put(catalog, session("e", last_active=2**60, created=-1, title="ALPHA", size=2**60))
    put(catalog, session("f", last_active=None, created=9, title="ärger", size=0))


ORDERS = {
    "last_active": ["e", "a", "c", "d", "b", "f"],
    "created": ["b", "c", "f", "e", "a", "d"],
    "title": ["d", "c", "e", "a", "f", "b"],
    "size": ["e", "b", "c", "a", "d", "f"],
}


class Listing(CatalogCase):
    """Sessions in an order, a page at a time."""

    @pytest.mark.parametrize("sort", SORTS)
    @pytest.mark.parametrize("limit", [1, 2, 3, 100])
    def test_pages_follow_each_other(self, catalog: Catalog, sort: str, limit: int) -> None:
        """Page by page every session comes once: equal values by id, what has none last."""
        some(catalog)
        assert everything(catalog, sort=sort, limit=limit) == ORDERS[sort]

    def test_titles_go_by_letters_and_not_by_case(self, catalog: Catalog) -> None:
        """Titles that differ in case alone are equal, and their sessions go by id."""
        for id, title in (("1", "STRASSE"), ("2", "straße"), ("3", "Straße"), ("4", "strasse b")):
            put(catalog, session(id, title=title))
        assert everything(catalog, sort="title", limit=1) == ["1", "2", "3", "4"]

    def test_an_unknown_order_is_refused(self, catalog: Catalog) -> None:
        """Sessions are sorted by what there is an order for."""
        put(catalog)
        with pytest.raises(InvalidValue):
            catalog.listed("", Filters(), sort="id; DROP TABLE sessions")

    @pytest.mark.parametrize("sort", SORTS)
    def test_pages_hold_while_sessions_come_and_go(self, catalog: Catalog, sort: str) -> None:
        """What is put or removed between two pages repeats no session and hides none."""
        some(catalog)
        order = ORDERS[sort]
        first = catalog.listed("", Filters(), sort=sort, limit=3)
        after = (getattr(first[-1], sort), first[-1].id)
        catalog.remove("", first[-1].id)
        put(catalog, session("new", last_active=2**61, created=2**61, title="!", size=2**61))
        behind = catalog.listed("", Filters(), sort=sort, limit=10, after=after)

        assert ids(first) + ids(behind) == order

    @pytest.mark.parametrize("sort", SORTS)
    def test_a_page_may_begin_behind_anything(self, catalog: Catalog, sort: str) -> None:
        """The place to go on from need not be one of a session, nor need its value fit."""
        some(catalog)
        values = (None, "b", "", "\ud800") if sort == "title" else (None, 5, 2**90, -(2**90))
        for value in values:
            for id in ("", "c", "zz", "\ud800"):
                page = catalog.listed("", Filters(), sort=sort, limit=10, after=(value, id))
                assert ids(page) == [each for each in ORDERS[sort] if each in ids(page)]
        last = catalog.listed("", Filters(), sort=sort, after=(None, "\udfff"))
        assert last == []

    def test_a_page_has_as_many_as_were_asked_for(self, catalog: Catalog) -> None:
        """A limit is kept, whatever it is."""
        some(catalog)
        assert [len(catalog.listed("", Filters(), limit=n)) for n in (0, 1, 2**70)] == [0, 1, 6]

    def test_a_page_may_pass_some_over(self, catalog: Catalog) -> None:
        """An offset counts from where the page would begin, and may lead past the end."""
        some(catalog)
        order = everything(catalog)
        for offset in (0, 1, 5, 6, 2**70, -1):
            page = catalog.listed("", Filters(), limit=10, offset=offset)
            assert ids(page) == order[max(0, offset) :]
        first = catalog.listed("", Filters(), limit=1)[0]
        after = (first.last_active, first.id)
        assert ids(catalog.listed("", Filters(), offset=2, after=after)) == order[3:]

    def test_what_changes_is_listed_anew(self, catalog: Catalog) -> None:
        """A listing shows each session as it was put last, and in its new place."""
        some(catalog)
        put(catalog, session("d", last_active=2**61, title="Zeta", status="completed"))
        first = catalog.listed("", Filters(), limit=1)
        assert [(each.id, each.title, each.status) for each in first] == [
            ("d", "Zeta", "completed")
        ]
        assert everything(catalog, sort="title")[-3:] == ["d", "f", "b"]
        assert len(everything(catalog)) == 6

    # --- by words ---------------------------------------------------------------------------------

    def test_sessions_are_found_by_their_words(self, catalog: Catalog) -> None:
        """Words of title, preview, composition, preset, config path, agents and cwd find one."""
        put(
            catalog,
            session(
                "s",
                title="Fix the parser",
                preview="why does it fail",
                composition="reviewPanel",
                preset="careful-mode",
                config_path="/etc/agents/main.toml",
                agents=("planner", "coder_two"),
                cwd="/home/me/projects/store",
                status="completed",
                host="machine",
            ),
        )
        put(catalog, session("t", title="Something else"))
        texts = ("parser", "FAIL", "reviewpanel", "panel", "careful-mode", "main.toml", "planner")
        for text in (*texts, "coder two", "projects/store", '"fix the"', "pars", "parser planner"):
            assert ids(catalog.matching("", Filters(), parse(text))) == ["s"], text
        for text in ("machine", "completed", "parser something", "", "-", '"parser why"'):
            assert catalog.matching("", Filters(), parse(text)) == [], text
        either = catalog.matching("", Filters(), parse("parser something"), mode="any")
        assert sorted(ids(either)) == ["s", "t"]

    def test_words_that_are_gone_find_nothing(self, catalog: Catalog) -> None:
        """A session is found by what is listed of it now."""
        put(catalog, session("s", title="apple"))
        put(catalog, session("s", title="pear"))
        put(catalog, session("t", title="apple"))
        catalog.remove("", "t")

        assert catalog.matching("", Filters(), parse("apple")) == []
        assert ids(catalog.matching("", Filters(), parse("pear"))) == ["s"]
        put(catalog, session("s"))
        assert catalog.matching("", Filters(), parse("pear")) == []

    def test_the_best_come_first(self, catalog: Catalog) -> None:
        """Sessions are ranked; of equal ones those active last come first, then by id."""
        rest = "one two three four five six seven eight nine ten"
        put(catalog, session("long", title=f"apple {rest}", last_active=9))
        put(catalog, session("b", title="apple pie", last_active=1))
        put(catalog, session("c", title="apple pie", last_active=2))
        put(catalog, session("a", title="apple pie"))
        put(catalog, session("aa", title="apple pie"))
        for number in range(9):
            put(catalog, session(f"other{number}", title=f"pear pie {number}"))

        whole = ids(catalog.matching("", Filters(), parse("apple")))
        assert whole == ["c", "b", "a", "aa", "long"]
        pages = [
            ids(catalog.matching("", Filters(), parse("apple"), limit=2, offset=offset))
            for offset in (0, 2, 4, 6)
        ]
        assert pages == [["c", "b"], ["a", "aa"], ["long"], []]

    def test_words_are_looked_for_within_filters(self, catalog: Catalog) -> None:
        """Filters hold for a search by words as for a listing, and so do namespaces."""
        for number in range(4):
            status = "crashed" if number % 2 else "paused"
            put(catalog, session(f"{number}", title="apple", status=status, last_active=number))
        put(catalog, session("x", title="apple", status="crashed"), namespace="a")

        crashed = Filters(statuses=["crashed"])
        assert ids(catalog.matching("", crashed, parse("apple"))) == ["3", "1"]
        assert ids(catalog.matching("a", crashed, parse("apple"))) == ["x"]

    # --- children ---------------------------------------------------------------------------------

    def test_children_come_by_creation_and_id(self, catalog: Catalog) -> None:
        """The sessions that name one as their parent are its children; who has no time is last."""
        put(catalog, session("p"))
        put(catalog, session("late", parent="p", created=9))
        put(catalog, session("b", parent="p", created=-5, relation="subagent"))
        put(catalog, session("a", parent="p", created=9, relation="fork"))
        put(catalog, session("none", parent="p"))
        put(catalog, session("grand", parent="a"))
        put(catalog, session("other", parent="q"))
        put(catalog, session("away", parent="p"), namespace="a")

        assert ids(catalog.children("", ["p"])) == ["b", "a", "late", "none"]
        assert ids(catalog.children("", ["q", "a", "nobody"])) == ["grand", "other"]
        assert catalog.children("", []) == []
        assert ids(catalog.children("a", ["p"])) == ["away"]

    def test_imports_have_children_by_the_ids_of_their_format(self, catalog: Catalog) -> None:
        """An import comes from those whose id in its format it names as its parent."""
        put(catalog, session("p", source_format="codex", source_id="one"))
        put(catalog, session("again", source_format="codex", source_id="one"))
        put(catalog, session("c", source_format="codex", source_id="two", source_parent="one"))
        put(catalog, session("d", source_format="claude-code", source_parent="one"))
        put(catalog, session("e", source_parent="one"))
        put(catalog, session("f", source_format="codex", source_parent="none", parent="p"))
        put(catalog, session("g", source_format="codex", source_parent="one", parent="p"))

        assert ids(catalog.children("", ["p"])) == ["c", "f", "g"]
        assert ids(catalog.children("", ["again"])) == ["c", "g"]
        assert ids(catalog.children("", ["p", "again"])) == ["c", "f", "g"]

    def test_no_session_is_its_own_child(self, catalog: Catalog) -> None:
        """A session that says it comes from itself is a child of nobody, and is a top one."""
        put(catalog, session("s", parent="s", relation="subagent"))
        put(
            catalog,
            session("t", source_format="f", source_id="t", source_parent="t", relation="subagent"),
        )

        assert catalog.children("", ["s", "t"]) == []
        assert sorted(ids(catalog.listed("", Filters(top=True)))) == ["s", "t"]

    # --- sums -------------------------------------------------------------------------------------

    def test_sums_are_of_what_is_listed(self, catalog: Catalog) -> None:
        """Sums add up what was put of each session, by status, program and agent."""
        put(
            catalog,
            session(
                "a", events=3, size=10, tokens=5, cost={"USD": 0.5, "": 1.0}, agents=("x", "y")
            ),
            [said(0, "one"), said(1, "two")],
        )
        put(
            catalog,
            session("b", events=4, size=20, cost={"USD": 0.25}, agents=("x",), status="crashed"),
            [said(0, "one")],
            skipped=2,
            skipped_why="torn",
        )
        put(catalog, session("c", program="codex", problem="broken"), partial=True)
        put(catalog, session("d", events=100, cost={"USD": 99.0}), namespace="a")

        sums = catalog.sums("", Filters())
        assert sums.bytes > 0
        assert sums._replace(bytes=0)._asdict() == {
            "sessions": 3,
            "events": 7,
            "size": 30,
            "tokens": 5,
            "cost": {"USD": 0.75, "": 1.0},
            "by_status": {"paused": 2, "crashed": 1},
            "by_program": {"perdure": 2, "codex": 1},
            "by_agent": {"x": 2, "y": 1},
            "passages": 3,
            "skipped": 2,
            "skipped_in": [("b", "torn"), ("c", "broken")],
            "partial": 1,
            "bytes": 0,
        }
        some = catalog.sums("", Filters(agents=["y"]))
        assert (some.sessions, some.events, some.passages, some.cost) == (
            1,
            3,
            2,
            {"USD": 0.5, "": 1.0},
        )

    def test_sums_of_nothing_are_nothing(self, catalog: Catalog) -> None:
        """Where no session is, all sums are empty."""
        put(catalog, session("a", cost={"USD": 1.0}, agents=("x",)))
        for namespace, filters in (("", Filters(ids=[])), ("a", Filters())):
            sums = catalog.sums(namespace, filters)
            assert [value for value in sums._replace(bytes=0) if value] == []

    def test_sums_name_some_of_what_is_skipped(self, catalog: Catalog) -> None:
        """At most 20 sessions are named that have records which are not found, or a problem."""
        for number in range(25):
            put(catalog, f"s{number:02}", skipped=1, skipped_why=f"why {number}")
        put(catalog, "fine")

        sums = catalog.sums("", Filters())
        assert (sums.skipped, len(sums.skipped_in)) == (25, 20)
        assert all(id.startswith("s") and why.startswith("why") for id, why in sums.skipped_in)

    def test_costs_may_be_odd(self, catalog: Catalog) -> None:
        """A cost that is no number, or has no end, spoils no sum."""
        put(catalog, session("a", cost={"USD": float("nan"), "EUR": float("inf")}))
        put(catalog, session("b", cost={"USD": 1.0, "EUR": 10**400}))
        put(catalog, session("c", cost={"USD": 2}))
        sums = catalog.sums("", Filters())
        assert sums.cost.get("USD") == 3.0
