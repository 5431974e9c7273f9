"""Stores in one SQLite file, opened as the harnesses open folders.

`PATH` is a folder that holds all there is of a store: the file and what stands beside it. Where a
folder has an encoding, a database has a scheme, so that both go through everything.
"""

import os

from perdure.runtime import Runtime
from perdure.store.store import Store, open_store

__all__ = ["FILES", "open_database"]

FILES = {"zst": ("sqlite", "store.db"), "raw": ("bundle", "store.perdure")}
"""By the encoding of a folder in its place: the scheme, and the name of the file."""


def open_database(path: str, encoding: str, runtime: Runtime) -> Store:
    """The database in the folder `path`; nothing is made before the first write."""
    scheme, name = FILES[encoding]
    return open_store(f"{scheme}:{os.path.join(path, name)}", runtime=runtime, index=False)
