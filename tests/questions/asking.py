"""The questions: what is asked, and which passages have to be among the first ten hits."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from tests.questions.corpus import Corpus
from tests.questions.passages import Passage

__all__ = [
    "CLASSES",
    "CROWD",
    "FIRST",
    "Expectation",
    "Question",
    "folded",
    "folded_passage",
    "has_all",
    "questions",
    "unmet",
    "wanted",
    "words_of",
]

FIRST = 10
"""An expected passage is among so many hits."""

CROWD = 10
"""Where more passages than this have all words of a query, a search has to choose well."""

CLASSES = (
    "exact-id",
    "path",
    "flag",
    "symbol",
    "camelCase-part",
    "snake-part",
    "phrase",
    "multi-word",
    "prefix",
    "error-message",
    "number/version",
    "CJK-2-zh",
    "CJK-2-ja",
    "CJK-2-ko",
    "single-CJK-character",
    "latin-glued-to-CJK",
    "emoji",
    "accents/case",
    "punctuation-heavy",
    "title",
    "tool-name",
    "tool-output",
    "thinking",
    "unfinished-delta",
    "job-output",
    "channel",
    "trigger",
    "sub-agent",
    "state",
    "artifact-name",
    "summary",
    "negative",
)

_MARKS = re.compile("[\u0300-\u036f\ufe0e\ufe0f]")
_QUOTED = re.compile(r'"([^"]+)"')


class Expectation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A passage that has to be found.

    Attributes:
        session: what the corpus calls the session; of a list any one will do, for some samples
            are copies of others.
        kind: of `passages.KINDS`.
        contains: stands in a text of the passage, letter by letter. Where several passages of the
            kind hold it, any one will do.

    """

    session: str | tuple[str, ...]
    kind: str
    contains: str


class Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is typed into a search box.

    Attributes:
        id: name of the question.
        cls: of `CLASSES`.
        query: what is typed.
        expect: all of these are among the first `FIRST` hits. Empty: there is no hit at all, but
            for hits of a fallback that says that it is one.
        note: why it is asked, where that is not plain.
        crowd: how many passages have all words of the query, where that is more than `CROWD`: the
            expected ones fit it better.
        every_hit: nothing in particular is expected, but each hit holds this. Finding none is no
            fault: a search may say that there is nothing to look for.

    """

    id: str
    cls: str = msgspec.field(name="class")
    query: str
    expect: tuple[Expectation, ...] = ()
    note: str = ""
    crowd: int | None = None
    every_hit: str | None = None


def questions() -> list[Question]:
    """All of them, in the order of the file."""
    raw = Path(__file__).with_name("questions.json").read_bytes()
    return msgspec.json.decode(raw, type=list[Question])


def wanted(corpus: Corpus, passages: Iterable[Passage], expected: Expectation) -> list[Passage]:
    """The passages that meet an expectation; one of them has to be found."""
    names = (expected.session,) if isinstance(expected.session, str) else expected.session
    sessions = {corpus.ids[name] for name in names}
    return [
        passage
        for passage in passages
        if passage.session in sessions
        and expected.kind in passage.kinds
        and passage.holds(expected.contains)
    ]


def unmet(
    corpus: Corpus,
    passages: Sequence[Passage],
    question: Question,
    hits: Iterable[tuple[str, int, str | None]],
) -> list[Expectation]:
    """What a question expects and the first `FIRST` hits do not give.

    A hit is the id of its session, the number of its event, and its kind (of `passages.KINDS`), or
    None where that is not known: records of an import may say several things at once.
    """
    first = list(hits)[:FIRST]
    return [
        expected
        for expected in question.expect
        if not any(
            passage.session == session
            and seq in passage.seqs
            and (kind is None or kind in passage.kinds)
            for passage in wanted(corpus, passages, expected)
            for session, seq, kind in first
        )
    ]


# --- what can be found at all --------------------------------------------------------------------


def folded(text: str) -> str:
    """The text without case, accents, widths and forms of characters that people do not type.

    Blanks become single spaces.
    """
    apart = _MARKS.sub("", unicodedata.normalize("NFKD", text))
    return " ".join(unicodedata.normalize("NFKC", apart).casefold().split())


def folded_passage(passage: Passage) -> str:
    """All that a passage says, folded."""
    return folded("\n".join(passage.texts))


def words_of(query: str) -> list[str]:
    """The words of a query, folded; a quoted phrase is one."""
    phrases = _QUOTED.findall(query)
    return [folded(each) for each in [*phrases, *_QUOTED.sub(" ", query).split()]]


def has_all(text: str, words: Iterable[str]) -> bool:
    """Whether a folded text has all words, anywhere, whole or as parts of others.

    A search that takes what is typed literally finds no more than this in its own right. It may
    well find less: `ion` need not be found in `session`.
    """
    return all(word in text for word in words)
