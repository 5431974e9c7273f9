"""How far a long command is, on a terminal where nobody sees its lines."""

import sys

from perdure.cli import output

__all__ = ["Progress"]

_WIDTH = 79
_BAR = 20


class Progress:
    """One line on stderr that is written over, and that leaves nothing behind.

    Where the lines of the command themselves come to the terminal, they say it, and this is silent;
    but not if these are few, and the command says so with `few`.
    """

    def __init__(self, *, as_json: bool, few: bool = False) -> None:
        """Nothing is shown yet."""
        self._shown = ""
        seen = sys.stdout.isatty() and not as_json and not few
        self._wanted = sys.stderr.isatty() and not seen

    def show(self, text: str) -> None:
        """Put this in place of what was shown before."""
        if not self._wanted:
            return
        text = output.cut(output.safe(text), _WIDTH)
        if text != self._shown:
            # Both may be the same terminal: what was printed comes first.
            sys.stdout.flush()
            self.clear()
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
            self._shown = text

    def bar(self, done: int, total: int, text: str) -> None:
        """Show how much of all is done, as a bar with a text behind it."""
        filled = _BAR * done // total if total else _BAR
        self.show(f"[{'#' * filled}{'.' * (_BAR - filled)}] {done} of {total} {text}")

    def clear(self) -> None:
        """Leave a clean line for whoever writes next."""
        if self._shown:
            sys.stderr.write("\r" + " " * len(self._shown) + "\r")
            sys.stderr.flush()
            self._shown = ""
