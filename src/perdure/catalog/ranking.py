"""The order of hits: how well they fit, and of what fits as well, what is newer first."""

import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from perdure.catalog.contract import Candidate
from perdure.catalog.query import Query

__all__ = ["Ranked", "literals", "once_each", "place_of_literal", "ranked"]

_SIGN = re.compile(r"[^\w\s./\\:@'~+#-]|^[./\\:@~+#-]|[./\\:@~+#-]$")
"""Signs that are no part of names: joined by others, names are found whole."""

_EDGES = "\"'“”„«»「」『』.,;?!"
"""Around a word these are punctuation, and nobody looks for them."""

_DAY_MS = 86_400_000
_HALVED_DAYS = 30
_RECENT = 0.25
"""So much more counts what was said just now than what was said long ago."""

_WEIGHTS = {"tool-result": 0.85, "tool-call": 0.9, "thinking": 0.95, "title": 1.1, "summary": 0.9}
"""Outputs are long and repeat everything; what people and agents say is what is looked for."""


class Ranked(NamedTuple):
    """A candidate in its place.

    Attributes:
        candidate: it.
        score: above 0; only comparable within one answer.
        part: the piece of its text (`perdure.embedding.blocks`) that was found; None: words were.

    """

    candidate: Candidate
    score: float
    part: int | None = None


def literals(query: Query) -> list[str]:
    """What was typed with signs that no word has, without case; typed words are split at blanks."""
    return [word.casefold() for word in query.text.split() if _SIGN.search(word.strip(_EDGES))]


def place_of_literal(text: str, query: Query) -> tuple[int, int] | None:
    """Where the first of these stands: its first character, and the one after its last."""
    for word in literals(query):
        found = re.search(re.escape(word), text, re.IGNORECASE)
        if found is not None:
            return found.span()
    return None


def ranked(candidates: Iterable[Candidate], now: int) -> list[Ranked]:
    """The candidates, the best first; `now` is Unix milliseconds.

    Of two that say the same of one tool call, only the better one is left.
    """
    found = [Ranked(each, _score(each, now)) for each in candidates]
    found.sort(key=_order)
    return once_each(found)


def once_each(found: Iterable[Ranked]) -> list[Ranked]:
    """Those that are first to say something of their tool call, and all that are of none."""
    seen: set[tuple[str, int]] = set()
    kept = []
    for each in found:
        call = each.candidate.call if each.candidate.kind == "tool-call" else None
        if call is not None:
            if (each.candidate.session, call) in seen:
                continue
            seen.add((each.candidate.session, call))
        kept.append(each)
    return kept


def _score(candidate: Candidate, now: int) -> float:
    age = max(now - candidate.time, 0) / _DAY_MS
    recent = 1 + _RECENT * math.pow(0.5, age / _HALVED_DAYS)
    return max(candidate.relevance, 0.0) * _WEIGHTS.get(candidate.kind, 1.0) * recent


def _order(each: Ranked) -> tuple[float, int, str, int, str, int]:
    candidate = each.candidate
    what = (candidate.session, candidate.seq, candidate.kind, candidate.digest)
    return -each.score, -candidate.time, *what
