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
        about = _attributes(each.query)
        lines += ["| parameter | default | |", "|---|---|---|"]
        for field in told:
            default = "required" if field.required else f"`{_shown(field.default)}`"
            lines.append(f"| `{field.name}` | {default} | {about.get(field.name, '')} |")
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


def _attributes(kind: type) -> dict[str, str]:
    """What the docstring of a type says of its members."""
    text = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
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
    about, _, rest = schema.get("description", "").partition("\n\nAttributes:\n")
    lines = [f"### `{name}`", "", " ".join(about.split())]
    notes = dict(
        line.strip().partition(": ")[::2] for line in rest.splitlines() if line[4:5] != " "
    )
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
