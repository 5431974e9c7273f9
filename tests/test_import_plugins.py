"""Formats and lenses of other packages: what is wrong with one costs no other, and is said."""

import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import InvalidValue, PerdureError
from perdure.importers import SourceReport, import_sessions, sync
from perdure.importers import formats as known
from perdure.importers.formats import FORMATS, broken_formats, format_names, format_of
from perdure.lenses import lens_of, registry
from perdure.lenses.registry import RESERVED, broken_lenses
from tests.sources import HEADER, Machine, data, kept, record, session_of

MODULE, LENS_MODULE = "plug_in_of_a_test", "lens_of_a_test"
LINE = b'{"plug":"a","at":7}\n'
CLAUDE_LIKELY = b'{"type":"user","message":{"content":"hi"},"plug":"b"}\n'
CODEX_SURE = b'{"type":"session_meta","payload":{"id":"c"},"plug":"c"}\n'

FORMAT = """
import perdure.importers.formats as formats

class Plug(formats.LineFormat):
    name = "plug"
    agent = "Plug"

    def matches(self, path):
        return path.endswith(".jsonl")

    def owns(self, path):
        return path.endswith("plug.jsonl")

    def recognises(self, head):
        return any("plug" in value for value in head)

    def opening(self, head, path):
        return formats.Opening(id=head[0].get("plug") if head else None, created_at=5)

    def record(self, value):
        return "line", value.get("at")
"""

LENS = """
from perdure.lenses import Lens

class Plug(Lens):
    name = "plug"
    version = 1

    def read(self, event):
        self.facts.title = "read"
        return iter(())
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with a module and the entry points of these groups."""

    def forget() -> None:
        known._others.forget()
        known._failures.clear()
        registry._others.forget()
        for module in (MODULE, LENS_MODULE):
            sys.modules.pop(module, None)

    def installed(
        text: str,
        package: str = "some-package",
        module: str = MODULE,
        **groups: dict[str, str],
    ) -> None:
        folder = tmp_path / package
        info = folder / f"{package.replace('-', '_')}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        points = "".join(
            f"[perdure.{group}]\n" + "".join(f"{name} = {at}\n" for name, at in named.items())
            for group, named in groups.items()
        )
        (info / "entry_points.txt").write_text(points)
        (folder / f"{module}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
        forget()

    yield installed
    monkeypatch.undo()
    forget()


@pytest.fixture
def store() -> Iterator[perdure.Store]:
    with perdure.open("memory:") as opened:
        yield opened


def wanting(old: str, new: str, text: str = FORMAT) -> str:
    """The module with something in it exchanged, which is there."""
    assert text.count(old) == 1
    return text.replace(old, new)


def synced(store: perdure.Store, path: Path, text: bytes, **more: Any) -> SourceReport:
    path.write_bytes(text)
    (report,) = sync(store, [path], runtime=Machine(), **more).sources
    return report


# --- what works ---------------------------------------------------------------------------------


def test_a_format_and_its_lens_of_another_package(
    install: Install, store: perdure.Store, tmp_path: Path
) -> None:
    """Files of a format that another package brings are imported, and read by its lens."""
    install(FORMAT, formats={"plug": f"{MODULE}:Plug"})
    install(LENS, package="lens", module=LENS_MODULE, lenses={"plug": f"{LENS_MODULE}:Plug"})
    assert format_names() == [*FORMATS, "plug"]
    assert broken_formats() == []
    assert (format_of("plug").name, format_of("plug").agent) == ("plug", "Plug")
    report = synced(store, tmp_path / "a.jsonl", LINE * 2)
    assert (report.format, report.state, report.new) == ("plug", "new", 2)
    assert b"".join(data(kept(store, report))) == LINE * 2
    assert [(e.type, e.time) for e in kept(store, report)] == [("plug/line", 7)] * 2
    understanding = store.inspect(session_of(report)).understanding
    assert understanding is not None
    assert (understanding.version, understanding.facts.title) == (1, "read")
    (again,) = import_sessions(store, "plug", [tmp_path / "a.jsonl"], runtime=Machine()).sources
    assert (again.session, again.state) == (report.session, "unchanged")


def test_entry_points_are_looked_up_once(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often formats and lenses are asked for, entry points are looked up once."""
    install(FORMAT, formats={"plug": f"{MODULE}:Plug"}, lenses={"plug": f"{MODULE}:Plug"})
    asked: list[str] = []
    look_up = metadata.entry_points

    def counted(*, group: str) -> Any:
        asked.append(group)
        return look_up(group=group)

    monkeypatch.setattr(registry, "entry_points", counted)
    for _ in range(3):
        assert lens_of("nobody") is None
        assert lens_of("plug") is None
        assert "plug" in format_names()
        with pytest.raises(InvalidValue):
            format_of("nobody")
    assert sorted(asked) == ["perdure.formats", "perdure.lenses"]


def test_a_format_may_keep_documents_and_files_that_are_not_read(
    install: Install, store: perdure.Store, tmp_path: Path
) -> None:
    """What another package says of a document opens it, and what it cannot read is told of."""
    database = tmp_path / "home" / "plug.db"
    more = """
    def document(self, path, start):
        return [{"plug": start.decode().split()[1]}] if path.endswith("plug.jsonl") else None

    def unread(self, environment, home):
        return {home + "/plug.db": "a database"}
"""
    install(FORMAT + more, formats={"plug": f"{MODULE}:Plug"})
    report = synced(store, tmp_path / "plug.jsonl", b"{\ninside\n}")
    assert (report.format, report.state, report.problems) == ("plug", "new", ())
    assert session_of(report).startswith("plug:inside:")
    assert [event.time for event in kept(store, report)] == [5, 5, 5]
    database.parent.mkdir()
    database.write_bytes(b"")
    (skipped,) = sync(store, runtime=Machine(HOME=str(database.parent))).sources
    assert (skipped.state, skipped.format, skipped.skipped) == ("skipped", "plug", "a database")
    assert broken_formats() == []


# --- what cannot be used ------------------------------------------------------------------------

BROKEN = {
    "no module": ("plug", "no_such_module:Plug", FORMAT, "no_such_module"),
    "no attribute": ("plug", f"{MODULE}:Nothing", FORMAT, "Nothing"),
    "no code": ("plug", f"{MODULE}:Plug", "this is no code", "SyntaxError"),
    "an exit": ("plug", f"{MODULE}:Plug", "raise SystemExit('gone')", "gone"),
    "an error": ("plug", f"{MODULE}:Plug", "class E(Exception):\n  __str__ = 1\nraise E", "E: "),
    "another class": ("plug", f"{MODULE}:Plug", "class Plug: name = 'plug'", "no subclass"),
    "no class": ("plug", f"{MODULE}:Plug", "Plug = 7", "7 is no subclass"),
    "another name": ("other", f"{MODULE}:Plug", FORMAT, "called 'plug'"),
    "no name": ("plug", f"{MODULE}:Plug", wanting('name = "plug"', "pass"), "name"),
    "no agent": ("plug", f"{MODULE}:Plug", wanting('agent = "Plug"', "agent = ''"), "agent"),
    "abstract": ("plug", f"{MODULE}:Plug", wanting("def record", "def recorded"), "record"),
    "an odd name": ("Plug!", f"{MODULE}:Plug", FORMAT, "a name has"),
    "a long name": ("p" * 65, f"{MODULE}:Plug", FORMAT, "a name has"),
    "of perdure": ("codex", f"{MODULE}:Plug", FORMAT, "itself"),
    **{name: (name, f"{MODULE}:Plug", FORMAT, "own events") for name in sorted(RESERVED)},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_a_broken_format_costs_only_itself(
    install: Install, store: perdure.Store, tmp_path: Path, broken: tuple[str, str, str, str]
) -> None:
    """What cannot be used is left out, said once with its package, and refused if named."""
    name, at, text, reason = broken
    install(text, formats={name: at})
    assert format_names() == [*FORMATS]
    report = synced(store, tmp_path / "a.jsonl", HEADER)
    assert (report.format, report.state) == ("deepseek-harness", "new")
    (wrong,) = broken_formats()
    assert isinstance(wrong, InvalidValue)
    for said in (repr(name), "some-package", reason):
        assert said in wrong.message
    assert broken_formats() == [wrong]
    if name not in FORMATS:
        with pytest.raises(InvalidValue) as refused:
            sync(store, [], formats=[name], runtime=Machine())
        assert refused.value is wrong


def test_one_broken_format_among_others(install: Install) -> None:
    """The other formats of a package, and of other packages, are used."""
    points = {"plug": f"{MODULE}:Plug", "gone": f"{MODULE}:Gone"}
    install(FORMAT, formats=points)
    assert format_names() == [*FORMATS, "plug"]
    (wrong,) = broken_formats()
    assert wrong.message == (
        "perdure.formats: 'gone' of the package some-package cannot be used: AttributeError: "
        f"module '{MODULE}' has no attribute 'Gone'"
    )


def test_two_packages_with_one_name(install: Install) -> None:
    """A name that two packages claim is neither's, and both are named."""
    install(FORMAT, formats={"plug": f"{MODULE}:Plug"})
    install(FORMAT, package="z-package", formats={"plug": f"{MODULE}:Other"})
    assert format_names() == [*FORMATS]
    (wrong,) = broken_formats()
    assert "some-package and z-package" in wrong.message


LENSES: dict[str, str] = {
    "no attribute": "",
    "another class": "class Plug: pass",
    "another name": wanting('name = "plug"', 'name = "other"', LENS),
    "no version": wanting("version = 1", "version = '1'", LENS),
    "abstract": wanting("def read", "def reads", LENS),
    "cannot be made": wanting("    def read", "    def __init__(self): 1/0\n\n    def read", LENS),
    "not begun": wanting("    def read", "    def __init__(self): pass\n\n    def read", LENS),
    "odd facts": wanting(
        "    def read", "    facts = property(lambda self: 7)\n\n    def read", LENS
    ),
}


@pytest.mark.parametrize("text", LENSES.values(), ids=LENSES)
def test_a_broken_lens_is_no_lens(
    install: Install, store: perdure.Store, tmp_path: Path, text: str
) -> None:
    """Sessions whose lens is broken are imported and inspected as those that have none."""
    install(FORMAT, formats={"plug": f"{MODULE}:Plug"})
    install(text, package="lens", module=LENS_MODULE, lenses={"plug": f"{LENS_MODULE}:Plug"})
    assert lens_of("plug") is None
    (wrong,) = broken_lenses()
    assert "'plug' of the package lens" in wrong.message
    report = synced(store, tmp_path / "a.jsonl", LINE)
    assert report.state == "new"
    understanding = store.inspect(session_of(report)).understanding
    assert understanding is not None
    assert understanding.version is None


# --- what fails while it is used ----------------------------------------------------------------


@pytest.mark.parametrize("asked", ["recognises", "owns", "opening", "record"])
def test_what_a_file_is_asked_for_fails_its_report(
    install: Install, store: perdure.Store, tmp_path: Path, asked: str
) -> None:
    """A format that fails at a file costs that file alone, and its report says who failed."""
    odd = f"def {asked}(self, *what):\n        return 1 / 0\n\n    def was_{asked}("
    install(wanting(f"def {asked}(", odd), formats={"plug": f"{MODULE}:Plug"})
    (tmp_path / "b.jsonl").write_bytes(HEADER + record("x", 1))
    (tmp_path / "a.jsonl").write_bytes(LINE if asked != "owns" else b"{}\n")
    failed, other = sync(store, [tmp_path], runtime=Machine()).sources
    assert (other.format, other.state) == ("deepseek-harness", "new")
    assert failed.state == "failed"
    assert type(failed.error) is PerdureError
    assert failed.error.message == (
        f"the format 'plug' of the package some-package failed in `{asked}`: "
        "ZeroDivisionError: division by zero"
    )


def test_who_fails_keeps_no_file_from_others(
    install: Install, store: perdure.Store, tmp_path: Path
) -> None:
    """Files that a format of perdure's own would take are imported where another's fails."""
    odd = "def recognises(self, *what):\n        return 1 / 0\n\n    def was("
    install(wanting("def recognises(", odd), formats={"plug": f"{MODULE}:Plug"})
    report = synced(store, tmp_path / "a.jsonl", CLAUDE_LIKELY)
    assert (report.format, report.state) == ("claude-code", "new")


@pytest.mark.parametrize("answer", ["1 / 0", "7", "[7]"])
@pytest.mark.parametrize(
    "asked",
    [
        *("matches", "folders", "command", "superseded_by", "lists", "titled", "companions"),
        *("document", "unread"),
    ],
)
def test_what_concerns_many_files_fails_quietly(
    install: Install,
    store: perdure.Store,
    tmp_path: Path,
    asked: str,
    answer: str,
) -> None:
    """A format that fails elsewhere, or says what has no sense, is said once and stops nothing."""
    odd = f"\n    def {asked}(self, *what):\n        return {answer}\n"
    text = FORMAT
    if asked == "matches":
        text = wanting("def matches", "def matched", text)
    if asked == "titled":
        odd += "\n    def lists(self, path):\n        return True\n"
    install(text + odd, formats={"plug": f"{MODULE}:Plug"})
    (tmp_path / "a.jsonl").write_bytes(HEADER)
    (tmp_path / "plug.jsonl").write_bytes(LINE)
    first, second = sync(store, [tmp_path], runtime=Machine()).sources
    assert (first.state, second.state) == ("new", "new")
    assert sync(store, runtime=Machine(HOME=str(tmp_path / "home"))).sources == ()
    assert format_of("plug").command("x") is None
    wrong = broken_formats()
    if answer == "1 / 0":
        (failed,) = wrong
        assert f"`{asked}`: ZeroDivisionError" in failed.message
    assert len(wrong) == (answer == "1 / 0" or asked not in ("matches", "lists"))
    assert broken_formats() == wrong


def exits(*asked: str) -> str:
    """Methods that would end the process that asks."""
    return "".join(
        f"\n    def {each}(self, *what):\n        raise SystemExit(0)\n" for each in asked
    )


@pytest.mark.parametrize("asked", ["owns", "recognises", "opening", "record"])
def test_a_format_that_exits_fails_the_file(
    install: Install, store: perdure.Store, tmp_path: Path, asked: str
) -> None:
    """A format of others that ends the process as it is asked of a file ends its import."""
    install(FORMAT + exits(asked), formats={"plug": f"{MODULE}:Plug"})
    (tmp_path / "a.jsonl").write_bytes(LINE)
    (tmp_path / "b.jsonl").write_bytes(HEADER)
    sources = sync(store, [tmp_path], runtime=Machine()).sources
    failed, other = sources
    if asked == "owns":
        # Only what nothing else tells is told by the path.
        (tmp_path / "c.jsonl").write_bytes(b'{"x":1}\n')
        *_, failed = sync(store, [tmp_path], runtime=Machine()).sources
    assert (failed.state, other.state) == ("failed", "new")
    assert f"failed in `{asked}`: SystemExit" in str(failed.error)


@pytest.mark.parametrize(
    "asked", ["matches", "folders", "command", "superseded_by", "lists", "companions", "document"]
)
def test_a_format_that_exits_elsewhere_says_nothing(
    install: Install, store: perdure.Store, tmp_path: Path, asked: str
) -> None:
    """Where all files are asked about, a format that ends the process is told and passed over."""
    install(FORMAT + exits(asked), formats={"plug": f"{MODULE}:Plug"})
    (tmp_path / "a.jsonl").write_bytes(HEADER)
    (tmp_path / "b.jsonl").write_bytes(LINE)
    assert sync(store, [tmp_path], runtime=Machine()).states == {"new": 2}
    assert sync(store, runtime=Machine(HOME=str(tmp_path / "home"))).sources == ()
    assert format_of("plug").command("x") is None
    (told,) = broken_formats()
    assert f"`{asked}`: SystemExit" in told.message


def test_an_interrupt_is_nobodys_to_catch(
    install: Install, store: perdure.Store, tmp_path: Path
) -> None:
    """What a person ends while a format is asked ends the import."""
    text = FORMAT + exits("record").replace("SystemExit(0)", "KeyboardInterrupt")
    install(text, formats={"plug": f"{MODULE}:Plug"})
    with pytest.raises(KeyboardInterrupt):
        synced(store, tmp_path / "a.jsonl", LINE)


@pytest.mark.parametrize(
    "answer",
    ["path", "path[:-7] + ('b.jsonl' if path.endswith('a.jsonl') else 'a.jsonl')", "'/dev/null'"],
    ids=["itself", "each other", "elsewhere"],
)
def test_a_format_supersedes_none_but_its_own_files(
    install: Install, store: perdure.Store, tmp_path: Path, answer: str
) -> None:
    """No file stands for itself, none for one that stands for it, and none for other formats'."""
    odd = f"\n    def superseded_by(self, path):\n        return {answer}\n"
    install(FORMAT + odd, formats={"plug": f"{MODULE}:Plug"})
    (tmp_path / "a.jsonl").write_bytes(LINE)
    (tmp_path / "b.jsonl").write_bytes(LINE)
    (tmp_path / "c.jsonl").write_bytes(HEADER)
    assert sync(store, [tmp_path], runtime=Machine()).states == {"new": 3}


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("record", "7"),
        ("record", "('x', 1.5)"),
        ("record", "(7, 1)"),
        ("record", "('x', 2**60)"),
        ("record", "('x', True)"),
        ("opening", "None"),
        ("opening", "formats.Opening(id=7)"),
        ("opening", "formats.Opening(cwd=b'/')"),
        ("opening", "formats.Opening(created_at=1.5)"),
        ("opening", "formats.Opening(created_at=-5)"),
        ("opening", "formats.Opening(depth='x')"),
        ("opening", "formats.Opening(relation='cousin')"),
    ],
)
def test_odd_answers_about_a_file_fail_its_report(
    install: Install, store: perdure.Store, tmp_path: Path, asked: str, answer: str
) -> None:
    """What makes no header or event ends in the report of the file, as a typed error."""
    odd = f"def {asked}(self, *what):\n        return {answer}\n\n    def was_{asked}("
    install(wanting(f"def {asked}(", odd), formats={"plug": f"{MODULE}:Plug"})
    report = synced(store, tmp_path / "a.jsonl", LINE)
    assert report.state == "failed"
    assert isinstance(report.error, PerdureError)


# --- in which order -----------------------------------------------------------------------------


def test_what_is_certain_goes_first(install: Install, store: perdure.Store, tmp_path: Path) -> None:
    """Sure signs of perdure's own go before formats of others, and those before likely signs."""
    install(FORMAT, formats={"plug": f"{MODULE}:Plug"})
    likely = CLAUDE_LIKELY.replace(b"plug", b"other")
    for name, text, format_name in (
        ("a.jsonl", CLAUDE_LIKELY, "plug"),
        ("b.jsonl", likely, "claude-code"),
        ("plug.jsonl", likely, "plug"),
        ("c.jsonl", CODEX_SURE, "codex"),
        ("d.plug.jsonl", CODEX_SURE, "codex"),
    ):
        report = synced(store, tmp_path / name, text)
        assert (name, report.format, report.state) == (name, format_name, "new")
