"""What listing and search answer: values for people and programs."""

import base64
import binascii
import zlib
from typing import Any, NamedTuple

import msgspec

from perdure.catalog.contract import Listed, Sums
from perdure.embedding.vectors import Model
from perdure.errors import InvalidValue
from perdure.model import values

__all__ = [
    "Coverage",
    "Found",
    "Hit",
    "Listing",
    "Stats",
    "cursor_of",
    "question_of",
    "read_cursor",
]


class Coverage(NamedTuple):
    """What an answer was looked for in.

    Attributes:
        sessions: how many sessions there are.
        indexed: how many of them were read to their ends.
        skipped: how many records cannot be found, counted over all sessions.
        reasons: some sessions that could not be read whole, or have such records: id and reason.

    """

    sessions: int
    indexed: int
    skipped: int
    reasons: tuple[tuple[str, str], ...]

    @property
    def complete(self) -> bool:
        """Whether nothing was left out."""
        return self.indexed == self.sessions and not (self.skipped or self.reasons)

    def __str__(self) -> str:
        """In words: "indexed 999 of 1000 sessions, 1 record skipped: why"."""
        said = f"indexed {self.indexed} of {self.sessions} session{'s'[: self.sessions != 1]}"
        if self.skipped:
            said += f", {self.skipped} record{'s'[: self.skipped != 1]} skipped"
        if self.reasons:
            session, reason = self.reasons[0]
            said += values.text(f": {reason} ({session})")
        return said

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**self._asdict(), "reasons": [list(each) for each in self.reasons]}


class Listing(NamedTuple):
    """A page of a listing.

    Attributes:
        sessions: in the order that was asked for.
        cursor: for the next page, as `after`; None: this is the last one.
        fallback: no session has all words of the query; these have some.
        coverage: what the listing knows of.

    """

    sessions: list[Listed]
    cursor: str | None
    fallback: bool
    coverage: Coverage


class Hit(NamedTuple):
    """A passage that a search found.

    Attributes:
        session: id of its session.
        seq: number of the event that says it.
        kind: what it is, one of `perdure.catalog.passages.KINDS`.
        agent: whose event it is, or None.
        time: of the event, Unix milliseconds.
        score: the greater, the better, within one answer: above 0, but by meaning alone the cosine
            of an angle, -1 to 1. 0 where nothing was ranked.
        snippet: the piece of the text that shows best why it was found, as it stands there.
        spans: where in the snippet what was looked for stands: first character, and the one after
            the last.
        cut: whether text stands before the snippet, and whether some comes after it.
        title: of its session, or None.
        cwd: working directory of its session, or None.

    """

    session: str
    seq: int
    kind: str
    agent: str | None
    time: int
    score: float
    snippet: str
    spans: tuple[tuple[int, int], ...]
    cut: tuple[bool, bool]
    title: str | None = None
    cwd: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        spans = [list(span) for span in self.spans]
        return {**self._asdict(), "spans": spans, "cut": list(self.cut)}


class Found(NamedTuple):
    """What a search found.

    Attributes:
        hits: a page of them, the best first, or in the order that was asked for.
        cursor: for the next page, as `after`; None: this is the last one.
        mode: how it was looked for: "keyword", "semantic" or "hybrid".
        fallback: no passage has all words of the query; these have some of them.
        capped: the words are so common that only the newest hits were ranked.
        ignored: what was typed beyond what one query may ask.
        coverage: what was searched.
        model: the model whose vectors were compared; None for words alone.
        warnings: what an answer by meaning lacks: sessions without vectors, or an embedder.

    """

    hits: list[Hit]
    cursor: str | None
    mode: str
    fallback: bool
    capped: bool
    ignored: tuple[str, ...]
    coverage: Coverage
    model: str | None = None
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **self._asdict(),
            "hits": [hit.as_dict() for hit in self.hits],
            "ignored": list(self.ignored),
            "coverage": self.coverage.as_dict(),
            "warnings": list(self.warnings),
        }


class Stats(NamedTuple):
    """What a store holds, as its index knows it.

    Attributes:
        sums: counts, sizes and usage.
        coverage: what they were made of.
        place: absolute path of the index, or None if it is kept in memory.
        models: those of which there are vectors, for search by meaning; the first one answers.

    """

    sums: Sums
    coverage: Coverage
    place: str | None
    models: tuple[Model, ...] = ()


def cursor_of(question: int, *place: Any) -> str:
    """A place in the answer to a question, as text that can stand in a URL."""
    told = values.encode([question, *place])
    return base64.urlsafe_b64encode(told).decode().rstrip("=")


def question_of(*asked: Any) -> int:
    """A number of 32 bits for what was asked; another question has another one."""
    return zlib.crc32(repr(asked).encode("utf-8", "surrogatepass"))


def read_cursor(cursor: str, question: int, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """The place that `cursor_of` made a text of.

    Raises:
        InvalidValue: it did not, or it is of another question.

    """
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        form: Any = tuple[(int, *kinds)]  # type: ignore[valid-type]
        found: tuple[Any, ...] = msgspec.convert(values.decode(raw), form)
        if found[0] != question or cursor_of(*found) != cursor:
            raise ValueError(cursor)
        return found[1:]
    except (ValueError, TypeError, binascii.Error, msgspec.ValidationError):
        hint = "pass the `cursor` of an answer to the same question, or None"
        raise InvalidValue("after", "is no cursor of such an answer", hint=hint) from None
