"""The pages for people: the listing, one session, logging in, and what went wrong.

They are text in, text out: no script, and nothing of a session is markup. Templates escape whatever
they are given, and what acts on a page without being markup is made visible before (`finalize`).
"""

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perdure.catalog.contract import Listed
from perdure.durable.locks import Holder
from perdure.errors import InvalidValue, PerdureError
from perdure.http.paths import id_of, segment_of
from perdure.http.problems import Discretion
from perdure.http.server.timeline import Stretch, Window, stretch
from perdure.model import values
from perdure.model.header import Header
from perdure.model.showing import safe, safe_lines
from perdure.store import Store
from perdure.store.asking import STATUSES
from perdure.store.found import Hit

__all__ = ["ICON", "STYLE", "error_page", "listing_page", "login_page", "session_page"]

STYLE: bytes = files("perdure.http.server").joinpath("static/style.css").read_bytes()
"""The stylesheet of all pages, for `/static/style.css`."""

ICON: bytes = files("perdure.http.server").joinpath("static/icon.svg").read_bytes()
"""What a browser shows beside the title, for `/static/icon.svg`: it would ask for one anyway."""

_ROWS = 50
"""Sessions of a page of the listing."""

_HITS = 20
_SNIPPET_CHARS = 300
_CHILDREN_MAX = 50
_NUMBER_MAX = 2**53
_TITLE_CHARS = 200


class _Text(str):
    """Text with lines that was made safe already."""

    __slots__ = ()


def _lines(text: str) -> _Text:
    """A text that keeps its lines."""
    return _Text(safe_lines(text))


def _count(number: int) -> str:
    return f"{number:,}"


def _shown(value: object) -> object:
    """What stands in a page for a value: text with nothing in it that acts on others."""
    # What a macro made is markup, and its parts came by here.
    return (
        safe(value) if isinstance(value, str) and not isinstance(value, _Text | Markup) else value
    )


_TEMPLATES = Environment(
    loader=PackageLoader("perdure.http.server"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_shown,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _render(template: str, **facts: Any) -> str:
    # UTF-8 has no form for a lone surrogate, wherever it came from.
    return values.text(_TEMPLATES.get_template(template).render(facts))


# --- what templates call --------------------------------------------------------------------------


def _href(id: str, **asked: object) -> str:
    """The path of the page of a session."""
    path = f"/sessions/{segment_of(id)}"
    given = {name: value for name, value in asked.items() if value is not None}
    return f"{path}?{urlencode(given, errors='replace')}" if given else path


def _moment(milliseconds: int | None) -> dict[str, str] | None:
    """A time in UTC for a machine and for people; None where no calendar has it."""
    if not milliseconds:
        return None
    try:
        moment = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    machine = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"machine": machine.rjust(20, "0"), "people": moment.strftime("%Y-%m-%d %H:%M:%S")}


def _money(cost: Mapping[str, float]) -> str:
    """What something cost, in each currency."""
    return ", ".join(f"{amount:,.2f} {currency}".strip() for currency, amount in cost.items())


def _marked(hit: Hit) -> Iterator[tuple[bool, str]]:
    """A snippet in parts, and which of them were looked for."""
    at = 0
    for start, end in hit.spans:
        yield False, hit.snippet[at:start]
        yield True, hit.snippet[start:end]
        at = max(at, end)
    yield False, hit.snippet[at:]


_TEMPLATES.globals.update(href=_href, moment=_moment, money=_money, statuses=STATUSES)
_TEMPLATES.filters.update(lines=_lines, marked=_marked, count=_count)


# --- the listing ----------------------------------------------------------------------------------


def listing_page(store: Store, query: Mapping[str, str], *, who: str, owner: bool = False) -> str:
    """The listing, or with `said` in the query where something was said; `who` asks.

    Only the `owner` of the store is told of the machine: see `perdure.http.problems.Discretion`;
    what is raised is such as may be told. `q` looks in titles and folders, `status` is one, `after`
    is the cursor of the page before; `in` is the segment of a session, for `said`.

    Raises:
        InvalidValue: something in the query cannot be.
        As `Store.sessions` and `Store.search`.

    """
    may = Discretion(owner)
    with _discreet(may):
        if query.get("said", "").strip():
            return _search_page(store, query, who, may)
        return _sessions_page(store, query, who, may)


@contextmanager
def _discreet(may: Discretion) -> Iterator[None]:
    """Whatever goes wrong within is raised as it may be told."""
    try:
        yield
    except PerdureError as error:
        told = may.error(error)
        if told is error:
            raise
        raise told from error


def _sessions_page(store: Store, query: Mapping[str, str], who: str, may: Discretion) -> str:
    after = query.get("after") or None
    q, status = query.get("q", "").strip(), query.get("status") or None
    found = store.sessions(_ROWS, after, query=q or None, status=status)
    coverage = may.coverage(found.coverage)
    more = None
    if found.cursor is not None:
        more = _asked(q=q, status=status, after=found.cursor)
    return _render(
        "listing.html",
        who=who,
        q=q,
        said="",
        status=status or "",
        sessions=[may.row(each) for each in found.sessions],
        more=more,
        first=_asked(q=q, status=status) if after else None,
        fallback=found.fallback,
        coverage=None if coverage.complete else str(coverage),
        stored=coverage.sessions,
    )


def _search_page(store: Store, query: Mapping[str, str], who: str, may: Discretion) -> str:
    said, after = query["said"].strip(), query.get("after") or None
    within = query.get("in") or None
    session = None if within is None else id_of(within)
    found = may.found(
        store.search(said, session=session, k=_HITS, after=after, snippet_chars=_SNIPPET_CHARS)
    )
    more = None
    if found.cursor is not None:
        more = _asked(said=said, within=within, after=found.cursor)
    return _render(
        "search.html",
        who=who,
        q="",
        status="",
        said=said,
        within=within,
        session=session,
        hits=found.hits,
        more=more,
        notes=_notes(found),
    )


def _notes(found: Any) -> list[str]:
    """What whoever reads the hits has to know."""
    notes = []
    if found.fallback and found.hits:
        notes.append("Nothing has all of these words; this has some of them.")
    if found.capped:
        notes.append("The words are so common that only the newest places were ranked.")
    if found.ignored:
        notes.append(f"Left out of the question: {', '.join(found.ignored)}")
    if not found.coverage.complete:
        notes.append(str(found.coverage))
    return [*notes, *found.warnings]


def _asked(**asked: str | None) -> str:
    """The path of the listing with a query; `within` is called `in` there."""
    given = {name: value for name, value in asked.items() if value}
    if "within" in given:
        given["in"] = given.pop("within")
    return f"/?{urlencode(given, errors='replace')}" if given else "/"


# --- one session ----------------------------------------------------------------------------------


class _Facts(NamedTuple):
    """What stands above the events of a session."""

    id: str
    title: str
    row: Listed | None
    header: Header | None
    holder: str | None
    problem: PerdureError | None


def session_page(
    store: Store, id: str, query: Mapping[str, str], *, who: str, owner: bool = False
) -> str:
    """A stretch of one session; whatever is wrong with it stands on the page. `who` asks.

    Only the `owner` of the store is told of the machine, as in a listing. Without a query these are
    the last events. `from` is the first one shown, `before` the first one behind the page, `at` one
    that has to be there, `event` one that is shown alone.

    Raises:
        SessionNotFound: there is none.
        InvalidValue: something in the query cannot be.
        StorageUnavailable, PersistenceDisabled: it cannot be read.

    """
    may = Discretion(owner)
    with _discreet(may):
        return _session_page(store, id, query, who, may)


def _session_page(
    store: Store, id: str, query: Mapping[str, str], who: str, may: Discretion
) -> str:
    window = Window(*(_number(query, name) for name in ("from", "before", "at", "event")))
    found = store.inspect(id)
    row = _row(store, id)
    part = Stretch([], 0, None, None)
    if found.header is None:
        try:
            # Says what is wrong.
            store.read_from(id)
        except PerdureError as error:
            part = part._replace(problem=error)
    else:
        part = stretch(store, found.header, window, _events_in(row, found))
    facts = _Facts(
        id=id,
        title=((row and row.title) or id)[:_TITLE_CHARS],
        row=None if row is None else may.row(row),
        header=found.header,
        holder=_writer(found.holder, may),
        problem=None if part.problem is None else may.error(part.problem),
    )
    return _render(
        "session.html",
        who=who,
        q="",
        status="",
        said="",
        facts=facts,
        segment=segment_of(id),
        part=part,
        anchors=_anchors(part),
        alone=window.alone is not None,
        newest=window == Window() or (part.next is None and part.problem is None),
        children=[may.row(each) for each in _children(store, id)],
    )


def _writer(holder: Holder | None, may: Discretion) -> str | None:
    """Who writes a session, in words."""
    if holder is None:
        return None
    if not may.owner:
        return "somebody"
    pid = "?" if holder.pid is None else holder.pid
    return f"process {pid} on {holder.host or 'an unknown host'}"


def _number(query: Mapping[str, str], name: str) -> int | None:
    """A number of an event from the query.

    Raises:
        InvalidValue: it is none.

    """
    text = query.get(name)
    if not text:
        return None
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else _NUMBER_MAX
    if number >= _NUMBER_MAX:
        reason = f"{values.shown(text)} is not the number of an event"
        raise InvalidValue(name, reason, hint="0, 1, 2, …")
    return number


def _row(store: Store, id: str) -> Listed | None:
    """What the listing says of a session; None where it has nothing of it."""
    try:
        return next(iter(store.sessions_by_id(id)), None)
    except PerdureError:
        # The listing is derived: a session is there without it.
        return None


def _events_in(row: Listed | None, found: Any) -> int:
    """How many events there are, told without reading them where somebody knows."""
    if row is not None:
        return row.events
    position = found.position
    return 0 if position is None else position.seq + 1


def _children(store: Store, id: str) -> list[Listed]:
    try:
        return store.children_of(id)[:_CHILDREN_MAX]
    except PerdureError:
        return []


def _anchors(part: Stretch) -> set[int]:
    """The places of the items that links lead to: the first one of each event."""
    first: dict[int, int] = {}
    for place, item in enumerate(part.items):
        first.setdefault(item.seq, place)
    return set(first.values())


# --- the rest -------------------------------------------------------------------------------------


def login_page(message: str | None) -> str:
    """A form for a token, and why it is asked for again."""
    return _render("login.html", message=message)


def error_page(status: int, message: str, hint: str) -> str:
    """What went wrong, and what to do."""
    return _render("error.html", status=status, message=message, hint=hint)
