"""What lenses say of whole samples, against what was read out of the same files by hand.

Each file in `by_hand/` tells of one sample what its conversation is: the rules that were applied,
and for everything the lines of the source that it comes from. They were written from the records
and from what is known of the formats, without looking at what a lens makes of them. A long text
is its SHA-256, its length and its first 60 characters.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.lenses import Lens
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.testing.providers import VALIDATORS
from perdure.views.conversation import agents, messages, messages_at
from perdure.views.providers import FORMATS
from perdure.views.usage import usage
from tests import claude_code_lines, codex_lines, dsh_lines, sources
from tests.lens_lines import Record, transcript, view

DATA = Path(__file__).parent / "data"
FOLDER = Path(__file__).parent / "by_hand"
EXPECTED = sorted(FOLDER.glob("*/*.json"))
READERS = {"claude_code": claude_code_lines, "codex": codex_lines, "dsh": dsh_lines}
SAMPLES = [
    *((claude_code_lines, each) for each in sorted((DATA / "claude-code").rglob("*.json*"))),
    *((codex_lines, each) for each in sorted((DATA / "codex").rglob("*.jsonl"))),
    *((dsh_lines, each) for each in sources.SAMPLES),
]

LONG = 120
BEGINNING = 60


def named(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


@pytest.fixture(scope="module", params=EXPECTED, ids=named)
def path(request: pytest.FixtureRequest) -> Path:
    """One of the files that were written by hand."""
    found: Path = request.param
    return found


@pytest.fixture(scope="module")
def expected(path: Path) -> Record:
    """What was worked out by hand."""
    found: Record = json.loads(path.read_text("utf-8"))
    return found


@pytest.fixture(scope="module")
def read(path: Path, expected: Record) -> tuple[list[Event], Lens]:
    """What the lens says of the source, and the lens."""
    lines = (DATA / expected["source"]).read_bytes().decode().removesuffix("\n").split("\n")
    reader = READERS[path.parent.name]
    said, lens = reader.fed(reader.stored(lines[: expected.get("first_lines", len(lines))]))
    return said, lens


# --- comparing ----------------------------------------------------------------------------------


def short(value: Any) -> Any:
    """A JSON value with its long texts told as by hand."""
    match value:
        case str() if len(value) > LONG:
            digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
            return {"sha256": digest, "length": len(value), "start": value[:BEGINNING]}
        case list():
            return [short(each) for each in value]
        case dict():
            return {name: short(member) for name, member in value.items()}
    return value


def fits(wanted: Any, got: Any) -> bool:
    """Whether a value is what was worked out, or one of what the formats leave open."""
    match wanted:
        case {"any": True}:
            return got is not None
        case {"one of": [*choices]}:
            return got in choices
        case {"contains": str(part)}:
            return part in json.dumps(got, ensure_ascii=False)
    return bool(short(got) == wanted)


def block_doubts(wanted: Record, got: Record) -> list[str]:
    """What is wrong with one block of a message."""
    synthetic = wanted.get("synthetic", False)
    members = {name for name in wanted if name not in {"line", "error", "synthetic"}}
    doubts = [
        f"{name}: {short(got.get(name))} for {wanted[name]}"
        for name in sorted(members)
        if not fits(wanted[name], got.get(name))
    ]
    further = got.keys() - members - {"error"} - ({"content"} if synthetic else set())
    if further:
        doubts.append(f"further members {sorted(further)}")
    error, code = got.get("error"), wanted.get("error", synthetic)
    if bool(error) != bool(code) or (isinstance(code, str) and (error or {}).get("code") != code):
        doubts.append(f"error: {error} for {code}")
    return doubts


def message_doubts(wanted: Record, got: Record) -> list[str]:
    """What is wrong with one message."""
    doubts = []
    if got["role"] != wanted["role"]:
        return [f"role {got['role']} for {wanted['role']}"]
    if wanted["lines"] and got["seq"] + 1 not in wanted["lines"]:
        doubts.append(f"comes from line {got['seq'] + 1}, not of {wanted['lines']}")
    source = got.get("source")
    if "source" in wanted and source != wanted["source"]:
        doubts.append(f"source {source} for {wanted['source']}")
    if "typed" in wanted and (source in {None, "user"}) is not wanted["typed"]:
        doubts.append(f"source {source} of what was typed: {wanted['typed']}")
    for member, default in (("model", None), ("interrupted", False)):
        if member in wanted or default is False:
            told, want = got.get(member, default), wanted.get(member, default)
            if told != want:
                doubts.append(f"{member} {told} for {want}")
    content = got["content"]
    if len(content) != len(wanted["content"]):
        kinds = [block["type"] for block in content], [b["type"] for b in wanted["content"]]
        return [*doubts, f"blocks {kinds[0]} for {kinds[1]}"]
    return doubts + [
        f"block {place}: {doubt}"
        for place, (block, got_block) in enumerate(zip(wanted["content"], content, strict=True))
        for doubt in block_doubts(block, got_block)
    ]


def outline(message: Record) -> tuple[Any, ...]:
    """A message in a line, for what is said of a difference in their number."""
    kinds = tuple(block["type"] for block in message["content"])
    return message["role"], message.get("lines", message.get("seq", 0) + 1), kinds


# --- the conversation ---------------------------------------------------------------------------


def test_facts_are_those_of_the_records(expected: Record, read: tuple[list[Event], Lens]) -> None:
    """Id, folder, title, parent, kind, model and branch are what the records say."""
    facts = msgspec.to_builtins(read[1].facts)
    wanted = {name: fact["is"] for name, fact in expected["facts"].items()}
    assert {name: facts[name] for name in wanted} == wanted


def test_messages_are_those_of_the_records(
    expected: Record, read: tuple[list[Event], Lens]
) -> None:
    """Every message of the active conversation is there, whole, in order, and no other one."""
    got, wanted = transcript(read[0]), expected["messages"]
    assert [outline(each)[0::2] for each in got] == [outline(each)[0::2] for each in wanted], [
        outline(each) for each in got
    ]
    doubts = [
        f"message {place}: {doubt}"
        for place, (want, message) in enumerate(zip(wanted, got, strict=True))
        for doubt in message_doubts(want, message)
    ]
    assert doubts == []


def test_turns_are_those_of_the_records(expected: Record, read: tuple[list[Event], Lens]) -> None:
    """Turns begin at their prompts and end as the records say; each message is in its own."""
    if expected["turns"] is None:
        assert "turns are not checked" in " ".join(expected["rules"])
        return
    own = [event for event in read[0] if event.agent is None]
    starts = {each.turn: each.seq + 1 for each in own if each.type == "turn/start"}
    ends = {each.turn: each.data["reason"] for each in own if each.type == "turn/end"}
    told = [(line, ends.get(turn)) for turn, line in starts.items()]
    doubts = [
        f"turn {number}: {line, end} for {turn['begins'], turn['end']}"
        for number, (turn, (line, end)) in enumerate(
            zip(expected["turns"], told, strict=False), start=1
        )
        if line not in turn["begins"] or not fits(turn["end"], end)
    ]
    assert (len(told), doubts) == (len(expected["turns"]), []), told
    numbers = {turn: number for number, turn in enumerate(starts, start=1)}
    placed = [
        (want["lines"], numbers.get(message.get("turn")), want["turn"])
        for want, message in zip(expected["messages"], transcript(read[0]), strict=False)
        if want["turn"] is not None
    ]
    assert [each for each in placed if each[1] != each[2]] == []


def test_usage_is_that_of_the_records(expected: Record, read: tuple[list[Event], Lens]) -> None:
    """Each response is counted once, with what the last record about it says."""
    spent = usage(view(read[0]).rows["usage"]).own
    wanted = {name: count for name, count in expected["usage"].items() if name != "lines"}
    assert {name: getattr(spent, name) for name in wanted} == wanted


def test_compactions_are_those_of_the_records(
    expected: Record, read: tuple[list[Event], Lens]
) -> None:
    """Every compaction is told, with its summary and with what it keeps."""
    got = [e for e in read[0] if e.type == "context/compacted" and e.agent is None]
    wanted = expected["compactions"]
    assert [event.seq + 1 in each["lines"] for event, each in zip(got, wanted, strict=True)] == [
        True
    ] * len(wanted), [event.seq + 1 for event in got]
    told = [
        {**event.data, "summary": [short(block["text"]) for block in event.data["summary"]]}
        for event in got
    ]
    for each in told:
        if each.get("first_kept") is not None:
            each["first_kept"] += 1  # the first line has number 0
    members = [each.keys() - {"lines"} for each in wanted]
    assert [
        {name: each.get(name) for name in names} for each, names in zip(told, members, strict=True)
    ] == [{name: each[name] for name in names} for each, names in zip(wanted, members, strict=True)]


# --- what providers make of it ------------------------------------------------------------------


def test_there_are_samples() -> None:
    """All samples of the three formats are found, and each has expectations that are of it."""
    assert [len([1 for of, _ in SAMPLES if of is reader]) for reader in READERS.values()] == [
        22,
        15,
        20,
    ]
    assert [len(list((FOLDER / name).iterdir())) for name in READERS] == [5, 5, 6]


@pytest.mark.parametrize(
    ("reader", "path"),
    [pytest.param(*each, id=each[1].relative_to(DATA).as_posix()) for each in SAMPLES],
)
def test_providers_accept_each_agent_at_each_turn(reader: Any, path: Path) -> None:
    """What any agent was told, in the end and at the end of each turn, every provider takes."""
    raw = sources.unpacked(path) if path.suffix == ".zstd" else path.read_bytes()
    lines = raw.decode().removesuffix("\n").split("\n")
    said, _ = reader.fed(reader.stored(lines))
    kept = view(said).rows["conversation"]
    header = Header(format=0, id="s", created_at=0)
    begun = [(each.agent, each.turn) for each in said if each.type == "turn/start"]
    told = [
        *(messages(kept, agent) for agent in agents(kept)),
        *(messages_at(lambda: iter(said), header, agent, turn) for agent, turn in begun),
    ]
    doubts = [
        (name, VALIDATORS[name](make(spoken)))
        for spoken in told
        for name, make in FORMATS.items()
        if spoken
    ]
    assert [each for each in doubts if each[1] != []] == []
