"""Codex: what the importer knows of its files before it stores them."""

import json
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.importers import import_sessions, sync
from perdure.importers.codex import Codex
from perdure.importers.formats import Command, Opening
from tests.source_heads import DATA, OTHER, UUID, Record, facts_of, head_of, ms, recognised
from tests.sources import Machine, kept, lines, session_of, text_of

KIND = Codex()
FOLDER = DATA / "codex"
TMP = "/tmp"  # noqa: S108
AT = "2026-08-03T10:00:00.000Z"
LATER = "2026-08-03T11:00:00.000Z"
V7 = "019c5386-3e7b-7abc-8def-0123456789ab"
"""Its first 48 bits are a time: 0x019c53863e7b milliseconds."""

OPENINGS = {
    "as_large.jsonl": Opening(
        "019b2ea4-aaaa-bbbb-cccc-58208e1f0000", f"{TMP}/large", ms("2025-12-18T10:00:00.000Z")
    ),
    "as_small.jsonl": Opening(
        "019fc8be-3658-7ca3-9e29-000000000000", f"{TMP}/repo", ms("2026-08-03T10:48:56.000Z")
    ),
    "as_schema_drift.jsonl": Opening(None, None, ms("2025-09-10T12:00:00Z")),
    "av_function_calls.jsonl": Opening("fc-1", "/Users/alice/code/app", ms("2024-01-01T10:00:00Z")),
    "codemie_turn-1.jsonl": Opening(
        "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
        "/home/user/project",
        ms("2026-05-12T09:59:55.000Z"),
    ),
    "codemie_turn-2.jsonl": Opening(
        "a1b2c3d4-e5f6-7890-abcd-ef1234567890",
        "/home/user/project",
        ms("2026-05-12T09:59:55.000Z"),
    ),
    "codex_050_legacy.jsonl": Opening(
        "test-legacy-session", f"{TMP}/test", ms("2025-10-30T10:00:00.000Z")
    ),
    "codex_052_raw.jsonl": Opening(
        "test-raw-session", f"{TMP}/test", ms("2025-10-30T12:00:00.000Z")
    ),
    "dejavu_history.jsonl": Opening(None, None, 1767323045000),
    "session_simple.jsonl": Opening(None, None, ms("2025-09-10T10:00:00Z")),
    "session_toolcall.jsonl": Opening(None, None, ms("2025-09-10T12:00:00Z")),
    "rollout-2026-05-11T13-28-45-019e1695-0522-7c83-8b39-0dd379793f80.jsonl": Opening(
        "019e1695-0522-7c83-8b39-0dd379793f80",
        "/Users/Sample_User/naya",
        ms("2026-05-11T10:28:45.482Z"),
    ),
}


def line(kind: str, /, at: str = LATER, **payload: Any) -> Record:
    return {"timestamp": at, "type": kind, "payload": payload}


def meta(**payload: Any) -> Record:
    return line("session_meta", **{"id": UUID, "timestamp": AT, "cwd": "/w", **payload})


def rollout(id: str = UUID, suffix: str = ".jsonl") -> str:
    return f"/h/.codex/sessions/2026/08/03/rollout-2026-08-03T12-00-00-{id}{suffix}"


def opened(*head: Record, path: str = "/f.jsonl") -> Opening:
    return KIND.opening(head, path)


# --- which session a file holds -----------------------------------------------------------------


@pytest.mark.parametrize("name", OPENINGS)
def test_samples_open(name: str) -> None:
    """Id, first folder, start, parent and relation are those of the records."""
    path = FOLDER / name
    assert KIND.opening(head_of(path), str(path)) == OPENINGS[name]


def test_the_first_line_goes_before_the_name() -> None:
    """A renamed file is of the session that its first line names; without one its name tells."""
    assert opened(meta(), path=rollout(OTHER)).id == UUID
    assert opened(line("turn_context", cwd="/w"), path=rollout(OTHER)).id == OTHER
    assert opened(path=rollout(OTHER, ".jsonl.zst")) == Opening(OTHER)
    assert opened(meta(id=None), path=rollout(OTHER)).id == OTHER
    assert opened(meta(id=None, session_id=7)).id == "7"
    for odd in ("/f.jsonl", f"/{OTHER}.jsonl", rollout("x"), rollout(OTHER, ".txt")):
        assert opened(path=odd).id is None


def test_the_start_is_told_best_by_the_first_line() -> None:
    """Its start goes before the time at which it was written, and that before the id's."""
    assert opened(meta()).created_at == ms(AT)
    late = line("event_msg", type="x", at="2026-08-03T10:30:00Z")
    assert opened(meta(timestamp="then"), late).created_at == ms("2026-08-03T10:30:00Z")
    assert opened(meta(timestamp="1969-12-31T23:59:59Z")).created_at == ms(LATER)
    assert opened(path=rollout(V7)).created_at == 0x019C53863E7B
    assert opened(path=rollout(UUID)).created_at is None


def test_the_first_folder_is_taken() -> None:
    """The folder of the first line goes before that of a turn, and that before the told one."""
    told = "\n<environment_context>\n  <cwd> /told </cwd>\n</environment_context>"
    item: Record = {"role": "user", "content": [5, {"type": "input_text", "text": told}]}
    context = line("response_item", type="message", **item)
    turns = [line("turn_context", cwd=cwd) for cwd in (5, "", "/turn", "/next")]
    assert opened(meta(), context, *turns).cwd == "/w"
    assert opened(meta(cwd=None), context, *turns).cwd == "/turn"
    assert opened(meta(cwd="/" * 4097), context).cwd == "/told"
    bare = {"type": "message", **item}
    assert opened({"id": UUID, "timestamp": AT, "instructions": None}, bare) == Opening(
        UUID, "/told", ms(AT)
    )
    for odd in ({**bare, "role": "assistant"}, {**bare, "content": f"x{told}"}):
        assert opened(odd).cwd is None
    message = {"id": "m", "timestamp": AT, "role": "user", "content": "hi", "cwd": "/no"}
    assert opened(message).cwd is None


def test_forks_and_sub_agents_name_their_parent() -> None:
    """Parent and relation stand in the first line, or in the parent's, copied behind it."""
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": OTHER, "depth": 1}}}
    parent = meta(id=OTHER, cwd="/parent", timestamp="2026-08-01T00:00:00Z")
    heads: dict[str | None, list[list[Record]]] = {
        "fork": [[meta(forked_from_id=OTHER)], [meta(forked_from_id=OTHER), parent]],
        "subagent": [
            [meta(parent_thread_id=OTHER)],
            [meta(source=spawn)],
            [meta(source=spawn, forked_from_id=V7), parent],
            [meta(source={"subagent": "review"}, forked_from_id=OTHER)],
        ],
        None: [
            [meta()],
            [meta(source="cli", forked_from_id=[])],
        ],
    }
    heads["fork"].append([meta(), parent])
    for relation, cases in heads.items():
        for head in cases:
            known = None if relation is None else OTHER
            assert opened(*head) == Opening(UUID, "/w", ms(AT), known, relation)
            facts = facts_of("codex", map(json.dumps, head))
            assert (facts.id, facts.parent, facts.kind) == (UUID, known, relation)
    lone = meta(source={"subagent": "review"})
    assert opened(lone) == Opening(UUID, "/w", ms(AT), None, "subagent")


def test_nothing_comes_from_itself() -> None:
    """A session that names itself as its parent has none."""
    assert opened(meta(forked_from_id=UUID))[3:5] == (None, None)


def test_a_whole_session_in_one_line_opens() -> None:
    """The document of the oldest versions, in one line, says the same of its session."""
    session = {"id": UUID, "timestamp": AT, "instructions": "", "cwd": "/w"}
    document = {"session": session, "items": [{"type": "message", "role": "user"}]}
    assert recognised([document]) == ["codex"]
    assert opened(document) == Opening(UUID, "/w", ms(AT))


# --- documents of the first versions ------------------------------------------------------------

DAY = f"rollout-2025-04-16-{UUID}.json"
SESSION = {"timestamp": AT, "id": OTHER, "instructions": "be brief"}
ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


def document(*items: Record) -> bytes:
    """A session as the first versions wrote it: spread over lines, without a newline at its end."""
    return json.dumps({"session": SESSION, "items": [*items]}, indent=2).encode()


@pytest.mark.parametrize(
    ("start", "said"),
    [
        (document(ITEM), [{"session": SESSION, "items": []}]),
        (document(ITEM)[:-20], [{"session": SESSION, "items": []}]),
        (b"\xef\xbb\xbf" + document(), [{"session": SESSION, "items": []}]),
        (b'{"items": [], "session": {"id": "x"}}', [{"items": [], "session": {"id": "x"}}]),
        (document(ITEM)[:60], []),
        (b"", []),
        (b"[1]", []),
        (b'{"session": ' + b"[" * 100_000, []),
        (b'{"session": \xff', []),
    ],
)
def test_the_beginning_of_a_document_says_whose_it_is(start: bytes, said: list[Record]) -> None:
    """What stands in front tells of the session; what is behind, or is broken off, does not."""
    assert KIND.document(f"/h/{DAY}", start) == said
    assert KIND.document("/h/rollout-1.jsonl", start) is None


def test_documents_are_found_and_kept_line_by_line(tmp_path: Path) -> None:
    """A document is found where rollouts are, known by what it says, and kept to the byte.

    None of its lines is a record, and that is no problem of it; their time is that of the session.
    """
    home = Machine(HOME=str(tmp_path))
    path = tmp_path / ".codex" / "sessions" / DAY
    path.parent.mkdir(parents=True)
    first = document(ITEM)
    with perdure.open("memory:") as store:
        for text, state in (
            *((first, "new"), (first, "unchanged"), (document(ITEM, ITEM), "rewritten")),
            (document(ITEM, ITEM), "unchanged"),
        ):
            path.write_bytes(text)
            (report,) = sync(store, runtime=home).sources
            assert (report.state, report.format, report.problem_count) == (state, "codex", 0)
            assert report.found == len(lines(text))
            assert text_of(store, report) == text
            header = store.inspect(session_of(report)).header
            assert header is not None
            assert header.source is not None
            assert (header.source.id, header.created_at) == (OTHER, ms(AT))
            assert {(each.type, each.time) for each in kept(store, report)} == {
                ("codex/record", ms(AT))
            }
            assert text_of(store, report, 0) == first
            (named,) = import_sessions(store, "codex", [path], runtime=home).sources
            assert (named.state, named.session) == ("unchanged", report.session)


def test_a_document_that_breaks_off_is_known_by_its_name(tmp_path: Path) -> None:
    """Of one that says nothing any more the name tells whose it is, and that is told of once."""
    path = tmp_path / DAY
    with perdure.open("memory:") as store:
        for text in (document(ITEM)[:60], document(ITEM)[:61]):
            path.write_bytes(text)
            (report,) = sync(store, [path], runtime=Machine()).sources
            assert (report.format, report.problem_count) == ("codex", 1)
            assert "open no session of codex" in report.problems[0].reason
            assert text_of(store, report) == text
            assert session_of(report).startswith(f"codex:{UUID}:")


# --- its records --------------------------------------------------------------------------------

HEADS: dict[str, list[Record]] = {
    "a first line": [meta()],
    "no first line": [line("event_msg", type="user_message", message="hi")],
    "a type that no version had, then one": [{"type": "new", "payload": {}}, line("compacted")],
    "before envelopes": [{"id": UUID, "timestamp": AT, "instructions": None}],
    "before envelopes, in a repository": [{"id": UUID, "timestamp": AT, "git": {}}],
    "a state": [{"record_type": "state"}],
    "an item": [{"type": "message", "role": "user", "content": [{"type": "input_text"}]}],
    "a call": [{"type": "function_call", "name": "shell", "arguments": "{}"}],
    "a message of the first versions": [{"created_at": AT, "role": "user", "message": "hi"}],
    "a message with its model": [
        {"timestamp": AT, "role": "user", "content": "hi", "model": "o4-mini"}
    ],
    "the history of prompts": [{"session_id": UUID, "ts": 1767323045, "text": "hi"}],
    "the titles": [{"id": UUID, "thread_name": "About it", "updated_at": AT}],
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_records_of_all_versions_are_recognised(head: list[Record]) -> None:
    """A head is of Codex if an envelope, an item or a line beside the sessions is in it."""
    assert recognised(head) == ["codex"]


@pytest.mark.parametrize(
    "record",
    [
        {"timestamp": AT, "type": "event_msg", "payload": "hi"},
        {"timestamp": AT, "type": "new", "payload": {}},
        {"timestamp": AT, "type": ["event_msg"], "payload": {}},
        {"id": UUID, "timestamp": AT},
        {"id": [], "timestamp": AT, "instructions": None},
        {"id": UUID, "timestamp": 5, "instructions": None},
        {"id": UUID, "thread_name": None, "updated_at": AT},
        {"session_id": UUID, "ts": True, "text": "hi"},
        {"session_id": UUID, "ts": 5},
        {"session": {}, "items": []},
        {"type": "function_call"},
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "narrator", "created_at": AT, "content": "hi"},
        {"role": "user", "created_at": AT},
    ],
)
def test_what_tells_nothing_is_not_recognised(record: Record) -> None:
    """A record without what its kind is known by could be anybody's."""
    assert recognised([record]) == []


def test_lists_beside_the_sessions_are_of_none() -> None:
    """Prompts and titles have no id and no folder; they began with the first of them."""
    prompts = [{"session_id": id, "ts": ts, "text": "x"} for id, ts in ((UUID, 9), (OTHER, 8))]
    assert opened(*prompts, path="/h/.codex/history.jsonl") == Opening(None, None, 8000)
    titles = [{"id": UUID, "thread_name": "x", "updated_at": at} for at in (LATER, AT)]
    assert opened(*titles, path="/h/.codex/session_index.jsonl") == Opening(None, None, ms(AT))


def test_types_and_times_of_records() -> None:
    """A record has its own type, and the time that it was written at, by whatever name."""
    assert KIND.record(meta()) == ("session_meta", ms(LATER))
    assert KIND.record({"timestamp": "2026-08-03T12:00:00+02:00"}) == (None, ms(AT))
    assert KIND.record({"created_at": AT, "type": "function_call"}) == ("function_call", ms(AT))
    assert KIND.record({"updated_at": AT, "id": UUID}) == (None, ms(AT))
    assert KIND.record({"ts": 1767323045, "text": "x"}) == (None, 1767323045000)
    assert KIND.record({"ts": 1.5}) == (None, 1500)
    assert KIND.record({"ts": True, "type": 5, "timestamp": 5}) == (None, None)
    assert KIND.record({"ts": 2**53}) == (None, None)
    assert KIND.record({"record_type": "state"}) == (None, None)


# --- its places ---------------------------------------------------------------------------------


def test_paths() -> None:
    """Rollouts by their full name surely are Codex's, compressed or not; others may be."""
    for own in (
        *(rollout(), rollout(suffix=".jsonl.zst"), f"rollout-2025-01-01T00-00-00-{V7}.jsonl"),
        *(rollout(suffix=".json"), f"/h/.codex/sessions/rollout-2025-04-16-{UUID}.json"),
    ):
        assert KIND.matches(own)
        assert KIND.owns(own)
    for perhaps in (
        *("/f.jsonl", "/f.jsonl.zst", rollout("x"), "/h/.codex/history.jsonl"),
        *(rollout("x", ".json"), "/h/rollout-2025-04-16.json"),
    ):
        assert KIND.matches(perhaps)
        assert not KIND.owns(perhaps)
    for never in (
        *("/h/.codex/auth.json", f"/h/{UUID}.json", rollout(suffix=".json.zst")),
        *(rollout(suffix=".jsonl.zstd"), "/h/state_5.sqlite"),
    ):
        assert not KIND.matches(never)
        assert not KIND.owns(never)


def test_plain_rollouts_go_before_compressed_ones() -> None:
    """A compressed rollout is superseded by the plain one beside it, and nothing else is."""
    assert KIND.superseded_by(rollout(suffix=".jsonl.zst")) == rollout()
    for other in (rollout(), "/f.zst", "/w/session.jsonl.zst", rollout(suffix=".jsonl.zstd")):
        assert KIND.superseded_by(other) is None


@pytest.mark.parametrize(
    ("named", "root"),
    [
        (None, "/home/u/.codex"),
        ("", "/home/u/.codex"),
        ("/a,b", "/a,b"),
        ("~/c", "/home/u/c"),
    ],
)
def test_folders(named: str | None, root: str) -> None:
    """Sessions, those put away, prompts and titles lie in the folder of its settings."""
    names = ("sessions", "archived_sessions", "history.jsonl", "session_index.jsonl")
    assert KIND.folders({"CODEX_HOME": named}.get, "/home/u") == [f"{root}/{n}" for n in names]


def test_commands() -> None:
    """A thread is resumed by its id from any folder; what is no such id is in no command."""
    assert KIND.command(UUID) == Command(("codex", "resume", UUID), needs_folder=False)
    for odd in ("", "--last", "About it", f"{UUID}\n", "abc-123"):
        assert KIND.command(odd) is None
