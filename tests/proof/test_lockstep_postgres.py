"""PostgreSQL does what the model does, step by step, whatever happens to the processes."""

from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure.backends import Backend
from perdure.backends.postgres import PostgresBackend
from perdure.runtime import Runtime
from perdure.testing.lockstep import Medium, run_lockstep
from tests.postgres.fixtures import schemas
from tests.postgres.server import Server
from tests.proof.summary import summarise
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof


def test_postgres_does_the_same(postgres: Server, seed: int) -> None:
    """A server returns, refuses, lists and stores what memory does, byte for byte."""
    steps = scaled(6_000)
    with ExitStack() as stack:
        fresh = stack.enter_context(schemas(postgres))
        known: dict[Path, str] = {}

        def make(folder: Path, runtime: Runtime) -> Backend:
            if folder not in known:
                known[folder] = fresh()
            url = postgres.url(schema=known[folder])
            return PostgresBackend(url.partition(":")[2], runtime=runtime)

        counts = run_lockstep([Medium("postgres", make)], steps=steps, seed=seed, shrink=SOAK)
    summarise("lockstep with PostgreSQL", seed, counts)
    assert counts["steps"] >= steps
    assert counts["refused"] < counts["steps"] / 2
