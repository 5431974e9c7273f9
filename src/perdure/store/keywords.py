"""Search by words: the best passages, or all of them in their order."""

from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

import msgspec

from perdure.catalog import Query, snippet
from perdure.catalog.contract import Filters, Listed, Scope
from perdure.catalog.ranking import Ranked, literals, place_of_literal, ranked
from perdure.embedding.blocks import blocks_of
from perdure.store.found import (
    Coverage,
    Found,
    Hit,
    cursor_of,
    question_of,
    read_cursor,
)
from perdure.store.indexer import Indexer
from perdure.store.passage_texts import PassageTexts

__all__ = ["NOTHING", "Asked", "Keywords", "coverage_of", "question"]

_RANKED = 1_000
"""So many candidates are ranked, the same for each page."""

_LITERAL = 200
"""So many of the best are read to see whether they hold what was typed sign by sign."""

_COUNT = Annotated[int, msgspec.Meta(ge=0)]

NOTHING = Coverage(0, 0, 0, ())


class Asked(NamedTuple):
    """What a search is about, and how much of it is to be answered."""

    scope: Scope
    query: Query
    mode: Literal["all", "any"]
    k: int
    after: str | None
    chars: int
    now: int


def question(asked: Asked, sort: str) -> int:
    """What was asked, as a cursor names it."""
    # So long ago is another moment for each page.
    scope = asked.scope._replace(since=None, until=None)
    return question_of(scope, asked.query.text, sort)


def coverage_of(index: Indexer) -> Coverage:
    """What an index knows of its sessions."""
    found = index.catalog.covered(index.namespace)
    return Coverage(
        sessions=found.sessions,
        indexed=found.sessions - found.unread,
        skipped=found.skipped,
        reasons=tuple(found.skipped_in),
    )


class Keywords:
    """Finds passages of a store by their words."""

    def __init__(self, texts: PassageTexts) -> None:
        """Nothing is read; `texts` reads passages again."""
        self._texts = texts

    def nothing(self, asked: Asked) -> Found:
        """The answer of a store that keeps nothing."""
        return _found([], None, asked, None, capped=False, fallback=False)

    def best(self, index: Indexer, asked: Asked) -> Found:
        """The best passages, the best first."""
        offset = 0
        number = question(asked, "relevance")
        if asked.after is not None:
            fallback, offset, now = read_cursor(asked.after, number, (bool, _COUNT, int))
            asked = asked._replace(mode="any" if fallback else "all", now=now)
        best, capped, mode = self.ranked(index, asked)
        end = offset + asked.k
        fallback = mode == "any" and bool(best)
        cursor = cursor_of(number, fallback, end, asked.now) if best[end:] else None
        hits = self.hits(index, best[offset:end], asked)
        return _found(hits, cursor, asked, index, capped=capped, fallback=fallback)

    def ranked(
        self, index: Indexer, asked: Asked
    ) -> tuple[list[Ranked], bool, Literal["all", "any"]]:
        """The best passages, whether there are more, and whether they have all of the words.

        Where none has all, those are ranked that have some, unless a page of others is asked for.
        """
        mode = asked.mode
        catalog, what = index.catalog, (index.namespace, asked.scope, asked.query)
        found = catalog.candidates(*what, mode=mode, most=_RANKED)
        if not found.found and asked.after is None:
            mode = "any"
            found = catalog.candidates(*what, mode=mode, most=_RANKED)
        best, cut = self._literally(ranked(found.found, asked.now), asked)
        return best, found.capped or cut or len(found.found) >= _RANKED, mode

    def _literally(self, best: list[Ranked], asked: Asked) -> tuple[list[Ranked], bool]:
        """Those of the best that hold what was typed sign by sign; all, if none does.

        Words know no signs: `foo(` finds all that says foo, and what says `foo(` is meant. Also
        returns whether some were not looked at.
        """
        typed = literals(asked.query)
        if not typed:
            return best, False
        first = best[:_LITERAL]
        texts = [(self._texts.text(each.candidate) or "").casefold() for each in first]
        held = [all(word in text for word in typed) for text in texts]
        exact = [each for each, holds in zip(first, held, strict=True) if holds]
        return (exact, len(best) > len(first)) if exact else (best, False)

    def in_order(self, index: Indexer, asked: Asked) -> Found:
        """All passages, in the order of their sessions and events."""
        behind = None
        number = question(asked, "seq")
        if asked.after is not None:
            kinds = (bool, str, int, int)
            fallback, session, seq, digest = read_cursor(asked.after, number, kinds)
            behind = (session, seq, digest)
            asked = asked._replace(mode="any" if fallback else "all")
        catalog, what = index.catalog, (index.namespace, asked.scope, asked.query)
        many = asked.k + 1
        found = catalog.in_order(*what, mode=asked.mode, after=behind, limit=many).found
        if not found and asked.after is None:
            asked = asked._replace(mode="any")
            found = catalog.in_order(*what, mode="any", limit=many).found
        page = found[: asked.k]
        fallback, cursor = asked.mode == "any" and bool(page), None
        if len(found) > len(page):
            last = page[-1]
            cursor = cursor_of(number, fallback, last.session, last.seq, last.digest)
        hits = self.hits(index, [Ranked(each, 0.0) for each in page], asked)
        return _found(hits, cursor, asked, index, capped=False, fallback=fallback)

    def hits(self, index: Indexer, page: Iterable[Ranked], asked: Asked) -> list[Hit]:
        """The hits of a page; what does not stand in its log any more is left out."""
        found = list(page)
        ids = {each.candidate.session for each in found}
        catalog, namespace = index.catalog, index.namespace
        rows = catalog.listed(namespace, Filters(ids=ids), limit=len(ids)) if ids else []
        known = {row.id: row for row in rows}
        hits = []
        for each in found:
            text = self._texts.text(each.candidate)
            if text is not None:
                hits.append(_hit(each, text, asked, known.get(each.candidate.session)))
        return hits


def _hit(ranked: Ranked, text: str, asked: Asked, row: Listed | None) -> Hit:
    candidate, score, part = ranked
    start, end = 0, len(text)
    if part is not None:
        # What it was found by, though no word of the query may stand there.
        start, end = next((b[1:] for b in blocks_of(text) if b.part == part), (start, end))
    shown = text[start:end]
    near = place_of_literal(shown, asked.query)
    piece = snippet(shown, asked.query, chars=asked.chars, near=near)
    return Hit(
        session=candidate.session,
        seq=candidate.seq,
        kind=candidate.kind,
        agent=candidate.agent,
        time=candidate.time,
        score=score,
        snippet=piece.text,
        spans=piece.spans,
        cut=(piece.cut_before or start > 0, piece.cut_after or end < len(text)),
        title=None if row is None else row.title,
        cwd=None if row is None else row.cwd,
    )


def _found(
    hits: list[Hit],
    cursor: str | None,
    asked: Asked,
    index: Indexer | None,
    *,
    capped: bool,
    fallback: bool,
) -> Found:
    return Found(
        hits,
        cursor,
        "keyword",
        fallback=fallback,
        capped=capped,
        ignored=asked.query.ignored,
        coverage=NOTHING if index is None else coverage_of(index),
    )
