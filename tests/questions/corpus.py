"""The sessions that the questions are about: the synthetic ones, and imports of the samples."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from perdure.importers import sync
from perdure.store import Store, open_store
from tests.questions.passages import Passage, passages_of
from tests.questions.synthetic import Calendar, write_sessions

__all__ = ["DATA", "Corpus", "open_corpus"]

DATA = Path(__file__).resolve().parent.parent / "data"


class Corpus(NamedTuple):
    """A store with all sessions in it.

    Attributes:
        store: is open.
        ids: what a question calls a session, and the session's id. A synthetic one is called by its
            id, an import by the path of its source below `tests/data`.

    """

    store: Store
    ids: Mapping[str, str]

    def passages(self) -> list[Passage]:
        """All passages of all sessions. Reads everything."""
        return [each for id in self.ids.values() for each in passages_of(self.store, id)]


@contextmanager
def open_corpus(location: str | os.PathLike[str] = "memory:", **options: Any) -> Iterator[Corpus]:
    """Write and import everything into a new store at `location`; `options` as `perdure.open`."""
    calendar = Calendar()
    with open_store(location, runtime=calendar, **options) as store:
        ids = {id: id for id in write_sessions(store, calendar.pass_hours)}
        for source in sync(store, [DATA], runtime=calendar).sources:
            if source.session is not None:
                ids[Path(source.path).relative_to(DATA).as_posix()] = source.session
        yield Corpus(store, ids)
