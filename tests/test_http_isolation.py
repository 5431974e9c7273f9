"""What a principal is told: nothing that depends on another, and nothing of the machine."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import perdure
from perdure import Store, errors
from perdure.http.operations import LIVE, OPERATIONS, Operation
from perdure.http.paths import segment_of
from perdure.http.problems import Discretion
from perdure.http.server.pages import listing_page, session_page
from perdure.http.tokens import Tokens
from perdure.runtime import Runtime
from perdure.store import Coverage, Found
from tests.serving import serving
from tests.test_http_api import answered, at

NOTE = {"type": "note", "data": 1}
PRINCIPALS = "perdure.principals"


def said(text: str) -> dict[str, Any]:
    return {"type": "user/message", "data": {"content": [{"type": "text", "text": text}]}}


def token(store: Store, principal: str) -> str:
    return Tokens(store).create(principal, principal=principal)[1]


# --- the machine ----------------------------------------------------------------------------------

HOST, PID = "holders-host-q7", 87_654_321


class Elsewhere(Runtime):
    """Another process, on another machine."""

    def pid(self) -> int:
        return PID

    def host(self) -> str:
        return HOST


def loose(log: Path) -> None:
    log.chmod(0o644)


def damaged(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b"said", b"sAid")
    log.write_bytes(b"".join(lines))


def headless(log: Path) -> None:
    log.write_bytes(b"[" + log.read_bytes()[1:])


def shortened(log: Path) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5]))


def of_the_future(log: Path) -> None:
    header, _, rest = log.read_bytes().partition(b"\n")
    bare = header.rpartition(b',"digest":')[0].replace(b'"format":0', b'"format":99') + b"}\n"
    digest = hashlib.sha256(bare).hexdigest()
    log.write_bytes(bare[:-2] + f',"digest":"{digest}"}}\n'.encode() + rest)


def gone(log: Path) -> None:
    log.unlink()


def a_folder(log: Path) -> None:
    log.unlink()
    log.mkdir(0o700)


def loose_content(log: Path) -> None:
    for blob in contents(log):
        blob.chmod(0o644)


def other_content(log: Path) -> None:
    for blob in contents(log):
        blob.chmod(0o600)
        blob.write_bytes(b"other")


def unreadable_content(log: Path) -> None:
    for folder in {blob.parent for blob in contents(log)}:
        for blob in folder.iterdir():
            blob.unlink()
        folder.rmdir()
        folder.write_bytes(b"no folder")


def contents(log: Path) -> list[Path]:
    """The files of content of the store, of which there is one."""
    store = next(above for above in log.parents if above.name == "store")
    found = [each for each in store.rglob("*") if each.is_file() and DIGEST[2:] in each.name]
    assert found
    return found


CONTENT = b"content"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
BREAKS = (
    loose,
    damaged,
    headless,
    shortened,
    of_the_future,
    gone,
    a_folder,
    loose_content,
    other_content,
    unreadable_content,
)
BODIES: dict[str, Any] = {
    "create_session": {"id": "s", "events": [NOTE]},
    "append_events": {"events": [NOTE]},
    "take_writer": {},
    "fork_session": {"id": "forked"},
    "set_title": {"title": "t"},
    "create_conversation": {"request": "r"},
    "post_message": {"request": "m", "content": "hello"},
    "set_profile": {"request": "p", "profile": {}, "expected_revision": 0},
}
QUERIES: dict[str, list[dict[str, Any]]] = {
    "list_sessions": [{"refresh": True}, {"problem": True}, {"query": "said"}],
    "search": [{"query": "said"}, {"query": "said", "sort": "seq"}],
    "get_session": [{}, {"full": True}],
    "read_events": [{}, {"last": True}, {"start": 9}],
    "release_writer": [{"writer": "w"}],
    "put_content": [{"writer": "w"}, {}],
}
PAGES = ("/", "/?q=said", "/?said=said", "/sessions/s", "/sessions/s?from=0", "/sessions/s?event=7")


def everything(api: httpx.Client, more: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What every operation and page says of the session; what changes anything comes last."""
    order = sorted(OPERATIONS, key=lambda each: (each.method == "DELETE", each.method != "GET"))
    for operation in order:
        if operation.name == "restore_session":
            continue
        for query in QUERIES.get(operation.name, [{}]):
            yield f"{operation.name} {query}", asked(api, operation, {**query, **more})
    restore = next(each for each in OPERATIONS if each.name == "restore_session")
    yield "restore_session", asked(api, restore, more)
    if not more:
        for page in PAGES:
            yield page, api.get(page).text


def asked(api: httpx.Client, operation: Operation, query: dict[str, Any]) -> str:
    names = {"session": "s", "digest": DIGEST, "artifact": "file", "conversation": "s"}
    path = operation.path
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", segment_of(value))
    told: dict[str, Any] = {"params": query}
    if operation.body is bytes:
        told["content"] = b"x"
    elif operation.body is not None:
        told["json"] = BODIES[operation.name]
    if operation.media != LIVE:
        try:
            return api.request(operation.method, path, **told).text
        except httpx.RemoteProtocolError as error:
            # An answer that was begun and cannot be ended.
            return str(error)
    with api.stream(operation.method, path, **told) as answer:
        found = ""
        for _, part in zip(range(5), answer.iter_text(), strict=False):
            found += part
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(place: Path) -> Iterator[Store]:
    with perdure.open(place, encoding="raw") as opened:
        own = opened.namespace(PRINCIPALS, "alice")
        with own.create("s") as session:
            for number in range(10):
                session.append("user/message", said(f"said {number}")["data"])
            session.put_blob(CONTENT)
            session.append("note", 1)
        with own.create("t") as session:
            session.append("user/message", said("said elsewhere")["data"])
        own.refresh()
        yield opened


@pytest.mark.parametrize("breaks", BREAKS)
def test_only_the_owner_is_told_of_the_machine(
    store: Store, place: Path, breaks: Callable[[Path], None]
) -> None:
    """Whatever is broken, no operation and no page tells a principal where the store is."""
    own = store.namespace(PRINCIPALS, "alice")
    log = own.locate("s")
    assert log is not None
    breaks(Path(log))
    with serving(store, alive=0.02) as served, served.client(token(store, "alice")) as api:
        for what, told in everything(api, {}):
            # Not its own folder: "store" may stand anywhere.
            assert place.parent.name not in told, what


def test_the_owner_is_told_where(store: Store, place: Path) -> None:
    """The owner sees the path of what is broken, in rows, coverage, reports, errors and pages."""
    own = store.namespace(PRINCIPALS, "alice")
    log = own.locate("s")
    assert log is not None
    loose(Path(log))
    below: dict[str, Any] = {"namespace": [PRINCIPALS, "alice"]}
    with serving(store) as served, served.client() as api:
        listed = answered(api.get("/api/sessions", params={**below, "refresh": True}))
        (row,) = [each for each in listed["sessions"] if each["id"] == "s"]
        report = answered(api.get(at("s", "verify"), params=below))
        found = answered(api.get("/api/search", params={**below, "query": "said"}))
        stats = answered(api.get("/api/stats", params=below))
        error = api.get(at("s"), params=below).json()
    for told in (row, listed["coverage"], listed["refreshed"], report, found, stats, error):
        assert str(place) in json.dumps(told)
    assert str(place) in listing_page(own, {}, who="owner", owner=True)
    assert str(place) in listing_page(own, {"said": "said"}, who="owner", owner=True)
    with pytest.raises(errors.UnsafeFile, match="store"):
        session_page(own, "s", {}, who="owner", owner=True)
    with pytest.raises(errors.UnsafeFile) as told:
        session_page(own, "s", {}, who="alice")
    assert str(place) not in str(told.value)


def test_only_the_owner_is_told_who_writes(store: Store, place: Path) -> None:
    """A principal learns that a session is being written, and not by what process, or where."""
    own = store.namespace(PRINCIPALS, "alice")
    with ExitStack() as held:
        elsewhere = held.enter_context(perdure.open(place, runtime=Elsewhere(), index=False))
        held.enter_context(elsewhere.namespace(PRINCIPALS, "alice").writer("s"))
        served = held.enter_context(serving(store, alive=0.02))
        with served.client(token(store, "alice")) as api:
            assert answered(api.get(at("s")))["holder"] == {
                "pid": None,
                "host": None,
                "since": None,
            }
            assert "somebody" in api.get("/sessions/s").text
            for what, told in everything(api, {}):
                assert str(PID) not in told, what
                assert f"{PID:,}" not in told, what
                assert HOST not in told, what
        with served.client() as api:
            below: dict[str, Any] = {"namespace": [PRINCIPALS, "alice"]}
            holder = answered(api.get(at("s"), params=below))["holder"]
            assert (holder["pid"], holder["host"]) == (PID, HOST)
        assert f"process {PID} on {HOST}" in session_page(own, "s", {}, who="x", owner=True)


TELLTALE = "/srv/secret: pid 77 on box"
REASONED = (
    errors.SessionDamaged("s", TELLTALE, kind="link", record=3, start=1, end=2),
    errors.ContentDamaged("s", DIGEST, TELLTALE),
    errors.SessionClosed("s", f"it stopped after: {TELLTALE}"),
    errors.StaleWriter("s", TELLTALE, lost=[1]),
    errors.StorageUnavailable("/srv/secret", "refused"),
    errors.EmbedderUnavailable("/srv/secret", TELLTALE, retryable=True),
)


@pytest.mark.parametrize("error", REASONED, ids=lambda each: type(each).__name__)
def test_an_error_is_the_same_without_its_reason(error: errors.PerdureError) -> None:
    """An error as others are told it has its class, its places and whether to try again."""
    told = Discretion(owner=False).error(error)
    assert type(told) is type(error)
    assert told.retryable == error.retryable
    assert "secret" not in repr((str(told), vars(told)))
    for name in ("session", "digest", "kind", "record", "start", "end", "lost"):
        if hasattr(error, name):
            assert getattr(told, name) == getattr(error, name)
    assert Discretion(owner=True).error(error) is error


@pytest.mark.parametrize("mode", ["keyword", "hybrid"])
def test_warnings_name_no_embedder(mode: str) -> None:
    """Where something is missing for search by meaning, others are told that, and not of what."""
    coverage = Coverage(1, 1, 0, (("s", TELLTALE),))
    found = Found([], None, mode, False, False, (), coverage, None, (TELLTALE,))
    told = Discretion(owner=False).found(found)
    assert len(told.warnings) == 1
    assert "secret" not in repr(told)
    assert Discretion(owner=True).found(found) == found


# --- another principal ----------------------------------------------------------------------------

NOW = 1_800_000_000_000
WORDS = ("apple", "banana", "apple banana", "banana cherry", "alpha beta", "alp", "quokka", '"a b"')


class Still(Runtime):
    """A clock that stands: what is found is ranked by its age, too."""

    def now_ms(self) -> int:
        return NOW


def pages_of(api: httpx.Client, path: str, asked: dict[str, Any]) -> Iterator[bytes]:
    """An answer, and those behind it."""
    after: dict[str, Any] = {}
    for _ in range(3):
        answer = api.get(path, params={**asked, **after})
        yield answer.content
        cursor = answer.json().get("cursor")
        if cursor is None:
            return
        after = {"after": cursor}


def answers(api: httpx.Client) -> dict[str, list[bytes]]:
    """All that is listed, found, ranked and counted for somebody, page by page."""
    found = {"stats": [api.get("/api/stats").content], "page": [api.get("/").content]}
    for sort in ("last_active", "created", "title", "size"):
        found[sort] = list(pages_of(api, "/api/sessions", {"limit": 2, "sort": sort}))
    for words in WORDS:
        found[f"list {words}"] = list(pages_of(api, "/api/sessions", {"limit": 1, "query": words}))
        for sort in ("relevance", "seq"):
            asked = {"k": 3, "query": words, "sort": sort}
            found[f"search {sort} {words}"] = list(pages_of(api, "/api/search", asked))
        found[f"page {words}"] = [
            api.get("/", params={"q": words}).content,
            api.get("/", params={"said": words}).content,
        ]
    for path in (
        "/api/sessions?problem=true",
        "/api/conversations",
        at("one"),
        at("one", "verify"),
    ):
        found[path] = [api.get(path).content]
    for namespace in (["bob"], [PRINCIPALS], [PRINCIPALS, "bob"], [".."]):
        answer = api.get("/api/sessions", params={"namespace": namespace})
        found[repr(namespace)] = [answer.content]
    return found


def titled(store: Store, id: str, title: str, text: str = "apple banana") -> None:
    with store.create(id) as session:
        session.append("user/message", said(text)["data"])
        session.set_title(title)


def fill(store: Store) -> None:
    """What alice has: the two titles whose order a rarer word would turn, and much of one word."""
    titled(store, "one", "apple cherry cherry cherry")
    titled(store, "two", "banana banana cherry cherry")
    for number in range(4):
        titled(store, f"more{number}", f"cherry {number} apple", f"beta {number} a b")
    with store.create("alpha", vocabulary=None) as session:
        session.append_many([said(f"alpha {n}") for n in range(4_100)] + [said("alpha beta")])


def others(store: Store) -> Iterator[str]:
    """What others do, one thing after the other, each with the index brought up to date."""
    bob = store.namespace(PRINCIPALS, "bob")
    for number in range(30):
        titled(bob, f"b{number}", "banana", "beta")
    bob.refresh()
    yield "a word in titles"
    for number in range(60):
        titled(bob, f"q{number}", "quokka apple alpha", "quokka cherry")
    bob.refresh()
    yield "other words in titles"
    with bob.create("much", vocabulary=None) as session:
        session.append_many([said(f"beta {number} unrelated") for number in range(4_500)])
    titled(store, "one", "apple banana")
    bob.refresh()
    store.refresh()
    yield "thousands of passages"
    log = bob.locate("b1")
    assert log is not None
    Path(log).chmod(0o644)
    bob.refresh()
    yield "damage"
    bob.delete("b2")
    bob.delete("much")
    bob.refresh()
    yield "deleted sessions"
    made, _ = Tokens(store).create("bob", principal="bob")
    Tokens(store).revoke(made.id)
    yield "a token that was revoked"


def test_no_answer_depends_on_what_others_store(tmp_path: Path) -> None:
    """Order, scores, cursors, counts and coverage stay, to the byte, whatever others do."""
    with perdure.open(tmp_path / "store", runtime=Still()) as store:
        # Bob is there before alice, with her words, and nothing is the first of its kind.
        bob = store.namespace(PRINCIPALS, "bob")
        titled(bob, "first", "apple banana cherry", "alpha beta quokka")
        bob.refresh()
        alice = store.namespace(PRINCIPALS, "alice")
        fill(alice)
        alice.refresh()
        with serving(store) as served, served.client(token(store, "alice")) as api:
            before = answers(api)
            assert all(all(each) for each in before.values())
            hits = json.loads(before["search relevance alpha beta"][0])["hits"]
            assert hits[0]["seq"] == 4_100
            for what in others(store):
                after = answers(api)
                assert after.keys() == before.keys()
                for path, told in before.items():
                    assert after[path] == told, (what, path)


def test_a_namespace_is_told_of_as_if_it_were_alone(tmp_path: Path) -> None:
    """Beside others, whoever came first, the answers are those of a store that has no others."""
    told = []
    for name in ("alone", "among"):
        # What is read while it is written counts a little as often as it was read.
        with perdure.open(tmp_path / name, runtime=Still(), index=False) as store:
            fill(store.namespace(PRINCIPALS, "alice"))
            if name == "among":
                for number in range(25):
                    bob = store.namespace(PRINCIPALS, "bob")
                    titled(bob, f"b{number}", "banana quokka", "alpha beta")
        with perdure.open(tmp_path / name, runtime=Still()) as store:
            if name == "among":
                store.namespace(PRINCIPALS, "bob").refresh()
            store.namespace(PRINCIPALS, "alice").refresh()
            with serving(store) as served, served.client(token(store, "alice")) as api:
                found = answers(api)
            # Sizes, hashes and pages of it hold what was drawn by chance.
            told.append({path: each for path, each in found.items() if path.startswith("search")})
    assert told[0] == told[1]
