"""Reading logs on for a catalog: only what is new, where that is possible, and in steps.

Whoever calls this, however often and beside whom: what the catalog says in the end is what the log
says. A step counts only if nobody else made one since the catalog was asked how far it is; then the
session is looked at again.
"""

from collections.abc import Callable

from perdure.backends.base import Backend, Stored
from perdure.catalog.analysis import VERSION as ANALYSIS
from perdure.catalog.contract import Catalog, Change, Standing
from perdure.catalog.passages import VERSION as PASSAGES
from perdure.errors import PerdureError, SessionNotFound
from perdure.lenses import lens_of
from perdure.lenses.registry import LENSES
from perdure.model.header import Header
from perdure.model.record import Position
from perdure.recovery.tail import Verdict
from perdure.recovery.walk import Walk
from perdure.store.folding import Folds
from perdure.store.imported import RewrittenError, Translation, lens_version
from perdure.store.queue import Keys
from perdure.store.reading import behind, page_from
from perdure.store.stepping import CatalogError, Steps
from perdure.store.summing import Sum, listed_unread, proven_keys, rules_of
from perdure.store.witness import Witness, known_of
from perdure.views.projection import Projection

__all__ = ["Indexing"]

_TRIES = 8
_PATIENCE = 600

_LENS, _PROJECTION = " lens:", " projection:"


def _lens_now(format: str) -> str:  # noqa: A002
    """The version of the lens that reads a format, as text; - where there is none."""
    lens = lens_of(format)
    return "-" if lens is None else str(lens.version)


class Indexing:
    """Keeps a catalog up to date with the sessions of one namespace, one at a time."""

    def __init__(
        self,
        backend: Backend,
        witness: Witness,
        folds: Folds,
        catalog: Catalog,
        projection: Projection | None,
        *,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        """Nothing is read; `pause` lets some time pass in which others get on."""
        self._pause = pause
        self._backend = backend
        self._witness = witness
        self._folds = folds
        self.catalog = catalog
        self.namespace = witness.namespace
        self._projection = projection
        self._base = f"{ANALYSIS} {PASSAGES} {rules_of()}"
        # What a projection of this process's own depends on; "" without one.
        self.projected = "" if projection is None else f"{projection.name}/{projection.version}"

    def rules(self, header: Header) -> str:
        """What is put into the catalog of a session depends on this, and on its log."""
        lens = ""
        if header.source is not None:
            lens = f"{header.source.format}/{_lens_now(header.source.format)}"
        return f"{self._base}{_LENS}{lens}{_PROJECTION}{self.projected}"

    @property
    def signature(self) -> str:
        """What the rows of all sessions depend on, but for projections and foreign lenses."""
        return f"{self._base} {' '.join(f'{name}/{_lens_now(name)}' for name in LENSES)}"

    def holds(self, rules: str) -> bool:
        """Whether what was read under these rules would be read so now."""
        rest, _, projected = rules.partition(_PROJECTION)
        base, _, lens = rest.partition(_LENS)
        name, _, version = lens.rpartition("/")
        # What another program's projection says is left to that.
        ours = not self.projected or projected == self.projected
        return base == self._base and ours and (not name or version == _lens_now(name))

    def index(
        self, id: str, *, anew: bool = False, breathe: Callable[[], None] | None = None
    ) -> bool:
        """Bring the catalog up to date with a session, or have it forget one that is not there.

        `anew` reads all of the log, whatever is known of it.

        What is wrong with the session is noted, and raises nothing. `breathe` is called every few
        events: others may have something more urgent to do. Returns whether it is up to date;
        False: others changed what is known of it again and again.

        Raises:
            PerdureError: the catalog cannot be read or changed.

        """
        for _ in range(_TRIES):
            before = self.catalog.standing(self.namespace, id)
            if anew and before is not None:
                before = before._replace(rules="")
            if self._index(id, before, breathe or (lambda: None)):
                return True
            self._await_other(id)
        return False

    def _await_other(self, id: str) -> None:
        """Let whoever reads a session in several steps come to its end, as long as it goes on."""
        version = None
        for _ in range(_PATIENCE):
            standing = self.catalog.standing(self.namespace, id)
            if standing is None or not standing.partial or standing.version == version:
                return
            version = standing.version
            self._pause()

    def _index(self, id: str, before: Standing | None, breathe: Callable[[], None]) -> bool:
        """Whether the catalog is up to date; False: somebody else changed it."""
        try:
            # In this order: what comes meanwhile has another revision.
            revision = self._backend.revision(id)
            stored = self._backend.stored(id)
            if stored.header is None:
                return self._unread(id, before, revision, None, _reason(stored))
            return self._read(stored, stored.header, before, revision, breathe)
        except SessionNotFound:
            version = None if before is None else before.version
            return before is None or self.catalog.remove(self.namespace, id, version)
        except CatalogError as error:
            raise error.error from None
        except PerdureError as error:
            # Without a revision it is tried again.
            return self._unread(id, before, "", None, error.message)

    def _unread(
        self, id: str, before: Standing | None, revision: str, header: Header | None, reason: str
    ) -> bool:
        """Note that a session cannot be read; what was found in it before is forgotten."""
        change = Change(
            listed=listed_unread(id, header, 0, reason),
            revision=revision,
            position=Position(-1, ""),
            floor=0,
            state=b"",
            rules="",
        )
        version = None if before is None else before.version
        return self.catalog.put(self.namespace, change, version) is not None

    def _read(
        self,
        stored: Stored,
        header: Header,
        before: Standing | None,
        revision: str,
        breathe: Callable[[], None],
    ) -> bool:
        foreign = bool(lens_version(header))
        steps = Steps(self, header, revision, before, breathe)
        if (
            before is not None
            and self._can_go_on(header, before, foreign=foreign)
            and self._only_grew(header.id)
        ):
            try:
                steps.begin(before.state)
                return self._go_on(stored, header, before, steps)
            except ValueError:
                # It is not the log that was read, or nothing of ours.
                steps = steps.anew()
        steps.begin(None)
        if not foreign:
            return self._all(stored, header, steps)
        try:
            return self._translated(stored, header, steps, {})
        except RewrittenError:
            starts = self._folds.starts(header)
            steps = steps.anew()
            steps.begin(None)
            return self._translated(stored, header, steps, starts, informed=True)

    def _can_go_on(self, header: Header, before: Standing, *, foreign: bool) -> bool:
        """Whether what is known of a log can be added to.

        What a lens is in the middle of is not kept, so no line of a source may follow.
        """
        position = before.position
        sound = before.rules == self.rules(header) and before.problem is None and position.seq >= 0
        return sound and (not foreign or position.seq >= header.seed > 0)

    def _only_grew(self, id: str) -> bool:
        """Whether nothing but a writer touched a log, as far as its medium tells.

        Who writes just now has verified it; what is as it was acknowledged last was not touched.
        """
        return self._backend.tail(id).settled or self._backend.holder(id) is not None

    # --- passes ----------------------------------------------------------------------------------

    def _go_on(self, stored: Stored, header: Header, before: Standing, steps: Steps) -> bool:
        """Add what follows.

        Raises:
            ValueError: the log does not lead over the position.

        """
        seen = self._witness.about(header.id).seen
        known = known_of(header, self._backend.tail(header.id), seen)
        start, position = min(before.floor, before.position.seq), before.position
        walk = page_from(self._backend, header, stored.begin, known, start)
        if walk is None:
            raise ValueError("the log has no such event")
        with walk:
            met = False
            for record in walk.records():
                if not met and record.last >= position.seq:
                    if record.position != position:
                        raise ValueError("the log has another record there")
                    met = True
                for event in record.events(before.floor):
                    steps.take(event, new=event.seq > position.seq)
                steps.at(record)
                if not steps.sound:
                    return False
            if not met:
                raise ValueError("the log ends before")
            return steps.end(self._problem(walk))

    def _walk(self, stored: Stored, header: Header) -> Walk:
        seen = self._witness.about(header.id).seen
        known = known_of(header, self._backend.tail(header.id), seen)
        pieces = self._backend.scan(header.id, stored.begin)
        return Walk(header, pieces, known=known, begin=stored.begin)

    def _all(self, stored: Stored, header: Header, steps: Steps) -> bool:
        with self._walk(stored, header) as walk:
            for record in walk.records():
                for event in record.events():
                    steps.take(event)
                steps.at(record)
                if not steps.sound:
                    return False
            return steps.end(self._problem(walk))

    def _translated(
        self,
        stored: Stored,
        header: Header,
        steps: Steps,
        starts: dict[int, int],
        *,
        informed: bool = False,
    ) -> bool:
        """Read lines through their lens, from the first on."""
        content = self._folds.content(header.id)
        lens = Translation(header, content, starts if informed else None)

        with self._walk(stored, header) as walk:
            for record in walk.records():
                for event in record.events():
                    steps.stored(event, line=lens.is_line(event))
                    for said in lens.read(event):
                        steps.take(said, raw=False)
                steps.at(record)
                if not steps.sound:
                    return False
            for said in lens.end():
                steps.take(said, raw=False)
            return steps.end(self._problem(walk))

    @staticmethod
    def _problem(walk: Walk) -> str | None:
        if walk.verdict is not Verdict.DAMAGED:
            return None
        return "it does not hold together" if walk.problem is None else walk.problem.reason

    def keys(self, id: str) -> Keys | None:
        """Which event of a log has which key, by the catalog and by what follows; None: unknown.

        The hash where the catalog ends proves that all before it is what was read.

        Raises:
            PerdureError: catalog or log cannot be read.

        """
        found = self.catalog.keys(self.namespace, id)
        standing = self.catalog.standing(self.namespace, id)
        stored = self._backend.stored(id)
        header = stored.header
        if found is None or standing is None or header is None or header.is_import:
            return None
        proven = standing.position == found.position and proven_keys(standing.state, found.seqs)
        if found.position.seq < 0 or not proven:
            return None
        keys = found.seqs
        seen = self._witness.about(id).seen
        known = known_of(header, self._backend.tail(id), seen)
        walk = page_from(self._backend, header, stored.begin, known, found.position.seq)
        if walk is None:
            return None
        try:
            with walk:
                for record in behind(walk, found.position):
                    for event in record.events():
                        if event.key is not None:
                            keys[event.type, event.key] = event.seq
                return keys if walk.verdict is not Verdict.DAMAGED else None
        except ValueError:
            return None

    # --- what the steps need ---------------------------------------------------------------------

    def sum(self, header: Header, state: bytes | None) -> Sum:
        """The sums to begin with.

        Raises:
            ValueError: the state is none of ours.

        """
        return Sum(header, self._projection, self._folds.history(header), state)

    def put(self, change: Change, expected: int | None) -> int | None:
        """Make a change in the catalog."""
        try:
            return self.catalog.put(self.namespace, change, expected)
        except PerdureError as error:
            raise CatalogError(error) from error

    @property
    def backend(self) -> Backend:
        """Where the logs are."""
        return self._backend


def _reason(stored: Stored) -> str:
    if stored.unsupported is not None:
        return stored.unsupported.message
    return "its header is damaged" if stored.problem is None else stored.problem.reason
