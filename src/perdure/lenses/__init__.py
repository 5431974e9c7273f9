"""Lenses: sessions of other agents, read as events of perdure's own vocabulary.

One module for each format; `lens` says what a lens is. A package of somebody else adds a format
with an entry point of the group `perdure.lenses`: its name is the format's, its value the class.
"""

from perdure.lenses.lens import Lens, SourceFacts, record_of
from perdure.lenses.registry import LENSES, lens_of

__all__ = ["LENSES", "Lens", "SourceFacts", "lens_of", "record_of"]
