"""Sources for the tests of the importer: the samples, and files made to be wrong in one way."""

import io
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import perdure
from perdure.importers import SourceReport, import_sessions, source_text, sync
from perdure.lenses.lines import SourceLines
from perdure.runtime import Runtime
from perdure.store.notes import put_note

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

DATA = Path(__file__).parent / "data"
FORMAT = "deepseek-harness"
FOLDERS = [DATA / FORMAT, DATA / "dsh"]
SAMPLES = sorted(path for folder in FOLDERS for path in folder.rglob("*.jsonl*") if path.is_file())
PLAIN = [path for path in SAMPLES if path.suffix == ".jsonl"]
TORN = next(path for path in SAMPLES if "torn" in path.as_posix())

EVERY = dict.fromkeys(SAMPLES, FORMAT) | {
    path: name
    for name in ("claude-code", "codex")
    for path in sorted((DATA / name).rglob("*.jsonl*"))
}
"""All samples, and their formats."""

UNENDED = DATA / "claude-code" / "ccl_representative_messages.jsonl"
"""Its last line has no newline."""

PRETTY = DATA / "claude-code" / "codemie_history-multi-clear.jsonl"
"""Each of its records is spread over several lines, so no line is one."""

DAMAGED = {TORN, UNENDED, PRETTY}

HEADER = b'{"type":"session","version":0,"id":"s-1","createdAt":1700000000000,"cwd":"/srv/a"}\n'


class Machine(Runtime):
    """A machine, its name if that is another, and all that is set on it; its clock stands."""

    NOW = 1_900_000_000_000

    def __init__(self, machine: str = "here", host: str = "", **environment: str) -> None:
        self._machine = machine
        self._host = host or machine
        self._environment = environment

    def machine(self) -> str:
        return self._machine

    def host(self) -> str:
        return self._host

    def now_ms(self) -> int:
        return self.NOW

    def environment(self, name: str) -> str | None:
        return self._environment.get(name)


def record(kind: str, time: int, text: str = "") -> bytes:
    return b'{"type":"%s","time":%d,"data":"%s"}\n' % (kind.encode(), time, text.encode())


def frame(text: bytes, *, checksum: bool = True) -> bytes:
    options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: int(checksum)}
    return zstd.compress(text, options=options)


def unpacked(path: Path) -> bytes:
    """Return the text of a sample, as far as whole lines go where the file is cut off."""
    raw = path.read_bytes()
    if path.suffix == ".jsonl":
        return raw
    text = b""
    while raw:
        decompressor = zstd.ZstdDecompressor()
        text += decompressor.decompress(raw)
        raw = decompressor.unused_data
    return text[: text.rfind(b"\n") + 1]


def import_one(store: perdure.Store, path: Path, runtime: Runtime | None = None) -> SourceReport:
    """Import one file and return what became of it."""
    runtime = runtime or Machine()
    (source,) = import_sessions(store, FORMAT, [path], runtime=runtime).sources
    return source


def sync_one(
    store: perdure.Store, path: Path, runtime: Runtime | None = None, *, dry_run: bool = False
) -> SourceReport:
    """Bring the store up to date with a place of one source; return what became of it."""
    (source,) = sync(store, [path], runtime=runtime or Machine(), dry_run=dry_run).sources
    return source


def session_of(source: SourceReport) -> str:
    assert source.session is not None, source
    return source.session


def forget(store: perdure.Store, source: SourceReport) -> None:
    """Take away what is remembered of the last import of a source."""
    with store.writer(session_of(source)) as session:
        put_note(session, "source", b"")


def kept(store: perdure.Store, source: SourceReport) -> list[perdure.Event]:
    """Return the events that keep lines."""
    lines = SourceLines(str(source.format))
    events = store.read_from(session_of(source))
    return [event for event in events if lines.line(event) is not None]


def of_type(store: perdure.Store, source: SourceReport, *types: str) -> list[perdure.Event]:
    return list(store.read_from(session_of(source), 0, types))


def text_of(store: perdure.Store, source: SourceReport, generation: int | None = None) -> bytes:
    return b"".join(source_text(store, session_of(source), generation=generation))


def bytes_of(store: perdure.Store, source: SourceReport) -> bytes:
    """Return the file of a compressed source, as it is kept: its parts, the last one at 0 first."""
    parts: list[bytes] = []
    for event in of_type(store, source, "source/bytes"):
        if event.data["offset"] == 0:
            parts.clear()
        assert sum(map(len, parts)) == event.data["offset"]
        parts.append(b"".join(store.open_blob(session_of(source), event.data["blob"])))
        assert len(parts[-1]) == event.data["bytes"]
    return b"".join(parts)


def data(events: Iterable[perdure.Event]) -> list[bytes]:
    """Return the bytes that string data stands for."""
    return [event.data.encode("utf-8", "surrogateescape") for event in events]


def lines(text: bytes) -> list[bytes]:
    """Return the lines of a text with their newlines; nothing else ends one."""
    return io.BytesIO(text).readlines()


def flipped(raw: bytes, at: int) -> bytes:
    """Return the bytes with one bit of the one at this place turned over."""
    return raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :]


def append(path: Path, text: bytes) -> None:
    with path.open("ab") as file:
        file.write(text)


def states(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return what any write to a folder or to something in it would change."""
    found = {path: path.lstat() for path in (folder, *folder.rglob("*"))}
    return {
        os.fspath(path): (s.st_ino, s.st_mode, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        for path, s in found.items()
    }
