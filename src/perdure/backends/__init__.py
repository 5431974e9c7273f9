"""Where records are kept: the contract, the registry, and one module per medium."""

from perdure.backends.base import Backend, Entry, Hold, Tail
from perdure.backends.registry import SCHEMES, open_backend

__all__ = ["SCHEMES", "Backend", "Entry", "Hold", "Tail", "open_backend"]
