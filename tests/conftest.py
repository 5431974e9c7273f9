"""One seed per run, printed, from which every test draws its own randomness."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from perdure.backends.directory import DirectoryBackend
from perdure.durable import crash
from tests.agreement import disagreements
from tests.command_line import Line
from tests.postgres.fixtures import fresh_schema, postgres  # noqa: F401 - fixtures of all tests
from tests.support import SOAK

SEED_KEY = pytest.StashKey[int]()

hypothesis.settings.register_profile("perdure", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("perdure")


def _choose_seed() -> int:
    text = os.environ.get("PERDURE_SEED")
    if text is None:
        return random.SystemRandom().randrange(2**32)
    try:
        return int(text)
    except ValueError:
        message = f"PERDURE_SEED must be a whole number, not {text!r}"
        raise pytest.UsageError(message) from None


def _how_to_repeat(config: pytest.Config) -> str:
    counts = "full counts" if SOAK else "a tenth of the counts"
    return f"perdure: {counts}, repeat with PERDURE_SEED={config.stash[SEED_KEY]}"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed before Hypothesis reads its own option, and give it the same one."""
    config.addinivalue_line(
        "markers",
        "reads_for_itself(reason): stores of the test are not read a second time after it",
    )
    config.stash[SEED_KEY] = _choose_seed()
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(config.stash[SEED_KEY])


def pytest_report_header(config: pytest.Config) -> str:
    return _how_to_repeat(config)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say the seed again below failures, where the reader is, and where -q hides the header."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(_how_to_repeat(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not SOAK:
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(pytest.mark.skip(reason="runs only when PERDURE_SOAK=1"))


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Return the seed of this run."""
    return pytestconfig.stash[SEED_KEY]


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """Return randomness that depends on the seed and the test alone, not on the tests before."""
    return random.Random(f"{seed}:{request.node.nodeid}")


@pytest.fixture(autouse=True)
def second_reader(
    request: pytest.FixtureRequest,
    seed: int,
    tmp_path: Path,  # noqa: ARG001 - it may be removed at the end, but only after this
) -> Iterator[None]:
    """After a test, read every directory store that it opened in two ways, which have to agree."""
    marker = request.node.get_closest_marker("reads_for_itself")
    if marker is not None:
        assert marker.kwargs["reason"]
        yield
        return
    roots: dict[Path, None] = {}
    construct = DirectoryBackend.__init__

    def observed(backend: DirectoryBackend, path: str, **options: Any) -> None:
        construct(backend, path, **options)
        roots[Path(os.path.abspath(os.path.expanduser(path)))] = None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectoryBackend, "__init__", observed)
        yield
    crash.arm()
    draws = random.Random(f"{seed}:{request.node.nodeid}")
    assert [said for root in roots if root.exists() for said in disagreements(root, draws)] == []


@pytest.fixture
def line(tmp_path: Path) -> Line:
    """Return the command line with a store in the folder of the test."""
    return Line(tmp_path)
