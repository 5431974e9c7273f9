"""The embedders of a store: which one answers a search, and how long it may take."""

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from perdure.embedding import Embedder, embedder_of
from perdure.embedding.vectors import Model, Vectors
from perdure.errors import EmbedderUnavailable, PerdureError
from perdure.lenses.registry import told
from perdure.runtime import Runtime

__all__ = ["Answering", "Embedders"]

_QUERY_SECONDS = 15.0
"""So long a search waits for the vector of its query; loading a model is part of it."""

_TRUSTED = ("hashing", "offline")
"""What a store names itself is made from these alone: a store may come from anywhere. Whoever named
an address in it would be told what is looked for, and a model in a folder may be made to do more
than to embed."""

T = TypeVar("T")


class Answering(NamedTuple):
    """The model whose vectors are searched, and what makes the vector of a query for it.

    `instead` is the embedder that the store was opened with, where the vectors are not of that.
    """

    model: Model
    embedder: Embedder
    instead: str | None = None


class Embedders:
    """The embedders of all namespaces of a store, each made when it is needed first.

    Attributes:
        calls: is held around each call of an embedder.

    """

    def __init__(self, given: str | Embedder | None, vectors: Vectors, runtime: Runtime) -> None:
        """Nothing is made yet; `given` is what the store was opened with."""
        self._given = given
        self._vectors = vectors
        self._runtime = runtime
        self.reset()

    def reset(self) -> None:
        """Forget what this process had: it is another one's, and so are its threads."""
        self._made: dict[str, Embedder] = {}
        self._lock = threading.Lock()
        self._busy = threading.Lock()
        # Around each call of an embedder: those of others may know nothing of threads.
        self.calls = threading.Lock()

    @property
    def wanted(self) -> bool:
        """Whether the store was opened with one."""
        return self._given is not None

    def own(self) -> Embedder | None:
        """The one that the store was opened with.

        Raises:
            InvalidValue, EmbedderUnavailable, EmbedderFaulty: it cannot be made.

        """
        return None if self._given is None else self.made(self._given)

    def made(self, spec: str | Embedder) -> Embedder:
        """The embedder of a name, the same each time.

        Raises:
            As `own`.

        """
        if not isinstance(spec, str):
            return embedder_of(spec, self._runtime)
        with self._lock:
            if spec not in self._made:
                self._made[spec] = embedder_of(spec, self._runtime)
            return self._made[spec]

    def to_embed(self) -> Embedder:
        """What makes vectors: the one that the store was opened with, else that of its vectors.

        Raises:
            As `own`; and EmbedderUnavailable where there is neither.

        """
        own = self.own()
        if own is not None:
            return own
        # One that is on its way to take over is gone on with.
        for model in sorted(self._vectors.models(), key=lambda model: model.complete):
            return self._of(model)
        return self.made("offline")

    def answering(self) -> Answering:
        """Whose vectors answer; an older model, while a newer one is not complete.

        Raises:
            As `own`; and EmbedderUnavailable where nothing can answer.

        """
        own = self.own()
        models = [model for model in self._vectors.models() if model.vectors]
        if own is not None:
            for model in models:
                if model.name == own.model and (model.complete or not models[0].complete):
                    return Answering(model, own)
        if not models:
            hint = "run `perdure embed`, or store.embed()"
            raise EmbedderUnavailable("none", "nothing was embedded yet", hint=hint)
        instead = None if own is None or own.model == models[0].name else own.spec
        return Answering(models[0], self._of(models[0]), instead)

    def _of(self, model: Model) -> Embedder:
        """What made the vectors of a model."""
        if model.spec.partition(":")[0] not in _TRUSTED:
            hint = "name it when you open the store (embedder=, --embedder)"
            reason = "its vectors are there, and it is not asked unless you name it"
            raise EmbedderUnavailable(model.spec, reason, hint=hint)
        made = self.made(model.spec)
        if made.model != model.name:
            hint = "run `perdure embed`: it makes the vectors anew"
            reason = f"is {made.model} by now, and the vectors are of {model.name}"
            raise EmbedderUnavailable(model.spec, reason, hint=hint)
        return made

    def in_time(self, what: Callable[[], T]) -> T:
        """What something gives that may load a model or ask another machine.

        Raises:
            EmbedderUnavailable: it takes too long, or somebody else waits for the same.
            As `what`.

        """
        until = self._runtime.monotonic() + _QUERY_SECONDS
        if not self._busy.acquire(timeout=_QUERY_SECONDS):
            raise EmbedderUnavailable("busy", "another search waits for it", retryable=True)
        box: list[T | BaseException] = []

        def run() -> None:
            try:
                box.append(what())
            except BaseException as error:  # noqa: BLE001 - raised where somebody waits for it
                box.append(error)
            finally:
                self._busy.release()

        thread = threading.Thread(target=run, name="perdure-query", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self._busy.release()
            raise EmbedderUnavailable("query", told(error), retryable=True) from error
        thread.join(max(0.0, until - self._runtime.monotonic()))
        if not box:
            reason = f"no answer within {_QUERY_SECONDS:g} s"
            raise EmbedderUnavailable("slow", reason, retryable=True)
        found = box[0]
        if isinstance(found, PerdureError):
            raise found
        if isinstance(found, BaseException):
            raise EmbedderUnavailable("broken", f"it failed: {told(found)}") from found
        return found

    def close(self) -> None:
        """Release what the embedders hold that were made here."""
        for made in self._made.values():
            # What a package raises here stops nobody from closing the rest.
            with suppress(Exception):
                made.close()
        self._made.clear()
