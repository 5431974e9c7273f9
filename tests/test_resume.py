"""Resume: a run comes back with all it had, valid for its model, and nothing is written before."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import (
    EffectUnknown,
    InvalidValue,
    PersistenceDisabled,
    PresetUnknown,
    SessionBusy,
    SessionNotFound,
    WorkspaceMissing,
)
from perdure.model.event import Event
from perdure.model.vocabulary import TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN
from tests import media

CALLS = [
    {"type": "tool-call", "id": "c1", "name": "bash", "arguments": {"cmd": "make"}},
    {"type": "tool-call", "id": "c2", "name": "bash", "arguments": {"cmd": "ls"}},
]


def abandon(session: perdure.Session) -> None:
    """Leave a session as a process that dies leaves it: nothing is closed."""
    session.flush()
    session._hold.release()  # type: ignore[union-attr]
    session._released = True
    session._closed = "it died"


def half_a_turn(session: perdure.Session) -> None:
    """A complete turn, then one in which nobody answers the calls."""
    with session.turn("t1") as turn:
        turn.user("hello")
        with turn.step() as step:
            step.request({"model": "m"})
            step.message("hi")
    turn = session.turn("t2").__enter__()
    turn.user("build it")
    step = turn.step().__enter__()
    step.request({"model": "m"})
    step.message([{"type": "text", "text": "so be it"}, *CALLS])
    step.call("c1", "bash", {"cmd": "make"})
    session.set_state("plan", ["make", "test"])
    session.start_job("j1", kind="build")
    session.set_trigger("w1", "timer", {"seconds": 5})
    session.set_trigger("w2", "unheard-of", None)
    session.send("room", "who is there?", sender="someone")


@pytest.fixture(params=(*media.KEPT, *media.SERVED))
def store(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: object
) -> Iterator[perdure.Store]:
    """A store of each kind that keeps something."""
    del postgres  # runs until the last of these tests has ended
    with media.open_medium(request.param, tmp_path) as opened:
        yield opened


def test_a_run_comes_back_whole(store: perdure.Store) -> None:
    """Messages, state, triggers, channels and jobs are back, and every call is answered."""
    with store.create("s") as session:
        half_a_turn(session)
        abandon(session)
    with store.resume("s", triggers={"timer": lambda state: ("timer", state)}) as session:
        roles = [message["role"] for message in session.messages()]
        assert roles == ["user", "assistant", "user", "assistant", "tool"]
        answers = session.messages()[-1]["content"]
        codes = [answer["error"]["code"] for answer in answers]
        assert codes == [TOOL_OUTCOME_UNKNOWN, TOOL_NOT_STARTED]
        state = session.state
        assert state.scratchpad() == {"plan": ["make", "test"]}
        assert [message.content for message in state.channels["room"].messages] == ["who is there?"]
        assert state.jobs["j1"].status == "interrupted"
        resumed = session.resumed
        assert resumed is not None
        assert resumed.triggers == {"w1": ("timer", {"seconds": 5})}
        assert resumed.unmade == ("w2",)
        assert [job.id for job in resumed.interrupted] == ["j1"]
        last = [*store.read_from("s")][-1]
        assert last.type == "session/resumed"
        assert last.data["told"] == ["j1"]
    with store.resume("s") as session:
        assert session.resumed is not None
        assert session.resumed.interrupted == ()
    assert store.verify("s").sound


def test_resumed_twice_is_the_same(store: perdure.Store) -> None:
    """A second resume, and a reader before the first, see the same messages."""
    with store.create("s") as session:
        half_a_turn(session)
        abandon(session)
    seen = store.inspect("s").messages(format="anthropic")
    found = []
    for _ in range(2):
        with store.resume("s") as session:
            found.append(session.messages(format="anthropic"))
    assert found == [seen, seen]


def test_a_reader_changes_nothing(store: perdure.Store) -> None:
    """State and messages of an interrupted session are shown closed, and no byte is written."""
    with store.create("s") as session:
        half_a_turn(session)
        abandon(session)
    before = media.lines(store, "s")
    found = store.inspect("s")
    assert found.state.jobs["j1"].status == "interrupted"
    assert len(found.messages()) == 5
    assert media.lines(store, "s") == before


def test_past_turns_are_still_there(store: perdure.Store) -> None:
    """Messages as of a past turn are those that there were at its end."""
    with store.create("s") as session:
        half_a_turn(session)
        assert len(session.messages(at="t1")) == 2
        with pytest.raises(InvalidValue, match="no turn"):
            session.messages(at="t9")


def test_last_is_where_something_happened_last(store: perdure.Store) -> None:
    """LAST is the session of the latest event, not the one that was created or touched last."""
    for name, time in (("old", 5), ("latest", 9), ("touched", 7)):
        with store.create(name) as session:
            session.append("x", time=time)
    with store.create("child", origin="subagent") as session:
        session.append("x", time=11)
    store.writer("touched").close()
    assert store.last() == "latest"
    with store.resume(perdure.LAST) as session:
        assert session.id == "latest"


def test_nothing_to_resume(store: perdure.Store) -> None:
    """Without any session, or for an id that is not there, resume says so; no other is taken."""
    with pytest.raises(SessionNotFound):
        store.resume(perdure.LAST)
    with store.create("s") as session:
        session.append("x")
    with pytest.raises(SessionNotFound, match="'t'"):
        store.resume("t")


def test_a_missing_folder_is_said_first(store: perdure.Store, tmp_path: Path) -> None:
    """A working directory that is gone refuses the resume before anything is locked or written."""
    home = tmp_path / "app"
    home.mkdir()
    with store.create("s", cwd=str(home)) as session:
        half_a_turn(session)
        abandon(session)
    moved = tmp_path / "moved"
    home.rename(moved)
    before = media.lines(store, "s")
    with pytest.raises(WorkspaceMissing) as missing:
        store.resume("s")
    assert missing.value.cwd == str(home)
    assert media.lines(store, "s") == before
    with store.resume("s", cwd=str(moved)) as session:
        assert session.resumed is not None
        assert session.resumed.cwd == str(moved)
    with store.resume("s") as session:
        assert session.resumed is not None
        assert session.resumed.cwd == str(moved)
    with pytest.raises(WorkspaceMissing):
        store.resume("s", cwd=str(tmp_path / "nowhere"))


def test_a_session_of_nothing_can_be_asked(store: perdure.Store) -> None:
    """Before its first event a session has no turns and no past, and asking stores nothing."""
    with store.create("s") as session:
        assert (session.messages(), session.branches(), [*session.scrollback()]) == ([], [], [])
        with pytest.raises(InvalidValue, match="no turn"):
            session.messages(at="t1")
    assert store.list() == []


@pytest.mark.parametrize("cwd", [".", "app", "", Path("/"), 5])
def test_a_working_directory_is_absolute(store: perdure.Store, cwd: Any) -> None:
    """A directory that means another one elsewhere is refused before anything is written."""
    with store.create("s") as session:
        half_a_turn(session)
        abandon(session)
    before = media.lines(store, "s")
    with pytest.raises(InvalidValue) as refused:
        store.resume("s", cwd=cwd)
    assert refused.value.path == "cwd"
    assert media.lines(store, "s") == before


def test_a_reader_sees_the_last_turn_as_it_will_be_closed(store: perdure.Store) -> None:
    """What closers make of the last turn is in `messages(at=…)` too, before they are stored."""
    with store.create("s") as session:
        turn = session.turn("t1")
        turn.user("hello")
        turn.step().delta("It was cut")
        session.flush()
        abandon(session)
    found = store.inspect("s")
    seen = found.messages(at="t1")
    assert seen[-1]["interrupted"]
    assert seen == found.messages()
    with store.resume("s") as session:
        assert session.messages(at="t1") == seen


def test_a_preset_that_is_not_here_is_said_first(store: perdure.Store) -> None:
    """A session whose agent cannot be built again is not resumed, and nothing is written."""
    with store.create("s", preset="coder") as session:
        half_a_turn(session)
        abandon(session)
    before = media.lines(store, "s")
    with pytest.raises(PresetUnknown) as unknown:
        store.resume("s", presets=["reviewer"])
    assert unknown.value.known == ("reviewer",)
    assert media.lines(store, "s") == before
    store.resume("s", presets=["coder"]).close()


def test_a_session_in_use_is_not_resumed(store: perdure.Store) -> None:
    """While somebody writes it, a second one is told so."""
    with store.create("s") as session:
        session.append("x")
        with pytest.raises(SessionBusy):
            store.resume("s")


def test_what_a_trigger_raises_closes_the_session(store: perdure.Store) -> None:
    """A trigger that cannot be made ends the resume, and the session is free again."""
    with store.create("s") as session:
        session.set_trigger("w1", "timer", {"seconds": 5})

    def broken(state: Any) -> Any:
        raise RuntimeError(state)

    with pytest.raises(RuntimeError):
        store.resume("s", triggers={"timer": broken})
    assert [event.type for event in store.read_from("s")][-1] == "trigger/set"
    store.resume("s").close()


def test_the_output_gets_the_scrollback(store: perdure.Store) -> None:
    """An output is shown the past, the newest page first, and reads no more than it wants."""
    with store.create("s") as session:
        for number in range(10):
            session.append("user/message", {"content": []}, turn=f"t{number}")
    shown: list[list[int]] = []

    class Terminal:
        def on_resume(self, pages: Iterator[list[Event]], /) -> None:
            shown.append([event.seq for event in next(pages)])

    with store.resume("s", output=Terminal()) as session:
        assert shown == [list(range(10))]
        pages = [[event.seq for event in page] for page in session.scrollback(size=4)]
        assert pages == [[7, 8, 9, 10], [3, 4, 5, 6], [0, 1, 2]]
        with pytest.raises(InvalidValue):
            session.scrollback(size=0)


def test_resume_needs_a_store() -> None:
    """With persistence off everything runs, and resume is refused in words."""
    with perdure.open("none:") as store, store.create("s") as session:
        half_a_turn(session)
        assert len(session.messages()) == 5
        assert session.state.scratchpad() == {"plan": ["make", "test"]}
        with pytest.raises(PersistenceDisabled):
            store.resume("s")


class Agent:
    """What a user's own code makes of a session."""

    def __init__(self, session: perdure.Session, config: Any) -> None:
        self.session = session
        self.config = config


def test_agents_are_made_and_made_again(store: perdure.Store) -> None:
    """A factory builds an agent for a new session, and again for a stored one."""
    agents = perdure.Agents({"coder": Agent}, store)
    made = agents.create("coder", config={"model": "m"}, id="s")
    made.session.append("x")
    made.session.close()
    again = agents.resume("s")
    assert isinstance(again, Agent)
    assert again.config == {"model": "m"}
    assert again.session.resumed is not None
    again.session.close()
    with pytest.raises(PresetUnknown):
        agents.create("reviewer")
    with store.create("bare") as session:
        session.append("x")
    before = media.lines(store, "bare")
    with pytest.raises(PresetUnknown):
        agents.resume("bare")
    assert media.lines(store, "bare") == before


def test_agents_without_a_store() -> None:
    """Without persistence agents work, and a resume is refused in words."""
    agents = perdure.Agents({"coder": Agent})
    made = agents.create("coder")
    half_a_turn(made.session)
    made.session.close()
    with pytest.raises(PersistenceDisabled):
        agents.resume("s")


def test_a_builder_that_fails_leaves_nothing_open(store: perdure.Store) -> None:
    """If an agent cannot be built, its session is closed."""

    def broken(session: perdure.Session, config: Any) -> Any:
        raise RuntimeError(session.id, config)

    with store.create("s", preset="coder") as session:
        session.append("x")
    with pytest.raises(RuntimeError):
        perdure.Agents({"coder": broken}, store).resume("s")
    store.writer("s").close()


def test_several_agents_have_to_be_named(store: perdure.Store) -> None:
    """Where more than one agent spoke, messages are asked for by name."""
    with store.create("s") as session:
        for name in ("a", "b"):
            with session.turn(agent=name) as turn:
                turn.user(f"hello {name}")
        with pytest.raises(InvalidValue, match="agent"):
            session.messages()
        assert session.messages("b")[0]["content"] == [{"type": "text", "text": "hello b"}]


def test_images_are_loaded_for_providers(store: perdure.Store) -> None:
    """A picture that a message refers to goes to the provider, or is named once it expired."""
    with store.create("s") as session:
        digest = session.put_blob(b"picture")
        picture = {"type": "image", "blob": digest, "media_type": "image/png"}
        with session.turn() as turn:
            turn.user([{"type": "text", "text": "look"}, picture])
        sent = session.messages(format="anthropic")[0]["content"]
        assert sent[1]["source"]["data"] == "cGljdHVyZQ=="
    store.expire("s", keep_last=0)
    sent = store.inspect("s").messages(format="anthropic")[0]["content"]
    assert digest in str(sent)


@pytest.mark.parametrize("kind", media.FOLDERS)
def test_a_damaged_folder_of_views_is_no_matter(tmp_path: Path, kind: str) -> None:
    """Without what is derived, or with nonsense in its place, the same is resumed."""
    with media.open_medium(kind, tmp_path) as store:
        # Nobody is there to keep a checkpoint later.
        store._flusher.stop()
        with store.create("s") as session:
            half_a_turn(session)
            abandon(session)
        expected = store.inspect("s").messages()
        views = Path(str(store.locate("s"))).parent / "views"
        for name in os.listdir(views):
            (views / name).write_bytes(b"\xff\x00 nonsense\n")
        with store.resume("s") as session:
            assert session.messages() == expected
        shutil.rmtree(views)
        with store.resume("s") as session:
            assert session.messages() == expected


def test_presets_are_names(store: perdure.Store) -> None:
    """One string in place of a collection is refused: a part of it would pass for a name."""
    store.create("s", preset="code").close()
    with store.create("t", preset="code") as session:
        session.append("x")
    before = media.lines(store, "t")
    with pytest.raises(InvalidValue) as refused:
        store.resume("t", presets="coder")
    assert refused.value.path == "presets"
    assert media.lines(store, "t") == before
    store.resume("t", presets=("code",)).close()


def test_there_is_no_last_yet(store: perdure.Store) -> None:
    """Of an empty store LAST is refused in words of its own, and where nothing is kept as that."""
    for ask in (store.last, lambda: store.resume(perdure.LAST)):
        with pytest.raises(SessionNotFound, match="there is no session yet") as missing:
            ask()
        assert missing.value.session == ""
    with perdure.open("none:") as nothing:
        for ask in (nothing.last, lambda: nothing.resume(perdure.LAST)):
            with pytest.raises(PersistenceDisabled):
                ask()


def test_effects_of_which_nobody_knows_are_told(store: perdure.Store) -> None:
    """A resume names what a dead process began and did not finish, until somebody settles it."""

    def dies() -> None:
        raise KeyboardInterrupt

    with store.create("s") as session:
        session.once("paid", lambda: 1)
        with pytest.raises(KeyboardInterrupt):
            session.once("mail", dies, about={"to": "you"}, turn="t1")
        with pytest.raises(KeyboardInterrupt):
            session.once("mail", dies, retry=True)
        with pytest.raises(KeyboardInterrupt):
            session.once("call", dies)
        abandon(session)
    seen = store.inspect("s").state.effects
    with store.resume("s") as session:
        assert session.resumed is not None
        told = session.resumed.unknown_effects
        assert told == tuple(seen.values()) == tuple(session.state.effects.values())
        assert [(each.key, each.attempt) for each in told] == [("mail", 2), ("call", 1)]
        for each in told:
            with pytest.raises(EffectUnknown):
                session.once(each.key, dies)
            session.settle_effect(each.key, "done")
        assert session.state.effects == {}
        assert session.state["effects"] == {}
    with store.resume("s") as session:
        assert session.resumed is not None
        assert session.resumed.unknown_effects == ()


def test_a_working_directory_that_cannot_be_is_missing(store: perdure.Store) -> None:
    """A header may name a path that no system has: the folder is not there, in so many words."""
    with store.create("s", cwd="/" + "x" * 300) as session:
        session.append("x")
    for cwd in (None, "/" + "y" * 5000, "/a\0b"):
        with pytest.raises((WorkspaceMissing, InvalidValue)):
            store.resume("s", cwd=cwd)
    for presets in (5, "coder"):
        with pytest.raises(InvalidValue):
            store.resume("s", presets=presets)  # type: ignore[arg-type]


def test_a_picture_that_makes_no_sense_is_told_in_words(store: perdure.Store) -> None:
    """Whatever stands in an image block, every format has something valid to say of it."""
    strange: list[Any] = [{}, [], 5, None, "text/html"]
    with store.create("s") as session:
        for number, kind in enumerate(strange):
            block = {"type": "image", "blob": "a" * 64, "media_type": kind}
            session.append("user/message", {"content": [block]}, turn=f"t{number}")
        for form in ("neutral", "anthropic", "openai-chat", "openai-responses"):
            assert session.messages(format=form)
