"""What writers and repairs kept beside a log, for programs, tasks and people."""

import asyncio
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner

import perdure
import perdure.aio
from perdure.cli.exits import Exit
from perdure.cli.main import cli
from perdure.errors import InvalidValue, SessionNotFound
from tests.command_line import Line
from tests.media import ALL, open_medium
from tests.test_cli_process import Terminal

FILES = {"sqlite": "sqlite", "bundle": "perdure"}
BINARY = bytes(range(256)) * 10_000


def written(store: perdure.Store, id: str = "s") -> None:
    with store.create(id) as session:
        session.append_many(
            [{"type": "x", "data": [number, f"event {number}"]} for number in range(4)]
        )


def put(store: perdure.Store, place: str, data: bytes, reason: str = "a test put it there") -> None:
    """Keep bytes beside the log as a repair does."""
    hold = store._backend.lock("s")
    store._backend.put_aside(hold, [data], place=place, reason=reason)
    hold.release()


def told(store: perdure.Store, place: str) -> bytes:
    return b"".join(store.open_aside("s", place))


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location, encoding="raw") as opened:
        written(opened)
        yield opened


# --- programs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ALL)
def test_every_medium_gives_out_what_it_keeps(kind: str, tmp_path: Path) -> None:
    """What is kept is listed with size and reason, and comes out byte for byte."""
    with open_medium(kind, tmp_path) as store:
        written(store)
        assert store.asides("s") == []
        put(store, "repair-1", BINARY)
        put(store, "repair-2", b"")
        kept = store.asides("s")
        assert all(isinstance(aside, perdure.Aside) for aside in kept)
        assert [(aside.place, aside.size, aside.reason) for aside in kept] == [
            ("repair-1", len(BINARY), "a test put it there"),
            ("repair-2", 0, "a test put it there"),
        ]
        assert (told(store, "repair-1"), told(store, "repair-2")) == (BINARY, b"")


@pytest.mark.parametrize("kind", ALL)
def test_what_is_not_there_is_refused_with_what_is(kind: str, tmp_path: Path) -> None:
    """A session or a place that is not there is a typed error at the call, before any byte."""
    with open_medium(kind, tmp_path) as store:
        written(store)
        for place in ("repair-1", "", "../s", "x" * 5000, "\ud800", 1):
            with pytest.raises(InvalidValue) as caught:
                store.open_aside("s", place)  # type: ignore[arg-type]
            assert (caught.value.path, caught.value.hint) == ("place", "nothing is kept beside it")
        for number in range(1, 8):
            put(store, f"repair-{number}", b"x")
        with pytest.raises(InvalidValue) as caught:
            store.open_aside("s", "repair-9")
        named = re.findall(r"repair-\d", caught.value.hint)
        assert named == ["repair-3", "repair-4", "repair-5", "repair-6", "repair-7"]
        assert caught.value.hint.endswith("and 2 older")
        for call in (store.asides, lambda id: store.open_aside(id, "repair-1")):
            with pytest.raises(SessionNotFound):
                call("none")
        store.delete("s")
        with pytest.raises(SessionNotFound) as gone:
            store.asides("s")
        assert gone.value.deleted_at is not None


def test_what_a_writer_cut_off_can_be_read(line: Line, store: perdure.Store) -> None:
    """Torn bytes that a writer set aside are given out as they stood there."""
    store.close()
    log = line.log("s")
    log.write_bytes(log.read_bytes() + b'{"seq":4,"ty')
    with perdure.open(line.location) as again:
        again.writer("s").close()
        [aside] = again.asides("s")
        assert (aside.size, told(again, aside.place)) == (12, b'{"seq":4,"ty')


@pytest.mark.parametrize("kind", ["raw", "sqlite", "bundle"])
def test_a_log_that_was_replaced_can_be_read(kind: str, tmp_path: Path) -> None:
    """After a repair the old log comes out with the bytes that were damaged, in every medium."""
    with open_medium(kind, tmp_path) as store:
        written(store)
        log = Path(store.locate("s") or tmp_path / f"store.{FILES[kind]}")
    if kind == "raw":
        log.write_bytes(log.read_bytes().replace(b"event 2", b"EVENT 2"))
    else:
        db = apsw.Connection(str(log))
        line = b"".join(row[0] for row in db.execute("SELECT line FROM records WHERE seq = 2"))
        db.execute(
            "UPDATE records SET line = ? WHERE seq = 2", (line.replace(b"event 2", b"EVENT 2"),)
        )
        db.close()
    with open_medium(kind, tmp_path) as store:
        done = store.repair("s")
        [aside] = store.asides("s")
        assert aside.place == done.aside == "repair-1"
        data = told(store, "repair-1")
        assert (len(data), b"EVENT 2" in data, b"event 3" in data) == (aside.size, True, True)


def test_tasks_read_it_too(store: perdure.Store, line: Line) -> None:
    """For tasks the same is listed and read in parts, and the same is refused."""
    put(store, "repair-1", BINARY)
    expected = store.asides("s")
    store.close()

    async def main() -> None:
        async with perdure.aio.open(line.location) as opened:
            assert await opened.asides("s") == expected
            parts = [part async for part in opened.open_aside("s", "repair-1")]
            assert b"".join(parts) == BINARY
            with pytest.raises(InvalidValue):
                [part async for part in opened.open_aside("s", "repair-2")]

    asyncio.run(main())


# --- people ---------------------------------------------------------------------------------------


def test_aside_lists_what_is_kept(line: Line, store: perdure.Store) -> None:
    """Place, size, time and reason are listed, and nothing of them is obeyed by a terminal."""
    assert line("aside", "s").stdout == "nothing is kept beside s\n"
    put(store, "repair-1", b"12345", "\x1b[31mred\n")
    [aside] = store.asides("s")
    assert line.json("aside", "s") == {"session": "s", "asides": [aside._asdict()]}
    heading, row = line("aside", "s").stdout.splitlines()
    assert heading.split() == ["PLACE", "BYTES", "SET", "ASIDE", "(UTC)", "REASON"]
    assert row.split()[:2] == ["repair-1", "5"]
    assert row.endswith(r"\x1b[31mred\n")
    assert line("aside", "none").exit_code == Exit.NOT_FOUND
    assert line("aside", "s", "--force").exit_code == Exit.USAGE


@pytest.mark.parametrize("data", [b"", b"text\n", BINARY])
def test_aside_prints_the_exact_bytes(line: Line, store: perdure.Store, data: bytes) -> None:
    """What comes out is what is kept, on the output and in a new private file."""
    put(store, "repair-1", data)
    assert line("aside", "s", "repair-1").stdout_bytes == data
    target = line.location.parent / "out"
    body: Any = line.json("aside", "s", "repair-1", "--output", str(target))
    assert body == {
        "session": "s",
        "place": "repair-1",
        "size": len(data),
        "output": str(target),
    }
    assert (target.read_bytes(), stat.S_IMODE(target.stat().st_mode)) == (data, 0o600)


def test_aside_takes_the_place_of_no_file(line: Line, store: perdure.Store) -> None:
    """A file that is there already stays as it is, and an unknown place makes none."""
    put(store, "repair-1", b"new")
    target = line.location.parent / "out"
    target.write_text("mine")
    result = line("aside", "s", "repair-1", "--output", str(target))
    assert (result.exit_code, result.stdout, target.read_text()) == (Exit.FAILED, "", "mine")
    missing = line.location.parent / "none"
    error = line.error("aside", "s", "repair-7", "--output", str(missing))
    assert (error["code"], error["exit"]) == ("invalid-value", Exit.USAGE)
    assert "there is repair-1" in error["hint"]
    assert not missing.exists()


def test_a_terminal_gets_text_of_what_is_kept(line: Line, store: perdure.Store) -> None:
    """Text is shown with escapes; binary data only if somebody insists."""
    put(store, "repair-1", b"one\n\x1b[31m{}\n")
    put(store, "repair-2", b"one\n\x1b\xff")
    arguments = ["--store", str(line.location), "aside", "s"]
    terminal = Terminal(*arguments, "repair-1")
    assert (terminal.end(), terminal.read()) == (0, b"one\n\\x1b[31m{}\n")
    terminal = Terminal(*arguments, "repair-2")
    assert terminal.end() == 1
    assert b"kept as repair-2 is no text" in terminal.read()
    assert b"\x1b" not in terminal.read()
    terminal = Terminal(*arguments, "repair-2", "--force")
    assert (terminal.end(), terminal.read()) == (0, b"one\n\x1b\xff")


def test_a_shell_is_offered_what_is_kept(line: Line, store: perdure.Store) -> None:
    """The places of the session that stands before are offered."""
    put(store, "repair-1", b"x")
    words = f"perdure --store {line.location} aside s re"
    environment = {"COMP_WORDS": words, "COMP_CWORD": "5", "_PERDURE_COMPLETE": "bash_complete"}
    result = CliRunner().invoke(cli, [], env=environment, prog_name="perdure")
    assert result.stdout == "plain,repair-1\n"
