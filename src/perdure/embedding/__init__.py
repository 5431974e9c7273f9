"""Texts as vectors: what makes them, what is made of a text, and where they are kept.

Nothing here imports numpy before vectors are asked for: it comes with the extra `semantic`.
"""

from perdure.embedding.contract import Embedder
from perdure.embedding.registry import ENTRY_POINTS, embedder_of

__all__ = ["ENTRY_POINTS", "Embedder", "embedder_of"]
