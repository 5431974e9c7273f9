"""Artifacts go beside the log and out of it again, and never out of the folder they are put in."""

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perdure
from perdure.durable.files import Folder
from perdure.errors import (
    ContentDamaged,
    ContentExpired,
    InvalidValue,
    SessionDamaged,
    SessionNotFound,
    StorageFull,
    UnsafeFile,
)
from perdure.store import Store
from perdure.store.artifacts import NAME_CHARS_MAX, check_name
from tests.media import ALL, open_medium
from tests.support import scaled

BAD_NAMES = [
    "",
    "/etc/passwd",
    "//x",
    "..",
    "../x",
    "a/../../x",
    "a/..",
    ".",
    "./x",
    "a/./x",
    "a//x",
    "a/",
    "/",
    "a\\b",
    "..\\x",
    "C:x",
    "C:/x",
    "a:b",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "a\x85b",
    "a\u2028b",
    "a\u200fb",
    "a\u061cb",
    "gnp\u202exe",
    "a\ud800",
    "CON",
    "con.txt",
    "a/Lpt1",
    "nul.tar.gz",
    "x.",
    "x/y. ",
    " x",
    "x ",
    "a?b",
    "a*b",
    'a"b',
    "<a>",
    "a|b",
    "x" * 256,
    "é" * 128,
    "a/" * 600 + "x",
]
GOOD_NAMES = ["a", "plots/loss.png", ".gitignore", "a/b/c/d", "console", "日本語/é.txt", "-rf", "~"]


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_medium(request.param, tmp_path) as store:
        yield store


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[Store]:
    with open_medium("raw", tmp_path, index=False) as store:
        yield store


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def claim(store: Store, *names: Any, value: bytes = b"x") -> None:
    """Write a log that claims artifacts of these names, as a log of somebody else may."""
    with store.create("s") as session:
        blob = session.put_blob(value)
        for name in names:
            session.append("artifact/saved", {"name": name, "blob": blob, "size": len(value)})


def test_what_is_saved_is_listed_and_read(store: Store) -> None:
    """An artifact is listed with what is known of it, the newest of a name, and read in parts."""
    with store.create("s") as session:
        first = session.save_artifact("plots/loss.png", b"old", "image/png")
        assert first[2:] == (3, "image/png", 0)
        session.save_artifact("plots/loss.png", io.BytesIO(b"new one"), agent="x", turn="t")
        large = session.save_artifact("a.bin", [b"part" * 100] * 7_000)
        assert large.size == 2_800_000
    event = next(store.read_from("s", 1))
    assert (event.type, event.agent, event.turn) == ("artifact/saved", "x", "t")
    listed = store.artifacts("s")
    assert [(each.name, each.size, each.media_type, each.seq) for each in listed] == [
        ("a.bin", 2_800_000, None, 2),
        ("plots/loss.png", 7, None, 1),
    ]
    assert b"".join(store.open_artifact("s", "plots/loss.png")) == b"new one"
    assert sum(map(len, store.open_artifact("s", "a.bin"))) == 2_800_000
    assert store.blob("s", first.blob) == b"old"
    with pytest.raises(InvalidValue):
        store.open_artifact("s", "nothing")
    for ask in (store.artifacts, lambda id: store.open_artifact(id, "x")):
        with pytest.raises(SessionNotFound):
            ask("nobody")


@pytest.mark.parametrize("name", [*BAD_NAMES, None, 5, b"x", ["a"]])
def test_bad_names_are_not_saved(name: Any) -> None:
    """A name that leads out of a folder, or is none of a file everywhere, is refused at saving."""
    with perdure.open("memory:") as store, store.create("s") as session:
        with pytest.raises(InvalidValue) as refused:
            session.save_artifact(name, b"x")
        assert refused.value.path == "name"
        assert session.position.seq == -1
        assert not session._put


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_good_names_are_saved_and_written(tmp_path: Path, name: str) -> None:
    """Every name that is taken can be written out again."""
    with perdure.open("memory:") as store:
        with store.create("s") as session:
            session.save_artifact(name, b"x")
        assert store.extract("s", tmp_path / "out").written == (name,)
    assert tree(tmp_path / "out") == {name: b"x"}


@pytest.mark.parametrize(
    ("value", "media_type", "path"),
    [
        ("text", None, "value"),
        (5, None, "value"),
        ([b"a", "b"], None, "value"),
        (b"", "image", "media_type"),
        (b"", "a/b\nc", "media_type"),
        (b"", 5, "media_type"),
    ],
)
def test_bad_values_are_not_saved(value: Any, media_type: Any, path: str) -> None:
    """What is no content, or no media type, is refused, and no event comes of it."""
    with perdure.open("memory:") as store, store.create("s") as session:
        with pytest.raises(InvalidValue) as refused:
            session.save_artifact("a", value, media_type)
        assert refused.value.path == path
        assert session.position.seq == -1


def test_extraction_writes_private_files(store: Store, tmp_path: Path) -> None:
    """Artifacts become files of mode 0600 in folders of mode 0700, with the bytes that they had."""
    with store.create("s") as session:
        session.save_artifact("a/b/c.txt", b"c" * 3_000_000)
        session.save_artifact("d.txt", b"")
    out = tmp_path / "new" / "out"
    done = store.extract("s", str(out))
    assert done == (("a/b/c.txt", "d.txt"), ())
    assert tree(out) == {"a/b/c.txt": b"c" * 3_000_000, "d.txt": b""}
    assert {path.stat().st_mode & 0o777 for path in out.rglob("*") if path.is_file()} == {0o600}
    folders = [out, *(path for path in out.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in folders} == {0o700}


def test_only_what_is_named_is_written(raw: Store, tmp_path: Path) -> None:
    """With names, the others stay behind; a name that there is not is told."""
    with raw.create("s") as session:
        for name in "abc":
            session.save_artifact(name, name.encode())
    done = raw.extract("s", tmp_path / "out", ["c", "z", "a", "c"])
    assert done.written == ("c", "a")
    assert done.skipped == (("z", "there is no artifact 'z'"),)
    assert sorted(tree(tmp_path / "out")) == ["a", "c"]
    with pytest.raises(InvalidValue):
        raw.extract("s", tmp_path / "out", "abc")


@pytest.mark.parametrize("name", [name for name in BAD_NAMES if name])
def test_hostile_names_stay_in_the_log(tmp_path: Path, name: str) -> None:
    """What a log of somebody else claims writes nothing outside the folder, and is told."""
    with perdure.open("memory:") as store:
        claim(store, name, "good")
        done = store.extract("s", tmp_path / "in" / "out", overwrite=True)
    assert done.written == ("good",)
    assert [each.name for each in done.skipped] == [name]
    assert tree(tmp_path) == {"in/out/good": b"x"}


@settings(max_examples=scaled(500), deadline=None)
@given(st.text(st.sampled_from("./\\a:\0 C~\u202e\ud800") | st.characters(), max_size=12))
def test_no_name_leads_out(name: str) -> None:
    """Whatever the name, its parts are plain components of a relative path, or it is refused."""
    try:
        parts = check_name(name)
    except InvalidValue:
        return
    assert "/".join(parts) == name
    for part in parts:
        assert part not in ("", ".", "..")
        assert len(os.fsencode(part)) <= 255
        assert not {"/", "\\", "\0", ":"} & set(part)
    assert len(name) <= NAME_CHARS_MAX
    assert os.path.normpath(os.path.join("/out", name)) == f"/out/{name}"


def test_nothing_is_overwritten_unasked(raw: Store, tmp_path: Path) -> None:
    """A file that is there stays, whatever it is, until overwriting is asked for."""
    with raw.create("s") as session:
        session.save_artifact("a", b"ours")
        session.save_artifact("b", b"ours")
    out = tmp_path / "out"
    out.mkdir()
    (out / "a").write_bytes(b"theirs")
    done = raw.extract("s", out)
    assert done.written == ("b",)
    assert done.skipped == (("a", f"{out / 'a'} exists already"),)
    assert tree(out) == {"a": b"theirs", "b": b"ours"}
    assert raw.extract("s", out, overwrite=True).written == ("a", "b")
    assert tree(out) == {"a": b"ours", "b": b"ours"}


def test_links_are_not_followed(raw: Store, tmp_path: Path) -> None:
    """Neither a link in place of a file nor one in place of a folder leads out of the folder."""
    with raw.create("s") as session:
        for name in ("file", "folder/x", "pipe"):
            session.save_artifact(name, b"ours")
    out, away = tmp_path / "out", tmp_path / "away"
    out.mkdir()
    away.mkdir(mode=0o700)
    (away / "target").write_bytes(b"theirs")
    (out / "file").symlink_to(away / "target")
    (out / "folder").symlink_to(away, target_is_directory=True)
    os.mkfifo(out / "pipe")
    for overwrite in (False, True):
        done = raw.extract("s", out, overwrite=overwrite)
        assert done.written == ()
        assert [each.name for each in done.skipped] == ["file", "folder/x", "pipe"]
    assert tree(away) == {"target": b"theirs"}
    assert (out / "file").is_symlink()


def test_folders_of_others_are_not_written_into(raw: Store, tmp_path: Path) -> None:
    """A folder in which others may write is refused; one within it that others may read is told."""
    with raw.create("s") as session:
        session.save_artifact("open/x", b"ours")
        session.save_artifact("y", b"ours")
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    (out / "open").mkdir(mode=0o755)
    done = raw.extract("s", out)
    assert done.written == ("y",)
    assert "lets others in" in done.skipped[0].reason
    out.chmod(0o777)
    with pytest.raises(UnsafeFile):
        raw.extract("s", out)


def test_names_that_meet_are_told(raw: Store, tmp_path: Path) -> None:
    """A file and a folder of one name cannot both be: the second is told, the first stays."""
    claim(raw, "a", "a/b", "c/d", "c")
    done = raw.extract("s", tmp_path / "out", overwrite=True)
    assert done.written == ("a", "c")
    assert [each.name for each in done.skipped] == ["a/b", "c/d"]


def test_names_that_differ_in_case_are_told(
    raw: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the disk ignores case, the second of two names does not take the first one's place."""
    claim(raw, "README", "readme")
    for method in ("stat", "move", "create"):
        real = getattr(Folder, method)

        def lowered(self: Folder, *given: Any, real: Any = real) -> Any:
            return real(self, *(x.lower() if isinstance(x, str) else x for x in given))

        monkeypatch.setattr(Folder, method, lowered)
    done = raw.extract("s", tmp_path / "out", overwrite=True)
    assert done.written == ("README",)
    assert "the disk ignores case" in done.skipped[0].reason


def test_what_expired_or_is_damaged_is_told(raw: Store, tmp_path: Path) -> None:
    """What is not there any more, or has other bytes, is told with the reason; the rest comes."""
    with raw.create("s") as session:
        saved = {name: session.save_artifact(name, name.encode()) for name in ("a", "bad", "z")}
        session.pin(saved["bad"].blob, saved["z"].blob)
        session.append("artifact/saved", {"name": "none", "blob": "no digest", "size": 1})
    raw.expire("s", keep_last=0)
    blob = saved["bad"].blob
    path = Path(str(raw.locate("s"))).parent / "blobs" / blob[:2] / blob
    path.write_bytes(b"other")
    done = raw.extract("s", tmp_path / "out")
    assert done.written == ("z",)
    reasons = dict(done.skipped)
    assert list(reasons) == ["a", "bad", "none"]
    assert "is not stored any more" in reasons["a"]
    assert "is damaged" in reasons["bad"]
    assert "names no content" in reasons["none"]
    assert tree(tmp_path / "out") == {"z": b"z"}
    for name, error in (("a", ContentExpired), ("bad", ContentDamaged)):
        with pytest.raises(error):
            list(raw.open_artifact("s", name))


def test_a_full_disk_ends_it(raw: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the disk is full, what was written stays, and nothing is half there."""
    claim(raw, "a", "b", value=b"x" * 100)
    real = Folder.create
    made: list[str] = []

    def create(self: Folder, name: str, data: Any) -> None:
        made.append(name)
        if len(made) > 2:
            raise StorageFull(name, "no space left")
        real(self, name, data)

    monkeypatch.setattr(Folder, "create", create)
    with pytest.raises(StorageFull):
        raw.extract("s", tmp_path / "out")
    assert tree(tmp_path / "out") == {"a": b"x" * 100}


def test_a_name_taken_meanwhile_is_left_alone(
    raw: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that somebody makes while its artifact is written is not replaced."""
    claim(raw, "a")
    out = tmp_path / "out"
    real = Folder.create

    def create(self: Folder, name: str, data: Any) -> None:
        if name == "a":
            (out / "a").write_bytes(b"theirs")
        real(self, name, data)

    monkeypatch.setattr(Folder, "create", create)
    done = raw.extract("s", out)
    assert done.skipped == (("a", f"{out / 'a'} exists already"),)
    assert tree(out) == {"a": b"theirs"}


def test_malformed_events_are_no_artifacts(store: Store) -> None:
    """An event that does not say what it should is skipped, and hides no other."""
    with store.create("s") as session:
        for data in (None, 5, {}, {"name": 5, "blob": "x", "size": 1}, {"name": "a"}):
            session.append("artifact/saved", data)
        session.save_artifact("good", b"x")
    assert [each.name for each in store.artifacts("s")] == ["good"]


def test_damaged_sessions_are_refused(raw: Store, tmp_path: Path) -> None:
    """Nothing is written out of a log that does not hold together."""
    claim(raw, "a", "b")
    log = Path(str(raw.locate("s")))
    log.write_bytes(log.read_bytes().replace(b'"name":"b"', b'"name":"c"'))
    with pytest.raises(SessionDamaged):
        raw.extract("s", tmp_path / "out")
    assert not (tmp_path / "out").exists()
