"""Whatever agents do, what is read of their log is a transcript that every provider accepts."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from perdure.errors import InvalidValue
from perdure.testing.histories import history
from perdure.views.conversation import folding, lineage, reading, tree
from perdure.views.providers import anthropic, openai_chat, openai_responses, speech
from tests.proof.summary import summarise
from tests.support import scaled
from tests.transcripts import complaints

pytestmark = pytest.mark.proof

Lineage = lineage.Lineage

ODDITIES = (
    *("answer that was streamed", "user while it streams", "back before a late result"),
    *("call id again", "call not started", "call without result", "character in halves"),
    *("closers", "compaction"),
    *("compaction among results", "crash", "edit or regenerate", "event without turn"),
    *("foreign call id", "late result", "malformed payload", "orphan result", "parallel calls"),
    *("parent", "replaced again", "request repeated", "result twice", "rewind"),
    *("rewind to the beginning",),
    *("text among calls", "thinking", "turn id again", "turn without end", "unknown turn"),
)


def test_transcripts_are_accepted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end and as of past turns, every provider takes the messages, and the fold is pure."""
    counts: Counter[str] = Counter()

    def counted(place: Any, name: str) -> None:
        whole = getattr(place, name)

        def counting(*args: Any, **named: Any) -> Any:
            counts[name.strip("_")] += 1
            return whole(*args, **named)

        monkeypatch.setattr(place, name, counting)

    counted(folding, "_rebuilt")
    counted(Lineage, "cut")
    counted(reading, "_answered")
    histories = scaled(5000)
    told: Counter[str] = Counter()
    for number in range(histories):
        one = history(f"{seed}:{number}")
        told.update(one.told)
        counts["events"] += len(one.events)
        found = [*complaints(one, random.Random(f"{seed}:{number}"))]
        assert found == [], f"history({f'{seed}:{number}'!r})"
    summarise("transcripts", seed, {"histories": histories, **counts, **told})
    assert counts["rebuilt"] > histories / 10
    assert {oddity for oddity in ODDITIES if not told[oddity]} == set()


# --- faults that have to be found ----------------------------------------------------------------


def pairs_cut(self: Lineage, first_kept: int | None) -> Iterator[int]:
    """A compaction that looks at each message on its own."""
    for index in range(self.numbers["first"], self.numbers["next"]):
        if first_kept is not None and self.message(index)["seq"] >= first_kept:
            yield index


def summaries_kept(self: Lineage, first_kept: int | None) -> Iterator[int]:
    """A compaction that takes an older summary for a message like others."""
    numbers = self.numbers
    self.numbers = {**numbers, "summary": False}
    found = [*KEPT(self, first_kept)]
    self.numbers = numbers
    return iter(found)


KEPT = Lineage._kept


def forgotten(self: Lineage, entry: list[Any]) -> None:
    """A call that is answered hides an older one of its id for good."""
    self.rows.remove(f"o{self.number}:{entry[1]}")


def gaps_left(results: dict[str, Any]) -> dict[str, Any]:
    """Calls without result stay so."""
    content = [block for block in results["content"] if block is not None]
    return {name: value for name, value in results.items() if name != "open"} | {"content": content}


def unrelated(self: tree.Tree, _: str | None, parent: str | None) -> tree.Node:
    """What a turn replaces is not asked for."""
    return self.newest.get(parent or "", self.head)


def as_it_is(block: dict[str, Any], *, images: bool) -> Iterator[dict[str, Any]]:
    """Texts are handed on, blank or not, with surrogates or not."""
    if isinstance(block.get("text"), str) or (block.get("type") == "image" and images):
        yield block


def unmerged(out: list[dict[str, Any]], role: str, content: list[dict[str, Any]]) -> None:
    """Messages are neither put together nor begun by the user."""
    if content:
        out.append({"role": role, "content": content})


def unsigned(block: dict[str, Any]) -> list[dict[str, Any]]:
    """Thinking is given back without a signature."""
    return [{"type": "thinking", "thinking": str(block.get("text")), "signature": ""}]


def unanswered(result: dict[str, Any], load: Any) -> dict[str, Any]:
    """An output has the id of another call."""
    return {**RESULT(result, load), "call_id": "another"}


RESULT = openai_responses._result

REMEMBER = Lineage.remember


def astray(self: Lineage, turn: str, depth: int) -> None:
    """A turn that was left behind is said to follow another one."""
    REMEMBER(self, turn, max(depth - 1, self.numbers["base"]))


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "a late result is forgotten by earlier turns": (Lineage, "_touched", lambda *_: None),
    "an older call of the id is hidden": (Lineage, "_unstack", forgotten),
    "pairs are cut": (Lineage, "_kept", pairs_cut),
    "an older summary stays": (Lineage, "_kept", summaries_kept),
    "interrupted text is lost": (Lineage, "end_answer", Lineage.drop_answer),
    "repeated text is put together": (Lineage, "part", lambda _: None),
    "halves of characters stay apart": (lineage, "_joined", lambda text, more: text + more),
    "an answer is told twice": (Lineage, "told_whole", lambda *_: None),
    "a turn left behind goes astray": (Lineage, "remember", astray),
    "calls stay open": (reading, "_answered", gaps_left),
    "edits are appended": (tree.Tree, "behind", unrelated),
    "rewinds go nowhere": (tree.Tree, "standing", lambda self, _: self.head),
    "orphan results stand in user messages": (folding, "_without", lambda content, *_: content),
    "ids are handed on": (speech._Names, "of_call", lambda _, call: call),
    "names are handed on": (speech._Names, "of_tool", lambda _, name: name),
    "arguments are handed on": (speech, "_arguments", lambda given: given),
    "texts are handed on": (speech, "_said", as_it_is),
    "roles repeat": (anthropic, "_say", unmerged),
    "an answer ends in blanks": (anthropic, "_end", lambda _: None),
    "thinking goes unsigned": (anthropic, "_thinking", unsigned),
    "ids are long": (openai_chat, "_ID_CHARS_MAX", 64),
    "questions repeat": (openai_chat, "_alternating", lambda messages: messages),
    "outputs go astray": (openai_responses, "_result", unanswered),
}


HISTORIES_MAX = 10_000
"""Every fault shows in one of a hundred histories; whichever seed there is, these are enough."""


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault that is planted in the view or a format is found by the proof."""
    place, name, wrong = FAULTS[fault]
    monkeypatch.setattr(place, name, wrong)

    def finds(number: int) -> bool:
        one = history(f"{seed}:fault:{number}")
        try:
            return next(complaints(one, random.Random(number)), None) is not None
        except (AttributeError, InvalidValue, KeyError, TypeError, ValueError):
            return True

    assert any(finds(number) for number in range(HISTORIES_MAX))
