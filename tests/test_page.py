"""The pages for people: hostile content is text, whatever is wrong is said, and a page is small."""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

import perdure
from perdure import importers
from perdure.errors import InvalidValue, SessionNotFound
from perdure.http.paths import id_of, segment_of
from perdure.http.server import items, pages, timeline
from perdure.http.server.items import Telling
from perdure.http.server.pages import error_page, listing_page, login_page, session_page
from perdure.model.event import Event
from perdure.model.showing import is_hostile, safe, safe_lines
from tests.pages import TEMPLATES, Page

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "tests" / "data"

HOSTILE = [
    "</script><img src=x onerror=1>",
    "</textarea></title></style>",
    "<!-- ",
    "javascript:alert(1)",
    '" onmouseover="x" autofocus onfocus="x',
    "' onclick='x",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;&amp;#x3c;script&#62;",
    "\u202egnp.exe\u2066\u200f\u061c",
    "\x1b[2J\x1b]0;title\x07\x9b31m",
    "\ud800lone\udfff",
    "a\r\nb\u2028c\u2029d\x00e\x85f",
    "]]><![CDATA[ <?php ?>",
    "../../etc/passwd?x=1#y",
    "\ufeff\u00ad\U000e0001\u115f",
]


def page_of(html: str) -> Page:
    """Parse a page, and demand that it is one of ours and that nothing in it acts on others."""
    html.encode("utf-8")
    assert [c for c in html if is_hostile(c) and c not in "\n\t"] == []
    page = Page(html)
    assert page.faults == []
    return page


def show(store: perdure.Store, id: str, **query: Any) -> Page:
    given = {name.rstrip("_"): str(value) for name, value in query.items()}
    return page_of(session_page(store, id, given, who="owner", owner=True))


def listing(store: perdure.Store, **query: str) -> Page:
    given = {name.rstrip("_"): value for name, value in query.items()}
    return page_of(listing_page(store, given, who="owner", owner=True))


def asked(link: str) -> tuple[str, dict[str, str]]:
    """Id of the session and query of a link to one."""
    parts = urlsplit(link)
    return id_of(parts.path.rpartition("/")[2]), dict(parse_qsl(parts.query))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    with perdure.open(tmp_path / "store", encoding="raw") as opened:
        yield opened


def log_of(store: perdure.Store, id: str) -> Path:
    return Path(str(store.locate(id)))


def said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def everything(text: str) -> list[dict[str, Any]]:
    """An event of each type that says `text` wherever it can."""
    error = {"code": text, "message": text}
    call = {"id": text, "name": text, "arguments": {text: [text, {text: 1}]}}
    blocks: list[Any] = [
        {"type": "text", "text": text},
        {"type": "thinking", "text": text, "signature": text},
        {"type": "image", "blob": text, "media_type": text},
        {"type": "file", "blob": text, "name": text},
        {"type": text, "text": text},
        {"type": "text", "text": {text: text}},
        {text: text},
    ]
    answer = {"content": [*blocks, {"type": "tool-call", **call}], "model": text}
    return [
        {"type": "session/titled", "data": {"title": text}},
        {"type": "turn/start", "data": {"parent": text}, "turn": text[:200]},
        {"type": "turn/start", "data": {"replaces": text}},
        {"type": "user/message", "data": {"content": blocks, "source": text}},
        {"type": "assistant/delta", "data": {"text": text}, "turn": "other"},
        {"type": "turn/end", "data": {"reason": text, "error": error}, "turn": "other"},
        {"type": "assistant/message", "data": {**answer, "interrupted": True}},
        {"type": "tool/call", "data": call},
        {"type": "tool/call", "data": {**call, "id": text + "2"}},
        {"type": "tool/result", "data": {"id": text, "content": blocks, "error": error}},
        {"type": "tool/result", "data": {"id": text + "3", "content": [blocks[0]]}},
        {"type": "context/compacted", "data": {"summary": blocks, "before": 9, "after": 1}},
        {"type": "context/rewound", "data": {"to": text}},
        {"type": "job/start", "data": {"id": text, "name": text, "arguments": text}},
        {"type": "job/update", "data": {"id": text, "output": text}},
        {"type": "job/end", "data": {"id": text, "status": text, "error": error, "result": text}},
        {"type": "subagent/start", "data": {"id": text, "session": text, "task": {text: text}}},
        {"type": "subagent/end", "data": {"id": text, "status": text, "result": text}},
        {"type": "channel/message", "data": {"channel": text, "sender": text, "content": text}},
        {"type": "artifact/saved", "data": {"name": text, "blob": "0" * 64, "size": 7}},
        {"type": "request/header", "data": {"header": {"system": text}}},
        {"type": "acme/own", "data": {text: text}},
        {"type": "user/message", "data": {"content": text}},
        {"type": "usage", "data": {"input": 7, "cost": 0.5, "currency": text}},
        {"type": "assistant/delta", "data": {"text": text}, "turn": "open"},
    ]


# --- hostile content ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_hostile_content_is_text(store: perdure.Store, text: str) -> None:
    """Wherever a text stands in a session, it is shown, and no page has an element of its own."""
    id = f"{text} id"
    with store.create(id, cwd="/" + text, preset=text, vocabulary=None) as session:
        for event in everything(text):
            session.append(agent=text[:200], **event)
    shown = safe(text)
    listed = listing(store)
    assert shown in listed.text
    (link,) = {link for link in listed.links if link.startswith("/sessions/")}
    assert asked(link) == (id, {})
    page = show(store, id)
    for fact in (shown, f"/{shown}", f"{shown} id", f"Calls {shown}", f"Result of {shown}"):
        assert fact in page.text
    assert safe_lines(text) in page.text
    for number in range(len(everything(text))):
        show(store, id, event=number)
    for query in ({"q": text}, {"said": text}, {"said": "lone gnp script", "in_": segment_of(id)}):
        found = listing(store, **query)
        assert found.inputs["q"] == safe(query.get("q", "").strip())
        assert found.inputs["said"] == safe(query.get("said", "").strip())
    assert shown.strip() in page_of(login_page(text)).text
    error = page_of(error_page(400, text, text))
    assert error.text.count(shown) == 2


def test_templates_trust_nothing() -> None:
    """No template marks anything as safe, runs a script or has a style of its own."""
    for path in TEMPLATES.glob("*.html"):
        source = path.read_text(encoding="utf-8")
        for banned in ("|safe", "| safe", "autoescape", "<script", "<style", " style=", " on"):
            if banned == " on":
                assert not any(f" on{name}=" in source for name in ("click", "load", "error"))
            else:
                assert banned not in source, path.name
    assert "Markup(" not in Path(str(pages.__file__)).read_text(encoding="utf-8")
    assert "url(" not in pages.STYLE.decode()
    assert "@import" not in pages.STYLE.decode()
    assert b"<script" not in pages.ICON


def test_a_name_that_templates_do_not_know_is_an_error() -> None:
    """A template that asks for what it was not given fails, and shows no page without it."""
    with pytest.raises(Exception, match="is undefined"):
        pages._render("error.html", status=1, message="x")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_what_is_shown_is_safe_once_and_for_all(text: str) -> None:
    """Text that was made safe stays as it is when it is made safe again."""
    for make in (safe, safe_lines):
        assert make(make(text)) == make(text)
        assert [c for c in make(text) if is_hostile(c) and c not in "\n\t"] == []


# --- the listing ----------------------------------------------------------------------------------


def test_the_listing_says_what_a_session_is(store: perdure.Store) -> None:
    """A row has title, status, last activity, program, agents, turns, tokens and cost."""
    with store.create("s", cwd="/srv/a") as session:
        session.append("session/titled", {"title": "Mend the roof"})
        session.append("turn/start", {}, turn="t", agent="ann", time=1_700_000_000_000)
        usage = {"input": 1200, "output": 34, "cost": 0.5, "currency": "USD"}
        session.append("usage", usage, time=1_700_000_000_000)
    page = listing(store)
    for fact in ("Mend the roof", "crashed", "2023-11-14 22:13:20", "perdure", "ann", "1 turn"):
        assert fact in page.text
    for fact in ("1,234 tokens", "0.50 USD", "/srv/a"):
        assert fact in page.text
    assert '<time datetime="2023-11-14T22:13:20Z">' in listing_page(store, {}, who="x", owner=True)


def test_pages_of_the_listing_follow_each_other(store: perdure.Store) -> None:
    """Following the links from page to page shows every session once, with what was asked for."""
    for number in range(120):
        with store.create(f"s{number}", created_at=number + 1) as session:
            session.append("session/titled", {"title": f"roof {number}"}, time=number + 1)
    for query in ({}, {"q": "roof"}, {"status": "paused"}):
        seen: list[str] = []
        given = dict(query)
        for _ in range(3):
            page = listing(store, **given)
            seen += [asked(link)[0] for link in page.links if link.startswith("/sessions/")]
            assert page.inputs["q"] == query.get("q", "")
            following = [link for link in page.links if "after=" in link]
            given = dict(parse_qsl(urlsplit(following[0]).query)) if following else {}
        assert given == {}
        assert sorted(seen) == sorted(f"s{number}" for number in range(120))


def test_the_listing_is_filtered_by_status(store: perdure.Store) -> None:
    """With a status only sessions in it are listed, and the box says so."""
    with store.create("a") as session:
        session.append("session/ended", {})
    with store.create("b") as session:
        session.append("turn/start", {}, turn="t")
    for status, id in (("completed", "a"), ("crashed", "b")):
        html = listing_page(store, {"status": status}, who="x", owner=True)
        found = [link for link in page_of(html).links if link.startswith("/sessions/")]
        assert found == [f"/sessions/{id}"]
        assert f'<option value="{status}" selected>' in html
    assert "No such sessions; there are 2 in all." in listing(store, status="damaged").text


@pytest.mark.parametrize("query", [{"status": "nope"}, {"after": "x"}, {"said": "a", "after": "x"}])
def test_a_query_that_cannot_be_is_refused(store: perdure.Store, query: dict[str, str]) -> None:
    """A status or a cursor that there is not is an error of the tree, for the error page."""
    with store.create("a") as session:
        session.append("a")
    with pytest.raises(InvalidValue):
        listing_page(store, query, who="x", owner=True)


def test_an_empty_store_says_so(store: perdure.Store) -> None:
    """Where there is no session, the page says how to bring some in."""
    assert "perdure sync" in listing(store).text
    assert "Nobody said that here." in listing(store, said="x").text


def test_hits_lead_to_the_event(store: perdure.Store) -> None:
    """What a search finds is marked, and its link leads to a page that has that event."""
    with store.create("s p/ace") as session:
        for number in range(600):
            session.append("user/message", said(f"number{number} of the roof"))
    html = listing_page(store, {"said": "number333"}, who="x", owner=True)
    assert "<mark>number333</mark>" in html
    (link,) = (link for link in page_of(html).links if link.startswith("/sessions/"))
    id, query = asked(link)
    assert (id, query, link.rpartition("#")[2]) == ("s p/ace", {"at": "333"}, "e333")
    assert "e333" in show(store, id, **query).ids
    within = listing(store, said="roof", in_=segment_of("s p/ace"))
    assert len([link for link in within.links if "#e" in link]) == 20
    more = next(link for link in within.links if "after=" in link)
    following = listing_page(store, dict(parse_qsl(urlsplit(more).query)), who="x", owner=True)
    assert "s p/ace" in page_of(following).text


# --- one session ----------------------------------------------------------------------------------


@pytest.fixture
def long(store: perdure.Store) -> str:
    """A session of 60 turns, most of whose events are streamed text."""
    with store.create("long") as session:
        for number in range(60):
            with session.turn(f"t{number}") as turn:
                turn.user(f"question {number}!")
                with turn.step() as step:
                    step.request({"model": "m"})
                    for _ in range(20):
                        step.delta("word ")
                    step.message([{"type": "text", "text": f"answer {number}!"}])
    return "long"


def walk(store: perdure.Store, id: str, page: Page, query: str) -> list[Page]:
    """The page, and those that the links with this in their query lead to, one after the other."""
    found = [page]
    for _ in range(1000):
        links = [link for link in found[-1].links if f"?{query}=" in link]
        links = [link for link in links if link != f"/sessions/{segment_of(id)}?from=0"]
        if not links:
            return found
        found.append(show(store, *asked(links[0])[:1], **asked(links[0])[1]))
    raise AssertionError("the links lead round and round")


def test_pages_of_a_session_follow_each_other(store: perdure.Store, long: str) -> None:
    """From the newest page to the first and back every event is shown once, in its order."""
    older = walk(store, long, show(store, long), "before")
    newer = walk(store, long, show(store, long, from_=0), "from")
    assert len(older) >= 2
    there = [e.seq for e in store.read_from(long) if e.type in ("user/message", "turn/start")]
    for way in (older[::-1], newer):
        shown = [id for page in way for id in page.ids if id.startswith("e")]
        assert len(set(shown)) == len(shown)
        assert {f"e{seq}" for seq in there} <= set(shown)
        text = "".join(page.text for page in way)
        places = [text.index(f"{what} {n}!") for n in range(60) for what in ("question", "answer")]
        assert places == sorted(places)
        assert text.count("question 7!") == 1


def test_streamed_text_is_shown_where_no_answer_came(store: perdure.Store) -> None:
    """Of an answer that broke off its beginning is shown; of one that came, only the answer."""
    with store.create("s", vocabulary=None) as session:
        for turn in ("a", "b"):
            session.append("turn/start", {}, turn=turn)
            for _ in range(5):
                session.append("assistant/delta", {"text": f"piece-{turn} "}, turn=turn)
        session.append("assistant/message", said("whole"), turn="a")
    text = show(store, "s").text
    assert "piece-a" not in text
    assert "whole" in text
    assert "piece-b piece-b piece-b piece-b piece-b" in text


def test_a_call_that_the_answer_has_is_shown_once(store: perdure.Store) -> None:
    """A tool call stands in the answer that asks for it; its result names the tool."""
    call = {"id": "c", "name": "bash", "arguments": {"cmd": "make"}}
    with store.create("s", vocabulary=None) as session:
        session.append("assistant/message", {"content": [{"type": "tool-call", **call}]})
        session.append("tool/call", call)
        session.append("tool/result", {"id": "c", **said("done")})
        session.append("tool/call", {**call, "id": "d"})
    text = show(store, "s").text
    assert text.count("Calls bash") == 2
    assert text.count("Result of bash") == 1


def test_long_results_are_folded_and_large_ones_cut(store: perdure.Store) -> None:
    """A long text is folded and its size said; a larger one is cut, and shown whole alone."""
    with store.create("s", vocabulary=None) as session:
        session.append("tool/result", {"id": "c", **said("row\n" * 40)})
        session.append("user/message", said("x" * 1_500_000 + "END"))
        session.append("assistant/message", {"content": [{"type": "text", "text": "i"}] * 5000})
        session.append("acme/own", {"a": "y" * 900_000})
    html = session_page(store, "s", {}, who="x", owner=True)
    page = page_of(html)
    assert len(html) < 200_000
    assert "41 lines, 160 characters" in page.text
    assert "1,500,003 characters" in page.text
    assert "And 4,900 more." in page.text
    assert "Cut here" in page.text
    alone = session_page(store, "s", {"event": "1"}, who="x", owner=True)
    assert page_of(alone).text.count("x") >= 1_000_000
    assert len(alone) < 1_100_000
    assert "y" * 900_000 in show(store, "s", event=3).text


def test_sub_agents_and_elders_are_linked(store: perdure.Store) -> None:
    """The page of a session leads to its sub-agents, and theirs to it."""
    with store.create("pa rent") as session:
        session.append("subagent/start", {"id": "x", "session": "ch ild", "name": "helper"})
    parent = perdure.Parent("pa rent", 0)
    with store.create("ch ild", parent=parent, origin="subagent", depth=1) as session:
        session.append("user/message", said("hi"))
    links = [asked(link)[0] for link in show(store, "pa rent").links if "/sessions/" in link]
    assert links.count("ch ild") == 2
    assert "pa rent" in [asked(e)[0] for e in show(store, "ch ild").links if "/sessions/" in e]


@pytest.mark.parametrize(
    "query",
    [{"from": "x"}, {"before": "-1"}, {"at": "9" * 40}, {"event": "99"}, {"event": "\u0663"}],
)
def test_numbers_that_are_none_are_refused(store: perdure.Store, query: dict[str, str]) -> None:
    """What is no number of an event is an error of the tree, for the error page."""
    with store.create("s") as session:
        session.append("a")
    with pytest.raises(InvalidValue) as refused:
        session_page(store, "s", query, who="x", owner=True)
    assert refused.value.path in query


def test_places_beyond_the_end_are_empty_pages(store: perdure.Store) -> None:
    """A page behind the end of a log has no events, and leads back."""
    with store.create("s") as session:
        session.append("user/message", said("hello"))
    page = show(store, "s", from_=5000)
    assert "No events to show here." in page.text
    (older,) = (link for link in page.links if "before=" in link)
    assert "hello" in show(store, "s", **asked(older)[1]).text
    assert "No events to show here." in show(store, "s", at=5000).text


def test_a_session_that_is_not_there_is_an_error(store: perdure.Store) -> None:
    """What is not stored is not found."""
    with pytest.raises(SessionNotFound):
        session_page(store, "none", {}, who="x", owner=True)


def test_a_session_is_shown_while_it_is_written(store: perdure.Store) -> None:
    """A page waits for nobody, says who writes, and has what came since the index looked."""
    with store.create("s") as session:
        session.append("user/message", said("first"))
        show(store, "s")
        session.append("user/message", said("second"))
        page = show(store, "s")
        assert "second" in page.text
        assert "Written by" in page.text


def test_a_store_without_an_index_shows_sessions(tmp_path: Path) -> None:
    """Without the listing a session is shown all the same, with what its header says."""
    with perdure.open(tmp_path / "s", index=False) as store:
        with store.create("s", cwd="/srv/a") as session:
            session.append("user/message", said("hello"))
        page = show(store, "s")
        assert "hello" in page.text
        assert "/srv/a" in page.text
        with pytest.raises(InvalidValue):
            listing_page(store, {}, who="x", owner=True)


# --- what is wrong with it ------------------------------------------------------------------------


def test_a_damaged_session_shows_what_holds(store: perdure.Store) -> None:
    """Events before the damage are shown, also from a link behind it, with what is wrong."""
    with store.create("s") as session:
        for number in range(30):
            session.append("user/message", said(f"said {number}!"))
    log = log_of(store, "s")
    lines = log.read_bytes().splitlines(keepends=True)
    lines[16] = lines[16].replace(b"said", b"sAid")
    log.write_bytes(b"".join(lines))
    for query in ({}, {"before": 29}, {"from_": 3}, {"at": 25}):
        page = show(store, "s", **query)
        assert "is damaged: checksum does not match" in page.text
        assert ("said 14!" in page.text) == ("at" not in query)
        assert "said 15!" not in page.text
        assert "said 16!" not in page.text
    assert "damaged" in listing(store).text
    older = walk(store, "s", show(store, "s", at=25), "before")
    assert "said 14!" in older[-1].text


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'"format":0', b'"format":1', "digest does not match"),
        (b'"id":"s"', b'"id":"z"', "digest does not match"),
        (b"{", b"[", "damaged"),
    ],
)
def test_a_session_without_a_header_says_why(
    store: perdure.Store, old: bytes, new: bytes, told: str
) -> None:
    """A session whose header is broken, or of another version, has a page that says so."""
    with store.create("s") as session:
        session.append("user/message", said("hello"))
    log = log_of(store, "s")
    log.write_bytes(log.read_bytes().replace(old, new, 1))
    page = show(store, "s")
    assert told in page.text
    assert "No events to show here." in page.text
    assert "/sessions/s" in listing(store).links


def test_a_session_of_another_version_says_so(store: perdure.Store) -> None:
    """A session that another version wrote has a page that says what reads it."""
    with store.create("s") as session:
        session.append("user/message", said("hello"))
    log = log_of(store, "s")
    header, _, rest = log.read_bytes().partition(b"\n")
    bare = header.rpartition(b',"digest":')[0].replace(b'"format":0', b'"format":99') + b"}\n"
    digest = hashlib.sha256(bare).hexdigest()
    log.write_bytes(bare[:-2] + f',"digest":"{digest}"}}\n'.encode() + rest)
    page = show(store, "s")
    assert "upgrade perdure" in page.text
    assert "/sessions/s" in listing(store).links


def test_data_that_fits_no_type_is_shown_as_it_is(store: perdure.Store) -> None:
    """Data that does not fit its type is shown as JSON, like a type that nobody knows."""
    with store.create("s", vocabulary=None) as session:
        session.append("user/message", {"content": 7, "mine": "kept"})
        session.append("acme/own", {"deep": [1, {"x": None}]})
        session.append("a", None)
        session.append("a", "only text")
    text = show(store, "s").text
    for shown in ('{"content": 7, "mine": "kept"}', '"x": null', "only text", "acme/own"):
        assert shown in text


def test_raw_data_that_is_no_json_is_shown() -> None:
    """Whatever bytes an event has, there is an item of it."""
    for raw in (b"\xff\xfe{", b"[" * 300, b"", b"1" * 5000):
        (item,) = Telling().read(Event(3, "acme/own", 0, None, None, None, False, raw))
        assert item.seq == 3


# --- imports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("claude-code", "spotter_short.jsonl"),
        ("codex", "session_toolcall.jsonl"),
        ("deepseek-harness", "steering_session.jsonl"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_imports_are_shown_as_their_lens_reads_them(
    store: perdure.Store, monkeypatch: pytest.MonkeyPatch, source: str, name: str, whole: bool
) -> None:
    """What was said in a session of another agent is shown, read whole or in parts."""
    if not whole:
        monkeypatch.setattr(timeline, "WHOLE_MAX", 0)
    importers.import_sessions(store, source, [str(SAMPLES / source / name)])
    (id,) = (entry.id for entry in store.list())
    texts = [
        block["text"]
        for message in store.inspect(id).messages()
        if message["role"] in ("user", "assistant")
        for block in message["content"]
        if block["type"] == "text"
    ]
    page = show(store, id)
    assert texts
    assert [text for text in texts if safe_lines(text[:500]).strip() not in page.text] == []
    assert source in page.text
    assert "User" in page.text


def test_lines_that_were_superseded_are_not_shown(tmp_path: Path, store: perdure.Store) -> None:
    """Where the source was rewritten, only what stands in it now is shown."""
    source = tmp_path / "s.jsonl"
    lines = [
        json.dumps(
            {
                "type": "user",
                "sessionId": "s-1",
                "uuid": f"u{n}",
                "parentUuid": f"u{n - 1}" if n else None,
                "timestamp": "2026-01-01T00:00:00.000Z",
                "cwd": "/w",
                "version": "1",
                "message": {"role": "user", "content": f"line {n}!"},
            }
        )
        for n in range(4)
    ]
    source.write_text("\n".join(lines) + "\n")
    importers.import_sessions(store, "claude-code", [str(source)])
    lines[2] = lines[2].replace("line 2!", "other 2!")
    source.write_text("\n".join(lines) + "\n")
    importers.import_sessions(store, "claude-code", [str(source)])
    (id,) = (entry.id for entry in store.list())
    text = show(store, id).text
    assert "other 2!" in text
    assert "line 2!" not in text
    assert text.count("line 3!") == 1


# --- bounds ---------------------------------------------------------------------------------------


class Counted:
    """Counts the events that a store gives, and their bytes."""

    def __init__(self, store: perdure.Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events = self.bytes = 0
        read = store.read_from

        def counted(*arguments: Any) -> Iterator[Event]:
            for event in read(*arguments):
                self.events += 1
                self.bytes += len(event.raw)
                yield event

        monkeypatch.setattr(store, "read_from", counted)

    def during(self, act: Callable[[], object]) -> tuple[int, int]:
        self.events = self.bytes = 0
        act()
        return self.events, self.bytes


@pytest.mark.reads_for_itself(reason="200,000 events, of which nothing but pages is read")
def test_a_page_of_a_huge_session_reads_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 200,000 events a page reads and shows as many as it has room for, wherever it stands."""
    with perdure.open(tmp_path / "s", index=False) as store:
        with store.create("s", vocabulary=None) as session:
            for start in range(0, 200_000, 20_000):
                session.append_many(
                    {"type": "user/message", "data": said(f"n{start + n}!")} for n in range(20_000)
                )
        counted = Counted(store, monkeypatch)
        for query in ({}, {"from": "0"}, {"before": "100000"}, {"at": "150000"}, {"event": "7"}):
            shown: list[Page] = []

            def render(query: dict[str, str] = query, shown: list[Page] = shown) -> None:
                shown.append(page_of(session_page(store, "s", query, who="x", owner=True)))

            events, _ = counted.during(render)
            assert events <= timeline.READ_MAX + 10, query
            assert len(shown[0].ids) <= timeline.SHOWN_MAX + 2, query
        assert "n199999!" in show(store, "s").text
        assert "n150000!" in show(store, "s", at=150_000).text


@pytest.mark.reads_for_itself(reason="90 MB, of which nothing but pages is read")
def test_a_page_of_large_events_reads_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of events of a megabyte a page reads some megabytes, and has about one of text."""
    with perdure.open(tmp_path / "s", index=False) as store:
        with store.create("s", vocabulary=None) as session:
            for number in range(30):
                block = {"type": "text", "text": f"{number} " + "\u202e" * 50_000}
                session.append("user/message", {"content": [block] * 20})
        counted = Counted(store, monkeypatch)
        largest = timeline.TEXT_CHARS + items.PIECE_CHARS * 6
        for query in ({}, {"from": "0"}, {"before": "20"}, {"at": "15"}):
            html = ""

            def render(query: dict[str, str] = query) -> None:
                nonlocal html
                html = session_page(store, "s", query, who="x", owner=True)

            events, size = counted.during(render)
            assert events <= 20, query
            assert size <= timeline.READ_BYTES + 20 * 3 * 1024 * 1024
            assert len(html) < 2 * largest
            assert "Cut here" in page_of(html).text


def test_a_page_of_many_small_pieces_is_small(store: perdure.Store) -> None:
    """Events of very many blocks, and very many events, make no page larger than it may be."""
    with store.create("s", vocabulary=None) as session:
        many = [{"type": "text", "text": "<>&\"'"}] * 20_000
        session.append_many({"type": "user/message", "data": {"content": many}} for _ in range(20))
    html = session_page(store, "s", {}, who="x", owner=True)
    assert page_of(html).text.count("<>&") <= items.PIECES_MAX * 20
    assert len(html) < 1_000_000


# --- the package ----------------------------------------------------------------------------------


def test_the_package_has_templates_and_style(tmp_path: Path) -> None:
    """A wheel has every template, the stylesheet and the icon."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
    server = "perdure/http/server"
    wanted = {f"{server}/templates/{path.name}" for path in TEMPLATES.glob("*.html")}
    wanted |= {f"{server}/static/style.css", f"{server}/static/icon.svg"}
    assert wanted - names == set()
    assert len(wanted) > 5
