"""What must hold for a store that somebody's death left behind."""

from collections.abc import Sequence

import msgspec

from perdure.errors import PerdureError
from perdure.model.event import Event
from perdure.store.store import Store
from perdure.testing.ledger import Expected, Finding, Ledger, closers_of
from perdure.views.fold import Fold

__all__ = ["check_evidence", "check_fold", "check_readers", "check_writers", "stored_events"]


def stored_events(store: Store, name: str) -> list[Event]:
    """The events of a session, read as a page is read."""
    return [*store.read_from(name)]


def check_readers(store: Store, ledger: Ledger) -> dict[str, list[Event]]:
    """Demand of a store, without writing to it, that it holds what `ledger` says.

    Exact: every session is listed that has an acknowledged event, and none that nobody created;
    stored events are a prefix of what was submitted that holds all that is sure; readers see the
    closers behind them, and the views say what they say of these events, whatever checkpoint there
    is; each session is sound, held by nobody, and has no problem but a torn tail.

    Returns:
        The stored events of each session.

    Raises:
        Finding: it does not.

    """
    listed = {entry.id: entry for entry in store.list()}
    for name, one in ledger.sessions.items():
        if one.sure and name not in listed:
            raise Finding(f"{name} is lost with {one.sure} acknowledged events")
    found = {}
    for name, entry in listed.items():
        if entry.header is None or name not in ledger.sessions:
            raise Finding(f"{name} is listed: {entry.problem}")
        found[name] = _check_reader(store, name, ledger.sessions[name])
    return found


def _check_reader(store: Store, name: str, one: Expected) -> list[Event]:
    stored = stored_events(store, name)
    one.check(stored)
    seen = store.inspect(name)
    closers = closers_of(stored)
    _same([*seen.events], [*stored, *closers], f"inspect({name}).events")
    check_fold(seen.fold(), [*stored, *closers])
    report = store.verify(name)
    torn = [problem for problem in report.problems if problem.kind in ("record", "frame")]
    if not report.sound or seen.holder is not None or len(torn) < len(report.problems):
        raise Finding(f"{name}: {report} held by {seen.holder}")
    if report.events != len(stored) or report.closers != len(closers) or report.later:
        raise Finding(f"{name}: {report} for {len(stored)} events, {len(closers)} closers")
    return stored


def check_writers(store: Store, found: dict[str, list[Event]]) -> None:
    """Demand that each session can be written on, closers and all, and is whole afterwards.

    Exact: the log is what readers found, then the closers, then the new event, and nothing is
    wrong with it.

    Raises:
        Finding: it cannot.

    """
    for name, stored in found.items():
        wanted = [*stored, *closers_of(stored)]
        try:
            with store.writer(name) as session:
                _same(stored_events(store, name), wanted, f"writer({name})")
                check_fold(session.fold(), wanted)
                added = session.append("proof/continued", "still here")
        except PerdureError as error:
            raise Finding(f"{name} cannot be written: {error}") from error
        wanted.append(added)
        _same(stored_events(store, name), wanted, f"{name} after an append")
        wanted += closers_of(wanted)
        report = store.verify(name)
        if report.status != "ok" or report.problems or report.events != len(wanted):
            raise Finding(f"{name} after an append: {report}")


def check_evidence(store: Store) -> None:
    """Demand of a store that was written on that its evidence can be read and accuses nobody.

    Raises:
        Finding: it cannot, it was taken for damaged, or it does.

    """
    state = store.evidence()
    if state.unreadable is not None or state.set_aside:
        raise Finding(f"{state}")
    if store.missing() or store.reports():
        raise Finding(f"missing {store.missing()}, reported {store.reports()}")


def check_fold(found: Fold, events: Sequence[Event]) -> None:
    """Demand that the rows of all views are those that these events lead to, in their order.

    Raises:
        Finding: they are not.

    """
    views = [*found.views.values()]
    wanted = Fold(views, found.header, lambda seq: iter(events[:seq]))
    wanted.events(events)
    for name, rows in wanted.rows.items():
        other = found.rows[name]
        if [*rows.all.items()] != [*other.all.items()]:
            raise Finding(f"view {name} of {found.header.id}: {other.all}, not {rows.all}")


def _same(found: Sequence[Event], wanted: Sequence[Event], what: str) -> None:
    for seq, (one, other) in enumerate(zip(found, wanted, strict=False)):
        if one != other or one.seq != seq:
            names = [msgspec.structs.asdict(event) for event in (one, other)]
            raise Finding(f"{what}: at {seq} stands {names[0]}, not {names[1]}")
    if len(found) != len(wanted):
        raise Finding(f"{what}: {len(found)} events, not {len(wanted)}")
