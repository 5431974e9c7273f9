"""Search by meaning: the passages whose vectors are nearest, alone or beside those with the words.

Hybrid joins two rankings by the places that a passage has in them (reciprocal rank fusion; Cormack,
Clarke and Büttcher, 2009): their scores are of different kinds, and cannot be compared.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import msgspec

from perdure.catalog.contract import Candidate, Scope
from perdure.catalog.ranking import Ranked, once_each
from perdure.embedding.vectors import Model, Near, Vectors
from perdure.errors import EmbedderUnavailable, InvalidValue, PerdureError
from perdure.model import values
from perdure.store.embedders import Answering, Embedders
from perdure.store.found import Found, cursor_of, read_cursor
from perdure.store.indexer import Indexer
from perdure.store.keywords import Asked, Keywords, coverage_of, question

__all__ = ["FUSED", "MODES", "NEAREST", "Nearness", "fused"]

MODES = ("auto", "keyword", "semantic", "hybrid")

FUSED = 60
"""The constant of reciprocal rank fusion: a place counts 1 / (60 + place), places from 1 on."""

NEAREST = 200
"""So many passages of each ranking are looked at."""

_COUNT = Annotated[int, msgspec.Meta(ge=0)]
_ALL = Scope()
_QUERY_CHARS = 2_000
"""So much of a query is embedded: what it is about stands there, and models take no more."""

_NO_WORDS = "no passage has any of these words; these are the nearest in meaning"


class Nearness:
    """Finds passages of a store by what they mean."""

    def __init__(self, keywords: Keywords, vectors: Vectors, embedders: Embedders) -> None:
        """Nothing is loaded."""
        self._keywords = keywords
        self._vectors = vectors
        self._embedders = embedders

    def models(self) -> tuple[Model, ...]:
        """The models of which there are vectors, that of the answers first."""
        return tuple(self._vectors.models())

    def search(self, index: Indexer, asked: Asked, mode: str) -> Found:
        """Answer in a mode of `MODES` but "keyword".

        "auto" is hybrid where the sessions asked have vectors; else, and where something is wrong
        with the embedder, it is keyword, and the answer says why.

        Raises:
            EmbedderUnavailable, EmbedderFaulty: what "semantic" and "hybrid" need is not there.

        """
        if not asked.query.text.strip() or (mode == "auto" and asked.query.empty):
            return self._keywords.best(index, asked)
        if mode != "auto":
            return self._near(index, asked, mode)
        if _is_of_words(asked):
            return self._keywords.best(index, asked)
        try:
            if self._has_vectors(index, asked):
                return self._near(index, asked, mode)
            return self._keywords.best(index, asked)
        except PerdureError as error:
            # A page that goes on cannot be of another ranking.
            if asked.after is not None:
                raise
            found = self._keywords.best(index, asked)
            return found._replace(warnings=(str(error),))

    def _near(self, index: Indexer, asked: Asked, mode: str) -> Found:
        answering, query = self._embedders.in_time(lambda: self._query(asked))
        return self._found(index, asked, mode, answering, query)

    def _has_vectors(self, index: Indexer, asked: Asked) -> bool:
        """Whether the sessions asked have any; only those that are named are looked at singly."""
        ids = asked.scope.sessions.ids
        for model in self._vectors.models():
            read = self._vectors.versions(model.name, index.namespace)
            if read and (ids is None or not read.keys().isdisjoint(ids)):
                return True
        return False

    def _query(self, asked: Asked) -> tuple[Answering, Any]:
        from perdure.embedding.arithmetic import checked  # noqa: PLC0415 - brings numpy

        answering = self._embedders.answering()
        embedder = answering.embedder
        with self._embedders.calls:
            given = embedder.embed_query(values.text(asked.query.text[:_QUERY_CHARS]))
        (row,) = checked([given], 1, embedder.dimension, embedder.spec)
        return answering, row

    def _found(
        self, index: Indexer, asked: Asked, mode: str, answering: Answering, query: Any
    ) -> Found:
        model = answering.model
        hybrid = mode != "semantic"
        number = question(asked, f"{'hybrid' if hybrid else mode} {model.name}")
        offset, fallback = 0, False
        if asked.after is not None:
            fallback, offset, now = read_cursor(asked.after, number, (bool, _COUNT, int))
            asked = asked._replace(mode="any" if fallback else "all", now=now)
        best = self._nearest(index, asked, model, query)
        if not best and all(each.name != model.name for each in self._vectors.models()):
            reason = "its vectors are gone: removed, replaced by those of another, or damaged"
            hint = "try again; if that does not help, run `perdure embed`"
            raise EmbedderUnavailable(model.spec, reason, hint=hint, retryable=True)
        capped = len(best) >= NEAREST
        warnings = self._warnings(index, answering)
        if hybrid:
            words, more, words_mode = self._keywords.ranked(index, asked)
            fallback = words_mode == "any" and bool(words)
            if best and not words:
                warnings = (_NO_WORDS, *warnings)
            best = fused((words[:NEAREST], best))
            capped = capped or more or len(words) > NEAREST
        end = offset + asked.k
        cursor = cursor_of(number, fallback, end, asked.now) if best[end:] else None
        return Found(
            self._keywords.hits(index, best[offset:end], asked),
            cursor,
            "hybrid" if hybrid else mode,
            fallback=fallback and hybrid,
            capped=capped,
            ignored=asked.query.ignored,
            coverage=coverage_of(index),
            model=model.name,
            warnings=warnings,
        )

    def _nearest(self, index: Indexer, asked: Asked, model: Model, query: Any) -> list[Ranked]:
        """The nearest passages of the scope."""
        scope = asked.scope
        sessions = scope.sessions._replace(since=None, until=None, without=())
        if scope._replace(sessions=sessions) == _ALL:
            # What is near to the query among everything is so within the scope as well. But all of
            # it may be of other namespaces, say, and then too little is left.
            near = self._vectors.nearest(model.name, query, None, 2 * NEAREST)
            found = self._said(index, scope, near)
            if len(found) >= NEAREST or len(near) < 2 * NEAREST:
                return found[:NEAREST]
        digests = index.catalog.digests(index.namespace, scope)
        near = self._vectors.nearest(model.name, query, digests, NEAREST)
        return self._said(index, scope, near)[:NEAREST]

    @staticmethod
    def _said(index: Indexer, scope: Scope, near: Sequence[Near]) -> list[Ranked]:
        """Who says what is near, the nearest first; of what one call says, only the nearest."""
        places = {each.digest: each for each in near}
        said = index.catalog.saying(index.namespace, scope, places)
        found = [Ranked(each, places[each.digest].score, places[each.digest].part) for each in said]
        found.sort(key=lambda each: (-each.score, -each.candidate.time, *_named(each.candidate)))
        return once_each(found)

    def _warnings(self, index: Indexer, answering: Answering) -> tuple[str, ...]:
        """Which other model was wanted, and what of the sessions has no vectors."""
        model = answering.model
        some_other: tuple[str, ...] = ()
        if answering.instead is not None:
            told = f"{answering.instead} has not embedded everything; {model.spec} answers"
            some_other = (f"{told} until `perdure embed` was run with it",)
        there = index.catalog.versions(index.namespace)
        read = self._vectors.versions(model.name, index.namespace)
        left = sum(read.get(session) != version for session, version in there.items())
        if not left:
            return some_other
        some = f"{left} of {len(there)} sessions say"
        if left == 1:
            some = f"1 of {len(there)} sessions says"
        told = f"{some} something that has no vectors yet; `perdure embed` makes them"
        return (*some_other, told)


def _is_of_words(asked: Asked) -> bool:
    """Whether a page is asked for that goes on with an answer by words alone."""
    if asked.after is None:
        return False
    try:
        read_cursor(asked.after, question(asked, "relevance"), (bool, _COUNT, int))
    except InvalidValue:
        return False
    return True


def _named(candidate: Candidate) -> tuple[str, int, str, int]:
    return candidate.session, candidate.seq, candidate.kind, candidate.digest


def fused(rankings: Iterable[Sequence[Ranked]]) -> list[Ranked]:
    """One ranking of several; of equal ones the newest comes first."""
    scores: dict[tuple[str, int, str, int], float] = {}
    found: dict[tuple[str, int, str, int], Ranked] = {}
    for ranking in rankings:
        for place, each in enumerate(ranking, 1):
            name = _named(each.candidate)
            scores[name] = scores.get(name, 0.0) + 1 / (FUSED + place)
            # Where words stand is a better place to show than where a piece begins.
            found.setdefault(name, each)
    joined = [each._replace(score=scores[name]) for name, each in found.items()]
    joined.sort(key=lambda each: (-each.score, -each.candidate.time, *_named(each.candidate)))
    return joined
