"""Analysis: the words of a text as the keyword index keeps them, and as queries ask for them.

DESIGN.md says what is written where and why. Nothing here knows an index: `analyse` gives strings
of tokens with single blanks between them, `places` the same tokens with their places in the text.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from perdure.catalog.letters import Aligned, align, normal, patterns, shown
from perdure.catalog.units import (
    BARRIER,
    DENSE,
    TOKEN_CHARS_MAX,
    Run,
    Stretch,
    Token,
    ascii_tokens,
    dense_tokens,
    dense_words,
    named,
    numbers,
    stretch_parts,
    stretches,
)

__all__ = [
    "TEXT_CHARS_MAX",
    "TOKENIZER",
    "VERSION",
    "Analysed",
    "Unit",
    "analyse",
    "places",
    "stretched",
    "tokens",
    "unit_texts",
]

VERSION = 1
"""Of the rules below: an index that was made by another version has to be made anew."""

TOKENIZER = "ascii"
"""The FTS5 tokenizer: it separates at blanks and ASCII signs, and changes nothing in a token."""

TEXT_CHARS_MAX = 1 << 20
"""How many characters of one text are indexed, unless the caller says otherwise."""

_BLOCK = 1 << 16
_CACHED_TEXTS_MAX = 1 << 14
_CACHED_CHARS_MAX = 48
_BLOB_CHARS_MIN = 513
_SEARCHED_FOR_BLANK = 256

_BLANK = re.compile("\\s")
_UNIT = re.compile("\\S+")
_AROUND = '!"$-*,-/:-@\\[-`{-~\u2013\u2014\u2018-\u201d\u2026'
_PLAIN = re.compile(f"[{_AROUND}#+]*([A-Z]?[a-z]+|[A-Z]+|[0-9]+)[{_AROUND}]*")
_COLOURS = re.compile("\x1b\\[[0-?]*[!-/]*[@-~]")
_BLOB = re.compile(f"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{{{_BLOB_CHARS_MIN},}}")
_CHUNK = re.compile("[A-Za-z0-9_./\\\\:@'~+#-]+")
_PUNCTUATION = re.compile(
    "[\uff01\uff02\uff04-\uff06\uff08-\uff0a\uff0c\uff1a-\uff1f\uff3b\uff3d\uff5b-\uff5e"
    "\u3001\u3002\u3008-\u3011\u3014-\u301b]"
)

_Found = tuple[str, str, int]
"""Words, parts, and how many characters were left out."""


@dataclass(frozen=True, slots=True)
class Analysed:
    """The tokens of a text, for the two columns of the index."""

    words: str
    """What the text reads as, in order."""
    parts: str
    """What it is found by besides: parts of names, and names joined of words."""
    cut: int
    """How many characters of the text are found by neither."""


class Unit(NamedTuple):
    """Characters without a blank, and where they begin in the text."""

    text: str
    start: int


class _Cache(dict[str, _Found]):
    """What was found before: most of a text is made of what was met already.

    Two generations, so that what is met often outlives what is met once.
    """

    def __init__(self, find: Callable[[str], _Found]) -> None:
        super().__init__()
        self._find = find
        self._older: dict[str, _Found] = {}

    def __missing__(self, text: str) -> _Found:
        found = self._older.get(text)
        if found is None:
            found = self._find(text)
            if len(text) > _CACHED_CHARS_MAX:
                return found
        if len(self) >= _CACHED_TEXTS_MAX:
            self._older = dict(self)
            self.clear()
        self[text] = found
        return found


def analyse(text: str, *, limit: int = TEXT_CHARS_MAX) -> Analysed:
    """The tokens of a text.

    Work and memory grow with the text, whatever its shape: of it, the first `limit` characters are
    read, of a word `TOKEN_CHARS_MAX`, of a stretch of more than 512 characters as in Base64 the
    first `TOKEN_CHARS_MAX` as well. `cut` says how much that left out.
    """
    if len(text) <= min(limit, _BLOCK):
        return _analyse_block(_readable(text))
    end = _end(text, limit)
    blocks = [_analyse_block(block) for block in _blocks(text, end)]
    return Analysed(
        " ".join([block.words for block in blocks if block.words]),
        " ".join([block.parts for block in blocks if block.parts]),
        sum([block.cut for block in blocks]) + len(text) - end,
    )


def _analyse_block(block: str) -> Analysed:
    found = [_units[unit] for unit in block.split()]
    return Analysed(
        " ".join([words for words, _, _ in found if words]),
        " ".join([parts for _, parts, _ in found if parts]),
        sum([cut for _, _, cut in found]),
    )


def _end(text: str, limit: int) -> int:
    """Where reading ends: at a blank before the limit if there is one near."""
    if len(text) <= limit:
        return len(text)
    nearest = max(0, limit - _SEARCHED_FOR_BLANK)
    blanks = [match.start() for match in _BLANK.finditer(text, nearest, limit + 1)]
    return blanks[-1] if blanks else limit


def _blocks(text: str, end: int) -> Iterator[str]:
    """The text in pieces that end at blanks; colours of terminals are made invisible."""
    start = 0
    while start < end:
        stop = start + _BLOCK
        blank = _BLANK.search(text, stop, end) if stop < end else None
        stop = blank.start() if blank else end
        yield _readable(text[start:stop])
        start = stop


def _readable(text: str) -> str:
    """As many characters, none of which is a control sequence or a wide punctuation mark.

    Terminals colour single letters of a word, so that their sequences must not separate.
    """
    if "\x1b" in text:
        text = _COLOURS.sub(lambda match: "\u2060" * len(match[0]), text)
    return text if text.isascii() else _PUNCTUATION.sub(" ", text)


def _analyse_unit(unit: str) -> _Found:
    plain = _PLAIN.fullmatch(unit)
    if plain and len(plain[1]) <= TOKEN_CHARS_MAX:
        return plain[1].lower(), "", 0
    if not unit.isascii():
        text = normal(unit)
        if patterns().dense.fullmatch(text):
            return dense_words(shown(text)), "", 0
        words, parts, cut = _analyse_piecewise(unit)
    else:
        text = unit
        found = [_chunks[chunk] for chunk in _CHUNK.findall(unit)]
        words = [each[0] for each in found if each[0]]
        parts = [each[1] for each in found if each[1]]
        cut = sum([each[2] for each in found])
    parts += [token.text for token in numbers(text)]
    if parts:
        parts.insert(0, BARRIER)
    return " ".join(words), " ".join(parts), cut


def _analyse_chunk(chunk: str) -> _Found:
    plain = _PLAIN.fullmatch(chunk)
    if plain and len(plain[1]) <= TOKEN_CHARS_MAX:
        return plain[1].lower(), "", 0
    quick = ascii_tokens(chunk) if len(chunk) < _BLOB_CHARS_MIN else None
    if quick is None:
        words, parts, cut = _analyse_piecewise(chunk)
    else:
        words, parts, cut = *quick, 0
        parts += [token.text for token in named(chunk)]
    return " ".join(words), " ".join(parts), cut


_units = _Cache(_analyse_unit)
_chunks = _Cache(_analyse_chunk)


def _analyse_piecewise(unit: str) -> tuple[list[str], list[str], int]:
    words: list[str] = []
    parts: list[str] = []
    cut = len(unit)
    for piece in _pieces(Unit(unit, 0)):
        text = normal(piece.text)
        for stretch in stretches(text):
            for run in stretch.runs:
                if run.kind == DENSE:
                    words.append(dense_words(run.folded))
                else:
                    words.append(run.folded)
                    cut += run.end - run.start - len(run.text)
            parts += [token.text for token in stretch_parts(stretch)]
        parts += [token.text for token in named(text)]
        cut -= len(piece.text)
    return words, parts, cut


def _pieces(unit: Unit) -> Iterator[Unit]:
    """The unit without what is left out of data in Base64 and the like."""
    text, start = unit
    if len(text) < _BLOB_CHARS_MIN:
        yield unit
        return
    at = 0
    for match in _BLOB.finditer(text):
        blob = match[0].strip("+/_-")
        if len(blob) < _BLOB_CHARS_MIN:
            continue
        head = text.index(blob, match.start()) + TOKEN_CHARS_MAX
        yield Unit(text[at:head], start + at)
        at = match.end()
    if at < len(text):
        yield Unit(text[at:], start + at)


# --- places -------------------------------------------------------------------------------------


def places(text: str, *, limit: int = TEXT_CHARS_MAX) -> Iterator[Unit]:
    """The units of a text, as `analyse` reads them."""
    start = 0
    for block in _blocks(text, _end(text, limit)):
        for match in _UNIT.finditer(block):
            yield Unit(match[0], start + match.start())
        start += len(block)


def unit_texts(unit: str) -> tuple[str, str]:
    """The words and the parts of a unit, without their places."""
    words, parts, _ = _units[unit]
    return words, parts


def stretched(unit: str) -> Iterator[Stretch]:
    """The stretches of a unit; their places are those in its normal form."""
    for piece in _pieces(Unit(unit, 0)):
        yield from stretches(normal(piece.text))


def tokens(unit: Unit) -> Iterator[tuple[Iterator[Token], list[Token]]]:
    """The words and the parts of each stretch of a unit, with their places in the text."""
    for piece in _pieces(unit):
        aligned = align(piece.text)
        text = piece.text if aligned is None else aligned.text
        for stretch in stretches(text):
            words = (token for run in stretch.runs for token in _run_tokens(text, run))
            yield (
                _placed(words, piece.start, aligned),
                list(_placed(iter(stretch_parts(stretch)), piece.start, aligned)),
            )
        yield iter(()), list(_placed(iter(named(text)), piece.start, aligned))
    aligned = align(unit.text)
    text = unit.text if aligned is None else aligned.text
    yield iter(()), list(_placed(iter(numbers(text)), unit.start, aligned))


def _run_tokens(text: str, run: Run) -> Iterator[Token]:
    if run.kind == DENSE:
        yield from dense_tokens(text, run)
    else:
        yield Token(run.folded, run.start, run.end)


def _placed(found: Iterator[Token], start: int, aligned: Aligned | None) -> Iterator[Token]:
    """The tokens with places in the whole text instead of in a piece in normal form."""
    for token in found:
        if aligned is None:
            yield Token(token.text, start + token.start, start + token.end)
        else:
            first, last = aligned.starts[token.start], aligned.ends[token.end - 1]
            yield Token(token.text, start + first, start + last)
