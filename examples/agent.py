"""An agent loop with tools; its session is kept, and the loop does not care where.

    python examples/agent.py STORE [SESSION]

STORE is a folder or a URL; with `none:` the same loop runs and nothing is stored. A SESSION that is
there already is gone on with; without one a new session is begun. The model is a
function that answers from a script, so that the example needs no network.
"""

import sys
from collections.abc import Callable
from typing import Any

import perdure
from perdure.errors import PersistenceDisabled, SessionNotFound

TOOLS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "shout": lambda text: f"{text.upper()}!",
}


def begin(store: perdure.Store, id: str | None = None) -> perdure.Session:
    """The session of this id to go on with, or a new one."""
    if id is not None:
        try:
            return store.resume(id)
        except (SessionNotFound, PersistenceDisabled):
            pass
    return store.create(id)


def model(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask for both tools at once, then answer with what they said."""
    if messages[-1]["role"] == "user":
        return [
            {"type": "text", "text": "Let me see."},
            {"type": "tool-call", "id": "c1", "name": "add", "arguments": {"a": 2, "b": 3}},
            {"type": "tool-call", "id": "c2", "name": "shout", "arguments": {"text": "hello"}},
        ]
    said = [block["content"][0]["text"] for block in messages[-1]["content"]]
    return [{"type": "text", "text": f"The tools said {' and '.join(said)}."}]


def run(session: perdure.Session, question: str) -> str:
    with session.turn() as turn:
        turn.user(question)
        while True:
            with turn.step() as step:
                step.request({"model": "scripted", "tools": [*TOOLS]})  # durable: now ask the model
                answer = model(session.messages())
                step.message(answer)
                calls = [block for block in answer if block["type"] == "tool-call"]
                for call in calls:
                    step.call(call["id"], call["name"], call["arguments"])  # durable: now run it
                    step.result(call["id"], str(TOOLS[call["name"]](**call["arguments"])))
            if not calls:
                return str(answer[0]["text"])


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(
            "name a store, and a session if you like: python examples/agent.py STORE [SESSION]"
        )
    with perdure.open(sys.argv[1]) as store, begin(store, *sys.argv[2:3]) as session:
        print(run(session, "What do the tools say?"))
