"""Titles: which of several holds."""

__all__ = ["Titles"]

_RANKS = ("summary", "ai-title", "custom-title")
"""What the user says goes before what a model says of the session, and that before a summary."""

_WAITING_MAX = 256


class Titles:
    """What titles were given, and summaries of which it is not known whose they are.

    A summary names the last record that it is of. That of another session comes to nothing.
    """

    def __init__(self) -> None:
        """Begin without a title."""
        self._rank = 0
        self._waiting: dict[str, str] = {}

    def holds(self, kind: str) -> bool:
        """Whether a title of this kind holds from now on."""
        rank = _RANKS.index(kind)
        if rank < self._rank:
            return False
        self._rank = rank
        return True

    def wait(self, leaf: str | None, text: str) -> None:
        """Keep a summary until its record is read."""
        if leaf is not None:
            self._waiting[leaf] = text
            if len(self._waiting) > _WAITING_MAX:
                del self._waiting[next(iter(self._waiting))]

    def found(self, record: str | None) -> str | None:
        """The summary that waits for a record which is read now."""
        return None if record is None else self._waiting.pop(record, None)
