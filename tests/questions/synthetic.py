"""Native sessions for the questions, written through the public API, the same in every run.

Those of `sessions.json` are written by hand; their neighbours, made of `neighbours.json`, resemble
them and are what a search has to tell apart from them.
"""

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import perdure
from perdure.runtime import Runtime
from perdure.store import Session, Store

__all__ = ["Calendar", "write_sessions"]

SCRIPTS = Path(__file__).with_name("sessions.json")
PHRASES = Path(__file__).with_name("neighbours.json")
SEED = 20260214
NEIGHBOURS = 20
HOUR_MS = 3_600_000

Op = list[Any]
Script = dict[str, Any]


class Calendar(Runtime):
    """A clock that ticks when it is read, ids from a seed, and nothing that depends on a machine.

    Nothing is ever due on it: what is buffered is stored by the next commit, not by a thread.
    """

    def __init__(self) -> None:
        """Begin on the first of January 2026, 08:00 UTC."""
        self._now = 1_767_254_400_000
        self._rng = random.Random(SEED)

    def pass_hours(self, hours: int) -> None:
        """Let time go by, so that no two sessions are of one hour."""
        self._now += hours * HOUR_MS

    def now_ms(self) -> int:
        """137 ms after the last look."""
        self._now += 137
        return self._now

    def monotonic(self) -> float:
        """Always the same."""
        return 0.0

    def token(self, size: int = 8) -> str:
        """The next hex digits of the seed."""
        return self._rng.randbytes(size).hex()

    def pid(self) -> int:
        """Always the same."""
        return 4711

    def host(self) -> str:
        """Always the same."""
        return "questions"


class Scribe:
    """Writes one session as its script says; each operation is a list, its name first."""

    def __init__(self, store: Store, script: Script, session: Session | None = None) -> None:
        self._store = store
        self._script = script
        self._session = session or store.create(script["id"], cwd=script["cwd"])
        self._turn: perdure.Turn | None = None
        self._thoughts: list[str] = []
        self._calls = 0
        self._operations: dict[str, Callable[..., None]] = {
            "turn": self._begin_turn,
            "user": self._user,
            "think": self._think,
            "say": self._say,
            "call": self._call,
            "delta": self._delta,
            "fail": self._fail,
            "kill": self._kill,
            "resume": self._resume,
            "compact": self._compact,
            "state": self._state,
            "trigger": self._trigger,
            "fire": self._fire,
            "send": self._send,
            "job": self._job,
            "output": self._output,
            "job-end": self._job_end,
            "artifact": self._artifact,
            "subagent": self._subagent,
        }

    def write(self) -> None:
        """Write all of it and give the session back."""
        if title := self._script.get("title"):
            self._session.set_title(title)
        for name, *rest in self._script["events"]:
            self._operations[name](*rest)
        self._end_turn()
        self._session.close()

    # --- a turn ----------------------------------------------------------------------------------

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._turn.end()
            self._turn = None

    def _in_turn(self) -> perdure.Turn:
        if self._turn is None:
            raise ValueError(f"{self._script['id']}: no turn is open")
        return self._turn

    def _begin_turn(self, options: dict[str, Any] | None = None) -> None:
        self._end_turn()
        self._turn = self._session.turn(**(options or {}))

    def _user(self, text: str) -> None:
        self._in_turn().user(text)

    def _think(self, text: str) -> None:
        self._thoughts.append(text)

    def _blocks(self, *more: dict[str, Any]) -> list[dict[str, Any]]:
        thoughts = [{"type": "thinking", "text": text} for text in self._thoughts]
        self._thoughts = []
        return [*thoughts, *more]

    def _say(self, text: str) -> None:
        """An answer that was streamed: its deltas are all repeated by its message."""
        with self._in_turn().step() as step:
            for piece in text.split(". "):
                step.delta(piece)
            step.message(self._blocks({"type": "text", "text": text}), model="m-1")

    def _call(self, name: str, arguments: Any, result: Any, error: Any = None) -> None:
        self._calls += 1
        call = f"call-{self._calls}"
        block = {"type": "tool-call", "id": call, "name": name, "arguments": arguments}
        with self._in_turn().step() as step:
            step.message(self._blocks(block), model="m-1")
            step.call(call, name, arguments)
            step.result(call, _long(result) if isinstance(result, dict) else result, error=error)

    def _delta(self, pieces: list[str], kind: str = "text") -> None:
        """An answer that never came to its end. The step stays open."""
        step = self._in_turn().step()
        for piece in pieces:
            step.delta(piece, kind=kind, call="call-x" if kind == "arguments" else None)

    def _fail(self, code: str, message: str) -> None:
        self._in_turn().end("error", {"code": code, "message": message})
        self._turn = None

    def _kill(self) -> None:
        """The process dies: nothing ends the turn."""
        self._session.close()
        self._turn = None

    def _resume(self) -> None:
        self._session = self._store.writer(self._script["id"])

    # --- beside the turns ------------------------------------------------------------------------

    def _compact(self, summary: str) -> None:
        self._end_turn()
        self._session.compact_context(summary, before=180_000, after=9_000)

    def _state(self, key: str, value: Any, scope: str = "scratchpad") -> None:
        self._session.set_state(key, value, scope=scope)

    def _trigger(self, id: str, kind: str, state: Any) -> None:
        self._session.set_trigger(id, kind, state)

    def _fire(self, id: str, content: Any) -> None:
        self._session.fire_trigger(id, content)

    def _send(self, channel: str, sender: str, content: Any) -> None:
        self._session.send(channel, content, sender=sender)

    def _job(self, id: str, kind: str, name: str, arguments: Any) -> None:
        self._session.start_job(id, kind=kind, name=name, arguments=arguments)

    def _output(self, id: str, output: Any) -> None:
        self._session.update_job(id, output)

    def _job_end(self, id: str, status: str, result: Any, error: Any = None) -> None:
        self._session.end_job(id, status, result=result, error=error)

    def _artifact(self, name: str, text: str) -> None:
        self._session.save_artifact(name, text.encode())

    def _subagent(self, name: str, task: str, session: str, events: list[Op], *end: Any) -> None:
        """`end` is status, result and, where it failed, the error."""
        child = self._session.subagent(name, task=task, session_id=session)
        Scribe(self._store, {"id": session, "events": events}, child).write()
        status, result, error = (*end, None)[:3]
        self._session.end_subagent(session, status, result=result, error=error)


def _long(wanted: dict[str, Any]) -> str:
    """Many lines that resemble each other, with a few that do not."""
    needles = wanted["needles"]
    return "\n".join(
        needles.get(str(number)) or wanted["line"].format(n=number, s=number % 8)
        for number in range(1, wanted["lines"] + 1)
    )


# --- neighbours ----------------------------------------------------------------------------------


def _neighbour(phrases: dict[str, Any], rng: random.Random, number: int) -> Script:
    """A session of common words, whose ids, versions and lines are near those of others."""

    def filled(template: str) -> str:
        words = {kind: rng.choice(words) for kind, words in phrases["words"].items()}
        id = "".join(rng.choices("hjkmnprstuvw", k=2) + rng.choices("2345678", k=2))
        return template.format(
            **words, id=id, digit=rng.randrange(5, 9), line=rng.randrange(200, 999)
        )

    events: list[Op] = []
    for talk in [phrases["first"], *rng.sample(phrases["talk"], k=rng.randrange(1, 4))]:
        events += [["turn"], ["user", filled(talk)]]
        command = {"cmd": filled("pytest -q -k test_{noun} --maxfail={digit}")}
        events += [["call", "bash", command, filled(rng.choice(phrases["outputs"]))]]
        events += [["say", rng.choice(phrases["answers"])]]
    title = filled("Work on the {noun} service")
    return {"id": f"syn-{number}", "title": title, "cwd": "/srv/neighbours", "events": events}


def _scripts() -> Iterator[Script]:
    written: list[Script] = json.loads(SCRIPTS.read_text(encoding="utf-8"))
    yield from written
    phrases = json.loads(PHRASES.read_text(encoding="utf-8"))
    rng = random.Random(SEED)
    for number in range(len(written) + 1, len(written) + 1 + NEIGHBOURS):
        yield _neighbour(phrases, rng, number)


def _named(script: Script) -> Iterator[str]:
    yield script["id"]
    for name, *rest in script["events"]:
        if name == "subagent":
            yield rest[2]


def write_sessions(store: Store, pass_hours: Callable[[int], None]) -> list[str]:
    """Write all sessions into `store`, hours apart, and return their ids, the oldest first."""
    ids: list[str] = []
    for number, script in enumerate(_scripts()):
        pass_hours(3 + number % 17)
        Scribe(store, script).write()
        ids.extend(_named(script))
    return ids
