"""Content in a directory store: its files, their damage, and what failures leave of them."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import perdure
from perdure.durable import crash
from perdure.errors import ContentDamaged, PerdureError, StorageFull, UnsafeFile

VALUE = b"content " * 50_000
DIGEST = hashlib.sha256(VALUE).hexdigest()


@pytest.fixture(params=["raw", "zst"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[perdure.Store]:
    with perdure.open(tmp_path / "store", encoding=request.param) as opened:
        yield opened


def stored(store: perdure.Store) -> Path:
    """The file of some content that an event refers to."""
    with store.create("s") as session:
        session.append("x", {"blob": session.put_blob(VALUE)})
    path = Path(str(store.locate("s"))).parent / "blobs" / DIGEST[:2] / DIGEST
    assert path.read_bytes() == VALUE
    return path


def test_content_is_private(store: perdure.Store) -> None:
    """Files of content are 0600 in folders 0700, and hold the bytes and nothing else."""
    path = stored(store)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [folder.stat().st_mode & 0o777 for folder in path.parents[:2]] == [0o700, 0o700]
    assert [p.name for p in path.parent.parent.rglob("*") if p.is_file()] == [DIGEST]


@pytest.mark.parametrize("harm", ["flip", "cut", "empty", "longer", "valid"])
def test_damaged_content_is_told(store: perdure.Store, harm: str) -> None:
    """Other bytes than the digest names are refused, whole and in parts; the log is sound."""
    # heinzel 15
    path = stored(store)
    changed = {
        "flip": VALUE[:-1] + b"!",
        "cut": VALUE[:-1],
        "empty": b"",
        "longer": VALUE + b"more",
        "valid": b"other content",
    }[harm]
    path.write_bytes(changed)
    with pytest.raises(ContentDamaged) as damaged:
        store.blob("s", DIGEST)
    assert (damaged.value.session, damaged.value.digest) == ("s", DIGEST)
    given: list[bytes] = []
    with pytest.raises(ContentDamaged):
        given.extend(store.open_blob("s", DIGEST))
    assert len(b"".join(given)) < len(changed) or not changed
    assert store.verify("s").status == "ok"

    with store.writer("s") as session:
        session.put_blob(VALUE)
    assert store.blob("s", DIGEST) == VALUE


@pytest.mark.parametrize("kind", ["link", "hard link", "mode", "folder"])
def test_content_that_is_not_ours_is_not_opened(
    store: perdure.Store, tmp_path: Path, kind: str
) -> None:
    """A link, a file open to others, or another kind of file is refused by name."""
    path = stored(store)
    other = tmp_path / "elsewhere"
    other.write_bytes(VALUE)
    other.chmod(0o600)
    path.unlink()
    if kind == "link":
        path.symlink_to(other)
    elif kind == "hard link":
        os.link(other, path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.write_bytes(VALUE)
        path.chmod(0o644)
    with pytest.raises(UnsafeFile) as refused:
        store.blob("s", DIGEST)
    assert DIGEST in refused.value.path


def test_leftovers_are_neither_content_nor_kept(store: perdure.Store) -> None:
    """Half-written content of a writer that died is not listed, and goes with the next expiry."""
    path = stored(store)
    left = path.parent.parent / ".0123456789abcdef"
    left.write_bytes(b"half")
    left.chmod(0o600)
    (path.parent / "README").write_bytes(b"not a digest")
    assert [blob.digest for blob in store.blobs("s")] == [DIGEST]
    store.expire("s")
    assert not left.exists()
    assert path.exists()


def test_what_a_crash_spares_expires_again(store: perdure.Store) -> None:
    """Written down as expired and still there, content is right, and goes when it expires again."""
    path = stored(store)

    def die(name: str) -> None:
        if name == "remove.before":
            raise KeyboardInterrupt

    crash.arm(hook=die)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.expire("s", keep_last=0)
    finally:
        crash.arm()
    assert store.blob("s", DIGEST) == VALUE
    assert [event.type for event in store.read_from("s")] == ["x", "content/expired"]
    assert store.expire("s").expired == ()

    assert [blob.digest for blob in store.expire("s", keep_last=0).expired] == [DIGEST]
    assert not path.exists()


@pytest.mark.parametrize(
    "point", ["write.before", "sync.before", "folder.sync", "move.before", "file.open"]
)
def test_content_survives_a_refused_first_commit(
    store: perdure.Store, tmp_path: Path, point: str
) -> None:
    """Content put before the first event stays for the retry, or the writer dies and says so."""
    left = 0

    def full(name: str) -> None:
        nonlocal left
        left -= name == point
        if name == point and left == 0:
            raise OSError(28, os.strerror(28))

    lost: list[bool] = []
    for at in range(1, 30):
        id, session = f"s{at}", store.create(f"s{at}")
        data = {"blob": session.put_blob(VALUE)}
        crash.arm(hook=full)
        left = at
        try:
            session.append("x", data)
        except StorageFull:
            crash.arm()
            assert session.append("x", data).seq == 0
        except PerdureError as error:
            lost.append([event.data for event in getattr(error, "lost", ())] == [data])
            lost.append(session.closed)
            continue
        finally:
            crash.arm()
        assert store.blob(id, DIGEST) == VALUE
        session.close()
        assert store.verify(id).status == "ok"
        if left > 0:
            break
    assert all(lost)
    assert list((tmp_path / "store/new").iterdir()) == []


def test_abandoned_content_leaves_nothing(store: perdure.Store, tmp_path: Path) -> None:
    """A session that was given content and no event is gone with its writer."""
    with store.create("s") as session:
        session.put_blob(VALUE)
        assert len(list((tmp_path / "store/new").iterdir())) == 1
    assert list((tmp_path / "store/new").iterdir()) == []
    assert store.list() == []
