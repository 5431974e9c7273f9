"""What answers each operation, by its name; every handler runs in a thread and may block."""

from collections.abc import Callable, Mapping
from typing import Any

from perdure.http.server.handlers import conversing, finding, reading, taking, writing

__all__ = ["HANDLERS", "Handler"]

Handler = Callable[..., Any]

HANDLERS: Mapping[str, Handler] = {
    "health": finding.health,
    "list_sessions": finding.list_sessions,
    "search": finding.search,
    "stats": finding.stats,
    "get_session": reading.get_session,
    "read_events": reading.read_events,
    "stream_events": reading.stream_events,
    "raw_lines": reading.raw_lines,
    "messages": reading.messages,
    "branches": reading.branches,
    "verify_session": reading.verify_session,
    "create_session": writing.create_session,
    "append_events": writing.append_events,
    "take_writer": writing.take_writer,
    "release_writer": writing.release_writer,
    "fork_session": writing.fork_session,
    "set_title": writing.set_title,
    "delete_session": writing.delete_session,
    "restore_session": writing.restore_session,
    "put_content": writing.put_content,
    "list_artifacts": taking.list_artifacts,
    "read_artifact": taking.read_artifact,
    "list_content": taking.list_content,
    "read_content": taking.read_content,
    "export_source": taking.export_source,
    "export_bundle": taking.export_bundle,
    "create_conversation": conversing.create_conversation,
    "list_conversations": conversing.list_conversations,
    "get_conversation": conversing.get_conversation,
    "delete_conversation": conversing.delete_conversation,
    "post_message": conversing.post_message,
    "read_messages": conversing.read_messages,
    "get_profile": conversing.get_profile,
    "set_profile": conversing.set_profile,
}
"""All operations but those that follow something: see `perdure.http.server.live`."""
