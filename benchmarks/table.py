"""One line for each figure: what was measured, its floor, the ratio, the bound of the design."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

WIDTH = 58


@dataclass
class Row:
    """One figure.

    Attributes:
        what: what was measured.
        ours: the figure.
        floor: what it is held against.
        unit: of both.
        bound: what the design asks, for people; empty where it names nothing.
        met: whether it is kept; None where there is no bound.
        more: further figures.

    """

    what: str
    ours: float
    floor: float
    unit: str
    bound: str = ""
    met: bool | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        return self.ours / self.floor if self.floor else 0.0

    def as_dict(self) -> dict[str, Any]:
        facts = {"ours": round(self.ours, 1), "floor": round(self.floor, 1), "unit": self.unit}
        verdict = {"ratio": round(self.ratio, 3), "bound": self.bound, "met": self.met}
        return {"what": self.what, **facts, **verdict, **self.more}


def at_most(what: str, ours: float, floor: float, unit: str, times: float, **more: Any) -> Row:
    """A figure whose bound is a multiple of its floor."""
    met = ours <= times * floor
    return Row(what, ours, floor, unit, f"at most {times:g}x", met, more)


def section(title: str, ours: str, floor: str, rows: Iterable[Row]) -> Iterator[Row]:
    """Print rows as they come, below a title and the heads of the two columns."""
    print(f"\n{title:<{WIDTH}} {ours:>13} {floor:>13}          ratio  bound")
    for row in rows:
        verdict = {True: "ok  ", False: "MISS", None: "    "}[row.met]
        more = "  ".join(f"{name}={_shown(value)}" for name, value in row.more.items())
        print(
            f"{row.what:<{WIDTH}} {_shown(row.ours):>13} {_shown(row.floor):>13} {row.unit:<5}"
            f" {row.ratio:>8.3f}  {verdict} {row.bound:<28} {more}".rstrip(),
            flush=True,
        )
        yield row


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)
