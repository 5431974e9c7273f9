"""The folder in which the tests make theirs is one that they can work in."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "scratch.sh"


def told(**environment: str) -> Path:
    done = subprocess.run(
        ["sh", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    (line,) = done.stdout.splitlines()
    return Path(line)


def test_one_folder_is_named_and_nothing_left_there(tmp_path: Path) -> None:
    """The script names a folder in which files can be made, and leaves nothing in it."""
    found = told(PERDURE_SCRATCH=str(tmp_path), TMPDIR=str(tmp_path))
    assert found == tmp_path
    assert [*tmp_path.iterdir()] == []
    assert os.access(told(), os.W_OK)


@pytest.mark.parametrize("place", ["nothing", "file", "no/folder"])
def test_without_memory_it_is_the_usual_one(tmp_path: Path, place: str) -> None:
    """Where there is no such folder in memory, the usual one is named."""
    (tmp_path / "file").write_bytes(b"")
    usual = tmp_path / "usual"
    assert told(PERDURE_SCRATCH=str(tmp_path / place), TMPDIR=str(usual)) == usual
