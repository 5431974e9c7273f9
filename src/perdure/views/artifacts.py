"""View "artifacts": the files that a run made, each as it was saved last."""

from typing import NamedTuple

from perdure.model.event import Event
from perdure.model.vocabulary import fitting
from perdure.views.view import History, Rows, View

__all__ = ["Artifact", "Artifacts", "artifacts"]


class Artifact(NamedTuple):
    """A file that a run made.

    Attributes:
        name: its name, as the agent gave it: no path to be trusted.
        blob: digest of its content, 64 hex digits.
        size: bytes.
        media_type: as in `image/png`, or None.
        seq: number of the event that saved it.

    """

    name: str
    blob: str
    size: int
    media_type: str | None
    seq: int


class Artifacts(View):
    """One row per name."""

    name = "artifacts"
    version = 1
    types = frozenset({"artifact/saved"})

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Note what the name stands for now."""
        saved = fitting(event)
        if saved is not None:
            new = Artifact(saved.name, saved.blob, saved.size, saved.media_type, event.seq)
            rows.put(saved.name, new._asdict())


def artifacts(rows: Rows) -> list[Artifact]:
    """The files as they were saved last, sorted by name."""
    return [Artifact(**rows[name]) for name in sorted(rows.all)]
