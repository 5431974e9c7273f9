"""An embedder of words and pieces of words alone: it knows no meaning, and is always there.

Feature hashing (Weinberger et al., 2009): each word, and each sequence of three letters in it, adds
1 or -1 at a place that its hash names. Texts that share words, or stems of words, are near to each
other. It is what the tests use, and what a machine without any model can do.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b

from perdure.catalog.analysis import analyse
from perdure.embedding.contract import Embedder
from perdure.errors import InvalidValue

__all__ = ["HashingEmbedder"]

_DIMENSION = 256
_DIMENSIONS = (8, 4096)
_LETTERS = 3
_OF_LETTERS = 0.5
"""A sequence of letters counts so much, where a word counts 1."""


class HashingEmbedder(Embedder):
    """See above; `dimension` numbers, 8 to 4,096."""

    def __init__(self, dimension: int = _DIMENSION) -> None:
        """Nothing is loaded.

        Raises:
            InvalidValue: the dimension is out of its bounds.

        """
        low, high = _DIMENSIONS
        if not low <= dimension <= high:
            raise InvalidValue("dimension", f"{dimension} is not {low} to {high}")
        self.spec = f"hashing:{dimension}"
        self.model = f"hashing/1/{dimension}"
        self.dimension = dimension

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embedder.embed_documents`."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """See `Embedder.embed_query`."""
        found = [0.0] * self.dimension
        told = analyse(text)
        for word in f"{told.words} {told.parts}".split():
            self._add(found, word, 1.0)
            padded = f" {word} "
            for at in range(len(padded) - _LETTERS + 1):
                self._add(found, padded[at : at + _LETTERS], _OF_LETTERS)
        length = math.sqrt(sum(each * each for each in found))
        return [each / length for each in found] if length else found

    def _add(self, found: list[float], feature: str, weight: float) -> None:
        digest = blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        number = int.from_bytes(digest, "big")
        found[(number >> 1) % self.dimension] += weight if number & 1 else -weight
