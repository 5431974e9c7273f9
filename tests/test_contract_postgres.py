"""PostgreSQL passes the contract suite, unchanged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.backends import Backend
from perdure.backends.postgres import PostgresBackend
from perdure.runtime import Runtime
from perdure.testing.contract import BackendContract
from tests.postgres.fixtures import schemas_of
from tests.postgres.server import Server


class TestPostgres(BackendContract):
    scheme = "postgresql"

    @pytest.fixture(autouse=True)
    def on_a_server(self, postgres: Server, tmp_path: Path) -> Iterator[None]:
        with schemas_of(postgres, tmp_path) as self.url_of:
            yield

    def make_backend(self, folder: Path, runtime: Runtime) -> Backend:
        return PostgresBackend(self.url_of(folder).partition(":")[2], runtime=runtime)
