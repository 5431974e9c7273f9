"""Docs are tests: their snippets run, and what they name exists."""

import ast
import json
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perdure.cli.main import COMMANDS
from perdure.views.providers import FORMATS
from tests.homes import AGENTS
from tests.postgres.fixtures import shared

if TYPE_CHECKING:
    from tests.postgres.server import Server

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
DESIGNS = sorted((ROOT / "src").rglob("DESIGN.md"))

DATABASE = "agents"
"""The database of the pages that need a server; libpq finds the server by its variables."""

ROLES = ("agent", "acme_agent")
SERVED = f"postgresql:///{DATABASE}"


def snippets(page: Path, language: str = "python") -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Callable[[str], dict[str, str]]:
    """Makes an environment for a program: with an empty database, if it names that."""

    def environment(program: str) -> dict[str, str]:
        if SERVED not in program:
            return {**os.environ}
        server: Server = request.getfixturevalue("postgres")
        server.ask(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
        server.ask(f"DROP ROLE IF EXISTS {', '.join(ROLES)}")
        server.ask(f"CREATE DATABASE {DATABASE}")
        where = {"PGHOST": str(server.sockets), "PGPORT": str(server.port), "PGUSER": "postgres"}
        return {**os.environ, **where}

    return environment


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_snippets_run_as_printed(
    page: Path, tmp_path: Path, served: Callable[[str], dict[str, str]]
) -> None:
    """The Python snippets of a page run in order, as one program, in an empty folder."""
    program = "\n".join(snippets(page))
    if not program:
        return

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        env=served(program),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


def said(text: str) -> list[str]:
    """Output without what differs from one run to the next."""
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME", text)
    text = re.sub(r"\b[0-9a-f]{12,}\b", "HEX", text)
    text = re.sub(r"\b\d{3,}\b", "NUMBER", text)
    text = re.sub(r"\b\d+[dhms]\b", "AGE", text)
    return [re.sub("  +", "  ", line).rstrip() for line in text.splitlines()]


@pytest.mark.parametrize(
    ("name", "store", "least"),
    [
        ("importing.md", "agent-sessions", 4),
        ("keeping.md", "agent-sessions", 21),
        ("moving.md", "agent-sessions", 14),
        ("postgresql.md", SERVED, 11),
    ],
)
def test_commands_print_what_the_page_shows(
    tmp_path: Path, name: str, store: str, least: int, served: Callable[[str], dict[str, str]]
) -> None:
    """The commands of a page, run in order, say what stands below them."""
    page = ROOT / "docs" / name
    code = "\n".join(snippets(page))
    place = served(code)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=place)
    if store == SERVED:
        with shared().connect(dbname=DATABASE) as connection:
            for statement in "".join(snippets(page, "sql")).rstrip(";\n").split(";"):
                connection.execute(statement.encode())
    # Not every machine has SQLite's own shell; that of apsw takes the same commands.
    for program, module in (("perdure", "perdure"), ("sqlite3", "apsw")):
        script = tmp_path / program
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {module} "$@"\n')
        script.chmod(0o755)
    (tmp_path / "claude").write_text("#!/bin/sh\n")
    (tmp_path / "claude").chmod(0o755)
    environment = {
        **{name: value for name, value in place.items() if name not in AGENTS},
        "HOME": str(tmp_path),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PERDURE_STORE": store,
    }
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = "".join(blocks).removeprefix("$ ").split("\n$ ")
    assert len(shown) >= least
    for command, _, expected in (each.partition("\n") for each in shown):
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        shown_at_home = done.stdout
        for folder, home in ((str(tmp_path), "/home/demo"), (dashed(tmp_path), "-home-demo")):
            shown_at_home = shown_at_home.replace(folder, home)
        assert (command, said(shown_at_home)) == (command, said(expected))


def dashed(folder: Path) -> str:
    """As Claude Code calls the folder of a project."""
    return str(folder).replace("/", "-")


def test_the_format_of_the_page_is_found_and_read(tmp_path: Path) -> None:
    """The example of a format, installed as the page says, is found, imported, listed, resumed."""
    page = (ROOT / "docs" / "importing.md").read_text(encoding="utf-8")
    (code,) = (each for each in snippets(ROOT / "docs" / "importing.md") if "AcmeLens" in each)
    named = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0]
    groups = tomllib.loads(named)["project"]["entry-points"]
    (tmp_path / "acme_sessions.py").write_text(code)
    package = tmp_path / "acme_sessions-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-sessions\nVersion: 1\n")
    (package / "entry_points.txt").write_text(
        "\n".join(f"[{group}]\nacme = {points['acme']}" for group, points in groups.items())
    )
    (tmp_path / "logs").mkdir()
    (line,) = re.findall(r"^`(\{\"kind\": .*\})`\.$", page, re.MULTILINE)
    answer = {**json.loads(line), "kind": "answer", "text": "hello yourself"}
    (tmp_path / "logs" / "one.acme.jsonl").write_text(f"{line}\n{json.dumps(answer)}\n")

    def perdure_says(*arguments: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "perdure", *arguments, "--json"],
            cwd=tmp_path,
            env={
                **{name: value for name, value in os.environ.items() if name not in AGENTS},
                "ACME_HOME": str(tmp_path / "logs"),
                "HOME": str(tmp_path / "nobody"),
                "PERDURE_STORE": str(tmp_path / "store"),
                "PYTHONPATH": str(tmp_path),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout)

    (source,) = perdure_says("sync")["sources"]
    assert (source["format"], source["state"], source["new"]) == ("acme", "new", 2)
    assert source["session"].startswith("acme:a-1:")
    (row,) = perdure_says("ls", "--program", "Acme")["sessions"]
    assert (row["program"], row["title"], row["last_active"]) == ("acme", "hello", answer["at"])
    messages = perdure_says("resume", row["id"], "--format", "openai-chat")["messages"]
    assert [each["content"] for each in messages] == ["hello", "hello yourself"]
    assert perdure_says("resume", row["id"])["command"] == ["acme", "--continue", "a-1"]


def test_the_example_is_twenty_lines_and_shows_a_resume(tmp_path: Path) -> None:
    """The README's first example is about 20 lines, and prints what a resumed run goes on with."""
    example = snippets(ROOT / "README.md")[0]

    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert len([line for line in example.splitlines() if line.strip()]) <= 22
    messages, plan = done.stdout.splitlines()
    assert [each["role"] for each in ast.literal_eval(messages)] == ["user", "assistant", "user"]
    assert "tool_result" in messages
    assert "1 failed: expected 4, got 5" in messages
    assert plan == "['look', 'fix']"


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


@pytest.mark.parametrize(
    "limit",
    [
        ("unkeyed", "detects accidents, not an owner who recomputes"),
        ("last record is lost together with all evidence", "goes unnoticed"),
        ("After a loss of power, evidence may be some seconds old",),
        ("Directories that the same user replaces while they are opened", "outside the boundary"),
        ("a disk that lies about fsync", "outside the boundary"),
        ("Plug-ins run with the user's rights",),
        ("Namespaces separate names, not users",),
        ("A record is at most 16 MiB",),
        ("Locks on network file systems are not to be trusted",),
        ("Opening a writer reads the log from its newest checkpoint on",),
        ("storage format is 0", "without conversion"),
    ],
    ids=lambda limit: limit[0],
)
def test_the_readme_states_every_limit(limit: tuple[str, ...]) -> None:
    """What perdure does not promise stands under Limits, in these words."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    limits = text.partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert [words for words in limit if words not in " ".join(limits.split())] == []


def test_the_readme_names_every_page_and_every_command() -> None:
    """Whoever reads the README finds each page of docs/ and each command."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if f"`docs/{page}`" not in text} == set()
    table = text.partition("\n## Commands\n")[2].partition("\n## ")[0]
    named = {words.split()[0] for words in re.findall(r"`(?:perdure )?([a-z]+)", table)}
    assert set(COMMANDS) - named == set()


def test_the_reference_cuts_no_sentence() -> None:
    """What stands as a name in a list of the reference is one, not the beginning of a sentence."""
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("## Errors")[0]
    named = re.findall(r"^- (`+.*?`+): ", text, re.MULTILINE)
    assert len(named) > 200
    assert [name for name in named if not re.fullmatch(r"`[\w.]+(, [\w.]+)*`", name)] == []
    assert re.findall(r"^- [a-z].*$", text, re.MULTILINE) == []
    for heading in ("OutputRecorder(session", "AsyncAgents(presets", "Subagent`", "UsageTotals`"):
        assert f"\n#### `{heading}" in text


def test_the_table_of_blocks_is_what_the_formats_do() -> None:
    """The catalogue says of each kind of block what a provider's form makes of it."""
    blocks: list[dict[str, Any]] = [
        {"type": "text", "text": "words"},
        {"type": "image", "blob": "0" * 64, "media_type": "image/png"},
        {"type": "file", "blob": "1" * 64, "name": "a.txt"},
        {"type": "acme", "name": "thing"},
    ]
    answer: list[dict[str, Any]] = [
        {"type": "thinking", "text": "hm", "signature": "s"},
        {"type": "thinking", "text": "unsigned"},
        {"type": "tool-call", "id": "c 1", "name": "bash", "arguments": '{"cmd": "ls"}'},
        {"type": "tool-call", "id": "c2", "name": "bash", "arguments": 5},
    ]
    failed = {"type": "tool-result", "id": "c2", "content": [], "error": {"code": "NO"}}
    messages = [
        {"role": "user", "content": blocks, "seq": 0},
        {"role": "assistant", "content": answer, "seq": 1},
        {"role": "tool", "content": [failed], "seq": 2},
    ]

    asked, said, told = FORMATS["anthropic"](messages, str.encode)
    words = [block.get("text") for block in asked["content"]]
    chat = FORMATS["openai-chat"](messages, None)
    items = FORMATS["openai-responses"](messages, str.encode)

    assert words == ["words", None, "[file a.txt]", "[acme thing]"]
    assert asked["content"][1]["source"]["type"] == "base64"
    thinking, call, odd = said["content"]
    assert thinking == {"type": "thinking", "thinking": "hm", "signature": "s"}
    assert (call["input"], odd["input"]) == ({"cmd": "ls"}, {"input": 5})
    assert call["id"].startswith("c_1_")
    assert told["content"][1]["is_error"] is True
    assert chat[0]["content"][1]["text"] == f"[image {'0' * 64}]"
    assert json.loads(chat[1]["tool_calls"][1]["function"]["arguments"]) == {"input": 5}
    assert chat[3]["content"].startswith("[error NO]")
    assert items[0]["content"][1]["type"] == "input_image"
    assert [item["type"] for item in items[1:]] == ["function_call"] * 2 + [
        "function_call_output"
    ] * 2


@pytest.mark.parametrize("name", ["reference", "events", "formats", "api"])
def test_pages_made_from_the_code_are_what_it_says(name: str) -> None:
    """A page that is made from the code was made anew after the last change."""
    made = runpy.run_path(str(ROOT / "docs" / f"{name}.py"))["page"]()

    written = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")

    pairs = zip(written.splitlines(), made.splitlines(), strict=False)
    assert (written == made, [(w, m) for w, m in pairs if w != m][:3]) == (True, []), "make docs"
