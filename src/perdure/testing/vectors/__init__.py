"""What a store of vectors is: a suite of tests that every one passes, ours and yours.

Subclass `VectorsContract` in a test module, say how yours is opened, and run pytest:

    class TestMine(VectorsContract):
        def make_vectors(self, folder, runtime):
            return MyVectors(str(folder), runtime=runtime)

`model.py` is the same in plain dictionaries; a property test holds the two against each other. It
needs numpy, which comes with the extra `semantic`.
"""

import pytest

_PARTS = ("place", "model", "putting", "nearness", "models", "readings", "sharing", "agreeing")
for _part in _PARTS:
    # So that a failed comparison shows both sides, as in a test module.
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from perdure.testing.vectors.agreeing import Agreeing  # noqa: E402
from perdure.testing.vectors.model import PlainVectors  # noqa: E402
from perdure.testing.vectors.models import Models  # noqa: E402
from perdure.testing.vectors.nearness import Nearness  # noqa: E402
from perdure.testing.vectors.place import VectorsCase, clustered, put, rows  # noqa: E402
from perdure.testing.vectors.putting import Putting  # noqa: E402
from perdure.testing.vectors.readings import Readings  # noqa: E402
from perdure.testing.vectors.sharing import Sharing  # noqa: E402

__all__ = ["PlainVectors", "VectorsCase", "VectorsContract", "clustered", "put", "rows"]


class VectorsContract(Putting, Nearness, Models, Readings, Sharing, Agreeing):
    """The whole suite."""
