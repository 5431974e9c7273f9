"""Making the vectors of what was said: only what has none, and so that it can stop anywhere.

A passage is embedded whole or not at all, and a session is noted as embedded behind its last one.
Who begins again, after a kill or an error, makes what is missing.
"""

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from perdure.catalog.contract import Catalog, Filters, Scope
from perdure.catalog.passages import Passage
from perdure.embedding import Embedder
from perdure.embedding.blocks import blocks_of
from perdure.embedding.vectors import Made, Vectors
from perdure.errors import EmbedderUnavailable, InvalidValue, PerdureError, TextRefused
from perdure.lenses.registry import told
from perdure.model import values
from perdure.runtime import Runtime
from perdure.store.indexer import COMPLETE
from perdure.store.passage_texts import PassageTexts

__all__ = ["Embedded", "Embedding", "Pace"]

Progress = Callable[[int, int], None]
T = TypeVar("T")

_MINUTE_SECONDS = 60.0
_FEW = 1_000
_NOWHERE = "there is no such session"


class Embedded(NamedTuple):
    """What an embedding came to.

    Attributes:
        model: the model, as answers name it.
        sessions: how many sessions were asked for.
        read: how many of them had something new.
        passages: how many passages were embedded.
        vectors: how many vectors were made for them.
        complete: whether this model answers searches now; another one does until it has as many
            sessions.
        failed: sessions that could not be read, with the reason.

    """

    model: str
    sessions: int
    read: int
    passages: int
    vectors: int
    complete: bool
    failed: tuple[tuple[str, str], ...]

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**self._asdict(), "failed": [list(each) for each in self.failed]}


class Pace:
    """Lets so many calls through in a minute, evenly; None: all."""

    def __init__(self, per_minute: float | None, runtime: Runtime) -> None:
        """The first call waits for nothing."""
        self._seconds = 0.0 if per_minute is None else _MINUTE_SECONDS / per_minute
        self._runtime = runtime
        self._next = 0.0

    def wait(self) -> None:
        """Wait for the turn of the next call."""
        now = self._runtime.monotonic()
        if now < self._next:
            self._runtime.sleep(self._next - now)
        self._next = max(now, self._next) + self._seconds


class _UnreadError(Exception):
    """A session cannot be read; the others can."""


class _Pending(NamedTuple):
    """A passage that waits for its vectors, who says it, and the texts of its pieces."""

    session: str
    digest: int
    texts: list[str]


class Embedding:
    """Brings the vectors of one model up to date, for sessions of one namespace."""

    def __init__(
        self,
        vectors: Vectors,
        embedder: Embedder,
        texts: PassageTexts,
        *,
        namespace: str,
        pace: Pace,
        calls: AbstractContextManager[object],
    ) -> None:
        """Nothing is read or made; `calls` is entered around each call of the embedder."""
        self._calls = calls
        self._vectors = vectors
        self._embedder = embedder
        self._texts = texts
        self._namespace = namespace
        self._pace = pace
        self._pending: list[_Pending] = []
        self._waiting = 0
        self._done: list[tuple[str, int, str]] = []
        self._refused: list[tuple[str, str]] = []
        self._batch = embedder.batch
        self._passages = self._made = 0

    def embed(
        self,
        catalog: Catalog,
        ids: Collection[str] | None,
        progress: Progress | None = None,
        going_on: Callable[[], bool] = lambda: True,
    ) -> Embedded:
        """Embed what these sessions say, or all, as far as the catalog knows it.

        Vectors that nothing says any more go, if all sessions are looked at. `going_on` is asked
        before each call of the embedder; what was made until then is kept.

        Raises:
            PerdureError: the embedder or the medium refuses.

        """
        embedder, vectors = self._embedder, self._vectors
        there = [entry.session for entry in catalog.entries(self._namespace)]
        due = there if ids is None else [*dict.fromkeys(ids)]
        if not there:
            # Nothing was ever stored, perhaps: to look must not make anything.
            vectors.keep_readings(self._namespace, ())
            lost = tuple((id, _NOWHERE) for id in due)
            known = any(model.name == embedder.model for model in vectors.models())
            complete = known and vectors.complete(embedder.model)
            return Embedded(embedder.model, len(due), 0, 0, 0, complete=complete, failed=lost)
        vectors.begin(embedder.model, embedder.spec, embedder.dimension)
        if ids is None:
            # First: what was read before is looked at again where something was taken away.
            vectors.keep_readings(self._namespace, there)
            vectors.remove(embedder.model, vectors.unsound(embedder.model))
            self._forget(catalog)
        read_before = vectors.versions(embedder.model, self._namespace)
        read, failed = 0, []
        for number, session in enumerate(due):
            if progress is not None:
                progress(number, len(due))
            if not going_on():
                break
            try:
                read += self._session(catalog, session, read_before.get(session), going_on)
            except _UnreadError as error:
                failed.append((session, str(error)))
        else:
            self._flush(going_on)
        if progress is not None:
            progress(len(due), len(due))
        complete = self._there(lambda: vectors.complete(embedder.model))
        told = (self._passages, self._made, complete, (*failed, *self._refused))
        return Embedded(embedder.model, len(due), read, *told)

    def _session(
        self, catalog: Catalog, session: str, before: int | None, going_on: Callable[[], bool]
    ) -> bool:
        """Take what a session says that has no vectors; whether there was something."""
        standing = catalog.standing(self._namespace, session)
        if standing is None:
            raise _UnreadError(_NOWHERE)
        found = False
        if before != standing.version:
            # Before it is asked what is missing: what goes after that is missed as well.
            era = self._vectors.era()
            found = self._embed_missing(catalog, session, going_on)
            self._done.append((session, standing.version, era))
        if standing.problem is not None:
            # What can be read of it is embedded.
            raise _UnreadError(standing.problem)
        return found

    def _embed_missing(self, catalog: Catalog, session: str, going_on: Callable[[], bool]) -> bool:
        """Take what has no vectors; whether there was something."""
        name, scope = self._embedder.model, Scope(Filters(ids=[session]))
        said = catalog.digests(self._namespace, scope)
        missing = self._vectors.missing(name, said)
        missing -= {each.digest for each in self._pending}
        if not missing:
            return False
        first = 0
        if len(missing) <= _FEW:
            # What is new stands at the end, as a rule.
            found = catalog.saying(self._namespace, scope, missing)
            first = min((each.seq for each in found), default=0)
        for start in dict.fromkeys((first, 0)):
            for passage in self._said(session, start) if missing else ():
                if passage.digest in missing:
                    missing.discard(passage.digest)
                    self._take(session, passage, going_on)
                    if not missing:
                        break
        return True

    def _said(self, session: str, start: int) -> Iterator[Passage]:
        try:
            yield from self._texts.all(session, start)
        except PerdureError as error:
            raise _UnreadError(error.message) from error

    def _take(self, session: str, passage: Passage, going_on: Callable[[], bool]) -> None:
        text = passage.text
        pieces = [values.text(text[block.start : block.end]) for block in blocks_of(text)]
        self._pending.append(_Pending(session, passage.digest, pieces))
        self._waiting += len(pieces)
        if self._waiting >= self._embedder.batch:
            self._flush(going_on)

    def _flush(self, going_on: Callable[[], bool]) -> None:
        """Make the vectors of what waits, and note the sessions that are done with it."""
        pending, self._pending, self._waiting = self._pending, [], 0
        whole: list[_Pending] = []
        for each in pending:
            if whole and sum(len(one.texts) for one in (*whole, each)) > self._embedder.batch:
                self._make(whole, going_on)
                whole = []
            if not going_on():
                return
            whole.append(each)
        self._make(whole, going_on)
        if not going_on():
            return
        done, self._done = self._done, []
        name, put = self._embedder.model, self._vectors.put_reading
        for session, version, era in done:
            self._there(partial(put, name, self._namespace, session, version, era=era))

    def _make(self, passages: list[_Pending], going_on: Callable[[], bool]) -> None:
        from perdure.embedding.arithmetic import joined  # noqa: PLC0415 - brings numpy

        embedder = self._embedder
        texts = [text for each in passages for text in each.texts]
        try:
            rows = self._rows(texts)
        except TextRefused as error:
            self._make_apart(passages, going_on, error)
            return
        if rows and going_on():
            made = [Made(each.digest, part) for each in passages for part in range(len(each.texts))]
            put = partial(self._vectors.put, embedder.model, made, joined(rows))
            self._made += self._there(put)
            self._passages += len(passages)

    def _make_apart(
        self, passages: list[_Pending], going_on: Callable[[], bool], error: TextRefused
    ) -> None:
        """Make those that the embedder takes, where it refuses some of several."""
        # What was refused is one text, and not their number.
        self._batch = self._embedder.batch
        if len(passages) == 1:
            # It stays without vectors, and so stops no other.
            self._refused.append((passages[0].session, error.message))
            return
        middle = len(passages) // 2
        for some in (passages[:middle], passages[middle:]):
            if going_on():
                self._make(some, going_on)

    def _rows(self, texts: list[str]) -> list[Any]:
        """The vectors of some texts, in as many calls as that takes.

        Raises:
            TextRefused: one of them is not taken, by itself.
            As `_called`.

        """
        rows: list[Any] = []
        while texts:
            some = texts[: self._batch]
            try:
                rows.append(self._called(some))
            except TextRefused:
                if len(some) == 1:
                    raise
                # Perhaps it takes no more than half as many at once.
                self._batch = len(some) // 2
                continue
            texts = texts[len(some) :]
        return rows

    def _called(self, texts: list[str]) -> Any:
        """The vectors of some texts, which are not too many for one call.

        Raises:
            EmbedderUnavailable, EmbedderFaulty: there are none.

        """
        from perdure.embedding.arithmetic import checked  # noqa: PLC0415 - brings numpy

        embedder = self._embedder
        self._pace.wait()
        try:
            with self._calls:
                given = embedder.embed_documents(texts)
        except PerdureError:
            raise
        except Exception as error:  # an embedder of somebody's may raise anything
            raise EmbedderUnavailable(embedder.spec, f"it failed: {told(error)}") from error
        return checked(given, len(texts), embedder.dimension, embedder.spec)

    def _there(self, what: Callable[[], T]) -> T:
        """Do something with the model, begun anew if its file was lost, or another took over."""
        try:
            return what()
        except InvalidValue as error:
            if error.path != "model":
                raise
            embedder = self._embedder
            self._vectors.begin(embedder.model, embedder.spec, embedder.dimension)
            return what()

    def _forget(self, catalog: Catalog) -> None:
        """Take away the vectors of what no session of any namespace says any more.

        Only if the catalog knows all namespaces that have some: it may have been made anew.
        """
        name = self._embedder.model
        for digests in self._vectors.kept(name):
            unsaid = catalog.unsaid(digests)
            # Behind that: it may go at any time.
            known = self._vectors.namespaces(name)
            if any(catalog.note(namespace, COMPLETE) is None for namespace in known):
                return
            self._vectors.remove(name, unsaid)
