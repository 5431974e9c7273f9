"""Marks of sessions that are being written: set, found, taken away, and never in anybody's way."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.durable import crash
from perdure.model.identity import namespace_key
from perdure.model.limits import ID_CHARS_MAX
from perdure.store.marks import FOLDER, Mark, Marks
from perdure.testing.agents import ScriptedRuntime
from perdure.testing.faults import CALLS, CODES, Fault, FaultySystem
from perdure.testing.strategies import session_ids
from tests.support import scaled

RUNTIME = ScriptedRuntime("marks")


def marks(beside: Path | None, namespace: str = "") -> Marks:
    return Marks(None if beside is None else str(beside), namespace, RUNTIME)


@pytest.fixture
def beside(tmp_path: Path) -> Path:
    made = tmp_path / "beside"
    made.mkdir(mode=0o700)
    return made


def place(beside: Path, name: str | None) -> Path:
    assert name is not None
    return beside / FOLDER / name


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# --- set, all, clear ------------------------------------------------------------------------------


def test_a_mark_is_there_until_it_is_taken_away(beside: Path) -> None:
    """A mark names its session, to whoever looks, until it is cleared."""
    mine = marks(beside)
    assert [*mine.all()] == []
    name = mine.set("s")
    assert name is not None
    assert [*mine.all()] == [*marks(beside).all()] == [Mark(name, "s")]
    marks(beside).clear(name)
    assert [*mine.all()] == []
    mine.clear(name)
    assert [*mine.all()] == []


def test_marks_are_private(beside: Path) -> None:
    """Mark and folder are their owner's alone, whatever the user's usual mode is."""
    before = os.umask(0)
    try:
        name = marks(beside).set("s")
    finally:
        os.umask(before)
    assert mode(beside / FOLDER) == 0o700
    assert mode(place(beside, name)) == 0o600


def test_each_writer_has_its_own_mark(beside: Path) -> None:
    """Of two writers of one session, one after the other, neither takes away the other's mark."""
    mine, other = marks(beside), marks(beside)
    first, second = mine.set("s"), other.set("s")
    assert first != second
    assert {*mine.all()} == {Mark(str(first), "s"), Mark(str(second), "s")}
    mine.clear(first)
    assert [*mine.all()] == [Mark(str(second), "s")]


def test_a_namespace_sees_its_own_marks(beside: Path) -> None:
    """Sessions of one id in two namespaces are two, and nobody hears of another's."""
    here, there = marks(beside, "a"), marks(beside, "b")
    first, second = here.set("s"), there.set("s")
    assert [*here.all()] == [Mark(str(first), "s")]
    assert [*there.all()] == [Mark(str(second), "s")]
    assert [*marks(beside).all()] == []


@settings(max_examples=scaled(1000))
@given(session_ids(), session_ids() | st.just(""))
def test_any_session_can_be_marked(
    tmp_path_factory: pytest.TempPathFactory, session: str, namespace: str
) -> None:
    """Whatever a session is called, its mark lies in the folder, and names it."""
    beside = tmp_path_factory.mktemp("beside")
    mine = marks(beside, namespace)
    name = mine.set(session)
    assert name is not None
    assert os.listdir(beside) == [FOLDER]
    assert os.listdir(beside / FOLDER) == [name]
    assert [*mine.all()] == [Mark(name, session)]
    mine.clear(name)
    assert os.listdir(beside / FOLDER) == []


@pytest.mark.parametrize("character", ["x", "\U0001f600", "\ud83d", "\0"])
def test_the_longest_names_can_be_marked(beside: Path, character: str) -> None:
    """The longest id in a namespace of the longest name is read back, however it is written."""
    longest = character * ID_CHARS_MAX
    namespace = namespace_key([longest])
    name = marks(beside, namespace).set(longest)
    assert [*marks(beside, namespace).all()] == [Mark(str(name), longest)]


def test_the_longest_id_below_many_namespaces_can_be_marked(beside: Path) -> None:
    """A namespace in a namespace has a long name; its marks can be read all the same."""
    deep = namespace_key(["\U0001f600" * ID_CHARS_MAX] * 8)
    name = marks(beside, deep).set("s")
    assert [*marks(beside, deep).all()] == [Mark(str(name), "s")]


# --- what says nothing ----------------------------------------------------------------------------


def test_a_torn_mark_says_nothing(beside: Path) -> None:
    """A mark of which only the beginning was written is there for everybody, without a session."""
    mine = marks(beside, "a")
    name = str(mine.set("s"))
    whole = place(beside, name).read_bytes()
    for size in range(len(whole)):
        place(beside, name).write_bytes(whole[:size])
        assert [*mine.all()] == [*marks(beside, "b").all()] == [Mark(name, None)], size
    mine.clear(name)
    assert [*mine.all()] == []


class _DeadError(Exception):
    """The process dies here."""


def test_who_dies_in_the_middle_leaves_no_mark(beside: Path) -> None:
    """A mark is there whole or not at all: an empty one would pass for that of a dead writer."""

    def die(name: str) -> None:
        if name == "write.before":
            raise _DeadError

    crash.arm(hook=die)
    with pytest.raises(_DeadError):
        marks(beside).set("s")
    crash.arm()
    assert [*marks(beside).all()] == []
    assert marks(beside).set("s") is not None
    assert [mark.session for mark in marks(beside).all()] == ["s"]


WRONG = [
    b"",
    b"\xff",
    b"null",
    b"[]",
    b"{}",
    b'{"namespace":"","session":5}',
    b'{"namespace":5,"session":"s"}',
    b'{"session":"s"}',
    b"[" * 20_000,
]


@pytest.mark.parametrize("raw", WRONG, ids=range(len(WRONG)))
def test_what_is_no_mark_says_nothing(beside: Path, raw: bytes) -> None:
    """A mark with anything else in it is there, and names no session."""
    name = str(marks(beside).set("s"))
    place(beside, name).write_bytes(raw)
    assert [*marks(beside).all()] == [Mark(name, None)]


ODDITIES: dict[str, Callable[[Path], None]] = {
    "folder": lambda path: path.mkdir(mode=0o700),
    "full folder": lambda path: (path / "x").mkdir(parents=True),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "dangling link": lambda path: path.symlink_to("nowhere"),
    "pipe": lambda path: os.mkfifo(path, 0o600),
    "open to others": lambda path: path.touch(mode=0o644),
}


@pytest.mark.parametrize("oddity", ODDITIES)
def test_what_else_lies_there_is_in_nobodys_way(beside: Path, oddity: str) -> None:
    """Whatever lies among the marks, they are found, and it names no session and stops nobody."""
    mine = marks(beside)
    name = str(mine.set("s"))
    before = os.umask(0)
    try:
        ODDITIES[oddity](beside / FOLDER / "odd")
    finally:
        os.umask(before)
    assert {*mine.all()} == {Mark(name, "s"), Mark("odd", None)}
    mine.clear("odd")
    assert Mark(name, "s") in {*mine.all()}
    assert mine.set("t") is not None


def test_a_mark_that_is_gone_meanwhile_is_none(beside: Path) -> None:
    """A mark that its writer takes away while somebody reads on is no mark that says nothing."""
    mine = marks(beside)
    names = sorted(str(mine.set(session)) for session in "abc")
    found = mine.all()
    assert next(found).name == names[0]
    mine.clear(names[1])
    assert [mark.name for mark in found] == [names[2]]


# --- where there can be none ----------------------------------------------------------------------


def nothing_works(mine: Marks) -> None:
    """Demand that no mark can be set, none is there, and nothing is raised."""
    assert mine.set("s") is None
    assert [*mine.all()] == []
    mine.clear("some-name")
    mine.clear(None)


def test_without_a_folder_there_are_no_marks() -> None:
    """What is kept in memory has no folder, and no marks."""
    nothing_works(marks(None))


def test_a_folder_that_is_missing_is_not_made(tmp_path: Path) -> None:
    """Where the medium has not been made yet, nothing is."""
    nothing_works(marks(tmp_path / "missing"))
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("where", ["", FOLDER])
@pytest.mark.parametrize("oddity", [*({*ODDITIES} - {"folder", "full folder"}), "folder of all"])
def test_a_folder_that_is_none_has_no_marks(beside: Path, where: str, oddity: str) -> None:
    """Where something else stands in the place of a folder, it is left alone."""
    place = beside / "store" / where if where else beside / "store"
    place.parent.mkdir(mode=0o700, exist_ok=True)
    make = ODDITIES.get(oddity, Path.mkdir)
    before = os.umask(0)
    try:
        make(place)
    finally:
        os.umask(before)
    status = place.lstat()
    nothing_works(marks(beside / "store"))
    assert (place.lstat().st_ino, place.lstat().st_mode) == (status.st_ino, status.st_mode)


def test_no_mark_is_set_behind_a_link(beside: Path, tmp_path: Path) -> None:
    """A link in the place of the folder is not followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (beside / FOLDER).symlink_to(elsewhere)
    nothing_works(marks(beside))
    assert os.listdir(elsewhere) == []


def test_a_name_that_is_taken_is_left_alone(beside: Path) -> None:
    """Where chance gives two writers of a session one name, there is a mark all the same."""

    class Same(ScriptedRuntime):
        def token(self, size: int = 8) -> str:
            return "0" * size * 2

    mine = Marks(str(beside), "", Same("marks"))
    name = mine.set("s")
    assert mine.set("s") == name
    assert [*mine.all()] == [Mark(str(name), "s")]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("kind", sorted(CALLS))
def test_a_system_that_refuses_stops_nobody(beside: Path, kind: str, code: str) -> None:
    """Whatever the system refuses, nothing is raised, and afterwards everything goes on."""
    mine = marks(beside)
    for visit in range(1, 8):
        with FaultySystem(Fault(kind, visit, code, lasting=visit % 2 == 0)) as system:
            name = mine.set("s")
            found = [*mine.all()]
            assert {mark.session for mark in found} <= {"s", None}
            mine.clear(name)
            system.lift()
            for mark in [*mine.all()]:
                mine.clear(mark.name)
        assert [*mine.all()] == []
    name = mine.set("t")
    assert [*mine.all()] == [Mark(str(name), "t")]
