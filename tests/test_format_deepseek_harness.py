"""deepseek-harness: what the importer knows of its session files before it stores them."""

from typing import Any

import pytest

from perdure.importers.deepseek_harness import DeepseekHarness
from perdure.importers.formats import Opening
from tests.source_heads import DATA, head_of

KIND = DeepseekHarness()
GOAL = "rebuilt/--home-demo--/session-11111111-2222-4333-8444-555555555555/session.jsonl"
LAB = "dejavu_--srv-pgbouncer-lab--/session-eaf5c9ac-0e47-4d2f-b982-8bae306062d1/session.jsonl"

OPENINGS = {
    "dsh/08-fork-child-with-seed.jsonl": Opening(
        "ada8966c-9fa3-441b-8721-37ff1e795e6a",
        "{{cwd}}",
        1783352137161,
        "96cf59c9-b347-48b9-b234-a5200913ad05",
        "subagent",
        1,
    ),
    "dsh/05-compaction-recovery.jsonl": Opening("{{sessionId}}", "{{cwd}}", 0, depth=0),
    "dsh/07-packed-chunks.jsonl": Opening(
        "ff1c1e99-3bd4-4ef8-a954-80d607d628ba", "{{cwd}}", 1783352165190, depth=0
    ),
    f"deepseek-harness/{LAB}": Opening(
        "session-eaf5c9ac-0e47-4d2f-b982-8bae306062d1", "/srv/pgbouncer-lab", 1787320263519, depth=0
    ),
    f"deepseek-harness/{GOAL}": Opening(
        "session-11111111-2222-4333-8444-555555555555", "/home/demo", 1786073817152, depth=0
    ),
    f"deepseek-harness/{GOAL}.zstd": Opening(
        "session-11111111-2222-4333-8444-555555555555", "/home/demo", 1786073817152, depth=0
    ),
    "deepseek-harness/subagent-multi_session.jsonl": Opening(
        "14dda109-5728-45ba-a002-7db9543fe50e", "{{cwd}}", 1783352126247, depth=0
    ),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_samples_open(name: str) -> None:
    """Id, folder, time, parent and relation are those of the header."""
    assert KIND.opening(head_of(DATA / name), str(DATA / name)) == OPENINGS[name]


def header(**members: Any) -> dict[str, Any]:
    return {"type": "session", "version": 0, "id": "s", "createdAt": 5, **members}


def test_the_header_has_to_be_the_first_record() -> None:
    """Without a header in front a head is not recognised, and opens nothing."""
    event = {"type": "turn/start", "seq": 0, "time": 6, "data": {"turn": 1}}
    assert KIND.recognises([header(), event])
    assert KIND.recognises([header(timestamp="2026-08-03T10:00:00Z")])
    for head in ([], [event], [event, header()], [{"type": "session", "id": "s"}]):
        assert not KIND.recognises(head)
        assert KIND.opening(head, "/w/session.jsonl") == Opening()


def test_relations() -> None:
    """It is a sub-agent if it says so, whoever its parent is; else with a parent a fork."""
    told = [
        KIND.opening([header(**members)], "/f")[3:5]
        for members in (
            {},
            {"parentSession": "p"},
            {"parentSession": "p", "origin": "subagent"},
            {"parentSession": 7, "origin": "another"},
            {"origin": "subagent"},
            {"parentSession": ""},
        )
    ]
    nothing = (None, None)
    of_nobody = (None, "subagent")
    assert told == [nothing, ("p", "fork"), ("p", "subagent"), ("7", "fork"), of_nobody, nothing]


def test_depths() -> None:
    """The delegation depth is what the header says, if that is a count."""
    for told, depth in ((0, 0), (1, 1), (7, 7), (-1, None), (True, None), ("2", None), (2.0, None)):
        assert KIND.opening([header(delegationDepth=told)], "/f").depth == depth
    assert KIND.opening([header()], "/f").depth is None


def test_odd_headers() -> None:
    """Ids may be numbers; what is no id, folder or time is none."""
    assert KIND.opening([header(id=12, cwd="", createdAt=-1)], "/f") == Opening("12")
    assert KIND.opening([header(id="x" * 257, createdAt=True)], "/f") == Opening()
    assert KIND.opening([header(createdAt="5", cwd="/" * 4097)], "/f") == Opening("s")


def test_times_of_records() -> None:
    """A record has the time of its event, a row of chunks that of the first, a header its own."""
    assert KIND.record(header()) == ("session", 5)
    assert KIND.record({"type": "turn/start", "time": 6, "time0": 7}) == ("turn/start", 6)
    assert KIND.record({"type": "text-chunks", "time0": 7}) == ("text-chunks", 7)
    assert KIND.record({"type": "turn/start", "createdAt": 5}) == ("turn/start", None)
    assert KIND.record({"type": 5, "time": "6"}) == (None, None)
    assert KIND.record({"time": 2**53}) == (None, None)


def test_paths() -> None:
    """Lines of JSON may be sessions, compressed or not; those of the usual name surely are."""
    for name in ("session.jsonl", "session.jsonl.zst", "session.jsonl.zstd"):
        assert KIND.matches(f"/w/{name}")
        assert KIND.owns(f"/w/{name}")
    assert KIND.matches("/w/other.jsonl")
    assert not KIND.owns("/w/other.jsonl")
    assert not KIND.owns("/w/session.jsonl/other.jsonl")
    assert not KIND.matches("/w/session.json")


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        (None, "/home/u/.dsh/sessions"),
        ("", "/home/u/.dsh/sessions"),
        ("/d", "/d/sessions"),
        ("~/d", "/home/u/d/sessions"),
        ("~u/d", "~u/d/sessions"),
    ],
)
def test_folders(named: str | None, folder: str) -> None:
    """Its sessions lie in its own folder, wherever the environment says that this is."""
    assert KIND.folders({"DSH_HOME": named}.get, "/home/u") == [folder]


def test_no_command_takes_a_session_up() -> None:
    """Neither of its profiles takes an id, so there is no command."""
    assert KIND.command("session-eaf5c9ac-0e47-4d2f-b982-8bae306062d1") is None
