"""Sources for the tests of the importer: the samples, and files made to be wrong in one way."""

import sys
from collections.abc import Iterable
from pathlib import Path

import perdure
from perdure.importers import SourceReport, import_sessions

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

HEADER = b'{"type":"session","version":0,"id":"s-1","createdAt":1700000000000,"cwd":"/srv/a"}\n'


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


def import_one(store: perdure.Store, path: Path) -> SourceReport:
    """Import one file and return what became of it."""
    (source,) = import_sessions(store, FORMAT, [path]).sources
    return source


def kept(store: perdure.Store, source: SourceReport) -> list[perdure.Event]:
    assert source.session is not None
    return list(store.read_from(source.session))


def data(events: Iterable[perdure.Event]) -> list[bytes]:
    """Return the bytes that string data stands for."""
    return [event.data.encode("utf-8", "surrogateescape") for event in events]
