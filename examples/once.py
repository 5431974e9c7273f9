"""An effect that must not happen twice: it is paid once, whoever asks again and whoever dies.

    python examples/once.py STORE FILE

FILE stands for the world outside: each payment adds a line to it. Run again, it is another shop,
with a session of its own and orders of its own.
"""

import sys
from pathlib import Path
from typing import Any

import perdure
from perdure.errors import EffectUnknown


def main(location: str, world: Path) -> None:
    def pay() -> dict[str, Any]:
        with world.open("a") as file:
            file.write("paid 5\n")
        return {"receipt": 17}

    def pay_and_die() -> None:
        pay()
        raise KeyboardInterrupt  # As if the process ended before the outcome was written down.

    before = world.read_text().count("paid") if world.exists() else 0
    with perdure.open(location) as store, store.create() as session:
        print("first:", session.once("order-1", pay, about={"amount": 5}))
        print("again:", session.once("order-1", pay, about={"amount": 5}))
        try:
            session.once("order-2", pay_and_die)
        except KeyboardInterrupt:
            pass
    with perdure.open(location) as store, store.resume(session.id) as session:
        print("after a restart:", session.once("order-1", pay, about={"amount": 5}))
        try:
            session.once("order-2", pay)
        except EffectUnknown as unknown:
            print("order-2:", unknown.message)
            # Somebody looks it up outside, and says what it was.
            session.settle_effect("order-2", value={"receipt": 18})
        print("settled:", session.once("order-2", pay))
    print(world.read_text().count("paid") - before, "payments")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("name a store and a file: python examples/once.py STORE FILE")
    main(sys.argv[1], Path(sys.argv[2]))
