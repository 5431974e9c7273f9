"""What a backend is: a suite of tests that every backend passes, ours and yours.

Subclass `BackendContract` in a test module, say how your backend is opened, and run pytest:

    class TestMine(BackendContract):
        def make_backend(self, folder, runtime):
            return MyBackend(str(folder), runtime=runtime)

A backend declares what it can do in class attributes (see `ContractCase`); nothing is guessed and
nothing is skipped. It reads clock and randomness from the runtime that it is given.
"""

import pytest

_PARTS = (
    "place",
    "keeping",
    "finding",
    "forking",
    "recovering",
    "repairing",
    "writing",
    "content",
    "deleting",
    "deriving",
    "medium",
)
for _part in _PARTS:
    # So that a failed comparison shows both sides, as in a test module.
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from perdure.testing.contract.content import Content  # noqa: E402
from perdure.testing.contract.deleting import Deleting, Namespaces  # noqa: E402
from perdure.testing.contract.deriving import Deriving  # noqa: E402
from perdure.testing.contract.finding import Finding  # noqa: E402
from perdure.testing.contract.forking import Forking  # noqa: E402
from perdure.testing.contract.keeping import Keeping  # noqa: E402
from perdure.testing.contract.medium import Medium  # noqa: E402
from perdure.testing.contract.place import Clockwork, ContractCase, Place  # noqa: E402
from perdure.testing.contract.recovering import Recovering  # noqa: E402
from perdure.testing.contract.repairing import Repairing  # noqa: E402
from perdure.testing.contract.writing import Writing  # noqa: E402

__all__ = ["BackendContract", "Clockwork", "ContractCase", "Place"]


class BackendContract(
    Keeping,
    Finding,
    Recovering,
    Repairing,
    Writing,
    Content,
    Deleting,
    Namespaces,
    Deriving,
    Forking,
    Medium,
):
    """The whole suite."""
