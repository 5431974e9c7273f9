"""What an append into an SQLite file costs, against a bare insert of the same bytes."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import apsw

import perdure
from benchmarks.appends import COMMITS, SHORT, US_PER_EVENT
from benchmarks.measure import ROUNDS, SQLITE, fill, location, median_us, opened, timed
from benchmarks.session import EVENTS_PER_TURN, turn_events
from benchmarks.table import Row, at_most

ONE_EVENT = 1.5
WAL_BYTES = 4_000_000
"""About as long a WAL becomes before it is begun anew (1,000 pages by default)."""


class Bare:
    """Lines in a table of two columns; durable as ours: WAL, synchronous FULL."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", "full")
        self.connection.execute("CREATE TABLE lines (seq INTEGER PRIMARY KEY, line BLOB) STRICT")
        self.length = 0

    def insert(self, lines: list[bytes]) -> None:
        rows = [(self.length + index, line) for index, line in enumerate(lines)]
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO lines VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")
        self.length += len(lines)


class Lines:
    """Reads what a commit stored, so that the same bytes can be inserted elsewhere.

    By one seek on a connection of its own: `Store.raw` looks through all of the log, and what is
    measured next would pay for what that leaves of the processor's caches.
    """

    def __init__(self, root: Path) -> None:
        path = location(root, SQLITE).removeprefix(f"{SQLITE}:")
        self.connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)

    def __call__(self, seq: int) -> list[bytes]:
        query = "SELECT line FROM records WHERE session = 1 AND seq >= ? ORDER BY seq"
        return [line for (line,) in self.connection.execute(query, (seq,))]


def commits(folder: Path) -> Iterator[Row]:
    """Commits of several sizes into a short session, packed and not."""
    for pack in (True, False):
        root = folder / f"commits-{SQLITE}-{pack}"
        root.mkdir(0o700)
        with opened(root, SQLITE, pack=pack) as store, store.create("s") as session:
            fill(session, SHORT)
            bare, lines = Bare(root / "bare.db"), Lines(root)
            bare.insert(lines(0))
            for size in COMMITS:
                # One event is never packed.
                if size > 1 or pack:
                    yield _commits_of(session, lines, bare, size, pack)
            lines.connection.close()
            bare.connection.close()


def recycled(folder: Path) -> Iterator[Row]:
    """The same where both files write their WAL over again, which takes the system less time.

    Above, the bare file's WAL still grows where ours, of more pages a commit, was begun anew.
    """
    root = folder / f"recycled-{SQLITE}"
    root.mkdir(0o700)
    with opened(root, SQLITE) as store, store.create("s") as session:
        fill(session, SHORT)
        bare, lines = Bare(root / "bare.db"), Lines(root)
        bare.insert(lines(0))
        number = 0
        while min(path.stat().st_size for path in root.glob("*-wal")) < WAL_BYTES:
            before = session.position.seq + 1
            session.append_many(turn_events(number))
            bare.insert(lines(before))
            number += 1
        for size in COMMITS:
            row = _commits_of(session, lines, bare, size, pack=True)
            yield replace(row, what=f"{row.what}, WALs recycled", bound="", met=None)
        lines.connection.close()
        bare.connection.close()


def _commits_of(session: perdure.Session, lines: Lines, bare: Bare, size: int, pack: bool) -> Row:
    ours, inserts = [], []
    for index in range(ROUNDS):
        batch = turn_events(100_000 + index)
        batch = batch if size == EVENTS_PER_TURN else batch[8 : 8 + size]
        before = session.position.seq + 1
        if size == 1:
            ours.append(timed(partial(session.append, **batch[0])))
        else:
            ours.append(timed(partial(session.append_many, batch)))
        inserts.append(timed(partial(bare.insert, lines(before))))
    mine, ground = median_us(ours), median_us(inserts)
    kind = "" if size == 1 else ", packed" if pack else ", not packed"
    what = f"commit of {size} at {SHORT:,} events{kind}"
    over = (mine - ground) / size
    if size == 1:
        return at_most(what, mine, ground, "us", ONE_EVENT, us_over=over)
    if not pack:
        # As for folders: what is not packed has a record for each event, and no bound.
        return Row(what, mine, ground, "us", more={"us_over_per_event": over})
    bound, met = f"bare + {US_PER_EVENT} us an event", over <= US_PER_EVENT
    return Row(what, mine, ground, "us", bound, met, {"us_over_per_event": over})
