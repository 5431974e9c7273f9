"""Bytes on disk of the bench session, before and after compaction."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import opened
from benchmarks.session import EVENTS_PER_TURN, turn_events
from benchmarks.table import Row
from perdure.catalog.sqlite import NAME
from perdure.model.values import encode

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TURNS = 200
BOUND = 0.4


def sizes(folder: Path, medium: str) -> Iterator[Row]:
    """What 200 turns take in commits of one event and of one turn."""
    text = b"".join(encode(event) + b"\n" for turn in range(TURNS) for event in turn_events(turn))
    plain = len(text)
    if medium == "zst":
        squeezed = len(zstd.compress(text, level=3))
        yield Row("the events as plain JSON, zstd -3, one frame", squeezed, plain, "bytes")
    for commit in (1, EVENTS_PER_TURN):
        root = folder / f"size-{medium}-{commit}"
        with opened(root, medium) as store:
            with store.create("s") as session:
                for turn in range(TURNS):
                    batch = turn_events(turn)
                    for at in range(0, len(batch), commit):
                        session.append_many(batch[at : at + commit])
                records = sum(len(line) for line in store.raw("s") if isinstance(line, bytes))
                # Closing may compact; what is measured here is what was written.
                yield _row(f"commits of {commit}, as written", root, plain, records, None)
            if medium == "zst":
                store.compact("s")
                yield _row(f"commits of {commit}, compacted", root, plain, records, BOUND)


def _row(what: str, root: Path, plain: int, records: int, bound: float | None) -> Row:
    """All files of the store but for what views and the index keep, which anybody may delete.

    `log` is the part of the log alone in the ratio, `views` and `index` what they keep in it.
    """
    paths = [path for path in root.rglob("*") if path.is_file()]
    index = [path for path in paths if path.name.startswith(NAME)]
    views = [path for path in paths if path.parent.name == "views"]
    found = [os.stat(path) for path in paths if path not in (*index, *views)]
    stored = sum(status.st_size for status in found)
    log = max(status.st_size for status in found)
    more = {
        "blocks": sum(status.st_blocks * 512 for status in found),
        "files": len(found),
        "log": f"{log / plain:.3f}",
        "views": f"{sum(path.stat().st_size for path in views) / plain:.3f}",
        "index": f"{sum(path.stat().st_size for path in index) / plain:.3f}",
        "of_record_lines": f"{stored / records:.3f}",
    }
    if bound is None:
        return Row(what, stored, plain, "bytes", more=more)
    return Row(what, stored, plain, "bytes", f"at most {bound}x", stored <= bound * plain, more)
