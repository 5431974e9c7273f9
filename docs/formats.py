"""Writes `docs/formats.md` from the samples: `python docs/formats.py`. A test compares them."""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import perdure
from perdure.importers import FORMATS, format_of, sync
from perdure.importers.following import whereabouts
from perdure.lenses import lens_of
from perdure.runtime import Runtime

PAGE = Path(__file__).parent / "formats.md"
_DATA = Path(__file__).parent.parent / "tests" / "data"

_INTRODUCTION = """# Formats that are imported

Made from the samples in `tests/data` by `docs/formats.py`; do not edit.

What is kept is every line of a file, whether or not anybody knows what it means. What is *understood* is
another matter: the lens of a format reads its records as events of perdure's vocabulary (`events.md`), so
that they can be listed, shown, resumed and given to another agent. Records that it does not know, or that
say nothing of the conversation, are kept as they are and told of as *raw*; a better lens reads them later,
from what is stored. `store.inspect(id).understanding` has these numbers for each session; its `facts.gaps` is
how many records others name as what they follow, though they are not in the file. An image is told of as a
text, `[image image/png]`: its bytes are kept in its line, and nowhere else.

The last column says how many of the records that are messages, calls or results the lens could read. Not read
are those that are not as their kind should be, and those that it left raw, if their kind is named like one:
with `message`, `prompt`, `call`, `result`, `output` or `response` in it. Some of these are for the screen, and
say again what another record says; they count as not read all the same. A record that is read, and says again
what another one said, counts as read, and is told of once. The samples are fixtures of public
projects, from several versions of each agent; real sessions have other proportions."""

_SAYS = re.compile("message|prompt|call|result|output|response", re.IGNORECASE)
"""In the name of a kind: its records are messages, calls or results."""

_ABOUT = {
    "claude-code": "Transcripts of sessions, files of sub-agents in their old and new places, and the "
    "history of prompts. Beside a session its large outputs (`tool-results/`) and the journals of "
    "workflows are kept, beside a sub-agent what describes it (`.meta.json`).",
    "codex": "Rollouts of all generations, compressed or not, and the history of prompts and the list of "
    "titles, each as a session of its own. The titles also reach the sessions that they name. A whole "
    "session as one JSON object, as the first versions wrote it, is read in one line or over many. What "
    "the screen showed of a call (`event_msg/…_end` and its like) says again what a `response_item` of "
    "the same id says, or alone tells of a call and its result, which are then no messages. Most ids in "
    "the samples are the same text, put there when they were trimmed, so that most of these events count "
    "here as saying something again.",
    "deepseek-harness": "Session logs, plain or in Zstandard frames. A row of packed chunks is one record. "
    "Databases (`.db`, `.sqlite`, `.sqlite3`) in its folder and beside its sessions are not read: each is told of "
    "as skipped.",
}


class _Home(Runtime):
    """A machine on which no variable says where anything is."""

    def environment(self, name: str) -> str | None:
        """Only a home, as people write it."""
        return "~" if name == "HOME" else None


class _Found(NamedTuple):
    """What the samples of a format have come to."""

    files: int
    read: Counter[str]
    raw: Counter[str]
    told: int
    missed: int

    def unread(self) -> Counter[str]:
        """How many records of each kind were left raw that is named like a message or a call.

        Of kinds that are read otherwise, those that could not be are `missed`.
        """
        kinds = (kind for kind in self.raw if not self.read[kind])
        named = (kind for kind in kinds if _SAYS.search(kind.partition("/")[2] or kind))
        return Counter({kind: self.raw[kind] for kind in named})


def page() -> str:
    """The whole page."""
    found = _found()
    parts = [_INTRODUCTION, "\n".join(_overview(found))]
    for name in FORMATS:
        parts += _section(name, found[name])
    return "\n\n".join(parts) + "\n"


def _found() -> dict[str, _Found]:
    found = {name: _Found(0, Counter(), Counter(), 0, 0) for name in FORMATS}
    with perdure.open("memory:") as store:
        for source in sync(store, [_DATA], formats=list(FORMATS)).sources:
            if source.session is None:
                continue
            said = store.inspect(source.session).understanding
            if said is None:
                continue
            files, read, raw, told, missed = found[said.format]
            read.update(said.understood)
            raw.update(said.raw)
            found[said.format] = _Found(
                files + 1, read, raw, told + said.told, missed + said.missed
            )
    return found


def _overview(found: dict[str, _Found]) -> Iterator[str]:
    yield "| format | agent | samples | records | understood | raw | messages, calls, results read |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for name, each in found.items():
        read, raw = each.read.total(), each.raw.total()
        counts = f"{each.files} | {read + raw} | {read} | {raw}"
        yield f"| `{name}` | {format_of(name).agent} | {counts} | {_share(each)} |"


def _share(found: _Found) -> str:
    whole = found.told + found.missed + found.unread().total()
    share = 100 * found.told / whole if whole else 100
    return f"{found.told} of {whole}, {share:.1f} %"


def _section(name: str, found: _Found) -> Iterator[str]:
    kind, lens = format_of(name), lens_of(name)
    yield f"## {kind.agent}"
    yield _ABOUT[name]
    (where,) = whereabouts([name], runtime=_Home())
    places = ", ".join(f"`{folder}`" for folder in where.folders)
    variables = " or ".join(f"`{variable}`" for variable in where.variables)
    command = kind.command("00000000-0000-0000-0000-000000000000")
    resumed = "It has no command that takes up a session."
    if command is not None:
        words = " ".join([*command.arguments[:-1], "ID"])
        folder = "in the folder of the session" if command.needs_folder else "from any folder"
        resumed = f"Taken up with `{words}`, {folder}."
    version = "" if lens is None else f" Lens of version {lens.version}."
    yield f"Format `{name}`. Looked for in {places}; {variables} changes that. {resumed}{version}"
    unread = ", ".join(f"`{kind}`" for kind in sorted(found.unread()))
    if unread:
        yield f"Counted as not read above: {unread}."
    rows = ["| record | understood | raw |", "|---|---:|---:|"]
    for record in sorted(found.read.keys() | found.raw.keys()):
        shown = record.replace("|", "\\|")
        rows.append(f"| `{shown}` | {found.read[record] or ''} | {found.raw[record] or ''} |")
    yield "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
