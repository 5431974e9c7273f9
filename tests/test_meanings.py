"""The questions about meaning are about what is really there; see `questions/index.md`."""

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.questions.asking import Expectation, Question, folded_passage, has_all, wanted, words_of
from tests.questions.corpus import DATA, Corpus, open_corpus
from tests.questions.meanings import (
    MEANINGS,
    BySession,
    answers,
    by_session,
    content_words,
    meanings,
    rank_of,
    share_said,
)
from tests.questions.passages import KINDS, Passage

ASKED = meanings()
IN_OTHER_WORDS = [each for each in ASKED if each.cls in ("paraphrase", "cross-language")]


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    with open_corpus() as opened:
        yield opened


@pytest.fixture(scope="module")
def passages(corpus: Corpus) -> list[Passage]:
    return corpus.passages()


@pytest.fixture(scope="module")
def sorted_out(passages: list[Passage]) -> BySession:
    return by_session(passages)


def sessions_of(expected: Expectation) -> tuple[str, ...]:
    return (expected.session,) if isinstance(expected.session, str) else expected.session


def samples_of(question: Question) -> list[str]:
    """The samples that answer a question."""
    named = [name for expected in question.expect for name in sessions_of(expected)]
    return [name for name in named if not name.startswith("syn-")]


# --- the set -------------------------------------------------------------------------------------


def test_every_class_has_its_questions() -> None:
    """Each class has as many questions as it is to have, and there are at least 150 in all."""
    counts = Counter(question.cls for question in ASKED)
    assert {cls: counts[cls] for cls, least in MEANINGS.items() if counts[cls] < least} == {}
    assert set(counts) == set(MEANINGS)
    assert len(ASKED) >= 150


def test_most_questions_are_about_real_logs() -> None:
    """At least three of five questions, and of each class but one, are answered by a sample.

    Only one sample has passages in Chinese, and none in Japanese or Korean.
    """
    real = Counter(question.cls for question in ASKED if samples_of(question))
    assert real.total() >= 0.6 * len(ASKED)
    counts = Counter(question.cls for question in ASKED)
    assert [cls for cls in MEANINGS if real[cls] < 0.6 * counts[cls]] == ["cjk"]


def test_samples_of_all_formats_are_asked_about() -> None:
    """At least 40 samples answer some question, ten of each format."""
    named = {name for question in ASKED for name in samples_of(question)}
    assert len(named) >= 40
    formats = Counter(name.partition("/")[0].replace("deepseek-harness", "dsh") for name in named)
    assert {path.name for path in DATA.iterdir() if path.is_dir()} == {*formats, "deepseek-harness"}
    assert min(formats.values()) >= 10


def test_no_question_is_asked_twice() -> None:
    """Each question has an id and a query of its own, in any class."""
    assert len({question.id for question in ASKED}) == len(ASKED)
    assert len({question.query for question in ASKED}) == len(ASKED)


def test_every_question_can_be_answered_and_failed() -> None:
    """A question expects passages of known kinds, by a text, and makes no other demand."""
    assert [question.id for question in ASKED if not question.expect] == []
    assert [question.id for question in ASKED if question.crowd or question.every_hit] == []
    expected = [each for question in ASKED for each in question.expect]
    assert {each.kind for each in expected} <= set(KINDS)
    assert [each for each in expected if not each.contains.strip()] == []


# --- what answers is there -----------------------------------------------------------------------


def test_every_answer_is_there(corpus: Corpus, sorted_out: BySession) -> None:
    """Each expected passage stands where the question says, in each session that it names.

    No more than three passages of a session are meant by one expectation.
    """
    counts = {
        (question.id, name, expected.contains): len(
            wanted(
                corpus,
                sorted_out[corpus.ids[name]],
                Expectation(name, expected.kind, expected.contains),
            )
        )
        for question in ASKED
        for expected in question.expect
        for name in sessions_of(expected)
    }
    assert [each for each, count in counts.items() if not 1 <= count <= 3] == []


def test_answers_are_nowhere_else(corpus: Corpus, passages: list[Passage]) -> None:
    """No other session has a passage of the kind with the text: copies are named, too."""
    elsewhere = [
        (question.id, expected.contains)
        for question in ASKED
        for expected in question.expect
        for passage in passages
        if expected.kind in passage.kinds
        and passage.session not in {corpus.ids[name] for name in sessions_of(expected)}
        and passage.holds(expected.contains)
    ]
    assert elsewhere == []


def test_no_passage_answers_many_questions(corpus: Corpus, sorted_out: BySession) -> None:
    """A passage answers two questions at most."""
    uses = Counter(
        passage for question in ASKED for passage in set(answers(corpus, sorted_out, question))
    )
    assert [passage for passage, count in uses.items() if count > 2] == []


def test_exact_questions_are_exact(corpus: Corpus, sorted_out: BySession) -> None:
    """What answers a question of the class `exact` has all its words, but for case and accents."""
    without = [
        question.id
        for question in ASKED
        if question.cls == "exact"
        for passage in answers(corpus, sorted_out, question)
        if not has_all(folded_passage(passage), words_of(question.query))
    ]
    assert without == []


def test_other_words_are_used(corpus: Corpus, sorted_out: BySession) -> None:
    """Of a paraphrase, or a question in another language, at most half the words are said.

    This holds for each of its answers, and there are at least two words that could be said.
    """
    assert [each.id for each in IN_OTHER_WORDS if len(content_words(each.query)) < 2] == []
    repeated = [
        question.id
        for question in IN_OTHER_WORDS
        for passage in answers(corpus, sorted_out, question)
        if share_said(question.query, passage) > 0.5
    ]
    assert repeated == []


# --- the measure itself --------------------------------------------------------------------------


def test_the_first_right_hit_gives_the_rank(corpus: Corpus, sorted_out: BySession) -> None:
    """Any one expected passage answers, and the place of the first of them counts."""
    question = next(each for each in ASKED if len(each.expect) > 1)
    right = answers(corpus, sorted_out, question)
    hits: list[tuple[str, int, str | None]] = [
        (passage.session, min(passage.seqs), next(iter(passage.kinds))) for passage in right
    ]
    wrong = ("nowhere", 0, None)
    for hit in hits:
        assert rank_of(corpus, sorted_out, question, [hit]) == 1
        assert rank_of(corpus, sorted_out, question, [wrong, wrong, hit]) == 3
    assert rank_of(corpus, sorted_out, question, [wrong, *hits]) == 2
    assert rank_of(corpus, sorted_out, question, [wrong] * 50) is None
    assert rank_of(corpus, sorted_out, question, []) is None


def test_a_hit_beside_the_answer_is_none(corpus: Corpus, sorted_out: BySession) -> None:
    """A hit of another session, event or kind is wrong; one of no kind is right by its event."""
    question = ASKED[0]
    (right, *_) = answers(corpus, sorted_out, question)
    seq = min(right.seqs)
    other = next(kind for kind in KINDS if kind not in right.kinds)
    assert rank_of(corpus, sorted_out, question, [(right.session, seq, None)]) == 1
    for wrong in [
        ("nowhere", seq, None),
        (right.session, seq + 100_000, None),
        (right.session, seq, other),
    ]:
        assert rank_of(corpus, sorted_out, question, [wrong]) is None


def test_every_copy_answers(corpus: Corpus, sorted_out: BySession) -> None:
    """Where a sample is a copy of another, a hit in either has the same rank."""
    question = next(each for each in ASKED if len(sessions_of(each.expect[0])) > 1)
    sessions = [corpus.ids[name] for name in sessions_of(question.expect[0])]
    found = {
        passage.session: rank_of(
            corpus, sorted_out, question, [(passage.session, min(passage.seqs), None)]
        )
        for passage in answers(corpus, sorted_out, question)
    }
    assert [found[session] for session in sessions] == [1] * len(sessions)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("Which of the CAF\u00c9S was it?", {"cafes"}),
        ("why did you send me a fax", {"send"}),
        ("wenn die Pr\u00fcfung l\u00e4uft", {"prufung", "lauft"}),
        ("\u652f\u4ed8\u8ba2\u5355", {"\u652f\u4ed8", "\u4ed8\u8ba2", "\u8ba2\u5355"}),
        ("\uacb0\uc81c \uc624\ub958 in Stage0", {"\uacb0\uc81c", "\uc624\ub958", "stage"}),
    ],
)
def test_content_words(query: str, words: set[str]) -> None:
    """Words of four letters that are more than grammar count, and pairs of dense characters."""
    assert content_words(query) == words


def test_share_said() -> None:
    """A word counts as said where it stands in a longer one, without regard to case."""
    passage = Passage("s", frozenset([1]), frozenset(["user"]), ("The Databases", "refused"))
    assert share_said("database", passage) == 1
    assert share_said("the database declined to answer", passage) == pytest.approx(1 / 3)
    assert share_said("nobody listened", passage) == 0
