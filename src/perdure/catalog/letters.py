"""Characters: which make words, which stand without spaces, which are signs, how words are folded.

A text is brought to one form before it is cut into words: NFKC, so that full-width letters,
ligatures and half-width kana are what they look like. A word is then folded: case and accents go.
What is folded keeps no trace of where it came from; `align` keeps it for who shows the original.
"""

import functools
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Aligned", "Patterns", "align", "fold", "normal", "patterns", "shown"]

_DENSE = (
    "\u0e01-\u0e3a\u0e40-\u0e4e"  # Thai
    "\u0e81-\u0ecf\u0edc-\u0edf"  # Lao
    "\u1000-\u103f\u1050-\u109f\ua9e0-\ua9ef\ua9fa-\ua9fe\uaa60-\uaa7f"  # Myanmar
    "\u1780-\u17d3\u17d7\u17dc-\u17dd"  # Khmer
    "\u1950-\u19c9\u1a20-\u1a7c"  # Tai Le, New Tai Lue, Tai Tham
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"  # Hangul
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3038-\u303b"  # Han: radicals, signs, numerals
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\u3031-\u3035\u3041-\u3096\u3099\u309a\u309d-\u309f"  # Hiragana and repetition signs
    "\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001b16f"  # Katakana
    "\u3105-\u312f\u31a0-\u31bf"  # Bopomofo
    "\U00017000-\U00018d8f\U0001b170-\U0001b2ff"  # Tangut, Khitan, Nushu
)
"""Scripts that are written without spaces, and Hangul, whose endings are glued to its words."""

_IGNORED = (
    "\u00ad\u034f\u061c\u180b-\u180f\u200c\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff"
    "\U000e0100-\U000e01ef"
)
"""Characters inside words that nobody sees: joiners, soft hyphens, choices between shapes."""

_ACCENTS = (
    "\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"  # Hebrew points
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
)
"""Marks that words are found without: Latin, Greek, Cyrillic, Hebrew and Arabic ones. Those of
Indic scripts are vowels and stay."""

_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a"
    "\u064b-\u065f\u0670\u06d6-\u06ed\u0711-\u07f3\u07fd\u0816-\u085b\u0898-\u0963\u0966-\u0df3"
    "\u0f18-\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u0fc6\u135d-\u135f\u1712-\u1734\u1752-\u1773"
    "\u1885-\u193b\u1a17-\u1a1b\u1a7f\u1ab0-\u1b44\u1b6b-\u1b73\u1b80-\u1bf3\u1c24-\u1c37"
    "\u1cd0-\u1dff\u20d0-\u20f0\u2cef-\u2cf1\u2d7f-\u2dff\u302a-\u302f\ua66f-\ua672\ua674-\ua67d"
    "\ua69e-\ua6f1\ua802-\ua82c\ua880-\ua8c5\ua8e0-\ua8f1\ua8ff-\ua92d\ua947-\ua953\ua980-\ua9c0"
    "\uaa29-\uaa4d\uaab0-\uaaf6\uabe3-\uabed\ufb1e\ufe20-\ufe2f\U000101fd-\U0001037a"
    "\U00010a01-\U00010a3f\U00010ae5\U00010ae6\U00010d24-\U00010f85\U00011000-\U00011fff"
    "\U00016af0-\U00016fff\U0001bc9d\U0001bc9e\U0001cf00-\U0001cf46\U0001d165-\U0001d244"
    "\U0001da00-\U0001dfff\U0001e000-\U0001e94a"
)
"""Marks that go on a word, by blocks: what else stands in these blocks are letters and digits."""

_SIGNS = (
    "\u00a2-\u00a7\u00a9\u00ae\u00b0\u00b1\u00b6\u00d7\u00f7\u20a0-\u20cf\u203c\u2049"
    "\u2190-\u245f\u25a0-\u27ff\u2900-\u2bff\u3030\u303d\u3297\u3299"
    "\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
)
"""Emoji, arrows, operators and currencies, by blocks, so that those of later Unicode versions are
signs as well. The lines, dots and blocks with which terminals draw are none."""

_PLAIN = str.maketrans("\u00f8\u0142\u0111\u0127\u0167\u0131", "oldhti") | {
    0xE6: "ae",
    0x153: "oe",
}
"""Letters whose accent Unicode does not take apart."""

_DROPPED = re.compile(f"[{_IGNORED}]+")
_FOLDED_AWAY = re.compile(f"[{_ACCENTS}{_IGNORED}]+")
_CLUSTER = re.compile(
    "(?s:.)[\u0300-\u036f\u0591-\u05c7\u064b-\u0655\u093c\u1160-\u11ff\u3099\u309a\ud7b0-\ud7fb"
    "\uff9e\uff9f]*"
)


class Patterns(NamedTuple):
    """What a text in normal form is cut into words with."""

    run: re.Pattern[str]
    """One run: group 1 a dense one, group 2 a sign, no group a word."""
    dense: re.Pattern[str]
    """One dense run."""
    char: re.Pattern[str]
    """One character of a dense run, with what of it is not seen."""


class Aligned(NamedTuple):
    """A text in normal form, and for each of its characters where that stands in the original."""

    text: str
    starts: list[int]
    ends: list[int]


@functools.cache
def patterns() -> Patterns:
    """What these are is compiled once, when the first text comes that is not ASCII."""
    word = f"[^\\W_{_DENSE}]"
    mark = f"[{_MARKS}{_IGNORED}]"
    flags = "[\U0001f1e6-\U0001f1ff]{1,2}|\U0001f3f4[\U000e0020-\U000e007e]{0,16}"
    dense = f"[{_DENSE}][{_DENSE}{_IGNORED}]*"
    run = (
        f"({dense})|({flags}|[{_SIGNS}])"
        f"|(?<![^\\W_])[Vv](?=[0-9]+\\.[0-9])|{word}+(?:{mark}+{word}*)*"
    )
    return Patterns(re.compile(run), re.compile(dense), re.compile(f"[{_DENSE}][{_IGNORED}]*"))


def normal(text: str) -> str:
    """The text in the form in which it is cut into words.

    Some characters become up to eighteen; a text that grows to more than twice its length
    is cut, so that work stays in proportion.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text)[: 2 * len(text) + 64]


def fold(word: str) -> str:
    """A word in normal form without case and accents."""
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFD", word.casefold())
    return unicodedata.normalize("NFC", _FOLDED_AWAY.sub("", plain)).translate(_PLAIN)


def shown(run: str) -> str:
    """A dense run without what nobody sees."""
    return run if run.isascii() else _DROPPED.sub("", run)


def align(text: str) -> Aligned | None:
    """The normal form with its places in `text`; None: the text is in normal form already."""
    changed = normal(text)
    if changed == text:
        return None
    starts: list[int] = []
    ends: list[int] = []
    pieces: list[str] = []
    for start, end, piece in _clusters(text):
        pieces.append(piece)
        starts += [start] * len(piece)
        ends += [end] * len(piece)
    if "".join(pieces)[: len(changed)] != changed:
        # Characters of several clusters were composed: all that is known is the whole.
        return Aligned(changed, [0] * len(changed), [len(text)] * len(changed))
    return Aligned(changed, starts, ends)


def _clusters(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _CLUSTER.finditer(text):
        yield match.start(), match.end(), unicodedata.normalize("NFKC", match[0])
