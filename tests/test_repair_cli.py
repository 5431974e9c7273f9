"""`perdure repair`, and the same for tasks."""

import asyncio
from collections.abc import Iterator

import pytest

import perdure
import perdure.aio
from perdure.cli.exits import Exit
from perdure.errors import SessionBusy
from tests.command_line import Line
from tests.test_repair_steps import planned


@pytest.fixture
def store(line: Line) -> Iterator[perdure.Store]:
    with perdure.open(line.location, encoding="raw") as opened:
        with opened.create("s") as session:
            digest = session.put_blob(b"content")
            for number in range(6):
                session.append("x", {"number": number, "blob": digest})
        yield opened


def broken(line: Line, at: int = 3) -> None:
    """Change a letter of one event."""
    log = line.log("s")
    log.write_bytes(log.read_bytes().replace(b'"number":%d' % at, b'"numbeR":%d' % at))


def test_a_repair_is_foretold_and_done(line: Line, store: perdure.Store) -> None:
    """The plan is shown first, then carried out; the exit code says whether all is well now."""
    broken(line)
    store.close()
    report = line("verify", "s")
    assert report.exit_code == Exit.DAMAGE
    assert "    `perdure repair` keeps what holds together and goes on from there\n" in (
        report.stdout
    )
    before = line.log("s").read_bytes()

    foretold = line("repair", "s", "--dry-run", "--salvage")
    assert foretold.exit_code == Exit.DAMAGE
    first, *rest = foretold.stdout.splitlines()
    assert first.startswith("record at event 3, bytes ")
    assert rest == [
        "s: would be repaired",
        "    3 events kept",
        "    events 3 to 5 were acknowledged and are not kept",
        "    2 intact events behind the damage, 2 of them taken over",
        "    the log as it was: aside, as repair-1",
    ]
    assert line.log("s").read_bytes() == before
    without = line("repair", "s", "--dry-run").stdout
    assert "behind the damage, none taken over; --salvage would, and only now\n" in without
    plan = line.json("repair", "s", "--dry-run", ends=Exit.DAMAGE)
    assert (plan["done"], plan["needed"], plan["sound"]) == (False, True, False)

    done = line("repair", "s")
    assert (done.exit_code, done.stderr) == (Exit.OK, "")
    assert done.stdout.splitlines()[1:5:3] == [
        "s: repaired",
        "    2 intact events behind the damage, none taken over",
    ]
    assert line("verify", "s").exit_code == Exit.OK
    assert line("archive", "s").exit_code == Exit.OK
    again = line("repair", "s")
    assert (again.exit_code, again.stdout) == (Exit.OK, "s: nothing to repair\n")


def test_json_has_every_fact(line: Line, store: perdure.Store) -> None:
    """What a program gets says all that was done."""
    broken(line, 1)
    store.close()
    done = line.json("repair", "s", "--salvage")
    [problem] = done.pop("problems")
    assert (problem["kind"], problem["record"]) == ("record", 1)
    assert done == {
        "session": "s",
        "done": True,
        "resumed": False,
        "needed": True,
        "sound": True,
        "kept": 1,
        "acknowledged": 5,
        "lost": [1, 5],
        "later": 4,
        "salvaged": 4,
        "header_lost": False,
        "aside": "repair-1",
        "content": [],
        "unsafe": [],
    }


def test_a_broken_off_repair_says_so(line: Line, store: perdure.Store) -> None:
    """A repair that another process began is finished, and that is told."""
    broken(line)
    store.close()
    plan = planned(line.location)
    foretold = line("repair", "s", "--dry-run")
    assert "s: a repair that was broken off would be finished\n" in foretold.stdout
    finished = line("repair", "s")
    assert finished.exit_code == Exit.OK
    assert "s: repair finished\n" in finished.stdout
    assert not plan.exists()


def test_content_and_a_lost_header_are_told(line: Line, store: perdure.Store) -> None:
    """Damaged content is named, and so is a header that is lost."""
    digest = store.blobs("s")[0].digest
    blob = line.log("s").parent / "blobs" / digest[:2] / digest
    blob.write_bytes(b"other")
    data = line.log("s").read_bytes()
    line.log("s").write_bytes(b"?" * 9 + data[9:])
    store.close()

    said = line("repair", "s").stdout

    assert f"content {digest} is damaged\n" in said
    assert "    the header is lost; a new one says what the events tell\n" in said
    assert "    1 blob put aside and expired\n" in said
    assert line("blob", "s", digest).exit_code == Exit.NOT_FOUND
    assert line("verify").exit_code == Exit.OK


def test_content_that_is_not_private_is_named(line: Line, store: perdure.Store) -> None:
    """What a repair cannot settle is named, and the exit code says that it is not."""
    digest = store.blobs("s")[0].digest
    blob = line.log("s").parent / "blobs" / digest[:2] / digest
    blob.chmod(0o644)
    store.close()
    said = line("repair", "s")
    assert said.exit_code == Exit.DAMAGE
    assert said.stdout == f"content {digest}: its file is not private, see its mode and owner\n"


def test_many_problems_are_cut_short(line: Line, store: perdure.Store) -> None:
    """Of many damaged places the first are shown, and how many more there are."""
    log = line.log("s")
    log.write_bytes(log.read_bytes().replace(b"\n", b"\nnoise \x1b[2J\n"))
    store.close()
    said = line("repair", "s").stdout
    assert said.splitlines()[5:7] == ["and 2 more", "s: repaired"]
    assert "\x1b" not in said


def test_who_is_refused(line: Line, store: perdure.Store) -> None:
    """A session that is written, and one that is not there, end with their own codes."""
    with store.writer("s"):
        assert line("repair", "s").exit_code == Exit.BUSY
    assert line("repair", "nobody").exit_code == Exit.NOT_FOUND
    assert line("repair").exit_code == Exit.USAGE


def test_tasks_repair_as_well(line: Line, store: perdure.Store) -> None:
    """The same call for tasks; it waits for the lock without a thread."""
    broken(line)

    async def main() -> None:
        async with perdure.aio.open(line.location) as tasks:
            foretold = await tasks.repair("s", salvage=True, dry_run=True)
            assert (foretold.needed, foretold.done) == (True, False)
            hold = store._backend.lock("s")
            with pytest.raises(SessionBusy):
                await tasks.repair("s")
            waiting = asyncio.ensure_future(tasks.repair("s", salvage=True, wait=20))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            hold.release()
            assert await waiting == foretold._replace(done=True)
            assert (await tasks.verify("s")).sound

    asyncio.run(main())
