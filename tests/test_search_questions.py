"""Keyword search finds what the questions ask for, and is not upset by anything that is typed."""

import random
import string
from collections.abc import Iterator

import pytest

from perdure.catalog.passages import KINDS
from perdure.store import Hit
from tests.questions.asking import Question, questions, unmet
from tests.questions.corpus import Corpus, open_corpus
from tests.questions.passages import Passage
from tests.support import scaled

_SIGNS = string.punctuation + "\x00\x1b\n\u202e\ufffd\ud800«»“”、。"


@pytest.fixture(scope="module")
def corpus() -> Iterator[Corpus]:
    with open_corpus() as opened:
        yield opened


@pytest.fixture(scope="module")
def passages(corpus: Corpus) -> list[Passage]:
    return corpus.passages()


@pytest.mark.parametrize("question", questions(), ids=lambda question: question.id)
def test_each_expected_passage_is_among_the_first_ten(
    corpus: Corpus, passages: list[Passage], question: Question
) -> None:
    """What a question expects is found, and what it excludes is not."""
    found = corpus.store.search(question.query)
    # The questions call an answer that broke off by the events that it is made of.
    hits = [(hit.session, hit.seq, hit.kind.replace("unfinished", "delta")) for hit in found.hits]
    assert unmet(corpus, passages, question, hits) == []
    assert found.coverage.complete
    if question.cls == "negative":
        assert found.hits == [] or found.fallback
    if question.every_hit is not None and not found.fallback:
        assert [hit for hit in found.hits if question.every_hit not in hit.snippet] == []


def test_each_span_shows_something_that_was_typed(corpus: Corpus) -> None:
    """A snippet is a piece of what was said, and its marks stand within it, in order."""
    for question in questions():
        for hit in corpus.store.search(question.query, k=5).hits:
            assert hit.kind in KINDS
            assert len(hit.snippet) <= 200
            ends = [at for span in hit.spans for at in span]
            assert ends == sorted(ends)
            assert all(0 <= start < end <= len(hit.snippet) for start, end in hit.spans)
            assert hit.spans, question.query


def _place(hit: Hit) -> tuple[str, int, str]:
    # What is newer counts more, so the scores of a later question are others.
    return hit.session, hit.seq, hit.kind


def test_pages_have_every_hit_once(corpus: Corpus) -> None:
    """Pages of a search come one after the other, by relevance and in order."""
    for query in ("error", "retry backoff", "的"):
        for sort in ("relevance", "seq"):
            whole = corpus.store.search(query, k=60, sort=sort).hits
            paged: list[Hit] = []
            after = None
            while len(paged) < len(whole):
                page = corpus.store.search(query, k=7, sort=sort, after=after)
                paged += page.hits
                after = page.cursor
                if after is None:
                    break
            assert [_place(hit) for hit in paged[: len(whole)]] == [_place(hit) for hit in whole]


def test_ten_thousand_signs_never_raise(corpus: Corpus) -> None:
    """Whatever is typed is looked for as it stands, or for nothing."""
    rng = random.Random(4)
    signs = "".join(rng.choice(_SIGNS) for _ in range(10_000))
    for query in (
        signs,
        '"' * 10_000,
        "(" * 10_000,
        "* " * 5_000,
        "NEAR(a b, 3) AND OR NOT " * 400,
    ):
        corpus.store.search(query)
    for _ in range(scaled(3_000)):
        query = "".join(rng.choice(_SIGNS + "ab重") for _ in range(rng.randrange(40)))
        found = corpus.store.search(query, k=3, sort=rng.choice(["relevance", "seq"]))
        assert len(found.hits) <= 3
        corpus.store.sessions(3, query=query)
