"""Conversations of several users over one store: what they are told, and what they never see."""

import base64
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.conversations import Conversation, Conversations, Message, Principal
from perdure.conversations.conversation import PAGE_MAX
from perdure.conversations.cursors import CURSOR_CHARS_MAX, cursor_of
from perdure.conversations.requests import MESSAGE_BYTES_MAX, PROFILE_BYTES_MAX
from perdure.durable import crash
from perdure.errors import (
    ConversationBusy,
    ConversationNotFound,
    InvalidValue,
    PerdureError,
    RequestConflict,
    RevisionConflict,
    SessionBusy,
    SessionClosed,
)
from tests.lock_order import LockOrder
from tests.postgres.fixtures import url_in
from tests.support import soaked

KEPT = ("folder zst", "postgres:", *soaked("folder raw", "sqlite:"))
MEDIA = (*KEPT, *soaked("memory:"))
"""The proofs have the others too, also where a tenth is drawn."""

HOSTILE = [
    "..",
    ".",
    "/etc/passwd",
    "a/b\\c",
    "\x00\n\r",
    "CON",
    "A",
    "a",
    "%2e%2e",
    "'; DROP TABLE sessions; --",
    "日本語 🜚",
    "\ud800 alone",
    "x" * 1024,
    " ",
]


def open_at(medium: str, folder: Path, **more: Any) -> perdure.Store:
    if medium == "memory:":
        return perdure.open(medium, **more)
    if medium == "postgres:":
        return perdure.open(url_in(folder), **more)
    if medium == "sqlite:":
        return perdure.open(f"sqlite:{folder}/store.db", **more)
    return perdure.open(folder / "store", encoding=medium.removeprefix("folder "), **more)


@pytest.fixture(autouse=True)
def served(postgres: object) -> None:
    """Have a server run until the last of these tests has ended."""


@pytest.fixture(params=MEDIA)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_at(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture
def alice(store: perdure.Store) -> Principal:
    return Conversations(store).of("alice")


@pytest.fixture
def chat(alice: Principal) -> Conversation:
    return alice.create("begin", {"model": "m-1"})


def texts(messages: list[Message]) -> list[str]:
    return [each.content[0]["text"] if each.content else each.status for each in messages]


def read_all(chat: Conversation, limit: int = PAGE_MAX) -> list[Message]:
    """All messages, page by page."""
    found: list[Message] = []
    cursor: str | None = None
    while True:
        page = chat.messages(cursor, limit=limit)
        found += page.messages
        cursor = page.cursor
        if not page.more:
            return found


def told(chat: Conversation) -> list[tuple[int, str]]:
    """What the main log has told the agent."""
    events = chat._place.main.read_from(chat.id, types=["user/message"])
    return [(event.data["message"], event.data["content"][0]["text"]) for event in events]


def is_busy(chat: Conversation) -> bool:
    return chat.busy


# --- beginning -----------------------------------------------------------------------------------


def test_nothing_is_made_before_it_is_asked_for(tmp_path: Path) -> None:
    """A desk, and a principal that has nothing, create nothing and find nothing."""
    with perdure.open(tmp_path / "store") as store:
        mine = Conversations(store).of("alice")
        with pytest.raises(ConversationNotFound):
            mine.conversation("c-1")
        assert mine.conversations().sessions == []
    assert not (tmp_path / "store").exists()


def test_a_request_begins_one_conversation(alice: Principal) -> None:
    """The same request gives the same conversation; with another profile it is refused."""
    # heinzel 16
    chat = alice.create("r", {"model": "m-1"})
    assert alice.create("r", {"model": "m-1"}).id == chat.id
    with pytest.raises(RequestConflict) as conflict:
        alice.create("r", {"model": "m-2"})
    assert conflict.value.request == "r"
    assert alice.create("other", {"model": "m-1"}).id != chat.id
    assert chat.profile().values == {"model": "m-1"}


POINTS = ("conversation.reserved", "conversation.control")


@pytest.mark.parametrize("point", POINTS)
def test_an_interrupted_creation_is_finished_by_its_request(
    store: perdure.Store, point: str
) -> None:
    """What was begun and not finished is found by nobody until the same request finishes it."""
    # heinzel 16
    mine = Conversations(store).of("alice")

    def breaks_off(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    crash.arm(hook=breaks_off)
    with pytest.raises(KeyboardInterrupt):
        mine.create("r", {"a": 1})
    crash.arm()
    events = [*mine._place.catalog.read_from("creations")]
    reserved = events[-1].data["conversation"]
    with pytest.raises(ConversationNotFound):
        mine.conversation(reserved)
    with pytest.raises(ConversationNotFound):
        mine.delete(reserved)
    assert mine.conversations().sessions == []
    with pytest.raises(RequestConflict):
        mine.create("r", {"a": 2})

    assert mine.create("r", {"a": 1}).id == reserved
    assert mine.conversation(reserved).profile().values == {"a": 1}


def test_threads_that_begin_the_same_begin_one(store: perdure.Store) -> None:
    """A request that many threads make at once makes one conversation."""
    mine = Conversations(store).of("alice")
    found: list[str] = []
    run_together([lambda: found.append(mine.create("r").id)] * 8)
    assert len(found) == 8
    assert len(set(found)) == 1


def test_conversations_are_listed_newest_first(alice: Principal) -> None:
    """A listing has the conversations of a principal, page by page, and no sub-agents."""
    made = [alice.create(str(number)).id for number in range(5)]
    first = alice.conversations(limit=3)
    rest = alice.conversations(limit=3, after=first.cursor)
    found = [*first.sessions, *rest.sessions]
    assert sorted(each.id for each in found) == sorted(made)
    times = [each.created or 0 for each in found]
    assert times == sorted(times, reverse=True)
    assert len(first.sessions) == 3
    assert rest.cursor is None


def test_all_but_the_listing_works_without_an_index(tmp_path: Path) -> None:
    """A store without an index has conversations; only their listing is refused."""
    with perdure.open(tmp_path / "store", index=False) as store:
        mine = Conversations(store).of("alice")
        chat = mine.create("r")
        chat.post("p", "hello")
        with chat.turn() as turn:
            turn.take()
            turn.reply("a", "hi")
        assert texts(mine.conversation(chat.id).messages().messages) == ["hello", "hi"]
        with pytest.raises(InvalidValue) as refused:
            mine.conversations()
        assert refused.value.path == "index"


# --- posting -------------------------------------------------------------------------------------


def test_a_message_is_accepted_once(chat: Conversation) -> None:
    """The same request is accepted once; with other content or urgency it is refused."""
    first = chat.post("p", "hello")
    again = chat.post("p", [{"text": "hello", "type": "text"}])
    assert (first.status, first.replayed, again.replayed) == ("accepted", False, True)
    assert (again.seq, again.time) == (first.seq, first.time)
    for content, when_busy in (("other", "follow-up"), ("hello", "steer")):
        with pytest.raises(RequestConflict):
            chat.post("p", content, when_busy=when_busy)
    (message,) = chat.messages().messages
    assert message.as_dict() == {
        "seq": first.seq,
        "role": "user",
        "status": "accepted",
        "time": first.time,
        "content": [{"type": "text", "text": "hello"}],
        "request": "p",
        "when_busy": "follow-up",
        "turn": None,
    }


def test_a_repeat_says_what_became_of_it(chat: Conversation) -> None:
    """A message that was taken says so when it is posted again, and nothing is written."""
    first = chat.post("p", "hello")
    with chat.turn() as turn:
        turn.take()
    last = chat.messages().last_seq
    again = chat.post("p", "hello")
    assert again == first._replace(status="taken", replayed=True)
    assert chat.messages().last_seq == last


def test_posting_and_setting_never_wait_for_a_turn(
    store: perdure.Store, chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a turn runs, messages, profiles and pages take no lock of the main log."""
    # heinzel 17
    order = LockOrder()
    with chat.turn() as turn:
        turn.take()
        order.observe(monkeypatch, store._backend)
        before = len(order.asked)
        chat.post("p1", "one")
        chat.post("p2", "two", when_busy="steer")
        profile = chat.set_profile("s", {"model": "m-2"}, expected_revision=0)
        assert chat.profile() == profile
        assert texts(chat.messages().messages) == ["one", "two"]
        assert texts(chat.waiting()) == ["one", "two"]
        assert order.kinds_here(before) == {"control"}
        with pytest.raises(RevisionConflict) as stale:
            chat.set_profile("s2", {"model": "m-3"}, expected_revision=0)
        assert (stale.value.current, stale.value.expected) == (profile.revision, 0)
    assert order.wrong == []


def test_what_is_to_be_refused_is_refused_while_a_turn_runs(chat: Conversation) -> None:
    """A message that may not wait is refused then, unwritten; a repeat of one is answered."""
    free = chat.post("p", "now", when_busy="refuse")
    with chat.turn() as turn:
        turn.take()
        before = chat.messages().last_seq
        with pytest.raises(ConversationBusy) as busy:
            chat.post("q", "now", when_busy="refuse")
        assert busy.value.retryable
        assert busy.value.here
        assert chat.messages().last_seq == before
        assert chat.post("p", "now", when_busy="refuse").seq == free.seq
        with pytest.raises(RequestConflict):
            chat.post("p", "other", when_busy="refuse")
        assert is_busy(chat)
    assert not is_busy(chat)
    assert chat.post("q", "now", when_busy="refuse").seq > free.seq


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("path", "ask"),
    [
        ("content", lambda chat: chat.post("p", 5)),
        ("content[0]", lambda chat: chat.post("p", ["text"])),
        ("content[0].type", lambda chat: chat.post("p", [{"type": "thinking", "text": "x"}])),
        (
            "content[0].type",
            lambda chat: chat.post("p", [{"type": "tool-call", "id": "c", "name": "n"}]),
        ),
        ("content", lambda chat: chat.post("p", "x" * MESSAGE_BYTES_MAX)),
        ("data", lambda chat: chat.post("p", [{"type": "x", "deep": nested(198)}])),
        ("content[0].n", lambda chat: chat.post("p", [{"type": "x", "n": float("nan")}])),
        ("request", lambda chat: chat.post("", "x")),
        ("request", lambda chat: chat.post("x" * 1025, "x")),
        ("request", lambda chat: chat.post("\ud83d\ude00", "x")),
        ("when_busy", lambda chat: chat.post("p", "x", when_busy="later")),
        ("profile", lambda chat: chat.set_profile("s", [], expected_revision=0)),
        ("profile.a", lambda chat: chat.set_profile("s", {"a": {1}}, expected_revision=0)),
        (
            "profile",
            lambda chat: chat.set_profile("s", {"a": "x" * PROFILE_BYTES_MAX}, expected_revision=0),
        ),
        ("expected_revision", lambda chat: chat.set_profile("s", {}, expected_revision=-1)),
        ("expected_revision", lambda chat: chat.set_profile("s", {}, expected_revision=True)),
        ("limit", lambda chat: chat.messages(limit=0)),
        ("limit", lambda chat: chat.messages(limit=201)),
        ("limit", lambda chat: chat.messages(limit=True)),
        ("older_than", lambda chat: chat.expire()),
        ("older_than", lambda chat: chat.expire(older_than=-1)),
        ("wait", lambda chat: chat.turn(wait=-1)),
    ],
)
def test_what_cannot_be_asked_is_refused(
    tmp_path: Path, path: str, ask: Callable[[Conversation], object]
) -> None:
    """An argument that cannot be is refused by name, and nothing is written."""
    with perdure.open(tmp_path / "store", index=False) as store:
        chat = Conversations(store).of("alice").create("r")
        before = chat.messages().last_seq
        with pytest.raises(InvalidValue) as refused:
            ask(chat)
        assert refused.value.path.startswith(path)
        assert chat.messages().last_seq == before


def test_the_deepest_message_that_is_accepted_can_be_told(chat: Conversation) -> None:
    """Whatever is accepted is something that a turn can tell the agent."""
    for levels in itertools.count(180):
        try:
            chat.post(f"p{levels}", [{"type": "x", "deep": nested(levels)}])
        except InvalidValue:
            break
    with chat.turn() as turn:
        assert len(turn.take()) == levels - 180 > 0
    assert {each.status for each in read_all(chat)} == {"taken"}


def run_together(calls: list[Callable[[], object]]) -> None:
    """Call all at once, each in its own thread, and hear of every error."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []


def test_threads_post_one_behind_the_other(store: perdure.Store) -> None:
    """Messages that threads post at once are all there, each thread's in its order."""
    chat = Conversations(store).of("alice").create("r")
    names = [f"t{number}" for number in range(6)]

    def post(name: str) -> None:
        for number in range(8):
            chat.post(f"{name}-{number}", f"{name} {number}")

    run_together([partial(post, name) for name in names])
    found = texts(read_all(chat, limit=7))
    assert len(found) == 48
    for name in names:
        own = [text for text in found if text.startswith(f"{name} ")]
        assert own == [f"{name} {number}" for number in range(8)]


def test_threads_share_a_writer(store: perdure.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for each other do not open the control log each for itself."""
    chat = Conversations(store).of("alice").create("r")
    order = LockOrder()
    order.observe(monkeypatch, store._backend)
    posts = [partial(chat.post, f"p{number}", "x") for number in range(24)]
    with chat._control.writing():
        gate = chat._place.gates._gates[chat._control.gate]
        threads = [threading.Thread(target=post) for post in posts]
        for thread in threads:
            thread.start()
        while gate.users <= len(threads):
            threads[0].join(0.001)
    for thread in threads:
        thread.join(60)
    assert len(read_all(chat)) == 24
    assert [what.kind for _, what in order.asked] == ["control"]
    # Nobody has kept it.
    chat._place.control.writer(chat.id).close()


def test_one_request_of_many_threads_is_accepted_once(store: perdure.Store) -> None:
    """A request that many threads make at once is one message, and all are told its number."""
    chat = Conversations(store).of("alice").create("r")
    found: list[tuple[int, bool]] = []

    def post() -> None:
        accepted = chat.post("p", "hello")
        found.append((accepted.seq, accepted.replayed))

    run_together([post] * 8)
    assert len(read_all(chat)) == 1
    assert len({seq for seq, _ in found}) == 1
    assert sorted(replayed for _, replayed in found) == [False, *[True] * 7]


POSTER = """
import sys, perdure
from perdure.conversations import Conversations
store = perdure.open(sys.argv[1], index=False)
chat = Conversations(store).of("alice").conversation(sys.argv[2])
for number in range(20):
    chat.post(f"{sys.argv[3]}-{number}", f"{sys.argv[3]} {number}")
store.close()
"""


@pytest.mark.parametrize("medium", KEPT)
def test_processes_post_while_another_runs_a_turn(tmp_path: Path, medium: str) -> None:
    """Two processes post to a conversation in which a third one runs a turn: all is there once."""
    # heinzel 17
    with open_at(medium, tmp_path) as store:
        chat = Conversations(store).of("alice").create("r")
        where = {"sqlite:": f"sqlite:{tmp_path}/store.db", "postgres:": url_in(tmp_path)}.get(
            medium, str(tmp_path / "store")
        )
        with chat.turn() as turn:
            turn.take()
            children = [
                subprocess.Popen([sys.executable, "-c", POSTER, where, chat.id, name])
                for name in ("a", "b")
            ]
            for number in range(20):
                chat.post(f"c-{number}", f"c {number}", when_busy="steer")
                turn.take()
            assert [child.wait(60) for child in children] == [0, 0]
            assert turn.take() == []
        with chat.turn() as turn:
            assert len(turn.take()) == 40
        found = texts(read_all(chat, limit=9))
        assert len(found) == 60
        for name in ("a", "b", "c"):
            own = [text for text in found if text.startswith(name)]
            assert own == [f"{name} {number}" for number in range(20)]
        assert sorted(text for _, text in told(chat)) == sorted(found)


# --- turns ---------------------------------------------------------------------------------------


def test_a_turn_takes_what_waits_and_is_steered(chat: Conversation) -> None:
    """A turn takes everything when it begins; later only what steers, the rest is for the next."""
    chat.post("p1", "one")
    chat.post("p2", "two", when_busy="steer")
    with chat.turn() as turn:
        assert texts(turn.waiting()) == ["one", "two"]
        taken = turn.take()
        assert [(each.status, each.turn) for each in taken] == [("taken", turn.recorder.id)] * 2
        chat.post("p3", "three")
        chat.post("p4", "four", when_busy="steer")
        assert texts(turn.waiting()) == ["four"]
        assert texts(turn.take()) == ["four"]
        assert turn.take() == []
        spoken = [each["content"][0]["text"] for each in turn.session.messages()]
        assert spoken == ["one", "two", "four"]
        first = turn.recorder.id
    with chat.turn() as turn:
        assert texts(turn.take()) == ["three"]
        second = turn.recorder.id
    found = chat.messages().messages
    assert [(each.request, each.turn) for each in found] == [
        ("p1", first),
        ("p2", first),
        ("p3", second),
        ("p4", first),
    ]
    assert told(chat) == [(each.seq, *texts([each])) for each in (*found[:2], found[3], found[2])]


def test_a_turn_may_begin_with_nothing(chat: Conversation) -> None:
    """A turn in which nothing happens writes nothing; taking nothing ends its beginning."""
    before = chat._place.main.inspect(chat.id).position
    with chat.turn() as turn:
        assert turn.take() == []
        chat.post("p", "later")
        assert turn.waiting() == []
    assert chat._place.main.inspect(chat.id).position == before
    assert texts(chat.waiting()) == ["later"]


def test_one_turn_runs_at_a_time(chat: Conversation) -> None:
    """A second turn is refused while one runs, and a turn that has ended does nothing more."""
    chat.post("p", "hello")
    turn = chat.turn()
    with pytest.raises(ConversationBusy):
        chat.turn()
    with pytest.raises(ConversationBusy):
        chat.expire(older_than=0)
    turn.end()
    for ask in (turn.waiting, turn.take, turn.unanswered, lambda: turn.reply("a", "x")):
        with pytest.raises(SessionClosed):
            ask()
    with pytest.raises(SessionClosed):
        _ = turn.recorder
    assert texts(chat.waiting()) == ["hello"]
    chat.turn().end()


def test_a_recorder_of_the_agents_own_can_take(chat: Conversation) -> None:
    """Messages may be told in a turn of the session that the agent began itself."""
    chat.post("p", "hello")
    with chat.turn() as turn, turn.session.turn("mine") as own:
        assert [each.turn for each in turn.take(own)] == ["mine"]
        assert turn.reply("a", "hi").turn == "mine"
    types = [event.type for event in chat._place.main.read_from(chat.id, 1)]
    assert types == ["turn/start", "user/message", "conversation/reply", "turn/end"]


def test_a_reply_is_said_once(chat: Conversation) -> None:
    """A reply has its number when it returns; a repeat gives it, in later turns as well."""
    chat.post("p", "hello")
    with chat.turn() as turn:
        turn.take()
        assert [each.request for each in turn.unanswered()] == ["p"]
        first = turn.reply("a", "hi")
        assert turn.reply("a", "hi") == first
        assert turn.unanswered() == []
        with pytest.raises(RequestConflict):
            turn.reply("a", "other")
    chat.post("q", "and?")
    with chat.turn() as turn:
        assert turn.reply("a", "hi") == first
        turn.take()
        assert [each.request for each in turn.unanswered()] == ["q"]
    assert (first.role, first.status, first.when_busy) == ("assistant", "replied", None)
    assert texts(read_all(chat)) == ["hello", "hi", "and?"]


def test_an_effect_happens_once(chat: Conversation) -> None:
    """Effects of a turn are those of the main log: done once, whichever turn asks."""
    done = itertools.count(1)
    for _ in range(2):
        with chat.turn() as turn:
            assert turn.once("mail", lambda: next(done)) == 1
    assert next(done) == 2


def test_an_exception_ends_the_turn_with_it(chat: Conversation) -> None:
    """A turn that an exception leaves is closed as failed, and the next one may begin."""
    chat.post("p", "hello")

    def fails() -> None:
        with chat.turn() as turn:
            turn.take()
            raise LookupError

    with pytest.raises(LookupError):
        fails()
    ends = [*chat._place.main.read_from(chat.id, types=["turn/end"])]
    assert [each.data["reason"] for each in ends] == ["error"]
    with chat.turn() as turn:
        assert turn.waiting() == []
        assert texts(turn.unanswered()) == ["hello"]


@pytest.mark.parametrize(
    "point",
    [
        "conversation.told",
        "conversation.taken",
        "conversation.reply-body",
        "conversation.reply-named",
        "conversation.replied",
    ],
)
def test_what_broke_off_between_the_logs_is_finished(store: perdure.Store, point: str) -> None:
    """Whatever stands in the main log and not in the control log is said by the next turn, once."""
    chat = Conversations(store).of("alice").create("r")
    for number in range(3):
        chat.post(f"p{number}", str(number), when_busy=("follow-up", "steer")[number % 2])

    def breaks_off(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    def work() -> None:
        with chat.turn() as turn:
            turn.take()
            turn.reply("a", "answer")

    crash.arm(hook=breaks_off)
    with pytest.raises(KeyboardInterrupt):
        work()
    crash.arm()
    work()
    assert texts(read_all(chat)) == ["0", "1", "2", "answer"]
    assert told(chat) == [(1, "0"), (2, "1"), (3, "2")]
    assert chat.waiting() == []
    replies = [*chat._place.main.read_from(chat.id, types=["conversation/reply"])]
    assert len(replies) == 1


def test_a_turn_goes_on_after_an_error_between_the_logs(chat: Conversation) -> None:
    """The same turn finishes what an error left between the logs before it does anything else."""
    chat.post("p", "hello")
    broken = ["conversation.told", "conversation.reply-named"]

    def breaks_off(name: str) -> None:
        if name in broken:
            broken.remove(name)
            raise KeyboardInterrupt

    with chat.turn() as turn:
        crash.arm(hook=breaks_off)
        with pytest.raises(KeyboardInterrupt):
            turn.take()
        chat.post("q", "more")
        assert texts(turn.take()) == ["more"]
        with pytest.raises(KeyboardInterrupt):
            turn.reply("a", "hi")
        assert turn.reply("b", "there").seq > turn.reply("a", "hi").seq
        crash.arm()
    assert texts(read_all(chat)) == ["hello", "more", "hi", "there"]
    assert [text for _, text in told(chat)] == ["hello", "more"]


# --- how it is set -------------------------------------------------------------------------------


def test_a_profile_changes_from_what_was_seen(chat: Conversation) -> None:
    """A profile is set once for each request, and only from the revision that it has."""
    # heinzel 17
    first = chat.profile()
    assert (first.revision, first.values) == (0, {"model": "m-1"})
    second = chat.set_profile("s1", {"model": "m-2"}, expected_revision=0)
    assert second.revision > 0
    assert chat.set_profile("s1", {"model": "m-2"}, expected_revision=0) == second
    with pytest.raises(RequestConflict):
        chat.set_profile("s1", {"model": "m-3"}, expected_revision=0)
    with pytest.raises(RevisionConflict) as stale:
        chat.set_profile("s2", {"model": "m-3"}, expected_revision=0)
    assert stale.value.current == second.revision
    third = chat.set_profile("s2", {}, expected_revision=stale.value.current)
    assert chat.profile() == third
    # The old request is answered still, with what it set.
    assert chat.set_profile("s1", {"model": "m-2"}, expected_revision=0) == second


# --- pages ---------------------------------------------------------------------------------------


def test_pages_keep_their_order_over_gaps(chat: Conversation) -> None:
    """Numbers leave gaps where something else is accepted; pages of any size have the same."""
    # heinzel 18
    revision = 0
    for number in range(12):
        chat.post(f"p{number}", str(number))
        if number % 3 == 0:
            set_to = chat.set_profile(f"s{number}", {"n": number}, expected_revision=revision)
            revision = set_to.revision
    whole = read_all(chat)
    assert texts(whole) == [str(number) for number in range(12)]
    seqs = [each.seq for each in whole]
    assert seqs == sorted(set(seqs))
    assert seqs[-1] - seqs[0] > 11
    for limit in (1, 2, 5, 11, 12, 13):
        assert read_all(chat, limit) == whole
    page = chat.messages(limit=12)
    assert not page.more
    assert page.as_dict()["messages"] == [each.as_dict() for each in whole]


def test_a_cursor_leads_to_what_comes_later(chat: Conversation) -> None:
    """A cursor at the end gives what is posted after it, and nothing else."""
    # heinzel 18
    cursor = chat.messages().cursor
    for number in range(4):
        chat.post(f"p{number}", str(number))
        page = chat.messages(cursor)
        assert texts(page.messages) == [str(number)]
        assert not page.more
        assert page.last_seq == page.messages[-1].seq
        cursor = page.cursor
        assert chat.messages(cursor).messages == []
        assert chat.messages(cursor).cursor == cursor


def encoded(told: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")


def test_a_cursor_that_is_none_is_refused(alice: Principal, chat: Conversation) -> None:
    """Cursors that are malformed, too long, ahead or of another conversation are refused."""
    # heinzel 18
    chat.post("p", "hello")
    other = alice.create("other")
    good = chat.messages().cursor
    of = json.loads(base64.urlsafe_b64decode(good + "=="))["of"]
    bad: list[Any] = [
        "",
        "x",
        "!!!!",
        "é",
        good + "=",
        good + "A",
        good[:-1],
        5,
        "A" * (CURSOR_CHARS_MAX + 1),
        encoded([]),
        encoded({"v": 1, "of": of, "after": 1}),
        encoded({"v": 1, "of": of, "after": True}),
        encoded({"v": 2, "of": of, "after": 1}),
        cursor_of(chat.id, -2),
        cursor_of(chat.id, 2),
        cursor_of(chat.id, 2**70),
        other.messages().cursor,
    ]
    for cursor in bad:
        with pytest.raises(InvalidValue) as refused:
            chat.messages(cursor)
        assert refused.value.path == "cursor", cursor
    assert len(good) <= CURSOR_CHARS_MAX
    assert chat.messages(good).messages == []


def test_pages_say_which_turn_took_a_message(chat: Conversation) -> None:
    """The turn of a message is told however far behind its page it was taken."""
    for number in range(3):
        chat.post(f"p{number}", str(number), when_busy="steer" if number == 1 else "follow-up")
    with chat.turn() as turn:
        revision = 0
        for number in range(90):
            chat.set_profile(f"s{number}", {}, expected_revision=revision)
            revision = chat.profile().revision
        turn.take()
        first = turn.recorder.id
        chat.post("late", "late")
    with chat.turn() as turn:
        turn.take()
    for limit in (1, 2, 3):
        page = chat.messages(limit=limit)
        assert [each.turn for each in page.messages] == [first] * limit
        assert {each.status for each in page.messages} == {"taken"}
    assert read_all(chat)[-1].turn not in (None, first)


def test_a_page_costs_the_same_in_a_long_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages, posts and takes look at a bounded number of events, however long the log is."""
    with perdure.open(tmp_path / "store", index=False) as store:
        chat = Conversations(store).of("alice").create("r")
        for number in range(400):
            chat.post(f"p{number}", str(number))
            if number == 300:
                with chat.turn() as turn:
                    turn.take()
        middle = read_all(chat, limit=50)[149]
        read: list[int] = []
        original = perdure.Store.read_from

        def counted(self: perdure.Store, *args: Any, **more: Any) -> Any:
            for event in original(self, *args, **more):
                read.append(event.seq)
                yield event

        monkeypatch.setattr(perdure.Store, "read_from", counted)
        page = chat.messages(cursor_of(chat.id, middle.seq), limit=10)
        assert [each.seq for each in page.messages] == [*range(middle.seq + 1, middle.seq + 11)]
        assert {each.status for each in page.messages} == {"taken"}
        assert len(read) < 200
        read.clear()
        chat.post("more", "x")
        assert len(read) < 5


# --- what expires, and what is damaged -----------------------------------------------------------


def test_bodies_expire_when_somebody_says_so(chat: Conversation) -> None:
    """Expired messages stay in their places without content, and come back by no repeat."""
    chat.post("p", "hello")
    chat.post("q", "hello")
    with chat.turn() as turn:
        turn.take()
        turn.reply("a", "hi")
    assert chat.expire(older_than=3600) == 0
    assert chat.expire(older_than=0) == 3
    before = read_all(chat)
    assert [(each.status, each.content) for each in before] == [("expired", None)] * 3
    assert [each.request for each in before] == ["p", "q", "a"]
    assert chat.post("p", "hello").replayed
    with chat.turn() as turn:
        assert turn.reply("a", "hi").status == "expired"
    assert read_all(chat) == before
    chat.post("later", "still here")
    assert texts(read_all(chat))[-1] == "still here"


def test_what_expired_unread_is_taken_untold(chat: Conversation) -> None:
    """A message that expired before a turn took it is taken, and the agent is told nothing."""
    chat.post("p", "old")
    chat.expire(older_than=0)
    chat.post("q", "new")
    with chat.turn() as turn:
        assert [each.status for each in turn.take()] == ["expired", "taken"]
    assert [text for _, text in told(chat)] == ["new"]
    assert chat.waiting() == []


def test_a_damaged_body_is_a_message_without_content(tmp_path: Path) -> None:
    """A body that is not what it was makes its message damaged, and the page is given."""
    with perdure.open(tmp_path / "store") as store:
        chat = Conversations(store).of("alice").create("r")
        chat.post("p", "first")
        chat.post("q", "second")
        (event, *_) = chat._place.control.read_from(chat.id, 1)
        (body,) = (tmp_path / "store").rglob(event.data["body"])
        body.write_bytes(b"something else")
        found = read_all(chat)
        assert [(each.status, each.content is None) for each in found] == [
            ("damaged", True),
            ("accepted", False),
        ]
        with chat.turn() as turn:
            assert [each.status for each in turn.take()] == ["damaged", "taken"]
        body.unlink()


# --- whose it is ---------------------------------------------------------------------------------


def test_nobody_sees_what_is_anothers(store: perdure.Store) -> None:
    """Of a conversation of another principal is told what is told of one that is not there."""
    desk = Conversations(store)
    alice, bob = desk.of("alice"), desk.of("bob")
    chat = alice.create("same request", {"secret": "alice's"})
    chat.post("same request", "alice's secret")
    own = bob.create("same request", {"secret": "bob's"})
    assert own.id != chat.id
    own.post("same request", "bob's word")

    said = []
    for id in (chat.id, chat.id[:-1] + "f", "never"):
        for ask in (bob.conversation, bob.delete):
            with pytest.raises(ConversationNotFound) as missing:
                ask(id)
            told = missing.value
            said.append((str(told).replace(id, "ID"), told.hint, vars(told).keys()))
    assert len({str(each) for each in said}) == 1
    listed = bob.conversations()
    assert [each.id for each in listed.sessions] == [own.id]
    assert listed.coverage.sessions == 1
    assert texts(read_all(own)) == ["bob's word"]
    with pytest.raises(InvalidValue):
        own.messages(chat.messages().cursor)
    assert texts(read_all(chat)) == ["alice's secret"]


@pytest.mark.parametrize("name", HOSTILE)
def test_ids_may_be_any_text(tmp_path: Path, name: str) -> None:
    """Principals, requests and what is asked for may have any text as their id."""
    with perdure.open(tmp_path / "store") as store:
        desk = Conversations(store)
        mine = desk.of(name)
        chat = mine.create(name, {name: name})
        assert (
            chat.post(name, name).seq
            == desk.of(name).create(name, {name: name}).post(name, name).seq
        )
        chat.set_profile(name, {}, expected_revision=0)
        with chat.turn() as turn:
            turn.take()
            turn.reply(name, name)
        assert [each.request for each in read_all(chat)] == [name, name]
        for who in (mine, desk.of("other")):
            with pytest.raises(ConversationNotFound):
                who.conversation(name)
            with pytest.raises(ConversationNotFound):
                who.delete(name)
        mine.delete(chat.id)
    inside = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")}
    assert inside == {"store"}


def test_principals_that_look_alike_are_apart(store: perdure.Store) -> None:
    """Principals whose names differ in case or form alone have nothing in common."""
    desk = Conversations(store)
    names = ["a", "A", "a/b", "a%2fb", "é", "e\u0301", "main", "x" * 1023, "x" * 1024]
    made = {name: desk.of(name).create("r", {"of": name}).id for name in names}
    assert len(set(made.values())) == len(names)
    for name, id in made.items():
        assert desk.of(name).conversation(id).profile().values == {"of": name}
        others = [other for other in names if other != name]
        for other in others:
            with pytest.raises(ConversationNotFound):
                desk.of(other).conversation(id)


@pytest.mark.parametrize("name", ["", "x" * 1025, None, 5, b"alice", "\ud83d\ude00"])
def test_a_principal_has_to_be_named(tmp_path: Path, name: Any) -> None:
    """There is no principal that is taken where none is named."""
    with perdure.open(tmp_path / "store") as store, pytest.raises(InvalidValue) as refused:
        Conversations(store).of(name)
    assert refused.value.path == "principal"


# --- the end -------------------------------------------------------------------------------------


def test_a_deleted_conversation_is_gone_for_all(store: perdure.Store, alice: Principal) -> None:
    """What was deleted is found by no call, no old object and no repeat; others stay."""
    chat, other = alice.create("r"), alice.create("other")
    chat.post("p", "hello")
    alice.delete(chat.id)
    asks: list[Callable[[], object]] = [
        lambda: alice.conversation(chat.id),
        lambda: alice.delete(chat.id),
        lambda: alice.create("r"),
        lambda: chat.post("p", "hello"),
        lambda: chat.set_profile("s", {}, expected_revision=0),
        lambda: chat.expire(older_than=0),
        lambda: chat.busy,
        chat.messages,
        chat.profile,
        chat.waiting,
        chat.turn,
    ]
    for ask in asks:
        with pytest.raises(ConversationNotFound):
            ask()
    assert [each.id for each in alice.conversations().sessions] == [other.id]
    trashed = store.namespace("perdure.principals", "alice", "control").trash()
    assert [each.id for each in trashed] == [chat.id]


def test_a_conversation_at_work_is_not_deleted(alice: Principal, chat: Conversation) -> None:
    """A conversation in which a turn runs is not deleted, and nothing of it is."""
    with chat.turn() as turn:
        with pytest.raises(ConversationBusy):
            alice.delete(chat.id)
        chat.post("p", "hello")
        assert texts(turn.take()) == ["hello"]
    alice.delete(chat.id)


@pytest.mark.parametrize(
    "point", ["conversation.main-deleted", "conversation.control-deleted", "conversation.deleted"]
)
def test_an_interrupted_deletion_is_finished_by_another(store: perdure.Store, point: str) -> None:
    """Once its main log is gone nobody finds it, and deleting again finishes the rest."""
    mine = Conversations(store).of("alice")
    chat = mine.create("r")

    def breaks_off(name: str) -> None:
        if name == point:
            raise KeyboardInterrupt

    crash.arm(hook=breaks_off)
    with pytest.raises(KeyboardInterrupt):
        mine.delete(chat.id)
    crash.arm()
    with pytest.raises(ConversationNotFound):
        chat.post("p", "hello")
    with pytest.raises(ConversationNotFound):
        mine.conversation(chat.id)
    if point != "conversation.deleted":
        mine.delete(chat.id)
    with pytest.raises(ConversationNotFound):
        mine.delete(chat.id)
    said = [*mine._place.catalog.read_from("creations", types=["conversation/deleted"])]
    assert [each.data["conversation"] for each in said] == [chat.id]
    assert mine._place.control.trash() != []


# --- locks ---------------------------------------------------------------------------------------


def test_locks_are_taken_in_one_order(
    store: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread asks for a lock that comes before one it holds, whatever it does."""
    order = LockOrder()
    order.observe(monkeypatch, store._backend)
    mine = Conversations(store).of("alice")
    chat = mine.create("r")
    chat.post("p", "hello")
    with chat.turn() as turn:
        turn.take()
        chat.post("q", "more", when_busy="steer")
        turn.take()
        turn.reply("a", "hi")
        chat.set_profile("s", {}, expected_revision=0)
    other = mine.create("other")
    with chat.turn() as turn:
        turn.once("k", lambda: 1)
    chat.expire(older_than=0)
    mine.delete(other.id)
    assert order.kinds() == {"catalog", "main", "control"}
    assert order.wrong == []


def test_the_observer_sees_the_wrong_order(
    store: perdure.Store, chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The observer of these tests finds a thread that takes the main log behind the control log."""
    order = LockOrder()
    order.observe(monkeypatch, store._backend)
    with chat._place.control.writer(chat.id), chat._place.main.writer(chat.id):
        pass
    assert order.wrong == [(["control"], "main")]


def test_a_short_writer_gives_up_after_a_while(
    chat: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where somebody keeps the control log, posting ends with the busy error of the store."""
    monkeypatch.setattr("perdure.conversations.control.WAIT_SECONDS", 0.05)
    with chat._place.control.writer(chat.id):
        with pytest.raises(SessionBusy) as busy:
            chat.post("p", "hello")
        assert busy.value.session == chat.id
    chat.post("p", "hello")
    monkeypatch.setattr("perdure.conversations.gates.WAIT_SECONDS", 0.05)
    with chat._control.writing():
        failures: list[PerdureError] = []

        def post() -> None:
            try:
                chat.post("q", "hello")
            except PerdureError as error:
                failures.append(error)

        run_together([post])
        assert [type(each) for each in failures] == [SessionBusy]
    chat.post("q", "hello")
    assert len(read_all(chat)) == 2


def test_a_page_is_cut_where_it_gets_large(tmp_path: Path) -> None:
    """A page of large messages ends where it gets large, and its cursor leads to all others."""
    with perdure.open(tmp_path, index=False) as store:
        chat = Conversations(store).of("alice").create("r")
        for number in range(6):
            chat.post(f"m{number}", "x" * 1_500_000)
        sizes, cursor = [], None
        while True:
            page = chat.messages(cursor)
            sizes.append(len(page.messages))
            cursor = page.cursor
            if not page.more:
                break
    assert sizes == [3, 3]


@pytest.mark.parametrize(
    "content", ["", [], [{"type": "text", "text": ""}], [{"type": "text", "txt": "a"}]]
)
def test_a_message_says_something(tmp_path: Path, content: Any) -> None:
    """What would tell the agent nothing is refused at the call, and nothing is accepted."""
    with perdure.open(tmp_path, index=False) as store:
        chat = Conversations(store).of("alice").create("r")
        with pytest.raises(InvalidValue, match="content"):
            chat.post("m", content)
        assert chat.messages().messages == []


def test_principals_are_told_to_who_serves_them(tmp_path: Path) -> None:
    """Whoever has something is among the principals, under the very name."""
    with perdure.open(tmp_path, index=False) as store:
        desk = Conversations(store)
        assert desk.principals() == []
        for name in ("bob", "../alice", "\ud800"):
            desk.of(name).create("r")
        assert sorted(desk.principals()) == sorted(["bob", "../alice", "\ud800"])


def test_a_request_whose_conversation_was_deleted_says_so(tmp_path: Path) -> None:
    """Who repeats a request after the deletion is told to use another id."""
    with perdure.open(tmp_path, index=False) as store:
        mine = Conversations(store).of("alice")
        mine.delete(mine.create("r").id)
        with pytest.raises(ConversationNotFound, match="another request id"):
            mine.create("r")
