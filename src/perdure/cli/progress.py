"""How far a long command is, on a terminal where nobody sees its lines."""

import sys

from perdure.cli import output

__all__ = ["Progress"]


class Progress:
    """One line on stderr that is written over, and that leaves nothing behind.

    Where the lines of the command themselves come to the terminal, they say it, and this is silent.
    """

    def __init__(self, *, as_json: bool) -> None:
        """Nothing is shown yet."""
        self._shown = 0
        seen = sys.stdout.isatty() and not as_json
        self._wanted = sys.stderr.isatty() and not seen

    def show(self, text: str) -> None:
        """Put this in place of what was shown before."""
        if self._wanted:
            self.clear()
            text = output.cut(output.safe(text), 79)
            sys.stderr.write(f"\r{text}")
            sys.stderr.flush()
            self._shown = len(text)

    def clear(self) -> None:
        """Leave a clean line for whoever writes next."""
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            self._shown = 0
