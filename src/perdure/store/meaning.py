"""Vectors of what was said: the part of a store that makes them."""

from abc import abstractmethod
from typing import TYPE_CHECKING

from perdure.errors import InvalidValue
from perdure.model import values
from perdure.store.asking import Names, ids_of
from perdure.store.embedding import Embedded, Progress
from perdure.store.finding import Finding
from perdure.store.passage_texts import PassageTexts

if TYPE_CHECKING:
    from perdure.store.cataloguing import Cataloguing

__all__ = ["Meaning"]

_RATES = (0.01, 1_000_000)


class Meaning(Finding):
    """The embedding half of finding; `Store` is what callers see of it."""

    _cataloguing: "Cataloguing | None"
    _texts: PassageTexts

    @abstractmethod
    def _check_open(self) -> None: ...

    def embed(
        self,
        id: Names | None = None,
        *,
        per_minute: float | None = None,
        progress: Progress | None = None,
    ) -> Embedded:
        """Make the vectors that `search` compares by meaning: of one session, some, or all.

        Only what has none is embedded, with the `embedder` that the store was opened with, else
        with that of the vectors that are there, else with the one of the extra `semantic`. What is
        done is kept when it stops, by a kill or an error; it goes on where it stopped. `per_minute`
        bounds the calls of the embedder (0.01 to 1,000,000). `progress` is called with numbers of
        sessions, done and in all. Vectors of another model answer until the new one has all
        sessions that those had; they are never compared with each other.

        Raises:
            EmbedderUnavailable, EmbedderFaulty: the embedder is not there, or gives no vectors.
            InvalidValue: an argument cannot be, or the store has no index.
            StorageFull, StorageUnavailable: index or vectors cannot be brought up to date.

        """
        ids = ids_of("id", id)
        if per_minute is not None and not _is_rate(per_minute):
            raise InvalidValue("per_minute", f"{values.shown(per_minute)} is not 0.01 to 1,000,000")
        index, cataloguing = self._index(), self._cataloguing
        if cataloguing is None or not self._backend.persistent:
            raise InvalidValue("store", "keeps no vectors", hint="open one that is stored")
        index.ready()
        embedding = cataloguing.embedding(self._texts, index.namespace, per_minute, self._runtime)
        return embedding.embed(index.catalog, ids, progress)


def _is_rate(given: object) -> bool:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return False
    low, high = _RATES
    return low <= given <= high
