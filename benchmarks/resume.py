"""Bringing a run back in a process that has read nothing before: what is live counts."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import perdure
from benchmarks.measure import ENCODINGS, location, log_path, opened
from benchmarks.session import EVENTS_PER_TURN, turn_events
from benchmarks.table import Row, at_most

COMPACT_EVERY = 100
SHORT, MIDDLE, LONG = 20, 220, 2_020
WHOLE = 2_000
ROUNDS = 7
FLAT, DECODE = 1.5, 2.0
FIELDS = ("resume", "state", "messages", "live_bytes", "peak_kib", "decode")

_COLD = """
import gc, json, re, sys, tempfile, time
import msgspec
import perdure

def high():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])

# Modules are loaded when they are needed first: not while the clock runs. Nor is the collector's
# first pass over all of them counted, here or for the floor.
with tempfile.TemporaryDirectory() as folder:
    warm = sys.argv[3].replace("FOLDER", folder)
    with perdure.open(warm) as store, store.create("w") as session:
        with session.turn(agent="main") as turn:
            turn.user("warm")
    with perdure.open(warm) as store, store.resume("w") as session:
        session.messages("main"), session.state.title
gc.collect()
before = high()
at = [time.perf_counter_ns()]
store = perdure.open(sys.argv[1])
session = store.resume("s")
at.append(time.perf_counter_ns())
state = session.state
title, usage = state.title, state.usage
at.append(time.perf_counter_ns())
messages = session.messages("main")
at.append(time.perf_counter_ns())
peak = high() - before
assert title and usage
text = msgspec.json.encode(messages)
with open(sys.argv[2], "wb") as file:
    file.write(text)
store.close()
print(json.dumps([at[1] - at[0], at[2] - at[1], at[3] - at[2], len(text), peak]))
"""

_BARE = """
import gc, json, sys, time
import msgspec
decoder = msgspec.json.Decoder()
gc.collect()
started = time.perf_counter_ns()
with open(sys.argv[1], "rb") as file:
    decoded = decoder.decode(file.read())
print(json.dumps(time.perf_counter_ns() - started))
"""
"""The floor: a process that reads the same messages from one file, and decodes them."""


def resumes(folder: Path, medium: str) -> Iterator[Row]:
    """Sessions of three lengths with compactions, and one long one without."""
    roots = {
        turns: _filled(folder / f"resume-{medium}-{turns}", medium, turns)
        for turns in (SHORT, MIDDLE, LONG)
    }
    found = _together(roots, medium)
    for turns in (MIDDLE, LONG):
        what = f"resume of {turns:,} turns, compacted every {COMPACT_EVERY}, against {SHORT}"
        yield at_most(what, found[turns]["all"], found[SHORT]["all"], "us", FLAT)
    whole = _filled(folder / f"resume-{medium}-whole", medium, WHOLE, compact=False)
    alone = _together({WHOLE: whole}, medium)[WHOLE]
    what = f"resume of {WHOLE:,} turns, nothing compacted, against a bare read and decode"
    facts = {name: alone[name] for name in FIELDS}
    if medium in ENCODINGS:
        yield at_most(what, alone["all"], alone["decode"], "us", DECODE, **facts)
    else:
        # The bound is that of the default; a connection for each question is what SQLite costs.
        yield Row(what, alone["all"], alone["decode"], "us", more=facts)
    yield _memory(alone)
    yield _written(folder / f"resume-{medium}-written", medium)
    if medium in ENCODINGS:
        yield _without_views(roots[LONG], medium, found[LONG]["all"])


def _filled(root: Path, medium: str, turns: int, *, compact: bool = True) -> Path:
    root.mkdir(0o700)
    with opened(root, medium) as store, store.create("s") as session:
        for turn in range(turns):
            session.append_many(turn_events(turn))
            if compact and (turn + 1) % COMPACT_EVERY == 0:
                _compact(session, turn)
    return root


def _compact(session: perdure.Session, turn: int) -> None:
    summary = [{"type": "text", "text": f"what was done up to turn {turn} " * 40}]
    session.append("context/compacted", {"summary": summary}, agent="main")


def _together(roots: dict[int, Path], medium: str) -> dict[int, dict[str, float]]:
    """Medians of several rounds, in turns so that a busy machine slows all of them."""
    samples: dict[int, list[list[int]]] = {turns: [] for turns in roots}
    for _ in range(ROUNDS):
        for turns, root in roots.items():
            samples[turns].append(_cold(root, medium))
    found = {}
    for turns, rounds in samples.items():
        medians: dict[str, float] = {
            name: statistics.median(each[index] for each in rounds)
            / (1 if name in ("live_bytes", "peak_kib") else 1000)
            for index, name in enumerate(FIELDS)
        }
        medians["all"] = statistics.median(sum(each[:3]) for each in rounds) / 1000
        found[turns] = medians
    return found


def _cold(root: Path, medium: str) -> list[int]:
    """The figures of one resume in a new process, and of the floor in another one."""
    text = root / "messages.json"
    warm = location(Path("FOLDER") / "warm", medium)
    found: list[int] = _child(_COLD, location(root, medium), str(text), warm)
    return [*found, _child(_BARE, str(text))]


def _child(program: str, *arguments: str) -> Any:
    # As where perdure is installed: modules that were compiled once are not compiled again.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    return json.loads(done.stdout)


def _memory(found: dict[str, float]) -> Row:
    """Peak memory of a resume beside the messages that it gives, as JSON."""
    events = WHOLE * EVENTS_PER_TURN
    what = f"peak memory of a resume of {events:,} events beside its live messages"
    return Row(what, found["peak_kib"] * 1024, found["live_bytes"], "bytes")


def _written(root: Path, medium: str) -> Row:
    """All bytes that checkpoints of a session ever wrote, beside its records as plain JSON."""
    root.mkdir(0o700)
    written = 0
    with opened(root, medium) as store:
        session = store.create("s")
        # Nobody is there to keep them later: each turn has its own.
        session._flusher.stop()  # noqa: SLF001 - nobody else needs to know
        backend = session._backend  # noqa: SLF001
        put = backend.put_derived

        def counted(hold: Any, name: str, data: bytes, **more: Any) -> None:
            nonlocal written
            written += len(data)
            put(hold, name, data, **more)

        setattr(backend, "put_derived", counted)  # noqa: B010
        for turn in range(WHOLE):
            session.append_many(turn_events(turn))
        session.close()
        plain = sum(len(line) for line in store.raw("s") if isinstance(line, bytes))
    what = f"bytes of all checkpoints of {WHOLE:,} turns beside the log"
    return at_most(what, written, plain, "bytes", 1)


def _without_views(root: Path, medium: str, before: float) -> Row:
    """The same once everything derived is gone."""
    with opened(root, medium) as store:
        expected = _told(store)
        shutil.rmtree(log_path(store, "s").parent / "views")
        if _told(store) != expected:
            raise RuntimeError("without its views a session says something else")
    seen = sum(_cold(root, medium)[:3]) / 1000
    return Row(f"resume of {LONG:,} turns, views deleted, against with them", seen, before, "us")


def _told(store: perdure.Store) -> Any:
    found = store.inspect("s")
    return found.messages("main"), found.state.as_dict()
