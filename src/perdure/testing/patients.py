"""Harmed sessions for repairs: a store with a victim and its healthy twin, and what they were."""

import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from perdure.model.event import Event
from perdure.runtime import SYSTEM, Runtime
from perdure.store.store import Store
from perdure.testing.agents import Conversation, ScriptedRuntime
from perdure.testing.crash import ENCODINGS, Opener
from perdure.testing.ledger import Finding
from perdure.testing.mutations import MUTATIONS, Original, Outcome, expect, from_elsewhere

__all__ = ["HARMED_CONTENT", "TWIN", "VICTIM", "Patient", "make_patient"]

VICTIM = "victim"
TWIN = "twin"
_CONTENT = b"what the victim refers to"
HARMED_CONTENT = b"what became of it"
"""What stands in the place of harmed content."""


class Patient(NamedTuple):
    """A harmed session, its healthy twin, and what they were before.

    Attributes:
        path: the store; nobody repairs it, only copies of it.
        encoding: of its logs.
        salvage: whether what is intact behind the damage is to be taken over.
        harmed: the bytes of the harmed log.
        replaced: whether the log is damaged, and not only content.
        digest: of content that was harmed, or "".
        original: the log before.
        outcome: what must come out of the harmed log.
        twin: events of the twin.
        open: opens a store at a path.

    """

    path: str
    encoding: str
    salvage: bool
    harmed: bytes
    replaced: bool
    digest: str
    original: Original
    outcome: Outcome
    twin: list[Event]
    open: Callable[[str, Runtime], Store]


def _write(store: Store, name: str, rng: random.Random) -> str:
    """A session of single and packed commits, and content that it refers to."""
    talk = Conversation(rng, name)
    with store.create(name) as session:
        digest = session.put_blob(_CONTENT)
        session.append("note/content", {"blob": digest})
        for number in range(rng.choice([4, 12, 30])):
            if number % 3 == 2:
                session.append_many(talk.deltas())
            else:
                session.append(**talk.next())
    return digest


def _original(store: Store, name: str, encoding: str) -> Original:
    with open(_log(store, name), "rb") as file:
        return Original(file.read(), encoding, [*store.read_from(name)])


def _log(store: Store, name: str) -> str:
    located = store.locate(name)
    if located is None:
        raise Finding(f"{name} has no file")
    return located


def make_patient(folder: str, seed: str, number: int, opener: Opener) -> Patient:
    """Build a store and harm one session of it, so that something has to be repaired.

    Encodings, mutations and what is asked for have their turns by `number`.
    """
    rng, encoding = random.Random(seed), ENCODINGS[number % len(ENCODINGS)]
    path = os.path.join(folder, "patient")
    with opener(path, encoding, ScriptedRuntime(seed)) as store:
        digests = {name: _write(store, name, rng) for name in (VICTIM, TWIN)}
    with opener(path, encoding, SYSTEM) as store:
        victim, twin = (_original(store, name, encoding) for name in (VICTIM, TWIN))
        log = _log(store, VICTIM)
    # The twin's header stands for any other: the exchange takes one of the two.
    victim.namesake = twin.data[: twin.units[0].end]
    mutated = _mutated(victim, twin, number, rng)
    digest = digests[VICTIM] if number % 3 == 0 else ""
    if digest:
        blob = os.path.join(os.path.dirname(log), "blobs", digest[:2], digest)
        with open(blob, "wb") as file:
            file.write(HARMED_CONTENT)
    while True:
        name, harmed = next(mutated)
        with open(log, "r+b") as file:
            file.truncate(0)
            file.write(harmed)
        with opener(path, encoding, SYSTEM) as store:
            foretold = store.repair(VICTIM, dry_run=True)
        if foretold.needed:
            return Patient(
                path,
                encoding,
                number // 2 % 2 == 1,
                harmed,
                foretold.aside is not None,
                digest,
                victim,
                expect(victim, harmed, foreign=from_elsewhere(name)),
                twin.events,
                lambda place, runtime: opener(place, encoding, runtime),
            )


def _mutated(
    victim: Original, twin: Original, number: int, rng: random.Random
) -> Iterator[tuple[str, bytes]]:
    """Harmed logs and the names of the mutations; every ninth patient has a sound log."""
    names = [name for name in MUTATIONS if name != "tail file harmed"]
    for attempt in itertools.count(number):
        name = names[attempt % len(names)]
        yield name, victim.data if number % 9 == 0 else MUTATIONS[name](victim, twin, rng)
