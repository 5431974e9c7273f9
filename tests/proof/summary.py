"""One line per proof, for those who run it with -s."""

import sys
from collections.abc import Mapping


def summarise(proof: str, seed: int, counts: Mapping[str, int]) -> None:
    told = ", ".join(f"{name}: {count}" for name, count in sorted(counts.items()))
    sys.stdout.write(f"\n{proof} (seed {seed}): {told}\n")


def tabulate(title: str, table: Mapping[str, Mapping[str, object]]) -> None:
    """A table: rows by their names, columns by the names in the first row."""
    columns = [*next(iter(table.values()))]
    lines = [["", *columns], *([name, *map(str, row.values())] for name, row in table.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    sys.stdout.write(f"\n{title}\n")
    for name, *cells in lines:
        right = "  ".join(cell.rjust(n) for cell, n in zip(cells, widths[1:], strict=True))
        sys.stdout.write(f"{name.ljust(widths[0])}  {right}\n")
