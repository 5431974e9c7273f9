"""The conversation: what each agent's model is told, now and as of any turn."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.model import values
from perdure.model.event import Event, draft
from perdure.model.header import new_header
from perdure.model.vocabulary import TOOL_NOT_STARTED, TOOL_OUTCOME_UNKNOWN
from perdure.recovery.closers import OpenWork
from perdure.views.conversation import (
    Branch,
    Conversation,
    agents,
    branches,
    head,
    knows,
    messages,
    messages_at,
    parent_of,
    turns,
)
from perdure.views.fold import Fold
from perdure.views.view import Rows

HEADER = new_header("said", created_at=0)


class Told:
    """A log in the making, with the fold of it."""

    def __init__(self, agent: str | None = None) -> None:
        self.agent = agent
        self.turn: str | None = None
        self.events: list[Event] = []
        self.reads = 0
        self.fold = Fold([Conversation()], HEADER, self.read)

    def read(self, seq: int) -> Iterator[Event]:
        self.reads += 1
        return iter(self.events[:seq])

    @property
    def rows(self) -> Rows:
        return self.fold.rows["conversation"]

    def add(self, kind: str, data: Any, **named: Any) -> int:
        named = {"agent": self.agent, "turn": self.turn, **named}
        seq = len(self.events)
        self.events.append(draft(kind, data, time=seq, **named).at(seq))
        self.fold.event(self.events[-1])
        return seq

    def start(self, turn: str | None, **where: str) -> int:
        self.turn = turn
        return self.add("turn/start", where)

    def end(self) -> int:
        return self.add("turn/end", {"reason": "completed"})

    def user(self, text: str) -> int:
        return self.add("user/message", {"content": [said(text)]})

    def answer(self, text: str, *calls: str) -> int:
        asked = [{"type": "tool-call", "id": c, "name": "bash", "arguments": {}} for c in calls]
        return self.add("assistant/message", {"content": [said(text), *asked]})

    def call(self, call: str) -> int:
        return self.add("tool/call", {"id": call, "name": "bash"})

    def result(self, call: str, text: str) -> int:
        return self.add("tool/result", {"id": call, "content": [said(text)]})

    def delta(self, text: str, **named: Any) -> int:
        return self.add("assistant/delta", {"text": text, **named})

    def compact(self, summary: str, first_kept: int | None = None) -> int:
        data = {"summary": [said(summary)], "first_kept": first_kept}
        return self.add("context/compacted", data)

    def rewind(self, to: str | None) -> int:
        return self.add("context/rewound", {"to": to}, turn=None)

    def exchange(self, turn: str, **where: str) -> None:
        """A turn with a question and an answer that name it."""
        self.start(turn, **where)
        self.user(f"{turn}?")
        self.answer(f"{turn}!")
        self.end()

    def lines(self) -> list[str]:
        return lines(messages(self.rows, self.agent))

    def lines_at(self, turn: str) -> list[str]:
        return lines(messages_at(lambda: iter(self.events), HEADER, self.agent, turn))


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def lines(found: list[dict[str, Any]]) -> list[str]:
    """Messages as short texts: `> asked`, `< answered [calls]`, `= results`; `~` interrupted."""
    return [line(message) for message in found]


def line(message: dict[str, Any]) -> str:
    mark = {"user": ">", "assistant": "<", "tool": "="}[message["role"]]
    mark = "~" if message.get("interrupted") else "*" if message.get("source") else mark
    parts = []
    for block in message["content"]:
        if block["type"] == "tool-call":
            parts.append(f"[{block['id']}]")
        elif block["type"] == "tool-result":
            code = block.get("error", {}).get("code")
            parts.append(f"{block['id']}:{code or block['content'][0]['text']}")
        else:
            parts.append(block["text"])
    return " ".join([mark, *parts])


@pytest.fixture
def told() -> Told:
    return Told()


# --- messages -----------------------------------------------------------------------------------


def test_messages_are_neutral(told: Told) -> None:
    """A message says who said what, where, and what else was told of it, in this order."""
    told.start("t1")
    told.add("user/message", {"content": [said("look")], "source": "steering"})
    call = {"type": "tool-call", "id": "c1", "name": "bash", "arguments": {"cmd": "ls"}}
    answer = {"content": [said("so"), call], "model": "m", "response": "r1", "usage": {"input": 5}}
    told.add("assistant/message", answer)
    told.add("tool/call", {"id": "c1", "name": "bash", "arguments": {"cmd": "ls"}})
    error = {"code": "EXIT", "message": "exit 1", "more": "unknown to readers"}
    told.add("tool/result", {"id": "c1", "content": [said("a.py")], "error": error})
    told.add("assistant/message", {"content": [said("in part")], "interrupted": True})

    result = {
        "type": "tool-result",
        "id": "c1",
        "name": "bash",
        "content": [said("a.py")],
        "error": {"code": "EXIT", "message": "exit 1"},
    }
    expected = [
        {"role": "user", "content": [said("look")], "seq": 1, "turn": "t1", "source": "steering"},
        {"role": "assistant", "content": [said("so"), call], "seq": 2, "turn": "t1", "model": "m"},
        {"role": "tool", "content": [result], "seq": 4, "turn": "t1"},
        {"role": "assistant", "content": [said("in part")], "seq": 5, "turn": "t1"}
        | {"interrupted": True},
    ]
    found = messages(told.rows, None)
    assert values.encode(found) == values.encode(expected)
    assert messages(told.rows, "nobody") == []


def test_results_follow_their_answer_in_the_order_of_the_calls(told: Told) -> None:
    """Results of parallel calls stand directly behind the answer, whatever came between."""
    told.start("t1")
    told.answer("all", "a", "b", "c")
    told.result("c", "3")
    told.user("hurry")
    told.result("a", "1")
    told.result("b", "2")
    assert told.lines() == ["< all [a] [b] [c]", "= a:1 b:2 c:3", "> hurry"]


def test_dangling_calls_are_answered_when_they_are_read(told: Told) -> None:
    """A call without result has an error that says whether it ran, and the rows have none."""
    told.start("t1")
    told.user("go")
    told.answer("all", "a", "b", "c")
    told.call("a")
    told.call("b")
    told.result("a", "1")
    before = told.rows.copy().all
    expected = f"= a:1 b:{TOOL_OUTCOME_UNKNOWN} c:{TOOL_NOT_STARTED}"
    assert told.lines() == ["> go", "< all [a] [b] [c]", expected]
    assert values.encode(messages(told.rows, None)) == values.encode(messages(told.rows, None))
    assert told.rows.all == before

    open_results = messages(told.rows, None)[2]
    work = OpenWork()
    work.events(told.events)
    for closer in work.closers():
        told.add(closer.type, closer.value)
    assert messages(told.rows, None)[2]["content"] == open_results["content"]
    told.start("t2")
    told.user("and now?")
    assert told.lines()[2:] == [expected, "> and now?"]


def test_orphan_and_second_results_are_dropped(told: Told) -> None:
    """A result without a call, or of a call that has one, changes nothing."""
    told.start("t1")
    told.result("nobody", "0")
    told.answer("one", "a")
    told.result("a", "first")
    told.result("a", "second")
    assert told.lines() == ["< one [a]", "= a:first"]


def test_nobody_speaks_by_a_result_alone(told: Told) -> None:
    """Who only starts or answers calls that nobody asked for takes no part in the conversation."""
    told.call("c1")
    told.result("c1", "late")

    assert agents(told.rows) == []


def test_id_that_comes_again_is_another_call(told: Told) -> None:
    """A result goes to the newest open call of its id; an older one that is open waits on."""
    told.start("t1")
    told.answer("one", "a")
    told.answer("two", "a")
    told.answer("three", "a", "a")
    told.result("a", "3, first")
    told.result("a", "3, second")
    told.result("a", "2")
    assert told.lines()[1:] == [
        *(f"= a:{TOOL_NOT_STARTED}", "< two [a]", "= a:2"),
        *("< three [a] [a]", "= a:3, first a:3, second"),
    ]


def test_late_result_is_known_from_the_turn_on_in_which_it_comes(told: Told) -> None:
    """A result that comes in a later turn stands with its call, but not as of the earlier turn."""
    told.start("t1")
    told.answer("one", "a")
    told.exchange("t2")
    told.start("t3")
    told.result("a", "late")
    now = ["< one [a]", "= a:late", "> t2?", "< t2!"]
    assert told.lines() == now
    then = ["< one [a]", f"= a:{TOOL_NOT_STARTED}"]
    assert told.lines_at("t1") == then
    assert told.lines_at("t2") == [*then, *now[2:]]
    assert told.lines_at("t3") == now

    assert told.reads == 0
    told.start("t4", parent="t2")
    assert told.lines() == [*then, *now[2:]]
    assert told.reads == 2


def test_text_that_was_cut_off_is_kept(told: Told) -> None:
    """Deltas that no message repeated become an interrupted answer when their turn ends."""
    told.start("t1")
    told.user("tell")
    told.delta("hm", kind="thinking")
    told.delta("Once ")
    told.delta("upon")
    told.delta('{"cmd', call="c1")
    told.delta("a time", index=1)
    assert told.lines() == ["> tell"]
    told.end()
    assert told.lines() == ["> tell", "~ Once upon a time"]
    message = messages(told.rows, None)[1]
    assert message["content"] == [said("Once upon"), said("a time")]
    assert (message["seq"], message["turn"]) == (3, "t1")


def test_text_that_a_message_repeats_is_not_told_twice(told: Told) -> None:
    """A message takes the place of its deltas, also of those of a request that was given up."""
    told.start("t1")
    told.add("step/start", {"step": 1})
    told.delta("Onc")
    told.add("step/start", {"step": 2})
    told.delta("Once")
    told.answer("Once upon")
    told.delta("nothing", kind="thinking")
    told.delta("")
    told.end()
    assert told.lines() == ["< Once upon"]


@pytest.mark.parametrize("how", ["user", "compact", "start", "rewind"])
def test_cut_off_text_stands_before_what_comes_next(told: Told, how: str) -> None:
    """Whatever makes clear that nothing more comes lets the text stand, in its own turn."""
    told.start("t1")
    told.delta("Once \ud83d")
    told.add("request/header", {"header": None, "reason": "retry"})
    told.delta("Twice \ud83d")
    told.delta("\ude00")
    if how == "compact":
        told.compact("sum", first_kept=1)
    else:
        getattr(told, how)("t1")
    whole = "~ Once \ud83d Twice \U0001f600"
    after = {"user": [whole, "> t1"], "compact": ["* sum", whole]}
    assert told.lines() == after.get(how, [whole])
    values.encode(dict(told.rows.all))


def test_malformed_payloads_are_skipped(told: Told) -> None:
    """A payload that does not fit its type changes nothing; blocks without sense are left out."""
    told.exchange("t1")
    for kind in Conversation.types - {"step/start", "request/header"}:
        wrong = {"content": "x", "to": 5, "parent": 5, "summary": 5, "text": 5}
        for data in (None, 5, "x", wrong):
            told.add(kind, data)
    told.add("assistant/message", {"content": [{"type": "tool-call", "name": "no id"}]})
    told.add("user/message", {"content": [{"type": "tool-result", "id": "a"}]})
    told.add("user/message", {"content": []})
    assert told.lines() == ["> t1?", "< t1!"]


# --- compaction ---------------------------------------------------------------------------------


def test_summary_stands_for_what_was_compacted(told: Told) -> None:
    """A compaction leaves its summary, as the user's, and what was said from an event on."""
    told.exchange("t1")
    told.start("t2")
    kept = told.user("t2?")
    told.answer("t2!")
    told.compact("sum", first_kept=kept)
    told.end()
    assert told.lines() == ["* sum", "> t2?", "< t2!"]
    first = messages(told.rows, None)[0]
    expected = {"role": "user", "content": [said("sum")], "seq": 7, "turn": "t2"}
    assert first == expected | {"source": "summary"}
    told.start("t3")
    told.compact("all")
    assert told.lines() == ["* all"]
    assert turns(told.rows, None) == ["t3"]


def test_compaction_does_not_cut_pairs(told: Told) -> None:
    """If one of the results of an answer is kept, the answer and all its results are."""
    told.start("t1")
    told.user("go")
    told.answer("both", "a", "b")
    told.result("a", "1")
    second = told.result("b", "2")
    told.answer("so")
    told.compact("sum", first_kept=second)
    assert told.lines() == ["* sum", "< both [a] [b]", "= a:1 b:2", "< so"]


def test_pair_far_before_the_boundary_is_kept_whole(told: Told) -> None:
    """A pair whose result came late is kept, what was said between its call and result is not."""
    told.start("t1")
    told.answer("slow", "a", "b")
    told.user("meanwhile")
    told.answer("other", "c")
    told.result("c", "3")
    late = told.result("b", "2")
    told.user("and?")
    told.compact("sum", first_kept=late)
    expected = ["* sum", "< slow [a] [b]", f"= a:{TOOL_NOT_STARTED} b:2", "> and?"]
    assert told.lines() == expected
    told.result("a", "1")
    assert told.lines()[2] == "= a:1 b:2"


def test_compaction_between_call_and_result_keeps_the_call(told: Told) -> None:
    """A call that waits while its turn is compacted is kept: its result is still to come."""
    told.start("t0")
    told.answer("never", "x")
    told.start("t1")
    told.user("go")
    told.answer("one", "a")
    told.call("a")
    told.compact("sum")
    told.result("a", "1")
    told.result("x", "dropped with its call")
    assert told.lines() == ["* sum", "< one [a]", "= a:1"]


def test_older_summary_goes_with_a_later_compaction(told: Told) -> None:
    """A compaction that keeps from before an older one does not keep the older summary."""
    told.start("t1")
    kept = told.answer("one", "a")
    told.compact("old", first_kept=kept)
    told.result("a", "1")
    told.compact("new", first_kept=kept)
    assert told.lines() == ["* new", "< one [a]", "= a:1"]


def test_compaction_counts_on_its_own_lineage_alone(told: Told) -> None:
    """Who goes on behind a turn before a compaction has what was said then, not the summary."""
    told.exchange("t1")
    told.exchange("t2")
    told.start("t3")
    told.compact("sum")
    told.exchange("t4")
    assert told.lines() == ["* sum", "> t4?", "< t4!"]
    assert told.reads == 0
    told.exchange("t5", parent="t1")
    assert told.lines() == ["> t1?", "< t1!", "> t5?", "< t5!"]
    assert told.reads == 2
    told.exchange("t6", parent="t4")
    assert told.lines() == ["* sum", "> t4?", "< t4!", "> t6?", "< t6!"]
    assert turns(told.rows, None) == ["t3", "t4", "t6"]


def test_summary_that_says_nothing_is_no_message(told: Told) -> None:
    """A compaction with an empty summary leaves what it keeps."""
    told.exchange("t1")
    told.add("context/compacted", {"summary": []})
    assert told.lines() == []
    told.exchange("t2")
    assert told.lines() == ["> t2?", "< t2!"]


# --- the tree of turns ---------------------------------------------------------------------------


def test_rewind_goes_back_and_loses_nothing(told: Told) -> None:
    """Behind a rewind the agent goes on from the turn it names; what was said since is a branch."""
    for turn in ("t1", "t2", "t3"):
        told.exchange(turn)
    told.rewind("t1")
    assert told.lines() == ["> t1?", "< t1!"]
    assert head(told.rows, None) == "t1"
    told.exchange("t4")
    assert told.lines() == ["> t1?", "< t1!", "> t4?", "< t4!"]
    assert parent_of(told.rows, None, "t4") == "t1"
    assert told.lines_at("t3") == ["> t1?", "< t1!", "> t2?", "< t2!", "> t3?", "< t3!"]
    told.rewind("t3")
    assert told.lines() == told.lines_at("t3")
    told.rewind(None)
    assert told.lines() == []
    assert head(told.rows, None) is None
    told.rewind("nowhere")
    assert told.lines() == []


def test_edit_takes_the_place_of_a_turn(told: Told) -> None:
    """A turn that replaces another follows what that one followed, with nothing named but it."""
    for turn in ("t1", "t2", "t3"):
        told.exchange(turn)
    told.exchange("t2b", replaces="t2", how="edit")
    assert told.lines() == ["> t1?", "< t1!", "> t2b?", "< t2b!"]
    assert told.reads == 0
    told.exchange("t2c", replaces="t2b", how="regenerate")
    assert told.lines() == ["> t1?", "< t1!", "> t2c?", "< t2c!"]
    told.exchange("t1b", replaces="t1", how="edit")
    assert told.lines() == ["> t1b?", "< t1b!"]
    told.exchange("t3b", replaces="t3")
    assert told.lines() == ["> t1?", "< t1!", "> t2?", "< t2!", "> t3b?", "< t3b!"]


def test_naming_where_the_agent_stands_reads_nothing(told: Told) -> None:
    """A parent that is the last turn is plain continuation; an unknown one is no error."""
    told.exchange("t1")
    told.exchange("t2", parent="t1")
    assert told.reads == 0
    told.exchange("t3", parent="nowhere", replaces="nowhere")
    assert told.lines() == ["> t1?", "< t1!", "> t2?", "< t2!", "> t3?", "< t3!"]
    assert parent_of(told.rows, None, "t3") == "t2"


def test_turn_that_starts_again_is_the_newest_of_its_name(told: Told) -> None:
    """A turn id means the turn that was started last under it, on whatever branch that is."""
    told.exchange("t1")
    told.exchange("t2")
    told.start("t1")
    told.user("again")
    told.rewind("t2")
    assert told.lines() == ["> t1?", "< t1!", "> t2?", "< t2!"]
    told.rewind("t1")
    assert told.lines() == ["> t1?", "< t1!", "> t2?", "< t2!", "> again"]
    assert told.lines_at("t1") == told.lines()


def test_messages_as_of_a_turn(told: Told) -> None:
    """A turn's messages are those at its end, also when others were begun behind it since."""
    told.user("before all turns")
    told.exchange("t1")
    told.user("between")
    told.exchange("t2")
    assert told.lines_at("t1") == ["> before all turns", "> t1?", "< t1!", "> between"]
    assert told.lines_at("t2") == told.lines()
    assert messages(told.rows, None)[3]["turn"] == "t1"
    with pytest.raises(KeyError):
        told.lines_at("nowhere")


def test_agents_have_conversations_of_their_own(told: Told) -> None:
    """What one agent does, a rewind or a compaction too, changes nothing of another's."""
    told.exchange("t1")
    told.agent = "worker"
    told.exchange("t1")
    told.start("w2")
    told.answer("one", "a")
    told.agent = None
    told.result("a", "of somebody else")
    told.rewind(None)
    told.agent = "worker"
    expected = ["> t1?", "< t1!", "< one [a]", f"= a:{TOOL_NOT_STARTED}"]
    assert told.lines() == expected
    told.rewind("t1")
    told.exchange("w3", parent="w2")
    assert told.lines() == [*expected, "> w3?", "< w3!"]
    told.agent = None
    assert told.lines() == []
    assert agents(told.rows) == [None, "worker"]


def test_branches_are_the_turns_and_where_they_belong(told: Told) -> None:
    """Each turn is told with what it follows, what it replaces, and whether it is live."""
    told.exchange("t1")
    told.exchange("t2")
    told.exchange("t2b", replaces="t2", how="edit")
    told.rewind("t2b")
    told.agent = "worker"
    told.start("w1")
    told.answer("looking  at\nit " + "x" * 100)
    found = branches(iter(told.events))
    common: dict[str, Any] = {"replaces": None, "how": None, "live": True, "head": False}
    one = {**common, "agent": None, "turn": "t1", "seq": 0, "end": 3, "preview": "t1?"}
    two = {**common, "agent": None, "turn": "t2", "seq": 4, "end": 7, "preview": "t2?"}
    edit = {**common, "agent": None, "turn": "t2b", "seq": 8, "end": 11, "preview": "t2b?"}
    edit |= {"replaces": "t2", "how": "edit", "head": True}
    worker = {**common, "agent": "worker", "turn": "w1", "seq": 13, "end": 14, "head": True}
    worker |= {"preview": "looking at it " + "x" * 65 + "…"}
    assert found == [
        Branch(**one, parent=None, behind=None),
        Branch(**{**two, "live": False}, parent="t1", behind=0),
        Branch(**edit, parent="t1", behind=0),
        Branch(**worker, parent=None, behind=None),
    ]
    assert branches(iter(told.events), "worker") == found[3:]
    assert branches(iter(told.events), None) == found[:3]


# --- cost ---------------------------------------------------------------------------------------


def test_each_turn_changes_rows_of_its_own_size() -> None:
    """What is to be stored after a turn does not grow with the turns before it."""
    told = Told()
    sizes = []
    for number in range(200):
        told.start(f"t{number:03}")
        told.user("why? " * 20)
        for _ in range(30):
            told.delta("word ")
        told.answer("because " * 20, f"c{number:03}")
        told.call(f"c{number:03}")
        told.result(f"c{number:03}", "it is so " * 20)
        told.end()
        put, removed = told.rows.changes()
        sizes.append(len(values.encode(put)) + len(values.encode(removed)))
        told.rows.stored()
    said_bytes = len(values.encode(messages(told.rows, None)))
    assert max(sizes[-50:]) <= max(sizes[:50]) + 50
    assert sum(sizes) < 2 * said_bytes
    assert max(len(values.encode(row)) for row in told.rows.all.values()) < 1000


def test_long_answer_streams_in_pieces() -> None:
    """The row that a delta changes is bounded, however long the answer becomes."""
    told = Told()
    told.start("t1")
    for _ in range(5000):
        told.delta("word ")
        put, _ = told.rows.changes()
        told.rows.stored()
        assert len(values.encode(put)) < 6000
    told.end()
    assert told.lines() == ["~ " + "word " * 5000]
    assert not [key for key in told.rows.all if key.startswith(("p", "d"))]


def test_going_to_another_branch_holds_what_is_live() -> None:
    """Memory of a switch goes with the live messages, not with those of the whole log."""

    def event(seq: int, kind: str, data: Any) -> Event:
        return draft(kind, data, time=0, turn=f"t{seq // 3}").at(seq)

    def log(count: int) -> Iterator[Event]:
        for seq in range(count):
            if seq % 3 == 0:
                yield event(seq, "turn/start", {})
            elif seq % 3 == 1:
                yield event(seq, "user/message", {"content": [said(f"{seq} " * 4000)]})
            else:
                yield event(seq, "context/compacted", {"summary": [said("sum")]})

    count = 1200
    fold = Fold([Conversation()], HEADER, log)
    fold.events(log(count))
    start = draft("turn/start", {"parent": "t200"}, time=0, turn="new").at(count)
    tracemalloc.start()
    try:
        fold.event(start)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lines(messages(fold.rows["conversation"], None)) == ["* sum"]
    assert head(fold.rows["conversation"], None) == "new"
    # What was said is 8 MB.
    assert peak < 1_000_000


def test_answers_given_again_and_again_read_nothing(told: Told) -> None:
    """Any version of a turn can be replaced from the rows, as long as what it follows is live."""
    for turn in ("t1", "t2", "t3"):
        told.exchange(turn)
    last = "t2"
    for number in range(50):
        told.exchange(f"v{number}", replaces=last, how="regenerate")
        last = f"v{number}" if number % 2 else "t2"
        assert told.lines() == ["> t1?", "< t1!", f"> v{number}?", f"< v{number}!"]
    assert told.reads == 0
    assert all(knows(told.rows, None, turn) for turn in ("t1", "t2", "v0", "v48", "v49"))
    # What followed a version that is gone, and what nobody knows, is asked of the log.
    assert not knows(told.rows, None, "t3")
    assert not knows(told.rows, None, "nowhere")
    assert not knows(told.rows, "nobody", "t1")

    told.exchange("t3b", replaces="t3")
    assert told.lines() == ["> t1?", "< t1!", "> t2?", "< t2!", "> t3b?", "< t3b!"]
    reads = told.reads
    assert reads > 0
    told.exchange("v50", replaces="v49")
    told.exchange("v51", replaces="t2")
    assert told.lines() == ["> t1?", "< t1!", "> v51?", "< v51!"]
    assert told.reads == reads


def test_versions_go_with_what_they_follow(told: Told) -> None:
    """Rows of turns that were left behind are those behind live nodes, and no others."""
    told.exchange("t1")
    told.exchange("t2")
    told.exchange("t2b", replaces="t2")
    assert knows(told.rows, None, "t2")
    # The id comes again on another node: that one is meant from then on.
    told.exchange("t2", parent="t2b")
    told.exchange("t3", replaces="t2")
    assert told.lines() == ["> t1?", "< t1!", "> t2b?", "< t2b!", "> t3?", "< t3!"]
    told.exchange("t1b", replaces="t1")
    assert [key[0] for key in told.rows.all if key[0] in "gs"] == ["g", "s"]
    told.compact("sum")
    assert [key for key in told.rows.all if key[0] in "gs"] == []
    told.exchange("t1c", replaces="t1")
    assert told.lines() == ["> t1c?", "< t1c!"]


def test_answer_that_a_question_came_into_is_told_once(told: Told) -> None:
    """What was streamed before somebody spoke goes when the whole answer comes behind it."""
    told.start("t1")
    told.user("tell")
    told.add("step/start", {"step": 1})
    told.delta("Once \ud83d")
    told.user("louder")
    told.delta("\ude00 up")
    told.user("slower")
    told.delta("on a")
    assert told.lines() == ["> tell", "~ Once \ud83d", "> louder", "~ \ude00 up", "> slower"]
    told.answer("Once \U0001f600 upon a time", "c1")
    told.result("c1", "so")
    assert told.lines() == [
        *("> tell", "> louder", "> slower"),
        *("< Once \U0001f600 upon a time [c1]", "= c1:so"),
    ]
    assert not [key for key in told.rows.all if key.startswith("q")]
    told.rewind("t1")
    assert told.lines() == told.lines_at("t1")


@pytest.mark.parametrize("between", ["step/start", "request/header", "another text", "turn/start"])
def test_text_of_another_answer_stays(told: Told, between: str) -> None:
    """Only what the same step streamed, and the answer begins with, is part of that answer."""
    told.start("t1")
    told.delta("Once")
    told.user("louder")
    if between == "turn/start":
        told.start("t2")
    elif between != "another text":
        told.add(between, {"step": 2} if between == "step/start" else {"header": None})
    whole = "Twice" if between == "another text" else "Once upon"
    told.answer(whole)
    assert told.lines() == ["~ Once", "> louder", f"< {whole}"]


def test_answer_behind_a_compaction_is_told_once(told: Told) -> None:
    """A compaction while an answer is streamed keeps its beginning, which goes all the same."""
    told.start("t1")
    told.user("tell")
    kept = told.delta("Once")
    told.compact("sum", first_kept=kept)
    assert told.lines() == ["* sum", "~ Once"]
    told.answer("Once upon")
    assert told.lines() == ["* sum", "< Once upon"]
    told.delta("Now")
    told.compact("more")
    told.answer("Now then")
    assert told.lines() == ["* more", "< Now then"]
