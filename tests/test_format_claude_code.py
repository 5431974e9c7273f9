"""Claude Code: what the importer knows of its files before it stores them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from perdure.importers.claude_code import ClaudeCode
from perdure.importers.formats import Command, Opening
from tests.source_heads import DATA, OTHER, UUID, Record, facts_of, head_of, ms, recognised

KIND = ClaudeCode()
FOLDER = DATA / "claude-code"
PROJECT = "/h/.claude/projects/-w"
TMP = "/tmp"  # noqa: S108
AT = "2026-02-12T20:00:00.000Z"
LATER = "2026-02-12T21:00:00.000Z"
SPOTTER = "/home/USER/projects/spotter-worktrees"

OPENINGS = {
    "as_schema_drift.jsonl": Opening(
        "ses_stage0_drift", f"{TMP}/project", ms("2025-12-16T01:00:00.000Z")
    ),
    "as_small.jsonl": Opening("ses_stage0_small", TMP, ms("2025-12-16T00:00:00.000Z")),
    "codemie_9eda1058.jsonl": Opening(
        "9eda1058-9706-484a-b992-d03f9cfa2546",
        "/Users/user/repo",
        ms("2026-01-11T09:53:23.575Z"),
    ),
    "codemie_-tmp-private/4c2ddfdc-b619-4525-8d03-1950fb1b0257.jsonl": Opening(
        "4c2ddfdc-b619-4525-8d03-1950fb1b0257", f"{TMP}/private", ms("2025-12-10T19:37:45.343Z")
    ),
    "codemie_-tmp-private/agent-36541525.jsonl": Opening(
        "36541525",
        f"{TMP}/private",
        ms("2025-12-10T19:37:37.159Z"),
        "4c2ddfdc-b619-4525-8d03-1950fb1b0257",
        "subagent",
    ),
    "codemie_-tmp-private/agent-50243ee8.jsonl": Opening(
        "50243ee8",
        f"{TMP}/private",
        ms("2025-12-10T19:37:37.157Z"),
        "4c2ddfdc-b619-4525-8d03-1950fb1b0257",
        "subagent",
    ),
    "codemie_incremental/turn-2.jsonl": Opening(
        "3fb74381-1bf4-475e-8c6f-442d872b1bcf",
        "/Users/User/repo/codemie-ai/codemie-code",
        ms("2026-01-15T17:24:23.966Z"),
    ),
    "spotter_8463c716/subagents/agent-a7be2f0.jsonl": Opening(
        "a7be2f0",
        f"{SPOTTER}/spotter-fum",
        ms("2026-02-11T22:38:04.716Z"),
        "8463c716-a2ea-4c14-9efa-87158ebd9f20",
        "subagent",
    ),
    "spotter_fa812bfe/subagents/agent-acompact-70d8e7.jsonl": Opening(
        "acompact-70d8e7",
        f"{SPOTTER}/spotter-a0y",
        ms("2026-02-12T15:55:02.606Z"),
        "fa812bfe-b295-4cca-9c2f-fdf01028cb46",
        "subagent",
    ),
    f"as_subagent/{UUID}.jsonl": Opening(UUID, TMP, ms("2025-12-16T00:00:00.000Z")),
    f"as_subagent/{UUID}/subagents/agent-a0ad4f44468bdf20d.jsonl": Opening(
        "a0ad4f44468bdf20d", TMP, ms("2025-12-16T00:00:02.200Z"), UUID, "subagent"
    ),
    "spotter_compact_window.jsonl": Opening(
        "4d5611e5-241a-462a-8d15-5122611a9569",
        f"{SPOTTER}/spotter-dov",
        ms("2026-02-12T20:27:54.058Z"),
    ),
    "spotter_tool_heavy.jsonl": Opening(
        "d6e0bada-1959-4eec-a9d2-0bfade768d8f",
        "/home/marco/projects/spotter",
        ms("2026-02-10T22:57:51.291Z"),
    ),
    "ccl_representative_messages.jsonl": Opening("test_session", TMP, ms("2025-06-14T10:00:00Z")),
    "av_valid_session.jsonl": Opening(None, "/Users/alice/code/my-app", ms("2024-01-01T10:00:00Z")),
    "codemie_history-multi-clear.jsonl": Opening(),
}


def user(id: str, up: str | None = None, /, **members: Any) -> Record:
    base = {"type": "user", "uuid": id, "parentUuid": up, "isSidechain": False, "sessionId": UUID}
    said = {"role": "user", "content": "hi"}
    return {**base, "cwd": "/w", "timestamp": AT, "message": said, **members}


def summary(leaf: str = "l") -> Record:
    return {"type": "summary", "summary": "About it", "leafUuid": leaf}


def opened(*head: Record, path: str = f"{PROJECT}/{UUID}.jsonl") -> Opening:
    return KIND.opening(head, path)


# --- which session a file holds -----------------------------------------------------------------


@pytest.mark.parametrize("name", OPENINGS)
def test_samples_open(name: str) -> None:
    """Id, first folder, earliest time, parent and relation are those of the records."""
    path = FOLDER / name
    assert KIND.opening(head_of(path), str(path)) == OPENINGS[name]


def test_the_name_decides_between_several_sessions() -> None:
    """Where records are of several sessions, the file is of the one it is named by."""
    others = [user(f"o{at}", sessionId=OTHER, cwd="/o", timestamp=AT) for at in range(3)]
    own = user("u", timestamp=LATER)
    assert opened(*others, own) == Opening(UUID, "/w", ms(LATER))
    assert opened(*others, own, path="/f.jsonl") == Opening(OTHER, "/o", ms(AT))
    assert opened(*others) == Opening(OTHER, "/o", ms(AT))


def test_records_without_an_id_leave_it_to_the_name() -> None:
    """A file of titles alone, or of damaged lines, is of the session that it is named by."""
    assert opened(summary()) == Opening(UUID)
    assert opened() == Opening(UUID)
    assert opened(summary(), path="/f.jsonl") == Opening()


def test_copies_of_another_session_make_a_continuation() -> None:
    """A session that goes on behind records of another one, copied in front, continues it."""
    others = [user("o1", sessionId=OTHER, cwd="/o"), user("o2", "o1", sessionId=OTHER, cwd="/o")]
    own = [user("u1", "o2", timestamp=LATER), user("u2", "u1", timestamp=LATER)]
    assert opened(*others, *own) == Opening(UUID, "/w", ms(LATER), OTHER, "continuation")
    apart = [user("u1", timestamp=LATER), user("u2", "u1", timestamp=LATER)]
    assert opened(*others, *apart) == Opening(UUID, "/w", ms(LATER))


def test_forks_name_where_they_come_from() -> None:
    """Copies say which session they are of; a fork began with the first record that is none."""
    copies = [
        user(id, forkedFrom={"sessionId": OTHER, "messageUuid": id}, timestamp=AT) for id in "ab"
    ]
    own = user("u", "b", timestamp=LATER)
    assert opened(*copies, own) == Opening(UUID, "/w", ms(LATER), OTHER, "fork")
    assert opened(*copies) == Opening(UUID, "/w", ms(AT), OTHER, "fork")
    facts = facts_of("claude-code", map(json.dumps, copies))
    assert (facts.id, facts.parent, facts.kind) == (UUID, OTHER, "fork")
    itself = user("a", forkedFrom={"sessionId": UUID})
    for odd in (itself, user("a", forkedFrom=OTHER), user("a", forkedFrom={"sessionId": []})):
        assert opened(odd)[3:5] == (None, None)


# --- sub-agents ---------------------------------------------------------------------------------


def agent(id: str = "a1", /, **members: Any) -> Record:
    return user("u", isSidechain=True, agentId=id, **members)


@pytest.mark.parametrize(
    "path",
    [
        f"{PROJECT}/agent-a1.jsonl",
        f"{PROJECT}/{UUID}/subagents/agent-a1.jsonl",
        f"{PROJECT}/{UUID}/subagents/workflows/wf_1/agent-a1.jsonl",
        "/elsewhere/copy.jsonl",
    ],
)
def test_sub_agents_have_ids_of_their_own(path: str) -> None:
    """The id of a sub-agent is the agent's, as its lens has it; its parent is the session."""
    assert opened(agent(), path=path) == Opening("a1", "/w", ms(AT), UUID, "subagent")
    facts = facts_of("claude-code", [json.dumps(agent())])
    assert (facts.id, facts.parent, facts.kind) == ("a1", UUID, "subagent")


def test_the_folder_tells_whose_a_sub_agent_is() -> None:
    """Where its records name itself as the session, or none at all, its folder does."""
    path = f"/subagents/x/{OTHER}/subagents/agent-a1.jsonl"
    known = (OTHER, "subagent")
    assert opened(agent(sessionId="a1"), path=path)[3:5] == known
    assert opened(agent(sessionId="agent-a1"), path=path)[3:5] == known
    assert opened(agent(), path=path)[3:5] == (UUID, "subagent")
    assert opened(agent(sessionId="a1"), path="/f/subagents/agent-a1.jsonl")[3:5] == (
        None,
        "subagent",
    )


def test_the_name_tells_that_it_is_a_sub_agent_where_records_do_not() -> None:
    """A file of a sub-agent is one before a record says so, and not if records deny it."""
    path = f"{PROJECT}/{OTHER}/subagents/agent-a1.jsonl"
    assert opened(path=path) == Opening("a1", None, None, OTHER, "subagent")
    mode = {"type": "mode", "mode": "normal", "sessionId": UUID}
    assert opened(mode, path=path) == Opening("a1", None, None, UUID, "subagent")
    named = {**mode, "sessionId": "agent-a1"}
    assert opened(named, path=path) == Opening("a1", None, None, OTHER, "subagent")
    assert opened(user("u"), path=path) == Opening(UUID, "/w", ms(AT))
    assert opened(path=f"{PROJECT}/agent-.jsonl") == Opening()


def test_sidechains_within_a_session_leave_it_what_it_is() -> None:
    """Records of sub-agents in the file of their session make no sub-agent of it."""
    old = user("s", isSidechain=True, timestamp=LATER)
    assert opened(old, user("u"), path="/f.jsonl") == Opening(UUID, "/w", ms(AT))
    assert opened(agent(), user("u")) == Opening(UUID, "/w", ms(AT))
    assert opened(user("u"), agent(), path="/f.jsonl") == Opening(UUID, "/w", ms(AT))


# --- its records --------------------------------------------------------------------------------

HEADS: dict[str, list[Record]] = {
    "titles alone": [summary("a"), summary("b")],
    "snapshots": [{"type": "file-history-snapshot", "messageId": "m", "snapshot": {}}],
    "a queue": [
        {"type": "queue-operation", "operation": "enqueue", "sessionId": UUID, "timestamp": AT}
    ],
    "a broken record, then a prompt": [{}, user("u")],
    "much housekeeping": [{"type": f"new-{at}", "key": at} for at in range(40)] + [user("u")],
    "what no version had, of a session": [{"type": "new", "sessionId": UUID}],
    "before 2.0": [{"type": "tool_use", "sessionId": "s", "name": "bash", "uuid": "t"}],
    "the history of prompts": [
        {"display": "hi", "pastedContents": {}, "timestamp": 1770926400123, "project": "/w"}
    ],
    "a message by itself": [{"type": "user", "message": {"role": "user", "content": "hi"}}],
    "a number for an id": [{"type": "user", "sessionId": 5}],
}


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
def test_records_of_all_kinds_are_recognised(head: list[Record]) -> None:
    """A head is of Claude Code if its tree, its housekeeping or its history is in it."""
    assert recognised(head) == ["claude-code"]


@pytest.mark.parametrize(
    "record",
    [
        {"type": "user", "message": "hi"},
        {"type": "user", "message": {"role": "user"}, "sessionId": []},
        {"type": "summary", "summary": "About it"},
        {"type": "new", "sessionId": ""},
        {"type": ["user"], "sessionId": UUID},
        {"display": "hi", "project": "/w", "timestamp": True},
        {"display": "hi", "timestamp": 5},
        {"display": 5, "project": "/w", "timestamp": 5},
        {"type": "started", "key": "v2:k", "agentId": "a1"},
    ],
)
def test_what_tells_nothing_is_not_recognised(record: Record) -> None:
    """A record without what its kind is known by could be anybody's."""
    assert recognised([record]) == []


def test_the_history_is_of_no_session() -> None:
    """Prompts of many sessions have no id and no folder; they began with the first of them."""
    prompts = [
        {"display": "b", "timestamp": 1770926400124, "project": "/b", "sessionId": UUID},
        {"display": "a", "timestamp": 1770926400123, "project": "/a", "sessionId": OTHER},
    ]
    assert opened(*prompts, path="/h/.claude/history.jsonl") == Opening(None, None, 1770926400123)


def test_the_first_folder_and_the_earliest_time_are_taken() -> None:
    """Times of records run back, and folders change; what is no time or folder is passed over."""
    head = [
        {"type": "mode", "sessionId": UUID, "cwd": 5, "timestamp": "then"},
        user("a", cwd="", timestamp=LATER),
        user("b", "a", cwd="/first", timestamp="1969-12-31T23:59:59Z"),
        user("c", "b", cwd="/second", timestamp=AT),
    ]
    assert opened(*head) == Opening(UUID, "/first", ms(AT))
    unnamed = {"type": "user", "cwd": "/before", "timestamp": AT, "message": {"content": "hi"}}
    assert opened(unnamed, user("a", timestamp=LATER)) == Opening(UUID, "/before", ms(AT))
    others = user("o", sessionId=OTHER, cwd="/o", timestamp="2026-01-01T00:00:00Z")
    assert opened(others, unnamed, user("a", timestamp=LATER)) == Opening(UUID, "/before", ms(AT))


def test_types_and_times_of_records() -> None:
    """A record has its own type and timestamp: a time in ISO 8601, or of a prompt a number."""
    assert KIND.record(user("u")) == ("user", 1770926400000)
    assert KIND.record({"type": "x", "timestamp": "2026-02-12T22:00:00.5+02:00"}) == (
        "x",
        1770926400500,
    )
    assert KIND.record({"display": "hi", "timestamp": 1770926400123}) == (None, 1770926400123)
    assert KIND.record({"type": 5, "timestamp": True}) == (None, None)
    assert KIND.record({"timestamp": 2**53}) == (None, None)
    assert KIND.record(summary()) == ("summary", None)


# --- its places ---------------------------------------------------------------------------------

OWN = [
    f"{PROJECT}/{UUID}.jsonl",
    f"{PROJECT}/agent-36541525.jsonl",
    f"{PROJECT}/{UUID}/subagents/agent-a1.jsonl",
    f"{PROJECT}/{UUID}/subagents/workflows/wf_1/agent-a1.jsonl",
    f"projects/-w/{UUID}.jsonl",
]
PERHAPS = [
    "/h/.claude/history.jsonl",
    f"{PROJECT}/notes.jsonl",
    f"/w/{UUID}.jsonl",
    f"{PROJECT}/{UUID}/{UUID}.jsonl",
    f"/h/.qwen/projects/-w/chats/{UUID}.jsonl",
]
NEVER = [
    f"{PROJECT}/sessions-index.json",
    f"{PROJECT}/{UUID}/subagents/agent-a1.meta.json",
    f"{PROJECT}/{UUID}/subagents/workflows/wf_1/journal.jsonl",
    f"{PROJECT}/{UUID}.jsonl.zst",
]


def test_paths() -> None:
    """What lies in a project by the name of a session or sub-agent is surely one."""
    for path in OWN + PERHAPS + NEVER:
        assert KIND.matches(path) == (path not in NEVER)
        assert KIND.owns(path) == (path in OWN)


@pytest.mark.parametrize(
    ("named", "roots"),
    [
        (None, ["/home/u/.claude"]),
        ("", ["/home/u/.claude"]),
        (" , ", ["/home/u/.claude"]),
        ("/c", ["/c"]),
        ("~/c, /d ,/d", ["/home/u/c", "/d"]),
        ("~", ["/home/u"]),
    ],
)
def test_folders(named: str | None, roots: list[str]) -> None:
    """Projects and history lie in each folder that is named, by default in the one at home."""
    found = KIND.folders({"CLAUDE_CONFIG_DIR": named}.get, "/home/u")
    assert found == [f"{root}/{name}" for root in roots for name in ("projects", "history.jsonl")]


def test_commands() -> None:
    """A session is resumed by its id in its folder; what is no such id is put in no command."""
    assert KIND.command(UUID) == Command(("claude", "--resume", UUID), needs_folder=True)
    for odd in ("a7be2f0", "", "--help", f"{UUID}\n", f"{UUID}/a1", "ses_1"):
        assert KIND.command(odd) is None


# --- files beside it ----------------------------------------------------------------------------


def tree(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def test_companions_of_a_session(tmp_path: Path) -> None:
    """Large outputs and journals of workflows belong to a session, in order; sub-agents do not."""
    session = f"{tmp_path}/{UUID}.jsonl"
    assert KIND.companions(session) == []
    outputs = [f"{UUID}/tool-results/{name}.txt" for name in "ba"]
    journal = f"{UUID}/subagents/workflows/wf_1/journal.jsonl"
    apart = [
        f"{UUID}/subagents/agent-a1.jsonl",
        f"{UUID}/subagents/agent-a1.meta.json",
        f"{UUID}/subagents/workflows/wf_1/agent-a2.jsonl",
        f"{UUID}/tool-results/below/c.txt",
        f"{OTHER}/tool-results/d.txt",
    ]
    tree(tmp_path, f"{UUID}.jsonl", *outputs, journal, *apart)
    assert KIND.companions(session) == sorted(f"{tmp_path}/{name}" for name in [*outputs, journal])


def test_companions_of_a_sub_agent(tmp_path: Path) -> None:
    """What describes a sub-agent belongs to it; without such a file nothing does."""
    tree(tmp_path, "agent-a1.jsonl", "agent-a1.meta.json", "agent-a2.jsonl")
    assert KIND.companions(f"{tmp_path}/agent-a1.jsonl") == [f"{tmp_path}/agent-a1.meta.json"]
    assert KIND.companions(f"{tmp_path}/agent-a2.jsonl") == []
    (sample,) = (FOLDER / f"as_subagent/{UUID}/subagents").glob("*.meta.json")
    assert KIND.companions(str(sample).replace(".meta.json", ".jsonl")) == [str(sample)]


def test_companions_are_reached_through_no_link(tmp_path: Path) -> None:
    """Links to files or folders, and what is no regular file, belong to nobody."""
    tree(tmp_path, "there/tool-results/a.txt", f"{UUID}/tool-results/a.txt", "agent-a1.jsonl")
    outputs = tmp_path / UUID / "tool-results"
    (outputs / "b.txt").symlink_to(outputs / "a.txt")
    os.mkfifo(outputs / "c.txt")
    (tmp_path / "agent-a1.meta.json").symlink_to(outputs / "a.txt")
    (tmp_path / OTHER).symlink_to(tmp_path / "there")
    (tmp_path / "link").mkdir()
    (tmp_path / "link/tool-results").symlink_to(outputs)
    assert KIND.companions(f"{tmp_path}/{UUID}.jsonl") == [str(outputs / "a.txt")]
    for name in ("agent-a1", OTHER, "link"):
        assert KIND.companions(f"{tmp_path}/{name}.jsonl") == []


def test_paths_that_cannot_be_looked_up_have_no_companions(tmp_path: Path) -> None:
    """A path that no system takes, or a file in the place of a folder, holds nothing."""
    tree(tmp_path, UUID)
    for odd in (f"{tmp_path}/{UUID}.jsonl", "/a\0b.jsonl", "/agent-a\0b.jsonl", "/\ud83d.jsonl"):
        assert KIND.companions(odd) == []
