"""Backends in lockstep: a state machine tells all of them the same, and they have to do the same.

The model is `memory:`, the executable form of the contract. A backend of yours is held against it
with one call in a test:

    from perdure.testing.lockstep import Medium, run_lockstep

    def test_mine():
        mine = Medium("mine", lambda folder, runtime: MyBackend(str(folder), runtime=runtime))
        run_lockstep([mine], steps=2000, seed=1)

or as a state machine of Hypothesis, which `machine_of` makes; its `TestCase` is collected by
pytest. Subclass `Lockstep` to add rules of your own.

A backend reads clock, randomness and process id from the runtime that it is given: a process that
dies here is another one afterwards by that id alone. Backends with named crash points (see
`perdure.durable.crash`) die at any of them; others die when their commit is done.
"""

import itertools
import os
from collections import Counter
from collections.abc import Sequence

from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from perdure.testing.lockstep.dying import Lockstep
from perdure.testing.lockstep.media import BUILT_IN, MEMORY, Death, Medium, Name, Site
from perdure.testing.lockstep.writing import drawn_names

__all__ = [
    "BUILT_IN",
    "MEMORY",
    "Death",
    "Lockstep",
    "Medium",
    "Name",
    "Site",
    "drawn_names",
    "machine_of",
    "run_lockstep",
]

_RULES = 80
"""Of one run, before everything is closed, compared and begun anew; they take about twice as many
steps, since some of them prepare what they are about. Fewer where few steps are left to take."""


def machine_of(
    media: Sequence[Medium],
    *,
    machine: type[Lockstep] = Lockstep,
    counts: Counter[str] | None = None,
    folder: str | None = None,
) -> type[Lockstep]:
    """A state machine over some media, beside the model.

    `machine` may be a subclass with further rules. `counts` is added to: how often each step was
    taken. The media keep their files below `folder`, and leave nothing there; without it in memory,
    where the system has a folder for that: no process that dies here takes the page cache along.
    """
    facts = {
        "counts": Counter() if counts is None else counts,
        "folder": folder or _in_memory(),
        "media": tuple(media),
    }
    return type(f"{machine.__name__}Of{len(media)}", (machine,), facts)


def _in_memory() -> str | None:
    folder = "/dev/shm"  # noqa: S108 - what is made below it has a random name and is private
    return folder if os.access(folder, os.W_OK | os.X_OK) else None


def run_lockstep(
    media: Sequence[Medium] = BUILT_IN,
    *,
    steps: int,
    seed: int,
    folder: str | None = None,
    machine: type[Lockstep] = Lockstep,
    shrink: bool = True,
    counts: Counter[str] | None = None,
) -> Counter[str]:
    """Take at least so many steps with all media, and demand that nothing differs.

    The same `seed` takes the same steps. With `shrink`, a difference is brought down to the fewest
    steps that show it, which takes a while. For `folder` and `counts` see `machine_of`.

    Returns:
        How often each step was taken; "steps" are all of them, "refused" those that came to an
        error.

    Raises:
        Finding: a medium differs from the model; the steps that lead there stand in its notes.

    """
    counts = Counter() if counts is None else counts
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    for turn in itertools.count():
        left = steps - counts["steps"]
        if left <= 0:
            break
        # Several at least: the first run of Hypothesis is always the plainest there is.
        runs = max(8, min(200, left // (2 * _RULES)))
        configured = settings(
            database=None,
            deadline=None,
            max_examples=runs,
            phases=phases,
            report_multiple_bugs=False,
            stateful_step_count=min(_RULES, left // (2 * runs) + 1),
            suppress_health_check=[*HealthCheck],
        )
        made = machine_of(media, machine=machine, counts=counts, folder=folder)
        run_state_machine_as_test(seeded(f"{seed} {turn}")(made), settings=configured)
    return counts
