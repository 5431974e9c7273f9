"""How well a hit fits, as an expression of SQL: Okapi BM25 over the phrases of a query.

The function is that of the catalog in SQLite: the same weights, the same constants. Nothing in it
comes from outside the namespace.
"""

from collections.abc import Sequence

from perdure.catalog.bm25 import PART, TOKENS_USUAL, WORD, B, K
from perdure.catalog.postgres.lexemes import pattern
from perdure.catalog.postgres.statements import Statement, sql
from perdure.catalog.query import Phrase

__all__ = ["RANKED_MAX", "score"]

RANKED_MAX = 200
"""So many phrases of a query are ranked by."""


def score(phrases: Sequence[Phrase], weights: Sequence[float]) -> Statement:
    """The relevance of a row `h` with its `length`, `words` and `parts`."""
    terms = [
        _term(phrase, weight) for phrase, weight in zip(phrases, weights, strict=True) if weight > 0
    ]
    if not terms:
        return Statement("0::float8")
    joined = [terms[0], *(part for term in terms[1:] for part in ("+", term))]
    return sql("(", *joined, ")")


def _term(phrase: Phrase, weight: float) -> Statement:
    wanted = pattern(phrase)
    size = len(wanted.encode())
    counted = "(octet_length(h.{0}) - octet_length(replace(h.{0}, %s, '')))"
    hits = (
        f"({WORD / size!r}::float8 * {counted.format('words')}"
        f" + {PART / size!r}::float8 * {counted.format('parts')})"
    )
    least = f"({K * (1.0 - B)!r}::float8 + {K * B / TOKENS_USUAL!r}::float8 * h.length)"
    # As weight * hits * (K + 1) / (hits + least), where hits are counted once.
    text = f"%s::float8 * (1::float8 - {least} / ({hits} + {least}))"
    return Statement(text, (weight * (K + 1.0), wanted, wanted))
