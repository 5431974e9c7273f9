"""The real system at its limits: no descriptor is left, no file may grow.

Where `perdure.testing.faults` plays the system's part, here the kernel does: the process lowers its
own limits (`RLIMIT_NOFILE`, `RLIMIT_FSIZE`), plays a script, and raises them again. Everything in
the process meets them, so it has to be one of its own: see `perdure.testing.crash.in_own_process`.
"""

import os
import random
import resource
from collections import Counter
from typing import Self

import perdure.evidence.database  # noqa: F401 - loaded before anything is limited
from perdure.testing.crash import ENCODINGS, load
from perdure.testing.faults import CHAPTERS, play
from perdure.testing.ledger import Finding
from perdure.testing.scripts import OUTSIDE

__all__ = ["LimitedSystem", "meet_limits"]

_FILE_BYTES = (0, 1, 100, 700, 2000, 5000, 20_000, 150_000)
_DESCRIPTORS = 12


class LimitedSystem:
    """A limit of this process, lowered for a while; a context manager."""

    def __init__(self, which: int, soft: int) -> None:
        """Lower the limit `which` to `soft`."""
        self._which = which
        self._soft = soft
        self._usual = resource.getrlimit(which)

    def __enter__(self) -> Self:
        """Lower it."""
        resource.setrlimit(self._which, (self._soft, self._usual[1]))
        return self

    def __exit__(self, *exc: object) -> None:
        """Raise it again."""
        self.lift()

    def failing(self) -> bool:
        """Whether it is lowered."""
        return resource.getrlimit(self._which) != self._usual

    def mark(self) -> None:
        """Nothing depends on the step."""

    def lift(self) -> None:
        """Raise it again."""
        resource.setrlimit(self._which, self._usual)


def meet_limits(
    folder: str, seed: int, runs: int, *, opener: str = "perdure.testing.agents:open_folder"
) -> dict[str, int]:
    """Play scripts below `runs` limits and demand the same as of any failing system.

    `opener` is given as "module:function".

    Returns:
        How many runs met each limit, and how often each error was raised.

    Raises:
        Finding: see `perdure.testing.faults.play`.

    """
    rng = random.Random(seed)
    open_store = load(opener)
    counts: Counter[str] = Counter()
    for number in range(runs):
        where = os.path.join(folder, str(number))
        os.mkdir(where, 0o700)
        script = f"{seed}:{number}:{rng.choice([*CHAPTERS])}"
        if number % 2:
            system = LimitedSystem(resource.RLIMIT_FSIZE, rng.choice(_FILE_BYTES))
            name = "size of files"
        else:
            lowest = os.open(where, os.O_RDONLY)
            os.close(lowest)
            spare = rng.randrange(_DESCRIPTORS)
            system = LimitedSystem(resource.RLIMIT_NOFILE, lowest + spare)
            name = "open files"
        try:
            encoding = ENCODINGS[number % 4 // 2]
            errors = play(where, encoding, script, system, opener=open_store, without=OUTSIDE)
        except Finding as finding:
            finding.add_note(f"limit of {name}, run {number}")
            raise
        counts[name] += 1
        counts.update(errors)
        os.rmdir(where)
    return dict(counts)
