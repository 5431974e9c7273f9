"""What the tests of all lenses share: stored events of lines, what a lens says, what views make."""

import datetime as dt
import json
from collections.abc import Iterable
from typing import Any, TypeVar

from perdure.lenses import Lens
from perdure.model import values
from perdure.model.event import Event
from perdure.model.header import Header
from perdure.views.builtin import BUILTIN
from perdure.views.conversation import messages
from perdure.views.fold import Fold

L = TypeVar("L", bound=Lens)

Record = dict[str, Any]
Row = tuple[Any, ...]


def stored(source: str, lines: Iterable[str]) -> list[Event]:
    """The events that an import makes of lines; one without a time has the last one."""
    events, time = [], 0
    for seq, line in enumerate(lines):
        kind = "record"
        try:
            record = json.loads(line)
            kind = record.get("type", kind)
            moment = dt.datetime.fromisoformat(record["timestamp"])
            time = round(moment.timestamp() * 1000)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
        raw = values.encode(line)
        events.append(Event(seq, f"{source}/{kind}", time, None, None, None, False, raw))
    return events


def fed(kind: type[L], events: Iterable[Event]) -> tuple[list[Event], L]:
    """What a new lens says of stored events, and the lens."""
    lens = kind()
    said = [each for event in events for each in lens.read(event)]
    return [*said, *lens.end()], lens


def view(said: list[Event]) -> Fold:
    """What the views of a session make of it."""
    header = Header(format=0, id="s", created_at=0)
    fold = Fold(BUILTIN, header, lambda seq: (each for each in said if each.seq < seq))
    for event in said:
        fold.event(event)
    return fold


def transcript(said: list[Event], agent: str | None = None) -> list[Record]:
    """What the model has to be told next."""
    return messages(view(said).rows["conversation"], agent)


def texts(said: list[Event], agent: str | None = None) -> list[str]:
    """The first text of each message; of one without any what it is."""
    contents = [message["content"] for message in transcript(said, agent)]
    return [
        next((each["text"] for each in content if each["type"] == "text"), content[0]["type"])
        for content in contents
    ]


def cut(text: str) -> Any:
    """A text, of a long one its beginning and its length."""
    return text if len(text) <= 60 else (text[:60], len(text))
