"""Questions and changes of what can be made again: a catalog, vectors."""

from collections.abc import Callable
from typing import TypeVar

from perdure.databases.cells import Unsound
from perdure.databases.postgres.meaning import NotMade, Unsure
from perdure.databases.postgres.server import Server
from perdure.databases.postgres.work import Work
from perdure.errors import StorageUnavailable

__all__ = ["ask", "change", "change_or_make"]

T = TypeVar("T")


def ask(server: Server, question: Callable[[Work], T], nothing: T, *, one: bool = False) -> T:
    """The answer to a question, of one state; `nothing` where there are no tables.

    `one` says that it is one statement, which needs no transaction.

    Raises:
        StorageUnavailable: the server is not to be reached, or a row makes no sense.

    """
    try:
        return server.read(question if one else _of_one_state(question))
    except NotMade:
        return nothing
    except Unsound as error:
        raise _unsound(server, error) from error


def _of_one_state(question: Callable[[Work], T]) -> Callable[[Work], T]:
    def asked(work: Work) -> T:
        work.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        try:
            found = question(work)
        except BaseException:
            # Of a connection that broke there is nothing to end.
            if not work.connection.closed:
                work.run("ROLLBACK")
            raise
        work.run("COMMIT")
        return found

    return asked


def change(server: Server, do: Callable[[Work], T]) -> T:
    """A change that may be made twice, and need not be durable when this returns.

    Raises:
        NotMade: there are no tables.
        StorageUnavailable, StorageFull, UnsafeFile, FormatUnsupported: it was not made, or nobody
            knows.

    """
    try:
        return server.change(do, synced=False, repeatable=True)
    except Unsure as error:
        hint = "see whether the server runs and takes connections from here; then try again"
        told = StorageUnavailable(server.place, "the answer to a change was lost", hint=hint)
        told.retryable = True
        raise told from error
    except Unsound as error:
        raise _unsound(server, error) from error


def change_or_make(server: Server, do: Callable[[Work], T]) -> T:
    """As `change`; the tables are made if there are none."""
    try:
        return change(server, do)
    except NotMade:
        server.make()
        return change(server, do)


def _unsound(server: Server, error: Exception) -> StorageUnavailable:
    hint = "somebody changed rows of the index; `perdure reindex` makes it anew"
    return StorageUnavailable(server.place, f"its index: {error}", hint=hint)
