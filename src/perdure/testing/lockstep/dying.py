"""Steps in which a process ends: in good order, or dead in the middle of what it does."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from perdure.backends.base import Hold
from perdure.errors import PerdureError, SessionNotFound
from perdure.model.record import Record, decode_line
from perdure.testing.lockstep.media import Death, Name, Site, Space
from perdure.testing.lockstep.mending import Mending
from perdure.testing.lockstep.outcomes import outcome, spaces, stored_lines
from perdure.testing.lockstep.writing import batches, drawn_names, settled

__all__ = ["Lockstep"]

_ALL = 1 << 30

_AFTER_DEATH = frozenset({"complete", "ahead", "unterminated", "torn"})
"""What a reader may find where a writer died."""


def _put(name: Name, site: Site) -> None:
    with site.space(name[0]).writer(name[1]) as session:
        site.torn.discard(name)
        session.put_blob(b"put by the dying")


def _compact(name: Name, site: Site) -> None:
    site.space(name[0]).compact(name[1])
    site.torn.discard(name)


def _copy(name: Name, site: Site) -> None:
    site.space(name[0]).copy(name[1], site.space(_COPIES))


_COPIES: Space = ("copies",)

_KEEPING: dict[str, Callable[[Name, Site], object]] = {
    "compact": _compact,
    "copy": _copy,
    "delete": lambda name, site: site.space(name[0]).delete(name[1]),
    "empty trash": lambda name, site: site.space(name[0]).empty_trash(name[1]),
    "put blob": _put,
    "restore": lambda name, site: site.space(name[0]).restore(name[1]),
}
"""What may be taken again after a death, and comes to the same."""


def _deaths() -> st.SearchStrategy[Death]:
    """Early or late, in the middle of a write, or when everything is done."""
    return st.builds(Death, st.integers(0, 11), half=st.sampled_from((False, False, True)))


class Lockstep(Mending):
    """All steps: a state machine of Hypothesis."""

    @rule(pack=st.booleans())
    def reopen(self, pack: bool) -> None:
        """The process closes its store, and another one opens it."""
        for name in sorted(self.model.sessions):
            self.close_writer(name)
        self.together("close", Site.close)
        for site in self.sites:
            site.reopen(pack=pack)
        for name in self.names:
            self.same(name)

    @rule(name=drawn_names(), rest=st.integers(0, 300))
    def tear(self, name: Name, rest: int) -> None:
        """A commit of somebody else stands behind the log, torn."""
        self.stored(name)
        if not self.length(name):
            return

        def act(site: Site) -> None:
            log = site.log(name)
            if log is not None and name not in site.torn:
                with log.open("ab") as file:
                    file.write((site.medium.torn or b"") + b"x" * rest)
                site.torn.add(name)

        self.together("tear", act, name)

    # --- deaths ----------------------------------------------------------------------------------

    @rule(
        name=drawn_names(),
        batches=st.lists(batches(), min_size=1, max_size=3),
        death=_deaths(),
    )
    def die_creating(self, name: Name, batches: list[Sequence[Any]], death: Death) -> None:
        """The process dies in the first commit of a session, at one place or the next."""
        for number, batch in enumerate(batches):
            self.forget(name, ready=True)
            self.die_committing(name, batch, death._replace(tenths=death.tenths + number))

    @rule(name=drawn_names(), batch=batches(), death=_deaths())
    def die_committing(self, name: Name, batch: Sequence[Any], death: Death) -> None:
        """The process dies in a commit: any prefix of it may be there, of a first one all or none.

        The model keeps as much as any other; whoever has less is given the rest.
        """
        if self.together("writer", lambda site: site.writer(name).position, name).error:
            return
        self.step("die committing")
        before = self._lines(self.model, name) or []
        like = "append many" if before else "first append many"
        for site in self.others:
            with self.watching(like, site):
                site.dies_in(like, partial(site.sessions[name].append_many, batch), death)
        kept = [self._lines(site, name) for site in self.others]
        most = max([lines for lines in kept if lines is not None], key=len, default=None)
        if most is not None and not before:
            # A first commit is there as a whole.
            self._die_keeping(name, batch, _ALL)
        else:
            self._die_keeping(name, batch, len(most or ()) - len(before))
        self._bring_level(name, len(before))
        self.load(name, elsewhere=False)

    def _die_keeping(self, name: Name, batch: Sequence[Any], records: int) -> None:
        """Let the model die with as many records of the commit as the others have at most."""
        if records > 0:
            model: Any = self.model.backend(name[0])
            model.crash_keeping(records)
            with suppress(PerdureError):
                self.model.sessions[name].append_many(batch)
        self.model.die()

    def _bring_level(self, name: Name, before: int) -> None:
        """Demand a prefix of what the model holds, and add what is missing."""
        whole = self._lines(self.model, name) or []
        for site in self.others:
            lines = self._lines(site, name) or []
            what = f"what a death left of {name}, {before} records acknowledged"
            least = before or (len(whole) if lines else 0)
            self.demand(site, what, lines, whole[: max(least, len(lines))])
            if lines:
                status = site.space(name[0]).inspect(name[1]).status
                self.demand(site, f"{what}: its status {status}", status in _AFTER_DEATH, True)
            if len(lines) == len(whole):
                continue
            records = [decode_line(line) for line in whole[len(lines) :]]
            if lines:
                hold = settled(site, name)
                site.backend(name[0]).commit(hold, hold.position, records)
            else:
                hold = self._published(site, name, records)
            hold.release()

    def _published(self, site: Site, name: Name, records: Sequence[Record]) -> Hold:
        """Publish what the model holds of a session."""
        model, backend = self.model.backend(name[0]), site.backend(name[0])
        header = model.stored(name[1]).header
        assert header is not None
        staged = backend.stage(header)
        for blob in model.blobs(name[1]):
            backend.put_blob(staged, model.blob(name[1], blob.digest) or ())
        return backend.publish(header, records, staged)

    def _lines(self, site: Site, name: Name) -> list[bytes] | None:
        with suppress(SessionNotFound):
            return stored_lines(site.backend(name[0]), name[1])
        return None

    @rule(
        name=drawn_names(),
        doing=st.lists(
            st.tuples(st.sampled_from(sorted(_KEEPING)), _deaths()), min_size=1, max_size=4
        ),
    )
    def die_keeping(self, name: Name, doing: list[tuple[str, Death]]) -> None:
        """The process dies while it keeps house: taken again, it comes to what it would have."""
        for what, death in doing:
            self._die_in(what, name, death)
        self.together("look", lambda site: spaces(site.space(name[0])))

    def _die_in(self, what: str, name: Name, death: Death) -> None:
        if what in ("restore", "empty trash"):
            self.delete(name, elsewhere=False, ready=True)
        else:
            self.stored(name)
        self.step(f"die in {what}")
        act = partial(_KEEPING[what], name)
        for site in self.sites:
            with self.watching(what, site):
                site.dies_in(what, partial(act, site), death)
                outcome(partial(act, site))
        self.let_go()
        self.same(name)
        self.same((_COPIES, name[1]))
