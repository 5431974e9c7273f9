"""Listing and search say what the logs say, whatever became of logs and index meanwhile."""

import os
import random
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import perdure
from perdure.errors import FormatUnsupported, PerdureError, UnsafeFile
from perdure.store import Store
from perdure.testing.indexes import check_index, say_something
from perdure.testing.ledger import Finding
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof


class World:
    """A store, the things that happen to it, and a second store from which sessions are copied."""

    def __init__(self, folder: Path, kind: str, rng: random.Random, deck: list[str]) -> None:
        self.folder, self.kind, self.rng = folder, kind, rng
        # Drawn from by one world after the other, so that few worlds see everything happen.
        self.deck = deck
        self.place = str(folder / "store")
        if kind == "sqlite":
            self.place = f"sqlite:{folder}/store.db"
        self.counts: Counter[str] = Counter()
        self.made = 0
        self.doubtful = False
        # Whether a log was changed in a way that only a look at all of them shows.
        self.hidden = False
        self.store = self.open()

    def open(self) -> Store:
        encoding = None if self.kind == "sqlite" else self.kind
        return perdure.open(self.place, encoding=encoding)

    def names(self) -> list[str]:
        return [entry.id for entry in self.store.list() if entry.header is not None]

    def some(self) -> str:
        """A session that is there, or a new name."""
        names = self.names()
        if names and self.rng.random() < 0.8:
            return self.rng.choice(names)
        self.made += 1
        return f"s{self.made}"

    def happen(self) -> str:
        if not self.deck:
            self.deck += self.acts()
            self.rng.shuffle(self.deck)
        act = self.deck.pop()
        with suppress(PerdureError, IndexError):
            # What is refused, because something else came before, is no matter here.
            getattr(self, act)()
            self.counts[act] += 1
        return act

    def acts(self) -> list[str]:
        common = ["append"] * 6 + ["append_elsewhere"] * 3 + ["crash"] * 2
        common += ["rewind", "fork", "delete", "restore", "expire", "reopen", "archive", "ask"]
        common += ["delete_index", "corrupt_index", "repair", "accept"]
        return common if self.kind == "sqlite" else [*common, "copy_in", "remove", "damage"]

    # --- what is done to sessions -----------------------------------------------------------------

    def _append(self, store: Store) -> None:
        id = self.some()
        events = [*say_something(self.rng)]
        if id in self.names():
            store.append(id, events)
            return
        with store.create(id) as session:
            session.append_many(events)

    def append(self) -> None:
        self._append(self.store)

    def append_elsewhere(self) -> None:
        """By a program that keeps no index, or by another one that does."""
        encoding = None if self.kind == "sqlite" else self.kind
        index = self.rng.random() < 0.5
        with perdure.open(self.place, encoding=encoding, index=index) as other:
            self._append(other)

    def crash(self) -> None:
        """A process dies in the middle of a turn, with its session open."""
        id = self.some()
        events = [*say_something(self.rng)]
        fresh = id not in self.names()
        pid = os.fork()
        if pid == 0:
            try:
                store = self.open()
                session = store.create(id) if fresh else store.writer(id)
                session.append_many(events[: self.rng.randrange(1, len(events) + 1)])
            finally:
                os._exit(1)
        os.waitpid(pid, 0)

    def rewind(self) -> None:
        with self.store.writer(self.rng.choice(self.names())) as session:
            turns = [branch.turn for branch in session.branches()]
            session.rewind(to=self.rng.choice([None, *turns]))

    def fork(self) -> None:
        self.made += 1
        self.store.fork(self.rng.choice(self.names()), new_id=f"s{self.made}").close()

    def delete(self) -> None:
        self.store.delete(self.rng.choice(self.names()))

    def restore(self) -> None:
        self.store.restore(self.rng.choice([each.id for each in self.store.trash()]))

    def expire(self) -> None:
        with self.store.writer(self.rng.choice(self.names())) as session:
            digest = session.put_blob(self.rng.randbytes(10))
            session.append("note", {"blob": digest})
            session.expire(keep_last=0)

    def archive(self) -> None:
        with self.store.writer(self.rng.choice(self.names())) as session:
            session.archive()

    def repair(self) -> None:
        for entry in self.store.list():
            self.store.repair(entry.id)

    def accept(self) -> None:
        """The log is cut to what it was, and that is said to be right."""
        self.store.accept(self.rng.choice(self.names()))

    # --- what is done to files --------------------------------------------------------------------

    def copy_in(self) -> None:
        """A session of another store is put among those of this one."""
        self.made += 1
        name = f"s{self.made}"
        place = self.folder / "other"
        with perdure.open(place, encoding=self.kind, index=False) as other:
            events = list(say_something(self.rng))
            other.create(name).append_many(events)
        target = Path(self.place) / "sessions"
        if target.is_dir():
            shutil.copytree(self.folder / "other" / "sessions" / name, target / name)

    def remove(self) -> None:
        shutil.rmtree(Path(self.place) / "sessions" / self.rng.choice(self.names()))

    def damage(self) -> None:
        located = self.store.locate(self.rng.choice(self.names()))
        path = Path(str(located))
        data = bytearray(path.read_bytes())
        data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
        path.write_bytes(data)
        self.hidden = True

    # --- what is done to the index ----------------------------------------------------------------

    def _index(self) -> list[Path]:
        beside = Path(self.place) if self.kind != "sqlite" else self.folder / "store.db.d"
        return [*beside.glob("index.sqlite*")]

    def delete_index(self) -> None:
        for path in self._index():
            path.unlink(missing_ok=True)

    def corrupt_index(self) -> None:
        for path in self._index():
            if path.name == "index.sqlite" and path.stat().st_size:
                data = bytearray(path.read_bytes())
                for _ in range(self.rng.choice([1, 20])):
                    data[self.rng.randrange(len(data))] = self.rng.randrange(256)
                path.write_bytes(data)
                # SQLite's pages have no checksums: not all that changes in them shows.
                self.doubtful = True

    def look(self) -> None:
        """Bring the index up to date, as far as somebody who knows of the damage would."""
        if self.doubtful:
            try:
                self.store.full_rescan()
            except (FormatUnsupported, UnsafeFile):
                # It looks like the file of another program: to be moved away, as is said then.
                self.delete_index()
                self.store.full_rescan()
            self.doubtful = False
        elif self.hidden or self.rng.random() < 0.5:
            self.store.refresh()
        else:
            # Push and start-up alone have to be enough.
            self.reopen()
        self.hidden = False
        check_index(self.store)

    def ask(self) -> None:
        self.store.sessions(3)
        self.store.search("worda")

    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()


@pytest.mark.reads_for_itself(reason="sessions are damaged on purpose")
@pytest.mark.parametrize("kind", ["raw", "zst", "sqlite"])
def test_an_index_says_what_the_logs_say(
    kind: str, tmp_path: Path, seed: int, rng: random.Random
) -> None:
    """After whatever happened, a refreshed index equals a reading of all logs."""
    counts: Counter[str] = Counter()
    deck: list[str] = []
    for number in range(scaled(60)):
        world = World(tmp_path / f"{kind}-{number}", kind, rng, deck)
        world.folder.mkdir()
        told = []
        try:
            for _ in range(rng.randrange(4, 40)):
                told.append(world.happen())
                if rng.random() < 0.1:
                    world.look()
            world.look()
        except Finding as finding:
            finding.add_note(f"world {number} of {kind}: {' '.join(told)}")
            raise
        finally:
            world.store.close()
            shutil.rmtree(world.folder)
        counts += world.counts
    summarise(f"indexes of {kind}", seed, counts)
    assert {"append", "crash", "delete_index", "corrupt_index"} <= counts.keys()
