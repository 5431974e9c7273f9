"""The root of the errors, and what they have in common."""

from datetime import UTC, datetime
from typing import Any, ClassVar

__all__ = ["PerdureError", "clock"]


class PerdureError(Exception):
    """Root of the tree. `code` is stable for programs, the message is for people."""

    code: ClassVar[str] = "error"
    retryable: bool = False

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Keep the message and the hint apart, so that a caller can show either."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and crosses to other processes with all its facts."""
        return (_rebuild, (type(self), self.message, self.__dict__.copy()))

    def __str__(self) -> str:
        """The message, then the hint."""
        return f"{self.message} ({self.hint})" if self.hint else self.message


def clock(ms: int) -> str:
    """A time for people, in UTC."""
    try:
        return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _rebuild(kind: type[PerdureError], message: str, facts: dict[str, Any]) -> PerdureError:
    error = kind.__new__(kind, message)
    error.__dict__.update(facts)
    return error
