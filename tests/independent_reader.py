"""A second reader of directory stores, from docs/format.md alone, without a line of perdure."""

import hashlib
import itertools
import json
import re
import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LINE_MAX, FRAME_MAX = 16 * 1024 * 1024, 17 * 1024 * 1024
FRAME_MAGIC = b"\x28\xb5\x2f\xfd"
HEAD = struct.pack("<II4s", 0x184D2A5D, 40, b"PRDT")
PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|\Z)")
REQUIRED = {"seq", "prev", "type", "time", "data", "crc"}
OPTIONAL = {"agent", "turn", "key", "ignorable", "path", "dt", "more"}
SHAPE = {"prev": r"[0-9a-f]{64}", "type": r"[a-z][a-z0-9._/-]{0,127}"}
SHAPE |= {"agent": r"(?s).{1,256}", "turn": r"(?s).{1,256}", "key": r"(?s).{1,1024}"}

Position = tuple[int, str]
Record = dict[str, Any]  # the members of a record line, its "hash", and the "last" event it holds
Line = tuple[bytes | None, bool]  # its bytes (None: a flaw), and whether it is the first of a frame


class Session(NamedTuple):
    name: str
    header: dict[str, Any] | None
    verdict: str
    events: list[dict[str, Any]]
    tail: str
    noise: int


def read_store(root: Path) -> Iterator[Session]:
    if json.loads((root / "store.json").read_bytes())["format"] != 0:
        raise ValueError("unsupported store")
    folder = root / "sessions"
    yield from map(read_session, sorted(folder.iterdir() if folder.is_dir() else ()))


def read_session(folder: Path) -> Session:
    known = acknowledged(folder / "tail")
    if (folder / "log.jsonl.zst").exists():
        lines = list(frame_lines((folder / "log.jsonl.zst").read_bytes()))
    else:
        raw = (folder / "log.jsonl").read_bytes()
        lines = [(line, True) for line in re.findall(rb"[^\n]*\n|[^\n]+\Z", raw)]
    alone = len(lines) == 1 or (len(lines) > 1 and lines[1][1])
    header, verdict = read_header((lines[0][0] if alone else None) or b"", folder.name)
    if header is None:
        return Session(folder.name, None, verdict, [], "", 0)
    return walk(folder.name, header, lines[1:], known)


def read_header(line: bytes, name: str) -> tuple[dict[str, Any] | None, str]:
    digest = hashlib.sha256(line[:-78] + b"}\n").hexdigest()
    if line[-78:] != b',"digest":"%s"}\n' % digest.encode():
        return None, "damaged"
    header = json.loads(line)
    if header["format"] != 0 or header["format"] is False:
        return None, "unsupported"
    return (header, "") if escaped(header["id"]) == name else (None, "damaged")


def escaped(id: str) -> str:
    raw = id.encode("utf-8", "surrogatepass")
    name = "".join(
        chr(byte) if byte in PLAIN or (byte == 0x2E and 0 < at < len(raw) - 1) else f"%{byte:02x}"
        for at, byte in enumerate(raw)
    )
    if DEVICE.match(name):
        name = f"%{ord(name[0]):02x}" + name[1:]
    return name if len(name) <= 200 else name[:100] + "%%" + hashlib.sha256(raw).hexdigest()


def acknowledged(path: Path) -> Position | None:
    raw, found = path.read_bytes() if path.exists() else b"", []
    for slot in (raw[:512], raw[512:1024]):
        if slot[:4] == b"PTL0" and slot[76:80] == struct.pack("<I", zlib.crc32(slot[:76])):
            generation, seq, tail = struct.unpack_from("<Qq32s", slot, 4)
            found.append((generation, (seq, tail.hex())))
    return max(found)[1] if found else None


def frame_lines(raw: bytes) -> Iterator[Line]:
    at = 0
    while at < len(raw):
        if trailer_length(raw, at):
            at += 48
            continue
        size, lines = frame_at(raw, at)
        if not size:
            at = behind_flaw(raw, at)
            yield None, True
        at += size
        for index, line in enumerate(lines):
            yield line + b"\n", index == 0


def frame_at(raw: bytes, at: int) -> tuple[int, list[bytes]]:
    if not raw.startswith(FRAME_MAGIC, at):
        return 0, []
    decompressor = zstd.ZstdDecompressor()
    try:
        size = zstd.get_frame_size(memoryview(raw)[at:])
        plain = decompressor.decompress(raw[at : at + size], max_length=FRAME_MAX)
    except zstd.ZstdError:
        return 0, []
    whole = decompressor.eof and plain.endswith(b"\n")
    return (size, plain[:-1].split(b"\n")) if whole else (0, [])


def trailer_length(raw: bytes, at: int) -> int:
    trailer = raw[at : at + 48]
    right = trailer[44:] == struct.pack("<I", zlib.crc32(trailer[8:44])) and trailer[:12] == HEAD
    length: int = struct.unpack_from("<Q", trailer, 28)[0] if right else 0
    return length if length <= at else 0


def behind_flaw(raw: bytes, flaw: int) -> int:
    at, end = raw.find(HEAD, flaw), len(raw)
    while at >= 0:
        start = at - trailer_length(raw, at)
        if flaw <= start < at:
            end = start if start > flaw else at + 48
            break
        at = raw.find(HEAD, at + 1)
    region = raw[flaw + 1 : min(end, flaw + 1 + 1024 * 1024)]
    for match in list(re.finditer(re.escape(FRAME_MAGIC), region))[:16]:
        if frame_at(region, match.start())[0]:
            return flaw + 1 + match.start()
    return end


def intact(raw: bytes | None) -> Record | None:
    line = raw if raw is None or raw.endswith(b"\n") else raw + b"\n"
    if line is None or len(line) > LINE_MAX:
        return None
    if line[-19:] != b',"crc":"%08x"}\n' % zlib.crc32(line[:-19]):
        return None
    try:
        members = json.loads(line)
        more, numbers = run_strings(members), [members["time"], *members.get("dt", [])]
        named = all(re.fullmatch(SHAPE[name], members[name]) for name in SHAPE if name in members)
        timed = all(abs(time) < 2**53 for time in itertools.accumulate(numbers))
    except (ValueError, TypeError, LookupError, RecursionError):
        return None
    counted = all(type(number) is int for number in (members["seq"], *numbers))
    fits = REQUIRED <= set(members) <= REQUIRED | OPTIONAL and members.get("ignorable", 1) == 1
    if more is None or not (fits and named and timed and counted) or members["seq"] < 0:
        return None
    return {**members, "hash": hashlib.sha256(line).hexdigest(), "last": members["seq"] + len(more)}


def run_strings(members: dict[str, Any]) -> list[str] | None:
    present = {"path", "dt", "more"} & set(members)
    if not present:
        return []
    more, target = members["more"], members["data"]
    for step in members["path"]:
        if type(target) is not (list if type(step) is int else dict) or step == -1:
            return None
        target = target[step]
    shaped = len(members["dt"]) == len(more) and 2 <= len(more) <= 1023
    strings = all(isinstance(text, str) for text in (target, *more))
    return more if shaped and strings and not {"key", "ignorable"} & set(members) else None


def expanded(record: Record) -> Iterator[dict[str, Any]]:
    shared = {name: record[name] for name in record if name not in ("prev", "crc", "hash", "last")}
    path, steps = shared.pop("path", []), [0, *shared.pop("dt", [])]
    strings, time = [None, *shared.pop("more", [])], shared["time"]
    for offset, (step, text) in enumerate(zip(steps, strings, strict=True)):
        time += step
        data = shared["data"] if text is None else replaced(shared["data"], path, text)
        yield {**shared, "seq": shared["seq"] + offset, "time": time, "data": data}


def replaced(value: Any, path: list[Any], text: str) -> Any:
    copy: Any = value.copy() if path else text
    if path:
        copy[path[0]] = replaced(value[path[0]], path[1:], text)
    return copy


def misfit(record: Record, seq: int, link: str, known: Position | None, header: Any) -> str:
    if record["seq"] != seq:
        return "sequence"
    if record["prev"] != link:
        return "link" if seq else "header"
    if known and seq <= known[0] <= record["last"] and known != (record["last"], record["hash"]):
        return "evidence"
    if "genesis" in header and seq <= header.get("seed", 0) <= record["last"]:
        own = list(expanded(record))[header.get("seed", 0) - seq]
        named = own["data"].get("header") if isinstance(own["data"], dict) else None
        return "" if (own["type"], named) == ("session/forked", header["digest"]) else "header"
    return ""


def walk(name: str, header: dict[str, Any], lines: list[Line], known: Position | None) -> Session:
    good: list[Record] = []
    doubted: list[int] = []
    noise, why = 0, ""
    genesis = header.get("genesis", header["digest"])
    for at, (raw, _) in enumerate(lines):
        record = intact(raw)
        if record is not None:
            seq, link = (good[-1]["last"] + 1, good[-1]["hash"]) if good else (0, genesis)
            why = misfit(record, seq, link, known, header)
            if why == "link" and not doubted:
                after = (intact(lines[at + 1][0]) if at + 1 < len(lines) else None) or {}
                if record["hash"] in (after.get("prev"), known and known[1]):
                    good.pop()
            if not why:
                noise += len(doubted)
                doubted.clear()
                good.append(record)
                continue
        doubted.append(at)
        if why or len(doubted) == 64:
            break
    seq, tail = (good[-1]["last"], good[-1]["hash"]) if good else (-1, genesis)
    verdict = conclude(lines, lines[doubted[0] :] if doubted else [], why, seq, known)
    return Session(name, header, verdict, [e for r in good for e in expanded(r)], tail, noise)


def conclude(lines: list[Line], behind: list[Line], why: str, seq: int, known: Any) -> str:
    if why == "header" or (known is not None and known[0] > seq):
        return "damaged"
    if behind:
        unknown = known is None and any(map(holds_a_record, behind))
        return "damaged" if unknown or not behind[0][1] else "torn"
    if lines and not (lines[-1][0] or b"").endswith(b"\n"):
        return "unterminated"
    return "ahead" if known is not None and seq > known[0] else "complete"


def holds_a_record(line: Line) -> bool:
    raw = line[0] or b""
    ends = [match.end() for match in re.finditer(rb',"crc":"[0-9a-f]{8}"\}', raw)]
    return any(intact(raw[m.start() : e]) for m in re.finditer(rb'\{"seq":', raw) for e in ends)
