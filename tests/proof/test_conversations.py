"""Nothing acknowledged is lost or doubled, whoever dies, and nobody sees what is another's."""

import random
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import perdure
from perdure.conversations import Conversation, Conversations, Message, Principal, RunningTurn
from perdure.errors import (
    ConversationBusy,
    ConversationNotFound,
    EffectUnknown,
    PerdureError,
    RequestConflict,
    RevisionConflict,
)
from perdure.model.identity import escape_id
from perdure.testing.crash import (
    ANY,
    Death,
    Executioner,
    crash_points,
    forked,
    in_own_process,
)
from perdure.testing.ledger import Finding, Note
from tests.lock_order import LockOrder
from tests.proof.summary import summarise, tabulate
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

MEDIA = ("zst", "raw", "sqlite")
PRINCIPALS = {"alice": "xylophone", "bob": "quagmire"}
"""Each has a word of its own, in everything that it says, asks and is called."""


def place_in(folder: str, medium: str) -> str:
    return f"sqlite:{folder}/store.db" if medium == "sqlite" else f"{folder}/store"


def open_at(folder: str, medium: str, *, index: bool = False) -> perdure.Store:
    if medium == "sqlite":
        return perdure.open(place_in(folder, medium), index=index)
    return perdure.open(place_in(folder, medium), encoding=medium, index=index)


def read_all(chat: Conversation, cursor: str | None = None, limit: int = 200) -> list[Message]:
    found: list[Message] = []
    while True:
        page = chat.messages(cursor, limit=limit)
        found += page.messages
        cursor = page.cursor
        if not page.more:
            return found


def named(messages: list[Message]) -> list[tuple[int, str]]:
    return [(each.seq, each.request) for each in messages]


def told(store: perdure.Store, who: str, id: str) -> list[int]:
    """The numbers of the messages that an agent was told."""
    main = store.namespace("perdure.principals", who, "main")
    return [each.data["message"] for each in main.read_from(id, types=["user/message"])]


# --- nobody sees what is another's ----------------------------------------------------------------


def check_apart(store: perdure.Store, folder: str) -> int:
    """Demand that nothing of a principal is in what is another's; how much was looked at."""
    seen = 0
    for who in PRINCIPALS:
        said = [*said_to(store, who), *stored_of(store, folder, who)]
        seen += len(said)
        for other, word in PRINCIPALS.items():
            there = any(word.encode() in each for each in said)
            if there != (other == who):
                raise Finding(f"the word of {other} is {'' if there else 'not '}with {who}")
    return seen


def said_to(store: perdure.Store, who: str) -> Iterator[bytes]:
    """Whatever a principal is told."""
    mine = Conversations(store).of(who)
    control = store.namespace("perdure.principals", who, "control")
    for entry in control.list():
        with suppress(ConversationNotFound):
            chat = mine.conversation(entry.id)
            yield repr((read_all(chat), chat.profile(), chat.waiting())).encode()
    main = store.namespace("perdure.principals", who, "main")
    yield repr([entry.header for entry in main.list()]).encode()
    others = [name for name in PRINCIPALS if name != who]
    for other in others:
        for entry in store.namespace("perdure.principals", other, "control").list():
            for ask in (mine.conversation, mine.delete):
                try:
                    ask(entry.id)
                except ConversationNotFound as error:
                    yield str(error).encode()
                else:
                    raise Finding(f"{who} has a conversation of {other}")


def stored_of(store: perdure.Store, folder: str, who: str) -> Iterator[bytes]:
    """Whatever is stored for a principal, as lines and as files."""
    for part in ("catalog", "main", "control"):
        below = store.namespace("perdure.principals", who, part)
        for entry in below.list():
            yield from (line for line in below.raw(entry.id) if isinstance(line, bytes))
    own = Path(folder, "store", "ns", escape_id("perdure.principals"), "ns", escape_id(who))
    for path in own.rglob("*"):
        if path.is_file():
            yield path.read_bytes()


# --- killed at every point ------------------------------------------------------------------------


class Script:
    """What two users and their agents do, step by step; each may be repeated as it is."""

    def __init__(self, store: perdure.Store, note: Callable[[Note], None]) -> None:
        self.store = store
        self.note = note
        self.desk = Conversations(store)

    def run(self) -> None:
        """Everything, from the beginning."""
        for who, word in PRINCIPALS.items():
            self._talk(self.desk.of(who), who, word)
        self._regret(self.desk.of("alice"))

    def _talk(self, mine: Principal, who: str, word: str) -> None:
        chat = mine.create(f"begin {word}", {"word": word})
        self._tell("created", who, "begin", id=chat.id)
        self._post(who, chat, "p1", f"one {word}")
        self._post(who, chat, "p2", f"two {word}", when_busy="steer")
        self._read(who, chat)
        with chat.turn() as turn:
            turn.take()
            self._tell("taken", who, "p1", seqs=[each.seq for each in read_all(chat)][:2])
            self._post(who, chat, "p3", f"three {word}")
            profile = chat.set_profile(f"set {word}", {"new": word}, expected_revision=0)
            self._tell("set", who, "set", revision=profile.revision)
            self._post(who, chat, "p4", f"four {word}", when_busy="steer")
            turn.take()
            self._reply(who, turn, "a1", f"answer {word}")
            self._read(who, chat)
        with chat.turn() as turn:
            turn.take()
            self._reply(who, turn, "a2", f"another {word}")
            try:
                turn.once("mail", lambda: word)
            except EffectUnknown:
                # Killed in the middle of it: nobody knows, which is what is promised.
                turn.session.settle_effect("mail", word)
        self._post(who, chat, "p5", f"five {word}")

    def _regret(self, mine: Principal) -> None:
        """A conversation that is deleted; when that is done its request finds nothing."""
        word = PRINCIPALS["alice"]
        try:
            chat = mine.create("regretted", {"word": word})
            chat.post("p", word)
        except ConversationNotFound:
            return
        try:
            mine.delete(chat.id)
        except ConversationNotFound:
            return
        self._tell("deleted", "alice", "regretted", id=chat.id)

    def _tell(self, kind: str, who: str, name: str, **facts: Any) -> None:
        self.note(Note(kind, f"{who} {name}", facts=facts))

    def _post(
        self, who: str, chat: Conversation, name: str, text: str, when_busy: str = "follow-up"
    ) -> None:
        accepted = chat.post(f"{name} of {who}", text, when_busy=when_busy)
        self._tell("said", who, f"{name} of {who}", seq=accepted.seq)

    def _reply(self, who: str, turn: RunningTurn, name: str, text: str) -> None:
        reply = turn.reply(f"{name} of {who}", text)
        self._tell("said", who, f"{name} of {who}", seq=reply.seq)

    def _read(self, who: str, chat: Conversation) -> None:
        page = chat.messages(limit=2)
        seen = [*named(page.messages)]
        self._tell("read", who, page.cursor, seen=seen)


class Records:
    """What children were told, which must hold for ever."""

    def __init__(self) -> None:
        self.created: dict[str, str] = {}
        self.said: dict[tuple[str, str], int] = {}
        self.read: list[tuple[str, str, list[tuple[int, str]]]] = []
        self.deleted: set[str] = set()
        self.revisions: dict[str, int] = {}

    def take(self, note: Note) -> None:
        """Keep it; what was told before must be told again."""
        who, _, name = note.session.partition(" ")
        facts = note.facts
        if note.kind == "created":
            if self.created.setdefault(who, facts["id"]) != facts["id"]:
                raise Finding(f"{who} has another conversation for the same request")
        elif note.kind == "said":
            if self.said.setdefault((who, name), facts["seq"]) != facts["seq"]:
                raise Finding(f"{name} has another number: {facts['seq']}")
        elif note.kind == "read":
            seen = [(seq, request) for seq, request in facts["seen"]]
            self.read.append((who, name, seen))
        elif note.kind == "deleted":
            self.deleted.add(facts["id"])
        elif (
            note.kind == "set"
            and self.revisions.setdefault(who, facts["revision"]) != (facts["revision"])
        ):
            raise Finding("a repeat has set the profile again")

    def check(self, store: perdure.Store) -> None:
        """Demand that all of it holds in a store, which is only read."""
        desk = Conversations(store)
        whole = {}
        for who, id in self.created.items():
            whole[who] = read_all(desk.of(who).conversation(id), limit=3)
            seqs = [each.seq for each in whole[who]]
            if seqs != sorted(set(seqs)):
                raise Finding(f"numbers are doubled or out of order: {seqs}")
            requests = Counter(each.request for each in whole[who])
            if any(count > 1 for count in requests.values()):
                raise Finding(f"a message is doubled: {requests}")
            if any(each.content is None for each in whole[who]):
                raise Finding("a message has no content")
            numbers = told(store, who, id)
            if len(numbers) != len(set(numbers)):
                raise Finding(f"an agent was told something twice: {numbers}")
        for (who, request), seq in self.said.items():
            if (seq, request) not in named(whole[who]):
                raise Finding(f"{request} of {who} was acknowledged as {seq}, and is gone")
        for who, cursor, seen in self.read:
            chat = desk.of(who).conversation(self.created[who])
            if seen + named(read_all(chat, cursor)) != named(whole[who]):
                raise Finding(f"the order has changed for a reader of {who}: {seen}")
        for id in self.deleted:
            with suppress(ConversationNotFound):
                desk.of("alice").conversation(id)
                raise Finding("a deleted conversation is back")

    def check_done(self, store: perdure.Store) -> None:
        """Demand the end of the script, exactly."""
        expected = {"p1", "p2", "p3", "p4", "p5", "a1", "a2"}
        for who, word in PRINCIPALS.items():
            chat = Conversations(store).of(who).conversation(self.created[who])
            found = read_all(chat)
            if sorted(each.request for each in found) != sorted(f"{e} of {who}" for e in expected):
                raise Finding(f"{who} has {[each.request for each in found]}")
            if chat.profile().values != {"new": word}:
                raise Finding(f"the profile of {who} is {chat.profile().values}")
            waiting = [each.request for each in chat.waiting()]
            if waiting not in ([f"p5 of {who}"], []):
                raise Finding(f"{waiting} wait")
            users = [each.seq for each in found if each.role == "user" and each.status == "taken"]
            if sorted(told(store, who, chat.id)) != users:
                raise Finding(f"{who}'s agent was told {told(store, who, chat.id)}, not {users}")


def kill_conversations(
    folder: str, seed: int, kills: int, first: str | None = None
) -> dict[str, int]:
    """Kill children that converse at every point of the package, and at any other in between.

    `first` is the point to begin with.
    """
    rng = random.Random(seed)
    points = [*crash_points("perdure.conversations"), *crash_points()]
    own = crash_points("perdure.conversations")
    counts: Counter[str] = Counter()
    visits = {medium: visited(f"{folder}/{medium}-whole", medium) for medium in MEDIA}
    # Every point on every medium, or on one of them where a tenth is drawn.
    where = [(m, p) for p in own for m in (MEDIA if SOAK else (rng.choice(MEDIA),))]
    orders = [[(m, Death(point, rng.randint(1, visits[m][point])))] for m, point in where]
    orders.sort(key=lambda order: order[0][1].point != first)
    while sum(map(len, orders)) < max(kills, len(orders)):
        medium = rng.choice(MEDIA)
        some = [point for point in (*points, *[ANY] * len(points)) if visits[medium].get(point)]
        chosen = rng.choices(some, k=rng.randint(1, 3))
        orders.append(
            [(medium, Death(each, rng.randint(1, visits[medium][each]))) for each in chosen]
        )
    for number, order in enumerate(orders):
        place = f"{folder}/{number}"
        Path(place).mkdir(mode=0o700)
        try:
            _live(place, order, counts)
        except Finding as finding:
            finding.add_note(f"store {number}: {order}")
            raise
    return dict(counts)


def visited(place: str, medium: str) -> dict[str, int]:
    """How often a child that nobody kills comes to each point."""
    Path(place).mkdir(mode=0o700)
    found: dict[str, int] = {}
    for note in forked(partial(_work, place, medium, Death()), "the first child"):
        if note.kind == "visits":
            found = note.facts
    return found


def _work(place: str, medium: str, death: Death, note: Callable[[Note], None]) -> None:
    executioner = Executioner(death, note)
    executioner.arm()
    with open_at(place, medium) as store:
        Script(store, note).run()
    note(Note("visits", facts=dict(executioner.visits)))


def _check(
    place: str,
    medium: str,
    records: Records,
    note: Callable[[Note], None],
    *,
    done: bool = False,
) -> None:
    with open_at(place, medium) as store:
        records.check(store)
        if done:
            records.check_done(store)
            note(Note("looked at", facts={"texts": check_apart(store, place)}))
            for who in PRINCIPALS:
                for part in ("catalog", "main", "control"):
                    below = store.namespace("perdure.principals", who, part)
                    for entry in below.list():
                        report = below.verify(entry.id)
                        if report.status != "ok":
                            raise Finding(f"{part} is {report.status}")


def _live(place: str, order: list[tuple[str, Death]], counts: Counter[str]) -> None:
    """Children that die one after the other on one store, then one that comes to the end."""
    records = Records()
    medium = order[0][0]
    for _, death in order:
        for note in forked(partial(_work, place, medium, death), f"a child with {death}"):
            if note.kind == "died":
                counts[f"{death.point} {medium}"] += 1
                counts["kills"] += 1
            elif note.kind == "finished":
                counts["finished"] += 1
            else:
                records.take(note)
        for _note in forked(partial(_check, place, medium, records), "the reader"):
            pass
    for note in forked(partial(_work, place, medium, Death()), "the last child"):
        records.take(note)
    check = partial(_check, place, medium, records, done=True)
    for note in forked(check, "the last reader"):
        if note.kind == "looked at":
            counts["texts searched"] += note.facts["texts"]


def test_kills_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    """Killed at every point, what was acknowledged is there, once, and repeats finish the rest."""
    kills = scaled(200)
    counts = in_own_process(
        "tests.proof.test_conversations:kill_conversations",
        folder=str(tmp_path),
        seed=seed,
        kills=kills,
    )
    summarise("killed conversations", seed, counts)
    points = crash_points("perdure.conversations")
    assert len(points) > 10
    hits = {point: [f"{point} {medium}" in counts for medium in MEDIA] for point in points}
    assert all(all(each) if SOAK else any(each) for each in hits.values())
    assert counts["kills"] >= min(kills, len(points))
    assert counts["texts searched"] > 0


# --- the harness finds desks that keep less -------------------------------------------------------


def careless_take(turn: RunningTurn, _into: object = None) -> list[Message]:
    """Says that messages are taken before the agent was told."""
    with turn._lock:
        end = turn._control.end()
        due = turn._due(turn._reader.waiting(end))
        if due:
            from perdure.conversations.turns import _Told
            from perdure.durable import crash

            with turn._control.writing() as control:
                turn._say_taken(control, _Told(None, end.seq, end.seq, -1), len(due))
            crash.point("conversation.told")
            turn._tell(due, None)
        return due


def careless_reply(turn: RunningTurn, request: str, content: str) -> Message:
    """Says a reply in the control log under a key that is new each time."""
    from perdure.conversations import turns

    fresh = f"{request} {perdure.runtime.SYSTEM.token()}"
    said = turns.RunningTurn._reply_once(turn, fresh, content)  # type: ignore[attr-defined]
    return said._replace(request=request)  # type: ignore[no-any-return]


def kill_careless(folder: str, seed: int, kills: int, what: str) -> dict[str, int]:
    """Kill children of a desk that is not careful."""
    turn: Any = RunningTurn
    turn._reply_once = RunningTurn.reply
    setattr(turn, what, {"take": careless_take, "reply": careless_reply}[what])
    point = {"take": "conversation.told", "reply": "conversation.replied"}[what]
    return kill_conversations(folder, seed, kills, point)


@pytest.mark.parametrize(
    ("what", "finding"),
    [("take", "was told"), ("reply", "is gone|another number|has \\[")],
)
def test_kills_find_a_careless_desk(tmp_path: Path, seed: int, what: str, finding: str) -> None:
    """The harness finds a turn that says too early what it took, and one that repeats itself."""
    with pytest.raises(Finding, match=finding):
        in_own_process(
            "tests.proof.test_conversations:kill_careless",
            folder=str(tmp_path),
            seed=seed,
            kills=20,
            what=what,
        )


# --- random lives ---------------------------------------------------------------------------------

POSTER = """
import sys, perdure
from perdure.conversations import Conversations
place, who, id, name, word, count = sys.argv[1:]
with perdure.open(place, index=False) as store:
    chat = Conversations(store).of(who).conversation(id)
    for number in range(int(count)):
        accepted = chat.post(f"{name}-{number}", f"{word} {name}-{number}")
        print(f"{name}-{number}", accepted.seq)
"""


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    """Call it in another thread, whose locks are its own; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except PerdureError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return raised[0] if raised else None


class Said(NamedTuple):
    """A message as the model knows it."""

    seq: int
    role: str
    when_busy: str | None
    text: str


class Life:
    """What one conversation must hold."""

    def __init__(self, who: str, id: str, request: str, profile: dict[str, Any]) -> None:
        self.who = who
        self.id = id
        self.request = request
        self.begun_with = profile
        self.profile = profile
        self.revision = 0
        self.said: dict[str, Said] = {}
        self.taken: set[str] = set()
        self.readers: list[tuple[str | None, list[tuple[int, str]]]] = [(None, [])]
        self.turn: RunningTurn | None = None
        self.begun = False

    def waiting(self) -> list[str]:
        """The requests that no turn took, in order."""
        due = [name for name, each in self.said.items() if each.role == "user"]
        return sorted(set(due) - self.taken, key=lambda name: self.said[name].seq)


class Lives:
    """A random life of two principals with several conversations, and the model of it."""

    def __init__(self, folder: str, medium: str, rng: random.Random) -> None:
        self.folder = folder
        self.medium = medium
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.lives: list[Life] = []
        self.gone: list[Life] = []
        self.fresh = 0
        self._open()

    def _open(self) -> None:
        one = self.medium == "memory"
        if one:
            self.stores = [perdure.open("memory:")]
        else:
            self.stores = [
                open_at(self.folder, self.medium, index=index) for index in (True, False)
            ]
        self.desks = [Conversations(store) for store in self.stores]

    def close(self) -> None:
        """End what runs, and close everything."""
        for life in self.lives:
            self.end(life)
        for store in self.stores:
            store.close()

    def name(self, kind: str, who: str) -> str:
        """An id that nobody had."""
        self.fresh += 1
        odd = self.rng.choice(["", " ", "/../", "é", "\ud800", "'"])
        return f"{kind}{odd}{self.fresh} {PRINCIPALS[who]}"

    def mine(self, who: str) -> Principal:
        return self.rng.choice(self.desks).of(who)

    def chat(self, life: Life) -> Conversation:
        return self.mine(life.who).conversation(life.id)

    # --- what happens ----------------------------------------------------------------------------

    def step(self) -> None:
        """One thing, and a look at what it was about."""
        if len(self.lives) < 2:
            self.create()
            return
        ops: list[tuple[Callable[[Life], None], int]] = [
            (self.post, 10),
            (self.post_again, 4),
            (self.burst, 3),
            (self.begin, 6),
            (self.take, 8),
            (self.reply, 6),
            (self.end, 3),
            (self.set_profile, 4),
            (self.read_on, 6),
        ]
        rare: list[tuple[Callable[[], None], int]] = [(self.create, 2), (self.delete, 1)]
        if self.medium != "memory":
            rare.append((self.reopen, 1))
            ops.append((self.processes, 1))
        every: list[tuple[Callable[..., None], int]] = [*ops, *rare]
        (op,) = self.rng.choices([op for op, _ in every], [weight for _, weight in every])
        self.counts[op.__name__] += 1
        if any(op == each for each, _ in rare):
            op()
            return
        life = self.rng.choice(self.lives)
        op(life)
        self.check(life)

    def create(self) -> None:
        who = self.rng.choice([*PRINCIPALS])
        mine = self.mine(who)
        known = [life for life in self.lives if life.who == who]
        if known and self.rng.random() < 0.4:
            life = self.rng.choice(known)
            assert self.mine(who).create(life.request, life.begun_with).id == life.id
            with pytest.raises(RequestConflict):
                mine.create(life.request, {"other": PRINCIPALS[who]})
            return
        request, profile = self.name("r", who), {"word": PRINCIPALS[who]}
        self.lives.append(Life(who, mine.create(request, profile).id, request, profile))

    def delete(self) -> None:
        if len(self.lives) < 4:
            return
        life = self.rng.choice(self.lives)
        if life.turn is not None:
            refused = elsewhere(lambda: self.mine(life.who).delete(life.id))
            assert isinstance(refused, ConversationBusy)
            return
        self.mine(life.who).delete(life.id)
        self.lives.remove(life)
        self.gone.append(life)

    def reopen(self) -> None:
        self.close()
        self._open()

    def post(self, life: Life) -> None:
        when_busy = self.rng.choice(["follow-up", "follow-up", "steer", "refuse"])
        name, text = self.name("p", life.who), f"{PRINCIPALS[life.who]} {self.rng.random()}"
        if when_busy == "refuse" and life.turn is not None:
            with pytest.raises(ConversationBusy):
                self.chat(life).post(name, text, when_busy=when_busy)
            return
        accepted = self.chat(life).post(name, text, when_busy=when_busy)
        assert not accepted.replayed
        life.said[name] = Said(accepted.seq, "user", when_busy, text)

    def post_again(self, life: Life) -> None:
        posted = [name for name, each in life.said.items() if each.role == "user"]
        if not posted:
            return
        name = self.rng.choice(posted)
        one = life.said[name]
        again = self.chat(life).post(name, one.text, when_busy=str(one.when_busy))
        status = "taken" if name in life.taken else "accepted"
        assert (again.seq, again.replayed, again.status) == (one.seq, True, status)
        with pytest.raises(RequestConflict):
            self.chat(life).post(name, "changed", when_busy=str(one.when_busy))

    def burst(self, life: Life) -> None:
        """Threads that post at once, through all desks; one request is common to all."""
        word = PRINCIPALS[life.who]
        common = self.name("c", life.who)
        names = [[common, *(self.name("t", life.who) for _ in range(2))] for _ in range(4)]
        found: list[list[tuple[str, int]]] = [[] for _ in names]

        def post(number: int) -> None:
            chat = self.desks[number % len(self.desks)].of(life.who).conversation(life.id)
            for name in names[number]:
                accepted = chat.post(name, f"{word} {name}", when_busy="follow-up")
                found[number].append((name, accepted.seq))

        threads = [threading.Thread(target=post, args=(n,)) for n in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for posted in found:
            assert len(posted) == 3
            assert [seq for _, seq in posted[1:]] == sorted(seq for _, seq in posted[1:])
            for name, seq in posted:
                one = Said(seq, "user", "follow-up", f"{word} {name}")
                assert life.said.setdefault(name, one) == one

    def processes(self, life: Life) -> None:
        """Two other processes that post at once, while this one does."""
        word = PRINCIPALS[life.who]
        children = []
        for _ in range(2):
            self.fresh += 1
            order = [place_in(self.folder, self.medium), life.who, life.id, f"x{self.fresh}"]
            command = [sys.executable, "-c", POSTER, *order, word, "3"]
            children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for _ in range(3):
            self.post(life)
        for child in children:
            printed, _ = child.communicate(timeout=60)
            assert child.returncode == 0
            lines = [line.rpartition(" ") for line in printed.splitlines()]
            assert len(lines) == 3
            for name, _, seq in lines:
                life.said[name] = Said(int(seq), "user", "follow-up", f"{word} {name}")

    def begin(self, life: Life) -> None:
        if life.turn is not None:
            refused = elsewhere(lambda: self.chat(life).turn())
            assert isinstance(refused, ConversationBusy)
            return
        life.turn, life.begun = self.chat(life).turn(), False

    def take(self, life: Life) -> None:
        if life.turn is None:
            return
        due = [
            name
            for name in life.waiting()
            if not life.begun or life.said[name].when_busy == "steer"
        ]
        assert [each.request for each in life.turn.waiting()] == due
        assert [each.request for each in life.turn.take()] == due
        life.taken |= {*due}
        life.begun = True

    def reply(self, life: Life) -> None:
        if life.turn is None:
            return
        replies = [name for name, each in life.said.items() if each.role == "assistant"]
        if replies and self.rng.random() < 0.3:
            name = self.rng.choice(replies)
            assert life.turn.reply(name, life.said[name].text).seq == life.said[name].seq
            with pytest.raises(RequestConflict):
                life.turn.reply(name, "changed")
            return
        name, text = self.name("a", life.who), f"answer {PRINCIPALS[life.who]}"
        life.said[name] = Said(life.turn.reply(name, text).seq, "assistant", None, text)

    def end(self, life: Life) -> None:
        if life.turn is not None:
            life.turn.end()
            life.turn = None

    def set_profile(self, life: Life) -> None:
        name, wanted = self.name("s", life.who), {"word": PRINCIPALS[life.who], "n": self.fresh}
        if self.rng.random() < 0.3:
            with pytest.raises(RevisionConflict) as stale:
                self.chat(life).set_profile(name, wanted, expected_revision=life.revision + 1)
            assert stale.value.current == life.revision
            return
        done = self.chat(life).set_profile(name, wanted, expected_revision=life.revision)
        again = self.chat(life).set_profile(name, wanted, expected_revision=life.revision)
        assert again == done
        life.revision, life.profile = done.revision, wanted

    def read_on(self, life: Life) -> None:
        number = self.rng.randrange(len(life.readers))
        cursor, seen = life.readers[number]
        page = self.chat(life).messages(cursor, limit=self.rng.choice([1, 2, 7, 200]))
        life.readers[number] = (page.cursor, seen + named(page.messages))
        if self.rng.random() < 0.2:
            life.readers.append((cursor, seen))

    # --- what must hold --------------------------------------------------------------------------

    def check(self, life: Life) -> None:
        chat = self.chat(life)
        found = read_all(chat, limit=self.rng.choice([3, 50, 200]))
        expected = sorted(life.said.items(), key=lambda item: item[1].seq)
        assert named(found) == [(each.seq, name) for name, each in expected]
        for message in found:
            said = life.said[message.request]
            assert message.content == [{"type": "text", "text": said.text}]
            assert (message.role, message.when_busy) == (said.role, said.when_busy)
            if said.role == "user":
                taken = message.request in life.taken
                assert message.status == ("taken" if taken else "accepted")
                assert (message.turn is not None) == taken
        assert [each.request for each in chat.waiting()] == life.waiting()
        profile = chat.profile()
        assert (profile.revision, profile.values) == (life.revision, life.profile)
        assert chat.busy == (life.turn is not None)

    def check_at_the_end(self) -> None:
        for life in self.lives:
            self.check(life)
            self.end(life)
            whole = named(read_all(self.chat(life)))
            for cursor, seen in life.readers:
                assert seen + named(read_all(self.chat(life), cursor)) == whole
            numbers = told(self.stores[0], life.who, life.id)
            assert sorted(numbers) == sorted(life.said[name].seq for name in life.taken)
        for who in PRINCIPALS:
            ids = {life.id for life in self.lives if life.who == who}
            if self.medium != "memory":
                listed = self.desks[0].of(who).conversations(limit=100)
                assert {each.id for each in listed.sessions} == ids
        for life in self.gone:
            with pytest.raises(ConversationNotFound):
                self.chat(life)
        if {life.who for life in self.lives} == {*PRINCIPALS}:
            self.counts["texts searched"] += check_apart(self.stores[0], self.folder)


@pytest.mark.parametrize("medium", ["memory", *MEDIA])
def test_random_lives_agree_with_their_model(
    tmp_path: Path, rng: random.Random, seed: int, medium: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever users, agents, threads and processes do, everybody is told what the model says."""
    counts: Counter[str] = Counter()
    for number in range(scaled(20)):
        folder = tmp_path / str(number)
        folder.mkdir()
        lives = Lives(str(folder), medium, rng)
        order = LockOrder(apart=True)
        with monkeypatch.context() as patch:
            order.observe(patch, lives.stores[0]._backend)
            for _ in range(60):
                lives.step()
            lives.check_at_the_end()
            lives.close()
        assert order.wrong == []
        assert order.kinds() == {"catalog", "main", "control"}
        counts += lives.counts
    summarise(f"lives of conversations, {medium}", seed, counts)
    assert counts["post"] > 0


# --- how long posting takes -----------------------------------------------------------------------

HOLDER = """
import sys, perdure
from perdure.conversations import Conversations
with perdure.open(sys.argv[1]) as store:
    with Conversations(store).of("alice").conversation(sys.argv[2]).turn() as turn:
        turn.take()
        with turn.recorder.step() as step:
            step.delta("at work")
            print("at work", flush=True)
            sys.stdin.readline()
"""


@contextmanager
def turn_elsewhere(place: str, id: str) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a turn."""
    command = [sys.executable, "-c", HOLDER, place, id]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "at work\n"
        yield child
        child.communicate("\n", timeout=60)
        assert child.returncode == 0


POSTS = 200 if SOAK else 50


@pytest.mark.parametrize("medium", MEDIA)
def test_no_post_waits_for_a_turn(tmp_path: Path, medium: str) -> None:
    """While another process is in the middle of a turn, every post returns; none waits for it."""
    times: dict[str, list[float]] = {}
    for index in (False, True):
        folder = tmp_path / str(index)
        folder.mkdir()
        with open_at(str(folder), medium, index=index) as store:
            chat = Conversations(store).of("alice").create("r")
            chat.post("first", "hello")
            with turn_elsewhere(place_in(str(folder), medium), chat.id) as child:
                taken = times.setdefault("with an index" if index else "without", [])
                for number in range(POSTS):
                    before = time.perf_counter()
                    chat.post(f"p{number}", f"message {number}")
                    taken.append((time.perf_counter() - before) * 1000)
                assert child.poll() is None
                assert chat.busy
            assert len(read_all(chat)) == POSTS + 1
    table = {
        name: {
            "p50 ms": f"{statistics.median(each):.2f}",
            "p95 ms": f"{statistics.quantiles(each, n=20)[-1]:.2f}",
            "max ms": f"{max(each):.2f}",
        }
        for name, each in times.items()
    }
    tabulate(f"{POSTS} posts while another process runs a turn, {medium}", table)
