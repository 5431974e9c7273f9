"""A database that was made from something else, and can be made again: kept in a file, or lost."""

from perdure.databases.derived.connections import FilePlace
from perdure.databases.derived.places import MemoryPlace, Place
from perdure.databases.derived.tables import Tables

__all__ = ["FilePlace", "MemoryPlace", "Place", "Tables"]
