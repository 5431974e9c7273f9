"""One line per proof, for those who run it with -s."""

import sys
from collections.abc import Mapping


def summarise(proof: str, seed: int, counts: Mapping[str, int]) -> None:
    told = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    sys.stdout.write(f"\n{proof} (seed {seed}): {told}\n")
