"""Where the catalog of a store is, and who keeps it up to date."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from perdure.backends.base import Backend
from perdure.catalog.contract import Catalog
from perdure.catalog.sqlite import NAME, SqliteCatalog
from perdure.embedding import Embedder
from perdure.embedding.registry import check_spec
from perdure.embedding.sqlite import SqliteVectors
from perdure.embedding.vectors import Vectors
from perdure.errors import InvalidValue
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store.background import Background
from perdure.store.embedders import Embedders
from perdure.store.embedding import Embedded, Embedding, Pace
from perdure.store.flusher import Flusher
from perdure.store.folding import Folds
from perdure.store.indexer import Indexer, Unfollowed
from perdure.store.indexing import Indexing
from perdure.store.keywords import Keywords
from perdure.store.marks import Marking, Marks
from perdure.store.nearness import Nearness
from perdure.store.own_views import check_view
from perdure.store.passage_texts import PassageTexts
from perdure.store.witness import Witness
from perdure.views.builtin import BUILTIN
from perdure.views.listing import ListingView
from perdure.views.projection import Projection

if TYPE_CHECKING:
    from perdure.databases.postgres import Server

__all__ = ["Cataloguing", "cataloguing_of", "unfollowed"]


_PAUSE_SECONDS = 0.05


class Cataloguing(NamedTuple):
    """What all namespaces of a store share.

    Attributes:
        catalog: the index.
        flusher: its thread follows the sessions that are written; commits never wait for it.
        projection: a user's own column, or None.
        vectors: those of what was said.
        embedders: what makes them.
        embeds: whether what is written is embedded in the background.

    """

    catalog: Catalog
    flusher: Flusher
    projection: Projection | None
    vectors: Vectors
    embedders: Embedders
    embeds: bool

    def embedding(
        self, texts: PassageTexts, namespace: str, per_minute: float | None, runtime: Runtime
    ) -> Embedding:
        """Whoever makes the vectors of one namespace.

        Raises:
            PerdureError: there is no embedder, or the vectors cannot be read.

        """
        return Embedding(
            self.vectors,
            self.embedders.to_embed(),
            texts,
            namespace=namespace,
            pace=Pace(per_minute, runtime),
            calls=self.embedders.calls,
        )

    def background(
        self, index: Indexer, texts: PassageTexts, runtime: Runtime
    ) -> Background | None:
        """Whoever embeds what an index follows, if it is to be embedded."""
        if not self.embeds:
            return None

        def embed(sessions: list[str], going_on: Callable[[], bool]) -> Embedded:
            embedding = self.embedding(texts, index.namespace, None, runtime)
            return embedding.embed(index.catalog, sessions, going_on=going_on)

        found = Background(embed, runtime)
        index.follower = found.heard
        return found

    def nearness(self, keywords: Keywords) -> Nearness:
        """Search by meaning in one namespace."""
        return Nearness(keywords, self.vectors, self.embedders)

    def close(self) -> None:
        """Release what is held open, and end the thread."""
        self.flusher.stop()
        self.embedders.close()
        self.vectors.close()
        self.catalog.close()

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
        marks = _marks_of(backend, witness.namespace, runtime)

        def spare() -> Catalog:
            return SqliteCatalog(None, runtime=runtime)

        return Indexer(backend, indexing, marks, self.flusher, runtime, spare=spare)


def unfollowed(backend: Backend, witness: Witness, runtime: Runtime) -> Unfollowed:
    """What stands for an indexer in a store that was opened without an index."""
    beside, namespace = backend.beside, witness.namespace

    def wanted() -> bool:
        if backend.database is not None:
            from perdure.store.server_marks import is_catalogued  # noqa: PLC0415 - see `_server_of`

            return is_catalogued(_server_of(backend), namespace)
        return beside is not None and os.path.exists(f"{beside}/{NAME}")  # noqa: PTH110

    return Unfollowed(_marks_of(backend, namespace, runtime), wanted=wanted)


def _marks_of(backend: Backend, namespace: str, runtime: Runtime) -> Marking:
    if backend.database is None:
        return Marks(backend.beside, namespace, runtime)
    from perdure.store.server_marks import ServerMarks  # noqa: PLC0415 - see `_server_of`

    return ServerMarks(_server_of(backend), namespace, runtime)


def _server_of(backend: Backend) -> "Server":
    """The server that keeps a catalog; what is imported for it comes with the extra `postgres`."""
    from perdure.databases.postgres import Server  # noqa: PLC0415 - brings psycopg

    if not isinstance(backend.database, Server):
        shown = type(backend.database).__name__
        raise InvalidValue("database", f"{shown} is no server that can keep a catalog")
    return backend.database


def _kept_by(backend: Backend, runtime: Runtime) -> tuple[Catalog, Vectors]:
    """Where the catalog and the vectors of a medium are."""
    if backend.database is None:
        beside = backend.beside
        return SqliteCatalog(beside, runtime=runtime), SqliteVectors(beside, runtime=runtime)
    from perdure.catalog.postgres import PostgresCatalog  # noqa: PLC0415 - see `_server_of`
    from perdure.embedding.postgres import PostgresVectors  # noqa: PLC0415 - see `_server_of`

    server = _server_of(backend)
    return PostgresCatalog(server, runtime=runtime), PostgresVectors(server, runtime=runtime)


def cataloguing_of(
    backend: Backend,
    projection: Projection | None,
    embedder: str | Embedder | None,
    runtime: Runtime,
    *,
    embeds: bool = False,
) -> Cataloguing | None:
    """The catalog of a medium, opened when it is needed; None where nothing is stored.

    Raises:
        InvalidValue: the projection is none, or nothing is called like the embedder.

    """
    given: object = projection
    if given is not None and not isinstance(given, Projection):
        hint = "give an object, not its class" if isinstance(given, type) else ""
        shown = values.shown(given)
        raise InvalidValue("projection", f"{shown} is no perdure.Projection", hint=hint)
    if projection is not None:
        check_view(projection, "projection", (*(view.name for view in BUILTIN), ListingView.name))
    if embedder is not None:
        check_spec(embedder)
    if not backend.persistent:
        return None
    catalog, vectors = _kept_by(backend, runtime)
    embedders = Embedders(embedder, vectors, runtime)
    return Cataloguing(catalog, Flusher(runtime), projection, vectors, embedders, embeds)
