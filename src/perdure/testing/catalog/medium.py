"""The medium: cleared, closed, opened again, used by many."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perdure.catalog.contract import Catalog, Filters, Scope
from perdure.catalog.query import parse
from perdure.testing.catalog.place import (
    CatalogCase,
    change,
    found,
    ids,
    put,
    said,
    session,
)
from perdure.testing.contract import Clockwork

__all__ = ["Medium"]


class Medium(CatalogCase):
    """What happens to all of it at once."""

    def test_clearing_forgets_everything(self, catalog: Catalog) -> None:
        """After it, all namespaces are as if the catalog had just been made."""
        for namespace in ("", "a"):
            listed = session("s", title="apple", agents=("main",), projection={"a": 1})
            put(catalog, listed, [said(0, "apple")], namespace, keys=[("t", "k", 0)])
            catalog.put_note(namespace, "n", "told")
        catalog.clear()

        for namespace in ("", "a"):
            assert catalog.standing(namespace, "s") is None
            assert list(catalog.entries(namespace)) == []
            assert catalog.note(namespace, "n") is None
            assert found(catalog, "apple", namespace=namespace) == []
            assert catalog.matching(namespace, Filters(), parse("apple")) == []
            assert catalog.sums(namespace, Filters())._replace(bytes=0).sessions == 0
        put(catalog, "t", [said(0, "apple")])
        assert found(catalog, "apple") == [("t", 0)]

    def test_a_closed_catalog_opens_again(self, catalog: Catalog) -> None:
        """After closing, any call opens what was closed; closing again does nothing."""
        put(catalog, "s", [said(0, "apple")])
        catalog.close()
        catalog.close()

        kept = self.survives_close
        assert (catalog.standing("", "s") is not None) is kept
        catalog.close()
        assert found(catalog, "apple") == ([("s", 0)] if kept else [])
        catalog.close()
        put(catalog, "t", [said(0, "apple")])
        assert ("t", 0) in found(catalog, "apple")

    def test_others_see_what_was_put(self, place: Path) -> None:
        """A second catalog at the same place answers as the first, where one can be opened."""
        first = self.make_catalog(place, Clockwork())
        second = self.make_catalog(place, Clockwork())
        put(first, "s", [said(0, "apple")])
        if self.survives_close:
            assert first.place == second.place
            assert second.standing("", "s") == first.standing("", "s")
            assert found(second, "apple") == [("s", 0)]
            put(second, "s", [said(1, "apple")])
            assert found(first, "apple") == [("s", 1)]
            assert second.remove("", "s")
        else:
            assert second.standing("", "s") is None
            assert first.remove("", "s")
        assert first.standing("", "s") is None
        first.close()
        second.close()

    def test_one_of_many_is_first(self, catalog: Catalog) -> None:
        """Of threads that change one session at once each is told whether it was first."""
        won: list[int | None] = []

        def add(number: int) -> None:
            for _ in range(5):
                before = catalog.standing("", "s")
                version = None if before is None else before.version
                passages = [said(number, "apple")]
                made = change("s", passages, start=number, end=number + 1)
                won.append(catalog.put("", made, version))
                catalog.candidates("", Scope(), parse("apple"))
                catalog.listed("", Filters())

        self._together([partial(add, number) for number in range(4)])
        given = [version for version in won if version is not None]
        assert len(won) == 20
        assert given
        assert len(set(given)) == len(given)
        standing = catalog.standing("", "s")
        assert standing is not None
        assert standing.version in given

    def test_many_put_their_own(self, catalog: Catalog) -> None:
        """Threads that change different sessions are in nobody's way."""

        def add(number: int) -> None:
            for turn in range(5):
                put(catalog, f"s{number}", [said(turn, "apple")], start=turn)

        self._together([partial(add, number) for number in range(4)])
        assert found(catalog, "apple") == [(f"s{n}", seq) for n in range(4) for seq in range(5)]
        assert sorted(ids(catalog.listed("", Filters()))) == ["s0", "s1", "s2", "s3"]

    @staticmethod
    def _together(calls: list[Callable[[], None]]) -> None:
        """Call each in a thread of its own; what one raises is raised here."""
        errors: list[BaseException] = []

        def run(call: Callable[[], None]) -> None:
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - it is raised again below
                errors.append(error)

        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error
