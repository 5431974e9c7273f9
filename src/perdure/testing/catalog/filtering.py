"""Filters: one by one, and together."""

from typing import Any

import pytest

from perdure.catalog.contract import Catalog, Filters
from perdure.testing.catalog.place import CatalogCase, everything, ids, put, session

__all__ = ["Filtering"]

MEMBERS: dict[str, Any] = {
    "tag": "red",
    "n": 1,
    "half": 0.5,
    "yes": True,
    "zero": 0,
    "none": None,
    "list": ["a", {"b": 2}],
    "a/b": "slash",
    "m~n": "tilde",
    "": "empty",
    "0": "digit",
    "deep": {"er": {"still": "here"}},
    "\ud800": "\udfff",
    "'; DROP TABLE sessions; --": "quoted",
    "big": 2**100,
}

POINTERS = [
    ("/tag", "red", True),
    ("/tag", "RED", False),
    ("/n", 1, True),
    ("/n", 1.0, True),
    ("/n", True, False),
    ("/n", "1", False),
    ("/half", 0.5, True),
    ("/yes", True, True),
    ("/yes", 1, False),
    ("/zero", False, False),
    ("/zero", 0, True),
    ("/zero", -0.0, True),
    ("/none", None, True),
    ("/missing", None, False),
    ("/list/0", "a", True),
    ("/list/1/b", 2, True),
    ("/list/00", "a", False),
    ("/list/-", "a", False),
    ("/list/2", None, False),
    ("/a~1b", "slash", True),
    ("/m~0n", "tilde", True),
    ("/", "empty", True),
    ("/0", "digit", True),
    ("/deep/er/still", "here", True),
    ("/deep/er", None, False),
    ("/\ud800", "\udfff", True),
    ("/'; DROP TABLE sessions; --", "quoted", True),
    ("tag", "red", False),
    ("", None, False),
    ("/big", 2**100, True),
    ("/big", float(2**100), True),
    ("/tag/x", "red", False),
    ("/n", float("nan"), False),
]


def every(catalog: Catalog, filters: Filters) -> list[str]:
    """The ids that filters let through, by id; the same in all orders and page by page."""
    found = sorted(ids(catalog.listed("", filters, limit=1000)))
    for sort in ("title", "size", "created"):
        assert sorted(everything(catalog, filters, sort=sort, limit=2)) == found
    assert catalog.sums("", filters).sessions == len(found)
    return found


class Filtering(CatalogCase):
    """Which sessions are listed, counted, and searched."""

    def test_by_id(self, catalog: Catalog) -> None:
        """Sessions are named one by one, or left out one by one."""
        for id in "abcd":
            put(catalog, id)
        assert every(catalog, Filters(ids=["a", "c", "nobody"])) == ["a", "c"]
        assert every(catalog, Filters(ids=[])) == []
        assert every(catalog, Filters(without=["a", "nobody"])) == ["b", "c", "d"]
        assert every(catalog, Filters(ids=["a", "b"], without=["b"])) == ["a"]

    def test_many_ids_may_be_named(self, catalog: Catalog) -> None:
        """A filter may name any number of sessions."""
        for number in range(3):
            put(catalog, f"{number}")
        names = [f"{number}" for number in range(1, 50_000)]
        assert every(catalog, Filters(ids=names)) == ["1", "2"]
        assert every(catalog, Filters(without=names)) == ["0"]

    def test_by_agent(self, catalog: Catalog) -> None:
        """One of the agents took part, whatever the others are."""
        put(catalog, session("a", agents=("x", "y")))
        put(catalog, session("b", agents=("y",)))
        put(catalog, session("c", agents=("X", "")))
        put(catalog, session("d"))
        assert every(catalog, Filters(agents=["x"])) == ["a"]
        assert every(catalog, Filters(agents=["x", "y"])) == ["a", "b"]
        assert every(catalog, Filters(agents=["", "nobody"])) == ["c"]
        assert every(catalog, Filters(agents=[])) == []
        put(catalog, session("a", agents=("z",)))
        assert every(catalog, Filters(agents=["x"])) == []
        assert every(catalog, Filters(agents=["z"])) == ["a"]

    @pytest.mark.parametrize(
        ("name", "filter_name"),
        [
            ("program", "programs"),
            ("status", "statuses"),
            ("preset", "presets"),
            ("parent", "parents"),
            ("relation", "relations"),
        ],
    )
    def test_by_a_name(self, catalog: Catalog, name: str, filter_name: str) -> None:
        """A name is one of those that are given, to the last sign."""
        for number, value in enumerate(("x", "X", "x\0", "\ud800", "'", "%")):
            put(catalog, session(f"{number}", **{name: value}))
        put(catalog, session("none"))

        def by(*values: str) -> list[str]:
            given: dict[str, Any] = {filter_name: values}
            return every(catalog, Filters(**given))

        assert by("x") == ["0"]
        assert by("X", "\ud800", "x") == ["0", "1", "3"]
        assert by("x\0") == ["2"]
        assert by("'") == ["4"]
        assert by("%") == ["5"]
        assert by("nothing") == by() == []
        assert by("") == (["none"] if name == "relation" else [])

    def test_by_folder(self, catalog: Catalog) -> None:
        """A folder stands for itself and what is below it, and no sign in its name for another."""
        folders = (
            "/a/b",
            "/a/b/c",
            "/a/bc",
            "/a",
            "/",
            "/A/b",
            "/a/b%",
            "/a/b/\ud800",
            "b",
            "/a_b",
        )
        for number, folder in enumerate(folders):
            put(catalog, session(f"{number}", cwd=folder))
        put(catalog, session("none"))

        assert every(catalog, Filters(cwd="/a/b")) == ["0", "1", "7"]
        assert every(catalog, Filters(cwd="/a/b/")) == ["0", "1", "7"]
        assert every(catalog, Filters(cwd="/a")) == ["0", "1", "2", "3", "6", "7"]
        assert every(catalog, Filters(cwd="/")) == ["0", "1", "2", "3", "4", "5", "6", "7", "9"]
        assert every(catalog, Filters(cwd="/a/b/\ud800")) == ["7"]
        assert every(catalog, Filters(cwd="/a/%")) == every(catalog, Filters(cwd="/a/_")) == []
        assert every(catalog, Filters(cwd="b")) == ["8"]
        assert every(catalog, Filters(cwd="")) == []

    def test_by_time(self, catalog: Catalog) -> None:
        """Sessions were last active at or after `since`, and before `until`."""
        for id, time in (("a", 1), ("b", 2), ("c", 3), ("d", -1), ("none", None)):
            put(catalog, session(id, last_active=time))
        assert every(catalog, Filters(since=2)) == ["b", "c"]
        assert every(catalog, Filters(until=2)) == ["a", "d"]
        assert every(catalog, Filters(since=1, until=3)) == ["a", "b"]
        assert every(catalog, Filters(since=3, until=3)) == []
        assert every(catalog, Filters(since=-(2**90), until=2**90)) == ["a", "b", "c", "d"]
        assert every(catalog, Filters(since=2**90)) == every(catalog, Filters(until=-(2**90))) == []

    def test_by_trouble(self, catalog: Catalog) -> None:
        """A session has a problem if one is named, or if records of it are not found."""
        put(catalog, session("a", problem="torn"))
        put(catalog, session("b"), skipped=1)
        put(catalog, session("c"))
        assert every(catalog, Filters(problem=True)) == ["a", "b"]
        assert every(catalog, Filters(problem=False)) == ["c"]
        put(catalog, session("b"))
        assert every(catalog, Filters(problem=True)) == ["a"]

    def test_by_archive(self, catalog: Catalog) -> None:
        """Sessions that were put away are listed with the others, alone, or not."""
        put(catalog, session("a", archived=True))
        put(catalog, session("b"))
        assert every(catalog, Filters()) == ["a", "b"]
        assert every(catalog, Filters(archived=True)) == ["a"]
        assert every(catalog, Filters(archived=False)) == ["b"]

    @pytest.mark.parametrize(("pointer", "value", "holds"), POINTERS)
    def test_by_projection(self, catalog: Catalog, pointer: str, value: Any, holds: bool) -> None:
        """A member is where its pointer leads, no text, number or boolean is another's equal."""
        put(catalog, session("a", projection=MEMBERS))
        put(catalog, session("b", projection={"tag": "blue"}))
        put(catalog, session("c"))
        assert every(catalog, Filters(projection=[(pointer, value)])) == (["a"] if holds else [])

    def test_a_projection_may_be_anything(self, catalog: Catalog) -> None:
        """A projection need be no object, and may have more members than one can look up."""
        put(catalog, session("text", projection="red"))
        put(catalog, session("number", projection=1))
        put(catalog, session("list", projection=["red"]))
        put(catalog, session("large", projection={f"k{n}": n for n in range(5000)}))
        deep: Any = "bottom"
        for _ in range(60):
            deep = [deep]
        put(catalog, session("deep", projection=deep))
        put(catalog, session("odd", projection={"x": float("nan"), "y": float("inf")}))

        assert every(catalog, Filters(projection=[("", "red")])) == ["text"]
        assert every(catalog, Filters(projection=[("", 1)])) == ["number"]
        assert every(catalog, Filters(projection=[("/0", "red")])) == ["list"]
        assert every(catalog, Filters(projection=[("/k4999", 4999)])) == ["large"]
        assert every(catalog, Filters(projection=[("/k4999", 4998)])) == []
        assert every(catalog, Filters(projection=[("/k1", 1), ("/k4000", 4000)])) == ["large"]
        assert every(catalog, Filters(projection=[("/0" * 60, "bottom")])) == ["deep"]
        assert every(catalog, Filters(projection=[("/y", float("inf"))])) == ["odd"]

    def test_a_projection_that_changes_is_found_anew(self, catalog: Catalog) -> None:
        """Members that are gone let nothing through any more."""
        put(catalog, session("a", projection={"tag": "red", "n": 1}))
        put(catalog, session("a", projection={"tag": "blue", "n": 1}))
        assert every(catalog, Filters(projection=[("/tag", "red")])) == []
        assert every(catalog, Filters(projection=[("/tag", "blue"), ("/n", 1)])) == ["a"]
        put(catalog, session("a"))
        assert every(catalog, Filters(projection=[("/n", 1)])) == []

    def test_top_ones(self, catalog: Catalog) -> None:
        """Sub-agents are left out if the session that they come from is there."""
        put(catalog, session("p", source_format="codex", source_id="one"))
        put(catalog, session("sub", parent="p", relation="subagent"))
        put(catalog, session("subsub", parent="sub", relation="subagent"))
        put(catalog, session("fork", parent="p", relation="fork"))
        put(catalog, session("orphan", parent="gone", relation="subagent"))
        put(catalog, session("lone", relation="subagent"))
        put(
            catalog,
            session("import", source_format="codex", source_parent="one", relation="subagent"),
        )
        put(
            catalog,
            session("other", source_format="x", source_parent="one", relation="subagent"),
        )
        put(catalog, session("gone"), namespace="a")

        assert every(catalog, Filters(top=True)) == ["fork", "lone", "orphan", "other", "p"]
        catalog.remove("", "p")
        assert every(catalog, Filters(top=True)) == [
            "fork",
            "import",
            "lone",
            "orphan",
            "other",
            "sub",
        ]

    def test_all_that_is_given_must_hold(self, catalog: Catalog) -> None:
        """Filters are satisfied together."""
        for number in range(32):
            bits = [bool(number >> bit & 1) for bit in range(5)]
            put(
                catalog,
                session(
                    f"{number:02}",
                    agents=("x",) if bits[0] else ("y",),
                    cwd="/w/a" if bits[1] else "/v",
                    status="crashed" if bits[2] else "paused",
                    archived=bits[3],
                    projection={"on": bits[4]},
                    last_active=number,
                ),
            )
        filters = Filters(agents=["x"], cwd="/w", statuses=["crashed"], archived=True)
        assert every(catalog, filters) == ["15", "31"]
        assert every(catalog, filters._replace(projection=[("/on", True)])) == ["31"]
        assert every(catalog, filters._replace(since=16, archived=None)) == ["23", "31"]
        assert every(catalog, filters._replace(agents=["y"], until=16)) == ["14"]

    def test_many_sessions_are_filtered_alike(self, catalog: Catalog) -> None:
        """What filters let through does not depend on how many sessions there are."""
        for number in range(700):
            put(
                catalog,
                session(
                    f"{number:03}",
                    status="crashed" if number % 2 else "paused",
                    agents=("x",) if number % 3 else ("y", "x"),
                    last_active=number // 10,
                    title=f"title {number % 7}",
                    cwd=f"/w/{number % 5}",
                ),
            )
        for filters, wanted in (
            (Filters(statuses=["crashed"]), [n for n in range(700) if n % 2]),
            (Filters(agents=["x"], cwd="/w/3"), [n for n in range(700) if n % 5 == 3]),
            (Filters(agents=["y"], cwd="/w"), [n for n in range(700) if n % 3 == 0]),
            (Filters(since=30, until=60), list(range(300, 600))),
        ):
            for sort in ("last_active", "title"):
                found = everything(catalog, filters, sort=sort, limit=50)
                assert sorted(found) == [f"{number:03}" for number in wanted]
            assert catalog.sums("", filters).sessions == len(wanted)
