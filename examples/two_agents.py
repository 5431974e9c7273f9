"""Two agents in one session, who talk through a channel.

    python examples/two_agents.py STORE

Each run of the example begins another session.
"""

import sys

import perdure


def say(session: perdure.Session, agent: str, text: str) -> None:
    """One turn of an agent, whose answer goes to the channel as well."""
    with session.turn(agent=agent) as turn:
        for message in session.state.channels["plan"].messages if session.state.channels else []:
            if message.sender != agent:
                turn.user(f"{message.sender}: {message.content}", source="channel")
        with turn.step() as step:
            step.request({"model": "scripted"})
            step.message(text)
        session.send("plan", text, sender=agent, agent=agent)


def main(location: str) -> None:
    with perdure.open(location) as store, store.create() as session:
        say(session, "planner", "Read the file, then fix the test.")
        say(session, "coder", "The file is read, the test is fixed.")
        say(session, "planner", "Done.")
    with perdure.open(location) as store, store.resume(session.id) as session:
        for agent in session.state.agents:
            print(agent, [message["content"][0]["text"] for message in session.messages(agent)])
        print("channel:", [message.content for message in session.state.channels["plan"].messages])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("name a store: python examples/two_agents.py STORE")
    main(sys.argv[1])
