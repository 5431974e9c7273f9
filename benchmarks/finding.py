"""`python -m benchmarks.finding`: how well each way of searching finds, by labelled questions.

The questions (`tests/questions/meanings.json`) were written before there was a search by meaning.
Each is asked over all sessions; a hit counts if it is a passage that answers. hit@1 and hit@5 are
the share of questions with such a hit among the first 1 and 5, MRR the mean of 1 / its place among
the first 50 (0 without one), p50 the median of what an answer of ten hits takes.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from perdure.embedding import Embedder
from perdure.errors import EmbedderUnavailable
from tests.questions.asking import Question
from tests.questions.corpus import Corpus, open_corpus
from tests.questions.meanings import MEANINGS, BySession, by_session, meanings, rank_of

__all__ = ["EMBEDDERS", "Score", "measured", "scored", "table"]

EMBEDDERS = ("offline", "wordllama", "hashing")
"""Measured where no other is named on the command line."""

_MODES = ("keyword", "semantic", "hybrid")
_DEPTH = 50
_SHOWN = 10


class WordLlama(Embedder):
    """A static model of 256 numbers, measured beside the others where its package is installed.

    Its weights come from a language model whose licence is not that of the package, so perdure
    brings it to nobody.
    """

    spec = "wordllama"
    dimension = 256

    def __init__(self) -> None:
        try:
            package = import_module("wordllama")
        except ImportError as error:
            raise EmbedderUnavailable("wordllama", "is not installed") from error
        # Its own way to find its files asks the network.
        place = Path(str(package.__file__)).parent
        self._model = package.WordLlama.load(cache_dir=place, disable_download=True)
        self.model = f"wordllama/{version('wordllama')}/{self.dimension}"

    def embed_documents(self, texts: Sequence[str]) -> Any:
        return self._model.embed(list(texts), norm=True)

    def embed_query(self, text: str) -> Any:
        return self._model.embed([text], norm=True)[0]


class Score(NamedTuple):
    """How well some questions were answered.

    Attributes:
        questions: how many.
        first, fifth: the share with an answer among the first one and five, 0 to 1.
        mrr: the mean of 1 / place.
        p50: the median of the time of an answer, in milliseconds.

    """

    questions: int
    first: float
    fifth: float
    mrr: float
    p50: float


class Answered(NamedTuple):
    """A question, the place of the first hit that answers it, and what that took in seconds."""

    question: Question
    place: int | None
    seconds: float


def measured(corpus: Corpus, passages: BySession, mode: str) -> Iterator[Answered]:
    """Ask every question in one mode."""
    for question in meanings():
        found = corpus.store.search(question.query, mode=mode, k=_DEPTH)
        kinds = {"unfinished": "delta"}
        hits = [(hit.session, hit.seq, kinds.get(hit.kind, hit.kind)) for hit in found.hits]
        begun = time.perf_counter()
        corpus.store.search(question.query, mode=mode, k=_SHOWN)
        seconds = time.perf_counter() - begun
        yield Answered(question, rank_of(corpus, passages, question, hits), seconds)


def scored(answered: Sequence[Answered]) -> Score:
    """The score of some questions."""
    places = [each.place for each in answered]
    count = len(answered)
    return Score(
        count,
        sum(place == 1 for place in places) / count,
        sum(place is not None and place <= 5 for place in places) / count,
        sum(1 / place for place in places if place is not None) / count,
        statistics.median(each.seconds for each in answered) * 1000,
    )


def table(rows: Sequence[tuple[str, str, str, Score]]) -> str:
    """The tables of the docs, in Markdown; a row: embedder, mode, class of questions, score."""
    of = {(mode, embedder, which): score for embedder, mode, which, score in rows}
    ways = [*dict.fromkeys((mode, embedder) for embedder, mode, _, _ in rows)]
    ways.sort(key=lambda way: (way[1] != "", EMBEDDERS.index(way[1]) if way[1] else 0))
    lines = ["| mode | hit@1 | hit@5 | MRR | p50 |", "|---|---:|---:|---:|---:|"]
    for way in ways:
        score = of[*way, "all"]
        told = f"{score.first:.2f} | {score.fifth:.2f} | {score.mrr:.2f} | {score.p50:.0f} ms"
        lines.append(f"| {_name(way)} | {told} |")
    counts = [f"{which} ({of[*ways[0], which].questions})" for which in MEANINGS]
    lines += ["", f"| hit@1, hit@5 | {' | '.join(counts)} |", f"|---|{'---:|' * len(counts)}"]
    for way in ways:
        scores = [of[*way, which] for which in MEANINGS]
        told = " | ".join(f"{score.first:.2f}, {score.fifth:.2f}" for score in scores)
        lines.append(f"| {_name(way)} | {told} |")
    return "\n".join(lines)


def _name(way: tuple[str, str]) -> str:
    return ", ".join(filter(None, way))


def _embedder(name: str) -> str | Embedder:
    return WordLlama() if name == WordLlama.spec else name


def _scores(folder: Path, embedder: str) -> Iterator[tuple[str, str, Sequence[Answered]]]:
    """The answers in each mode with one embedder; those by words alone of the first one only."""
    with open_corpus(folder / "store", embedder=_embedder(embedder)) as corpus:
        begun = time.perf_counter()
        made = corpus.store.embed()
        seconds = time.perf_counter() - begun
        passages = by_session(corpus.passages())
        rate = made.vectors / seconds
        said = f"{made.passages} passages, {made.vectors} vectors in {seconds:.1f} s"
        print(f"{embedder}: {made.model}, {said}, {rate:.0f}/s", flush=True)
        for mode in _MODES:
            yield embedder if mode != "keyword" else "", mode, [*measured(corpus, passages, mode)]


def main(embedders: Sequence[str]) -> int:
    rows = []
    for number, embedder in enumerate(embedders):
        with tempfile.TemporaryDirectory(prefix="perdure-finding-") as name:
            try:
                for whose, mode, answered in _scores(Path(name), embedder):
                    if mode == "keyword" and number:
                        continue
                    rows.append((whose, mode, "all", scored(answered)))
                    for which in MEANINGS:
                        some = [each for each in answered if each.question.cls == which]
                        rows.append((whose, mode, which, scored(some)))
            except EmbedderUnavailable as error:
                print(f"{embedder}: not measured: {error}")
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or EMBEDDERS))
