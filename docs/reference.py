"""Writes `docs/reference.md` from the code: `python docs/reference.py`. A test compares them."""

import inspect
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import click

import perdure
import perdure.aio
from perdure import conversations, embedding, errors, importers, lenses
from perdure.cli.exits import EXIT_CODES
from perdure.cli.main import cli
from perdure.http import tokens
from perdure.importers import following, formats, stored_lines, taking_up
from perdure.model.vocabulary import PAYLOADS
from perdure.store import abstract, imported, state

PAGE = Path(__file__).parent / "reference.md"
_CLASSES = (
    perdure.Store,
    perdure.Session,
    perdure.Turn,
    perdure.Step,
    perdure.OutputRecorder,
    perdure.Agents,
    perdure.State,
    perdure.Inspection,
    perdure.Prepared,
    perdure.View,
    perdure.Rows,
    perdure.Vocabulary,
)
_VALUES = (
    perdure.Event,
    perdure.Header,
    perdure.Position,
    perdure.Entry,
    perdure.Holder,
    perdure.Problem,
    perdure.Report,
    perdure.Blob,
    perdure.Aside,
    perdure.Expiry,
    perdure.Compacted,
    perdure.Trashed,
    perdure.Missing,
    perdure.Copied,
    perdure.NotCopied,
    perdure.Resumed,
    perdure.Branch,
    perdure.Relative,
    perdure.Artifact,
    perdure.Extracted,
    perdure.Skipped,
    perdure.Damage,
    perdure.Parent,
    perdure.Source,
)
_HELD = tuple(
    kind for kind in (getattr(state, name) for name in state.__all__) if kind is not perdure.State
)
"""What the attributes of a state hold."""

_TASKS = (
    perdure.aio.AsyncStore,
    perdure.aio.AsyncSession,
    perdure.aio.AsyncTurn,
    perdure.aio.AsyncStep,
    perdure.aio.AsyncOutputRecorder,
    perdure.aio.AsyncAgents,
    perdure.aio.AsyncInspection,
    perdure.aio.AsyncPrepared,
    perdure.aio.Pages,
)
_IMPORTS = (
    importers.sync,
    importers.import_sessions,
    importers.places,
    following.whereabouts,
    importers.source_text,
    stored_lines.source_bytes,
    taking_up.taking_up,
    abstract.abstract_of,
)
_OF_IMPORTS = (
    following.Follower,
    importers.ImportReport,
    importers.SourceReport,
    importers.SourceProblem,
    importers.Progress,
    following.Whereabouts,
    taking_up.TakingUp,
    taking_up.Check,
    abstract.Abstract,
    imported.Understanding,
    lenses.SourceFacts,
    lenses.Lens,
    importers.LineFormat,
    formats.Opening,
    formats.Command,
)
_MADE_BY_USERS = (
    conversations.Conversations,
    tokens.Tokens,
    following.Follower,
    perdure.OutputRecorder,
    perdure.Agents,
    perdure.Vocabulary,
    perdure.aio.AsyncOutputRecorder,
    perdure.aio.AsyncAgents,
)
"""Classes that a program calls itself; of the others something gives it an object."""

_OF_FINDING = (
    perdure.Listing,
    perdure.Found,
    perdure.Hit,
    perdure.Coverage,
    perdure.Stats,
    perdure.Refreshed,
    perdure.Projection,
    perdure.Embedded,
    embedding.Embedder,
)

_OF_SERVING = (
    conversations.Conversations,
    conversations.Principal,
    conversations.Conversation,
    conversations.RunningTurn,
    conversations.Message,
    conversations.MessagePage,
    conversations.Accepted,
    conversations.Profile,
    tokens.Tokens,
    tokens.Token,
)

_INNER = frozenset(
    {"admit", "begin_in_child", "fold", "full", "keep", "needs_reading", "settle", "spawn"}
)
"""What perdure says to itself."""


def page() -> str:
    """The whole page."""
    parts = [
        "# Reference",
        "Made from the code by `docs/reference.py`; do not edit.",
        *_python(),
        *_tasks(),
        *_finding(),
        *_serving(),
        *_imports(),
        *_events(),
        *_errors(),
        *_commands(),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _python() -> Iterator[str]:
    yield "## Python"
    yield f"### `perdure.open{_signature(perdure.open)}`"
    yield _prose(perdure.open)
    for kind in _CLASSES:
        yield f"### `{kind.__name__}`"
        yield _prose(kind)
        yield from _members(kind)
    for value in (each for each in _VALUES if each not in _HELD):
        yield f"### `{value.__name__}`"
        yield _prose(value)
        yield from _members(value)
    yield "### What the attributes of `State` hold"
    yield "They come out of `State`; a program makes none itself."
    for value in _HELD:
        yield f"#### `{value.__name__}`"
        yield _prose(value)


def _tasks() -> Iterator[str]:
    yield "## Python, for tasks"
    yield "Import `perdure.aio` for these. They work under asyncio and, with `perdure[trio]`, trio."
    yield f"### `perdure.aio.open{_signature(perdure.aio.open)}`"
    yield _prose(perdure.aio.open)
    for kind in _TASKS:
        yield f"### `{kind.__name__}`"
        yield _prose(kind)
        yield from _members(kind)


def _finding() -> Iterator[str]:
    yield "## Python, for listing and search"
    yield "What these are for stands in `finding.md` and `meaning.md`."
    yield f"### `perdure.embedding.embedder_of{_signature(embedding.embedder_of)}`"
    yield _prose(embedding.embedder_of)
    for kind in _OF_FINDING:
        yield f"### `{kind.__name__}`"
        yield _prose(kind)
        yield from _members(kind)


def _serving() -> Iterator[str]:
    yield "## Python, for many users"
    yield "What these are for stands in `conversations.md` and `http.md`."
    for kind in _OF_SERVING:
        public = kind.__name__ in conversations.__all__
        module = conversations.__name__ if public else kind.__module__
        yield f"### `{kind.__name__}`, of `{module}`"
        yield _prose(kind)
        yield from _members(kind)


def _imports() -> Iterator[str]:
    yield "## Python, for sessions of other agents"
    yield "What these are for stands in `importing.md`."
    for call in _IMPORTS:
        public = call.__name__ in importers.__all__
        module = importers.__name__ if public else call.__module__
        yield f"### `{module}.{call.__name__}{_signature(call)}`"
        yield _prose(call)
    for kind in _OF_IMPORTS:
        yield f"### `{kind.__name__}`, of `{kind.__module__}`"
        yield _prose(kind)
        yield from _members(kind)


def _members(kind: type) -> Iterator[str]:
    """How it is made, and what it, and what it is built from, defines beside its fields."""
    if kind in _MADE_BY_USERS:
        yield f"#### `{kind.__name__}{_signature(kind)}`"
        yield _prose(kind.__init__)
    told = set(_INNER)
    bases = [base for base in kind.__mro__ if base.__module__.startswith("perdure.")]
    for name, member in (each for base in bases for each in vars(base).items()):
        if name.startswith("_") or name in told or not inspect.getdoc(member):
            continue
        told.add(name)
        if isinstance(member, property | cached_property):
            yield f"#### `{kind.__name__}.{name}`"
            yield _prose(member)
        elif inspect.isfunction(member):
            yield f"#### `{kind.__name__}.{name}{_signature(member)}`"
            yield _prose(member)


def _signature(call: object) -> str:
    signature = inspect.signature(call)  # type: ignore[arg-type]
    parameters = [p for name, p in signature.parameters.items() if name != "self"]
    bare = signature.replace(
        parameters=[p.replace(annotation=inspect.Parameter.empty) for p in parameters],
        return_annotation=inspect.Signature.empty,
    )
    return re.sub(r"<perdure\.runtime\.Runtime object at \w+>", "SYSTEM", str(bare))


_NAMES = re.compile(r"([\w.]+(?:, [\w.]+)*): ")


def _prose(thing: object) -> str:
    """A docstring; its sections (`Attributes:`, `Raises:`) become lists.

    An item begins with names and a colon, or is a sentence, and goes on in lines that are indented
    further or that begin in small letters.
    """
    out: list[str] = []
    for line in (inspect.getdoc(thing) or "").splitlines():
        text = line.strip()
        names = _NAMES.match(text)
        if line.startswith("        ") or (
            line.startswith("    ") and not names and text[0].islower()
        ):
            out[-1] += f" {text}"
        elif line.startswith("    "):
            out.append(f"- `{names[1]}`: {text[names.end() :]}" if names else f"- {text}")
        else:
            out.append(f"{line}\n" if line in ("Raises:", "Attributes:") else line)
    return "\n".join(out)


def _events() -> Iterator[str]:
    yield "## Events"
    yield (
        f"The {len(PAYLOADS)} types of the vocabulary `perdure/1` stand in `events.md`, each with "
        "its members, its meaning and who reads it."
    )


def _errors() -> Iterator[str]:
    yield "## Errors"
    yield "All descend from `perdure.errors.PerdureError` and carry `message`, `hint`, `retryable`."
    rows = ["| class | code | retryable | exit code | when |", "|---|---|---|---|---|"]
    for name in errors.__all__:
        kind = getattr(errors, name)
        when = " ".join((kind.__doc__ or "").split())
        retryable = "yes" if kind.retryable else "no"
        rows.append(f"| `{name}` | `{kind.code}` | {retryable} | {EXIT_CODES[kind]} | {when} |")
    yield "\n".join(rows)


def _commands() -> Iterator[str]:
    yield "## Commands"
    context = click.Context(
        cli, info_name="perdure", terminal_width=88, help_option_names=["-h", "--help"]
    )
    yield f"```text\n{cli.get_help(context)}\n```"
    for path, command in _walk(cli, context, "perdure"):
        yield f"### `{path}`"
        inner = click.Context(
            command, info_name=path, terminal_width=88, help_option_names=["-h", "--help"]
        )
        yield f"```text\n{command.get_help(inner)}\n```"


def _walk(
    group: click.Group, context: click.Context, path: str
) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None:
            continue
        yield f"{path} {name}", command
        if isinstance(command, click.Group):
            yield from _walk(command, context, f"{path} {name}")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
