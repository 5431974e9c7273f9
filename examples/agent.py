"""An agent loop with tools; its session is kept, and the loop does not care where.

    python examples/agent.py STORE [SESSION]

STORE is a folder or a URL; with `none:` the same loop runs and nothing is stored. The model is a
function that answers from a script, so that the example needs no network.
"""

import sys
from collections.abc import Callable
from typing import Any

import perdure

TOOLS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "shout": lambda text: f"{text.upper()}!",
}


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
    with perdure.open(sys.argv[1]) as store, store.create(*sys.argv[2:3]) as session:
        print(run(session, "What do the tools say?"))
