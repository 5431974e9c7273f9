"""Tokens that say whose a passage is, and how well a passage fits a query.

FTS5's own `bm25` reads the whole list of every phrase of an expression, to count its rows. Lists
of the tokens of a scope are as long as the index, and those of common words nearly so. Here a
phrase is counted among the newest passages only, and tokens of the scope not at all.
"""

from typing import Any

import apsw

from perdure.catalog.bm25 import PART, TOKENS_USUAL, WORD, B, K

__all__ = [
    "RANK",
    "STRETCH_BITS",
    "agent_token",
    "kind_token",
    "namespace_token",
    "register",
    "scope_tokens",
    "session_token",
    "stretch",
    "stretch_token",
]

_MARK = "\ue000"
"""At the beginning of each token of a scope; it begins no token of a text or a query."""

STRETCH_BITS = 30
"""Passages are found by time in stretches of so many bits of milliseconds: 12 days."""

_STRETCH_MASK = (1 << 64) - 1

RANK = "perdure_rank"


def namespace_token(number: int) -> str:
    """Of passages of a namespace."""
    return f"{_MARK}n{number}"


def session_token(number: int) -> str:
    """Of passages of a session."""
    return f"{_MARK}s{number}"


def kind_token(number: int) -> str:
    """Of passages of a kind."""
    return f"{_MARK}k{number}"


def agent_token(number: int | None) -> str:
    """Of passages of an agent, or of the one without a name."""
    return f"{_MARK}a{number or 0}"


def stretch(time: int) -> int:
    """The stretch of time that a passage falls into."""
    return time >> STRETCH_BITS


def stretch_token(number: int) -> str:
    """Of passages of a stretch of time."""
    return f"{_MARK}t{number & _STRETCH_MASK:x}"


def scope_tokens(namespace: int, session: int, kind: int, agent: int | None, time: int) -> str:
    """All tokens of a passage."""
    return (
        f"{_MARK}n{namespace} {_MARK}s{session} {_MARK}k{kind} {_MARK}a{agent or 0}"
        f" {_MARK}t{time >> STRETCH_BITS & _STRETCH_MASK:x}"
    )


def _rank(api: apsw.FTS5ExtensionApi, /, *weights: Any) -> float:
    """Okapi BM25 of the current row; `weights` are those of the first phrases."""
    length = api.column_size(0) + api.column_size(1)
    least = K * (1.0 - B + B * length / TOKENS_USUAL)
    score = 0.0
    for phrase, weight in enumerate(weights):
        if not weight:
            continue
        words, parts, _ = api.phrase_locations(phrase)
        hits = WORD * len(words) + PART * len(parts)
        score += weight * hits * (K + 1.0) / (hits + least)
    return score


def register(connection: apsw.Connection) -> None:
    """Let statements rank."""
    connection.register_fts5_function(RANK, _rank)
