"""The questions about meaning: what is asked, what answers it, and at which place a search has it.

Unlike those of `asking.py`, each expectation alone would be a right answer: any one will do.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from tests.questions.asking import Question, folded, folded_passage, wanted
from tests.questions.corpus import Corpus
from tests.questions.passages import Passage

__all__ = [
    "MEANINGS",
    "BySession",
    "answers",
    "by_session",
    "content_words",
    "meanings",
    "rank_of",
    "share_said",
]

MEANINGS: Mapping[str, int] = {
    "exact": 30,
    "paraphrase": 40,
    "cross-language": 20,
    "cjk": 20,
    "code": 20,
    "decision": 20,
}
"""The classes, and how many questions each has at least."""

BySession = Mapping[str, Sequence[Passage]]
"""Passages by the id of their session."""

# Of scripts without blanks between words, in which two characters make a word as a rule.
_DENSE = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_RUN = re.compile(rf"[{_DENSE}]+|[^\W\d_{_DENSE}]+")
_WORD_CHARACTERS = 4

# Articles, pronouns, prepositions, conjunctions and auxiliary verbs of four letters and more;
# of English, German, French and Spanish, folded.
_GRAMMAR = """
about after again also although another anything because been before being below could does done
each else even ever every everything from have having here into itself just less many more most
much must nobody nothing only other over same should some somebody something such than that their
them then there these they this those through under unless until very were what when where whether
which while will with without would your

aber alle auch beim dann darf dass dein diese dieser dieses doch eine einem einen einer eines haben
jetzt kann kein keine mehr muss nach nicht noch oder sein sich sind soll sollen unter viele wann
waren warum weil welche welcher welches wenn werden wird wurde wurden

aucun avec cette comme dans depuis donc elle elles etre leur leurs mais nous pour pourquoi quand
quel quelle quelles quels sans sont sous trop vous

algo como cuando cuanto desde despues donde ella ellos entre esta este esto mismo para pero porque
quien sino sobre solo tiene todo
"""
_STOP_WORDS = frozenset(_GRAMMAR.split())


def meanings() -> list[Question]:
    """All of them, in the order of the file."""
    raw = Path(__file__).with_name("meanings.json").read_bytes()
    return msgspec.json.decode(raw, type=list[Question])


def by_session(passages: Iterable[Passage]) -> BySession:
    """What `answers` and `rank_of` look things up in; to be made once."""
    found: dict[str, list[Passage]] = defaultdict(list)
    for passage in passages:
        found[passage.session].append(passage)
    return found


def answers(corpus: Corpus, passages: BySession, question: Question) -> list[Passage]:
    """The passages any one of which answers a question, those of each expectation in turn."""
    found = []
    for expected in question.expect:
        names = (expected.session,) if isinstance(expected.session, str) else expected.session
        near = [passage for name in names for passage in passages[corpus.ids[name]]]
        found += wanted(corpus, near, expected)
    return found


def rank_of(
    corpus: Corpus,
    passages: BySession,
    question: Question,
    hits: Iterable[tuple[str, int, str | None]],
) -> int | None:
    """The place of the first hit that answers a question, from 1; None where no hit does.

    A hit is the id of its session, the number of its event, and its kind (of `passages.KINDS`), or
    None where that is not known: records of an import may say several things at once.
    """
    right = answers(corpus, passages, question)
    for place, (session, seq, kind) in enumerate(hits, start=1):
        if any(
            passage.session == session
            and seq in passage.seqs
            and (kind is None or kind in passage.kinds)
            for passage in right
        ):
            return place
    return None


# --- how far a question repeats what it asks for -------------------------------------------------


def content_words(query: str) -> set[str]:
    """The words of a query that say what it is about, folded.

    These are words of at least four letters that are more than grammar; of Chinese, Japanese and
    Korean each two characters that stand together.
    """
    found: set[str] = set()
    for run in _RUN.findall(folded(query)):
        if re.match(f"[{_DENSE}]", run):
            found.update(one + other for one, other in pairwise(run))
        elif len(run) >= _WORD_CHARACTERS and run not in _STOP_WORDS:
            found.add(run)
    return found


def share_said(query: str, passage: Passage) -> float:
    """The share of the content words that stand in a passage, whole or as parts of others: 0 to 1.

    ZeroDivisionError is raised where a query has no content words.
    """
    said = folded_passage(passage)
    words = content_words(query)
    return sum(word in said for word in words) / len(words)
