"""Where a contract test keeps its catalog, and what it puts there."""

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from perdure.catalog.analysis import analyse
from perdure.catalog.contract import Candidate, Catalog, Change, Filters, Listed, Passage, Scope
from perdure.catalog.query import parse
from perdure.model.record import Position
from perdure.runtime import Runtime
from perdure.testing.contract import Clockwork

__all__ = [
    "HASH",
    "NOW",
    "PAGES_MAX",
    "CatalogCase",
    "change",
    "digest",
    "everything",
    "found",
    "ids",
    "put",
    "said",
    "session",
]

NOW = 1_700_000_000_000
HASH = "ab" * 32
ALL = Filters()
EVERYTHING = Scope()
PAGES_MAX = 1000


class CatalogCase:
    """What every part of the suite needs: the catalog under test and what it declares."""

    survives_close: ClassVar[bool] = True
    """What it holds outlives `close`, and a second catalog at the same place sees it."""

    examples: ClassVar[int] = 20
    """How many histories are drawn to be held against the model."""

    def make_catalog(self, folder: Path, runtime: Runtime) -> Catalog:
        """Open the catalog under test in `folder`, which exists and is empty at first."""
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """The folder of this test."""
        folder = tmp_path / "place"
        folder.mkdir(0o700)
        return folder

    @pytest.fixture
    def catalog(self, place: Path) -> Iterator[Catalog]:
        """An empty catalog."""
        made = self.make_catalog(place, Clockwork())
        yield made
        made.close()


def session(id: str = "s", **told: Any) -> Listed:
    """A session of a listing."""
    return Listed(id=id, **told)


def digest(text: str) -> int:
    """Digest of a text."""
    raw = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(raw, "big", signed=True)


def said(
    seq: int,
    text: str,
    kind: str = "user",
    *,
    agent: str | None = None,
    time: int = NOW,
    call: int | None = None,
) -> Passage:
    """A passage as whoever reads a log makes it."""
    tokens = analyse(text)
    return Passage(seq, kind, tokens.words, tokens.parts, digest(text), agent, time, call)


def change(listed: Listed | str = "s", passages: Iterable[Passage] = (), **told: Any) -> Change:
    """A change of a session, given whole or by its id; what is not told is something."""
    some: dict[str, Any] = {
        "listed": session(listed) if isinstance(listed, str) else listed,
        "revision": "r",
        "position": Position(9, HASH),
        "floor": 10,
        "state": b"state",
        "rules": "rules",
        "passages": list(passages),
    }
    return Change(**(some | told))


def put(
    catalog: Catalog,
    listed: Listed | str = "s",
    passages: Iterable[Passage] = (),
    namespace: str = "",
    **told: Any,
) -> int:
    """Change a session, whatever is known of it; the new version."""
    made = change(listed, passages, **told)
    before = catalog.standing(namespace, made.listed.id)
    version = catalog.put(namespace, made, None if before is None else before.version)
    assert version is not None
    return version


def found(
    catalog: Catalog, query: str, scope: Scope = EVERYTHING, namespace: str = "", **told: Any
) -> list[tuple[str, int]]:
    """Session and number of all passages that a query finds, sorted."""
    answer = catalog.candidates(namespace, scope, parse(query), **told)
    assert not answer.capped
    ordered = catalog.in_order(
        namespace, scope, parse(query), mode=told.get("mode", "all"), limit=10_000
    )
    pairs = sorted(_place(each) for each in answer.found)
    assert sorted(_place(each) for each in ordered.found) == pairs
    return pairs


def _place(candidate: Candidate) -> tuple[str, int]:
    return candidate.session, candidate.seq


def ids(listing: Iterable[Listed]) -> list[str]:
    """The ids of a listing."""
    return [each.id for each in listing]


def everything(
    catalog: Catalog,
    filters: Filters = ALL,
    *,
    sort: str = "last_active",
    limit: int = 2,
    namespace: str = "",
) -> list[str]:
    """The ids of all pages of a listing."""
    pages: list[str] = []
    after: tuple[Any, str] | None = None
    for _ in range(PAGES_MAX):
        page = catalog.listed(namespace, filters, sort=sort, limit=limit, after=after)
        assert len(page) <= limit
        pages += ids(page)
        if len(page) < limit:
            return pages
        after = (getattr(page[-1], sort), page[-1].id)
    pytest.fail("the pages have no end")
