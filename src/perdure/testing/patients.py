"""Harmed sessions for repairs: a store with a victim and its healthy twin, and what they were."""

import itertools
import os
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from perdure.backends.sqlite import BundleBackend
from perdure.backends.sqlite.bundle import ARTIFACT_BYTES
from perdure.model.event import Event
from perdure.runtime import SYSTEM, Runtime
from perdure.store.store import Store
from perdure.testing.agents import Conversation, ScriptedRuntime
from perdure.testing.crash import ENCODINGS, Opener
from perdure.testing.mutations import MUTATIONS, Original, Outcome, expect, from_elsewhere
from perdure.testing.wards import FolderWard, Ward, ward_of

__all__ = ["HARMED_CONTENT", "TWIN", "VICTIM", "Patient", "make_patient"]

VICTIM = "victim"
TWIN = "twin"
HARMED_CONTENT = b"what became of it"
"""What stands in the place of harmed content."""


class Patient(NamedTuple):
    """A harmed session, its healthy twin, and what they were before.

    Attributes:
        path: the store; nobody repairs it, only copies of it.
        encoding: with which it is opened.
        medium: what keeps it: the encoding of a folder, or the scheme of a file.
        ward: where the session lies.
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
    medium: str
    ward: Ward
    salvage: bool
    harmed: bytes
    replaced: bool
    digest: str
    original: Original
    outcome: Outcome
    twin: list[Event]
    open: Callable[[str, Runtime], Store]


def _write(store: Store, name: str, rng: random.Random) -> str:
    """A session of single and packed commits, and content that it refers to.

    In a bundle that is as large as what stands beside it.
    """
    talk = Conversation(rng, name)
    content = f"what {name} refers to\n".encode()
    if _scheme(store) == BundleBackend.scheme:
        content += bytes(ARTIFACT_BYTES)
    with store.create(name) as session:
        digest = session.put_blob(content)
        session.append("note/content", {"blob": digest})
        for number in range(rng.choice([4, 12, 30])):
            if number % 3 == 2:
                session.append_many(talk.deltas())
            else:
                session.append(**talk.next())
    return digest


def _scheme(store: Store) -> str:
    return store._backend.scheme  # noqa: SLF001


def make_patient(folder: str, seed: str, number: int, opener: Opener) -> Patient:
    """Build a store and harm one session of it, so that something has to be repaired.

    Encodings, mutations and what is asked for have their turns by `number`.
    """
    rng, encoding = random.Random(seed), ENCODINGS[number % len(ENCODINGS)]
    path = os.path.join(folder, "patient")
    with opener(path, encoding, ScriptedRuntime(seed)) as store:
        digests = {name: _write(store, name, rng) for name in (VICTIM, TWIN)}
    with opener(path, encoding, SYSTEM) as store:
        ward = ward_of(store, encoding, VICTIM)
        medium = encoding if isinstance(ward, FolderWard) else _scheme(store)
        victim, twin = (
            Original(ward.log(path, name), ward.cut_as, [*store.read_from(name)])
            for name in (VICTIM, TWIN)
        )
    # The twin's header stands for any other: the exchange takes one of the two.
    victim.namesake = twin.data[: twin.units[0].end]
    mutated = _mutated(victim, twin, number, rng)
    digest = digests[VICTIM] if number % 3 == 0 else ""
    if digest:
        ward.harm_content(path, VICTIM, digest, HARMED_CONTENT)
    while True:
        name, harmed = next(mutated)
        ward.harm(path, VICTIM, harmed)
        with opener(path, encoding, SYSTEM) as store:
            foretold = store.repair(VICTIM, dry_run=True)
        if foretold.needed:
            return Patient(
                path,
                encoding,
                medium,
                ward,
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
