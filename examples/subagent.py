"""A sub-agent: a session of its own, with its parent's name on it.

    python examples/subagent.py STORE

Each run of the example begins another pair of sessions.
"""

import sys

import perdure


def work(session: perdure.Session, task: str) -> str:
    """What the sub-agent does, in its own session."""
    with session.turn() as turn:
        turn.user(task)
        with turn.step() as step:
            step.request({"model": "scripted"})
            step.message(f"{task}: three files.")
    return f"{task}: three files."


def main(location: str) -> None:
    with (
        perdure.open(location) as store,
        store.create() as session,
        session.turn() as turn,
    ):
        turn.user("How many files are there?")
        with session.subagent("counter", task="Count the files", id="a1") as child:
            result = work(child, "Count the files")
        session.end_subagent("a1", "completed", result=result)
        with turn.step() as step:
            step.request({"model": "scripted"})
            step.message(result)
    with perdure.open(location) as store, store.resume(session.id) as session:
        for each in session.state.subagents.values():
            print(each.name, each.status, each.result)
            print(store.inspect(str(each.session)).header)
        print([child.session for child in store.children(session.id)])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name a store: python examples/subagent.py STORE")
    main(sys.argv[1])
