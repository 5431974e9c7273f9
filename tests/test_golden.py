"""Golden files: what a format once wrote is read for ever, in every medium."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from perdure.model.header import FORMAT
from tests.golden.make import FOLDER, MEDIA, Stopped, contents, hashes, opened

FORMATS = sorted(path for path in FOLDER.parent.iterdir() if path.name.startswith("format-"))


@pytest.fixture
def root(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of one golden store with the modes that a store has."""
    folder: Path = request.param
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return copy


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: str(folder.name))
def test_golden_files_are_as_they_were_written(folder: Path) -> None:
    """No golden file was changed, removed or added since its hash was listed."""
    listed = (folder / "SHA256SUMS").read_text(encoding="ascii").splitlines()
    sums = {name: digest for digest, name in (line.split("  ", 1) for line in listed)}

    assert sums == {name: each for name, each in hashes(folder).items() if name != "SHA256SUMS"}
    assert {name.partition("/")[0] for name in sums} == {*MEDIA, "contents.json"}


def test_the_current_format_has_golden_files() -> None:
    """Each format that was ever written has a folder; the current one is among them."""
    assert [folder.name for folder in FORMATS] == [f"format-{n}" for n in range(FORMAT + 1)]


@pytest.mark.parametrize(
    "root", [folder / medium for folder in FORMATS for medium in MEDIA], indirect=True, ids=str
)
def test_golden_stores_open(root: Path, request: pytest.FixtureRequest) -> None:
    """Each holds what it held, to the last hash; it is sound, is not changed, and goes on."""
    folder = Path(str(request.node.callspec.params["root"]))
    expected = json.loads((folder.parent / "contents.json").read_text(encoding="ascii"))
    before = hashes(root)

    with opened(folder.name, root, runtime=Stopped()) as store:
        assert contents(store) == expected
        assert not [each for each in store.list() if not store.verify(each.id).sound]
        assert hashes(root) == before
        store.restore("gone")
        for entry in store.list():
            with store.writer(entry.id) as session:
                session.append("note", "later")
            assert store.verify(entry.id).status == "ok"
        assert len(store.blob("plain", store.blobs("plain")[1].digest)) == 307_200


def test_the_list_is_of_these_hashes() -> None:
    """The list can be checked with `sha256sum -c` as well."""
    name = "contents.json"
    digest = hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
    assert f"{digest}  {name}\n" in (FOLDER / "SHA256SUMS").read_text(encoding="ascii")
