"""Where the catalog of a store is, and who keeps it up to date."""

import os
from typing import NamedTuple

from perdure.backends.base import Backend
from perdure.catalog.contract import Catalog
from perdure.catalog.sqlite import NAME, SqliteCatalog
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher
from perdure.store.folding import Folds
from perdure.store.indexer import Indexer, Unfollowed
from perdure.store.indexing import Indexing
from perdure.store.marks import Marks
from perdure.store.own_views import check_view
from perdure.store.witness import Witness
from perdure.views.builtin import BUILTIN
from perdure.views.listing import ListingView
from perdure.views.projection import Projection

__all__ = ["Cataloguing", "cataloguing_of", "unfollowed"]


_PAUSE_SECONDS = 0.05


class Cataloguing(NamedTuple):
    """What all namespaces of a store share.

    Attributes:
        catalog: the index.
        flusher: its thread follows the sessions that are written; commits never wait for it.
        projection: a user's own column, or None.

    """

    catalog: Catalog
    flusher: Flusher
    projection: Projection | None

    def indexer(
        self, backend: Backend, witness: Witness, folds: Folds, runtime: Runtime
    ) -> Indexer:
        """Whoever keeps the sessions of one namespace up to date in the catalog."""
        indexing = Indexing(
            backend,
            witness,
            folds,
            self.catalog,
            self.projection,
            pause=lambda: runtime.sleep(_PAUSE_SECONDS),
        )
        marks = Marks(backend.beside, witness.namespace, runtime)

        def spare() -> Catalog:
            return SqliteCatalog(None, runtime=runtime)

        return Indexer(backend, indexing, marks, self.flusher, runtime, spare=spare)


def unfollowed(backend: Backend, witness: Witness, runtime: Runtime) -> Unfollowed:
    """What stands for an indexer in a store that was opened without an index."""
    beside = backend.beside

    def wanted() -> bool:
        return beside is not None and os.path.exists(f"{beside}/{NAME}")  # noqa: PTH110

    return Unfollowed(Marks(beside, witness.namespace, runtime), wanted=wanted)


def cataloguing_of(
    backend: Backend, projection: Projection | None, runtime: Runtime
) -> Cataloguing | None:
    """The catalog of a medium, opened when it is needed; None where nothing is stored.

    Raises:
        InvalidValue: the projection is none.

    """
    given: object = projection
    if given is not None and not isinstance(given, Projection):
        hint = "give an object, not its class" if isinstance(given, type) else ""
        shown = values.shown(given)
        raise InvalidValue("projection", f"{shown} is no perdure.Projection", hint=hint)
    if projection is not None:
        check_view(projection, "projection", (*(view.name for view in BUILTIN), ListingView.name))
    if not backend.persistent:
        return None
    catalog = SqliteCatalog(backend.beside, runtime=runtime)
    return Cataloguing(catalog, Flusher(runtime), projection)
