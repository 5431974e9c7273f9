"""What a durable append costs: by commit, by length of the session, by number of sessions."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import perdure
from benchmarks.measure import ROUNDS, Floor, Growth, fill, log_path, median_us, timed
from benchmarks.session import EVENTS_PER_TURN, turn_events
from benchmarks.table import Row, at_most

SHORT, LONG = 1_000, 200_000
COMMITS = (1, 10, EVENTS_PER_TURN)
SESSIONS = 1_000
US_PER_EVENT = 8
FLAT = 1.25
"""The design asks for flat; a fifth more or less is what two equal sessions differ by."""


def commits(folder: Path, encoding: str) -> Iterator[Row]:
    """Commits of several sizes into a short session, packed and not."""
    for pack in (True, False):
        root = folder / f"commits-{encoding}-{pack}"
        with (
            perdure.open(root, encoding=encoding, pack=pack) as store,
            store.create("s") as session,
        ):
            fill(session, SHORT)
            for size in COMMITS:
                # One event is never packed.
                if size > 1 or pack:
                    yield _commits_of(folder, session, log_path(store, "s"), size, pack)


def _commits_of(folder: Path, session: perdure.Session, path: Path, size: int, pack: bool) -> Row:
    floor, growth = Floor(folder / "floor"), Growth(path)
    ours, bare = [], []
    for index in range(ROUNDS):
        batch = turn_events(100_000 + index)
        # The streamed part of a turn, where there is something to pack.
        batch = batch if size == EVENTS_PER_TURN else batch[8 : 8 + size]
        if size == 1:
            ours.append(timed(partial(session.append, **batch[0])))
        else:
            ours.append(timed(partial(session.append_many, batch)))
        bare.append(timed(partial(floor.append, os.urandom(growth()))))
    floor.close()
    mine, ground = median_us(ours), median_us(bare)
    kind = "" if size == 1 else ", packed" if pack else ", not packed"
    what = f"commit of {size} at {SHORT:,} events{kind}"
    over = (mine - ground) / size
    if size == 1:
        return at_most(what, mine, ground, "us", 2, us_over=over)
    if size == EVENTS_PER_TURN and pack:
        bound, met = f"floor + {US_PER_EVENT} us an event", over <= US_PER_EVENT
        return Row(what, mine, ground, "us", bound, met, {"us_over_per_event": over})
    return Row(what, mine, ground, "us", more={"us_over_per_event": over})


def lengths(folder: Path, encoding: str) -> Iterator[Row]:
    """One event into a short and into a long session, in turns."""
    with ExitStack() as stack:
        store = stack.enter_context(perdure.open(folder / f"long-{encoding}", encoding=encoding))
        sessions = [stack.enter_context(store.create(f"s{size}")) for size in (SHORT, LONG)]
        for session, size in zip(sessions, (SHORT, LONG), strict=True):
            fill(session, size)
        short, long, ground = _in_turns(
            folder, [[session] for session in sessions], [log_path(store, f"s{SHORT}")]
        )
    yield at_most(f"one event at {LONG:,} events", long, ground, "us", 2)
    yield at_most(f"one event at {LONG:,} against {SHORT:,}", long, short, "us", FLAT)


def many_sessions(folder: Path, encoding: str) -> Iterator[Row]:
    """One event where there is one session, where there are 1,000, and into 1,000 by turns."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    event = turn_events(0)[1]
    with ExitStack() as stack:
        alone = stack.enter_context(perdure.open(folder / f"one-{encoding}", encoding=encoding))
        among = stack.enter_context(perdure.open(folder / f"many-{encoding}", encoding=encoding))
        single = stack.enter_context(alone.create("s"))
        single.append(**event)
        for number in range(SESSIONS):
            with among.create(f"s{number}") as session:
                session.append(**event)
        chosen = stack.enter_context(among.writer("s0"))
        one, many, ground = _in_turns(folder, [[single], [chosen]], [log_path(alone, "s")])
        yield at_most("one event, 1 session in the store", one, ground, "us", 2)
        yield at_most(f"one event, {SESSIONS:,} sessions in the store", many, ground, "us", 2)
        yield at_most(f"one event, {SESSIONS:,} sessions against 1", many, one, "us", FLAT)
        writers = [stack.enter_context(among.writer(f"s{n}")) for n in range(1, SESSIONS)]
        writers.append(chosen)
        paths = [log_path(among, writer.id) for writer in writers]
        one, every, ground = _in_turns(folder, [[single], writers], paths)
        yield at_most(f"one event, each time into the next of {SESSIONS:,}", every, ground, "us", 2)
        yield at_most(f"one event, the next of {SESSIONS:,} against 1", every, one, "us", FLAT)


def _in_turns(
    folder: Path, groups: list[list[perdure.Session]], paths: list[Path]
) -> tuple[float, float, float]:
    """Median times of one event into each of two groups, and of the floor, in turns.

    The floor has as many files as there are `paths`, and appends what the first of them grew by.
    """
    floors = [Floor(folder / f"floor{number}") for number in range(len(paths))]
    samples: list[list[int]] = [[], [], []]
    growth, grown = Growth(paths[0]), 200
    for index in range(max(ROUNDS, len(paths))):
        batch = turn_events(200_000 + index)
        event = batch[index % len(batch)]
        calls: list[Callable[[], object]] = [
            partial(group[index % len(group)].append, **event) for group in groups
        ]
        grown = growth() or grown
        calls.append(partial(floors[index % len(floors)].append, os.urandom(grown)))
        # Who comes first after the pause pays for it.
        for turn in range(len(calls)):
            which = (index + turn) % len(calls)
            samples[which].append(timed(calls[which]))
    for bare in floors:
        bare.close()
    first, second, ground = map(median_us, samples)
    return first, second, ground
