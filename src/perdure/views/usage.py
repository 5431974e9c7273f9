"""View "usage": what the models cost, each response counted once."""

import math
import sys
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from perdure.model.event import Event
from perdure.model.header import Header
from perdure.model.vocabulary import AssistantMessage, Count, Usage, fitting
from perdure.model.vocabulary.types import converted
from perdure.views.view import History, Rows, View
from perdure.views.windows import Window, key_of, parts_of

__all__ = ["RESPONSES_MAX", "Totals", "UsageTotals", "UsageView", "usage"]

RESPONSES_MAX = 64
"""How many responses can still be told of again; each was counted once by then."""

_ID_CHARS_MAX = 128
_COUNTS = ("input", "output", "cached", "reasoning")


class Totals(NamedTuple):
    """Sums over responses.

    Attributes:
        responses: how many.
        input: tokens sent, those from a cache among them.
        output: tokens that came back, those of thinking among them.
        cached: tokens of the input that were read from a cache.
        reasoning: tokens of the output that were thinking.
        cost: sums by currency; "" where none was named.

    """

    responses: int
    input: int
    output: int
    cached: int
    reasoning: int
    cost: dict[str, float]


class UsageTotals(NamedTuple):
    """What was used.

    Attributes:
        own: by this session itself.
        inherited: by the session it was forked from, before the fork; counted there.
        by_agent: `own` by agent.
        by_model: `own` by model; None where none was named.
        inherited_by_agent: `inherited` by agent.

    """

    own: Totals
    inherited: Totals
    by_agent: dict[str | None, Totals]
    by_model: dict[str | None, Totals]
    inherited_by_agent: dict[str | None, Totals]


class UsageView(View):
    """Sums by whose they are, agent, model and currency, and the last 64 responses by themselves.

    A response is added to the sums when it leaves that window: until then it may be told of again,
    and nothing ever has to be taken off a sum.
    """

    name = "usage"
    version = 1
    types = frozenset({"usage", "assistant/message"})

    def begin(self, rows: Rows, header: Header) -> None:
        """Note which events are inherited."""
        rows.put("seed", header.seed)

    def apply(self, rows: Rows, event: Event, history: History) -> None:  # noqa: ARG002
        """Count a response, or correct what was counted of it."""
        data = event.data
        if event.type == "assistant/message" and not (isinstance(data, dict) and "usage" in data):
            return
        found = fitting(event)
        told = _told(found.usage if isinstance(found, AssistantMessage) else data)
        if found is None or not told:
            return
        if found.model is not None:
            told["model"] = found.model
        new = {"inherited": event.seq < rows["seed"], "agent": event.agent}
        if found.response is None:
            _add(rows, new | told)
            return
        id = _id(found.response)
        known = rows.get(key_of("open", id))
        rows.put(key_of("open", id), (known or new) | told)
        if known is None and (gone := Window(rows, RESPONSES_MAX).put(id)) is not None:
            _add(rows, rows[key_of("open", gone)])
            rows.remove(key_of("open", gone))


def usage(rows: Rows) -> UsageTotals:
    """The sums over all responses."""
    found = list(_sums(rows))
    own = [(place, sums) for place, sums in found if place[0] == "own"]
    inherited = [(place, sums) for place, sums in found if place[0] == "inherited"]
    return UsageTotals(
        own=_total(own),
        inherited=_total(inherited),
        by_agent=_totals_by(own, 1),
        by_model=_totals_by(own, 2),
        inherited_by_agent=_totals_by(inherited, 1),
    )


_Place = list[str | None]
_Part = tuple[_Place, list[Any]]
"""Whose, agent, model and currency; then responses, the four counts and the cost."""


def _sums(rows: Rows) -> Iterator[_Part]:
    for key, row in rows.all.items():
        if key == "seed":
            continue
        what, *place = parts_of(key)
        if what == "sum":
            yield place, row
        elif what == "open":
            yield _part(row)


def _part(told: dict[str, Any]) -> _Part:
    whose = "inherited" if told["inherited"] else "own"
    place = [whose, told["agent"], told.get("model"), told.get("currency")]
    return place, [1, *(told.get(name, 0) for name in _COUNTS), told.get("cost")]


def _add(rows: Rows, told: dict[str, Any]) -> None:
    place, part = _part(told)
    key = key_of("sum", *place)
    before = rows.get(key) or [0, 0, 0, 0, 0, None]
    *counts, cost = zip(before, part, strict=True)
    rows.put(key, [*map(sum, counts), _money(cost)])


def _money(costs: Any) -> float | None:
    """A sum that JSON can carry, the same in whatever order it is made of the same parts."""
    known = [cost for cost in costs if cost is not None]
    try:
        return math.fsum(known) if known else None
    except OverflowError:
        return sys.float_info.max


def _total(parts: list[_Part]) -> Totals:
    counts = [sum(sums[column] for _, sums in parts) for column in range(5)]
    costs: dict[str, list[float]] = {}
    for place, sums in parts:
        if sums[5] is not None:
            costs.setdefault(place[3] or "", []).append(sums[5])
    money = {currency: _money(costs[currency]) or 0.0 for currency in sorted(costs)}
    return Totals._make([*counts, money])


def _totals_by(parts: list[_Part], column: int) -> dict[str | None, Totals]:
    names = {place[column] for place, _ in parts}
    return {
        name: _total([part for part in parts if part[0][column] == name])
        for name in sorted(names, key=lambda name: (name is not None, name or ""))
    }


def _id(response: str) -> str:
    if len(response) <= _ID_CHARS_MAX:
        return response
    return sha256(response.encode("utf-8", "surrogatepass")).hexdigest()


# --- what a response was said to cost ------------------------------------------------------------


class _Details(msgspec.Struct, frozen=True):
    cached_tokens: Count | None = None
    reasoning_tokens: Count | None = None


class _Foreign(msgspec.Struct, frozen=True):
    """The members of Anthropic's Messages, OpenAI's Chat Completions and Responses."""

    input_tokens: Count | None = None
    prompt_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    output_tokens: Count | None = None
    completion_tokens: Count | None = None
    input_tokens_details: _Details | None = None
    prompt_tokens_details: _Details | None = None
    output_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


def _told(said: Any) -> dict[str, Any]:
    """The members of `Usage` that were said; none if what was said does not fit."""
    if not isinstance(said, dict):
        return {}
    known = {name: said[name] for name in _NAMES if name in said}
    try:
        own = converted(known, Usage)
        foreign = converted(known, _Foreign)
    except msgspec.ValidationError:
        return {}
    told = {name: getattr(own, name) for name in (*_COUNTS, "cost", "currency") if name in known}
    told = {name: value for name, value in told.items() if value is not None}
    told = _translated(foreign) | told
    return told if told.keys() - {"currency"} else {}


def _translated(said: _Foreign) -> dict[str, int]:
    sent = said.prompt_tokens if said.input_tokens is None else said.input_tokens
    back = said.completion_tokens if said.output_tokens is None else said.output_tokens
    asked = said.input_tokens_details or said.prompt_tokens_details or _Details()
    answered = said.output_tokens_details or said.completion_tokens_details or _Details()
    cached = asked.cached_tokens
    if said.cache_read_input_tokens is not None:
        cached = said.cache_read_input_tokens
    if sent is not None:
        # Anthropic counts what came from its cache, or went into it, beside the rest.
        sent += (said.cache_read_input_tokens or 0) + (said.cache_creation_input_tokens or 0)
    numbers = zip(_COUNTS, (sent, back, cached, answered.reasoning_tokens), strict=True)
    return {name: number for name, number in numbers if number is not None}


_NAMES = (*_COUNTS, "cost", "currency", *_Foreign.__struct_fields__)
