"""A fork is there whole or not at all, whoever dies, and whoever writes its parent meanwhile."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.model.header import Header
from perdure.model.record import Record
from perdure.runtime import Runtime
from perdure.store import Store, forking
from perdure.testing.copying import KINDS, open_any
from perdure.testing.crash import in_own_process
from perdure.testing.ledger import Finding
from perdure.testing.peers import Peer
from tests.proof.summary import summarise
from tests.support import SOAK, scaled, soaked
from tests.test_fork import assert_fork

pytestmark = pytest.mark.proof

KILL = "perdure.testing.forking:kill_forkers"
CUT = "perdure.testing.forking:black_out_forks"
POINTS = {"write.after", "sync.before", "move.before", "move.after", "folder.sync", "vfs.write"}


def test_deaths_leave_a_whole_child_or_none(tmp_path: Path, seed: int) -> None:
    """Whoever dies while a session is forked: the parent is untouched, the child whole or not."""
    share = scaled(100) / 100
    counts = in_own_process(KILL, folder=str(tmp_path), seed=seed, share=share)
    summarise("deaths of forkers", seed, counts)
    assert {f"deaths {kind}" for kind in KINDS} <= counts.keys()
    assert min(counts["whole"], counts["nothing"]) > 0
    assert POINTS - counts.keys() == set()


def test_what_a_fork_says_outlasts_the_power(tmp_path: Path, seed: int) -> None:
    """A fork that was told is there when the power is back; one that was not is whole or not."""
    share = 0.5 if SOAK else 0.05
    counts = in_own_process(CUT, folder=str(tmp_path), seed=seed, share=share)
    summarise("loss of power behind forks", seed, counts)
    assert {f"{left} {kind}" for left in ("whole", "nothing") for kind in KINDS} <= counts.keys()


# --- a parent that another process writes ---------------------------------------------------------


@pytest.mark.parametrize("encoding", ["raw", "zst"])
def test_a_parent_that_is_written_meanwhile(tmp_path: Path, encoding: str) -> None:
    """While another process appends, each fork has a prefix of what was acknowledged, in order."""
    place = str(tmp_path / "store")
    count = scaled(1000)
    seeds: list[int] = []
    with perdure.open(place, encoding=encoding) as store, Peer(place, encoding) as peer:
        known = peer.ask("create", session="p")["acknowledged"]
        peer.tell("append", count=count)
        while not seeds or seeds[-1] <= count // 2:
            with store.fork("p", new_id=f"c{len(seeds)}") as fork:
                seeds.append(fork.header.seed)
        known += peer.hear()["acknowledged"]
        with store.fork("p", new_id=f"c{len(seeds)}") as fork:
            seeds.append(fork.header.seed)
        assert seeds == sorted(seeds)
        assert seeds[-1] == len(known) == count + 1
        for number, seed in enumerate(seeds):
            assert_fork(store, f"c{number}", "p", seed - 1)
    summarise(f"forks of a session that is written ({encoding})", 0, {"forks": len(seeds)})


# --- the harness finds forks that keep less -------------------------------------------------------


@cache
def a_fork_appears_bit_by_bit() -> None:
    """The child is published with its first records, and the others are committed behind them."""
    fork_publish = forking.Forking._publish

    def publish(self: Any, fork: Any) -> Any:
        backend = self._backend
        whole = backend.publish

        def in_parts(header: Header, records: Iterator[Record], staged: Any) -> Any:
            first, *others = records
            hold: Any = whole(header, [first], staged)
            for record in others:
                backend.commit(hold, hold.position, [record])
            return hold

        backend.publish = in_parts
        try:
            return fork_publish(self, fork)
        finally:
            del backend.publish

    forking.Forking._publish = publish  # type: ignore[method-assign]


@cache
def content_comes_last() -> None:
    """The child is published before the content that its events name."""
    content = forking._Fork.content
    fork_publish = forking.Forking._publish

    def publish(self: Any, fork: Any) -> Any:
        forking._Fork.content = lambda *_: []  # type: ignore[method-assign]
        session = fork_publish(self, fork)
        hold: Any = session._hold
        content(fork, hold)
        return session

    forking.Forking._publish = publish  # type: ignore[method-assign]


@cache
def the_parent_is_locked() -> None:
    """The parent is opened for writing, so that what is open in it is closed."""
    fork = forking.Forking.fork

    def closing(self: Any, id: str, *given: Any, **options: Any) -> Any:
        self.writer(id).close()
        return fork(self, id, *given, **options)

    forking.Forking.fork = closing  # type: ignore[method-assign]


def open_bit_by_bit(path: str, kind: str, runtime: Runtime) -> Store:
    a_fork_appears_bit_by_bit()
    return open_any(path, kind, runtime)


def open_late(path: str, kind: str, runtime: Runtime) -> Store:
    content_comes_last()
    return open_any(path, kind, runtime)


def open_closing(path: str, kind: str, runtime: Runtime) -> Store:
    the_parent_is_locked()
    return open_any(path, kind, runtime)


@pytest.mark.parametrize(
    ("opener", "found"),
    [
        (open_bit_by_bit, "does not begin with the events|has events of its own"),
        (open_late, "has the content"),
        (open_closing, "the parent is not what it was"),
    ],
)
@pytest.mark.parametrize("kind", ["raw", *soaked("sqlite")])
def test_a_fork_that_keeps_less_is_found(
    tmp_path: Path, seed: int, kind: str, opener: Callable[..., Store], found: str
) -> None:
    """A fork that appears in parts, without its content, or at its parent's cost, fails."""
    name = f"tests.proof.test_forks:{opener.__name__}"
    options = {"seed": seed, "share": 1.0, "kinds": [kind], "opener": name}
    with pytest.raises(Finding, match=found):
        in_own_process(KILL, folder=str(tmp_path), **options)
