"""What a catalog is: a suite of tests that every catalog passes, ours and yours.

Subclass `CatalogContract` in a test module, say how your catalog is opened, and run pytest:

    class TestMine(CatalogContract):
        def make_catalog(self, folder, runtime):
            return MyCatalog(str(folder), runtime=runtime)

`model.py` is the same in plain dictionaries; a property test holds the two against each other.
"""

import pytest

_PARTS = (
    "place",
    "putting",
    "listing",
    "filtering",
    "searching",
    "scoping",
    "isolating",
    "medium",
    "agreeing",
)
for _part in _PARTS:
    # So that a failed comparison shows both sides, as in a test module.
    pytest.register_assert_rewrite(f"{__name__}.{_part}")

from perdure.testing.catalog.agreeing import Agreeing  # noqa: E402
from perdure.testing.catalog.filtering import Filtering  # noqa: E402
from perdure.testing.catalog.isolating import Isolating  # noqa: E402
from perdure.testing.catalog.listing import Listing  # noqa: E402
from perdure.testing.catalog.medium import Medium  # noqa: E402
from perdure.testing.catalog.place import CatalogCase, change, said, session  # noqa: E402
from perdure.testing.catalog.putting import Putting  # noqa: E402
from perdure.testing.catalog.scoping import Scoping  # noqa: E402
from perdure.testing.catalog.searching import Searching  # noqa: E402

__all__ = ["CatalogCase", "CatalogContract", "change", "said", "session"]


class CatalogContract(Putting, Listing, Filtering, Searching, Scoping, Isolating, Medium, Agreeing):
    """The whole suite."""
