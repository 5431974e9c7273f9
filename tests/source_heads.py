"""First records of sources for the tests of the formats, and what the lenses learn of them."""

import datetime as dt
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perdure.importers.formats import FORMATS, HEAD_LINES, format_of
from perdure.lenses import SourceFacts, lens_of
from tests.lens_lines import stored
from tests.sources import unpacked

DATA = Path(__file__).parent / "data"
FOLDERS = {"claude-code": "claude-code", "codex": "codex", "deepseek-harness": "deepseek-harness"}
FOLDERS["dsh"] = "deepseek-harness"
"""Folder of samples to the name of their format."""

SAMPLES = [
    (path, name)
    for folder, name in FOLDERS.items()
    for path in sorted((DATA / folder).rglob("*.jsonl*"))
]
KINDS = {name: format_of(name) for name in FORMATS}

Record = dict[str, Any]

UUID = "0a1b2c3d-4e5f-4061-8071-2a3b4c5d6e7f"
OTHER = "9f8e7d6c-5b4a-4938-a271-605f4e3d2c1b"


def lines_of(path: Path) -> list[str]:
    """The first lines of a sample, whatever they hold."""
    return unpacked(path).decode().split("\n")[:HEAD_LINES]


def head_of(path: Path) -> list[Record]:
    """The objects on the first lines of a sample."""
    head = []
    for line in lines_of(path):
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            head.append(value)
    return head


def facts_of(name: str, lines: Iterable[str]) -> SourceFacts:
    """What the lens of a format learns from stored lines."""
    lens = lens_of(name)
    assert lens is not None
    for event in stored(name, lines):
        list(lens.read(event))
    return lens.facts


def recognised(head: list[Record]) -> list[str]:
    """The formats that recognise these records as theirs."""
    return [name for name, kind in KINDS.items() if kind.recognises(head)]


def ms(moment: str) -> int:
    """Unix milliseconds of a time in ISO 8601 with an offset."""
    since = dt.datetime.fromisoformat(moment) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    return since // dt.timedelta(milliseconds=1)
