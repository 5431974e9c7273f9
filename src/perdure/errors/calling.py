"""What a caller hands in, or asks of a store that keeps nothing."""

from perdure.errors.tree import PerdureError

__all__ = ["InvalidValue", "PersistenceDisabled"]


class InvalidValue(PerdureError):
    """A value handed in cannot be kept as it is. `path` leads to the offending part."""

    code = "invalid-value"

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        """Name the offender by its path, as in `data.items[3].score`."""
        super().__init__(f"{path}: {reason}", hint=hint)
        self.path = path
        self.reason = reason


class PersistenceDisabled(PerdureError):
    """The store was opened with `none:`, so there is nothing to read or resume."""

    code = "persistence-disabled"

    def __init__(self, operation: str) -> None:
        """Say which operation needs a real store."""
        super().__init__(
            f"{operation} needs stored sessions, and persistence is switched off (none:)",
            hint="give a store with a path: perdure.open('~/.perdure'), `perdure --store PATH`",
        )
        self.operation = operation
