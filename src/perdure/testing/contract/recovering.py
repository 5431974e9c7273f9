"""Interrupted turns: shown closed by readers, closed once by the next writer, never cut."""

from typing import Any

import pytest

from perdure.errors import SessionBusy, SessionClosed, SessionNotFound
from perdure.model.vocabulary import TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN
from perdure.store import Store
from perdure.testing.contract.finding import revisions
from perdure.testing.contract.place import OPEN, TURN, ContractCase, Place, brief, dicts

__all__ = ["Recovering"]


def asks(*calls: str, turn: str = "t2", agent: str | None = None) -> dict[str, Any]:
    """An assistant message that asks for tools."""
    blocks = [{"type": "tool-call", "id": c, "name": "bash", "arguments": {}} for c in calls]
    return {
        "type": "assistant/message",
        "turn": turn,
        "agent": agent,
        "data": {"content": [{"type": "text", "text": "Let me look."}, *blocks]},
    }


def called(call: str) -> dict[str, Any]:
    """The record that a tool's body may run."""
    return {"type": "tool/call", "turn": "t2", "data": {"id": call, "name": "bash"}}


def answered(call: str) -> dict[str, Any]:
    """The result of a tool."""
    return {"type": "tool/result", "turn": "t2", "data": {"id": call, "content": []}}


def leave(place: Place, *events: dict[str, Any], id: str = "s", **options: Any) -> None:
    """Write a session and go without closing what is open in it."""
    with place.store().create(id, **options) as session:
        session.append_many(events)


class Recovering(ContractCase):
    """What a writer that went away left open."""

    def test_an_interrupted_turn_is_closed_once(self, place: Place) -> None:
        """Readers show the turn closed and change nothing; the next writer stores the closers."""
        # deepseek-harness 3
        leave(place, *TURN, *OPEN)
        store = place.store()
        before = revisions(store)

        shown = dicts(store.inspect("s").events)
        assert brief(store.inspect("s").events)[6:] == [
            (6, "turn/start"), (7, "step/start"), (8, "step/end"), (9, "turn/end")
        ]  # fmt: skip
        assert shown[-1]["data"]["reason"] == "interrupted"
        assert brief(store.read_from("s"))[-1] == (7, "step/start")
        assert revisions(store) == before

        loaded = store.load("s")
        assert dicts(loaded.events) == dicts(store.read_from("s")) == shown
        assert loaded.closers == []
        after = revisions(store)
        assert after != before

        with place.store().writer("s") as session:
            assert session.append("turn/start", {}, turn="t3").seq == 10
            session.append("turn/end", {"reason": "completed"}, turn="t3")
        assert brief(place.store().load("s").events)[8:] == [
            (8, "step/end"), (9, "turn/end"), (10, "turn/start"), (11, "turn/end")
        ]  # fmt: skip

    def test_a_call_that_never_started_says_so(self, place: Place) -> None:
        """A call that was asked for and not begun gets one error result: it did not run."""
        # deepseek-harness 4; case 24
        leave(place, *OPEN, asks("c1"))

        events = list(place.store().load("s").events)

        assert [e.type for e in events[3:]] == ["tool/result", "step/end", "turn/end"]
        assert events[3].data["id"] == "c1"
        assert events[3].data["error"]["code"] == TOOL_NOT_STARTED
        assert (events[3].turn, events[3].agent) == ("t2", None)

    def test_a_call_that_was_running_is_unknown(self, place: Place) -> None:
        """A call that was begun and not answered gets one error result: find out what it did."""
        # deepseek-harness 5; case 30
        leave(place, *OPEN, asks("c1"), called("c1"))

        events = list(place.store().load("s").events)

        assert [e.type for e in events[4:]] == ["tool/result", "step/end", "turn/end"]
        assert events[4].data["error"]["code"] == TOOL_OUTCOME_UNKNOWN
        message = events[4].data["error"]["message"]
        assert "read-only or idempotent" in message
        assert events[4].data["content"] == [{"type": "text", "text": message}]

    def test_each_call_gets_the_result_it_needs(self, place: Place) -> None:
        """Answered calls get nothing, the others one result each, in the order asked."""
        # case 24
        leave(
            place,
            *OPEN,
            asks("a", "b", "c", "d"),
            called("c"),
            called("a"),
            answered("a"),
            asks("e"),
        )

        closers = place.store().inspect("s").closers

        assert [(e.data["id"], e.data["error"]["code"]) for e in closers[:-2]] == [
            ("b", TOOL_NOT_STARTED),
            ("c", TOOL_OUTCOME_UNKNOWN),
            ("d", TOOL_NOT_STARTED),
            ("e", TOOL_NOT_STARTED),
        ]

    def test_jobs_are_closed(self, place: Place) -> None:
        """Jobs of a writer that is gone end as interrupted, also when no turn is open."""
        start = [{"type": "job/start", "data": {"id": id}} for id in ("j1", "j2")]
        leave(place, *TURN, *start, {"type": "job/end", "data": {"id": "j1", "status": "failed"}})

        closers = place.store().inspect("s").closers

        assert [(e.type, e.data["id"], e.data["status"]) for e in closers] == [
            ("job/end", "j2", "interrupted")
        ]

    def test_each_agents_turn_is_closed(self, place: Place) -> None:
        """Turns of several agents are closed each on its own, in the order of their start."""
        leave(
            place,
            {"type": "turn/start", "agent": "b", "turn": "1"},
            {"type": "turn/start", "agent": "a", "turn": "1"},
            {"type": "step/start", "agent": "a", "turn": "1", "data": {"step": 4}},
            {"type": "turn/start", "turn": "1"},
            asks("c1", turn="1", agent="b"),
            {"type": "turn/end", "turn": "1", "data": {"reason": "completed"}},
        )

        closers = place.store().inspect("s").closers

        assert [(e.agent, e.turn, e.type) for e in closers] == [
            ("b", "1", "tool/result"),
            ("b", "1", "turn/end"),
            ("a", "1", "step/end"),
            ("a", "1", "turn/end"),
        ]
        assert closers[2].data == {"step": 4, "interrupted": True}

    def test_closers_are_the_same_for_everybody(self, place: Place) -> None:
        """Two readers and the writer make the same closers, byte for byte, at the last time."""
        # case 29
        job = {"type": "job/start", "data": {"id": "j"}, "time": 5}
        leave(place, *OPEN, asks("a", "b"), called("a"), job)

        one = place.store().inspect("s").closers
        place.runtime.sleep(3600)
        other = place.store().inspect("s").closers
        place.store().load("s")
        stored = list(place.store().read_from("s", one[0].seq))

        assert [event.raw for event in one] == [event.raw for event in stored]
        assert one == other == stored
        assert {event.time for event in one} == {5}

    def test_events_that_fit_no_pattern_do_no_harm(self, place: Place) -> None:
        """Ends without starts, odd payloads and foreign shapes neither fail nor open anything."""
        # deepseek-harness 23
        odd: tuple[Any, ...] = (
            None,
            5,
            "x",
            [],
            {"id": 5},
            {"content": [{"type": "tool-call"}, 1]},
        )
        kinds = ("turn/end", "step/end", "tool/result", "job/end", "job/start", "assistant/message")
        leave(place, *({"type": kind, "data": data} for kind in kinds for data in odd))

        assert place.store().inspect("s").closers == []
        assert brief(place.store().load("s").events)[-1][0] == 35

    def test_another_vocabulary_gets_no_closers(self, place: Place) -> None:
        """Where the caller owns the event types, nothing is added."""
        leave(place, *TURN, *OPEN, vocabulary=None)

        assert place.store().inspect("s").closers == []
        assert brief(place.store().load("s").events)[-1] == (7, "step/start")

    def test_a_live_turn_is_left_alone(self, place: Place) -> None:
        """While a writer lives, its turn is open and not interrupted, and nobody may load it."""
        # deepseek-harness 14, 15, 31
        store = place.store()
        session = store.create("s")
        with pytest.raises(SessionNotFound):
            store.load("s")
        session.append_many([*TURN, *OPEN])

        for other in (store, place.store()):
            found = other.inspect("s")
            assert found.status == "running"
            assert brief(found.events)[-1] == (7, "step/start")
            assert (found.closers, found.problems) == ([], [])
            with pytest.raises(SessionBusy):
                other.load("s")
        session.append("turn/end", {"reason": "completed"}, turn="t2")
        session.close()

        loaded = place.store().load("s")
        assert [e.data for e in loaded.events][-1] == {"reason": "completed"}
        assert brief(loaded.events)[-1] == (8, "turn/end")

    def test_a_prepared_session_is_reserved(self, place: Place) -> None:
        """`prepare` closes what is open and keeps others from writing until it is given back."""
        leave(place, *TURN, *OPEN)
        store = place.store()

        with store.prepare("s") as prepared:
            assert prepared.position.seq == 9
            assert prepared.header.id == "s"
            with pytest.raises(SessionBusy):
                place.store().writer("s")
        with store.prepare("s") as prepared:
            session = prepared.session()
        assert session.append("x").seq == 10
        session.close()
        with pytest.raises(SessionClosed):
            session.append("x")

    def test_a_status_is_a_fact_of_the_tail(self, place: Place, store: Store) -> None:
        """A session at rest is complete; verifying says whether a turn waits to be closed."""
        leave(place, *TURN, *OPEN, id="open")
        leave(place, *TURN, id="closed")

        assert [store.inspect(id).status for id in ("open", "closed")] == ["complete"] * 2
        assert store.verify("open").status == "interrupted"
        assert store.verify("closed").status == "ok"
        assert store.verify("open").closers == 2
        assert store.verify("open").sound
        assert store.verify("open").position == store.inspect("open").position
