"""Ids that are made to meet, to lead elsewhere or to break something, as sessions and namespaces.

Every id is a session of its own, on a file of its own, below the root, on any file system: also on
one that ignores case, or that takes two spellings of a character for one.
"""

import itertools
import os
import unicodedata
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import perdure
from perdure.errors import InvalidValue, PerdureError, SessionExists, SessionNotFound
from perdure.model.identity import NAME_BYTES_MAX, escape_id, unescape_name
from perdure.store import Store
from tests.support import scaled

LONG = "x" * 1023

IDS = [
    "a" * 300,
    "a" * 299 + "b",
    *("CON", "con", "Con", "con.txt", "CON.TXT", "con.", "nul", "com1", "lpt9.log", "COM\u00b9"),
    *(
        "a:b",
        "a:",
        ":",
        "c:\\x",
        "..",
        ".",
        "...",
        "../..",
        "./a",
        "a/..",
        "/",
        "//",
        "/etc/passwd",
    ),
    *("a/b", "a\\b", "a%2fb", "%", "%%", "%2f", "%61", "a%", "~", "-rf", "*", "?", "a b", "$HOME"),
    *("日" * 90, "日" * 89 + "本", "本" * 340),
    *("A", "a", "B", "b", "AB", "Ab", "aB", "ab"),
    *("a.", "a..", ".a", "a ", " a", " ", "  ", "a\t", "\n", "\r\n", "a\x1f", "\x7f", "\x85", "\0"),
    *("a\0", "a\0b", "\ud800", "\udfff", "a\udc80", "\ud83d", "\U0001f600"),
    *("\U0001f3f3\ufe0f\u200d\U0001f308", "\U0001f3f3", "\U0001f3f3\ufe0f"),
    *("e\u0301", "\u00e9", "E\u0301", "\u00c9", "\ufb01", "fi", "FI", "\u0131", "i", "I"),
    *("\u0130", "i\u0307", "\u00df", "\u1e9e", "ss", "SS", "Ss", "\u017fs", "\u017f", "s", "S"),
    *("\u212a", "K", "k", "\u212b", "\u00c5", "\u00e5", "A\u030a", "a\u030a", "\u2126", "\u03a9"),
    *("\u03c9", "\u03c2", "\u03c3", "\u03a3", "\u00b5", "\u03bc", "\u01c6", "\u01c5", "\u01c4"),
    *("\u2460", "1", "\u00b9", "\u2163", "\u2173", "IV", "iv", "\u200b", "\u200d", "\ufeff"),
    *("a\u200b", "\u202e", "\u2028", "\u00a0", "\uff0e\uff0e", "\uff0f", "\uff41", "\uff21"),
    *(
        "sessions",
        "new",
        "ns",
        "trash",
        "blobs",
        "lock",
        "tail",
        "aside",
        "log.jsonl",
        "store.json",
    ),
    *("evidence.sqlite", ".purging-0", "000000000000000-0", "name.json", "index.sqlite", "writing"),
    LONG + "a",
    LONG + "b",
    "日" * 1023 + "a",
    "日" * 1023 + "A",
    "\ud800" * 1024,
]

FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")


def meetings(name: str) -> set[str]:
    """What a file system that is careless with names may take `name` for."""
    seen = {name}
    for form in FORMS:
        seen.add(unicodedata.normalize(form, name))
        seen.add(unicodedata.normalize(form, unicodedata.normalize(form, name).casefold()))
    # Windows drops dots and spaces at the end.
    return seen | {name.casefold(), name.upper(), name.lower(), name.rstrip(". ")}


def assert_safe_name(name: str) -> None:
    """One component that every file system takes as it is, and as nothing else."""
    assert name
    assert name.isascii()
    assert len(name) <= NAME_BYTES_MAX
    assert meetings(name) <= {name, name.upper()}
    assert name not in (".", "..")
    assert not name.startswith(".")
    assert not set(name) & set('/\\:*?"<>| \0')
    assert all(" " < character <= "~" for character in name)
    assert name.split(".", maxsplit=1)[0] not in {"con", "prn", "aux", "nul", "com1", "lpt9"}


def everything_below(folder: Path) -> list[str]:
    """Every path below a folder, none of which is a link or leads out of it."""
    found = []
    for at, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = os.path.join(at, name)
            assert not os.path.islink(path)
            assert os.path.realpath(path).startswith(f"{os.path.realpath(folder)}/")
            found.append(os.path.relpath(path, folder))
    return found


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder that holds the root of a store and nothing else."""
    place = tmp_path / "place"
    place.mkdir(0o700)
    return place


def fill(store: Store, ids: Iterable[str]) -> None:
    for number, id in enumerate(ids):
        with store.create(id) as session:
            session.append("x", {"number": number, "blob": session.put_blob(b"%d" % number)})


def data(store: Store, id: str) -> tuple[int, bytes]:
    (event,) = store.read_from(id)
    return event.data["number"], store.blob(id, event.data["blob"])


# --- names ---------------------------------------------------------------------------------------


def test_hostile_ids_are_hostile() -> None:
    """Each id of the list is there once, and many of them would meet if they were names."""
    assert len({*IDS}) == len(IDS)
    folded = [unicodedata.normalize("NFKD", id.casefold()) for id in IDS]
    assert len({*folded}) < len(IDS) - 40


def test_names_of_hostile_ids_never_meet() -> None:
    """Their names are distinct under case folding and every form of Unicode, and safe."""
    names = [escape_id(id) for id in IDS]
    for name in names:
        assert_safe_name(name)
    taken: dict[str, str] = {}
    for id, name in zip(IDS, names, strict=True):
        for other in meetings(name):
            assert taken.setdefault(other, id) == id


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=1024))
@settings(max_examples=scaled(5000))
@example("\ud800")
@example("日" * 1024)
def test_any_id_has_a_safe_name(id: str) -> None:
    """Whatever an id is made of, its name is one safe component that tells it or was shortened."""
    name = escape_id(id)
    assert_safe_name(name)
    assert unescape_name(name) == (None if "%%" in name else id)


def _neighbours(id: str) -> list[str]:
    """Ids that are nearly this one."""
    changed = [id.upper(), id.lower(), id.swapcase(), id.casefold(), id + ".", id + " ", id[:-1]]
    changed += [unicodedata.normalize(form, id) for form in FORMS]
    try:
        changed.append(escape_id(id))
    except InvalidValue:
        changed.append("")
    return [each for each in changed if 0 < len(each) <= 1024]


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=300), st.data())
@settings(max_examples=scaled(5000))
def test_any_two_ids_never_meet(one: str, drawn: st.DataObject) -> None:
    """Two ids that differ at all have names that differ for any file system."""
    near = _neighbours(one)
    texts = st.text(st.characters(exclude_categories=()), min_size=1, max_size=300)
    other = drawn.draw(st.sampled_from(near) | texts if near else texts)
    if one != other:
        assert not meetings(escape_id(one)) & meetings(escape_id(other))
    else:
        assert escape_id(one) == escape_id(other)


# --- sessions and namespaces ---------------------------------------------------------------------


@pytest.fixture(params=["sessions", "namespace"])
def inside(request: pytest.FixtureRequest) -> Callable[[Store], Store]:
    """Where sessions are: in the root, or in a namespace that is as hostile."""
    parts = () if request.param == "sessions" else ("..", "A", LONG + "a")
    return lambda store: store.namespace(*parts)


def test_hostile_ids_live_side_by_side(place: Path, inside: Callable[[Store], Store]) -> None:
    """As sessions they are stored, found, listed, deleted and restored each for itself."""
    with perdure.open(place / "root") as root:
        fill(inside(root), IDS)
    with perdure.open(place / "root") as root:
        store = inside(root)
        assert sorted(entry.id for entry in store.list()) == sorted(IDS)
        assert all(entry.problem is None for entry in store.list())
        for number, id in enumerate(IDS):
            assert data(store, id) == (number, b"%d" % number)
        with pytest.raises(SessionExists):
            store.create(IDS[5]).append("x")
        gone = IDS[::2]
        for id in gone:
            store.delete(id)
        assert sorted(entry.id for entry in store.list()) == sorted(IDS[1::2])
        assert sorted(each.id for each in store.trash()) == sorted(gone)
        for number, id in enumerate(IDS):
            if number % 2:
                assert data(store, id) == (number, b"%d" % number)
                continue
            with pytest.raises(SessionNotFound):
                store.inspect(id)
        for id in gone[::2]:
            store.restore(id)
        purged = [each.id for each in store.empty_trash()]
        assert sorted(purged) == sorted(gone[1::2])
        for number, id in enumerate(IDS):
            if id not in purged:
                assert data(store, id) == (number, b"%d" % number)
                assert store.verify(id).status == "ok"
        assert store.missing() == []
    assert [path.name for path in place.iterdir()] == ["root"]
    paths = everything_below(place / "root")
    assert len({path.casefold() for path in paths}) == len(paths)
    assert all(path.isascii() for path in paths)


def test_hostile_parts_live_side_by_side(place: Path) -> None:
    """As namespaces they are distinct, tell their names, and hold their own sessions only."""
    with perdure.open(place / "root") as root:
        for number, part in enumerate(IDS):
            for parts in ((part,), ("deep", part)):
                store = root.namespace(*parts)
                with store.create("s") as session:
                    session.append("x", [number, len(parts)])
    with perdure.open(place / "root") as root:
        assert sorted(root.namespaces()) == sorted([*IDS, "deep"])
        assert sorted(root.namespace("deep").namespaces()) == sorted(IDS)
        for number, part in enumerate(IDS):
            for parts in ((part,), ("deep", part)):
                store = root.namespace(*parts)
                assert [e.data for e in store.read_from("s")] == [[number, len(parts)]]
                assert store.inspect("s").position is not None
        for part in IDS[::2]:
            root.namespace(part).delete("s")
        for number, part in enumerate(IDS):
            assert len(root.namespace(part).list()) == number % 2
            assert len(root.namespace(part).trash()) == (number + 1) % 2
        assert root.list() == []
        for part in IDS[::2]:
            root.namespace(part).restore("s")
            assert root.namespace(part).missing() == []
    assert [path.name for path in place.iterdir()] == ["root"]
    paths = everything_below(place / "root")
    assert len({path.casefold() for path in paths}) == len(paths)


def test_parts_and_ids_are_not_mixed_up(place: Path) -> None:
    """Where a namespace ends and an id begins is never in doubt."""
    ways: list[tuple[tuple[str, ...], str]] = [
        ((), "a/b/c"),
        (("a",), "b/c"),
        (("a", "b"), "c"),
        (("a/b",), "c"),
        (("a%2fb",), "c"),
        (("a", "ns", "b"), "c"),
        (("a/ns/b",), "c"),
        (("a", "sessions"), "c"),
        (("",), "c"),
    ]
    with perdure.open(place / "root") as root:
        for number, (parts, id) in enumerate(ways):
            if "" in parts:
                with pytest.raises(InvalidValue):
                    root.namespace(*parts)
                continue
            with root.namespace(*parts).create(id) as session:
                session.append("x", number)
        for number, (parts, id) in enumerate(ways[:-1]):
            store = root.namespace(*parts)
            assert [event.data for event in store.read_from(id)] == [number]
            assert [entry.id for entry in store.list()] == [id]


@given(
    st.lists(
        st.text(st.characters(exclude_categories=()), min_size=1, max_size=60),
        min_size=2,
        max_size=4,
        unique=True,
    )
)
@settings(max_examples=scaled(200))
@example(["A", "a"])
@example(["\ud800", "\ufffd"])
def test_any_ids_live_side_by_side(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    """Any ids are sessions of their own, and namespaces of their own."""
    place = tmp_path_factory.mktemp("any")
    with perdure.open(place / "root") as root:
        fill(root, ids)
        for number, id in enumerate(ids):
            assert data(root, id) == (number, b"%d" % number)
        assert sorted(entry.id for entry in root.list()) == sorted(ids)
        for number, part in enumerate(ids[:2]):
            root.namespace(part).create("s").append("x", number)
        assert sorted(root.namespaces()) == sorted(ids[:2])
    assert [path.name for path in place.iterdir()] == ["root"]
    everything_below(place / "root")


# --- content and the trash -----------------------------------------------------------------------

HOSTILE_DIGESTS = [
    "",
    "..",
    "../" * 21 + "x",
    "/" * 64,
    "." * 64,
    "0" * 63 + "/",
    "0" * 63 + "\0",
    "0" * 63 + "G",
    "A" * 64,
    "0" * 65,
    "0" * 63 + "\n",
    "\u0660" * 64,
    "\uff10" * 64,
    f"00/{'0' * 61}",
    f".{'0' * 63}",
]


@pytest.mark.parametrize("digest", HOSTILE_DIGESTS, ids=range(len(HOSTILE_DIGESTS)))
def test_digests_lead_nowhere(place: Path, digest: str) -> None:
    """What is no digest is refused at the call, before any path is made of it."""
    with perdure.open(place / "root", index=False) as store:
        fill(store, ["s"])
        (place / "root/sessions/s/blobs/x").write_bytes(b"bait")
        before = everything_below(place)
        for call in (store.blob, store.open_blob):
            with pytest.raises(InvalidValue):
                call("s", digest)
        with store.writer("s") as session:
            for pin in (session.pin, session.unpin):
                with pytest.raises(InvalidValue):
                    pin(digest)
        assert everything_below(place) == before
        assert data(store, "s") == (0, b"0")


def test_foreign_names_beside_content_are_left_alone(place: Path) -> None:
    """What is not named as content is never listed, read or removed as content."""
    with perdure.open(place / "root") as store:
        fill(store, ["s"])
        blobs = place / "root/sessions/s/blobs"
        (shelf,) = blobs.iterdir()
        foreign = [blobs / "notes", shelf / "notes", shelf / ("f" * 63), shelf / ("F" * 64)]
        other = "0" if shelf.name[0] != "0" else "1"
        foreign.append(shelf / (other * 64))  # on the wrong shelf
        for path in foreign:
            path.write_bytes(b"mine")
            path.chmod(0o600)
        assert len(store.blobs("s")) == 1
        store.expire("s", keep_last=0)
        assert store.blobs("s") == []
        assert all(path.read_bytes() == b"mine" for path in foreign)


TRASH_IDS = [".purging-0", ".", "..", "000000000000000-00", "a/000000000000000-00", "/", "trash"]


def test_ids_do_not_steer_the_trash(place: Path) -> None:
    """An id that looks like an entry of the trash is restored and purged as what it is."""
    for first, second in itertools.permutations(TRASH_IDS, 2):
        with perdure.open(place / "root") as store:
            fill(store, [first, second])
            store.delete(first)
            store.delete(second)
            assert {each.id for each in store.trash()} == {first, second}
            assert [each.id for each in store.empty_trash(first)] == [first]
            with pytest.raises(SessionNotFound):
                store.restore(first)
            store.restore(second)
            assert data(store, second) == (1, b"1")
            store.delete(second)
            store.empty_trash()
            store.forget(first)
            store.forget(second)
            assert (store.trash(), store.list()) == ([], [])
    assert [path.name for path in place.iterdir()] == ["root"]
    everything_below(place / "root")


def test_foreign_entries_of_the_trash_hide_nothing(place: Path) -> None:
    """What somebody else put into the trash hides no deleted session and is not followed."""
    outside = place / "outside"
    outside.mkdir(0o700)
    (outside / "precious").write_bytes(b"mine")
    with perdure.open(place / "root") as store:
        fill(store, ["a", "b"])
        store.delete("a")
        trash = place / "root/trash"
        (trash / "link").symlink_to(outside)
        (trash / ".purging-link").symlink_to(outside)
        (trash / "file").write_bytes(b"x")
        (trash / "empty").mkdir(0o700)
        (trash / "a" / "not a time").mkdir(0o700)
        (trash / "a" / "link").symlink_to(outside)
        assert "a" in {each.id for each in store.trash()}
        store.delete("b")
        assert "b" in {each.id for each in store.trash()}
        store.restore("b")
        assert data(store, "b") == (1, b"1")
        try:
            store.empty_trash()
        except PerdureError as error:
            assert str(trash) in str(error)  # noqa: PT017
    assert (outside / "precious").read_bytes() == b"mine"
