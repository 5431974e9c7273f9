"""What of a session can be searched: the passages of its events, and of what never came whole."""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.catalog import passages
from perdure.catalog.passages import KINDS, Passage, Passages, digest_of
from perdure.model.event import Draft, Event, draft
from perdure.model.limits import DEPTH_MAX
from perdure.model.vocabulary import PAYLOADS
from perdure.testing.histories import history
from perdure.testing.strategies import json_values, nested, texts
from tests.support import scaled

Told = tuple[str, str, str | None]
"""Kind, text and call of a passage."""

TYPES = sorted(PAYLOADS)


def one(kind: str, data: Any, agent: str | None = None, turn: str | None = "t1") -> Draft:
    return draft(kind, data, time=7, agent=agent, turn=turn)


def placed(drafts: Iterable[Draft]) -> list[Event]:
    return [each.at(seq) for seq, each in enumerate(drafts)]


def at_once(events: Iterable[Event]) -> list[Passage]:
    """All passages of a log, those of its end behind the others."""
    reading = Passages()
    found = [said for event in events for said in reading.read(event)]
    return [*found, *reading.end()]


def in_parts(events: Sequence[Event], cuts: Iterable[int]) -> list[Passage]:
    """The passages of a log that grew: from its floor on all are replaced by what is read then."""
    kept: list[Passage] = []
    floor = 0
    for cut in [*sorted(cuts), len(events)]:
        reading = Passages()
        kept = [said for said in kept if said.seq < floor]
        for event in events[floor:cut]:
            kept.extend(reading.read(event))
        floor = cut if reading.floor is None else reading.floor
        kept.extend(reading.end())
    return kept


def told(found: Iterable[Passage]) -> list[Told]:
    return [(said.kind, said.text, said.call) for said in found]


def told_of(kind: str, data: Any) -> list[Told]:
    return told(at_once(placed([one(kind, data)])))


def unfinished(*drafts: Draft) -> list[tuple[int, str]]:
    """Numbers and texts of the passages that are unfinished."""
    found = at_once(placed(drafts))
    return [(said.seq, said.text) for said in found if said.kind == "unfinished"]


def piece(text: Any, agent: str | None = None, turn: str | None = "t1", **more: Any) -> Draft:
    return one("assistant/delta", {"text": text, **more}, agent, turn)


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


# --- the texts of each type -----------------------------------------------------------------------

ERROR = {"code": "E_IO", "message": "disk gone"}
FAILED = ("error", "E_IO\ndisk gone", None)
CALL = {"id": "c1", "name": "bash", "arguments": {"cmd": "ls", "times": [2, True, None]}}
CALLED = ("tool-call", "bash\ncmd\nls\ntimes\n2", "c1")

TABLE: list[tuple[str, Any, list[Told]]] = [
    ("user/message", {"content": [text("a"), text("b")]}, [("user", "a\nb", None)]),
    (
        "assistant/message",
        {
            "content": [
                {"type": "thinking", "text": "hm"},
                text("so"),
                {"type": "tool-call", **CALL},
            ]
        },
        [("thinking", "hm", None), ("assistant", "so", None), CALLED],
    ),
    ("tool/call", CALL, [CALLED]),
    ("tool/result", {"id": "c1", "content": [text("out")]}, [("tool-result", "out", "c1")]),
    (
        "tool/result",
        {"id": "c1", "content": [text("out")], "error": ERROR},
        [("tool-result", "out", "c1"), ("error", "E_IO\ndisk gone", "c1")],
    ),
    ("context/compacted", {"summary": [text("so far")]}, [("summary", "so far", None)]),
    ("state/set", {"key": "goal", "value": {"a": 1.5}}, [("state", "goal\na\n1.5", None)]),
    ("effect/intent", {"about": "pay"}, [("state", "pay", None)]),
    (
        "effect/outcome",
        {"status": "failed", "value": "paid", "error": ERROR},
        [("state", "paid", None), FAILED],
    ),
    ("trigger/set", {"id": "w", "kind": "timer", "state": 5}, [("trigger", "w\ntimer\n5", None)]),
    ("trigger/fired", {"id": "w", "content": ["go"]}, [("trigger", "w\ngo", None)]),
    (
        "channel/message",
        {"channel": "ops", "sender": "bot", "content": {"text": "up"}},
        [("channel", "ops\nbot\ntext\nup", None)],
    ),
    ("job/start", {"id": "j", "name": "build", "arguments": ["x"]}, [("job", "j\nbuild\nx", None)]),
    ("job/update", {"id": "j", "output": "half"}, [("job", "j\nhalf", None)]),
    (
        "job/end",
        {"id": "j", "status": "failed", "error": ERROR},
        [("job", "j\nfailed", None), FAILED],
    ),
    (
        "subagent/start",
        {"id": "s", "session": "child", "name": "scout", "task": "look"},
        [("subagent", "s\nchild\nscout\nlook", None)],
    ),
    (
        "subagent/end",
        {"id": "s", "status": "failed", "result": "none", "error": ERROR},
        [("subagent", "s\nfailed\nnone", None), FAILED],
    ),
    (
        "artifact/saved",
        {"name": "a.png", "blob": "ab" * 32, "size": 7, "media_type": "image/png"},
        [("artifact", "a.png\nimage/png", None)],
    ),
    ("session/titled", {"title": "Mend it"}, [("title", "Mend it", None)]),
    ("turn/end", {"reason": "error", "error": ERROR}, [FAILED]),
    ("turn/end", {"reason": "completed"}, []),
]


@pytest.mark.parametrize(("kind", "data", "wanted"), TABLE)
def test_an_event_says_its_texts(kind: str, data: Any, wanted: list[Told]) -> None:
    """What people may look for in an event of each type is a passage of its kind."""
    assert told_of(kind, data) == wanted


def test_the_table_is_complete() -> None:
    """Every type that says something stands in the table, and every kind comes out of it."""
    assert {kind for kind, _, _ in TABLE} == {*passages._TELLING}
    said = {kind for _, _, wanted in TABLE for kind, _, _ in wanted}
    assert {*said, "unfinished"} == {*KINDS}
    assert {*passages._TELLING} <= {*PAYLOADS}


@pytest.mark.parametrize("kind", [*sorted({*PAYLOADS} - {*passages._TELLING}), "note/aside"])
def test_other_types_say_nothing(kind: str) -> None:
    """What an event of another type holds is no passage as long as no answer is open."""
    data = {"text": "", "content": [text("x")], "error": ERROR, "name": "x", "title": "x"}
    assert told_of(kind, data) == []


def test_a_passage_knows_where_it_stands() -> None:
    """A passage has the number, the agent, the time and the turn of its event."""
    event = draft("user/message", {"content": [text("a")]}, time=-5, agent="x", turn="t9").at(44)
    assert at_once([event]) == [Passage(44, "user", "a", "x", -5, "t9", None)]


def test_a_call_says_the_same_twice() -> None:
    """The block that asks for a call and the event that begins it have one text and one call."""
    block = told_of("assistant/message", {"content": [{"type": "tool-call", **CALL}]})
    assert block == told_of("tool/call", CALL) == [CALLED]


BLOCKS: list[tuple[Any, str]] = [
    ("plain", "plain"),
    (["a", 5, None, True, text("b")], "a\n5\nb"),
    ([{"type": "image", "blob": "ab" * 32}, text("x")], "x"),
    ([{"type": "file", "name": "a.txt", "blob": "ab" * 32}], "a.txt"),
    (
        [{"type": "tool-call", "id": "c", "name": "bash", "arguments": {"cmd": "ls"}}],
        "bash\ncmd\nls",
    ),
    ([{"type": "tool-result", "id": "c", "content": [text("in"), "side"]}], "in\nside"),
    ([{"type": "tool-result", "id": "c", "content": "in"}], "in"),
    ([{"text": 5}], "5"),
    ([[["deep"]]], "deep"),
    ({"any": "thing"}, "any\nthing"),
]


@pytest.mark.parametrize(("content", "wanted"), BLOCKS)
def test_blocks_say_their_texts(content: Any, wanted: str) -> None:
    """Whatever content is made of, its texts stand below each other; what it holds does not."""
    assert told_of("user/message", {"content": content}) == [("user", wanted, None)]


@pytest.mark.parametrize("said", ["", " ", "\n\t", "\u2003", None, True, [], {}, [[], [""]]])
def test_nothing_is_no_passage(said: Any) -> None:
    """What has no letter, digit or sign is no passage, of whatever type."""
    assert told_of("user/message", {"content": said}) == []
    assert told_of("user/message", {"content": [{"type": "text", "text": said}]}) == []
    assert told_of("session/titled", {"title": said}) == []


@pytest.mark.parametrize("id", [None, 5, [], {}, True])
def test_a_call_without_a_sound_id_has_none(id: Any) -> None:
    """The id of a call is a text, or the passage is of no call."""
    assert told_of("tool/call", {"id": id, "name": "x"}) == [("tool-call", "x", None)]
    block = {"type": "tool-call", "id": id, "name": "x"}
    assert told_of("assistant/message", {"content": [block]}) == [("tool-call", "x", None)]
    (result,) = told_of("tool/result", {"id": id, "content": "x"})
    assert result[2] is None


def test_numbers_are_found_up_to_a_size() -> None:
    """Numbers are text, but for those that are longer than anybody would look for."""
    large = 2**1023 - 1
    value = [0, -7, 1.5, 1e300, large, 2**1023, -(2**5000)]
    wanted = f"k\n0\n-7\n1.5\n1e+300\n{large}"
    assert told_of("state/set", {"key": "k", "value": value}) == [("state", wanted, None)]


def test_what_is_nested_is_found_up_to_a_depth() -> None:
    """Values as deep as people nest them are found, deeper ones are left out."""
    value = nested(passages._DEPTH_MAX)
    (found,) = told_of("state/set", {"key": "k", "value": value})
    assert found[1].endswith("\ndeep")
    (found,) = told_of("state/set", {"key": "k", "value": [value]})
    assert found[1].startswith("k\nin")
    assert not found[1].endswith("deep")


@pytest.mark.parametrize("kind", TYPES)
def test_no_depth_is_too_deep(kind: str) -> None:
    """Data that is nested as deeply as a log takes it raises nothing, whatever it means."""
    blocks: Any = [text("bottom")]
    while _depth(blocks) + 3 < DEPTH_MAX:
        blocks = [{"type": "tool-result", "content": blocks}]
    deep = nested(DEPTH_MAX - 2)
    for name in ("content", "summary", "value", "arguments", "error", "result", "text", "title"):
        for value in (blocks, deep):
            at_once(placed([one(kind, {"id": "i", "key": "k", name: value})]))


def _depth(value: Any) -> int:
    depth = 0
    while isinstance(value, list | dict) and value:
        value = value[0] if isinstance(value, list) else list(value.values())[-1]
        depth += 1
    return depth


# --- answers that never came ----------------------------------------------------------------------


def test_an_answer_that_never_came_is_unfinished() -> None:
    """Pieces of an answer at the end of a log are one passage, where the first of them stands."""
    log = placed(
        [
            one("user/message", {"content": "go"}),
            piece("so ", "x"),
            one("note/aside", 5, "x"),
            piece("far", "x"),
        ]
    )
    reading = Passages()
    assert told(said for event in log for said in reading.read(event)) == [("user", "go", None)]
    assert reading.floor == 1
    wanted = Passage(1, "unfinished", "so far", "x", 7, "t1", None)
    assert [*reading.end()] == [wanted]
    assert [*reading.end()] == [wanted]
    assert reading.floor == 1


def test_each_stream_is_a_passage() -> None:
    """Pieces belong together that are of one agent, one turn, and one block of one answer."""
    found = unfinished(
        piece("a", "x"),
        piece("b", "y"),
        piece("c", "x", "t2"),
        piece("d", "x", index=1),
        piece("e", "x", kind="thinking"),
        piece("f", "x", call="c1"),
        piece("g", None),
        piece("h", "x", None),
        piece("A", "x"),
        piece("F", "x", call="c1"),
        piece("H", "x", None),
    )
    wanted = ["aA", "b", "c", "d", "e", "fF", "g", "hH"]
    assert found == [*enumerate(wanted)]


@pytest.mark.parametrize("kind", ["turn/end", "step/end"])
def test_what_ends_leaves_it_unfinished(kind: str) -> None:
    """The end of a turn or step ends what its agent streamed in that turn, and nothing else."""
    log = placed(
        [piece("a", "x"), piece("b", "y"), piece("c", "x", "t2"), one(kind, {"step": 1}, "x")]
    )
    reading = Passages()
    ended = [said for event in log for said in reading.read(event)]
    assert [(said.seq, said.kind, said.text) for said in ended] == [(0, "unfinished", "a")]
    assert reading.floor == 1
    assert [said.text for said in reading.end()] == ["b", "c"]


def test_a_failed_turn_says_both() -> None:
    """The end of a turn says what was not finished, and why."""
    end = one("turn/end", {"reason": "error", "error": ERROR})
    assert told(at_once(placed([piece("a"), end]))) == [("unfinished", "a", None), FAILED]


def test_a_message_repeats_what_was_streamed() -> None:
    """What was streamed of an answer that came is no passage; of other answers it is one."""
    answer = one("assistant/message", {"content": [text("whole")]}, "x")
    found = at_once(
        placed(
            [
                piece("wh", "x"),
                piece("hm", "x", kind="thinking"),
                piece("else", "y"),
                piece("later", "x", "t2"),
                answer,
                piece("next", "x"),
            ]
        )
    )
    assert [(said.seq, said.kind, said.text) for said in found] == [
        (4, "assistant", "whole"),
        (2, "unfinished", "else"),
        (3, "unfinished", "later"),
        (5, "unfinished", "next"),
    ]


def test_what_was_taken_up_is_no_floor() -> None:
    """The floor is the first piece of what is open, and none if nothing is."""
    reading = Passages()
    floors = []
    for event in placed(
        [
            one("user/message", {"content": "go"}),
            piece("a", "x"),
            piece("b", "y"),
            piece("c", "x"),
            one("assistant/message", {"content": []}, "x"),
            one("turn/end", {"reason": "aborted"}, "y"),
        ]
    ):
        [*reading.read(event)]
        floors.append(reading.floor)
    assert floors[:5] == [None, 1, 1, 1, 2]
    assert floors[5] is None


@pytest.mark.parametrize("odd", [None, 5, "text", [], ["text"]])
def test_a_piece_that_is_none_opens_nothing(odd: Any) -> None:
    """A piece whose data has no members is passed over."""
    reading = Passages()
    assert [*reading.read(one("assistant/delta", odd).at(0))] == []
    assert reading.floor is None


def test_a_character_that_was_cut_is_whole() -> None:
    """Of a character whose halves came in two pieces the passage has the whole."""
    assert unfinished(piece("so \ud83d"), piece("\ude00 it is")) == [(0, "so \U0001f600 it is")]
    assert unfinished(piece("so \ud83d"), piece("it is")) == [(0, "so \ud83dit is")]


def test_pieces_without_text_say_nothing() -> None:
    """A piece without a text takes nothing away from its stream; one of blanks is no passage."""
    odd = one("assistant/delta", {})
    assert unfinished(piece("a"), piece(5), piece(None), odd, piece("b")) == [(0, "ab")]
    assert unfinished(piece(5), piece("a")) == [(0, "a")]
    assert unfinished(piece(" "), piece("\n")) == []
    assert unfinished(piece(5)) == []


def test_what_a_piece_leaves_out_is_usual() -> None:
    """A piece without kind and index is of the text at index 0, as the vocabulary has it."""
    assert unfinished(piece("a"), piece("b", kind="text"), piece("c", index=0, call=None)) == [
        (0, "abc")
    ]


# --- properties -----------------------------------------------------------------------------------


@settings(max_examples=scaled(5000))
@given(st.sampled_from(TYPES), json_values())
def test_any_data_is_read(kind: str, data: Any) -> None:
    """Nothing that a log holds raises, and what comes of it is a passage of that event."""
    event = draft(kind, data, time=3, agent="x", turn="t").at(9)
    for said in at_once([event]):
        assert (said.seq, said.agent, said.time, said.turn) == (9, "x", 3, "t")
        assert said.kind in KINDS
        assert said.text.strip()


MEMBERS = sorted(
    {
        *(
            "id",
            "key",
            "name",
            "text",
            "title",
            "content",
            "summary",
            "error",
            "arguments",
            "value",
        ),
        *("kind", "index", "call", "state", "output", "result", "status", "about", "media_type"),
    }
)


_VALUES = json_values(max_leaves=4)
_BLOCKS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(("text", "tool-call", "thinking", "file", 5))},
        optional=dict.fromkeys(("text", "id", "name", "arguments", "content"), _VALUES),
    ),
    max_size=3,
)
_PAYLOADS = st.dictionaries(st.sampled_from(MEMBERS), _VALUES | _BLOCKS, max_size=4)


@settings(max_examples=scaled(3000))
@given(st.lists(st.tuples(st.sampled_from(TYPES), _PAYLOADS), max_size=4))
def test_odd_payloads_are_read(log: list[tuple[str, dict[str, Any]]]) -> None:
    """Payloads with the right members and any values raise nothing, one after the other."""
    for said in at_once(placed(one(kind, data) for kind, data in log)):
        assert said.kind in KINDS
        assert said.text.strip()
        assert said.call is None or isinstance(said.call, str)
        assert -(2**63) <= digest_of(said.text) < 2**63


def streamed() -> SearchStrategy[list[Draft]]:
    """Logs of pieces, answers and ends; what is of two agents is interleaved."""
    agents = st.sampled_from(("x", "y"))
    turns = st.sampled_from(("t1", "t1", "t1", None))
    pieces = st.builds(piece, st.sampled_from("abc"), agents, turns, index=st.just(0))
    kinds = st.sampled_from(("assistant/message", "turn/end", "step/end", "user/message"))
    others = st.builds(one, kinds, st.just({"content": "said"}), agents, turns)
    return st.lists(pieces | pieces | others, max_size=14)


# One stream ends while another one is open that began between its pieces.
OVERLAPPING = [
    piece("a", "y"),
    piece("b", "x"),
    piece("c", "y"),
    one("turn/end", {"reason": "aborted"}, "y"),
]


@settings(max_examples=scaled(5000))
@given(streamed(), st.lists(st.integers(0, 14), min_size=1, max_size=3))
@example(OVERLAPPING, [4])
def test_streams_read_in_parts_say_the_same(log: list[Draft], cuts: list[int]) -> None:
    """Who reads on from the floor has in the end what who reads all at once has."""
    events = placed(log)
    cuts = [min(cut, len(events)) for cut in cuts]
    assert {*in_parts(events, cuts)} == {*at_once(events)}


@settings(max_examples=scaled(1000))
@given(st.integers(), st.data())
def test_a_history_read_in_parts_says_the_same(seed: int, data: st.DataObject) -> None:
    """However often a log of agents that do everything wrong was read on, the same is found."""
    events = history(seed).events
    cuts = data.draw(st.lists(st.integers(0, len(events)), min_size=1, max_size=3))
    assert {*in_parts(events, cuts)} == {*at_once(events)}


@settings(max_examples=scaled(1000))
@given(texts(max_size=None), texts(max_size=None))
def test_a_digest_is_of_the_text(first: str, second: str) -> None:
    """A digest has 64 bits, is the same for the same text, and another one for another text."""
    assert -(2**63) <= digest_of(first) < 2**63
    assert (digest_of(first) == digest_of(second)) == (first == second)


def test_a_digest_stays_what_it_is() -> None:
    """The digest of a text is that of BLAKE2b in 64 bits: it stands in indexes that are kept."""
    assert digest_of("") == -1970711489451281740
    assert digest_of("\ud83d") != digest_of("\ufffd")
