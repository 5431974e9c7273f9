"""The agent of `agent.py`, killed while a tool runs, and brought back.

    python examples/resumed.py STORE

A child process dies in the middle of a tool call. The parent resumes its session: the call has an
answer that says that its outcome is unknown, so the messages can go to any model as they are. Each
run of the example begins another session.
"""

import os
import signal
import subprocess
import sys

import perdure

CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[2])
import agent, perdure
agent.TOOLS["shout"] = lambda text: os.kill(os.getpid(), signal.SIGKILL)
with perdure.open(sys.argv[1]) as store, store.create() as session:
    agent.run(session, "What do the tools say?")
"""


def main(location: str) -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    died = subprocess.run([sys.executable, "-c", CHILD, location, here], check=False)
    assert died.returncode == -signal.SIGKILL
    with perdure.open(location) as store, store.resume(perdure.LAST) as session:
        print("session", session.id)
        for message in session.messages(format="anthropic"):
            print(message["role"])
            for block in message["content"]:
                print("   ", block.get("text") or block.get("name") or block.get("content"))
        with session.turn() as turn:
            turn.user("You were interrupted. What do you know?")
            with turn.step() as step:
                step.request({"model": "scripted"})
                step.message("The sum is 5; whether it shouted is not known.")
        print(len(session.messages()), "messages to go on with")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name a store: python examples/resumed.py STORE")
    main(sys.argv[1])
