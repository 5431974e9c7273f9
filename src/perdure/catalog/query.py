"""Queries: what a person typed, read literally, as an expression for the keyword index.

There is no syntax but quotes. Nothing that is typed raises, and nothing of it reaches the index
but tokens, each phrase of them within quotes.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from perdure.catalog.analysis import places, stretched
from perdure.catalog.letters import normal
from perdure.catalog.units import (
    DENSE,
    WORD,
    Run,
    Stretch,
    Token,
    dense_words,
    joints,
    named,
    numbers,
    pairs,
    pieces,
)

__all__ = ["PREFIX_CHARS_MIN", "TERMS_MAX", "TOKENS_MAX", "Phrase", "Query", "Term", "parse"]

TERMS_MAX = 32
"""How many words and quoted phrases of one query are looked for."""

TOKENS_MAX = 64
"""How many tokens they may be made of together; a long CJK sentence has as many as characters."""

PREFIX_CHARS_MIN = 3
"""A shorter last word is only itself: as a beginning it would be found nearly everywhere."""

_NOTHING = '""'
"""An FTS5 expression that is valid and matches nothing; the empty string is a syntax error."""

_CLOSING = {
    '"': '"',
    "\uff02": '"\uff02',
    "\u201c": '\u201d"',
    "\u201e": '\u201c\u201d"',
    "\u00ab": "\u00bb",
    "\u300c": "\u300d",
    "\u300e": "\u300f",
}
_OPENING = re.compile(f"[{''.join(_CLOSING)}]")
_ID = re.compile("[A-Za-z0-9][A-Za-z0-9_.:@/-]{2,255}")
_ID_EDGES = "#@()[]{}<>,;.!?\"'`"


@dataclass(frozen=True, slots=True)
class Phrase:
    """Tokens that must follow each other in one column."""

    tokens: tuple[str, ...]
    prefix: bool = False
    """The last token may go on."""

    def expression(self) -> str:
        """The phrase for FTS5."""
        return f'"{" ".join(self.tokens)}"' + ("*" if self.prefix else "")


@dataclass(frozen=True, slots=True)
class Term:
    """One word or quoted phrase of a query."""

    text: str
    """As it was typed, without quotes."""
    phrases: tuple[Phrase, ...]
    """Any of these is a hit."""
    loose: tuple[Phrase, ...] = ()
    """What the term is made of: where nothing has the term itself, these come nearest."""


@dataclass(frozen=True, slots=True)
class Query:
    """What a person typed, as far as it can be looked for."""

    text: str
    terms: tuple[Term, ...]
    ignored: tuple[str, ...] = ()
    """What is not looked for, since the query has more than `TERMS_MAX` terms, or more than
    `TOKENS_MAX` tokens."""
    exact_id: str | None = None
    """The query, if it is one word that may be an id: with a digit and without a blank."""

    @property
    def empty(self) -> bool:
        """Nothing can be looked for: no letter, no digit and no sign was typed.

        Such a query matches nothing; a caller may rather list everything.
        """
        return not self.terms

    def match(self, mode: Literal["all", "any"] = "all") -> str:
        """The query as an expression for MATCH on the columns of `Analysed`.

        "all" finds texts with every term, "any" those with at least one, or with a part of one.
        An empty query gives an expression that is valid and matches nothing.
        """
        if not self.terms:
            return _NOTHING
        if mode == "all":
            return " AND ".join([_any_of(term.phrases) for term in self.terms])
        return _any_of(self.phrases(mode))

    def phrases(self, mode: Literal["all", "any"] = "all") -> tuple[Phrase, ...]:
        """The phrases of `match`, in the order in which they stand there."""
        if mode == "all":
            return tuple(phrase for term in self.terms for phrase in term.phrases)
        found = (phrase for term in self.terms for phrase in (*term.phrases, *term.loose))
        return tuple(dict.fromkeys(found))


def _any_of(phrases: tuple[Phrase, ...]) -> str:
    return f"({' OR '.join([phrase.expression() for phrase in phrases])})"


# --- reading ------------------------------------------------------------------------------------


class _Segment(NamedTuple):
    """Text within quotes, or between them."""

    text: str
    quoted: bool


def parse(query: str) -> Query:
    """Read what a person typed; never raises.

    Every word is a term, and so is everything within one pair of quotes, straight, curly, pointed
    or Japanese; a quote that is not closed reaches to the end. A word finds itself, and as the
    last one, if no blank follows, also words that it begins. A word of several parts, such as a
    path, finds these parts where they are joined by any signs, or written as one word.
    """
    budget = _Budget()
    segments = list(_segments(query))
    typing = bool(segments) and not segments[-1].quoted and not query[-1:].isspace()
    for index, segment in enumerate(segments):
        units = [unit.text for unit in places(segment.text, limit=len(segment.text))]
        if segment.quoted:
            budget.take(segment.text.strip(), units, prefix=False)
            continue
        for position, unit in enumerate(units):
            last = index == len(segments) - 1 and position == len(units) - 1
            budget.take(unit, [unit], prefix=typing and last)
    return Query(query, tuple(budget.terms), tuple(budget.ignored), _exact_id(query))


def _segments(query: str) -> Iterator[_Segment]:
    at = 0
    while at < len(query):
        opening = _OPENING.search(query, at)
        if opening is None:
            yield _Segment(query[at:], quoted=False)
            return
        yield _Segment(query[at : opening.start()], quoted=False)
        closing = re.compile(f"[{_CLOSING[opening[0]]}]").search(query, opening.end())
        end = closing.start() if closing else len(query)
        yield _Segment(query[opening.end() : end], quoted=True)
        at = end + 1


def _exact_id(query: str) -> str | None:
    word = query.strip().strip(_ID_EDGES)
    return word if _ID.fullmatch(word) and any(map(str.isdigit, word)) else None


class _Budget:
    """The terms so far, and what there was no more room for."""

    def __init__(self) -> None:
        self.terms: list[Term] = []
        self.ignored: list[str] = []
        self._room = TOKENS_MAX
        self._known: set[tuple[Phrase, ...]] = set()

    def take(self, text: str, units: list[str], *, prefix: bool) -> None:
        """Add a term, whole or as much of it as there is room for; one that is known adds none."""
        found = [stretch for unit in units for stretch in stretched(unit)]
        runs = [run for stretch in found for run in stretch.runs]
        tokens = [token for run in runs for token in _words(run)]
        size = min(len(tokens), self._room if len(self.terms) < TERMS_MAX else 0)
        phrases: tuple[Phrase, ...] = (Phrase(tuple(tokens[:size])),)
        if 0 < len(tokens) <= TOKENS_MAX:
            phrases = _phrases(units, found, tokens, prefix=prefix)
            if phrases in self._known:
                return
            if len(tokens) > size:
                phrases = (Phrase(tuple(tokens[:size])),)
        if len(tokens) > size:
            self.ignored.append(_rest(runs, size) if size else text)
        if size:
            known = set(phrases)
            loose = [each for each in _loose(runs, 2 * size + 2) if each not in known]
            self.terms.append(Term(text, phrases, tuple(loose)))
            self._known.add(phrases)
            self._room -= size


def _words(run: Run) -> list[str]:
    """The words of a run, as the index has them; of a dense one as many as it has characters."""
    return dense_words(run.folded).split() if run.kind == DENSE else [run.folded]


def _rest(runs: list[Run], size: int) -> str:
    """What comes after so many words, to be read."""
    for index, run in enumerate(runs):
        words = len(run.folded) if run.kind == DENSE else 1
        if size < words:
            rest = run.folded[size:] if run.kind == DENSE else run.text
            return " ".join([rest, *(later.text for later in runs[index + 1 :])])
        size -= words
    return ""


def _phrases(
    units: list[str], found: list[Stretch], tokens: list[str], *, prefix: bool
) -> tuple[Phrase, ...]:
    """What finds a term that is made of these units."""
    last = found[-1].runs[-1]
    if last.kind == DENSE:
        # A text may go on where the query ends, so that the last character begins any pair.
        alone = len(last.folded) == 1
        return (Phrase(tuple(tokens if alone else tokens[:-1]), prefix=alone),)
    texts = [tokens]
    if len(units) == 1:
        text = normal(units[0])
        whole = [each for each in (*named(text), *numbers(text)) if _covers(each, found)]
        if whole:
            return (Phrase((whole[0].text,)),)
        prefix = prefix and last.end == len(text)
        if len(tokens) == 1:
            texts.append([token.text for token in pairs(pieces(last))])
        elif len(found) == 1:
            texts = [[token.text for token in joints(found[0])]]
    phrases = [Phrase(tuple(text)) for text in texts if text]
    if prefix and last.kind == WORD:
        begun = [phrase for phrase in phrases if len(phrase.tokens[-1]) >= PREFIX_CHARS_MIN]
        phrases += [Phrase(phrase.tokens, prefix=True) for phrase in begun]
    return tuple(dict.fromkeys(phrases))


def _covers(token: Token, found: list[Stretch]) -> bool:
    """Whether the token is made of all that was found."""
    return token.start == found[0].runs[0].start and token.end >= found[-1].runs[-1].end


def _loose(runs: list[Run], room: int) -> Iterator[Phrase]:
    """The first words of a term, and the pieces of those that are names, each by itself."""
    for run in runs:
        words = _words(run)
        if run.kind == DENSE:
            phrases = [Phrase((each,)) for each in words[:-1]] or [Phrase((*words,), prefix=True)]
        else:
            of_name = pieces(run) if run.kind == WORD else []
            phrases = [Phrase((each,)) for each in (*words, *(each.text for each in of_name))]
        yield from phrases[:room]
        room -= len(phrases)
        if room <= 0:
            return
