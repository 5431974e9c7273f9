"""What events for the screen say of calls: which tool, with what, and what it came to.

Most of them say again what an item says; some stand alone: for calls within a tool that runs code,
and in versions that kept no item of a call.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from perdure.lenses.codex.content import Output, blocks_of, image, output_of, picture
from perdure.lenses.pieces import arguments_of, ident, text_block
from perdure.model.vocabulary.payloads import Block

__all__ = ["CALLS", "ITEM_CALLS", "Reader", "Search", "Shown", "searched", "typed_command"]

Record = dict[str, Any]

Search = tuple[str, ...]
"""What was searched for, by which an item and an event are known as one if their ids do not."""

_FAILED = ("failed", "declined", "error", "errored")
_UNDER_WAY = ("in_progress", "inProgress")
_TYPED = ("user_shell", "userShell")
_CAPITAL = re.compile("(?<=[a-z])(?=[A-Z])")

_COLLAB_ARGUMENTS = ("prompt", "model", "receiver_thread_id", "receiver_thread_ids")
_COLLAB_OUTCOMES = ("status", "agent_statuses", "statuses")


class Shown(NamedTuple):
    """A call as the screen showed it.

    Attributes:
        id: of the call.
        name: of the tool, as the model calls it.
        arguments: what it was called with.
        content: what it came to; None: that is not told.
        failed: whether it failed.
        search: what was searched for, if the provider did.

    """

    id: str
    name: str
    arguments: Record
    content: list[Block] | None
    failed: bool = False
    search: Search | None = None


Reader = Callable[[Record], Shown | None]


def typed_command(said: Record) -> bool:
    """Whether a command is the user's own, which is no call."""
    return said.get("source") in _TYPED


def searched(action: object, query: object = None) -> Search:
    """What was searched for; the kinds of searches have other names in items and in events."""
    members = action if isinstance(action, dict) else {"query": query}
    found = [members.get(name) for name in ("query", "url", "pattern")]
    queries = members.get("queries")
    if not any(found) and isinstance(queries, list):
        found = queries
    return tuple(each for each in found if isinstance(each, str) and each)


# --- members ------------------------------------------------------------------------------------


def _id(said: Record) -> str | None:
    """The id of the call: of an event its `call_id`, of an item its own."""
    return next(filter(None, (ident(said.get(name)) for name in ("call_id", "callId", "id"))), None)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _bad(said: Record) -> bool:
    """Whether a call failed, by any member that says so."""
    code, error = said.get("exit_code"), said.get("error")
    return (
        said.get("status") in _FAILED
        or said.get("success") is False
        or (type(code) is int and code != 0)
        or error not in (None, "", {})
    )


def _problem(said: Record) -> list[Block]:
    """What went wrong, as text."""
    error = said.get("error")
    text = _text(error.get("message") if isinstance(error, dict) else error)
    return [] if text is None else [text_block(text)]


def _outputs(said: Record, *names: str) -> list[Block]:
    return [text_block(text) for name in names if (text := _text(said.get(name))) is not None]


# --- kinds of calls -----------------------------------------------------------------------------


def _mcp_event(said: Record) -> Shown | None:
    """The end of a call of a server of tools: its result is `{Ok: …}` or `{Err: text}`."""
    invocation, result = said.get("invocation"), said.get("result")
    if not isinstance(invocation, dict) or not isinstance(result, dict):
        return None
    if "Err" in result:
        outcome = output_of(result["Err"])[0], True
    else:
        found = _mcp_result(result.get("Ok", result))
        if found is None:
            return None
        outcome = found
    return _mcp(_id(said), invocation, outcome)


def _mcp_item(said: Record) -> Shown | None:
    result = said.get("result")
    found = None if result is None else _mcp_result(result)
    if result is not None and found is None:
        return None
    if said.get("status") in _UNDER_WAY:
        return _mcp(_id(said), said, None)
    content, failed = found or ([], False)
    return _mcp(_id(said), said, ([*content, *_problem(said)], failed or _bad(said)))


def _mcp_result(result: object) -> Output | None:
    """What a server of tools answered; None: it is none of its answers."""
    content = blocks_of(result.get("content")) if isinstance(result, dict) else None
    if not isinstance(result, dict) or content is None:
        return None
    structured = result.get("structuredContent")
    if not content and structured is not None:
        content = output_of(structured)[0]
    return content, result.get("isError") is True


def _mcp(id: str | None, said: Record, outcome: Output | None) -> Shown | None:
    server, tool = _text(said.get("server")), _text(said.get("tool"))
    if id is None or server is None or tool is None:
        return None
    content, failed = outcome or (None, False)
    arguments = arguments_of(said.get("arguments"))
    return Shown(id, f"mcp__{server}__{tool}", arguments, content, failed)


def _dynamic(said: Record) -> Shown | None:
    """A tool of the program that Codex runs in: asked for alone, or with what it answered."""
    id, tool, space = _id(said), _text(said.get("tool")), _text(said.get("namespace"))
    if id is None or tool is None:
        return None
    name = tool if space is None else f"{space}{'' if space.endswith('_') else '__'}{tool}"
    arguments = arguments_of(said.get("arguments"))
    items = said.get("content_items")
    ended = any(each in said for each in ("content_items", "success", "error", "status"))
    if not ended or said.get("status") in _UNDER_WAY:
        return Shown(id, name, arguments, None)
    content = [] if items is None else blocks_of(items)
    if content is None:
        return None
    return Shown(id, name, arguments, [*content, *_problem(said)], _bad(said))


def _view_image(said: Record) -> Shown | None:
    """It is shown once the image was read, which is then what the model sees."""
    id, path = _id(said), _text(said.get("path"))
    if id is None or path is None:
        return None
    return Shown(id, "view_image", {"path": path}, [image(path)])


def _command(said: Record) -> Shown | None:
    id, command = _id(said), said.get("command")
    if id is None or not isinstance(command, list | str):
        return None
    arguments: Record = {"command": command}
    if isinstance(said.get("cwd"), str):
        arguments["cwd"] = said["cwd"]
    if said.get("status") in _UNDER_WAY:
        return Shown(id, "exec_command", arguments_of(arguments), None)
    # What the model was told of it, or else all of it, or both streams.
    content = _outputs(said, "formatted_output", "aggregated_output")[:1]
    content = content or _outputs(said, "stdout", "stderr")
    return Shown(id, "exec_command", arguments_of(arguments), content, _bad(said))


def _patch(said: Record) -> Shown | None:
    id, changes = _id(said), said.get("changes")
    if id is None or not any(name in said for name in ("success", "status")):
        return None
    arguments = arguments_of({"changes": changes} if isinstance(changes, dict) else None)
    if said.get("status") in _UNDER_WAY:
        return Shown(id, "apply_patch", arguments, None)
    return Shown(id, "apply_patch", arguments, _outputs(said, "stdout", "stderr"), _bad(said))


def _web_search(said: Record) -> Shown | None:
    id, action, query = _id(said), said.get("action"), _text(said.get("query"))
    if id is None or (query is None and not isinstance(action, dict)):
        return None
    arguments = arguments_of(action if isinstance(action, dict) else {"query": query})
    content = output_of(said["results"])[0] if said.get("results") else []
    return Shown(id, "web_search", arguments, content, _bad(said), searched(action, query))


def _image_generation(said: Record) -> Shown | None:
    id, prompt, result = _id(said), _text(said.get("revised_prompt")), said.get("result")
    if id is None or not isinstance(result, str):
        return None
    arguments = {} if prompt is None else {"prompt": prompt}
    return Shown(id, "image_generation", arguments, picture(result), _bad(said))


def _collab(name: str) -> Reader:
    """The reader of what was done with another agent."""

    def read(said: Record) -> Shown | None:
        outcome = next(filter(None, (said.get(each) for each in _COLLAB_OUTCOMES)), None)
        if outcome is None:
            return None
        # The status is the agent's, which may fail though it could be spoken to.
        return _with_agent(said, name, output_of(outcome)[0])

    return read


def _collab_item(said: Record) -> Shown | None:
    tool, states = _text(said.get("tool")), said.get("agents_states")
    if tool is None or not isinstance(states, dict):
        return None
    content = output_of(states)[0] if states else []
    under_way, failed = said.get("status") in _UNDER_WAY, said.get("status") in _FAILED
    name = _CAPITAL.sub("_", tool).lower()
    return _with_agent(said, name, None if under_way else content, failed=failed)


def _with_agent(
    said: Record, name: str, content: list[Block] | None, *, failed: bool = False
) -> Shown | None:
    id = _id(said)
    arguments = {each: said[each] for each in _COLLAB_ARGUMENTS if said.get(each) is not None}
    return None if id is None else Shown(id, name, arguments_of(arguments), content, failed)


CALLS: Mapping[str, Reader] = {
    "mcp_tool_call_end": _mcp_event,
    "dynamic_tool_call_request": _dynamic,
    "dynamic_tool_call_response": _dynamic,
    "view_image_tool_call": _view_image,
    "exec_command_end": _command,
    "patch_apply_end": _patch,
    "web_search_end": _web_search,
    "image_generation_end": _image_generation,
    "collab_agent_spawn_end": _collab("spawn_agent"),
    "collab_agent_interaction_end": _collab("send_input"),
    "collab_waiting_end": _collab("wait"),
    "collab_close_end": _collab("close_agent"),
    "collab_resume_end": _collab("resume_agent"),
}
"""Readers by the kind of an event; None comes of one that is not as it should be."""

ITEM_CALLS: Mapping[str, Reader] = {
    "McpToolCall": _mcp_item,
    "DynamicToolCall": _dynamic,
    "ImageView": _view_image,
    "CommandExecution": _command,
    "FileChange": _patch,
    "WebSearch": _web_search,
    "ImageGeneration": _image_generation,
    "CollabAgentToolCall": _collab_item,
}
"""The same by the kind of the item in an event `item_completed`."""
