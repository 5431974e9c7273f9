"""Items: what goes to the model and comes from it, in an envelope or bare, of all generations."""

from enum import Enum
from typing import Any

from perdure.lenses.codex.calls import searched
from perdure.lenses.codex.content import blocks_of, injected, output_of, picture, texts_of
from perdure.lenses.codex.telling import Telling
from perdure.lenses.pieces import arguments_of, ident, text_block
from perdure.model.event import Event
from perdure.model.vocabulary.payloads import Block

__all__ = ["ENCRYPTED", "HISTORY", "Items", "Outcome", "thoughts"]

HISTORY = "history"
"""Source of what the model is told again, because it is kept of what a compaction took away."""

ENCRYPTED = "[encrypted summary]"
"""Stands for a summary that only the provider can read."""

_ROLES = ("user", "assistant", "developer", "system", "tool")
_NAMED = ("function_call", "tool_call", "custom_tool_call", "mcp_call")
"""Calls that have to say which tool they want; of others the type tells."""

_HOSTED = ("web_search_call", "image_generation_call", "file_search_call", "code_interpreter_call")
"""The provider runs these; the item is written when they are done, and nothing answers it."""

_UNDER_WAY = ("in_progress", "incomplete", "searching", "generating", "interpreting")

_RESULTS = ("function_result", "tool_result")
_OUTPUTS = ("output", "result", "content", "tools", "message")
_ARGUMENTS = ("arguments", "input", "action", "invocation")


class Outcome(Enum):
    """What became of a record: a message, call or result told or missed; another read or not."""

    TOLD = "told"
    MISSED = "missed"
    READ = "read"
    RAW = "raw"


class Items:
    """Reads items one by one."""

    def __init__(self, telling: Telling) -> None:
        """Tell of them to `telling`."""
        self._telling = telling
        # Calls that no id ties to their results: ids made up, and names.
        self._untied: list[tuple[str, str]] = []

    def read(self, record: Event, item: dict[str, Any], *, again: bool = False) -> Outcome:
        """Read an item; `again`: the new history of the model repeats it."""
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            return Outcome.RAW
        if kind == "message":
            return self._message(record, item, again=again)
        if kind == "reasoning":
            return self._reasoning(record, item)
        if kind == "agent_message":
            return self._agent(record, item)
        if kind in _RESULTS or kind.endswith("_output"):
            return self._result(record, item)
        if kind.endswith("_call"):
            return self._call(record, item, kind, again=again)
        if again and kind.startswith("compaction"):
            # Only the provider can read it, but the model is told it.
            self._telling.note(record, [text_block(ENCRYPTED)], HISTORY)
        return Outcome.RAW

    def _message(self, record: Event, item: dict[str, Any], *, again: bool) -> Outcome:
        role, telling = item.get("role"), self._telling
        blocks = blocks_of(_first(item, "content", "message", "text"))
        if role not in _ROLES or blocks is None:
            return Outcome.MISSED
        if role == "tool":
            return self._result(record, item)
        if isinstance(item.get("model"), str):
            telling.model = item["model"]
        if role == "assistant":
            telling.item(record, blocks)
        elif role == "user":
            source = injected(blocks)
            if again:
                telling.note(record, blocks, source or HISTORY)
            elif source is not None:
                telling.doubt(record, blocks, source)
            elif blocks:
                telling.prompt(record, blocks, "item")
        else:
            telling.note(record, blocks, role)
        return Outcome.TOLD

    def _agent(self, record: Event, item: dict[str, Any]) -> Outcome:
        """What another agent says to this one."""
        blocks = blocks_of(item.get("content"))
        if blocks is None:
            return Outcome.MISSED
        self._telling.note(record, blocks, "agent")
        return Outcome.TOLD

    def _reasoning(self, record: Event, item: dict[str, Any]) -> Outcome:
        """Thoughts: their summary, else themselves; most are encrypted."""
        summary, whole = thoughts(item.get("summary")), thoughts(item.get("content"))
        if summary is None and whole is None and "encrypted_content" not in item:
            return Outcome.RAW
        self._telling.item(record, summary or whole or [], whole)
        return Outcome.READ

    def _call(self, record: Event, item: dict[str, Any], kind: str, *, again: bool) -> Outcome:
        function = item.get("function")
        function = function if isinstance(function, dict) else {}
        name = _named(item, function, kind)
        if name is None:
            return Outcome.MISSED
        asked = _first(item, *_ARGUMENTS)
        if kind == "image_generation_call" and asked is None and item.get("revised_prompt"):
            asked = {"prompt": item["revised_prompt"]}
        arguments = arguments_of(function.get("arguments") if asked is None else asked)
        id = ident(item.get("call_id"))
        if id is None:
            id = ident(item.get("id")) or f"call-{record.seq}"
            if kind not in _HOSTED:
                self._untied.append((id, name))
        block = {"type": "tool-call", "id": id, "name": name, "arguments": arguments}
        # Codex runs a call as soon as it is asked for and keeps no record of the start: of one
        # without a result nobody can say that it never ran.
        search = searched(item.get("action")) if kind == "web_search_call" else None
        self._telling.call(record, block, starts=not again, search=search)
        if kind in _HOSTED and item.get("status") not in _UNDER_WAY:
            failed = item.get("status") == "failed"
            content = picture(item.get("result"))
            self._telling.result(record, id, content, failed=failed, inside=True)
        return Outcome.TOLD

    def _result(self, record: Event, item: dict[str, Any]) -> Outcome:
        id = ident(_first(item, "call_id", "tool_call_id"))
        if id is None:
            id = self._untied_id(ident(item.get("id")), item.get("name"))
        if id is None or not any(each in item for each in _OUTPUTS):
            return Outcome.MISSED
        self._untied = [each for each in self._untied if each[0] != id]
        blocks, failed = output_of(_first(item, *_OUTPUTS))
        self._telling.result(record, id, blocks, failed=failed or item.get("status") == "failed")
        return Outcome.TOLD

    def _untied_id(self, id: str | None, name: object) -> str | None:
        """The call that a result without its id answers: of its own id, of its name, the oldest."""
        ids = [each for each, _ in self._untied]
        if id in ids:
            return id
        if isinstance(name, str):
            ids = [each for each, tool in self._untied if tool == name]
        return ids[0] if ids else None


def thoughts(content: object) -> list[Block] | None:
    """Blocks of thinking for texts as `blocks_of` reads them; None: there are none."""
    blocks = blocks_of(content)
    if blocks is None:
        return None
    return [{"type": "thinking", "text": text} for text in texts_of(blocks)]


def _named(item: dict[str, Any], function: dict[str, Any], kind: str) -> str | None:
    """The tool that a call wants, as the model calls it; None: it does not say."""
    name = _first(item, "name", "tool") or function.get("name")
    if not isinstance(name, str) or not name:
        return None if kind in _NAMED else kind.removesuffix("_call") or None
    space = item.get("namespace")
    if isinstance(space, str) and space and not name.startswith(space):
        return f"{space}{'' if space.endswith('_') else '__'}{name}"
    return name


def _first(item: dict[str, Any], *names: str) -> Any:
    """The first member that says something; None: none does."""
    return next((item[name] for name in names if item.get(name) is not None), None)
