"""What the listing says of sessions that somebody names."""

from perdure.catalog.contract import Listed
from perdure.catalog.scopes import Filters
from perdure.store.asking import Names, ids_of
from perdure.store.indexer import Indexer
from perdure.store.store import Store

__all__ = ["listed_of"]


def listed_of(store: Store, ids: Names) -> list[Listed]:
    """Those of these sessions that the listing has, those at work last first; no log is read.

    Raises:
        InvalidValue: one is no id, or the store was opened without an index.
        As `Store.sessions`.

    """
    wanted = list(ids_of("ids", ids) or ())
    # A store that keeps nothing has no sessions, and no index.
    if not wanted or not store._backend.persistent:  # noqa: SLF001 - of this package
        return []

    def ask(index: Indexer) -> list[Listed]:
        return index.catalog.listed(index.namespace, Filters(ids=wanted), limit=len(wanted))

    return store._answer(ask)  # noqa: SLF001 - of this package
