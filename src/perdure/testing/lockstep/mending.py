"""Steps of repairs: of sessions that need none, and what a repair asks of a medium."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from perdure.backends.base import Backend
from perdure.errors import SessionNotFound
from perdure.model.event import draft
from perdure.model.record import decode_line, seal
from perdure.testing.lockstep.keeping import Keeping
from perdure.testing.lockstep.media import Name, Site
from perdure.testing.lockstep.outcomes import stored_lines
from perdure.testing.lockstep.writing import drawn_names

__all__ = ["Mending"]

_PLANS = (b"", b"{}", b"\0plan\xff" * 40_000)
_WHERE = "mended-"


class Mending(Keeping):
    """What repairs do."""

    @rule(
        name=drawn_names(),
        salvage=st.booleans(),
        dry_run=st.booleans(),
        elsewhere=st.booleans(),
        ready=st.sampled_from((True, True, False)),
    )
    def repair(
        self, name: Name, salvage: bool, dry_run: bool, elsewhere: bool, ready: bool
    ) -> None:
        """A session that holds together needs no repair, and gets none."""
        if ready:
            self.stored(name)

        def act(site: Site) -> object:
            store, backend = site.space(name[0], elsewhere=elsewhere), site.backend(name[0])
            before = _state(backend, name[1])
            done = store.repair(name[1], salvage=salvage, dry_run=dry_run)
            # What is torn is there before and after.
            told = [] if name in site.torn else [each.kind for each in done.problems]
            return done._replace(problems=()), told, _state(backend, name[1]) == before

        came_to = self.together("repair", act, name, salvage=salvage, dry_run=dry_run)
        if came_to.error is None:
            done, _, as_before = came_to.value
            needed = done.needed or done.done or not done.sound
            self.demand(self.model, f"repair of {name}", (needed, as_before), (False, True))

    @rule(name=drawn_names(), plan=st.sampled_from(_PLANS), number=st.integers(0, 2))
    def replace(self, name: Name, plan: bytes, number: int) -> None:
        """A log with one more event takes the place of the log; the plan outlasts that."""
        self.stored(name)

        def act(site: Site) -> object:
            backend = site.backend(name[0])
            header = backend.stored(name[1]).header
            assert header is not None
            records = [decode_line(line) for line in stored_lines(backend, name[1])]
            last = records[-1].position
            more = seal(last, [draft("note", {"mended": number}, time=number)])
            hold = backend.lock(name[1])
            try:
                backend.set_plan(hold, plan)
                place = f"{_WHERE}{number}"
                backend.replace(hold, header, [*records, *more], place=place, reason="asked for")
                site.torn.discard(name)
                kept, stands = backend.plan(name[1]), hold.position
                backend.set_plan(hold, None)
            finally:
                hold.release()
            return kept == plan, backend.plan(name[1]), stands, _aside(site, name)

        self.together("replace", act, name, number=number)


def _state(backend: Backend, session: str) -> object:
    """What changes with everything that a repair could write."""
    try:
        places = [each.place for each in backend.asides(session)]
        return backend.revision(session), backend.plan(session), places
    except SessionNotFound:
        return None


def _aside(site: Site, name: Name) -> list[tuple[str, str, bool, bytes]]:
    """What was replaced: where and why it is kept, whether its size is right, and its lines."""
    backend, found = site.backend(name[0]), []
    for each in backend.asides(name[1]):
        if each.place.startswith(_WHERE):
            data = b"".join(backend.aside(name[1], each.place) or ())
            lines = site.medium.lines(data)
            found.append((each.place, each.reason, each.size == len(data), lines))
    return found
