"""What holds of all formats that can be imported: each knows its own records, and no others."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.errors import InvalidValue
from perdure.importers import claude_code, codex, heads
from perdure.importers.formats import FORMATS, LineFormat, Opening, format_names, format_of
from perdure.lenses import LENSES
from perdure.lenses.pieces import moment, sound
from perdure.model.header import Source, encode_header, new_header
from perdure.model.limits import TIME_MS_MAX
from tests.source_heads import (
    DATA,
    KINDS,
    SAMPLES,
    UUID,
    Record,
    facts_of,
    head_of,
    lines_of,
    ms,
    recognised,
)
from tests.support import scaled

NO_LINES = DATA / "claude-code/codemie_history-multi-clear.jsonl"
"""Pretty-printed: no line of it is an object."""


def shown(path: Path) -> str:
    return path.relative_to(DATA).as_posix()


# --- samples ------------------------------------------------------------------------------------


def test_there_are_samples_of_every_format() -> None:
    """All samples are found, and every format has some."""
    assert len(SAMPLES) == 21 + 15 + 13 + 7
    assert {name for _, name in SAMPLES} == set(FORMATS)


@pytest.mark.parametrize(("path", "name"), SAMPLES, ids=lambda each: str(each).split("data/")[-1])
def test_every_sample_is_recognised_by_its_own_format_alone(path: Path, name: str) -> None:
    """A sample is recognised by its format and by no other; its path may be of that format."""
    head = head_of(path)
    assert recognised(head) == ([] if path == NO_LINES else [name])
    assert KINDS[name].matches(str(path))
    assert bool(head) == (path != NO_LINES)


@pytest.mark.parametrize(("path", "name"), SAMPLES, ids=lambda each: str(each).split("data/")[-1])
def test_openings_agree_with_the_lens(path: Path, name: str) -> None:
    """Id, parent and relation are what the lens learns, where it learns them."""
    opening = KINDS[name].opening(head_of(path), str(path))
    facts = facts_of(name, lines_of(path))
    assert opening.id == facts.id
    assert opening.relation == facts.kind
    assert facts.parent in (None, opening.parent)
    assert (opening.parent is None) or opening.relation is not None


@pytest.mark.parametrize("path", [path for path, _ in SAMPLES if path != NO_LINES], ids=shown)
def test_samples_are_recognised_without_their_first_line(path: Path) -> None:
    """Where only the header says it, another first line is of no format; else it changes little."""
    (name,) = recognised(head_of(path))
    rest = head_of(path)[1:]
    assert set(recognised(rest)) <= {name}


# --- the records of other agents ----------------------------------------------------------------

FOREIGN: dict[str, list[Any]] = {
    "nothing": [],
    "an empty object": [{}],
    "pi": [
        {"type": "session", "version": 3, "id": UUID, "timestamp": "2026-01-05T10:00:00Z"},
        {"type": "message", "id": "a1", "parentId": None, "message": {"role": "user"}},
    ],
    "pi, version 1": [
        {"type": "session", "id": UUID, "timestamp": "2026-01-05T10:00:00Z", "cwd": "/w"},
        {"type": "message", "timestamp": "2026-01-05T10:00:01Z", "message": {"role": "user"}},
    ],
    "gemini": [
        {"sessionId": UUID, "projectHash": "ab", "startTime": "2026-01-16T11:01:00Z"},
        {"id": "m1", "timestamp": "2026-01-16T11:01:00Z", "type": "user", "content": []},
        {"$set": {"lastUpdated": "2026-01-16T11:02:00Z"}},
    ],
    "gemini, as one document": [{"sessionId": UUID, "projectHash": "ab", "messages": []}],
    "qwen": [
        {
            "uuid": "r1",
            "parentUuid": None,
            "sessionId": UUID,
            "timestamp": "2026-01-16T11:01:00Z",
            "type": "user",
            "cwd": "/w",
            "version": "0.5.0",
            "message": {"role": "user", "parts": [{"text": "hi"}]},
        }
    ],
    "qwen, beginning with what it says itself": [
        {"uuid": "r1", "sessionId": UUID, "type": "system", "subtype": "x", "systemPayload": {}}
    ],
    "opencode": [{"info": {"id": "s"}, "messages": [{"info": {}, "parts": []}]}],
    "opencode, a part": [{"type": "reasoning", "id": "prt_1", "text": "so", "sessionID": "s"}],
    "training data": [{"messages": [{"role": "user", "content": "hi"}]}],
    "a log of a chat": [{"timestamp": "2026-01-16T11:01:00Z", "role": "user", "content": "hi"}],
    "a chat without times": [{"role": "user", "content": "hi"}],
    "cursor": [{"role": "user", "message": {"content": [{"type": "text", "text": "hi"}]}}],
    "log lines": [{"timestamp": "2026-01-16T11:01:00Z", "level": "info", "message": "up"}],
    "events of another service": [{"type": "event", "payload": {"a": 1}, "timestamp": "x"}],
    "heinzel": [{"seq": 0, "prev": "0" * 64, "turn": "t1", "body": "bodies/1.json"}],
}


@pytest.mark.parametrize("head", FOREIGN.values(), ids=FOREIGN)
def test_records_of_others_are_of_no_format(head: list[Record]) -> None:
    """The first records of other agents and programs are recognised by nobody."""
    assert recognised(head) == []


def test_the_first_sure_sign_decides() -> None:
    """Records of two agents are of the format of the first, whatever of others stands behind."""
    claude = {"type": "user", "uuid": "u", "sessionId": UUID, "message": {"content": "hi"}}
    codex = {"type": "session_meta", "timestamp": "2026-01-05T10:00:00Z", "payload": {"id": UUID}}
    session = {"type": "session", "version": 0, "id": UUID, "createdAt": 1}
    (pi, *_) = FOREIGN["pi"]
    assert recognised([claude, codex, session]) == ["claude-code"]
    assert recognised([{"kind": "?"}, codex, claude]) == ["codex"]
    assert recognised([session, claude, codex]) == ["deepseek-harness"]
    assert recognised([pi, claude, codex]) == []


def test_likely_signs_count_on_the_first_line_only() -> None:
    """What merely looks like a record of an agent has to stand first."""
    likely = {"type": "function_call", "name": "sh", "call_id": "c"}
    assert recognised([likely]) == ["codex"]
    assert recognised([{"role": "session_meta", "timestamp": "x"}, likely]) == []


# --- whatever the records hold ------------------------------------------------------------------

FOUND = [record for path, _ in SAMPLES for record in head_of(path)[:12]]
MORE = (
    *("display", "forkedFrom", "items", "projectHash", "session", "thread_name", "updated_at"),
    *("forked_from_id", "parent_thread_id", "source", "subagent", "thread_spawn", "cwd"),
)
NAMES = sorted({name for record in FOUND for name in record} | set(MORE))
WORDS = sorted({record["type"] for record in FOUND if "type" in record})
ODD = (
    *("", "\ud83d", "x" * 5000, UUID, "2026-02-12T20:00:00.000Z", "0001-01-01T00:00:00+14:00"),
    *(0, 1, -1, 2**63, 2**70, 10**300, -(10**300), 1.5, 1e300, -0.0, True, False, None),
)
VALUES = st.recursive(
    st.sampled_from(ODD) | st.sampled_from(WORDS) | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
WILD = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8)
PATHS = st.sampled_from(
    [
        f"/h/.claude/projects/-w/{UUID}.jsonl",
        f"/h/.claude/projects/-w/{UUID}/subagents/agent-a1.jsonl",
        f"/h/.codex/sessions/rollout-2026-05-11T13-28-45-{UUID}.jsonl.zst",
        "/h/.dsh/sessions/-w/s/session.jsonl",
        "/\udcff/\udcff.jsonl",
        "/agent-.jsonl",
        "/",
        "",
    ]
)


@st.composite
def mutilated(draw: st.DrawFn) -> Record:
    """A record of a sample with some members exchanged."""
    record = copy.deepcopy(draw(st.sampled_from(FOUND)))
    for name in draw(st.lists(st.sampled_from([*record, *NAMES]), max_size=3)):
        record[name] = draw(VALUES)
    return record


@settings(max_examples=scaled(2000))
@given(st.lists(WILD | mutilated(), max_size=6), PATHS)
def test_no_head_is_too_odd(head: list[Record], path: str) -> None:
    """One format at most recognises a head, and what all say of it fits in a header."""
    before = copy.deepcopy(head)
    assert len(recognised(head)) <= 1
    for name, kind in KINDS.items():
        opening = kind.opening(head, path)
        assert opening == kind.opening(before, path)
        assert opening.relation in (None, "subagent", "fork", "continuation")
        assert opening.parent is None or (opening.relation and opening.parent != opening.id)
        assert opening.id is None or 0 < len(opening.id) <= 256
        source = Source(name, opening.id, "h", "/f", opening.parent, opening.relation)
        at = 0 if opening.created_at is None else opening.created_at
        encode_header(new_header("s", created_at=at, cwd=opening.cwd, source=source))
        for record in head:
            kind_of_record, time = kind.record(record)
            assert kind_of_record is None or isinstance(kind_of_record, str)
            assert time is None or (type(time) is int and abs(time) <= TIME_MS_MAX)
    assert head == before


NARROWED = {"claude-code": claude_code.about_session, "codex": codex.about_session}


@settings(max_examples=scaled(2000))
@given(st.lists(WILD | mutilated(), max_size=6))
def test_what_is_about_the_session_says_it_all(head: list[Record]) -> None:
    """Id, parent and kind are the same whether the lens is given all of a head, or what counts."""
    head = [record for record in head if sound(record)]
    for name, narrowed in NARROWED.items():
        whole, part = (heads.facts_of(KINDS[name], each) for each in (head, narrowed(head)))
        assert (whole.id, whole.parent, whole.kind) == (part.id, part.parent, part.kind)


@pytest.mark.parametrize(("path", "name"), SAMPLES, ids=lambda each: str(each).split("data/")[-1])
def test_what_is_about_the_session_of_a_sample(path: Path, name: str) -> None:
    """Of samples, too, what counts says id, parent and kind as all records do."""
    head = head_of(path)
    part = heads.facts_of(KINDS[name], NARROWED.get(name, list)(head))
    whole = heads.facts_of(KINDS[name], head)
    assert (whole.id, whole.parent, whole.kind) == (part.id, part.parent, part.kind)


def test_values_that_no_log_holds_are_survived() -> None:
    """Values deeper than a log keeps, and numbers that JSON has not, take nothing of the rest."""
    deep = json.loads("[" * 300 + "]" * 300)
    codex = {"type": "session_meta", "payload": {"id": "a", "base": deep}}
    later = {"type": "session_meta", "payload": {"id": "b", "cwd": "/w"}}
    assert KINDS["codex"].opening([codex, later], "/f.jsonl").id == "b"
    claude = {"type": "user", "sessionId": "s", "timestamp": float("nan"), "message": deep}
    assert KINDS["claude-code"].opening([claude], "/f.jsonl") == Opening("s")
    ids = {"type": "session", "createdAt": 10**5000, "id": 10**5000, "parentSession": [1]}
    assert KINDS["deepseek-harness"].opening([ids], "/f.jsonl") == Opening()


# --- times --------------------------------------------------------------------------------------


def test_times_are_read_with_fraction_and_offset() -> None:
    """A time is that moment in Unix milliseconds, of whatever offset; without one it is in UTC."""
    assert moment("1970-01-01T00:00:00Z") == 0
    assert moment("2026-02-12T20:00:00.123Z") == 1770926400123
    assert moment("2026-02-12T20:00:00.999999999Z") == 1770926400999
    assert moment("2026-02-12T22:00:00.123+02:00") == 1770926400123
    assert moment("2026-02-12T20:00:00") == 1770926400000
    assert moment("1969-12-31T23:59:59.5Z") == -500
    assert moment("0001-01-01T00:00:00+14:00") == ms("0001-01-01T00:00:00Z") - 14 * 3600_000
    for odd in ("", "now", "2026-13-01T00:00:00Z", "2026-02-12T20:00:60Z", "2" * 9999, 5, None):
        assert moment(odd) is None


# --- the formats by name ------------------------------------------------------------------------


def test_formats_have_lenses_of_their_name() -> None:
    """Every format that is imported is read by the lens of its name, and says whose it is."""
    assert format_names()[: len(FORMATS)] == list(FORMATS)
    assert set(FORMATS) <= set(LENSES)
    for name, kind in KINDS.items():
        assert isinstance(kind, LineFormat)
        assert kind.name == name
        assert kind.agent


def test_unknown_names_are_refused() -> None:
    """A name that is no format's is refused with those that are known."""
    with pytest.raises(InvalidValue) as refused:
        format_of("claude")
    assert refused.value.hint == "known are: claude-code, codex, deepseek-harness"


def test_what_a_format_need_not_say() -> None:
    """A format knows no folders, commands, companions, documents or other files by itself."""

    class Least(LineFormat):
        name = "least"
        agent = "Least"

        def matches(self, path: str) -> bool:
            return path == "/f"

        owns = matches

        def recognises(self, head: Any) -> bool:
            return bool(head)

        def opening(self, head: Any, path: str) -> Opening:
            return Opening(id=f"{path}:{len(head)}")

        def record(self, value: Record) -> tuple[str | None, int | None]:
            return value.get("type"), None

    least = Least()
    assert least.folders(lambda _: "/set", "/h") == []
    assert least.command(UUID) is None
    assert least.superseded_by("/f.zst") is None
    assert least.companions("/") == []
    assert least.document("/f", b"{}") is None
    assert least.unread(lambda _: "/set", "/h") == {}
