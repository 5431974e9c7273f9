"""The lockstep finds backends that do almost everything right."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

import perdure
from perdure.backends import open_backend
from perdure.backends.base import Hold, Tail, Trashed
from perdure.backends.directory import DirectoryBackend
from perdure.backends.memory import MemoryBackend
from perdure.durable import crash
from perdure.model.header import Header
from perdure.model.record import Position, Record
from perdure.recovery.walk import Ending, Piece
from perdure.testing.ledger import Finding
from perdure.testing.lockstep import Lockstep, Medium, machine_of, run_lockstep
from tests.proof.summary import summarise

STEPS_MAX = 20_000
"""Within so many steps each fault is found; most are found within hundreds."""


class DropsTheLast(DirectoryBackend):
    """Stores a commit of three and more records without its last one."""

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        super().commit(hold, expected, records[:-1] if len(records) >= 3 else records)


class RestoresWithoutContent(DirectoryBackend):
    """Brings the log back and leaves the content behind."""

    def restore(self, session: str, then: Callable[[], None]) -> None:
        super().restore(session, then)
        shutil.rmtree(Path(str(self.locate(session))).parent / "blobs", ignore_errors=True)


class MissesOneAtABoundary(DirectoryBackend):
    """Begins a page that begins with a frame behind the frame's first record."""

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        pieces = super().scan(session, begin, seq=seq)
        for number, piece in enumerate(pieces):
            starts = seq and not number and piece.lines and b'{"seq":%d,' % seq in piece.lines[0]
            yield piece._replace(lines=piece.lines[1:]) if starts else piece


class AcceptsAStaleCommit(MemoryBackend):
    """Takes what a writer wants to append for what fits."""

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        super().commit(
            hold, hold.position if expected.seq == hold.position.seq else expected, records
        )


class KeepsItsRevision(DirectoryBackend):
    """Does not tell that a session was changed after it was opened, so that keys are forgotten."""

    def revision(self, session: str) -> str:
        return f"{super().revision(session).split(':')[1]}:{session}"


class PublishesInTwoSteps(MemoryBackend):
    """Lets a session appear with its first record, and adds the others."""

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Hold:
        first, *others = records
        hold = super().publish(header, [first], staged)
        if others:
            crash.point("in between")
            super().commit(hold, hold.position, others)
        return hold


class RemembersNoEnd(DirectoryBackend):
    """Knows the acknowledged end of a log only as long as it is not opened again."""

    def tail(self, session: str) -> Tail:
        told = super().tail(session)
        return told if self.holder(session) else told._replace(acknowledged=None)


class LeavesTheTornTail(DirectoryBackend):
    """Writes on behind what a dead writer left, without setting it aside."""

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        own: Any = hold
        torn = own.log.size() - ending.end
        own.log.cut(ending.end)
        super().settle(hold, ending, seen)
        if torn:
            os.truncate(own.log.path, ending.end + 1)


class GivesDeletedIdsAway(MemoryBackend):
    """Publishes a new session under the id of one in the trash."""

    def _deleted_at(self, session: str) -> None:
        """Nobody is told."""


class SharesItsTrash(MemoryBackend):
    """Keeps what is deleted in a namespace in one trash for all of them."""

    def namespace(self, part: str) -> Any:
        below = super().namespace(part)
        below._trash = self._trash
        return below


class RemovesTooMuch(MemoryBackend):
    """Empties the trash of all that was deleted when one of them is removed."""

    def purge(self, trashed: Trashed, first: Callable[[Trashed], None]) -> bool:
        done = super().purge(trashed, first)
        self._trash.clear()
        return done


class ExpiresOneLess(MemoryBackend):
    """Keeps one of several blobs that are to go."""

    def drop_blobs(self, hold: Hold, digests: Any) -> None:
        super().drop_blobs(hold, [*digests][:1])


class ForgetsThePlan(MemoryBackend):
    """Drops the plan of a repair with the log that it replaces."""

    def replace(self, hold: Hold, header: Header, records: Any, *, place: str, reason: str) -> None:
        super().replace(hold, header, records, place=place, reason=reason)
        self.set_plan(hold, None)


class KeepsNothingAside(MemoryBackend):
    """Puts another log in the place of one that nobody finds any more."""

    def replace(self, hold: Hold, header: Header, records: Any, *, place: str, reason: str) -> None:
        super().replace(hold, header, records, place=place, reason=reason)
        self._sessions[hold.session].aside.clear()


FAULTY: tuple[Any, ...] = (
    AcceptsAStaleCommit,
    DropsTheLast,
    ExpiresOneLess,
    ForgetsThePlan,
    GivesDeletedIdsAway,
    KeepsItsRevision,
    KeepsNothingAside,
    LeavesTheTornTail,
    MissesOneAtABoundary,
    PublishesInTwoSteps,
    RemembersNoEnd,
    RemovesTooMuch,
    RestoresWithoutContent,
    SharesItsTrash,
)


def faulty(kind: Any) -> Medium:
    if issubclass(kind, MemoryBackend):
        return Medium("faulty", lambda _, at: kind(runtime=at), survives_reopen=False)
    return Medium(
        "faulty",
        lambda folder, at: kind(str(folder), runtime=at, encoding="raw"),
        torn=b'{"seq":',
    )


@pytest.mark.parametrize("kind", FAULTY, ids=lambda kind: kind.__name__)
def test_a_fault_is_found(kind: Any, seed: int) -> None:
    """A backend that breaks one promise is found within a bounded number of steps."""
    counts: Counter[str] = Counter()
    with pytest.raises(Finding, match=r"^faulty: "):
        run_lockstep([faulty(kind)], steps=STEPS_MAX, seed=seed, shrink=False, counts=counts)
    summarise(f"{kind.__name__} is found", seed, {"steps": counts["steps"]})


def test_a_finding_says_which_steps_lead_there(seed: int) -> None:
    """What is found is brought down to few steps, which stand in the notes of the finding."""
    medium = faulty(GivesDeletedIdsAway)
    with pytest.raises(Finding) as found:
        run_lockstep([medium], steps=STEPS_MAX, seed=seed)
    notes = "\n".join(found.value.__notes__)
    assert "\nstate.begin(" in notes
    # Some steps that do nothing may be left of eighty.
    assert notes.count("\nstate.") <= 12


def test_the_same_seed_takes_the_same_steps(seed: int) -> None:
    """A run is repeated by its seed."""
    plain = Medium("plain", lambda _, at: MemoryBackend(runtime=at), survives_reopen=False)
    other, first, again = (
        run_lockstep([plain], steps=150, seed=number) for number in (seed + 1, seed, seed)
    )
    assert first == again
    assert first != other
    assert first["steps"] >= 150


def test_a_machine_takes_rules_of_its_own() -> None:
    """A subclass adds steps, and its test case runs them beside the others."""
    met: list[int] = []

    class More(Lockstep):
        @rule()
        def count_media(self) -> None:
            met.append(len(self.sites))

    plain = Medium("plain", lambda _, at: MemoryBackend(runtime=at), survives_reopen=False)
    case = machine_of([plain, plain._replace(name="other")], machine=More).TestCase
    case.settings = settings(case.settings, max_examples=10, database=None)
    case("runTest").runTest()
    assert set(met) == {3}


def test_an_error_that_is_not_ours_is_a_finding(seed: int) -> None:
    """A backend that lets a foreign error through is found, and the step is named."""

    class Leaky(MemoryBackend):
        def discard(self, session: str, then: Callable[[Trashed], None]) -> Trashed:
            raise OSError(f"{session} of {then}")

    with pytest.raises(Finding, match=r"^faulty: delete: OSError"):
        run_lockstep([faulty(Leaky)], steps=STEPS_MAX, seed=seed, shrink=False)


MODULE = """
from perdure.backends.directory import DirectoryBackend

class MyBackend(DirectoryBackend):
    scheme = "mine"

    def __init__(self, rest, *, runtime, **options):
        super().__init__(rest.removeprefix("//"), runtime=runtime, encoding="raw")
        self.options = options
"""


def test_a_registered_backend_is_held_against_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A backend of another package is opened by its scheme, and takes part like any other."""
    folder = tmp_path / "my_package-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1\n")
    (folder / "entry_points.txt").write_text("[perdure.backends]\nmine = my_storage:MyBackend\n")
    (tmp_path / "my_storage.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        mine = Medium("mine", lambda at, runtime: open_backend(f"mine://{at}", runtime=runtime))
        assert run_lockstep([mine], steps=200, seed=seed)["steps"] >= 200
        with perdure.open(f"mine://{tmp_path / 'store'}") as store:
            backend: Any = store._backend
            assert backend.scheme == "mine"
            store.create("s").append("note", "kept")
        with perdure.open(tmp_path / "store") as store:
            assert [event.data for event in store.read_from("s")] == ["kept"]
    finally:
        sys.modules.pop("my_storage", None)
