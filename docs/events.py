"""Writes `docs/events.md` from the code: `python docs/events.py`. A test compares them."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import msgspec

from perdure.model.vocabulary import PAYLOADS, Block, Error
from perdure.views.builtin import BUILTIN

PAGE = Path(__file__).parent / "events.md"

_FAMILIES = {
    "turn": "Turns and steps",
    "user": "What is said",
    "tool": "Tools",
    "request": "Requests and the context",
    "state": "What an agent keeps",
    "trigger": "Triggers",
    "channel": "Channels",
    "job": "Jobs",
    "subagent": "Sub-agents",
    "effect": "Effects that must happen once",
    "usage": "Usage",
    "artifact": "Artifacts",
    "session": "The session as a whole",
    "content": "Content beside the log",
}
"""The heading that stands before the first type of a family."""

_OPENING = frozenset({"turn/start", "step/start", "assistant/message", "tool/call", "job/start"})

_PLAIN: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "true or false",
    Any: "any JSON",
    Error: "error",
}

_INTRODUCTION = """# Events of the vocabulary `perdure/1`

Made from the code by `docs/events.py`; do not edit.

What the event types of a native session mean: their data, member by member, and who reads them.
Which agent and which turn an event belongs to stands in its envelope (`agent`, `turn`). Members
marked `?` may be left out. Further members are kept and passed by. Data that does not fit its type is
kept like any other, and no view counts it. Types outside this list are yours: see `views.md`.

A *block* is a piece of content, see the table below. An *error* is `{"code": …, "message": …}`: the
code for programs, the message for people and models. A *count* is an integer from 0 to 2^53."""

_BLOCKS = """## Blocks of content

What the pieces of a message look like in the log, which is also what `session.messages()` gives, and
what `messages(format=…)` makes of them for a provider.

| block | members | anthropic | openai-chat | openai-responses |
|---|---|---|---|---|
| `text` | `text` | `text` | text of the message | `input_text`, `output_text` |
| `thinking`, of the model alone | `text`, `signature`? | `thinking` if it has a signature and does not \
end the answer, else left out | left out | left out |
| `image` | `blob` (digest of its bytes), `media_type` (`image/png`, `jpeg`, `gif` or `webp`) | `image` in \
base64 | `image_url` with the data; of a result in a message of the user behind it | `input_image` with \
the data |
| `file` | `blob`, `name`?, `media_type`? | the text `[file NAME]`, or `[file DIGEST]` | the same | the \
same |
| `tool-call`, of the model alone | `id`, `name`, `arguments` (an object) | `tool_use` | an entry of \
`tool_calls`, arguments as JSON text | `function_call`, arguments as JSON text |
| `tool-result`, in messages of the role "tool" alone | `id`, `name`?, `content` (blocks), `error`? | \
`tool_result`, with `is_error` | message of the role "tool", a text that begins with `[error CODE]` | \
`function_call_output`, likewise |

- In the log a result is no block but an event, `tool/result`. `messages()` makes of those of an answer one
  message of the role "tool".
- `signature` is what Anthropic gave with its thinking; it is given back unchanged.
- An image that the model said, one of another media type, or one whose bytes are not there any more, is the
  text `[image DIGEST]`. A block of any other type is the text `[TYPE NAME]`.
- Arguments that are the JSON text of an object become that object; anything else stands in the member `input`
  of one.
- Ids of calls and names of tools that a provider refuses (others than `a-z A-Z 0-9 _ -`, more than 64
  characters, for ids in openai-chat 40) are changed, the same way each time. A text of blanks is left out."""


def page() -> str:
    """The whole page."""
    return "\n\n".join([_INTRODUCTION, _BLOCKS, *_types(), *_views()]) + "\n"


def _types() -> Iterator[str]:
    headings = dict(_FAMILIES)
    for kind, payload in PAYLOADS.items():
        heading = headings.pop(kind.partition("/")[0], None)
        if heading is not None:
            yield f"## {heading}"
        yield f"### `{kind}`"
        yield _meaning(payload)
        fields = msgspec.structs.fields(payload)
        if fields:
            rows = [_row(field) for field in fields]
            yield "\n".join(["| member | type | if left out |", "|---|---|---|", *rows])
        else:
            yield "No members."
        yield _read_by(kind)


def _meaning(payload: type) -> str:
    """The docstring without the type that it begins with."""
    first, *rest = (payload.__doc__ or "").strip().split("\n\n")
    text = " ".join(first.split()).split(": ", 1)[1]
    said = [text[0].upper() + text[1:], *(" ".join(part.split()) for part in rest)]
    return "\n\n".join(said)


def _row(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        default = "must be there"
    elif field.default_factory is not msgspec.NODEFAULT:
        default = "empty"
    elif field.default is None:
        default = "nothing"
    else:
        default = f"`{str(field.default).lower()}`"
    mark = "" if field.required else "?"
    # Blocks are objects to the type checker, and the only lists of objects with these names.
    blocks = field.type == list[Block] and field.name in ("content", "summary")
    shape = "list of blocks" if blocks else _type(field.type)
    return f"| `{field.name}`{mark} | {shape} | {default} |"


def _type(shape: Any) -> str:
    if shape in _PLAIN:
        return _PLAIN[shape]
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Annotated:
        return "count" if arguments[0] is int else f"{_type(arguments[0])}, not negative"
    if origin in (Union, UnionType):
        return " or ".join(_type(each) for each in arguments if each is not NoneType)
    if origin is list and get_origin(arguments[0]) is tuple:
        return f"list of pairs of {_type(get_args(arguments[0])[0])}s"
    if origin is list:
        return f"list of {_type(arguments[0])}s"
    if origin is dict:
        return "object"
    raise TypeError(shape)


def _read_by(kind: str) -> str:
    names = [f"`{view.name}`" for view in BUILTIN if kind in view.types]
    told = f"Read by {_listed('the view', names)}" if names else "Read by no view"
    return f"{told}; recovery closes what it leaves open." if kind in _OPENING else f"{told}."


def _listed(what: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"{what} {names[0]}"
    return f"{what}s {', '.join(names[:-1])} and {names[-1]}"


def _views() -> Iterator[str]:
    yield "## Views"
    yield "What each view keeps of these events; `Session.state` says it by name, see `views.md`."
    rows = ["| view | keeps | reads |", "|---|---|---|"]
    for view in BUILTIN:
        keeps = re.sub(r"\s+", " ", (type(view).__doc__ or "").split("\n\n")[0]).strip()
        kinds = ", ".join(f"`{kind}`" for kind in PAYLOADS if kind in view.types)
        rows.append(f"| `{view.name}` | {keeps} | {kinds} |")
    yield "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
