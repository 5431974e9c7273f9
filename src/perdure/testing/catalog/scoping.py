"""Scopes: whose passages, of which kinds, and of when."""

import pytest

from perdure.catalog.contract import Catalog, Filters, Scope
from perdure.catalog.query import parse
from perdure.testing.catalog.place import CatalogCase, found, put, said, session

__all__ = ["Scoping"]

DAY = 86_400_000


class Scoping(CatalogCase):
    """Which passages are looked at."""

    def test_by_kind(self, catalog: Catalog) -> None:
        """Passages are of one of the kinds that are named."""
        kinds = ("user", "assistant", "error", "kind of \ud800")
        put(catalog, "s", [said(seq, "apple", kind) for seq, kind in enumerate(kinds)])
        assert found(catalog, "apple", Scope(kinds=["user"])) == [("s", 0)]
        assert found(catalog, "apple", Scope(kinds=["user", "error", "x"])) == [("s", 0), ("s", 2)]
        assert found(catalog, "apple", Scope(kinds=["kind of \ud800"])) == [("s", 3)]
        assert found(catalog, "apple", Scope(kinds=["x"])) == []
        assert found(catalog, "apple", Scope(kinds=[])) == []

    def test_by_agent(self, catalog: Catalog) -> None:
        """Passages are of one of the agents that are named; one of them may have no name."""
        agents = ("main", None, "", "Main", "user")
        put(catalog, "s", [said(seq, "apple", agent=agent) for seq, agent in enumerate(agents)])
        assert found(catalog, "apple", Scope(agents=["main"])) == [("s", 0)]
        assert found(catalog, "apple", Scope(agents=[None])) == [("s", 1)]
        assert found(catalog, "apple", Scope(agents=[""])) == [("s", 2)]
        assert found(catalog, "apple", Scope(agents=[None, "Main"])) == [("s", 1), ("s", 3)]
        assert found(catalog, "apple", Scope(agents=["x"])) == []
        assert found(catalog, "apple", Scope(agents=[])) == []

    def test_by_time(self, catalog: Catalog) -> None:
        """Passages were said at or after `since`, and before `until`."""
        times = (0, 1, -1, DAY, 400 * DAY, 2**80, -(2**80), 20_000 * DAY)
        put(catalog, "s", [said(seq, "apple", time=time) for seq, time in enumerate(times)])
        every = {seq: max(-(2**63), min(2**63 - 1, time)) for seq, time in enumerate(times)}
        bounds = (None, -(2**90), -1, 0, 1, 2, DAY, 399 * DAY, 2**50, 2**63 - 1, 2**90)
        for since in bounds:
            for until in bounds:
                wanted = [
                    ("s", seq)
                    for seq, time in every.items()
                    if (since is None or time >= since) and (until is None or time < until)
                ]
                assert found(catalog, "apple", Scope(since=since, until=until)) == wanted

    def test_by_time_over_many_years(self, catalog: Catalog) -> None:
        """Time is kept to the millisecond, however long it is."""
        times = [number * 30 * DAY for number in range(200)]
        put(catalog, "s", [said(seq, "apple", time=time) for seq, time in enumerate(times)])
        for since, until in ((0, times[150]), (times[20] + 1, times[22] + 1), (times[3], None)):
            wanted = [
                ("s", seq)
                for seq, time in enumerate(times)
                if time >= since and (until is None or time < until)
            ]
            assert found(catalog, "apple", Scope(since=since, until=until)) == wanted

    def test_by_session(self, catalog: Catalog) -> None:
        """Passages are of sessions that the filters let through, times of sessions aside."""
        for number in range(6):
            put(
                catalog,
                session(
                    f"{number}",
                    status="crashed" if number % 2 else "paused",
                    cwd=f"/w/{number}",
                    last_active=number,
                ),
                [said(0, "apple")],
            )

        def by(filters: Filters) -> list[str]:
            return [id for id, _ in found(catalog, "apple", Scope(filters))]

        assert by(Filters(ids=["1", "4", "x"])) == ["1", "4"]
        assert by(Filters(without=["0", "x"])) == ["1", "2", "3", "4", "5"]
        assert by(Filters(statuses=["crashed"], without=["1"])) == ["3", "5"]
        assert by(Filters(cwd="/w/2")) == ["2"]
        assert by(Filters(statuses=["running"])) == by(Filters(ids=[])) == []
        assert by(Filters(since=2**60, until=0)) == ["0", "1", "2", "3", "4", "5"]
        assert by(Filters(statuses=["crashed"], since=2**60)) == ["1", "3", "5"]

    @pytest.mark.parametrize("sessions", [10, 300, 800])
    def test_by_many_sessions(self, catalog: Catalog, sessions: int) -> None:
        """What is found does not depend on how many sessions are named, or left out."""
        for number in range(sessions):
            put(
                catalog,
                session(f"{number:03}", status="paused" if number % 10 else "crashed"),
                [said(0, "apple common"), said(1, f"pear{number} common")],
            )
        names = [f"{number:03}" for number in range(sessions)]
        rest = [id for id in names if not id.endswith("0")]
        for filters, wanted in (
            (Filters(ids=names[1:]), names[1:]),
            (Filters(without=names[1:]), names[:1]),
            (Filters(without=names[:1]), names[1:]),
            (Filters(statuses=["paused"]), rest),
        ):
            assert found(catalog, "apple", Scope(filters), most=1000) == [(id, 0) for id in wanted]
            assert found(catalog, "pear5 ", Scope(filters)) == (
                [("005", 1)] if "005" in wanted else []
            )
        kinds = Scope(Filters(statuses=["paused"]), kinds=["user"], agents=[None], since=0)
        assert found(catalog, "apple", kinds, most=1000) == [(id, 0) for id in rest]

    def test_all_that_is_given_must_hold(self, catalog: Catalog) -> None:
        """Kind, agent, time and session are satisfied together, in each namespace by itself."""
        for namespace in ("", "a"):
            for id in ("s", "t"):
                passages = [
                    said(
                        number,
                        "apple",
                        "user" if number & 1 else "error",
                        agent="main" if number & 2 else None,
                        time=DAY * 100 if number & 4 else 0,
                    )
                    for number in range(8)
                ]
                put(catalog, id, passages, namespace)
        scope = Scope(Filters(ids=["s"]), kinds=["user"], agents=["main"], since=DAY)
        for namespace in ("", "a"):
            assert found(catalog, "apple", scope, namespace) == [("s", 7)]
            wide = scope._replace(sessions=Filters(), since=None, until=DAY)
            assert found(catalog, "apple", wide, namespace) == [("s", 3), ("t", 3)]

    def test_a_namespace_stands_alone_or_among_others(self, catalog: Catalog) -> None:
        """What is found in a namespace is the same before there is another one, and after."""
        put(catalog, "s", [said(0, "apple pie"), said(1, "apple")])
        alone = catalog.candidates("", Scope(), parse("apple pie"), mode="any")
        put(catalog, "s", [said(0, "apple pie"), said(5, "apple")], "a")
        put(catalog, "t", [said(0, "pie")], "b")
        assert catalog.candidates("", Scope(), parse("apple pie"), mode="any") == alone
        catalog.remove("a", "s")
        catalog.remove("b", "t")
        assert catalog.candidates("", Scope(), parse("apple pie"), mode="any") == alone
        assert found(catalog, "apple", namespace="a") == []
