"""How well a text fits a query: Okapi BM25 over the phrases of the query.

S. Robertson and H. Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond (2009). Each
catalog counts hits and lengths where its rows are; what it makes of them is the same.
"""

import math

from perdure.catalog.query import Phrase

__all__ = ["PART", "TOKENS_USUAL", "WORD", "B", "K", "weight_of"]

WORD, PART = 2.0, 1.0
"""Of a hit among the words of a passage, and among its parts."""

K, B = 1.2, 0.75
TOKENS_USUAL = 40.0
"""In a passage. A true mean would be that of a few very long ones, and differ by namespace."""


def weight_of(phrase: Phrase, found: float, total: int) -> float:
    """How much a phrase tells whose words `found` of so many texts have."""
    if not phrase.prefix and not found:
        return 0.0
    return math.log(1.0 + max(0.0, total - found + 0.5) / (found + 0.5))
