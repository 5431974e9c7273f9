"""Rules about the code itself, each with the snippets that must break it."""

import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import tidy
from tests.tidy import Checker, Module

ROOT = Path(__file__).resolve().parent.parent
DURABLE = "src/perdure/durable"
RUNTIME = "src/perdure/runtime.py"
TESTING = "src/perdure/testing"

FILE_BYTES_MAX = 1024 * 1024


@cache
def parsed(path: Path) -> Module:
    return Module.parse(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())


@pytest.fixture(scope="module", autouse=True)
def forgotten() -> Iterator[None]:
    """What was parsed is kept for these tests alone: all others would walk it in collections."""
    yield
    parsed.cache_clear()


def modules(*folders: str, outside: Iterable[str] = ()) -> list[Module]:
    """Return the parsed modules below `folders`, without those below `outside`."""
    paths = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return [module for module in map(parsed, paths) if not module.below(*outside)]


def complaints(checker: Checker, checked: Iterable[Module]) -> list[str]:
    return [complaint for module in checked for complaint in checker(module)]


def files() -> list[Path]:
    """Return what git tracks or would track; without git, what looks like it."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        output = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        ignored = {".git", *(ROOT / ".gitignore").read_text(encoding="utf-8").split("/\n")}
        inside = [path.relative_to(ROOT) for path in ROOT.rglob("*")]
        paths = [ROOT / path for path in inside if ignored.isdisjoint(path.parts)]
    else:
        paths = [ROOT / name for name in output.decode().split("\0") if name]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


# --- size and shape -----------------------------------------------------------------------------


def test_functions_fit_a_screen() -> None:
    """Every function has at most 70 lines."""
    assert complaints(tidy.long_functions, modules("src")) == []


def test_modules_can_be_read_at_once() -> None:
    """Every module has at most 500 lines."""
    assert complaints(tidy.long_modules, modules("src")) == []


def test_lines_are_short() -> None:
    """Every line has at most 100 characters."""
    assert complaints(tidy.long_lines, modules("src", "tests", "benchmarks")) == []


def test_modules_say_what_they_are_for() -> None:
    """Every module starts with a docstring."""
    assert complaints(tidy.missing_docstring, modules("src", "benchmarks")) == []


def test_modules_say_what_is_public() -> None:
    """Every public module that binds a name has an __all__."""
    assert complaints(tidy.missing_all, modules("src")) == []


def test_nothing_is_left_unfinished() -> None:
    """No mark of unfinished work is in the code."""
    assert complaints(tidy.unfinished_work, modules("src")) == []


def test_names_say_what_is_inside() -> None:
    """No module or package is named after being of use."""
    assert complaints(tidy.vague_names, modules("src", "tests", "benchmarks")) == []


# --- what may be done where ---------------------------------------------------------------------


def test_only_the_durable_layer_writes_files() -> None:
    """Files are written, renamed, removed and given modes by perdure.durable alone."""
    assert complaints(tidy.file_writes, modules("src", outside=[DURABLE, TESTING])) == []


def test_only_the_runtime_reads_the_outside_world() -> None:
    """Clock, randomness, process and environment are read by perdure.runtime alone."""
    assert complaints(tidy.world_readers, modules("src", outside=[RUNTIME, TESTING])) == []


def test_checks_survive_optimised_mode() -> None:
    """No assert is in production code, because python -O removes it."""
    assert complaints(tidy.asserts, modules("src", outside=[TESTING])) == []


def test_stored_data_never_runs_code() -> None:
    """Nothing imports sqlite3, pickle or marshal, and nothing calls eval or exec."""
    assert complaints(tidy.stored_code, modules("src", "tests", "benchmarks")) == []


def test_every_crash_window_has_a_name() -> None:
    """A function of perdure.durable that changes the disk names a crash point."""
    assert complaints(tidy.unnamed_crash_windows, modules(DURABLE)) == []


def test_crash_points_are_told_apart() -> None:
    """No two crash points share a name."""
    points = [point for module in modules("src") for point in tidy.crash_points(module)]
    counts = Counter(name for name, _place in points)
    assert [place for name, place in points if counts[name] > 1] == []


# --- tests, documents and files -----------------------------------------------------------------


def test_tests_state_their_requirement() -> None:
    """The first line of every test is a sentence."""
    assert complaints(tidy.tests_without_requirement, modules("tests")) == []


def test_tests_wait_for_signals() -> None:
    """No test sleeps."""
    assert complaints(tidy.sleeps, modules("tests")) == []


def test_design_pages_have_their_headings() -> None:
    """Every DESIGN.md has Purpose, Invariants, Crash story and Trade-offs."""
    pages = sorted((ROOT / "src").rglob("DESIGN.md"))
    missing = {page: tidy.missing_headings(page.read_text(encoding="utf-8")) for page in pages}
    assert {page: headings for page, headings in missing.items() if headings} == {}


def test_files_are_small() -> None:
    """No file of the repository is larger than 1 MiB."""
    assert [path for path in files() if path.stat().st_size > FILE_BYTES_MAX] == []


def test_files_do_not_know_where_they_lie() -> None:
    """No file of the repository holds the path of the checkout."""
    mention = tidy.mention_of_folder(ROOT.as_posix())
    assert [path for path in files() if mention.search(path.read_bytes())] == []


def test_requirements_name_no_address() -> None:
    """The pinned requirements hold hashes, and no address of where they were found."""
    text = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    assert re.findall(r".*(?://|--index|--find-links).*", text) == []
    assert not (ROOT / "uv.lock").exists()


def test_requirements_repeat_the_dependencies() -> None:
    """The development requirements ask for exactly what the package asks for, and tools."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    required = (ROOT / "requirements/dev.in").read_text(encoding="utf-8").split("\n\n")[0]
    lines = [line for line in required.splitlines() if not line.startswith("#")]
    assert lines == project["dependencies"]


# --- the checkers themselves --------------------------------------------------------------------

LONG_FUNCTION = "def f():\n" + "    a = 1\n" * 70

IN_DURABLE = "import os\nfrom perdure.durable import crash\n"

BAD = [
    (tidy.long_functions, LONG_FUNCTION),
    (tidy.long_functions, "class C:\n    async " + LONG_FUNCTION.replace("\n", "\n    ").strip()),
    (tidy.long_modules, "a = 1\n" * 501),
    (tidy.long_lines, "a = 1  # " + "x" * 92),
    (tidy.missing_docstring, "a = 1"),
    (tidy.missing_all, '"""Purpose."""\na = 1'),
    (tidy.unfinished_work, "a = 1  # TO" + "DO: later"),
    (tidy.unfinished_work, '"""FIX' + 'ME."""'),
    (tidy.asserts, "def f(a):\n    assert a"),
    (tidy.stored_code, "import sqlite3"),
    (tidy.stored_code, "def f():\n    from pickle import loads"),
    (tidy.stored_code, "eval('1')"),
    (tidy.world_readers, "import time\ntime.time()"),
    (tidy.world_readers, "import time as t\nnow = t.time_ns"),
    (tidy.world_readers, "from datetime import datetime\ndatetime.now()"),
    (tidy.world_readers, "import os\nos.environ['A']"),
    (tidy.world_readers, "from os import getenv"),
    (tidy.world_readers, "import random"),
    (tidy.sleeps, "import time\ntime.sleep(1)"),
    (tidy.sleeps, "from time import sleep"),
    (tidy.file_writes, "open('a', 'w')"),
    (tidy.file_writes, "open('a', mode='r+b')"),
    (tidy.file_writes, "def f(mode):\n    open('a', mode)"),
    (tidy.file_writes, "from pathlib import Path\nPath('a').open('ab')"),
    (tidy.file_writes, "import gzip\ngzip.open('a', 'wb')"),
    (tidy.file_writes, "import os\nos.open('a', os.O_WRONLY | os.O_CREAT)"),
    (tidy.file_writes, "from os import open, O_RDWR\nopen('a', O_RDWR)"),
    (tidy.file_writes, "import os\nwrite = os.write"),
    (tidy.file_writes, "from os import rename as move"),
    (tidy.file_writes, "import shutil"),
    (tidy.file_writes, "path.write_text('a')"),
    (tidy.file_writes, "path.write_bytes(b'a')"),
    (tidy.file_writes, "path.mkdir(parents=True)"),
    (tidy.file_writes, "path.touch()"),
    (tidy.file_writes, "path.unlink(missing_ok=True)"),
    (tidy.file_writes, "path.rename(other)"),
    (tidy.file_writes, "path.replace(target=other)"),
    (tidy.tests_without_requirement, "def test_a():\n    pass"),
    (tidy.tests_without_requirement, "class T:\n    def test_a(self):\n        '''A fragment'''"),
    (tidy.unnamed_crash_windows, "import os\ndef f():\n    os.fsync(1)"),
    (
        tidy.unnamed_crash_windows,
        IN_DURABLE + "def f(name):\n    crash.point(name)\n    os.write(1, b'')",
    ),
    (
        tidy.unnamed_crash_windows,
        IN_DURABLE + "def f():\n    def g():\n        os.rename('a', 'b')\n    crash.point('a')",
    ),
]

GOOD = [
    (tidy.long_functions, LONG_FUNCTION.removesuffix("    a = 1\n")),
    (tidy.long_functions, "@d\n" * 70 + "def f(): ..."),
    (tidy.missing_all, '"""Purpose."""'),
    (tidy.missing_all, '"""Purpose."""\n__all__: list[str] = []\na = 1'),
    (tidy.asserts, "def f(a):\n    if not a:\n        raise ValueError(a)"),
    (tidy.stored_code, "import apsw\nconnection.exec('select 1')"),
    (tidy.world_readers, "import time\ntime.perf_counter()"),
    (tidy.world_readers, "from datetime import datetime\ndatetime.fromtimestamp(0)"),
    (tidy.world_readers, "runtime.time()"),
    (tidy.file_writes, "open('a')\nopen('a', 'rb')"),
    (tidy.file_writes, "import os\nos.open('a', os.O_RDONLY | os.O_NOFOLLOW)"),
    (tidy.file_writes, "store.open('memory:')\nstore.open(url)"),
    (tidy.file_writes, "text.replace('a', 'b')\nmoment.replace(hour=0)"),
    (tidy.file_writes, "session.rename(title='a')"),
    (tidy.tests_without_requirement, "def test_a():\n    '''It holds.'''"),
    (
        tidy.unnamed_crash_windows,
        IN_DURABLE + "def f():\n    crash.point('a')\n    os.fsync(1)",
    ),
]


@pytest.mark.parametrize(("checker", "text"), BAD)
def test_checkers_see_what_is_wrong(checker: Checker, text: str) -> None:
    """A checker complains of a snippet that breaks its rule."""
    assert list(checker(Module.parse(text))) != []


@pytest.mark.parametrize(("checker", "text"), GOOD)
def test_checkers_let_pass_what_is_right(checker: Checker, text: str) -> None:
    """A checker has nothing to say about a snippet that keeps its rule."""
    assert list(checker(Module.parse(text))) == []


def test_checker_sees_vague_names() -> None:
    """A module or a package named after being of use is seen."""
    paths = ["src/perdure/utils.py", "src/perdure/helpers/files.py", "src/perdure/store/_common.py"]
    found = [complaints(tidy.vague_names, [Module.parse("", path)]) for path in paths]
    assert [len(each) for each in found] == [1, 1, 1]
    assert complaints(tidy.vague_names, [Module.parse("", "src/perdure/model/event.py")]) == []


def test_checker_leaves_private_modules_alone() -> None:
    """A private module and __main__ need no __all__."""
    private = [Module.parse("a = 1", f"src/perdure/{name}.py") for name in ("_a", "__main__")]
    assert complaints(tidy.missing_all, private) == []


def test_checker_reads_crash_points() -> None:
    """Crash points are found under each name they are imported by."""
    text = (
        "from perdure.durable import crash\nfrom perdure.durable.crash import point as p\n"
        "crash.point('a')\np('b')\ncrash.point(name)"
    )
    assert [name for name, _place in tidy.crash_points(Module.parse(text))] == ["a", "b"]


def test_checker_sees_missing_headings() -> None:
    """A heading that a DESIGN.md lacks is named, whatever the level of those it has."""
    text = "# Files\n## Purpose\n### Invariants\n\nCrash story\n## Trade-offs\n"
    assert tidy.missing_headings(text) == ["Crash story"]


def test_checker_sees_where_the_checkout_lies() -> None:
    """The path of a folder is found whole, and not in the path of another folder."""
    mention = tidy.mention_of_folder("/home/ann/perdure")
    assert mention.search(b"root = '/home/ann/perdure/src'")
    assert mention.search(b"file:///home/ann/perdure")
    assert not mention.search(b"/home/ann/perdure-old")
    assert not tidy.mention_of_folder("/src").search(b"see /src/perdure")
