"""A catalog in a PostgreSQL server passes the contract suite, and keeps its own promises."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perdure.catalog.contract import Catalog, Filters, Passage, Scope
from perdure.catalog.postgres import PostgresCatalog, searching
from perdure.catalog.query import parse
from perdure.databases.postgres import Server, Work, parse_address
from perdure.databases.postgres.administration import grant, set_tenant
from perdure.databases.postgres.keys import key, within
from perdure.databases.postgres.work import expanded
from perdure.errors import StorageUnavailable, UnsafeFile
from perdure.model.limits import ID_CHARS_MAX
from perdure.runtime import Runtime
from perdure.testing.agents import ScriptedRuntime
from perdure.testing.catalog import CatalogContract, change, said, session
from tests.places import Places
from tests.support import scaled

if TYPE_CHECKING:
    from tests.postgres.server import Server as TestServer


@pytest.fixture(scope="module")
def places(postgres: "TestServer") -> Places:
    return Places(postgres)


@pytest.fixture(autouse=True)
def emptied(places: Places) -> Iterator[None]:
    yield
    places.end()


class Alone(PostgresCatalog):
    """A catalog that has a server of its own, and closes it with itself."""

    def close(self) -> None:
        super().close()
        self._server.close()


class TestServerCatalog(CatalogContract):
    examples = scaled(200)
    places: Places

    @pytest.fixture(autouse=True)
    def place_of_each(self, places: Places) -> None:
        """Let `make_catalog` know where."""
        type(self).places = places

    def make_catalog(self, folder: Path, runtime: Runtime) -> Catalog:
        return Alone(self.places.server(folder, runtime), runtime=runtime)


RUNTIME = ScriptedRuntime("catalog")


@pytest.fixture
def server(places: Places, tmp_path: Path) -> Server:
    return places.server(tmp_path, RUNTIME)


@pytest.fixture
def catalog(server: Server) -> Catalog:
    return PostgresCatalog(server, runtime=RUNTIME)


def put(catalog: Catalog, id: str, *passages: Passage, namespace: str = "", **told: Any) -> int:
    before = catalog.standing(namespace, id)
    made = change(session(id, **told), passages)
    version = catalog.put(namespace, made, None if before is None else before.version)
    assert version is not None
    return version


def found(catalog: Catalog, text: str, namespace: str = "") -> list[tuple[str, int]]:
    answer = catalog.candidates(namespace, Scope(), parse(text))
    return sorted((each.session, each.seq) for each in answer.found)


# --- texts that a database has no room for --------------------------------------------------------


def test_long_names_have_room_in_each_index(catalog: Catalog) -> None:
    """Ids, folders, titles and namespaces of any length are kept apart, listed and found."""
    long = "\ud800" * (ID_CHARS_MAX - 1)
    deep = "/".join(["%E8%B7%AF" * 200] * 9)
    names = dict.fromkeys(("preset", "source_id", "source_format", "program"), f"{long}b")
    for namespace in ("", deep, f"{deep}x"):
        for last in "ab":
            put(
                catalog,
                long + last,
                said(0, "apple"),
                namespace=namespace,
                title=f"{long}{last}" * 3,
                cwd=f"/{long * 4}/{last}",
                parent=long + "b",
                agents=(long + last,),
                **names,
            )
        assert found(catalog, "apple", namespace) == [(long + "a", 0), (long + "b", 0)]
        for filters in (
            Filters(ids=[long + "a"]),
            Filters(agents=[long + "a"]),
            Filters(cwd=f"/{long * 4}/a"),
        ):
            assert [each.id for each in catalog.listed(namespace, filters)] == [long + "a"]
        # Those that begin alike for a thousand bytes are in an order, and not in that of ids.
        both = [each.id for each in catalog.listed(namespace, Filters(presets=[long + "b"]))]
        assert sorted(both) == [long + "a", long + "b"]
        assert [each.id for each in catalog.children(namespace, [long + "b"])] == [long + "a"]
        assert len(catalog.sums(namespace, Filters()).by_agent) == 2


def test_a_passage_may_have_any_number_of_words(catalog: Catalog) -> None:
    """Of a passage with more words than an index row has room for each word finds it."""
    words = " ".join(f"word{number:07}" for number in range(90_000))
    put(catalog, "large", Passage(0, "user", words, "", 1, None, 0))
    put(catalog, "small", Passage(0, "user", "word0000007 word0000009", "", 2, None, 0))
    assert found(catalog, "word0000007 ") == [("large", 0), ("small", 0)]
    assert found(catalog, "word0089999 ") == found(catalog, "word008999") == [("large", 0)]
    assert found(catalog, '"word0000007 word0000008"') == [("large", 0)]
    assert found(catalog, '"word0000007 word0000009"') == [("small", 0)]
    assert found(catalog, "nothing") == []


def test_words_stand_as_often_as_they_are_said(catalog: Catalog) -> None:
    """A word far behind the 16,383 places that PostgreSQL counts is one, and its phrase is."""
    text = "filler " * 40_000 + "apple pie"
    put(catalog, "s", said(0, text))
    put(catalog, "t", said(0, "pie apple"))
    assert found(catalog, '"apple pie"') == [("s", 0)]


def test_keys_are_one_to_one() -> None:
    """No two texts have one key, however long they are, and keys keep the order of short ones."""
    texts = ["", "a", "a\\", "\\", "a b", "ä", "\ud800", "\0", "x" * 499, "x" * 500, "x" * 501]
    texts += ["x" * 5_000, "x" * 5_001, "%C3%A4", "a/b", "\\" + "x" * 600]
    assert len({within(text) for text in texts}) == len({key(text) for text in texts}) == len(texts)
    assert within("a/b%C3%A4") == "a/b%C3%A4"
    assert all(len(within(text)) <= 500 and len(key(text)) <= 1_000 for text in texts)


# --- many hosts -----------------------------------------------------------------------------------


def together(calls: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(each,)) for each in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def test_of_two_hosts_one_puts_a_session_first(places: Places, tmp_path: Path) -> None:
    """Of servers that put one new session at once exactly one is told a version."""
    catalogs = [PostgresCatalog(places.server(tmp_path, RUNTIME)) for _ in range(2)]
    for turn in range(20):
        won: list[int | None] = []

        def first(catalog: Catalog, id: str, won: list[int | None]) -> None:
            won.append(catalog.put("", change(session(id), [said(0, "apple")]), None))

        together([partial(first, each, f"s{turn}", won) for each in catalogs])
        assert [version is not None for version in sorted(won, key=bool)] == [False, True]
    assert catalogs[0].sums("", Filters()).passages == 20
    assert len(found(catalogs[1], "apple")) == 20


def test_namespaces_are_written_side_by_side(places: Places, tmp_path: Path) -> None:
    """Whoever writes many passages in one namespace is waited for by nobody in another."""
    server = places.server(tmp_path, RUNTIME)
    catalog = PostgresCatalog(server)
    put(catalog, "s", said(0, "apple"), namespace="a")
    with server.direct() as work:
        work.run("BEGIN")
        work.run("UPDATE @catalog_namespaces SET passages = passages WHERE namespace = 'a'")
        put(catalog, "s", said(0, "apple"), namespace="b")
        work.run("ROLLBACK")
    assert found(catalog, "apple", "b") == [("s", 0)]


def test_a_connection_that_breaks_is_bridged(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change and a question in the middle of which the connection ends are asked again."""
    catalog = PostgresCatalog(places.server(tmp_path, RUNTIME))
    put(catalog, "s", said(0, "apple"))
    asked = Work.rows
    broken: list[str] = []

    def rows(work: Work, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if any(each in statement for each in ("INSERT INTO @catalog_passages", "WITH hits")):
            if len(broken) % 2 == 0:
                places.postgres.ask(
                    "SELECT pg_terminate_backend(%s)", work.connection.info.backend_pid
                )
            broken.append(statement)
        return asked(work, statement, *values)

    monkeypatch.setattr(Work, "rows", rows)
    put(catalog, "t", said(0, "apple"))
    assert found(catalog, "apple") == [("s", 0), ("t", 0)]
    assert len(broken) == 4
    assert catalog.sums("", Filters()).passages == 2


def test_rows_that_make_no_sense_are_told(catalog: Catalog, server: Server) -> None:
    """What somebody wrote over is an error with a way out, and reading it anew is one."""
    put(catalog, "s", said(0, "apple"))
    server.change(lambda work: work.run("UPDATE @catalog_readings SET listed = 'x'"))
    with pytest.raises(StorageUnavailable, match="its index"):
        catalog.listed("", Filters())
    catalog.clear()
    put(catalog, "s", said(0, "apple"))
    assert [each.id for each in catalog.listed("", Filters())] == ["s"]


def test_tokens_of_other_rules_are_made_anew(
    catalog: Catalog, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session whose tokens another version of the analysis made is cut anew when it is put."""
    put(catalog, "s", said(0, "apple"))
    monkeypatch.setattr("perdure.catalog.postgres.putting.ANALYSIS", 10**6)
    put(catalog, "s", said(0, "apple")._replace(words="pear"), title="plum")
    assert found(catalog, "apple") == []
    assert found(catalog, "pear") == [("s", 0)]
    assert catalog.sums("", Filters()).passages == 1
    del server


def test_readers_make_nothing(postgres: "TestServer", fresh_schema: Callable[[], str]) -> None:
    """Questions to a server without tables have empty answers, and make none."""
    server = Server(parse_address(postgres.url(schema=fresh_schema())), RUNTIME)
    catalog = PostgresCatalog(server)
    assert catalog.listed("", Filters()) == []
    assert found(catalog, "apple") == []
    assert list(catalog.entries("")) == []
    assert list(catalog.digests("", Scope())) == []
    assert catalog.unsaid([1]) == [1]
    assert not catalog.remove("", "s")
    catalog.clear()
    assert postgres.ask("SELECT to_regnamespace(%s)", server.address.schema) is None
    server.close()


# --- tenants --------------------------------------------------------------------------------------


@pytest.fixture
def tenant(postgres: "TestServer", fresh_schema: Callable[[], str]) -> Iterator[Server]:
    """The server as a role sees it whose namespace is `a`; in `b` somebody else said the same."""
    schema = fresh_schema()
    role = f"tenant_{schema}"
    owner = Server(parse_address(postgres.url(schema=schema)), RUNTIME)
    catalog = PostgresCatalog(owner)
    for namespace in ("a", "a/deep", "ab", "b"):
        for number in range(40):
            texts = [said(0, "apple common"), said(1, f"pear {namespace} secret{number}")]
            put(catalog, f"s{number}", *texts, namespace=namespace, title=f"plum {number}")
    postgres.ask(f"CREATE ROLE {role} LOGIN")
    grant(owner, role)
    set_tenant(owner, role, "a")
    made = Server(parse_address(postgres.url(schema=schema, user=role)), RUNTIME)
    yield made
    made.close()
    postgres.ask(f"DROP OWNED BY {role}")
    postgres.ask(f"DROP ROLE {role}")
    owner.close()


def test_a_tenant_finds_its_own(tenant: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A role with a namespace finds, lists and changes what is in it, and nothing else."""
    monkeypatch.setattr(searching, "_COUNTED_ALL", 0)
    catalog = PostgresCatalog(tenant)
    for namespace in ("a", "a/deep"):
        assert len(found(catalog, "apple", namespace)) == 40
        assert len(catalog.matching(namespace, Filters(), parse("plum"), limit=50)) == 40
        assert len(catalog.matching(namespace, Filters(), parse("plum 7 "), limit=50)) == 1
        assert len(catalog.candidates(namespace, Scope(), parse("pear secret7 ")).found) == 1
        ordered = catalog.in_order(namespace, Scope(Filters(ids=["s1", "s2"])), parse("common"))
        assert [each.session for each in ordered.found] == ["s1", "s2"]
    for namespace in ("ab", "b", ""):
        assert found(catalog, "apple", namespace) == []
        assert catalog.matching(namespace, Filters(), parse("plum")) == []
        assert catalog.listed(namespace, Filters()) == []
        assert list(catalog.entries(namespace)) == []
        assert catalog.sums(namespace, Filters()).sessions == 0
        assert not catalog.remove(namespace, "s1")
        with pytest.raises(UnsafeFile):
            catalog.put(namespace, change(session("new"), [said(0, "apple")]), None)
    put(catalog, "new", said(0, "quince"), namespace="a")
    assert found(catalog, "quince", "a") == [("new", 0)]


def test_nothing_of_others_is_told_to_who_asks_the_functions(tenant: Server) -> None:
    """What looks words up for a tenant gives no row of another namespace, whatever it is asked."""

    def asked(table: str, namespace: str, query: str) -> list[tuple[Any, ...]]:
        found = f"@catalog_found_{table}"
        statement = f"SELECT DISTINCT namespace FROM {found}(%s, %s::tsquery)"  # noqa: S608
        return tenant.read(lambda work: work.rows(statement, namespace, query))

    for table in ("passages", "titles"):
        for namespace in ("b", "ab", "", "a%", "a/../b"):
            for query in ("'apple'", "'plum'", "!'x'", "'!nb'", f"'!n{namespace}' | 'apple'"):
                assert asked(table, namespace, query) == []
        assert asked(table, "a", "!'x'") == [("a",)]


def test_a_tenants_words_are_looked_for_in_the_index(
    tenant: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No question of a tenant reads the passages of all."""
    catalog = PostgresCatalog(tenant)
    for text in ("apple", "common pear", "nothing"):
        ask = partial(catalog.candidates, "a", Scope(), parse(text))
        for plan in plans(tenant, ask, monkeypatch):
            assert "Seq Scan on catalog_passages" not in plan


# --- how questions are answered -------------------------------------------------------------------


def plans(server: Server, ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How the statements of a question are run."""
    asked, told = Work.rows, []

    def rows(work: Work, statement: str, *values: object) -> list[tuple[Any, ...]]:
        if statement.lstrip().startswith(("SELECT", "WITH")):
            text = expanded(f"EXPLAIN {statement}", server.address.schema)
            lines = work.connection.execute(text.encode(), values or None).fetchall()
            told.append("\n".join(line for (line,) in lines))
        return asked(work, statement, *values)

    with monkeypatch.context() as patched:
        patched.setattr(Work, "rows", rows)
        ask()
    assert told
    return told


@pytest.fixture
def filled(catalog: Catalog, server: Server) -> Catalog:
    """20,000 passages in 400 sessions."""
    for number in range(400):
        texts = [f"common number{seq} of{number} {'rare' * (seq == number)}" for seq in range(50)]
        passages = [said(seq, text, agent="main") for seq, text in enumerate(texts)]
        status = "completed" if number % 40 else "crashed"
        put(catalog, f"s{number:03}", *passages, title=f"title of{number}", status=status)

    def analyze(work: Work) -> None:
        for table in ("passages", "sessions", "readings", "titles", "agents"):
            work.run(f"ANALYZE @catalog_{table}")

    server.read(analyze)
    return catalog


def test_no_question_reads_all_passages(
    filled: Catalog, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are looked for in an index, whatever they are and wherever they are looked for."""
    monkeypatch.setattr(searching, "_COUNTED_ALL", 0)
    some = Filters(ids=[f"s{number:03}" for number in range(40)])
    for text in ("common ", "common", "rare", "common number7", '"common number7"', "nothing"):
        query = parse(text)
        for scope in (
            Scope(),
            Scope(kinds=["user"], agents=["main"], since=0, until=2**43),
            Scope(Filters(ids=["s007"])),
            Scope(some),
            Scope(Filters(statuses=["crashed"])),
            Scope(Filters(without=["s007"])),
        ):
            for ask in (filled.candidates, filled.in_order):
                for plan in plans(server, partial(ask, "", scope, query), monkeypatch):
                    assert "Seq Scan on catalog_passages" not in plan, (text, scope)
        for plan in plans(server, partial(filled.matching, "", Filters(), query), monkeypatch):
            assert "Seq Scan on catalog_titles" not in plan
    digests = [said(3, "common").digest]
    for question in (partial(filled.saying, "", Scope(), digests), partial(filled.unsaid, digests)):
        for plan in plans(server, question, monkeypatch):
            assert "Seq Scan on catalog_passages" not in plan


def test_a_page_walks_along_the_index_of_its_order(
    filled: Catalog, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of a listing reads the index of its order, and sorts no more than a few sessions."""
    for sort in ("last_active", "created", "size", "title"):
        after = (None, "s200")
        page = partial(filled.listed, "", Filters(), sort=sort, limit=5, after=after)
        (plan,) = plans(server, page, monkeypatch)
        assert f"catalog_by_{sort.removeprefix('last_')}" in plan
        assert "Seq Scan" not in plan


@pytest.mark.parametrize("width", [6_000, 50, 1])
def test_windows_change_no_answer(
    filled: Catalog, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    """What is found is the same whether all passages are looked at at once, or window by window."""
    asked = [
        partial(filled.candidates, "", scope, parse(text), newest=newest)
        for text in ("common ", "rare", "number7 ", "of7 common", "nothing")
        for scope in (Scope(), Scope(Filters(ids=["s000", "s399"])))
        for newest in (3, 400, 30_000)
    ]
    before = [ask() for ask in asked]
    monkeypatch.setattr(searching, "_COUNTED_ALL", 0)
    monkeypatch.setattr(searching, "_FEW", 0)
    monkeypatch.setattr(searching, "_FIRST", width)
    assert [ask() for ask in asked] == before
