"""The interface of whatever turns texts into vectors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

__all__ = ["BATCH", "Embedder"]

BATCH = 64
"""So many texts are embedded in one call, where an embedder says nothing else."""


class Embedder(ABC):
    """Turns texts into vectors that are near to each other where the texts mean the same.

    Vectors are compared by the cosine of their angle, so their length says nothing. One model gives
    the same vectors in each process: what can change them belongs into `model`. Methods are called
    by one thread at a time.

    Attributes:
        spec: what `embedder_of` makes it from, as `model2vec:/models/potion`. It is kept in the
            store, so it holds no secret.
        model: everything that vectors depend on beside their texts; those of two models are never
            compared.
        dimension: how many numbers a vector has.
        batch: so many texts at most are given to one call.
        remote: whether texts leave this machine.

    """

    spec: str
    model: str
    dimension: int
    batch: int = BATCH
    remote: bool = False

    @abstractmethod
    def embed_documents(self, texts: Sequence[str]) -> Any:
        """The vectors of 1 to `batch` texts: rows of `dimension` finite numbers, in their order.

        Lists of floats, or anything that `numpy.asarray` takes.

        Raises:
            EmbedderUnavailable, EmbedderFaulty: there are none.

        """

    @abstractmethod
    def embed_query(self, text: str) -> Any:
        """The vector of what somebody looks for: `dimension` finite numbers.

        Raises:
            As `embed_documents`.

        """

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release what is held open. It may be used again."""
