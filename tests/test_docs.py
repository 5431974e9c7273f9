"""Docs are tests: their snippets run, and what they name exists."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
DESIGNS = sorted((ROOT / "src").rglob("DESIGN.md"))


def snippets(page: Path) -> list[str]:
    return re.findall(
        r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run_as_printed(page: Path, tmp_path: Path) -> None:
    """The Python snippets of a page run in order, as one program, in an empty folder."""
    program = "\n".join(snippets(page))
    if not program:
        return

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_is_twenty_lines_and_shows_how_the_turn_is_closed(tmp_path: Path) -> None:
    """The README's first example is about 20 lines, and ends as the text below it says."""
    example = snippets(ROOT / "README.md")[0]

    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert len([line for line in example.splitlines() if line.strip()]) <= 22
    *_, result, end = done.stdout.splitlines()
    assert "tool/result" in result
    assert "TOOL_OUTCOME_UNKNOWN" in result
    assert end.split(" ", 1)[1] == "turn/end {'reason': 'interrupted'}"


@pytest.mark.parametrize("page", [*PAGES, *DESIGNS], ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_the_docs_name_exist(page: Path) -> None:
    """A path in a doc that looks like one of the project's files leads to one."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:src|docs|tests|benchmarks)/[\w./-]+)`", text))

    missing = sorted(name for name in named if not (ROOT / name).exists())

    assert missing == []


def test_the_readme_states_guarantees_limits_and_how_to_read_the_source() -> None:
    """A newcomer finds what is promised, what is not, and where to start reading."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")

    for heading in ("## Two commands", "## Guarantees", "## Limits", "## Reading the source"):
        assert heading in text
    for limit in ("unkeyed", "goes unnoticed", "16 MiB", "lies about fsync", "same user"):
        assert limit in text


def test_the_reference_is_what_the_code_says() -> None:
    """docs/reference.md is made from the code and was made anew after the last change."""
    made = runpy.run_path(str(ROOT / "docs" / "reference.py"))["page"]()

    written = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")

    pairs = zip(written.splitlines(), made.splitlines(), strict=False)
    assert (written == made, [(w, m) for w, m in pairs if w != m][:3]) == (True, []), "make docs"
