"""What is computed with vectors. It needs numpy, which comes with the extra `semantic`."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from perdure.errors import EmbedderFaulty, EmbedderUnavailable

try:
    import numpy as np
except ImportError as error:
    raise EmbedderUnavailable(
        "of any kind",
        "vectors need numpy",
        hint="install perdure again with [semantic] behind its name or folder",
    ) from error

__all__ = ["Sketches", "best", "checked", "halves", "joined", "scores", "sketches"]

Rows = Any
"""A numpy array of float32, one row to a vector, each of length 1 or 0."""

_WORD_BYTES = 8
_NUMBERS = "fiu"
"""Kinds of a `numpy.dtype`."""

_ROUNDED = 0.01
"""So far from 1 the length of a vector may come to lie with 16 bits to a number."""


def checked(found: object, count: int, dimension: int, spec: str) -> Rows:
    """What an embedder gave, as rows of length 1; a vector of zeros stays one.

    Raises:
        EmbedderFaulty: it is not `count` vectors of `dimension` finite numbers.

    """
    try:
        given = np.asarray(found)
        # Of texts and of objects it would make numbers, too.
        if given.dtype.kind not in _NUMBERS:
            raise TypeError(given.dtype)
        with np.errstate(all="ignore"):
            rows = given.astype(np.float64)
    except Exception as error:  # what it gave may be anything
        raise EmbedderFaulty(spec, "its vectors are no numbers, or not of one length") from error
    if rows.shape != (count, dimension):
        shape = " x ".join(map(str, rows.shape))
        raise EmbedderFaulty(spec, f"it gave {shape} numbers where {count} x {dimension} were due")
    if not np.isfinite(rows).all():
        raise EmbedderFaulty(spec, "its vectors hold numbers that are none (NaN or infinite)")
    # Twice: squares of very big, and of very small numbers, have no room in a float.
    biggest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = np.divide(rows, biggest, out=np.zeros_like(rows), where=biggest > 0)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    rows = np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)
    return rows.astype(np.float32)


def joined(some: Sequence[Rows]) -> Rows:
    """Rows of several calls, one behind the other."""
    return np.concatenate(some)


def halves(rows: Rows) -> list[bytes]:
    """The rows with 16 bits to a number (IEEE 754), little end first."""
    return [row.tobytes() for row in rows.astype("<f2")]


def sketches(rows: Rows) -> list[bytes]:
    """A bit for each number, set where it is above 0; whole words of 64 bits."""
    bits = np.packbits(rows > 0, axis=1)
    padding = -bits.shape[1] % _WORD_BYTES
    return [row.tobytes() for row in np.pad(bits, ((0, 0), (0, padding)))]


def scores(query: Rows, found: Sequence[bytes]) -> Any:
    """The cosine of the query with each of these halves, -1 to 1."""
    if not found:
        return np.zeros(0, np.float32)
    halves = np.frombuffer(b"".join(found), "<f2").reshape(len(found), -1)
    rows = halves.astype(np.float32)
    with np.errstate(all="ignore"):
        lengths = np.sqrt((rows * rows).sum(axis=1))
        cosines = np.clip(rows @ query, -1, 1)
    # A damaged cell may hold what is no number, or no vector of ours; it is near to nothing.
    sound = (np.abs(lengths - 1) <= _ROUNDED) | (lengths == 0)
    return np.where(sound, cosines, np.float32(-1))


def best(values: Any, most: int) -> list[int]:
    """The places of the biggest values, the biggest first, equal ones in their order."""
    if len(values) > most:
        # All that are as big as the last that counts: which of those come is no matter of chance.
        least = np.partition(values, len(values) - most)[len(values) - most]
        places = np.flatnonzero(values >= least)
    else:
        places = np.arange(len(values))
    order = np.argsort(-values[places], kind="stable")
    return [int(place) for place in places[order][:most]]


class Sketches(NamedTuple):
    """The sketches of a model: in memory, 16 bytes and a bit for each number to a vector.

    Attributes:
        ids: the numbers of the vectors, rising.
        digests: the passages that they were made of.
        bits: a row of words to each.

    """

    ids: Any
    digests: Any
    bits: Any

    @staticmethod
    def none(dimension: int) -> "Sketches":
        """Those of no vectors."""
        words = -(-dimension // (8 * _WORD_BYTES))
        empty = np.zeros(0, np.int64)
        return Sketches(empty, empty, np.zeros((0, words), np.uint64))

    def and_these(self, rows: Sequence[tuple[int, int, bytes]]) -> "Sketches":
        """With more behind them: id, digest and sketch of each."""
        if not rows:
            return self
        ids, digests, found = zip(*rows, strict=True)
        bits = np.frombuffer(b"".join(found), np.uint64).reshape(len(rows), -1)
        return Sketches(
            np.concatenate((self.ids, np.array(ids, np.int64))),
            np.concatenate((self.digests, np.array(digests, np.int64))),
            np.concatenate((self.bits, bits)),
        )

    def among(self, digests: Sequence[int]) -> Any:
        """The places of those that were made of these."""
        return np.flatnonzero(np.isin(self.digests, np.array(digests, np.int64)))

    def closest(self, query: Rows, places: Any | None, most: int) -> Any:
        """The places, of all or of these, whose sketches differ least from that of the query."""
        (sketch,) = sketches(query[np.newaxis, :])
        bits = self.bits if places is None else self.bits[places]
        differing = np.bitwise_count(bits ^ np.frombuffer(sketch, np.uint64))
        alike = -differing.sum(axis=1, dtype=np.int32)
        found = np.array(best(alike, most), np.int64)
        return found if places is None else places[found]
