"""The contract of where vectors are kept, so that another index can stand behind it.

What is kept is derived: it can be deleted at any time, and is made again from the logs. A vector is
known by its model and by the digest of what it was made of, whoever said that: what is said twice
is embedded once. So a session is nothing to it; which passages say something, the catalog knows.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

__all__ = ["Made", "Model", "Near", "Vectors"]


class Model(NamedTuple):
    """A model whose vectors are kept.

    Attributes:
        name: `Embedder.model`.
        spec: what its embedder is made from.
        dimension: of its vectors.
        complete: all that was to be embedded once was; until then an older one goes on answering.
        vectors: how many there are.

    """

    name: str
    spec: str
    dimension: int
    complete: bool
    vectors: int


class Made(NamedTuple):
    """What a vector was made of: the digest of a passage, and the number of the piece of it."""

    digest: int
    part: int


class Near(NamedTuple):
    """A passage that is near to a query.

    Attributes:
        digest: of the passage.
        part: the number of its piece that is nearest.
        score: cosine of the angle between both, -1 to 1.

    """

    digest: int
    part: int
    score: float


class Vectors(ABC):
    """Vectors of passages, by model.

    Methods may be called from any thread, and several processes may use one store of vectors. All
    raise StorageFull, StorageUnavailable, UnsafeFile or FormatUnsupported where the medium refuses;
    what makes no sense any more is set aside and begun anew.
    """

    @abstractmethod
    def models(self) -> list[Model]:
        """The models, those that are complete first, and of these the one begun last first."""

    @abstractmethod
    def begin(self, name: str, spec: str, dimension: int) -> None:
        """See that vectors of a model can be put, and note what its embedder is made from now."""

    @abstractmethod
    def complete(self, name: str) -> bool:
        """Let a model answer from now on, if it has all sessions that those begun before it have.

        Then the vectors of those go. Returns whether it answers.

        Raises:
            InvalidValue: the model was never begun.

        """

    @abstractmethod
    def missing(self, name: str, digests: Collection[int]) -> set[int]:
        """Those of the digests of which a model has no vector."""

    @abstractmethod
    def put(self, name: str, made: Sequence[Made], vectors: Any) -> int:
        """Keep vectors, all of them in one step; how many were new.

        `vectors` are rows as `perdure.embedding.arithmetic.checked` gives them. All pieces of a
        passage belong into one call: one that has a vector counts as embedded.

        Raises:
            InvalidValue: the model was never begun, or has vectors of another dimension.

        """

    @abstractmethod
    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        """The nearest passages, each once by its nearest piece, the nearest first.

        Of equal ones, the one with the smaller digest. `query` is a row as above. `digests`: of
        these alone; None: of all.

        Raises:
            InvalidValue: the vectors of the model are of another dimension.

        """

    @abstractmethod
    def kept(self, name: str) -> Iterator[list[int]]:
        """The digests of which there are vectors, some thousands at a time."""

    @abstractmethod
    def unsound(self, name: str) -> list[int]:
        """The digests of which a vector is not whole; it reads all of them."""

    @abstractmethod
    def remove(self, name: str, digests: Collection[int]) -> None:
        """Forget the vectors of these.

        What is not there any more may be said again: if there was one, every session of the model
        counts as embedded at version -1, which none has.
        """

    @abstractmethod
    def put_reading(
        self,
        name: str,
        namespace: str,
        session: str,
        version: int,
        *,
        era: str | None = None,
    ) -> None:
        """Note that a session was embedded to its end, as far as it was this version.

        With `era`, as it was before it was asked what is missing, nothing is noted if it is another
        one now: what was there may be gone.

        Raises:
            InvalidValue: the model was never begun.

        """

    @abstractmethod
    def era(self) -> str:
        """Another text whenever vectors were taken away, of any model, or all were lost."""

    @abstractmethod
    def versions(self, name: str, namespace: str) -> dict[str, int]:
        """Which version of each session of a namespace was embedded to its end."""

    @abstractmethod
    def namespaces(self, name: str) -> list[str]:
        """The namespaces that have such sessions."""

    @abstractmethod
    def keep_readings(self, namespace: str, sessions: Collection[str]) -> None:
        """Forget what was noted of all other sessions of a namespace, for all models."""

    @abstractmethod
    def size(self) -> int:
        """Bytes on the medium."""

    @abstractmethod
    def close(self) -> None:
        """Release what is held open; a call afterwards opens it again."""
