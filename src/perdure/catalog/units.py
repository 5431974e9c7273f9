"""Units: what stands between two blanks, cut into runs, and the tokens that each unit gives.

The tokens of a unit are of two kinds. *Words* are what it reads as, in order; a run of a script
without spaces gives its pairs of neighbours and then its last character, so that every character
begins one token. *Parts* are what it is found by besides: the pieces of `camelCase`, neighbours
joined as in `snake_case` and paths, a number without its thousands separators, `c++`.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from operator import add
from typing import NamedTuple

from perdure.catalog.letters import fold, patterns, shown

__all__ = [
    "BARRIER",
    "DENSE",
    "SIGN",
    "TOKEN_CHARS_MAX",
    "WORD",
    "Run",
    "Stretch",
    "Token",
    "ascii_tokens",
    "dense_tokens",
    "dense_words",
    "joints",
    "named",
    "numbers",
    "pairs",
    "pieces",
    "stretch_parts",
    "stretches",
]

TOKEN_CHARS_MAX = 128
"""Longer words are cut to this; the longest ids, SHA-512 in hexadecimal, are still whole."""

BARRIER = "\u2016"
"""Stands before the parts of each unit, so that no phrase reaches from one unit into another."""

WORD, DENSE, SIGN = 0, 1, 2

_STRETCH_RUNS_MAX = 64
_PIECED_CHARS_MAX = 64
_WOVEN_CHARS_MIN = 16

_ASCII_RUN = re.compile("(?<![A-Za-z0-9])[Vv](?=[0-9]+\\.[0-9])|[A-Za-z0-9]+")
_JOINERS = re.compile("[-_./\\\\:@'\u2019\u2010~+#]{0,2}|://|\\.\\./")
_ASCII_STRETCH = re.compile("[A-Za-z0-9]+(?:(?:[-_./\\\\:@'~+#]{1,2}|://|\\.\\./)[A-Za-z0-9]+)*")
_INVISIBLE = re.compile("[\u2060\u200b-\u200d\u00ad]+")
_PIECES = re.compile("[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+[0-9]*|[A-Z]+[0-9]*|[0-9]+")
_TURN = re.compile("[a-z][A-Z0-9]|[A-Z][A-Z][a-z]|[A-Z][0-9]|[0-9][A-Za-z]")
"""Within a word, a piece ends only where this is."""
_SEAMED = re.compile("[0-9][^A-Za-z0-9]+[0-9]")
_WORDLIKE = re.compile("[A-Za-z]{2}")
_TRAILING_NUMBER = re.compile("[a-z]{2}([0-9]+)$", re.IGNORECASE)
_NAMED = re.compile(
    "(?<![A-Za-z0-9_])([A-Za-z][A-Za-z0-9]{0,9})(\\+\\+(?![A-Za-z_+])|#(?![A-Za-z0-9_#]))"
)
_NUMBER = re.compile("(?<![\\w.,])[0-9]{1,3}([,_'\u2019])[0-9]{3}(?:\\1[0-9]{3})*(?!\\w|\\1[0-9])")
_SEPARATED = re.compile("[0-9][,_'\u2019][0-9]{3}")
_WIDE = {ord(sign): ord(sign) + 0xFEE0 for sign in "+#"}
_SEAM = "\uff3f"


class Token(NamedTuple):
    """One token, and where what it was made of stands."""

    text: str
    start: int
    end: int


class Run(NamedTuple):
    """Letters and digits that belong together, in a text in normal form."""

    kind: int
    text: str
    """As it stands in the text; a word is cut to `TOKEN_CHARS_MAX`."""
    folded: str
    start: int
    end: int


class Stretch(NamedTuple):
    """One run that is no word, or words that are joined by signs such as `_`, `.` and `/`."""

    runs: list[Run]
    before: Run | None = None
    """The word that the first one is joined to, where a stretch was too long for one."""


def stretches(text: str) -> Iterator[Stretch]:
    """Cut a text in normal form, which has no blanks, into stretches in their order."""
    pattern = _ASCII_RUN if text.isascii() else patterns().run
    runs: list[Run] = []
    before: Run | None = None
    for match in pattern.finditer(text):
        start, end = match.span()
        kind = match.lastindex or WORD
        raw = text[start : min(end, start + TOKEN_CHARS_MAX)] if kind == WORD else match[0]
        run = Run(kind, raw, fold(raw) if kind == WORD else shown(raw), start, end)
        if not run.folded:
            continue
        if runs and (kind != WORD or not _joined(text, runs[-1], run)):
            yield Stretch(runs, before)
            runs, before = [], None
        if kind != WORD:
            yield Stretch([run])
            continue
        if len(runs) == _STRETCH_RUNS_MAX:
            yield Stretch(runs, before)
            runs, before = [], runs[-1]
        runs.append(run)
    if runs:
        yield Stretch(runs, before)


def _joined(text: str, left: Run, right: Run) -> bool:
    if right.start - left.end > TOKEN_CHARS_MAX:
        return False
    between = text[left.end : right.start]
    if not between.isascii():
        between = _INVISIBLE.sub("", between)
    return _JOINERS.fullmatch(between) is not None


# --- words --------------------------------------------------------------------------------------


def dense_words(run: str) -> str:
    """The words of a dense run, which is not empty, with blanks between them."""
    if len(run) < _WOVEN_CHARS_MIN:
        return " ".join([*map(add, run, run[1:]), run[-1]])
    # Each character twice and a blank, woven as numbers: no string is made for each pair.
    woven = bytearray(" ".encode("utf-32-le") * (3 * len(run) - 2))
    with memoryview(woven).cast("I") as places, memoryview(run.encode("utf-32-le")) as plain:
        chars = plain.cast("I")
        places[0::3] = chars
        places[1::3] = chars[1:]
    return woven.decode("utf-32-le")


def ascii_tokens(chunk: str) -> tuple[list[str], list[str]] | None:
    """Words and parts of a text in ASCII, as by way of `stretches`, in a fifth of the time.

    None where that has bounds to keep.
    """
    words: list[str] = []
    parts: list[str] = []
    for stretch in _ASCII_STRETCH.findall(chunk):
        folded = _ASCII_RUN.findall(stretch.lower())
        if len(folded) > _STRETCH_RUNS_MAX or len(stretch) > TOKEN_CHARS_MAX:
            return None
        words += folded
        if _TURN.search(stretch):
            for run in _ASCII_RUN.findall(stretch):
                split = [run[start:end].lower() for start, end in _piece_spans(run)]
                parts += split
                if len(split) > 2:
                    parts += map(_pair, split, split[1:])
        if len(folded) > 1:
            parts += map(_pair if _SEAMED.search(stretch) else add, folded, folded[1:])
    return words, parts


def dense_tokens(text: str, run: Run) -> Iterator[Token]:
    """The same words with their places; `text` is what the run was cut from."""
    held: str | None = None
    start = end = run.start
    for match in patterns().char.finditer(text, run.start, run.end):
        char = match[0][0]
        if held is not None:
            yield Token(held + char, start, match.end())
        held, start, end = char, match.start(), match.end()
    if held is not None:
        yield Token(held, start, end)


# --- parts --------------------------------------------------------------------------------------


def stretch_parts(stretch: Stretch) -> list[Token]:
    """What the words of a stretch are found by besides: pieces first, then joined neighbours."""
    tokens: list[Token] = []
    for run in stretch.runs:
        if run.kind == WORD:
            split = pieces(run)
            tokens += split
            if len(split) > 2:
                tokens += pairs(split)
    if len(stretch.runs) > 1 or stretch.before is not None:
        tokens += joints(stretch)
    return tokens


def joints(stretch: Stretch) -> list[Token]:
    """Each word of a stretch joined to the next one."""
    runs = stretch.runs if stretch.before is None else [stretch.before, *stretch.runs]
    return pairs([Token(run.folded, run.start, run.end) for run in runs])


def pairs(tokens: Sequence[Token]) -> list[Token]:
    """Each token joined to the next one."""
    return [
        Token(_pair(left.text, right.text), left.start, right.end)
        for left, right in itertools.pairwise(tokens)
    ]


def _pair(left: str, right: str) -> str:
    """Two words as one; two digits keep a seam, since 1.23 is neither 12.3 nor 123."""
    if left[-1:].isdigit() and right[:1].isdigit():
        return left + _SEAM + right
    return left + right


def pieces(run: Run) -> list[Token]:
    """The words that a name such as `HTTPServer2` is made of; nothing for all that is none."""
    if len(run.folded) != len(run.text):
        return []
    at = run.start
    spans = _piece_spans(run.text)
    return [Token(run.folded[start:end], at + start, at + end) for start, end in spans]


def _piece_spans(word: str) -> list[tuple[int, int]]:
    """Where the pieces of a name stand in it.

    A number at the end is a piece after two letters or more. Random letters, as in ids, are told
    from names by how many of them stand alone.
    """
    if (word.isalpha() and (word[1:].islower() or word.isupper())) or word.isdigit():
        return []
    if len(word) > _PIECED_CHARS_MAX:
        return []
    cases = word if word.isascii() else _cases(word)
    spans = [match.span() for match in _PIECES.finditer(cases)]
    number = _TRAILING_NUMBER.search(cases)
    if number:
        start, _ = spans.pop()
        spans += [(start, number.start(1)), (number.start(1), len(word))]
    if len(spans) < 2:
        return []
    clear = sum([end - start for start, end in spans if _WORDLIKE.search(cases, start, end)])
    clear += len(number[1]) if number else 0
    return spans if clear * 3 >= len(word) * 2 else []


def _cases(word: str) -> str:
    """The word in ASCII as far as its case goes."""
    return "".join(
        "A" if char.isupper() or char.istitle() else "0" if char.isdigit() else "a" for char in word
    )


def named(text: str) -> list[Token]:
    """Names that end in signs, such as c++ and c#; the signs are made wide, as letters are."""
    if "#" not in text and "++" not in text:
        return []
    return [
        Token(match[1].lower() + match[2].translate(_WIDE), match.start(), match.end())
        for match in _NAMED.finditer(text)
    ]


def numbers(text: str) -> list[Token]:
    """Numbers with thousands separators, without them."""
    if not _SEPARATED.search(text):
        return []
    return [
        Token(match[0].replace(match[1], ""), match.start(), match.end())
        for match in _NUMBER.finditer(text)
    ]
