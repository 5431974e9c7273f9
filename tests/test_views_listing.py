"""View "listing": counts, what was asked first, who took part, how the last turn ended."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from perdure.model import values
from perdure.model.event import Draft, draft
from perdure.model.header import new_header
from perdure.model.vocabulary import PAYLOADS
from perdure.testing.strategies import json_values, texts
from perdure.views.fold import Fold
from perdure.views.listing import AGENTS_MAX, PREVIEW_CHARS, ListingFacts, ListingView, listing
from tests.support import scaled

TYPES = sorted(PAYLOADS)
NOTHING = ListingFacts(None, (), 0, 0, 0, 0, None)
ERROR = {"code": "E", "message": "why"}


def one(kind: str, data: Any = None, agent: str | None = None) -> Draft:
    return draft(kind, {} if data is None else data, time=7, agent=agent, turn="t")


def asked(*said: Any, agent: str | None = None, **more: Any) -> Draft:
    """A user's message of blocks; a string is a block of text."""
    blocks = [{"type": "text", "text": each} if isinstance(each, str) else each for each in said]
    return one("user/message", {"content": blocks, **more}, agent)


def counted(drafts: Iterable[Draft]) -> ListingFacts:
    """What a fold says after its rows were written down and read again."""
    head = new_header("s", created_at=0)
    fold = Fold((ListingView(),), head, lambda _: iter(()))
    fold.events(each.at(seq) for seq, each in enumerate(drafts))
    rows = {"listing": values.decode(values.encode(dict(fold.rows["listing"].all)))}
    again = Fold((ListingView(),), head, lambda _: iter(()), rows=rows, position=fold.position)
    assert listing(again.rows["listing"]) == listing(fold.rows["listing"])
    return listing(again.rows["listing"])


def preview(*drafts: Draft) -> str | None:
    return counted(drafts).preview


# --- counts ---------------------------------------------------------------------------------------


def test_a_session_without_events_has_nothing() -> None:
    """Before anything happened nothing is counted, asked or ended."""
    assert counted([]) == NOTHING


def test_everything_is_counted_by_what_it_is() -> None:
    """Turns, messages of people and agents, and calls are counted, and nothing else is."""
    log = [
        one("turn/start"),
        asked("go"),
        one("step/start", {"step": 1}),
        one("assistant/delta", {"text": "so"}),
        one("assistant/message", {"content": [{"type": "tool-call", "id": "c", "name": "x"}]}),
        one("tool/call", {"id": "c", "name": "x"}),
        one("tool/result", {"id": "c", "content": []}),
        one("assistant/message", {"content": []}),
        asked("summary", source="summary"),
        one("turn/end", {"reason": "completed"}),
        one("turn/start"),
        one("state/set", {"key": "a", "value": 1}),
    ]
    found = counted(log)
    assert (found.turns, found.messages, found.calls, found.failures) == (2, 4, 1, 0)


FAILING: list[tuple[str, dict[str, Any]]] = [
    ("tool/result", {"id": "c", "content": []}),
    ("turn/end", {"reason": "error"}),
    ("job/end", {"id": "j", "status": "failed"}),
    ("subagent/end", {"id": "s", "status": "failed"}),
]


@pytest.mark.parametrize(("kind", "data"), FAILING)
def test_a_failure_is_one_with_an_error(kind: str, data: dict[str, Any]) -> None:
    """Tools, turns, jobs and sub-agents have failed if they name an error that can be read."""
    errors: list[Any] = [ERROR, None, "no", {"code": 5}, {"code": "E", "message": "why", "x": 1}]
    assert counted([one(kind, data)]).failures == 0
    assert counted(one(kind, data | {"error": error}) for error in errors).failures == 2


def test_other_errors_are_no_failures_of_the_session() -> None:
    """What tells of an effect or a job that goes on is not counted."""
    log = [
        one("effect/outcome", {"status": "failed", "error": ERROR}),
        one("job/update", {"id": "j", "error": ERROR}),
    ]
    assert counted(log) == NOTHING


# --- the preview ----------------------------------------------------------------------------------


def test_the_preview_is_what_was_asked_first() -> None:
    """Somebody's first words are the preview, whatever is said later."""
    assert preview(asked("first"), asked("second")) == "first"
    assert preview(one("assistant/message", {"content": []}), asked("late")) == "late"


def test_what_was_said_for_somebody_is_no_preview() -> None:
    """A message that an agent wrote in a person's name has a source, and is passed over."""
    log = [asked("so far", source="summary"), asked("no", source=""), asked("mine")]
    assert preview(*log) == "mine"
    assert preview(log[0]) is None


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (["a\n b\t\tc "], "a b c"),
        (["a", "b\n", "c"], "a b c"),
        (["a\u2028b\x85c\x1cd"], "a b c d"),
        ([{"type": "image", "text": "no"}, "a", {"type": "thinking", "text": "no"}], "a"),
        ([{"type": "text", "text": 5}, {"type": "text"}, {}, "a"], "a"),
        (["half \ud83d", "\ude00"], "half \ufffd \ufffd"),
        (["\U0001f600"], "\U0001f600"),
    ],
)
def test_the_preview_is_one_line_of_text(said: list[Any], wanted: str) -> None:
    """The texts of the message stand on one line; what cannot be shown is shown as such."""
    assert preview(asked(*said)) == wanted


@pytest.mark.parametrize("content", [[], ["  \n"], [{"type": "image"}], ["\u3000"]])
def test_a_message_without_text_is_no_preview(content: list[Any]) -> None:
    """Where nothing can be read the next message counts."""
    assert preview(asked(*content)) is None
    assert preview(asked(*content), asked("then")) == "then"


@pytest.mark.parametrize("data", [None, 5, [], {"content": "text"}, {"content": [5]}, {"x": 1}])
def test_a_message_that_does_not_fit_is_no_preview(data: Any) -> None:
    """A message of another shape is counted, and passed over."""
    found = counted([draft("user/message", data, time=0), asked("then")])
    assert (found.preview, found.messages) == ("then", 2)


def test_a_long_preview_is_cut_at_a_character() -> None:
    """So many characters are kept, the last of them a sign that there were more."""
    most = "\U0001f600" * PREVIEW_CHARS
    assert preview(asked(most)) == most
    assert preview(asked(most + "x")) == most[:-1] + "…"
    long = "word " * 100_000
    assert preview(asked(long)) == long[: PREVIEW_CHARS - 1] + "…"


@settings(max_examples=scaled(3000))
@given(st.lists(texts(max_size=120), max_size=4))
def test_any_text_makes_a_preview(said: list[str]) -> None:
    """A preview is what the texts say, on a line that any output takes, and not too long."""
    words = values.text(" ".join(" ".join(said).split()))
    found = preview(asked(*said))
    if not words:
        assert found is None
        return
    assert found is not None
    assert len(found.encode().decode().splitlines()) == 1
    assert len(found) == min(len(words), PREVIEW_CHARS)
    assert found == words or words.startswith(found[:-1])


# --- agents and the last turn ---------------------------------------------------------------------


def test_agents_stand_in_the_order_of_their_first_events() -> None:
    """Each agent that did something is named once; events without an agent name none."""
    log = [one("turn/start", agent=agent) for agent in ("b", None, "a", "b", "c", "a")]
    assert counted(log).agents == ("b", "a", "c")
    assert counted([one("tool/result", agent="x"), one("usage", agent="y")]).agents == ("x",)


def test_so_many_agents_are_named() -> None:
    """A session of very many agents names the first ones."""
    log = [one("turn/start", agent=f"a{number}") for number in range(AGENTS_MAX + 50)]
    found = counted(log)
    assert found.agents == tuple(f"a{number}" for number in range(AGENTS_MAX))
    assert found.turns == AGENTS_MAX + 50


def test_the_last_turn_says_how_it_ended() -> None:
    """The reason of the last end stands until another turn begins."""
    start, end = one("turn/start"), one("turn/end", {"reason": "aborted"})
    assert counted([start]).ended is None
    assert counted([start, end]).ended == "aborted"
    assert counted([start, end, start]).ended is None
    assert counted([start, end, one("turn/end", {"reason": "completed"})]).ended == "completed"


def test_an_end_that_does_not_fit_ends_nothing() -> None:
    """A turn whose end has no reason leaves what was known."""
    log = [one("turn/end", {"reason": "completed"}), one("turn/end", {"reason": 5})]
    assert counted(log).ended == "completed"


# --- anything -------------------------------------------------------------------------------------

AGENTS = st.sampled_from((None, "a", "\ud800", "\ud83d"))
MEMBERS = st.sampled_from(("content", "error", "reason", "source", "id", "status", "\ud83d"))


@settings(max_examples=scaled(5000))
@given(
    st.lists(
        st.tuples(
            st.sampled_from(TYPES),
            json_values() | st.dictionaries(MEMBERS, json_values(max_leaves=4), max_size=4),
            AGENTS,
        ),
        max_size=8,
    )
)
@example([("user/message", {"\ud83d": 1, "content": []}, "\ud83d")])
def test_any_events_are_counted(log: list[tuple[str, Any, str | None]]) -> None:
    """Nothing that a log holds raises, and every event is counted by its type."""
    found = counted(draft(kind, data, time=0, agent=agent) for kind, data, agent in log)
    kinds = [kind for kind, _, _ in log]
    assert found.turns == kinds.count("turn/start")
    assert found.calls == kinds.count("tool/call")
    assert found.messages == kinds.count("user/message") + kinds.count("assistant/message")
    seen = [agent for kind, _, agent in log if kind in ListingView.types and agent is not None]
    assert found.agents == tuple(dict.fromkeys(seen))
