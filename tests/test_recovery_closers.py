"""Closers: what a dead writer left open, as a pure function of what it recorded."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.model.event import Draft, draft
from perdure.model.record import Position, seal
from perdure.model.vocabulary import PAYLOADS, payload
from perdure.recovery.closers import OpenWork
from tests.support import scaled

CALLS = st.sampled_from(("c1", "c2", "c3"))
KINDS = ("turn/start", "turn/end", "step/start", "step/end", "assistant/message", "tool/call")


@st.composite
def histories(draw: st.DrawFn) -> list[Draft]:
    """Events of several agents and turns in any order, sensible or not."""
    out = []
    for time in range(draw(st.integers(0, 25))):
        kind = draw(st.sampled_from((*KINDS, "tool/result", "job/start", "job/end", "x")))
        data: Any = {"step": time, "id": draw(CALLS), "status": "done", "reason": "done"}
        if kind == "assistant/message":
            asked = draw(st.lists(CALLS, max_size=3))
            data = {"content": [{"type": "tool-call", "id": call} for call in asked]}
        agent = draw(st.sampled_from((None, "a")))
        turn = draw(st.sampled_from(("t1", "t2", None)))
        out.append(draft(kind, data, time=time, agent=agent, turn=turn))
    return out


def folded(history: list[Draft]) -> OpenWork:
    work = OpenWork()
    work.events(one.at(seq) for seq, one in enumerate(history))
    return work


@settings(max_examples=scaled(3000))
@given(histories())
def test_closers_close_everything(history: list[Draft]) -> None:
    """After the closers nothing is open, and closing again adds nothing."""
    closers = folded(history).closers()
    after = folded([*history, *closers])

    assert after.closers() == []
    assert not after
    assert bool(folded(history)) == bool(closers)


@settings(max_examples=scaled(1000))
@given(histories())
def test_closers_depend_on_the_records_alone(history: list[Draft]) -> None:
    """Folding events one by one, or records packed in any way, gives the same bytes."""
    made = [folded(history).closers()]
    for pack in (True, False):
        work = OpenWork()
        for record in seal(Position(-1, "0" * 64), history, pack=pack):
            work.record(record)
        made.append(work.closers())

    fields = [[(c.type, c.agent, c.turn, c.time, c.raw) for c in closers] for closers in made]
    assert fields[0] == fields[1] == fields[2]


@settings(max_examples=scaled(1000))
@given(histories())
def test_closers_keep_to_the_vocabulary(history: list[Draft]) -> None:
    """Each closer has the payload of its type, the last time, and the turn that it closes."""
    closers = folded(history).closers()
    started = {(h.agent, h.turn) for h in history if h.type in ("turn/start", "job/start")}

    for seq, one in enumerate(closers):
        assert payload(one.at(seq)) is not None
        assert one.time == history[-1].time
        assert (one.agent, one.turn) in started
        assert (one.key, one.ignorable) == (None, False)


def test_a_turn_started_again_is_open_once() -> None:
    """A turn that starts anew forgets the calls of its first start."""
    start = draft("turn/start", {}, time=0, turn="t")
    call = draft("tool/call", {"id": "c"}, time=0, turn="t")

    assert [c.type for c in folded([start, call, start]).closers()] == ["turn/end"]


def test_every_payload_of_the_vocabulary_has_a_shape() -> None:
    """Each type of the vocabulary says what it is in its docstring, and is read back as written."""
    for kind, shape in PAYLOADS.items():
        assert f"`{kind}`" in str(shape.__doc__)
        assert msgspec.json.schema(shape)["$defs"]
    assert payload(draft("future/thing", 1, time=0).at(0)) is None


@settings(max_examples=scaled(1000))
@given(histories(), st.integers(0, 25))
def test_open_work_goes_on_from_what_was_dumped(history: list[Draft], at: int) -> None:
    """Dumped in the middle, as JSON, and restored, it comes to the same closers and dump."""
    cut = min(at, len(history))
    again = OpenWork.restored(
        msgspec.json.decode(msgspec.json.encode(folded(history[:cut]).dump()))
    )
    again.events(one.at(cut + seq) for seq, one in enumerate(history[cut:]))
    whole = folded(history)

    assert [one.at(0) for one in again.closers()] == [one.at(0) for one in whole.closers()]
    assert again.dump() == whole.dump()
    assert bool(again) == bool(whole)


@pytest.mark.parametrize(
    "dumped",
    [
        None,
        [],
        {},
        {"time": "1", "turns": [], "jobs": []},
        {"time": 1, "turns": {}, "jobs": []},
        {"time": 1, "turns": [["a", "t", 1]], "jobs": []},
        {"time": 1, "turns": [["a", 7, 1, []]], "jobs": []},
        {"time": 1, "turns": [], "jobs": [["j"]]},
    ],
)
def test_what_no_dump_is_restores_nothing(dumped: Any) -> None:
    """A value that is not a dump is refused as a whole."""
    with pytest.raises(ValueError, match="open"):
        OpenWork.restored(dumped)
