"""Tokens in PostgreSQL: the strings that are kept, and queries as conditions on them.

The index knows which tokens a passage has, and no place of them: PostgreSQL's own keep no more than
16,383. So a phrase is looked for as all of its tokens, and then in the string of the passage, where
each token stands between two blanks of its own.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from perdure.catalog.postgres.statements import Statement
from perdure.catalog.query import Phrase, Query
from perdure.databases.postgres.catalog_tables import LARGE, MARK

__all__ = ["Kept", "Mode", "all_of", "any_of", "kept", "lexeme", "read_again", "wanted"]

Mode = Literal["all", "any"]

_INDEXED_BYTES_MAX = 900_000
"""PostgreSQL's limit for the lexemes of a row is a million."""

_TOKEN_CHARS_MAX = 500
_STRANGE = str.maketrans({"\0": "\ufffd", MARK: "\ufffd"})


class Kept(NamedTuple):
    """The tokens of a text.

    Attributes:
        length: how many.
        large: there are more than the index takes: the strings have to be read.
        words, parts: each token between two blanks of its own.

    """

    length: int
    large: bool
    words: str
    parts: str


def kept(words: str, parts: str) -> Kept:
    """Tokens, given with blanks between them, as they are kept."""
    first, second = _tokens(words), _tokens(parts)
    large = False
    if 4 * (len(words) + len(parts)) > _INDEXED_BYTES_MAX:
        size = sum(len(token.encode()) for token in {*first, *second})
        large = size > _INDEXED_BYTES_MAX
    return Kept(len(first) + len(second), large, _spaced(first), _spaced(second))


def _tokens(text: str) -> list[str]:
    if not text.isascii():
        # Those that `analyse` gives hold no half of a character.
        text = text.encode("utf-8", "replace").decode()
    tokens = text.translate(_STRANGE).split(" ")
    return [token[:_TOKEN_CHARS_MAX] for token in tokens if token]


def _spaced(tokens: Sequence[str]) -> str:
    return f" {'  '.join(tokens)} " if tokens else ""


# --- for the index --------------------------------------------------------------------------------


def lexeme(token: str, *, prefix: bool = False) -> str:
    """A lexeme of a `tsquery`, or all that it begins."""
    quoted = token.replace("\\", "\\\\").replace("'", "''")
    return f"'{quoted}':*" if prefix else f"'{quoted}'"


def all_of(parts: Iterable[str]) -> str:
    """A `tsquery` for all of some."""
    return f"({' & '.join(parts)})"


def any_of(parts: Iterable[str]) -> str:
    """A `tsquery` for any of some."""
    return f"({' | '.join(dict.fromkeys(parts))})"


def wanted(query: Query, mode: Mode) -> str:
    """The `tsquery` for what may match: all that does, and phrases whose tokens lie apart."""
    if mode == "all":
        found = all_of(_any_tokens_of(term.phrases) for term in query.terms)
    else:
        found = _any_tokens_of(query.phrases(mode))
    return any_of([found, lexeme(LARGE)])


def of_phrase(phrase: Phrase) -> str:
    """The `tsquery` for what may have a phrase."""
    return any_of([_tokens_of(phrase), lexeme(LARGE)])


def _any_tokens_of(phrases: Iterable[Phrase]) -> str:
    """For any of some phrases; where a beginning is looked for, the word itself is one of those."""
    some = list(phrases)
    begun = {phrase.tokens for phrase in some if phrase.prefix}
    return any_of(_tokens_of(each) for each in some if each.prefix or each.tokens not in begun)


def _tokens_of(phrase: Phrase) -> str:
    *before, last = phrase.tokens
    return all_of([*dict.fromkeys(map(lexeme, before)), lexeme(last, prefix=phrase.prefix)])


# --- for the strings ------------------------------------------------------------------------------


def pattern(phrase: Phrase) -> str:
    """What stands in a string of tokens where a phrase does."""
    text = "  ".join(phrase.tokens)
    return f" {text}" if phrase.prefix else f" {text} "


def read_again(query: Query, mode: Mode) -> Statement:
    """A condition on a row `p` that the index says may match: whether it does."""
    if mode == "all":
        terms = [_read(term.phrases) for term in query.terms]
        loose = any(_apart(term.phrases) for term in query.terms)
        whole = Statement(
            f"({' AND '.join([term.text for term in terms])})",
            tuple(value for term in terms for value in term.values),
        )
    else:
        phrases = query.phrases(mode)
        loose, whole = _apart(phrases), _read(phrases)
    return whole if loose else Statement(f"(NOT p.large OR {whole.text})", whole.values)


def read_for(phrase: Phrase) -> Statement:
    """As `read_again`, for one phrase."""
    found = _read([phrase])
    return found if _apart([phrase]) else Statement(f"(NOT p.large OR {found.text})", found.values)


def _apart(phrases: Iterable[Phrase]) -> bool:
    """Whether the tokens of one may be there, and it is not."""
    return any(len(phrase.tokens) > 1 for phrase in phrases)


def _read(phrases: Iterable[Phrase]) -> Statement:
    patterns = [pattern(phrase) for phrase in phrases]
    condition = "strpos(p.words, %s) > 0 OR strpos(p.parts, %s) > 0"
    text = " OR ".join([condition] * len(patterns))
    return Statement(f"({text})", tuple(each for each in patterns for _ in range(2)))
