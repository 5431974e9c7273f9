"""What `copy`, `upgrade`, `export` and `import bundle` do, print and end with."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import perdure
from perdure.backends.directory import DirectoryBackend
from perdure.cli.exits import Exit
from perdure.cli.main import cli
from perdure.errors import StorageFull
from tests.media import assert_equal, lines
from tests.test_copying import extend, flip, log_of, write


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments)])


def told(*arguments: object, ends: Exit = Exit.OK) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == ends, result.output
    return json.loads(result.stdout)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[perdure.Store]:
    with perdure.open(tmp_path / "here", encoding="raw") as store:
        yield store


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def spawn(store: perdure.Store, parent: str, child: str, depth: int = 1) -> None:
    lineage = perdure.Parent(parent, 0)
    with store.create(child, parent=lineage, origin="subagent", depth=depth) as writer:
        writer.append("note", f"of {parent}")


# --- copy -----------------------------------------------------------------------------------------


def test_copy_tells_of_each_session(here: perdure.Store, place: Path, there: Path) -> None:
    """A line for each session, an object for each in JSON, and equal sessions."""
    write(here, "a")
    write(here.namespace("x", "y"), "b", count=0)
    result = run("copy", place, there)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "copied     a  10 events, 3 blobs",
        "copied     b in namespace x / y  7 events",
    ]
    extend(here, "a")
    found = told("copy", place, there)
    assert (found["source"], found["destination"]) == (str(place), str(there))
    position = here.inspect("a").position
    assert position is not None
    assert found["sessions"][0] == {
        "session": "a",
        "namespace": [],
        "status": "continued",
        "position": {"seq": 10, "hash": position.hash},
        "events": 1,
        "blobs": 1,
        "problems": [],
    }
    assert [row["status"] for row in found["sessions"]] == ["continued", "unchanged"]
    assert run("copy", place, there).stdout.splitlines()[0] == "unchanged  a"
    with perdure.open(there) as target:
        assert_equal(here, target, "a")


def test_copy_takes_only_what_is_named(here: perdure.Store, place: Path, there: Path) -> None:
    """With ids, those sessions are copied, each once; one that is not there ends with 5."""
    for session in "abc":
        write(here, session)
    result = run("copy", place, there, "c", "none", "a", "c")
    assert result.exit_code == Exit.NOT_FOUND
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["c", "a"]
    assert "no session 'none'" in result.stderr
    with perdure.open(there) as target:
        assert [entry.id for entry in target.list()] == ["a", "c"]


def test_copy_goes_into_a_namespace_of_both(here: perdure.Store, place: Path, there: Path) -> None:
    """With --namespace the command sees that namespace in both stores."""
    write(here.namespace("x"), "a")
    write(here, "b")
    assert len(told("--namespace", "x", "copy", place, there)["sessions"]) == 1
    with perdure.open(there) as target:
        assert target.list() == []
        assert_equal(here.namespace("x"), target.namespace("x"), "a")


def test_copy_goes_on_behind_damage(here: perdure.Store, place: Path, there: Path) -> None:
    """A damaged session ends the command with 3, says how to go on, and stops no other."""
    for session in ("bad", "good", "with bad content"):
        write(here, session)
    flip(log_of(here, "bad"), 1000)
    blob = next((log_of(here, "with bad content").parent / "blobs").glob("*/*"))
    flip(blob, 5)
    result = run("copy", place, there)
    assert result.exit_code == Exit.DAMAGE
    assert "copied     good" in result.stdout
    assert "copied     with bad content  10 events, 2 blobs" in result.stdout
    assert "session 'bad' is damaged" in result.stderr
    assert "`perdure repair`" in result.stderr
    assert f"content {blob.name} of session 'with bad content' is damaged" in result.stderr
    found = run("copy", place, there, "--json")
    (row,) = [each for each in json.loads(found.stdout)["sessions"] if each["problems"]]
    assert row["problems"][0]["code"] == "content-damaged"
    errors = [json.loads(line)["error"]["code"] for line in found.stderr.splitlines()]
    assert sorted(errors) == ["content-damaged", "session-damaged"]


def test_copy_says_what_diverged_and_what_is_busy(
    here: perdure.Store, place: Path, there: Path
) -> None:
    """Two logs that parted end with 1, a session that is being written with 4."""
    write(here, "a")
    told("copy", place, there)
    extend(here, "a", text="here")
    with perdure.open(there) as target:
        with target.writer("a"):
            assert run("copy", place, there).exit_code == Exit.BUSY
        extend(target, "a", text="there")
    result = run("copy", place, there)
    assert result.exit_code == Exit.FAILED
    assert "went on differently in the two stores, from event 10 on" in result.stderr


def test_copy_of_nothing(here: perdure.Store, place: Path, there: Path) -> None:
    """A store that holds no session is said to, and none appears."""
    write(here, "a")
    here.delete("a")
    here.empty_trash()
    here.forget("a")
    result = run("copy", place, there)
    assert (result.exit_code, result.stdout) == (0, f"no sessions in {place}\n")
    assert not there.exists()


@pytest.mark.parametrize("command", ["copy", "upgrade"])
@pytest.mark.parametrize("form", ["{}", "dir:{}", "sqlite:{}", "{}.perdure"])
def test_a_source_that_is_not_there_is_an_error(
    place: Path, there: Path, command: str, form: str
) -> None:
    """Whoever mistypes the name of the store does not take the backup for done."""
    name = form.format(place)
    result = run(command, name, there)
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert result.stderr.startswith(f"error: there is no store at {name}\n")
    assert not place.exists()
    assert not there.exists()


def test_what_cannot_be_read_is_told_once(place: Path, there: Path) -> None:
    """A source that is no store is named, for its sessions and namespaces together."""
    place.write_text("a file")
    result = run("copy", place, there)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("error: ") == 1
    assert "an SQLite file as sqlite:PATH" in result.stderr


@pytest.mark.parametrize("ids", [(), ("a", "b", "c")])
def test_a_destination_that_takes_nothing_is_told_once(
    here: perdure.Store, place: Path, there: Path, ids: tuple[str, ...]
) -> None:
    """Why nothing can be stored there is said for the first session, and the others are counted."""
    for session in "abc":
        write(here, session)
    there.mkdir(mode=0o777)
    there.chmod(0o777)
    result = run("copy", place, f"sqlite:{there / 'x.db'}", *ids)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("error: ") == 1
    assert result.stdout == "not tried: 2 sessions\n"


def test_copy_onto_itself_is_refused(here: perdure.Store, place: Path) -> None:
    """Source and destination are two places."""
    write(here, "a")
    result = run("copy", place, place)
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
    assert run("copy", place, place, "a").exit_code == Exit.USAGE


def test_hostile_ids_do_not_reach_the_terminal(
    here: perdure.Store, place: Path, there: Path
) -> None:
    """What a session is called is shown and not obeyed."""
    write(here.namespace("\x1b[2J"), "\x1b]0;x\x07\n", count=0)
    assert "\x1b" not in run("copy", place, there).output


def test_progress_goes_to_the_terminal_alone(
    here: perdure.Store, place: Path, there: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the output goes elsewhere, a terminal is told how far it is, and left clean."""
    write(here, "a")
    quiet = run("copy", place, there)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", is_stderr, raising=False)
    loud = run("copy", place, there)
    assert quiet.stderr == ""
    assert loud.stderr == "\r1 session so far\r" + " " * 16 + "\r"
    assert loud.stdout == "unchanged  a\n"


def is_stderr(stream: Any) -> bool:
    return bool(stream.name == "<stderr>")


# --- upgrade --------------------------------------------------------------------------------------


def test_upgrade_copies_verifies_and_says_what_stays(
    here: perdure.Store, place: Path, tmp_path: Path
) -> None:
    """A whole store is brought into a new one; what stays behind is said, and what is next."""
    write(here, "a")
    write(here.namespace("x"), "b")
    for space in (here, here.namespace("x")):
        write(space, "deleted")
        space.delete("deleted")
    new = f"sqlite:{tmp_path / 'new.db'}"
    result = run("upgrade", place, new)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[2:] == [
        f"2 sessions verified in {new}",
        f"left in the trash of {place}: 2 sessions",
        f"{place} is as it was: remove it when you are satisfied",
    ]
    found = told("upgrade", place, new)
    assert (found["finished"], found["verified"], found["in_trash"]) == (True, 2, 2)
    with perdure.open(new) as target:
        assert_equal(here, target, "a")
        assert_equal(here.namespace("x"), target.namespace("x"), "b")
        assert target.trash() == []


def test_upgrade_goes_only_where_nothing_else_is(
    here: perdure.Store, place: Path, there: Path
) -> None:
    """A store that holds something else is refused before anything is written."""
    write(here, "a")
    with perdure.open(there) as target:
        write(target.namespace("x"), "other")
    result = run("upgrade", place, there)
    assert result.exit_code == Exit.FAILED
    assert "holds session 'other', which is not of this store" in result.stderr
    with perdure.open(there) as target:
        assert target.list() == []


def test_upgrade_goes_on_after_a_deletion(
    here: perdure.Store, place: Path, there: Path, tmp_path: Path
) -> None:
    """What was deleted in the old store since is there rightly, and is said to be left over."""
    for space in (here, here.namespace("x")):
        for session in ("a", "trashed", "purged"):
            write(space, session)
    told("upgrade", place, there)
    for space in (here, here.namespace("x")):
        space.delete("purged")
        space.empty_trash()
        space.delete("trashed")
    result = run("upgrade", place, there)
    assert (result.exit_code, result.stderr) == (0, "")
    over = f"still in {there}, though no more in {place}: "
    assert [line for line in result.stdout.splitlines() if line.startswith("still")] == [
        f"{over}purged",
        f"{over}trashed",
        f"{over}purged in namespace x",
        f"{over}trashed in namespace x",
    ]
    assert told("upgrade", place, there)["left_over"] == [
        {"session": session, "namespace": parts}
        for parts in ([], ["x"])
        for session in ("purged", "trashed")
    ]
    with perdure.open(tmp_path / "other") as other:
        write(other, "trashed")
    result = run("upgrade", place, tmp_path / "other")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert "holds session 'trashed', which is not of this store" in result.stderr


def test_upgrade_refuses_what_lies_in_the_trash(
    here: perdure.Store, place: Path, there: Path
) -> None:
    """A deleted session of another store is one that DST holds; one of this store is not."""
    write(here, "a")
    with perdure.open(there) as target:
        here.copy("a", target)
        target.delete("a")
        assert run("upgrade", place, there).stderr.startswith("error: session 'a' was deleted")
        write(target.namespace("x"), "other")
        target.namespace("x").delete("other")
    result = run("upgrade", place, there)
    assert result.exit_code == Exit.FAILED
    assert "holds session 'other' in its trash, which is not of this store" in result.stderr


def test_upgrade_is_continued(here: perdure.Store, place: Path, there: Path) -> None:
    """What an upgrade left unfinished is gone on with, and nothing is there twice."""
    for session in "ab":
        write(here, session)
    log = log_of(here, "b")
    sound = log.read_bytes()
    flip(log, 1000)
    result = run("upgrade", place, there)
    assert result.exit_code == Exit.DAMAGE
    assert "1 session verified" in result.stdout
    assert f"not finished: {place} is still needed" in result.stdout
    assert "remove it" not in result.stdout
    log.write_bytes(sound)
    found = told("upgrade", place, there)
    assert found["finished"]
    assert [row["status"] for row in found["sessions"]] == ["unchanged", "copied"]


def test_upgrade_finds_what_went_wrong_on_the_way(
    here: perdure.Store, place: Path, there: Path
) -> None:
    """A byte that changed in the new store, log or content, is found at the end."""
    write(here, "a")
    told("upgrade", place, there)
    with perdure.open(there) as target:
        blob = next((log_of(target, "a").parent / "blobs").glob("*/*"))
    flip(blob, 5)
    result = run("upgrade", place, there)
    assert result.exit_code == Exit.DAMAGE
    assert f"content {blob.name}" in result.stderr
    assert "remove it" not in result.stdout


# --- bundles --------------------------------------------------------------------------------------


def test_export_takes_the_sub_agents_along(
    here: perdure.Store, place: Path, tmp_path: Path
) -> None:
    """A session and all that it spawned, at any depth, are in the file, and nothing else."""
    write(here, "top")
    spawn(here, "top", "child")
    spawn(here, "child", "grandchild", depth=2)
    spawn(here, "other", "stranger")
    write(here, "other")
    file = tmp_path / "top.perdure"
    result = run("--store", place, "export", "top", file)
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == f"3 sessions in {file}"
    with perdure.open(file) as bundle:
        assert [entry.id for entry in bundle.list()] == ["child", "grandchild", "top"]
        for entry in bundle.list():
            assert_equal(here, bundle, entry.id)


def test_an_exported_file_is_complete(here: perdure.Store, place: Path, tmp_path: Path) -> None:
    """The file, moved alone with its artifacts, is the whole export."""
    write(here, "top", count=1)
    with here.writer("top") as writer:
        writer.append("note", {"blob": writer.put_blob(os.urandom(3_000_000))})
    file = tmp_path / "out" / "top.perdure"
    file.parent.mkdir()
    found = told("--store", place, "export", "top", file)
    assert (found["session"], found["format"], found["file"]) == ("top", "bundle", str(file))
    moved = tmp_path / "elsewhere"
    moved.mkdir(mode=0o700)
    file.rename(moved / "top.perdure")
    artifacts = file.with_name("top.artifacts")
    assert artifacts.is_dir()
    artifacts.rename(moved / "top.artifacts")
    with perdure.open(moved / "top.perdure") as bundle:
        assert_equal(here, bundle, "top")


def test_an_exported_file_may_be_moved_away(
    here: perdure.Store, place: Path, tmp_path: Path
) -> None:
    """Where a file of the name was before and is not any more, a new one is written."""
    write(here, "a")
    file = tmp_path / "a.perdure"
    told("--store", place, "export", "a", file)
    file.unlink()
    assert told("--store", place, "export", "a", file)["sessions"][0]["status"] == "copied"
    with perdure.open(file) as bundle:
        assert_equal(here, bundle, "a")
        assert bundle.missing() == []


def test_an_export_that_was_killed_is_finished(
    here: perdure.Store, place: Path, tmp_path: Path
) -> None:
    """What a dead export left in the WAL is brought into the file, though nothing is new."""
    write(here, "a")
    file = tmp_path / "a.perdure"
    child = (
        "import os, signal\n"
        "from perdure.backends.sqlite.medium import Medium\n"
        "Medium.close = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from perdure.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", child, "--store", str(place), "export", "a", str(file)]
    dead = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    wal = file.with_name("a.perdure-wal")
    assert wal.stat().st_size
    with perdure.open(file) as reader:
        # Somebody who has it open keeps the WAL there.
        events = reader.read_from("a")
        next(events)
        result = run("--store", place, "export", "a", file)
        assert "is not complete without a.perdure-wal" in result.stderr
        del events
    result = run("--store", place, "export", "a", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == "unchanged  a"
    assert not wal.exists()
    alone = tmp_path / "alone"
    alone.mkdir(mode=0o700)
    file.rename(alone / "a.perdure")
    with perdure.open(alone / "a.perdure") as bundle:
        assert_equal(here, bundle, "a")


def test_a_file_that_is_gone_counts_for_nothing(
    here: perdure.Store, place: Path, tmp_path: Path
) -> None:
    """What is remembered beside a name is of the file that was there: deleted, vanished, all."""
    for session in ("a", "b", "c"):
        write(here, session)
    file = tmp_path / "a.perdure"
    with perdure.open(file) as bundle:
        here.copy_all(bundle)
        write(bundle.namespace("x"), "d")
        bundle.delete("a")
        bundle.delete("b")
        bundle.empty_trash()
    assert run("--store", place, "export", "a", file).exit_code != 0
    file.unlink()
    assert told("--store", place, "export", "a", file)["sessions"][0]["status"] == "copied"
    with perdure.open(file) as bundle:
        assert_equal(here, bundle, "a")
        assert bundle.missing() == bundle.namespace("x").missing() == []
        assert here.copy("b", bundle).status == "copied"


@pytest.mark.parametrize("name", ["/{0}/y.perdure", "~/y.perdure", "with space/y.perdure"])
def test_a_file_is_named_by_a_path(
    here: perdure.Store, place: Path, there: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """An argument FILE is taken as it stands: two slashes name no host, a tilde is no home."""
    write(here, "a")
    home = there.parent / "home"
    home.mkdir(mode=0o700)
    work = there.parent / "work"
    work.mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    path = name.format(work)
    found = told("--store", place, "export", "a", path)
    assert [*home.iterdir()] == []
    assert Path(path).is_file()
    assert Path(found["file"]).samefile(path)
    imported = told("--store", there, "import", "bundle", path)["sources"][0]
    assert Path(imported["path"]).samefile(path)
    with perdure.open(there) as target:
        assert_equal(here, target, "a")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("out/a.perdure/", "names a folder"), ("bundle:a.perdure", "begins like a location")],
)
def test_what_names_no_file_is_refused(
    here: perdure.Store, place: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str
) -> None:
    """A folder and a location are no FILE, and nothing appears."""
    write(here, "a")
    monkeypatch.chdir(place.parent)
    result = run("--store", place, "export", "a", name)
    assert result.exit_code == Exit.USAGE
    assert reason in result.stderr
    assert [*place.parent.iterdir()] == [place]


def test_export_refuses_what_is_there(here: perdure.Store, place: Path, tmp_path: Path) -> None:
    """A file is continued if it is this very export, and else left as it is."""
    write(here, "a")
    write(here, "b")
    file = tmp_path / "a.perdure"
    told("--store", place, "export", "a", file)
    extend(here, "a")
    assert told("--store", place, "export", "a", file)["sessions"][0]["status"] == "continued"
    before = file.read_bytes()
    result = run("--store", place, "export", "b", file)
    assert result.exit_code == Exit.FAILED
    assert "holds session 'a', which is not of this export" in result.stderr
    assert file.read_bytes() == before
    text = tmp_path / "text.perdure"
    text.write_text("something else\n" * 100)
    assert run("--store", place, "export", "b", text).exit_code != 0
    assert text.read_text() == "something else\n" * 100


def test_export_of_what_cannot_be(here: perdure.Store, place: Path, tmp_path: Path) -> None:
    """An unknown session ends with 5, a damaged one with 3, and no file is left."""
    write(here, "bad")
    flip(log_of(here, "bad"), 12)
    file = tmp_path / "x.perdure"
    assert run("--store", place, "export", "none", file).exit_code == Exit.NOT_FOUND
    assert run("--store", place, "export", "bad", file).exit_code == Exit.DAMAGE
    write(here, "broken")
    flip(log_of(here, "broken"), 1000)
    assert run("--store", place, "export", "broken", file).exit_code == Exit.DAMAGE
    assert not file.exists()


def test_a_bundle_is_imported(here: perdure.Store, place: Path, there: Path) -> None:
    """All sessions of a bundle keep their ids and hashes; importing again changes nothing."""
    write(here, "top")
    spawn(here, "top", "child")
    file = place.parent / "top.perdure"
    told("--store", place, "export", "top", file)
    result = run("--store", there, "import", "bundle", file)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["copied", "child"],
        ["copied", "top"],
    ]
    with perdure.open(there) as target:
        for session in ("child", "top"):
            assert_equal(here, target, session)
    found = told("--store", there, "import", "bundle", file)
    assert found["format"] == "bundle"
    assert found["sources"][0]["path"] == str(file)
    assert {row["status"] for row in found["sources"][0]["sessions"]} == {"unchanged"}


def test_a_bundle_of_somebody_else_is_imported(
    here: perdure.Store, place: Path, there: Path
) -> None:
    """A file that everybody can read and that belongs to another user is read and not changed."""
    write(here, "top")
    file = place.parent / "top.perdure"
    told("--store", place, "export", "top", file)
    file.chmod(0o444)
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
    before = file.read_bytes()
    assert run("--store", there, "import", "bundle", file).exit_code == 0
    assert file.read_bytes() == before
    with perdure.open(there) as target:
        assert_equal(here, target, "top")


def test_what_is_no_bundle_is_not_imported(here: perdure.Store, there: Path) -> None:
    """A missing file, and one that is something else, are named, and the others are imported."""
    write(here, "top")
    folder = there.parent
    good = folder / "good.perdure"
    told("--store", folder / "here", "export", "top", good)
    (folder / "text.perdure").write_text("something else\n" * 100)
    result = run(
        "--store", there, "import", "bundle", folder / "none.perdure", folder / "text.perdure", good
    )
    assert result.exit_code != 0
    assert "none.perdure is no file" in result.stderr
    assert "text.perdure" in result.stderr
    assert "copied     top" in result.stdout


def test_namespaces_of_a_bundle_are_imported(place: Path, there: Path) -> None:
    """Sessions in namespaces come into the same namespaces below that of the command."""
    file = place.parent / "all.perdure"
    with perdure.open(file) as bundle:
        write(bundle, "a")
        write(bundle.namespace("x", "y"), "b", count=0)
        write(bundle.namespace("x"), "gone")
        bundle.namespace("x").delete("gone")
        result = run("--store", there, "--namespace", "to", "import", "bundle", file)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout.splitlines() == [
            "copied     a  10 events, 3 blobs",
            "copied     b in namespace x / y  7 events",
        ]
        with perdure.open(there) as target:
            assert target.list() == []
            assert_equal(bundle, target.namespace("to"), "a")
            assert_equal(bundle.namespace("x", "y"), target.namespace("to", "x", "y"), "b")
            assert target.namespace("to", "x").list() == []
    (row, other) = told("--store", there, "import", "bundle", file)["sources"][0]["sessions"]
    assert (row["namespace"], other["namespace"]) == ([], ["x", "y"])


def test_an_empty_bundle_says_so(place: Path, there: Path) -> None:
    """Nothing was imported, and the command does not leave that to be guessed."""
    file = place.parent / "empty.perdure"
    with perdure.open(file) as bundle:
        write(bundle, "a")
        bundle.delete("a")
        bundle.empty_trash()
    result = run("--store", there, "import", "bundle", file)
    assert (result.exit_code, result.stdout) == (0, f"no sessions in {file}\n")


def test_artifacts_that_stayed_behind_are_named(place: Path, there: Path) -> None:
    """A bundle that came without its artifacts is imported but for these, and that is damage."""
    file = place.parent / "half.perdure"
    with perdure.open(file) as bundle, bundle.create("a") as writer:
        writer.append("note", {"blob": writer.put_blob(os.urandom(300_000))})
    (artifact,) = (place.parent / "half.artifacts").iterdir()
    artifact.unlink()
    result = run("--store", there, "import", "bundle", file)
    assert result.exit_code == Exit.DAMAGE
    assert result.stdout == "copied     a  1 event\n"
    assert f"content {artifact.name} of session 'a' is damaged" in result.stderr


@pytest.mark.parametrize("ids", [(), ("a", "b", "c")])
def test_a_full_destination_is_told_once(
    here: perdure.Store,
    place: Path,
    there: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids: tuple[str, ...],
) -> None:
    """Why the first was refused, and how many others were left."""
    for session in "abc":
        write(here, session)

    def full(*_: object) -> None:
        raise StorageFull("/p", "no space left")

    monkeypatch.setattr(DirectoryBackend, "put_blob", full)
    result = run("copy", place, there, *ids)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("no space left") == 1
    assert result.stdout == "not tried: 2 sessions\n"
    document = json.loads(run("copy", place, there, *ids, "--json").stdout)
    assert (document["sessions"], document["not_tried"]) == ([], 2)


def test_a_hint_can_be_pasted(place: Path, there: Path) -> None:
    """A command in a hint names the file so that a shell takes it for one word."""
    place.mkdir(mode=0o700)
    file = place / "it's mine; ls.perdure"
    with perdure.open(file) as bundle:
        write(bundle, "a")
    file.chmod(0o644)
    result = run("--store", f"bundle:{file}", "ls")
    hint = result.stderr.partition("`")[2].partition("`")[0]
    assert "or chmod 600" in result.stderr
    assert shlex.split(hint) == ["perdure", "import", "bundle", str(file)]
    assert run("--store", there, *shlex.split(hint)[1:]).exit_code == 0
    if os.geteuid() == 0:
        os.chown(file, 12345, 12345)
        assert "chmod" not in run("--store", f"bundle:{file}", "ls").stderr


def test_a_session_goes_round(here: perdure.Store, place: Path, tmp_path: Path) -> None:
    """Folder, SQLite, bundle and folder again, by commands alone: the same bytes."""
    write(here, "top")
    spawn(here, "top", "child")
    told("copy", place, f"sqlite:{tmp_path / 'one.db'}")
    told("copy", f"sqlite:{tmp_path / 'one.db'}", tmp_path / "two.perdure")
    told("copy", tmp_path / "two.perdure", tmp_path / "three")
    with perdure.open(tmp_path / "three") as last:
        for session in ("child", "top"):
            assert_equal(here, last, session)
            assert lines(last, session) == lines(here, session)


def test_every_kind_opens_by_its_name(here: perdure.Store, place: Path, tmp_path: Path) -> None:
    """What the commands wrote is a store for every other command."""
    write(here, "top")
    for name in (f"sqlite:{tmp_path / 'x.db'}", str(tmp_path / "y.perdure")):
        told("copy", place, name)
        assert told("--store", name, "verify")["sound"]
