"""Everything that a store is asked for, as steps of a script: a table of functions.

Each step takes a `perdure.testing.accounts.Player`, chooses a session by its randomness, asks the
store, and leaves what was answered in the accounts.
"""

import os
from collections.abc import Callable

from perdure.testing.accounts import TORN, Account, Player
from perdure.testing.ledger import Finding

__all__ = ["OUTSIDE", "STEPS", "Step"]

_FRAGMENT = b'{"seq":7,"prev":"torn'

Step = Callable[[Player], None]


# --- writing -------------------------------------------------------------------------------------


def create(player: Player) -> None:
    """A new session with its first event."""
    name = f"s/{len(player.accounts)}"
    session, error = player.ask(lambda: player.store.create(name, cwd="/w"))
    if error is None:
        player.accounts[name] = Account(name)
        player.writers[name] = session
        player.append(name, player.event("note"))


def create_buffered(player: Player) -> None:
    """A new session whose first commit is a flush."""
    name = f"b/{len(player.accounts)}"
    session, error = player.ask(lambda: player.store.create(name))
    if error is None:
        player.accounts[name] = Account(name)
        player.writers[name] = session
        for _ in range(3):
            player.buffer(name, player.event("note"))
        if name in player.writers:
            player.flush(name)


def collide(player: Player) -> None:
    """Two writers for one new id."""
    name = f"c/{len(player.accounts)}"
    made = [player.ask(lambda: player.store.create(name)) for _ in range(2)]
    if any(error is not None for _, error in made):
        return
    (first, _), (second, _) = made
    player.accounts[name] = Account(name)
    player.writers[name] = first
    won = player.append(name, player.event("note"))
    event = player.event("note")
    answer, error = player.ask(lambda: second.append_many([event]), "session-exists")
    account = player.accounts[name]
    if error is None:
        if won:
            raise Finding(f"two writers created {name}")
        if name in player.writers:
            # The first one failed and may be tried again; it has come too late by now.
            player.ask(player.writers.pop(name).close)
        account.acknowledge(answer)
        player.writers[name] = second
        return
    named = [each for each in getattr(error, "lost", ()) if error.code != "session-exists"]
    account.refuse([event["data"]["serial"]], named, stored=True)
    player.ask(second.close, "session-exists")


def append(player: Player) -> None:
    """One durable event."""
    if name := player.any_writer():
        player.append(name, player.event("note", {"text": "x" * player.rng.randrange(300)}))


def stream(player: Player) -> None:
    """A batch that packs."""
    if name := player.any_writer():
        player.append(name, *(player.event("assistant/delta") for _ in range(8)))


def grow(player: Player) -> None:
    """A batch that is larger than what is read or written at once."""
    if name := player.any_writer():
        text = player.rng.randbytes(60_000).hex()
        player.append(name, *(player.event("note", {"text": text}) for _ in range(3)))


def buffer(player: Player) -> None:
    """Events that wait for the next commit."""
    for _ in range(3):
        if name := player.any_writer():
            player.buffer(name, player.event("assistant/delta"))


def flush(player: Player) -> None:
    """What is buffered becomes durable."""
    if name := player.any_writer():
        player.flush(name)


def fall_due(player: Player) -> None:
    """The background commit of what is buffered, without its thread."""
    if name := player.any_writer():
        player.ask(player.writers[name]._flush_due)  # noqa: SLF001


def key(player: Player) -> None:
    """A fact with a key."""
    if name := player.any_writer():
        account = player.accounts[name]
        event = player.event("fact/known", turn="t", key=f"k{len(account.repeatable)}")
        account.repeatable.append(event)
        player.append(name, event)


def repeat(player: Player) -> None:
    """The same fact once more."""
    name = player.any_writer()
    if name and player.accounts[name].repeatable:
        player.append(name, player.rng.choice(player.accounts[name].repeatable))


def open_turn(player: Player) -> None:
    """A turn that is left open with a tool at work."""
    if name := player.any_writer():
        turn = f"t{player.rng.randrange(10**9)}"
        call = {"id": turn, "name": "bash"}
        player.append(
            name,
            player.event("turn/start", turn=turn),
            player.event("tool/call", call, turn=turn),
        )


def append_by_store(player: Player) -> None:
    """The store appends to a session that nobody has open."""
    if name := player.at_rest():
        event = player.event("note")
        account = player.accounts[name]
        made, error = player.ask(lambda: player.store.append(name, [event]), *player.absent(name))
        if error is None:
            account.acknowledge(made)
        else:
            account.refuse([event["data"]["serial"]], getattr(error, "lost", ()), stored=True)


# --- opening and closing -------------------------------------------------------------------------


def close(player: Player) -> None:
    """A writer is closed."""
    if name := player.any_writer():
        player.close(name)


def reopen(player: Player) -> None:
    """A session is written again."""
    if name := player.at_rest():
        player.open(name)


def load(player: Player) -> None:
    """A session is loaded: what was open in it is closed."""
    if name := player.at_rest():
        found, error = player.ask(lambda: player.store.load(name), *player.absent(name))
        if error is None:
            player.ask(lambda: player.accounts[name].check(found.events))


def prepare(player: Player) -> None:
    """A session is reserved, and its writer taken."""
    if name := player.at_rest():
        made, error = player.ask(lambda: player.store.prepare(name), *player.absent(name))
        if error is None:
            player.writers[name] = made.session()


# --- content and whole sessions ------------------------------------------------------------------


def put(player: Player) -> None:
    """Content beside the log, and an event that refers to it."""
    if name := player.any_writer():
        session, data = player.writers[name], player.rng.randbytes(5000)
        digest, error = player.ask(lambda: session.put_blob(data))
        if error is not None:
            player.note_refusal(name, error)
        elif player.append(name, player.event("note", {"blob": digest})):
            player.accounts[name].content[digest] = data


def put_first(player: Player) -> None:
    """Content of a session that is not stored yet; its first commit takes it along."""
    name = f"p/{len(player.accounts)}"
    session, error = player.ask(lambda: player.store.create(name))
    if error is None:
        player.accounts[name] = Account(name)
        player.writers[name] = session
        data = player.rng.randbytes(500)
        digest, error = player.ask(lambda: session.put_blob(data))
        if error is not None:
            player.note_refusal(name, error)
        elif player.append(name, player.event("note", {"blob": digest})):
            player.accounts[name].content[digest] = data


def look_up(player: Player) -> None:
    """Content is read."""
    if name := player.any_stored():
        for digest in player.accounts[name].content:
            player.read_content(player.store, player.accounts[name], digest)


def expire(player: Player) -> None:
    """Content expires."""
    if name := player.at_rest():
        account = player.accounts[name]
        account.may_expire |= account.content.keys()
        player.ask(lambda: player.store.expire(name, older_than=0), *player.absent(name))


def compact(player: Player) -> None:
    """A log is stored in less room."""
    if name := player.at_rest():
        player.ask(lambda: player.store.compact(name), *player.absent(name))


def fork(player: Player) -> None:
    """A new session begins with what another one holds, content included."""
    if name := player.at_rest():
        parent, child = player.accounts[name], Account(f"f/{len(player.accounts)}")
        made, error = player.ask(
            lambda: player.store.fork(name, new_id=child.name), *player.absent(name)
        )
        known = (*parent.acknowledged, *parent.owed, *parent.unknown, *parent.held)
        child.unknown |= {*known}
        # A fork inherits keys: the next one is new to it as well.
        child.repeatable = [*parent.repeatable]
        player.accounts[child.name] = child
        if error is None:
            inherited = [e for e in parent.acknowledged.values() if e.seq < made.header.seed]
            child.acknowledge(inherited)
            named = {event.data.get("blob") for event in inherited}
            child.content = {d: data for d, data in parent.content.items() if d in named}
            child.may_expire = {*parent.may_expire}
            player.writers[child.name] = made


def delete(player: Player) -> None:
    """A session is deleted."""
    if name := player.at_rest():
        _, error = player.ask(lambda: player.store.delete(name), *player.absent(name))
        player.accounts[name].deleted = "yes" if error is None else "perhaps"


def restore(player: Player) -> None:
    """A deleted session is brought back."""
    deleted = [account for account in player.accounts.values() if account.deleted != "no"]
    if deleted:
        account = player.rng.choice(deleted)
        sure = account.deleted == "yes" and not account.purged
        also = [] if sure else ["session-not-found", "session-exists"]
        _, error = player.ask(lambda: player.store.restore(account.name), *also)
        account.deleted = "no" if error is None else "perhaps"


def empty_trash(player: Player) -> None:
    """What was deleted is removed for good."""
    for account in player.accounts.values():
        account.purged = account.purged or account.deleted != "no"
    player.ask(player.store.empty_trash)


# --- what others left ----------------------------------------------------------------------------


def log_of(player: Player, name: str) -> str | None:
    """The log of a session, if there is one."""
    place, _ = player.ask(lambda: player.store.locate(name))
    return place if place is not None and os.path.exists(place) else None


def tear(player: Player) -> None:
    """A writer died in a commit: torn bytes stand behind the log."""
    name = player.at_rest()
    if name and (log := log_of(player, name)):
        with open(log, "ab") as file:
            file.write(_FRAGMENT)
        player.open(name)


def forget(player: Player) -> None:
    """The tail file was lost, so nothing tells what was acknowledged."""
    name = player.at_rest()
    if name and (log := log_of(player, name)):
        os.truncate(os.path.join(os.path.dirname(log), "tail"), 0)
        player.open(name)


def leave_building(player: Player) -> None:
    """A writer died while it built a session; the next one that builds sweeps it away."""
    place = os.path.join(player.path, "new")
    if os.path.isdir(place):
        half = os.path.join(place, f"half{player.rng.randrange(10**9)}")
        os.mkdir(half, 0o700)
        for name in ("lock", "log.jsonl"):
            with open(os.open(os.path.join(half, name), os.O_CREAT | os.O_WRONLY, 0o600), "wb"):
                pass
        create(player)


# --- reading -------------------------------------------------------------------------------------


def read(player: Player) -> None:
    """A session is read from its start, and from some event on."""
    if name := player.any_stored():
        account = player.accounts[name]
        events, _ = player.ask(lambda: [*player.store.read_from(name)], *player.absent(name))
        if events is not None:
            account.check(events)
            seq = player.rng.randrange(len(events) + 1)
            rest, _ = player.ask(lambda: [*player.store.read_from(name, seq)])
            if rest is not None and rest != events[seq:]:
                raise Finding(f"{name} from {seq} on: {rest}")


def inspect(player: Player) -> None:
    """A session is looked at."""
    name = player.any_stored()
    if name is None:
        return
    found, error = player.ask(lambda: player.store.inspect(name), *player.absent(name))
    if error is not None:
        return
    writer = player.writers.get(name)
    writes = writer is not None and not writer.closed and writer.position.seq >= 0
    if (found.holder is not None) != writes:
        raise Finding(f"{name} is held by {found.holder}, and written by {writer}")
    events, error = player.ask(lambda: [*found.events])
    if error is None:
        player.accounts[name].check(events)
    problems, error = player.ask(lambda: found.problems)
    if error is None and {problem.kind for problem in problems} - TORN:
        raise Finding(f"{name} has {problems}")
    player.ask(lambda: (found.status, found.position, found.closers))


def verify(player: Player) -> None:
    """A session is verified; while the system fails the report may say that it cannot be read."""
    if name := player.any_stored():
        report, error = player.ask(lambda: player.store.verify(name), *player.absent(name))
        if error is not None or report.sound:
            return
        content = report.content
        no_content = content is not None and content.unreadable and not content.damaged
        if not player.failing() or (report.events and not no_content):
            raise Finding(f"{name}: {report}")


def survey(player: Player) -> None:
    """The store is listed, and every line of a session is read."""
    entries, error = player.ask(player.store.list)
    if error is None:
        sure = {name for name, account in player.accounts.items() if not player.absent(name)}
        if missing := sure - {entry.id for entry in entries}:
            raise Finding(f"not listed: {missing}")
        silent = [entry for entry in entries if entry.header is None and not entry.problem]
        if silent or (any(entry.problem for entry in entries) and not player.failing()):
            raise Finding(f"listed: {entries}")
    if name := player.any_stored():
        player.ask(lambda: [*player.store.raw(name)], *player.absent(name))


STEPS: dict[str, Step] = {
    step.__name__: step
    for step in (
        create, create_buffered, collide, append, stream, grow, buffer, flush, fall_due, key,
        repeat, open_turn, append_by_store, close, reopen, load, prepare, tear, forget,
        leave_building, put, put_first, look_up, expire, compact, fork, delete, restore,
        empty_trash, read, inspect, verify, survey,
    )
}  # fmt: skip
"""What a script is made of."""

OUTSIDE = frozenset({"tear", "forget", "leave_building"})
"""Steps that write into the store's files themselves, as a dying process does."""
