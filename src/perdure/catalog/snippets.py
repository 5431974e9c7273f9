"""Snippets: the piece of a text that shows best why a query found it.

What counts as a hit is decided by the tokens of the text, as in the index, and not by comparing
characters: a snippet marks what was found, whatever it looks like.
"""

import unicodedata
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from perdure.catalog.analysis import TEXT_CHARS_MAX, Unit, places, tokens, unit_texts
from perdure.catalog.query import TOKENS_MAX, Query
from perdure.catalog.units import Token

__all__ = ["Snippet", "snippet"]

_EDGE = 24
"""So many characters are given up to begin and end between words."""

_KNOWN_MAX = 1 << 14
_KNOWN_CHARS_MAX = 64

_NOTHING, _BETWEEN, _LOOKED_FOR = 0, 1, 2
"""Kinds of units: without a word; with others than those looked for; with one of these."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of a text, exactly as it stands there: control characters and all."""

    text: str
    spans: tuple[tuple[int, int], ...]
    """What was found: first character and the one after the last, counted in `text`, in order,
    not overlapping."""
    start: int
    """Where the piece begins in the whole text."""
    cut_before: bool
    """Something stands before it."""
    cut_after: bool
    """Something comes after it."""


class _Hit(NamedTuple):
    start: int
    end: int
    term: int
    """Its index in the query."""
    whole: bool
    """A phrase of the term, and not only something that it is made of."""


class _Seen(NamedTuple):
    """One token: which places in phrases it can take, and where it stands."""

    places: int
    start: int
    end: int
    head: int
    """Where its first character ends, if it is a pair of a dense run; otherwise as `end`."""


class _End(NamedTuple):
    """The end of a phrase."""

    term: int
    whole: bool
    tokens: int
    one: bool
    """Its last token is one character of a dense run, and may stand in a pair."""


def snippet(
    text: str,
    query: Query,
    *,
    chars: int = 200,
    limit: int = TEXT_CHARS_MAX,
    near: tuple[int, int] | None = None,
) -> Snippet:
    """The piece of at most `chars` characters that has the most terms of the query.

    Of several such it is the first, but the characters `near` to (the first and the one after the
    last) are shown and marked in any case. A word of the query that the text
    has nowhere is marked by its parts. Without any hit the piece is the beginning. `limit` is that
    of `analyse`.
    """
    chars = max(0, chars)
    found: Iterable[_Hit] = _Phrases(query).hits(text, limit)
    if near is not None:
        found = _from(near, list(found), chars)
    hits = _best(found, query, chars)
    low = min((hit.start for hit in hits), default=0)
    high = max((hit.end for hit in hits), default=0)
    start, end = _around(text, low, high, chars)
    spans: list[tuple[int, int]] = []
    for hit in sorted(hits):
        first, last = max(hit.start, start) - start, min(hit.end, end) - start
        if spans and first <= spans[-1][1] and first < last:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        elif first < last:
            spans.append((first, last))
    return Snippet(text[start:end], tuple(spans), start, start > 0, end < len(text))


# --- where --------------------------------------------------------------------------------------


def _from(near: tuple[int, int], found: list[_Hit], chars: int) -> Iterable[_Hit]:
    """What is near, found there or not, and what one piece shows with it."""
    start, end = near
    there = [hit for hit in found if hit.start < end and hit.end > start]
    first = min(start, *(hit.start for hit in there)) if there else start
    shown = [hit for hit in found if first <= hit.start and hit.end <= first + chars]
    return sorted([*shown, _Hit(start, end, there[0].term if there else 0, whole=True)])


def _best(found: Iterable[_Hit], query: Query, chars: int) -> list[_Hit]:
    """The hits of the best piece."""
    window: deque[_Hit] = deque()
    inside: Counter[tuple[bool, int]] = Counter()
    best: list[_Hit] = []
    best_score = (0, 0)
    met: set[int] = set()
    for hit in found:
        if best and hit.end <= best[0].start + chars:
            best.append(hit)
        elif best_score[0] == len(query.terms):
            break
        if hit.whole:
            met.add(hit.term)
        window.append(hit)
        inside[hit.whole, hit.term] += 1
        while len(window) > 1 and hit.end - window[0].start > chars:
            gone = window.popleft()
            inside[gone.whole, gone.term] -= 1
            if not inside[gone.whole, gone.term]:
                del inside[gone.whole, gone.term]
        score = (sum(whole for whole, _ in inside), len(inside))
        if score > best_score:
            best, best_score = list(window), score
    return [hit for hit in best if hit.whole or hit.term not in met]


def _around(text: str, low: int, high: int, chars: int) -> tuple[int, int]:
    """Where a piece begins and ends that shows what is between `low` and `high`."""
    high, whole = min(high, low + chars), high
    spare = chars - (high - low)
    end = min(len(text), high + spare - min(low, spare // 3))
    start = max(0, end - chars)
    if 0 < start < low:
        between = [at for at in range(start, min(low, start + _EDGE)) if text[at - 1].isspace()]
        start = between[0] if between else start
        while start < low and _inside(text, start):
            start += 1
    if high < end < len(text):
        between = [at for at in range(end, max(high, end - _EDGE), -1) if text[at].isspace()]
        end = between[0] if between else end
    if end < len(text):
        least = high if high == whole else low
        while end > least and _inside(text, end):
            end -= 1
    return start, end


def _inside(text: str, at: int) -> bool:
    """Whether a cut there would take apart what is seen as one character."""
    before, after = text[at - 1], text[at]
    return (
        after == "\u200d"
        or before == "\u200d"
        or unicodedata.category(after)[0] == "M"
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or "\U000e0020" <= after <= "\U000e007f"
        or ("\ud800" <= before <= "\udbff" and "\udc00" <= after <= "\udfff")
    )


# --- what ---------------------------------------------------------------------------------------


class _Phrases:
    """All phrases of a query at once, in one number: a bit for each token of each phrase.

    A bit of the state is set while the text has the phrase up to that token. One step per token
    of the text moves all of them on, so that work grows with the text and not with the phrases.
    """

    def __init__(self, query: Query) -> None:
        self._first = 0
        self._exact: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        self._last: dict[int, _End] = {}
        bit = 1
        for index, term in enumerate(query.terms):
            for whole, phrases in ((True, term.phrases), (False, term.loose)):
                for phrase in phrases:
                    self._first |= bit
                    for token in phrase.tokens[:-1]:
                        self._exact[token] = self._exact.get(token, 0) | bit
                        bit <<= 1
                    known = self._begun if phrase.prefix else self._exact
                    known[phrase.tokens[-1]] = known.get(phrase.tokens[-1], 0) | bit
                    one = phrase.prefix and len(phrase.tokens[-1]) == 1
                    self._last[bit] = _End(index, whole, len(phrase.tokens), one)
                    bit <<= 1
        self._ends = sum(self._last)
        self._beginnings = tuple(self._begun)
        self._kinds: dict[str, int] = {}

    def hits(self, text: str, limit: int) -> Iterator[_Hit]:
        """Every place where the text has a phrase, about in their order."""
        if not self._last:
            return
        words = _Reader(self)
        parts = _Reader(self)
        for unit in places(text, limit=limit):
            kind = self._kinds.get(unit.text)
            if kind is None:
                kind = self._kind(unit.text)
            if kind == _BETWEEN:
                words.state = 0
            elif kind == _LOOKED_FOR:
                parts.state = 0
                yield from self._hits(unit, words, parts)

    def _hits(self, unit: Unit, words: "_Reader", parts: "_Reader") -> Iterator[_Hit]:
        """The hits that end in one unit; of a short one in their order."""
        found: list[_Hit] = []
        for some_words, some_parts in tokens(unit):
            found += words.read(self._seen(some_words))
            found += parts.read(self._seen(iter(some_parts)))
            if len(unit.text) > _KNOWN_CHARS_MAX:
                yield from found
                found = []
        yield from sorted(found)

    def _kind(self, unit: str) -> int:
        """Whether a unit has anything that is looked for; most have not, and that is known soon."""
        words, parts = unit_texts(unit)
        if parts or " " in words:
            all_of_it = f" {words} {parts}"
            exact = not self._exact.keys().isdisjoint(all_of_it.split())
            found = exact or any(f" {beginning}" in all_of_it for beginning in self._beginnings)
        else:
            found = words in self._exact or words.startswith(self._beginnings)
        kind = _LOOKED_FOR if found else _BETWEEN if words else _NOTHING
        if len(unit) <= _KNOWN_CHARS_MAX and len(self._kinds) < _KNOWN_MAX:
            self._kinds[unit] = kind
        return kind

    def _seen(self, found: Iterator[Token]) -> Iterator[_Seen]:
        """Tokens with their places in phrases; a pair begins with what the next one begins at."""
        held = next(found, None)
        while held is not None:
            after = next(found, None)
            overlaps = after is not None and held.start < after.start < held.end
            head = after.start if after is not None and overlaps else held.end
            yield _Seen(self._places(held.text), held.start, held.end, head)
            held = after

    def _places(self, token: str) -> int:
        places = self._exact.get(token, 0)
        if token.startswith(self._beginnings):
            for beginning, bits in self._begun.items():
                if token.startswith(beginning):
                    places |= bits
        return places

    def step(self, state: int, places: int) -> int:
        """The state after one more token."""
        return (state << 1 | self._first) & places

    def ended(self, state: int) -> list[_End]:
        """The phrases that end with the token that led to that state."""
        ends = state & self._ends
        return [end for bit, end in self._last.items() if bit & ends] if ends else []


class _Reader:
    """How far into which phrases the tokens of one column have led."""

    def __init__(self, phrases: _Phrases) -> None:
        self.state = 0
        self._phrases = phrases
        self._starts: deque[int] = deque(maxlen=TOKENS_MAX)

    def read(self, column: Iterable[_Seen]) -> Iterator[_Hit]:
        """The hits that end in these tokens."""
        for seen in column:
            self._starts.append(seen.start)
            self.state = self._phrases.step(self.state, seen.places)
            for end in self._phrases.ended(self.state):
                stop = seen.head if end.one else seen.end
                yield _Hit(self._starts[-end.tokens], stop, end.term, end.whole)
