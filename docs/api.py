"""Writes `docs/api.md` from the operations and their types: `python docs/api.py`."""

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from perdure.http.openapi import document
from perdure.http.operations import OPERATIONS, Operation
from perdure.http.problems import STATUSES

PAGE = Path(__file__).parent / "api.md"

_INTRODUCTION = """# The API, operation by operation

Made from `perdure.http.operations` and `perdure.http.wire` by `docs/api.py`; do not edit. `docs/http.md` says how it
is used. A running server describes itself: `GET /api/openapi.json`.

Every operation but `health` asks for a token, and takes `namespace`, repeated for one inside another. Parameters that
may be repeated are lists. Times are Unix milliseconds. An id in a path stands as it is, or, if it has other characters
than letters, digits, `-`, `_` and inner dots, as `=` and its UTF-8 in base64url; the name of an artifact likewise."""


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION, "## Operations", *map(_operation, OPERATIONS), "## Bodies and answers"]
    schemas = document("")["components"]["schemas"]
    parts += [_schema(name, schemas[name]) for name in sorted(schemas)]
    return "\n\n".join([*parts, _errors()]) + "\n"


def _operation(each: Operation) -> str:
    lines = [f"### `{each.method} {each.path}`", "", each.summary, ""]
    told = msgspec.structs.fields(each.query)
    if told:
        about = _notes(inspect.cleandoc(each.query.__doc__ or ""))
        kinds = _parameters(each)
        lines += ["| parameter | | default | |", "|---|---|---|---|"]
        for field in told:
            default = "required" if field.required else f"`{_shown(field.default)}`"
            note, kind = about.get(field.name, ""), kinds[field.name]
            lines.append(f"| `{field.name}` | {kind} | {default} | {note} |")
        lines.append("")
    sent = {None: "nothing", bytes: "any bytes"}.get(each.body) or f"`{each.body.__name__}`"
    back = f"`{each.answer.__name__}`" if each.answer is not None else f"`{each.media}`"
    if each.status == 204:
        back = "nothing"
    lines.append(f"Takes {sent}, answers {each.status} with {back}. (`{each.name}`)")
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == () else str(value)


def _parameters(each: Operation) -> dict[str, str]:
    """What the parameters of an operation may be, by their names."""
    told = document("")["paths"][each.path][each.method.lower()]["parameters"]
    return {one["name"]: _kind(one["schema"]) for one in told if one["in"] == "query"}


def _notes(doc: str) -> dict[str, str]:
    """What a docstring says of members."""
    text = doc.partition("Attributes:\n")[2]
    found: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if line.startswith("    ") and not line.startswith("     ") and ": " in line:
            name, _, found[name.strip()] = line.strip().partition(": ")
            name = name.strip()
        elif line.strip() and name:
            found[name] += " " + line.strip()
    return found


def _schema(name: str, schema: dict[str, Any]) -> str:
    doc = schema.get("description", "")
    lines = [f"### `{name}`", "", " ".join(doc.partition("Attributes:\n")[0].split())]
    notes = _notes(doc)
    members = []
    for member, told in schema.get("properties", {}).items():
        required = "" if member in schema.get("required", ()) else ", may be left out"
        note = f": {notes[member]}" if member in notes else ""
        members.append(f"- `{member}` ({_kind(told)}{required}){note}")
    return "\n".join([*lines, "", *members]).rstrip()


def _kind(told: dict[str, Any]) -> str:
    if "$ref" in told:
        return f"`{told['$ref'].rpartition('/')[2]}`"
    if "anyOf" in told:
        return " or ".join(map(_kind, told["anyOf"]))
    if told.get("type") == "array":
        # Pairs say what stands at each place, and that nothing stands behind.
        items = told.get("items")
        return f"list of {_kind(items)}" if isinstance(items, dict) else "list"
    if "enum" in told:
        return ", ".join(f"`{each}`" for each in told["enum"])
    return str(told.get("type", "any JSON"))


def _errors() -> str:
    lines = ["## Statuses of errors", "", "| status | codes |", "|---|---|"]
    by_status: dict[int, list[str]] = {}
    for kind, status in STATUSES.items():
        by_status.setdefault(status, []).append(f"`{kind.code}`")
    for status, codes in sorted(by_status.items()):
        lines.append(f"| {status} | {', '.join(codes)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(f"{PAGE}\n")
    PAGE.write_text(page(), encoding="utf-8")
