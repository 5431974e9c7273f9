"""An import takes no more memory than it may, however long the source is, or a line in it."""

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.proof.summary import tabulate
from tests.support import SOAK, scaled

pytestmark = pytest.mark.proof

MB = 1_000_000
PEAK_MAX = 300 * MB
FILE_BYTES = scaled(500) * MB
LINE_BYTES = 50 * MB
SESSION = "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
HEAD_LINES_MAX = 50
"""So many lines are always read, to know the format."""

CHILD = """
import json, re, sys
from perdure.importers import incremental, source, sync
from perdure.store import open_store

parsed, parse = 0, source.parse

def counted(raw, **more):
    global parsed
    parsed += 1
    return parse(raw, **more)

incremental.parse = source.parse = counted
# As the command line does it: what was imported is indexed by who asks next.
with open_store(sys.argv[1], index=False) as store:
    (report,) = sync(store, sys.argv[2:]).sources
    if report.error is not None:
        raise report.error
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
found = [report.state, report.found, report.new, report.large]
print(json.dumps([*found, int(peak[1]) * 1024, parsed]))
"""


class Run(NamedTuple):
    """What became of a file in a process that imported it: the report, and what it took.

    Attributes:
        peak: the most memory of the process, in bytes.
        parsed: lines that were read as JSON.

    """

    state: str
    found: int
    new: int
    large: int
    peak: int
    parsed: int


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[Path], Run]]:
    """Import a file in a process of its own, into one store; what it left is removed."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not tell the peak memory of a process")
    store = tmp_path / "store"

    def imported(path: Path) -> Run:
        command = [sys.executable, "-c", CHILD, str(store), str(path)]
        # Its peak would not begin anew without exec, which a fork that imports would inherit.
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return Run(*json.loads(done.stdout))

    yield imported
    for path in sorted(tmp_path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def written(path: Path, size: int) -> int:
    """Write a file of lines as Claude Code writes them; how many. The same each time."""
    rng = random.Random(7)
    words = [f"{rng.getrandbits(rng.randrange(8, 40)):x}" for _ in range(400)]
    count = 0
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(line(count, " ".join(rng.choices(words, k=rng.randrange(5, 240)))))
            count += 1
    return count


def line(number: int, text: str) -> bytes:
    role = ("user", "assistant")[number % 2]
    record = {
        "parentUuid": f"{number - 1:08x}-0000-4000-8000-000000000000" if number else None,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/srv/app",
        "sessionId": SESSION,
        "version": "2.1.39",
        "gitBranch": "main",
        "type": role,
        "message": {"role": role, "content": [{"type": "text", "text": text}]},
        "uuid": f"{number:08x}-0000-4000-8000-000000000000",
        "timestamp": f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}.000Z",
    }
    return json.dumps(record).encode() + b"\n"


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def test_a_long_file_is_imported_in_bounded_memory(
    tmp_path: Path, run: Callable[[Path], Run]
) -> None:
    """Importing a file, again, and once more when it grew by a line, keeps to the bound.

    In a tenth of the size what is measured is carried on to the full one. What was stored before
    is not parsed again.
    """
    small, large = tmp_path / "small.jsonl", tmp_path / "large.jsonl"
    sizes = {small: FILE_BYTES // 10, large: FILE_BYTES}
    found: dict[Path, dict[str, Run]] = {}
    for path, size in sizes.items():
        count = written(path, size)
        runs = found[path] = {"new": run(path), "unchanged": run(path)}
        append(path, line(count, "one more"))
        runs["grown"] = run(path)
        assert [one.state for one in runs.values()] == [*runs]
        assert [(one.found, one.new) for one in runs.values()] == [
            *((count, count), (count, 0), (count + 1, 1))
        ]
        assert runs["new"].parsed >= count
        assert runs["unchanged"].parsed == 0
        assert runs["grown"].parsed <= HEAD_LINES_MAX + 1
    peaks = {
        state: found[large][state].peak
        if SOAK
        else carried_on(*(found[path][state].peak for path in sizes))
        for state in found[large]
    }
    tabulate(
        "peak memory of imports, MB",
        {
            f"{path.stat().st_size // MB} MB": {s: one.peak // MB for s, one in runs.items()}
            for path, runs in found.items()
        },
    )
    assert max(peaks.values()) <= PEAK_MAX, peaks


def carried_on(small: int, large: int) -> int:
    """The peak at ten times the larger size, from those at a tenth of it and at it."""
    return large + (large - small) * 10


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        (b'"content":"', b'"'),
        (b'"content":[{"type":"image","source":{"data":"', b'"}}]'),
    ],
    ids=["text", "nested"],
)
def test_a_long_line_is_imported_in_bounded_memory(
    tmp_path: Path, run: Callable[[Path], Run], begin: bytes, end: bytes
) -> None:
    """A line of 50 MB among others is stored in the same bound, and not read again behind that."""
    path = tmp_path / "line.jsonl"
    path.write_bytes(line(0, "before"))
    append(path, b'{"type":"user","sessionId":"%s","message":{' % SESSION.encode())
    append(path, begin + b"0123456789" * (LINE_BYTES // 10) + end + b"}}\n" + line(1, "behind"))
    runs = {"new": run(path), "unchanged": run(path)}
    append(path, line(2, "one more"))
    runs["grown"] = run(path)
    assert [one.state for one in runs.values()] == [*runs]
    assert [(one.found, one.new, one.large) for one in runs.values()] == [
        *((3, 3, 1), (3, 0, 1), (4, 1, 1))
    ]
    tabulate("peak memory, MB", {"a line of 50 MB": {s: r.peak // MB for s, r in runs.items()}})
    assert max(one.peak for one in runs.values()) <= PEAK_MAX
