"""Every catalog passes the contract suite, and the suite notices one that cheats."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from perdure.catalog.contract import Candidates, Catalog, Change, Filters, Listed
from perdure.catalog.sqlite import SqliteCatalog
from perdure.runtime import Runtime
from perdure.testing.catalog import CatalogContract
from tests.support import scaled

EXAMPLES = scaled(400)


class TestFile(CatalogContract):
    examples = EXAMPLES

    def make_catalog(self, folder: Path, runtime: Runtime) -> Catalog:
        return SqliteCatalog(str(folder), runtime=runtime)


class TestMemory(CatalogContract):
    survives_close = False
    examples = EXAMPLES

    def make_catalog(self, folder: Path, runtime: Runtime) -> Catalog:  # noqa: ARG002
        return SqliteCatalog(None, runtime=runtime)


# --- catalogs of others ---------------------------------------------------------------------------


def passed_on(name: str, member: object) -> Any:
    """What a wrapper has for one member of a catalog: the same of the catalog inside."""
    if not callable(member):
        return property(lambda wrapper: getattr(wrapper.inside, name))
    return lambda wrapper, *given, **named: getattr(wrapper.inside, name)(*given, **named)


MEMBERS = {name: member for name, member in vars(Catalog).items() if not name.startswith("_")}
Passing: Any = type("Passing", (Catalog,), {n: passed_on(n, m) for n, m in MEMBERS.items()})


class Foreign(Passing):  # type: ignore[misc]
    """A catalog that perdure knows nothing of."""

    def __init__(self, inside: Catalog | None = None) -> None:
        self.inside = inside or SqliteCatalog(None)


class TestForeign(CatalogContract):
    survives_close = False
    examples = scaled(50)

    def make_catalog(self, folder: Path, runtime: Runtime) -> Catalog:  # noqa: ARG002
        return Foreign()


class Credulous(Foreign):
    """Takes a change over whatever it was built on."""

    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        del expected
        standing = self.inside.standing(namespace, change.listed.id)
        return self.inside.put(namespace, change, None if standing is None else standing.version)


class Thorough(Foreign):
    """Replaces more than it was told to."""

    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        return self.inside.put(namespace, change._replace(end=None), expected)


class Forgetful(Foreign):
    """Keeps nothing that lies outside the range of a change."""

    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        start, end = change.start, change.end
        inside = [
            each
            for each in change.passages
            if each.seq >= start and (end is None or each.seq < end)
        ]
        return self.inside.put(namespace, change._replace(passages=inside), expected)


class Talkative(Foreign):
    """Lets every namespace see the sessions of all."""

    def listed(self, namespace: str, *given: Any, **named: Any) -> list[Listed]:  # noqa: ARG002
        return self.inside.listed("", *given, **named)


class Careless(Foreign):
    """Goes on in a listing behind a value, whatever its id was."""

    def listed(self, *given: Any, after: tuple[Any, str] | None = None, **named: Any) -> Any:
        if after is not None:
            after = after[0], "\U0010ffff"
        return self.inside.listed(*given, after=after, **named)


class Approximate(Foreign):
    """Takes the beginning of a path for a folder above it."""

    def listed(self, namespace: str, filters: Filters, **named: Any) -> Any:
        if filters.cwd is None:
            return self.inside.listed(namespace, filters, **named)
        found = self.inside.listed(namespace, filters._replace(cwd=None), **named)
        return [each for each in found if (each.cwd or "").startswith(filters.cwd)]


class Confident(Foreign):
    """Says of no answer that there was more."""

    def candidates(self, *given: Any, **named: Any) -> Candidates:
        return self.inside.candidates(*given, **named)._replace(capped=False)


class Shuffling(Foreign):
    """Gives hits in order in the order of their relevance."""

    def in_order(self, *given: Any, after: Any = None, limit: int = 20, **named: Any) -> Candidates:
        del after
        found = self.inside.candidates(*given, **named).found
        return Candidates(found[:limit], capped=False)


class Absent(Foreign):
    """Tells the keys of a session that was not read to its end."""

    def put(self, namespace: str, change: Change, expected: int | None) -> int | None:
        return self.inside.put(namespace, change._replace(partial=False), expected)


class Comparing(Foreign):
    """Weighs a hit by how many sessions there are elsewhere."""

    def candidates(self, namespace: str, *given: Any, **named: Any) -> Candidates:
        found = self.inside.candidates(namespace, *given, **named)
        strangers = len(self.inside.versions("other"))
        told = [one._replace(relevance=one.relevance + strangers) for one in found.found]
        return found._replace(found=told)


class Envious(Foreign):
    """Turns the order of sessions around once somebody else has some."""

    def matching(self, *given: Any, **named: Any) -> list[Listed]:
        found = self.inside.matching(*given, **named)
        return found[::-1] if self.inside.versions("other") else found


Shown = Callable[..., None]


@pytest.mark.parametrize(
    ("cheat", "noticed"),
    [
        (Credulous, CatalogContract.test_only_who_knew_changes),
        (Thorough, CatalogContract.test_a_range_is_replaced),
        (Forgetful, CatalogContract.test_passages_outside_the_range_are_added),
        (Talkative, CatalogContract.test_namespaces_see_their_own),
        (Approximate, CatalogContract.test_by_folder),
        (Confident, CatalogContract.test_the_best_of_the_newest_are_given),
        (Shuffling, CatalogContract.test_hits_come_in_order_page_by_page),
        (Absent, CatalogContract.test_what_is_put_is_known),
        (Comparing, CatalogContract.test_others_change_no_answer),
        (Envious, CatalogContract.test_others_change_no_answer),
    ],
)
def test_the_suite_notices_a_catalog_that_cheats(cheat: type[Foreign], noticed: Shown) -> None:
    """A catalog that breaks one promise fails the test that is about it."""
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        noticed(TestForeign(), cheat())


def test_the_suite_notices_pages_that_hide_sessions() -> None:
    """A listing that skips equal values fails the test that is about pages."""
    with pytest.raises(AssertionError):
        CatalogContract.test_pages_follow_each_other(TestForeign(), Careless(), "size", 1)


@pytest.mark.parametrize("cheat", [Forgetful, Talkative, Confident, Absent])
def test_the_model_notices_a_catalog_that_cheats(
    tmp_path: Path, cheat: type[Foreign], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn histories find a broken promise without being told which one it is."""
    # What is found need not be made small.
    settings.register_profile("found", settings.default, phases=[Phase.generate])
    usual = settings.get_current_profile_name()
    settings.load_profile("found")
    suite = TestForeign()
    monkeypatch.setattr(suite, "make_catalog", lambda *_: cheat())
    monkeypatch.setattr(suite, "examples", 500, raising=False)
    try:
        with pytest.raises(AssertionError):
            suite.test_a_catalog_agrees_with_the_model(tmp_path)
    finally:
        settings.load_profile(usual)


def test_a_foreign_catalog_adds_nothing() -> None:
    """The wrapper of these tests has every member of a catalog, and none of its own."""
    assert Passing.__abstractmethods__ == frozenset()
