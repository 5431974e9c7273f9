"""What logs behind a URL are folded to: here, and from their first events."""

from collections.abc import Sequence

from perdure.backends.base import Backend
from perdure.http.client.asking import Asking
from perdure.http.client.headers import DAMAGED, problem_of, stored_of
from perdure.model.record import Record
from perdure.store.folding import Folding, Folds, Loaded
from perdure.store.reading import Pages
from perdure.store.refusing import damage
from perdure.store.witness import Witness
from perdure.views.view import View

__all__ = ["RemoteFolding", "RemoteFolds"]


class RemoteFolds(Folds):
    """Makes the folds of the sessions of one namespace of a server."""

    def __init__(
        self,
        asking: Asking,
        backend: Backend,
        witness: Witness,
        pages: Pages,
        own: Sequence[View],
    ) -> None:
        """Nothing is read; `own` are a user's views.

        Raises:
            InvalidValue: as `views_of`.

        """
        super().__init__(backend, witness, pages, own)
        self._asking = asking

    def load(self, session: str) -> Loaded:
        """See `Folds.load`; what the server calls damaged is not read for it.

        It remembers what was acknowledged of a log, which a reader from afar cannot know.
        """
        if self._asking.session(session).status == DAMAGED:
            shape = self._asking.session(session, full=True)
            problems = [problem_of(each) for each in shape.problems]
            if problems:
                raise damage(session, stored_of(self._asking, session, shape), problems[0])
        return super().load(session)


class RemoteFolding(Folding):
    """The views of a session that is written over HTTP: folded here, kept nowhere."""

    def _ends(self, records: Sequence[Record]) -> bool:
        """No checkpoint is stored from here: the server stores its own."""
        del records
        return False
