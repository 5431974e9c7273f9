"""docs/contract.md and the tests that it names hold each other."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contract.md"
FOLDERS = (ROOT / "tests", ROOT / "src/perdure/testing/contract")
PAGES = {"deepseek-harness": [*range(1, 53)], "heinzel": [*range(1, 21)]}

EXEMPT_MAX = 12
TO_COME: set[tuple[str, int]] = set()
"""Behaviours whose parts are being built. Their tests, once there, take the words' place."""

Case = tuple[str, int]


class Row(NamedTuple):
    case: Case
    behaviour: str
    shown: str

    @property
    def tests(self) -> list[str]:
        return re.findall(r"`([\w:]+::test_\w+)`", self.shown)


def rows() -> list[Row]:
    found = []
    source = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            source = line[3:]
        elif match := re.fullmatch(r"\| (\d+) \| (.+?) \| (.+) \|", line):
            found.append(Row((source, int(match[1])), match[2], match[3]))
    return found


def cases_in(comment: str) -> Iterator[Case]:
    """The cases in a comment such as `deepseek-harness 3, 4; heinzel 6; case 24`."""
    for part in comment.split(";"):
        if match := re.fullmatch(r"(deepseek-harness|heinzel) (\d+(?:, \d+)*)", part.strip()):
            yield from ((match[1], int(number)) for number in match[2].split(", "))


def read_tests(path: Path) -> Iterator[tuple[str, str]]:
    """The name of each test in a module, and its source."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    for node in ast.parse(text).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for each in inside:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                source = "\n".join(lines[each.lineno - 1 : each.end_lineno])
                if each.name.startswith("test_"):
                    yield f"{path.stem}::{owner}{each.name}", source


def marked() -> dict[str, set[Case]]:
    """Each test of the project, and the cases that its comments name."""
    found: dict[str, set[Case]] = {}
    for path in sorted(path for folder in FOLDERS for path in folder.rglob("*.py")):
        for name, source in read_tests(path):
            assert name not in found, "two tests have one name"
            comments = re.findall(r"^\s*# (.+)$", source, re.MULTILINE)
            found[name] = {case for comment in comments for case in cases_in(comment)}
    return found


def test_every_behaviour_stands_on_the_page_once() -> None:
    """The page has every number of both lists, in order, and something to say about each."""
    expected = [(source, number) for source, numbers in PAGES.items() for number in numbers]

    assert [row.case for row in rows()] == expected
    assert [row.case for row in rows() if len(row.behaviour) < 20] == []


def test_what_the_page_names_shows_it() -> None:
    """Every test that is named exists, and has the number in a comment."""
    known = marked()

    missing = [(row.case, name) for row in rows() for name in row.tests if name not in known]
    unmarked = [
        (row.case, name)
        for row in rows()
        for name in row.tests
        if name in known and row.case not in known[name]
    ]

    assert (missing, unmarked) == ([], [])


def test_whatever_a_comment_names_is_on_the_page() -> None:
    """A number in a comment of a test is one of the page's, and its row names a test."""
    shown = {row.case for row in rows() if row.tests}

    strays = {name: cases - shown for name, cases in marked().items() if cases - shown}

    assert strays == {}, "name the test in docs/contract.md"


def test_a_row_names_tests_or_says_why_not() -> None:
    """Nothing is left open: tests and nothing else, or a reason, or what it waits for."""
    for row in rows():
        if row.tests:
            assert row.shown == ", ".join(f"`{name}`" for name in row.tests), row.case
        else:
            assert re.match(r"(does not apply|to come): .{8,}", row.shown), row.case


def test_few_behaviours_do_not_apply() -> None:
    """At most twelve rows say that they do not apply, and only what is being built is to come."""
    exempt = [row.case for row in rows() if row.shown.startswith("does not apply: ")]
    waiting = {row.case for row in rows() if row.shown.startswith("to come: ")}

    assert len(exempt) <= EXEMPT_MAX
    assert waiting == TO_COME


@pytest.mark.parametrize(
    ("comment", "cases"),
    [
        ("heinzel 6", {("heinzel", 6)}),
        ("deepseek-harness 3, 14; case 24", {("deepseek-harness", 3), ("deepseek-harness", 14)}),
        ("heinzel 2; cases 2 to 4", {("heinzel", 2)}),
        ("what heinzel 6 says", set()),
    ],
)
def test_comments_are_read(comment: str, cases: set[Case]) -> None:
    """The form of comment that tests carry is understood, and prose is not taken for it."""
    assert set(cases_in(comment)) == cases
