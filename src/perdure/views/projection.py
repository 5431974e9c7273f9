"""A user's own column in the listing: a view whose rows come to one JSON value."""

from abc import abstractmethod
from typing import Any

from perdure.views.view import Rows, View

__all__ = ["Projection"]


class Projection(View):
    """A fold of a session into one JSON value, by which sessions can be filtered.

    What a `View` demands holds here: a name, a version that is raised whenever the fold changes,
    the types it looks at, and an `apply` that depends on rows, event and history alone. One that
    raises leaves its session without a value, and stops nothing else.
    """

    @abstractmethod
    def value(self, rows: Rows) -> Any:
        """What the rows come to: any JSON value."""
