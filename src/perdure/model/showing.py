"""Text from stored data, for people: whatever acts on a terminal or on a page is shown instead.

Characters that a terminal obeys, that turn the direction of text or that break a line become
escapes, so that what is read is what is there.
"""

import re
import unicodedata

from perdure.model import values

__all__ = ["is_hostile", "safe", "safe_lines"]

_SUSPECT = re.compile(r"[^\x20-\x7e]")
_SUSPECT_IN_LINES = re.compile(r"[^\x20-\x7e\n\t]")
_JOINERS = "\u200c\u200d"
"""Format characters that change nothing but the shape of their neighbours."""
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def is_hostile(character: str) -> bool:
    """Whether something acts on a character, where others are shown."""
    category = unicodedata.category(character)
    return category in ("Cc", "Zl", "Zp") or (category == "Cf" and character not in _JOINERS)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if not is_hostile(character):
        return character
    code = ord(character)
    if character in _SHORT:
        return _SHORT[character]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def safe(text: str) -> str:
    r"""`text` on one line with nothing in it that a terminal obeys.

    Control and format characters become escapes like `\x1b`, lone surrogates U+FFFD.
    """
    return _SUSPECT.sub(_escape, values.text(text))


def safe_lines(text: str) -> str:
    r"""As `safe`, but lines and tabs stay, for a place that has room for them.

    Lines may end in `\r\n`.
    """
    return _SUSPECT_IN_LINES.sub(_escape, values.text(text.replace("\r\n", "\n")))
