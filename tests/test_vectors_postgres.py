"""Vectors in a PostgreSQL server pass the contract suite, and keep their own promises."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure.embedding.postgres import PostgresVectors
from perdure.embedding.postgres.vectors import EXACT_MAX
from perdure.embedding.vectors import Vectors
from perdure.runtime import Runtime
from perdure.testing.vectors import VectorsContract
from tests.places import Places
from tests.support import SOAK, scaled

if TYPE_CHECKING:
    from tests.postgres.server import Server as TestServer

MANY = 60_000 if SOAK else 6_000


@pytest.fixture(scope="module")
def places(postgres: "TestServer") -> Places:
    return Places(postgres)


@pytest.fixture(autouse=True)
def emptied(places: Places) -> Iterator[None]:
    yield
    places.end()


class Alone(PostgresVectors):
    """Vectors that have a server of their own, and close it with themselves."""

    def close(self) -> None:
        super().close()
        self._server.close()


class TestServerVectors(VectorsContract):
    exact_max = EXACT_MAX
    examples = scaled(200)
    many = MANY
    places: Places

    @pytest.fixture(autouse=True)
    def place_of_each(self, places: Places) -> None:
        """Let `make_vectors` know where."""
        type(self).places = places

    def make_vectors(self, folder: Path, runtime: Runtime) -> Vectors:
        return Alone(self.places.server(folder, runtime), runtime=runtime)
