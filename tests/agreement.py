"""Two readers of one store have to agree: perdure, and the one written from the format page.

For each session that perdure opens at all they agree on

* the header: the same digest; or that it is damaged, or of another format;
* the verified prefix: the same events, one by one, and the same hash of the last record;
* the end: complete, ahead, unterminated, torn or damaged;
* whether the log is sound.

Left out is what perdure refuses to open (links, foreign modes, folders without a log), and a
session that somebody writes to while it is compared.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

from perdure.backends.base import Entry
from perdure.backends.directory import DirectoryBackend
from perdure.errors import PerdureError
from perdure.evidence import Evidence
from perdure.runtime import SYSTEM
from perdure.store import Store
from tests import independent_reader

SESSIONS_MAX = 100
"""Sessions of one root that are compared; of more, the seed draws as many."""


def disagreements(root: Path, rng: Random) -> list[str]:
    """What the two readers say differently about the store at `root`."""
    backend = DirectoryBackend(str(root))
    try:
        entries = list(backend.entries())
    except PerdureError:
        return []
    if len(entries) > SESSIONS_MAX:
        entries = rng.sample(entries, SESSIONS_MAX)
    return [said for entry in entries for said in _about(root, backend, entry)]


def _about(root: Path, backend: DirectoryBackend, entry: Entry) -> list[str]:
    folder = root / "sessions" / entry.name
    if entry.header is None:
        if entry.problem is not None and entry.problem.end == 0:
            return []
        other = independent_reader.read_session(folder)
        kind = "unsupported" if entry.problem and entry.problem.kind == "unsupported" else "damaged"
        return _differences(
            entry.name, [("header", None, other.header), ("end", kind, other.verdict)]
        )
    try:
        before = backend.tail(entry.header.id)
        ours = _ours(backend, entry.header.id)
        other = independent_reader.read_session(folder)
        if ours["end"] == "running" and backend.tail(entry.header.id) != before:
            return []
    except PerdureError:
        return []
    if other.header is None:
        return [f"{entry.name}: only perdure reads the header"]
    sound = other.verdict != "damaged" and not other.noise
    theirs = {
        "header": other.header["digest"],
        "count": len(other.events),
        "hash": other.tail,
        "sound": sound,
        "events": list(map(_canonical, other.events)),
        "end": other.verdict if ours["end"] != "running" else "running",
    }
    return _differences(entry.name, [(name, ours[name], theirs[name]) for name in theirs])


def _ours(backend: DirectoryBackend, session: str) -> dict[str, Any]:
    with Store(backend) as store:
        # The format page speaks of a session's own files; evidence stands beside them.
        store._witness.evidence = Evidence(None, runtime=SYSTEM)
        found = store.inspect(session)
        verified, report = found.verified, store.verify(session)
    count = verified.seq + 1 if verified is not None else 0
    events = [event for event, _ in zip(found.events, range(count), strict=False)]
    return {
        "header": found.header.digest if found.header is not None else None,
        "count": report.events,
        "hash": verified.hash if verified is not None else "",
        "sound": report._replace(content=None).sound,
        "events": [_canonical(event.as_dict()) for event in events],
        "end": found.status,
    }


def _canonical(event: dict[str, Any]) -> str:
    return json.dumps(event, sort_keys=True)


def _differences(name: str, facts: list[tuple[str, Any, Any]]) -> list[str]:
    return [
        f"{name}: {fact}: perdure says {_short(ours)}, the format page {_short(theirs)}"
        for fact, ours, theirs in facts
        if ours != theirs
    ]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "…"
