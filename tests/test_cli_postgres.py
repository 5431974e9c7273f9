"""What the command line does with a store in PostgreSQL."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import perdure
from perdure.cli.exits import Exit
from perdure.cli.main import cli
from perdure.errors import UnsafeFile
from perdure.runtime import SYSTEM
from tests.media import assert_equal
from tests.postgres.server import Server

DELTAS: list[dict[str, Any]] = [
    {"type": "assistant/delta", "turn": "t", "data": {"block": [0, {"text": f"word {n} "}]}}
    for n in range(50)
]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def told(*arguments: object, ends: Exit = Exit.OK) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == ends, result.output
    return json.loads(result.stdout)


@pytest.fixture
def url(postgres: Server, fresh_schema: Callable[[], str]) -> str:
    return postgres.url(schema=fresh_schema())


def test_sessions_are_copied_there_and_back(url: str, tmp_path: Path) -> None:
    """What is copied to PostgreSQL and back has the same bytes, hashes, content and sub-agents."""
    here, back = str(tmp_path / "here"), str(tmp_path / "back")
    with perdure.open(here) as store:
        with store.create("a") as session:
            session.append("user/message", {"content": "hello"}, agent="main", turn="t", key="k")
            session.append_many(DELTAS)
            session.append("odd", {"big": 2**70, "half": "\ud800", "none": None, "nul": "\0"})
            session.put_blob(b"x" * 10_000_000)
        lineage = perdure.Parent("a", 0)
        with store.create("\ud800 \0 odd/id", parent=lineage, origin="subagent", depth=1) as child:
            child.append("note", "of a", key="\0 \udfff")
    told("copy", here, url)
    told("copy", url, back)
    with perdure.open(here) as one, perdure.open(url) as two, perdure.open(back) as three:
        ids = [entry.id for entry in one.list()]
        assert sorted(entry.id for entry in two.list()) == sorted(ids)
        for id in ids:
            assert_equal(one, two, id)
            assert_equal(two, three, id)
    # Once more, and nothing is new.
    assert not any(each.get("events") for each in told("copy", here, url)["sessions"])


def test_the_everyday_commands_work_on_a_server(url: str) -> None:
    """Listing, showing, searching, verifying, deleting and restoring are the same everywhere."""
    with perdure.open(url) as store, store.create("a") as session:
        session.append("user/message", {"content": "the quick brown fox"})
    assert [each["id"] for each in told("--store", url, "ls")["sessions"]] == ["a"]
    assert run("--store", url, "show", "a").exit_code == Exit.OK
    assert [hit["session"] for hit in told("--store", url, "search", "quick fox")["hits"]] == ["a"]
    assert run("--store", url, "verify").exit_code == Exit.OK
    assert run("--store", url, "tail", "a").exit_code == Exit.OK
    assert run("--store", url, "rm", "a").exit_code == Exit.OK
    assert told("--store", url, "ls")["sessions"] == []
    assert run("--store", url, "restore", "a").exit_code == Exit.OK
    assert [each["id"] for each in told("--store", url, "ls")["sessions"]] == ["a"]


def test_an_owner_makes_grants_and_looks_after_tables(url: str, postgres: Server) -> None:
    """Tables are made, rights and tenants given, partitions made and sizes told by commands."""
    assert told("--store", url, "postgres", "migrate") == {"from": 0, "to": 1}
    assert "already" in run("--store", url, "postgres", "migrate").output
    role = f"cli_{SYSTEM.token(6)}"
    postgres.ask(f"CREATE ROLE {role} LOGIN")
    try:
        granted = told("--store", url, "postgres", "grant", role)
        assert granted == {"role": role, "blind": []}
        within = ("--store", url, "--namespace", "team")
        assert told(*within, "postgres", "tenant", role)["before"] is None
        again = run(*within, "--namespace", "a", "postgres", "tenant", role)
        assert again.output == f"{role} sees team/a, and no longer team\n"
        tenant = {"role": role, "namespace": "team/a"}
        assert told("--store", url, "postgres", "tenants") == {"tenants": [tenant]}
        assert f"{role}  team/a" in run("--store", url, "postgres", "tenants").output
        theirs = url.replace("postgres@", f"{role}@")
        with perdure.open(theirs) as store:
            store.namespace("team", "a").create("s").append("x", 1)
        assert told("--store", url, "ls")["sessions"] == []
        status = told("--store", url, "postgres", "status")
        assert (status["version"], status["sessions"]) == (1, 1)
        assert "records_1" in run("--store", url, "postgres", "status").output
        assert told("--store", url, "postgres", "maintain")["made"] == ["records_2", "records_3"]
        for words in (["maintain"], ["grant", role], ["tenant", role]):
            result = run("--store", theirs, "postgres", *words)
            assert result.exit_code == Exit.FAILED
            assert "does not own the tables" in result.stderr
        remove = ("--store", url, "postgres", "tenant", role, "--remove")
        assert told(*remove) == {"role": role, "removed": True}
        assert told("--store", url, "postgres", "tenants") == {"tenants": []}
        assert told(*remove) == {"role": role, "removed": False}
        granted = told("--store", url, "postgres", "grant", role)
        assert granted == {"role": role, "blind": [role]}
        assert f"sees nothing: {role};" in run("--store", url, "postgres", "grant", role).stderr
        with perdure.open(theirs) as store, pytest.raises(UnsafeFile) as raised:
            store.create("no").append("x", 1)
        assert "postgres tenant" in raised.value.hint
        with perdure.open(theirs) as store:
            assert list(store.namespace("team", "a").list()) == []
    finally:
        postgres.ask(f"DROP OWNED BY {role}")
        postgres.ask(f"DROP ROLE {role}")


@pytest.mark.parametrize(
    "words", [["status"], ["maintain"], ["grant", "x"], ["tenant", "x"], ["tenants"]]
)
def test_without_tables_it_says_how_they_are_made(url: str, words: list[str]) -> None:
    """Where nothing was ever stored the commands say so, and what makes the tables."""
    result = run("--store", url, "postgres", *words)
    assert result.exit_code == Exit.FAILED
    assert "postgres migrate" in result.output + result.stderr


@pytest.mark.parametrize("name", ["migrate", "status", "tenants", "maintain"])
def test_other_stores_have_no_tables(tmp_path: Path, name: str) -> None:
    """For a store that is none of PostgreSQL the commands say what they are for."""
    result = run("--store", tmp_path, "postgres", name)
    assert result.exit_code == Exit.USAGE
    assert "postgresql://" in result.output


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "psycopg":
            raise ModuleNotFoundError(f"No module named {name!r}", name="psycopg")

sys.meta_path.insert(0, Missing())
from perdure.cli.main import main
main()
"""


@pytest.mark.parametrize("words", [["ls"], ["postgres", "status"], ["postgres", "grant", "x"]])
def test_without_the_driver_each_command_says_what_to_install(words: list[str]) -> None:
    """Without the extra no command ends in a traceback, and each names the extra."""
    command = [sys.executable, "-c", WITHOUT, "--store", "postgresql://x:s3cret@h/d", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "install perdure again with [postgres]" in done.stderr
    assert "Traceback" not in done.stderr
    assert "s3cret" not in done.stderr


def test_a_copy_from_tables_that_are_not_there_is_refused(url: str, tmp_path: Path) -> None:
    """A backup of a schema that was mistyped does not succeed every night."""
    result = run("copy", url, tmp_path / "backup")
    assert result.exit_code == Exit.FAILED
    assert "there is no store" in result.stderr


def test_a_password_stays_out_of_what_is_printed(postgres: Server, tmp_path: Path) -> None:
    """A message about a store that cannot be reached, or is empty, holds no password."""
    url = postgres.tcp_url(schema="never_made")
    assert postgres.password in url
    for arguments in (["ls"], ["show", "x"], ["postgres", "status"], ["--namespace", "n", "ls"]):
        result = run("--store", url, *arguments)
        assert postgres.password not in result.output + result.stderr
    with perdure.open(postgres.tcp_url(schema="made")) as store:
        store.create("s").append("x", 1)
    made = postgres.tcp_url(schema="made")
    for name, place in (("upgrade", "one"), ("copy", "two")):
        for more in ([], ["--json"]):
            result = run(name, made, tmp_path / place, *more)
            assert result.exit_code == Exit.OK
            assert postgres.password not in result.output + result.stderr
    assert "schema=made" in run("upgrade", made, tmp_path / "one").output
    wrong = url.replace(postgres.password, "hunter2x")
    result = run("--store", wrong, "ls")
    assert result.exit_code == Exit.FAILED
    assert "hunter2x" not in result.output + result.stderr
    assert "password" in result.stderr
    assert "runs and takes connections" not in result.stderr


@pytest.mark.parametrize("secret", ["hun?ter2x", "hunter2x?a=b", "hun%40ter2x", "hun#ter2x"])
def test_a_password_with_odd_signs_stays_out_as_well(secret: str) -> None:
    """Whatever libpq takes for a password, no message holds a part of it."""
    result = run("--store", f"postgresql://me:{secret}@127.0.0.1:1/base", "ls")
    assert result.exit_code == Exit.FAILED
    said = result.output + result.stderr
    assert "127.0.0.1" in said
    assert not any(part in said for part in ("hun", "ter2x", "a=b"))


def test_a_server_that_is_away_is_no_damage() -> None:
    """`verify` of a session ends with another exit code if nobody knows whether it is sound."""
    result = run("--store", "postgresql://127.0.0.1:1/agents", "verify", "s")
    assert result.exit_code == Exit.FAILED
    assert "unreadable" in result.output
    assert "try again" in result.output
