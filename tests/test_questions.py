"""The questions for keyword search are about what is really there; see `questions/index.md`."""

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.questions.asking import (
    CLASSES,
    CROWD,
    FIRST,
    Expectation,
    Question,
    folded,
    folded_passage,
    has_all,
    questions,
    unmet,
    wanted,
    words_of,
)
from tests.questions.corpus import DATA, Corpus, open_corpus
from tests.questions.passages import KINDS, Passage, everything_said, said_in

ASKED = questions()
POSITIVE = [question for question in ASKED if question.expect]
NEGATIVE = [question for question in ASKED if question.cls == "negative"]
BOUNDED = [question for question in ASKED if question.every_hit is not None]


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    with open_corpus() as opened:
        yield opened


@pytest.fixture(scope="module")
def passages(corpus: Corpus) -> list[Passage]:
    return corpus.passages()


@pytest.fixture(scope="module")
def texts(passages: list[Passage]) -> list[str]:
    return [folded_passage(passage) for passage in passages]


def is_synthetic(name: str) -> bool:
    return name.startswith("syn-")


def of_imports(question: Question) -> bool:
    """Whether a question expects something of a sample."""
    named = [expected.session for expected in question.expect]
    return any(not is_synthetic(name if isinstance(name, str) else name[0]) for name in named)


# --- the set -------------------------------------------------------------------------------------


def test_every_class_is_asked_about() -> None:
    """Each class has at least three questions, and no question is of another class."""
    counts = Counter(question.cls for question in ASKED)
    assert [cls for cls in CLASSES if counts[cls] < 3] == []
    assert sorted(counts) == sorted(CLASSES)


def test_there_are_enough_questions() -> None:
    """There are at least 150 questions, 60 of which expect something of an imported sample."""
    assert len(ASKED) >= 150
    assert sum(of_imports(question) for question in ASKED) >= 60
    assert sum(not of_imports(question) for question in POSITIVE) >= 90


def test_questions_have_names_of_their_own() -> None:
    """No two questions share an id or a query within their class."""
    assert len({question.id for question in ASKED}) == len(ASKED)
    assert len({(question.cls, question.query) for question in ASKED}) == len(ASKED)


def test_every_question_can_be_failed() -> None:
    """A question expects passages, or that there is nothing, or bounds what may be shown."""
    assert sorted(POSITIVE + NEGATIVE + BOUNDED, key=ASKED.index) == ASKED
    assert [question.id for question in BOUNDED if question.every_hit == ""] == []


def test_every_kind_is_expected() -> None:
    """For each kind of passage, some question has to find one."""
    expected = {expected.kind for question in POSITIVE for expected in question.expect}
    assert expected == set(KINDS)


def test_queries_are_short() -> None:
    """Queries are what people type: none is longer than 45 characters."""
    assert [question.id for question in ASKED if len(question.query) > 45] == []


# --- what is expected is there -------------------------------------------------------------------


def test_expected_passages_are_there(corpus: Corpus, passages: list[Passage]) -> None:
    """Each expected passage stands in the session that is named, with the kind that is named."""
    missing = [
        (question.id, expected)
        for question in POSITIVE
        for expected in question.expect
        if not wanted(corpus, passages, expected)
    ]
    assert missing == []


def test_every_alternative_is_there(corpus: Corpus, passages: list[Passage]) -> None:
    """Where any of several sessions will do, each of them has the passage."""
    missing = [
        (question.id, name)
        for question in POSITIVE
        for expected in question.expect
        if not isinstance(expected.session, str)
        for name in expected.session
        if not wanted(corpus, passages, Expectation(name, expected.kind, expected.contains))
    ]
    assert missing == []


def test_expected_passages_have_the_words(corpus: Corpus, passages: list[Passage]) -> None:
    """Of what meets an expectation, something has all that was typed, but for case and accents."""
    without = [
        (question.id, expected)
        for question in POSITIVE
        for expected in question.expect
        if not any(
            has_all(folded_passage(passage), words_of(question.query))
            for passage in wanted(corpus, passages, expected)
        )
    ]
    assert without == []


def stored_texts(corpus: Corpus, passage: Passage) -> list[str]:
    """What the numbered events of a synthetic session say, each and, of deltas, joined."""
    events = [
        event for event in corpus.store.read_from(passage.session) if event.seq in passage.seqs
    ]
    pieces = [event.data["text"] for event in events if event.type == "assistant/delta"]
    return [*(text for event in events for text in said_in(event.data)), "".join(pieces)]


def test_expected_passages_stand_in_the_log(corpus: Corpus, passages: list[Passage]) -> None:
    """What is expected of a synthetic session is found in its stored events, as numbered."""
    missing = [
        (question.id, expected)
        for question in POSITIVE
        for expected in question.expect
        for passage in wanted(corpus, passages, expected)
        if is_synthetic(passage.session)
        and not any(expected.contains in text for text in stored_texts(corpus, passage))
    ]
    assert missing == []


def test_crowds_are_declared(texts: list[str]) -> None:
    """Where more passages than a page of hits have all words, the question says how many."""
    counts = {
        question.id: sum(has_all(text, words_of(question.query)) for text in texts)
        for question in POSITIVE
    }
    declared = {question.id: question.crowd for question in POSITIVE if question.crowd}
    assert {id: count for id, count in counts.items() if count > CROWD} == declared


# --- what is not expected is not there -----------------------------------------------------------


def test_nothing_has_the_words_of_a_negative_question(texts: list[str]) -> None:
    """No passage has all words of a negative question, whole or as parts of other words."""
    found = [
        question.id
        for question in NEGATIVE
        if any(has_all(text, words_of(question.query)) for text in texts)
    ]
    assert found == []


def test_what_a_negative_question_asks_for_is_nowhere(corpus: Corpus) -> None:
    """No event of any type, no id and no folder of a session holds what a negative query says."""
    said = []
    for id in corpus.ids.values():
        said.append(f"{id} {corpus.store.inspect(id).header}")
        said += [
            json.dumps(event.data, ensure_ascii=False)
            for event in everything_said(corpus.store, id)
        ]
    whole = folded("\n".join(said))
    assert [each.id for each in NEGATIVE if " ".join(words_of(each.query)) in whole] == []


def test_bounds_tell_passages_apart(passages: list[Passage]) -> None:
    """What every hit has to hold stands in some passages, and not in others."""
    for question in BOUNDED:
        holding = sum(passage.holds(str(question.every_hit)) for passage in passages)
        assert 0 < holding < len(passages) / 2


# --- the sessions --------------------------------------------------------------------------------


def test_sessions_are_many_and_small(corpus: Corpus, passages: list[Passage]) -> None:
    """There are about 60 synthetic sessions, and all samples, and not too much to read."""
    assert 60 <= sum(is_synthetic(name) for name in corpus.ids) <= 75
    samples = {name.partition("/")[0] for name in corpus.ids if not is_synthetic(name)}
    assert samples == {path.name for path in DATA.iterdir() if path.is_dir()}
    assert sum(len(text) for passage in passages for text in passage.texts) < 1_500_000


def test_sessions_are_always_the_same(corpus: Corpus) -> None:
    """Written again, each synthetic session has the same events at the same times."""
    with open_corpus() as again:
        assert again.ids == corpus.ids
        for name in filter(is_synthetic, corpus.ids):
            first, second = (each.store.read_from(name) for each in (corpus, again))
            assert [(e.type, e.time, e.raw) for e in first] == [
                (e.type, e.time, e.raw) for e in second
            ]


@pytest.mark.parametrize("name", ["syn-10", "syn-42"])
def test_a_killed_turn_has_no_end(corpus: Corpus, name: str) -> None:
    """Where a process died in the middle of an answer, the log ends with its last piece."""
    *_, last = corpus.store.read_from(name)
    assert last.type == "assistant/delta"


def test_neighbours_have_the_parts_of_ids(texts: list[str]) -> None:
    """Taken apart, POL-358 is in more passages than a page of hits has; whole, in two."""
    assert sum(has_all(text, ["pol-", "358"]) for text in texts) > CROWD
    assert sum(re.search(r"pol-358(?!\d)", text) is not None for text in texts) == 2


# --- the measure itself --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("CREME  brulee", "cr\u00e8me br\u00fbl\u00e9e"),
        ("r\u00e9sum\u00e9", "Re\u0301sume\u0301"),
        ("stra\u00dfe", "STRASSE"),
        ("\u30a8\u30e9\u30fc", "\uff74\uff97\uff70"),
        ("api", "\uff21\uff30\uff29"),
        ("\uacb0\uc81c", "\u1100\u1167\u11af\u110c\u1166"),
        ("\u26a0", "\u26a0\ufe0f"),
    ],
)
def test_forms_of_one_text_are_folded_to_one(typed: str, said: str) -> None:
    """Case, accents, widths, composition and blanks make no difference."""
    assert folded(typed) == folded(said)


@pytest.mark.parametrize(("one", "other"), [("\u304b", "\u304c"), ("a-b", "a b"), ("C++", "C")])
def test_different_texts_stay_different(one: str, other: str) -> None:
    """Voiced kana are letters of their own, and punctuation is text."""
    assert folded(one) != folded(other)


def test_words_of_a_query() -> None:
    """What is quoted is one word, and a quote that is never closed is a character."""
    assert words_of('"No  rig" Setup') == ["no rig", "setup"]
    assert words_of('"open') == ['"open']


def test_the_first_hits_count(corpus: Corpus, passages: list[Passage]) -> None:
    """A passage that is the tenth hit is found, one that is the eleventh is not."""
    question = next(question for question in POSITIVE if len(question.expect) == 1)
    (expected,) = question.expect
    (right, *_) = wanted(corpus, passages, expected)
    hit = (right.session, min(right.seqs), expected.kind)
    wrong = ("nowhere", 0, None)
    assert unmet(corpus, passages, question, [wrong] * (FIRST - 1) + [hit]) == []
    assert unmet(corpus, passages, question, [wrong] * FIRST + [hit]) == [expected]


def test_hits_are_compared_whole(corpus: Corpus, passages: list[Passage]) -> None:
    """A hit of another session, another event or another kind is not the one expected."""
    question = next(question for question in POSITIVE if len(question.expect) == 1)
    (expected,) = question.expect
    (right, *_) = wanted(corpus, passages, expected)
    seq = min(right.seqs)
    other = next(kind for kind in KINDS if kind not in right.kinds)
    assert unmet(corpus, passages, question, [(right.session, seq, None)]) == []
    for wrong in [("nowhere", seq, None), (right.session, seq + 1000, None)]:
        assert unmet(corpus, passages, question, [wrong]) == [expected]
    assert unmet(corpus, passages, question, [(right.session, seq, other)]) == [expected]
