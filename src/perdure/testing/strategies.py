"""Hypothesis strategies for what a store may be given, the awkward cases first.

They draw values that are valid: what must be refused is drawn by the tests that refuse it.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from perdure.errors import InvalidValue
from perdure.model import limits
from perdure.model.event import Draft, draft
from perdure.model.header import VOCABULARY, Header, Parent, Source, new_header
from perdure.model.values import check_text

__all__ = [
    "commits",
    "drafts",
    "event_types",
    "headers",
    "integers",
    "json_values",
    "names",
    "nested",
    "session_ids",
    "streams",
    "strings",
    "texts",
]

_AWKWARD_TEXTS = (
    "",
    "\0",
    '"\\/\b\f\n\r\t',
    "\x0b\x0c\x1c\x85\u2028\u2029",
    "\ud83d",
    "\udfff\ud800",
    "\U0001f600",
    "\ufeff\uffff",
    "e\u0301\u00e9",
    '","crc":"00000000"}\n{"seq":0,"prev":"',
    "\ud800\n" * 3,
    "\ud83d\ude00",
)
_AWKWARD_NUMBERS = (
    0,
    -1,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**400,
    2**limits.INTEGER_BITS_MAX - 1,
)
_AWKWARD_FLOATS = (0.0, -0.0, 1.0, 1e16, 1e22, 1e-7, 5e-324, 1.7976931348623157e308, 0.1)


def strings(*, max_size: int | None = 20) -> SearchStrategy[str]:
    """Any string: every kind of line separator, surrogates alone and those that make a pair."""
    anything = st.text(st.characters(), max_size=max_size)
    fitting = [text for text in _AWKWARD_TEXTS if max_size is None or len(text) <= max_size]
    return st.one_of(anything, st.sampled_from(fitting))


def texts(*, max_size: int | None = 20) -> SearchStrategy[str]:
    """Any string that a log keeps: all but those with a pair of surrogates as two code points."""
    return strings(max_size=max_size).filter(_is_kept)


def _is_kept(string: str) -> bool:
    try:
        check_text("text", string)
    except InvalidValue:
        return False
    return True


def integers() -> SearchStrategy[int]:
    """Integers around every boundary of their width, up to the largest that is kept."""
    return st.one_of(st.integers(), st.sampled_from(_AWKWARD_NUMBERS))


def nested(depth: int) -> Any:
    """A value of exactly `depth` arrays and objects within each other."""
    value: Any = "deep"
    for level in range(depth):
        value = [value] if level % 2 else {"in": value}
    return value


def json_values(*, max_leaves: int = 12) -> SearchStrategy[Any]:
    """Any value that the log keeps without loss."""
    floats = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(_AWKWARD_FLOATS)
    scalars = st.none() | st.booleans() | integers() | floats | texts()
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4) | st.dictionaries(texts(max_size=8), inner, max_size=4)
        ),
        max_leaves=max_leaves,
    )


def event_types() -> SearchStrategy[str]:
    """Event types, known and unknown to the vocabulary, up to the longest."""
    known = ("assistant/delta", "turn/start", "turn/end", "tool/call", "job/start")
    any_type = st.from_regex(r"[a-z][a-z0-9._/-]{0,127}", fullmatch=True)
    return st.sampled_from(known) | any_type


def session_ids() -> SearchStrategy[str]:
    """Ids that try to leave the folder, to meet each other, or to be a device."""
    awkward = (".", "..", "a/b", "a\\b", "CON", "con", "con.txt", "lpt1", "A", "a", "a.", ".a")
    long = st.text("aA\u00e9\U0001f600", min_size=90, max_size=300)
    return st.one_of(
        st.sampled_from(awkward),
        texts(max_size=40).filter(bool),
        st.text("aA.%-", min_size=1, max_size=6),
        long,
        texts(max_size=limits.ID_CHARS_MAX).filter(bool),
    )


def names(chars_max: int) -> SearchStrategy[str | None]:
    """An agent, a turn or a key: None, or a string of 1 to `chars_max` characters."""
    common = st.sampled_from(("a", "b"))
    return st.none() | common | texts(max_size=12).filter(bool) | st.just("x" * chars_max)


def _times() -> SearchStrategy[int]:
    most = limits.TIME_MS_MAX
    return st.integers(-most, most) | st.sampled_from((0, most, -most, 1_700_000_000_000))


def drafts(*, keyed: bool = True) -> SearchStrategy[Draft]:
    """One accepted event."""
    return st.builds(
        draft,
        event_types(),
        json_values(),
        time=_times(),
        agent=names(limits.AGENT_CHARS_MAX),
        turn=names(limits.TURN_CHARS_MAX),
        key=names(limits.KEY_CHARS_MAX) if keyed else st.none(),
        ignorable=st.booleans(),
    )


@st.composite
def streams(draw: st.DrawFn, *, max_size: int = 12) -> list[Draft]:
    """Neighbours that may be packed: equal but for one string, with the odd one in between."""
    before, after = draw(json_values(max_leaves=3)), draw(json_values(max_leaves=3))
    shape = draw(st.sampled_from(("object", "array", "bare", "deep")))
    path_of: dict[str, Callable[[str], Any]] = {
        "object": lambda text: {"a": before, "text": text, "z": after},
        "array": lambda text: [before, text, after],
        "bare": lambda text: text,
        "deep": lambda text: {"x": [before, {"y": text}], "z": after},
    }
    make = path_of[shape]
    kind, agent, turn = draw(event_types()), draw(names(8)), draw(names(8))
    pieces = draw(st.lists(texts(), min_size=1, max_size=max_size))
    out = [
        draft(kind, make(piece), time=draw(_times()), agent=agent, turn=turn) for piece in pieces
    ]
    if draw(st.booleans()):
        out.insert(draw(st.integers(0, len(out))), draw(drafts()))
    return out


def commits(*, max_commits: int = 5) -> SearchStrategy[list[list[Draft]]]:
    """Batches of events as writers commit them, streams among them; keys may repeat."""
    mixed = st.lists(drafts(), min_size=1, max_size=4)
    return st.lists(streams() | mixed, min_size=1, max_size=max_commits)


@st.composite
def headers(draw: st.DrawFn) -> Header:
    """Headers with any of their optional members."""
    source = draw(st.none() | st.builds(Source, texts(), names(40), names(40), names(40)))
    absolute = texts().map(lambda rest: "/" + rest)
    return new_header(
        draw(session_ids()),
        created_at=draw(st.integers(0, limits.TIME_MS_MAX)),
        cwd=draw(st.none() | (absolute if source is None else texts())),
        parent=draw(st.none() | st.builds(Parent, session_ids(), st.integers(0, 2**53))),
        seed=draw(st.integers(0, 2**53)),
        origin=draw(st.sampled_from((None, "subagent"))),
        depth=draw(st.integers(0, 100)),
        preset=draw(names(40)),
        config=draw(json_values()),
        source=source,
        vocabulary=draw(st.sampled_from((None, VOCABULARY)) | texts()),
        genesis=draw(st.none() | st.from_regex(r"[0-9a-f]{64}", fullmatch=True)),
    )
