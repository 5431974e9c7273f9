"""What proves a store: contract suite, crash and power-loss harness, corruption, strategies.

Public, so that a third-party backend can be held to the same.
"""

__all__: list[str] = []
