"""The agent of `perdure demo`: a scripted child process that keeps its session and gets killed.

It is what an agent's loop looks like with perdure in it, the model and the tools left out. What it
reports on its output, one line each, is only ever said after perdure acknowledged it.

    python -m perdure.cli.demo_agent STORE SESSION {begin|continue}
"""

import sys
from collections.abc import Mapping

import perdure
from perdure.model.event import Event

__all__ = ["main"]


def say(what: str) -> None:
    """Tell the parent, at once."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def keep(session: perdure.Session, turn: str, kind: str, data: object) -> Event:
    """Append an event durably, then report it."""
    event = session.append(kind, data, agent="main", turn=turn)
    say(f"acknowledged {event.seq} {event.type}")
    return event


def answer(session: perdure.Session, turn: str, text: str, *calls: Mapping[str, object]) -> None:
    """Stream an answer word by word, then keep it whole."""
    for word in text.split(" "):
        # Accepted without waiting for the disk; the message below makes all of it durable.
        session.buffer("assistant/delta", {"text": word + " "}, agent="main", turn=turn)
    content = [{"type": "text", "text": text}, *({"type": "tool-call", **call} for call in calls)]
    keep(session, turn, "assistant/message", {"content": content})


def begin(session: perdure.Session) -> None:
    """The first turn; its tool never returns."""
    keep(session, "t1", "turn/start", {})
    question = "Why does the test fail?"
    keep(session, "t1", "user/message", {"content": [{"type": "text", "text": question}]})
    keep(session, "t1", "step/start", {"step": 1})
    call = {"id": "c1", "name": "bash", "arguments": {"cmd": "pytest -q"}}
    answer(session, "t1", "Let me run the test and read what it says.", call)
    keep(session, "t1", "tool/call", call)
    say("tool running")
    sys.stdin.readline()  # The tool: it lasts until the parent is gone, or until it kills us.


def go_on(session: perdure.Session, outcome: str) -> None:
    """A second turn that starts from what recovery said of the first."""
    keep(session, "t2", "turn/start", {"parent": "t1"})
    keep(session, "t2", "user/message", {"content": [{"type": "text", "text": "Go on."}]})
    keep(session, "t2", "step/start", {"step": 1})
    text = f"The last call ended as {outcome}. Running a test twice is harmless, so I repeat it."
    call = {"id": "c2", "name": "bash", "arguments": {"cmd": "pytest -q"}}
    answer(session, "t2", text, call)
    keep(session, "t2", "tool/call", call)
    result = [{"type": "text", "text": "1 failed: expected 4, got 5"}]
    keep(session, "t2", "tool/result", {"id": "c2", "content": result})
    keep(session, "t2", "step/end", {"step": 1})
    keep(session, "t2", "turn/end", {"reason": "completed"})


def main(location: str, session_id: str, part: str) -> None:
    """Run one part of the script; errors of perdure end the process with a traceback."""
    with perdure.open(location) as store:
        if part == "begin":
            with store.create(session_id) as session:
                begin(session)
            return
        results = [e for e in store.read_from(session_id) if e.type == "tool/result"]
        with store.writer(session_id) as session:
            go_on(session, results[-1].data["error"]["code"])


if __name__ == "__main__":
    main(*sys.argv[1:])
