"""Every backend passes the contract suite; the one that keeps nothing has its own."""

from pathlib import Path

import pytest

import perdure
from perdure.backends import SCHEMES, Backend, open_backend
from perdure.backends.directory import DirectoryBackend
from perdure.backends.memory import MemoryBackend
from perdure.errors import InvalidValue, PersistenceDisabled, SessionClosed
from perdure.runtime import Runtime
from perdure.testing.contract import BackendContract


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


COVERED = (TestMemory, TestRawDirectory, TestZstdDirectory, TestNone)


def test_every_scheme_is_covered() -> None:
    """Each registered scheme has a suite above, and each suite a registered scheme."""
    assert {suite.scheme for suite in COVERED} == set(SCHEMES)


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_a_scheme_opens_its_backend(scheme: str, tmp_path: Path) -> None:
    """The registry opens each scheme, and the backend knows its own name."""
    backend = open_backend(f"{scheme}:{tmp_path / 'store' if scheme == 'dir' else ''}")

    assert backend.scheme == scheme
    assert not (tmp_path / "store").exists()
    backend.close()
