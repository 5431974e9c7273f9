"""Every backend passes the contract suite; the one that keeps nothing has its own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.backends import SCHEMES, Backend, open_backend
from perdure.backends.base import Hold
from perdure.backends.directory import DirectoryBackend
from perdure.backends.memory import MemoryBackend
from perdure.backends.sqlite import BundleBackend, SqliteBackend
from perdure.errors import InvalidValue, PerdureError, PersistenceDisabled, SessionClosed
from perdure.model.record import Position, Record
from perdure.runtime import Runtime
from perdure.testing.contract import BackendContract, Clockwork, Place


class TestMemory(BackendContract):
    survives_reopen = False
    scheme = "memory"

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:  # noqa: ARG002
        return MemoryBackend(runtime=runtime)


class TestRawDirectory(BackendContract):
    has_files = True
    scheme = "dir"

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        return DirectoryBackend(str(folder), runtime=runtime, encoding="raw")


class TestZstdDirectory(BackendContract):
    has_files = True
    scheme = "dir"

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        return DirectoryBackend(str(folder), runtime=runtime, encoding="zst")


class TestSqlite(BackendContract):
    scheme = "sqlite"

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        return SqliteBackend(f"{folder}.db", runtime=runtime)


class TestBundle(BackendContract):
    scheme = "bundle"

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        return BundleBackend(f"{folder}.perdure", runtime=runtime)


class TestNone:
    scheme = "none"

    def test_everything_is_accepted_and_dropped(self) -> None:
        """A run goes on as with any store, and nothing of it is kept."""
        with perdure.open("none:") as store:
            with store.create("s", cwd="/w") as session:
                assert session.append("x", {"a": 1}).seq == 0
                assert [e.seq for e in session.append_many([{"type": "y"}] * 3)] == [1, 2, 3]
                assert session.buffer("z").seq == 4
                session.flush()
                assert session.position.seq == 4
            assert store.list() == store.list_snapshots() == []
            assert store.locate("s") is None
            with store.create("s") as again:
                assert again.append("x").seq == 0

    def test_values_are_checked_all_the_same(self) -> None:
        """What no store could keep is refused here too, so that nothing breaks on the way back."""
        session = perdure.open("none:").create("s")
        with pytest.raises(InvalidValue):
            session.append("x", float("nan"))
        with pytest.raises(InvalidValue):
            perdure.open("none:").create("")

    def test_keys_hold_within_a_run(self) -> None:
        """A repeated key is a repeat as long as its event is buffered."""
        session = perdure.open("none:").create("s")
        first = session.buffer("pay", 1, key="k")
        assert session.append("pay", 1, key="k") == first

    @pytest.mark.parametrize(
        "operation", ["inspect", "load", "writer", "prepare", "read_from", "verify"]
    )
    def test_nothing_can_be_resumed(self, operation: str) -> None:
        """Whatever needs a stored session says that persistence is off and what to do."""
        store = perdure.open("none:")
        with store.create("s") as session:
            session.append("x")
            with pytest.raises(PersistenceDisabled) as refused:
                getattr(store, operation)("s")
        assert "perdure.open(" in refused.value.hint

    def test_a_closed_writer_is_closed(self) -> None:
        """A writer ends here as anywhere."""
        session = perdure.open("none:").create("s")
        session.append("x")
        session.close()
        with pytest.raises(SessionClosed):
            session.append("x")


COVERED = (TestMemory, TestRawDirectory, TestZstdDirectory, TestSqlite, TestBundle, TestNone)


def test_every_scheme_is_covered() -> None:
    """Each registered scheme has a suite above, and each suite a registered scheme."""
    served = {"postgres", "postgresql"}  # tests/test_contract_postgres.py
    assert {suite.scheme for suite in COVERED} == set(SCHEMES) - served


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_a_scheme_opens_its_backend(scheme: str, tmp_path: Path) -> None:
    """The registry opens each scheme, and the backend knows its own name."""
    nowhere = dict.fromkeys(("memory", "none"), "")
    hosts = dict.fromkeys(("postgres", "postgresql"), "//host/base")
    place = {**nowhere, **hosts}.get(scheme, tmp_path / "store.perdure")
    backend = open_backend(f"{scheme}:{place}")

    assert backend.scheme == ("postgresql" if scheme in hosts else scheme)
    assert list(tmp_path.iterdir()) == []
    backend.close()


# --- backends of others -------------------------------------------------------------------------


def passed_on(name: str, member: object) -> Any:
    """What a wrapper has for one member of a backend: the same of the backend inside."""
    if not callable(member):
        return property(lambda wrapper: getattr(wrapper.inside, name))
    return lambda wrapper, *given, **named: getattr(wrapper.inside, name)(*given, **named)


MEMBERS = {name: member for name, member in vars(Backend).items() if not name.startswith("_")}
Passing: Any = type("Passing", (Backend,), {n: passed_on(n, m) for n, m in MEMBERS.items()})


class Foreign(Passing):  # type: ignore[misc]
    """A backend that perdure knows nothing of: not registered, with a medium of its own inside."""

    def __init__(self, inside: Backend) -> None:
        self.inside = inside

    def locate(self, session: str) -> None:
        """Where things are is nobody's business."""
        self.inside.locate(session)


class TestForeign(BackendContract):
    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        return Foreign(DirectoryBackend(str(folder), runtime=runtime))


class Forgetful(Foreign):
    """Acknowledges commits of several records and does not store them."""

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        if len(records) == 1:
            self.inside.commit(hold, expected, records)


class Credulous(Foreign):
    """Believes whatever position a writer says it stands at."""

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        if expected == hold.position:
            self.inside.commit(hold, expected, records)


class Reticent(Foreign):
    """Does not say who writes."""

    def holder(self, session: str) -> None:
        self.inside.holder(session)


Shown = Callable[[BackendContract, Place], None]


@pytest.mark.parametrize(
    ("cheat", "noticed"),
    [
        (Forgetful, BackendContract.test_appending_continues_the_log),
        (Credulous, BackendContract.test_a_wrong_position_is_refused),
        (Reticent, BackendContract.test_publishing_takes_the_lock),
    ],
)
def test_the_suite_notices_a_backend_that_cheats(
    tmp_path: Path, cheat: type[Foreign], noticed: Shown
) -> None:
    """A backend that breaks one promise fails the test that is about it."""
    place = Place(
        lambda folder, runtime: cheat(DirectoryBackend(str(folder), runtime=runtime)),
        tmp_path / "store",
        Clockwork(),
        survives_reopen=True,
    )

    with pytest.raises((AssertionError, pytest.fail.Exception, PerdureError)):
        noticed(TestForeign(), place)
    place.close()


def test_a_foreign_backend_is_known_to_nobody() -> None:
    """The wrapper of these tests adds nothing of its own and stands in no register."""
    assert Passing.__abstractmethods__ == frozenset()
    assert "foreign" not in SCHEMES
