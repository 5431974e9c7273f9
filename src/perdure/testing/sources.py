"""Sources of several agents in three states: as they are, as they changed, as they changed again.

Some grow, lose their end, are written anew, go away or come back, compressed or not; one gains a
line that no record holds. Samples that the caller gives stay as they are.
"""

import hashlib
import os
import random
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from perdure.testing.ledger import Finding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["LARGE_BYTES", "STATES", "Sources", "Text"]

STATES = 3

LARGE_BYTES = 17 * 1024 * 1024
"""Of a line that no record holds."""

_ENDS = (".jsonl", ".zst", ".zstd")

_States = tuple[bytes | None, ...]


def _session(rng: random.Random) -> str:
    return f"{rng.getrandbits(32):08x}-0000-4000-8000-{rng.getrandbits(48):012x}"


def _claude(rng: random.Random, count: int, session: str, text: str = "") -> list[bytes]:
    """Lines as Claude Code writes them; now and then one has no time of its own."""
    lines, above = [], None
    for number in range(count):
        said = text or " ".join(rng.choices(("the", "log", "is", "naïve", "日本"), k=20))
        record = {
            "parentUuid": above,
            "sessionId": session,
            "type": rng.choice(("user", "assistant")),
            "message": {"role": "user", "content": [{"type": "text", "text": said}]},
            "uuid": _session(rng),
        }
        if rng.random() < 0.9:
            record["timestamp"] = f"2026-01-02T03:{number // 60 % 60:02d}:{number % 60:02d}.5Z"
        above = record["uuid"]
        lines.append(msgspec.json.encode(record) + b"\n")
    return lines


def _dsh(rng: random.Random, count: int) -> list[bytes]:
    """Lines as deepseek-harness writes them, the header in front."""
    header = {"type": "session", "version": 0, "id": _session(rng), "createdAt": 1_700_000_000_000}
    records = [
        {"type": "note", "time": 1_700_000_000_000 + number, "data": rng.randbytes(20).hex()}
        for number in range(count)
    ]
    return [msgspec.json.encode(each) + b"\n" for each in (header, *records)]


def _codex(rng: random.Random, count: int, thread: str) -> list[bytes]:
    """Lines as Codex writes them."""
    time = "2026-01-02T03:04:05.678Z"
    meta = {"id": thread, "timestamp": time, "cwd": "/srv"}
    first = {"timestamp": time, "type": "session_meta", "payload": meta}
    others = [
        {"timestamp": time, "type": "event_msg", "payload": {"n": rng.random()}}
        for _ in range(count)
    ]
    return [msgspec.json.encode(each) + b"\n" for each in (first, *others)]


def _frames(lines: Sequence[bytes], size: int) -> bytes:
    """Compressed, so many lines a frame, each with its checksum."""
    options: dict[int, int] = {zstd.CompressionParameter.checksum_flag: 1}
    parts = (b"".join(lines[at : at + size]) for at in range(0, len(lines), size))
    return b"".join(zstd.compress(part, options=options) for part in parts)


def _text(path: str, content: bytes) -> bytes:
    """What comes out of a session that keeps this file: of a torn frame the whole lines."""
    if path.endswith(".jsonl"):
        return content
    text = b""
    while content:
        decompressor = zstd.ZstdDecompressor()
        text += decompressor.decompress(content)
        if not decompressor.eof:
            return text[: text.rfind(b"\n") + 1]
        content = decompressor.unused_data
    return text


def _plain(rng: random.Random) -> dict[str, _States]:
    """Sources that are not compressed, by their names: what they hold in each state."""

    def some(count: int) -> list[bytes]:
        return _claude(rng, count, _session(rng))

    def three(first: Iterable[bytes], last: Iterable[bytes] | None) -> _States:
        before = b"".join(first)
        return before, before, None if last is None else b"".join(last)

    long, other, large, returned = some(3000), some(700), some(5), some(600)
    large[3:3] = _claude(rng, 1, _session(rng), "x" * LARGE_BYTES)
    rewritten, shortened, torn, vanished = some(800), some(300), some(700), some(40)
    name = _session(rng)
    beside = _claude(rng, 30, name)
    return {
        "claude/long.jsonl": (None, b"".join(long[:300]), b"".join(long)),
        "claude/large.jsonl": three(large[:3], large),
        "claude/rewritten.jsonl": three(rewritten, (*rewritten[:200], *other)),
        "claude/shortened.jsonl": three(shortened, shortened[:100]),
        "claude/torn.jsonl": three((*torn[:100], torn[100][:-9]), torn),
        "claude/withdrawn.jsonl": three((*vanished[:9], vanished[9][:-1]), vanished[:9]),
        "claude/vanished.jsonl": three(vanished, None),
        "claude/returned.jsonl": (b"".join(returned[:90]), None, b"".join(returned)),
        f"claude/{name}.jsonl": three(beside[:10], beside),
        f"claude/{name}/tool-results/changed.txt": (b"one", b"one", b"two"),
        f"claude/{name}/tool-results/new.txt": (None, None, rng.randbytes(100_000)),
    }


def _compressed(rng: random.Random) -> dict[str, _States]:
    """Compressed ones; one is replaced by its text, and has a title in a list."""
    grown, cut, anew, other = (_dsh(rng, 800) for _ in range(4))
    thread = _session(rng)
    rollout = _codex(rng, 700, thread)
    early = _frames(rollout[:400], 100)
    named = f"codex/rollout-2026-01-02T03-04-05-{thread}.jsonl"
    states = {
        "grown": (_frames(grown[:200], 50), _frames(grown, 50)),
        "cut": (_frames(cut[:200], 50)[:-37], _frames(cut[:200], 50) + _frames(cut[200:], 99)),
        "anew": (_frames(anew, 50), _frames(anew[:200], 50) + _frames(other, 300)),
    }
    titled = [
        msgspec.json.encode(
            {"id": thread, "updated_at": "2026-01-02T03:04:05Z", "thread_name": name}
        )
        for name in ("first", "later")
    ]
    return {
        "codex/session_index.jsonl": (*2 * [titled[0] + b"\n"], b"\n".join((*titled, b""))),
        **{f"dsh/{name}/session.jsonl.zstd": (a, a, b) for name, (a, b) in states.items()},
        f"{named}.zst": (early, early, early),
        named: (None, None, b"".join(rollout)),
    }


class Text(NamedTuple):
    """What has to come out of a session.

    Attributes:
        path: of the source.
        last: its text.
        first: its text before it was rewritten.
        file: its bytes where it is compressed.

    """

    path: str
    last: bytes
    first: bytes
    file: bytes | None


class Sources:
    """The folder of all sources, in one of three states.

    Attributes:
        root: its path.

    """

    def __init__(self, root: str, samples: Sequence[str], rng: random.Random) -> None:
        """Make the folder `root`, with copies of the folders `samples`; see `enter`."""
        self.root = root
        self._made = {**_plain(rng), **_compressed(rng)}
        os.mkdir(root, 0o700)
        for sample in samples:
            shutil.copytree(sample, os.path.join(root, os.path.basename(sample)))
        self._seen: dict[str, tuple[Any, ...]] = {}

    def enter(self, state: int) -> None:
        """Grow, write anew and remove what is another one in `state`: 0, then 1, then 2."""
        for name, states in self._made.items():
            path, wanted = os.path.join(self.root, name), states[state]
            before = states[state - 1] if state else None
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if wanted is None and before is not None:
                os.unlink(path)
            elif wanted is not None and wanted != before:
                grown = before is not None and wanted.startswith(before)
                with open(path, "ab" if grown else "wb") as file:
                    file.write(wanted[len(before or b"") :] if grown else wanted)
        self._seen = self._looked_at()

    def _looked_at(self) -> dict[str, tuple[Any, ...]]:
        """All that a write, or a change of a time or of a mode, would change."""
        found: dict[str, tuple[Any, ...]] = {}
        for folder, _, names in os.walk(self.root):
            found[folder] = (*sorted(names),)
            for path in (os.path.join(folder, name) for name in names):
                with open(path, "rb") as file:
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                    seen = os.fstat(file.fileno())
                found[path] = (
                    digest,
                    seen.st_ino,
                    seen.st_mode,
                    seen.st_mtime_ns,
                    seen.st_ctime_ns,
                )
        return found

    def check_untouched(self) -> None:
        """Demand that nobody wrote to a source since it was brought into its state.

        Raises:
            Finding: somebody did.

        """
        if self._looked_at() != self._seen:
            raise Finding("a source was touched")

    def paths(self) -> set[str]:
        """Every file that is a source now."""
        return {path for path in self._seen if path.endswith(_ENDS)}

    def texts(self, *, new: bool) -> Iterator[Text]:
        """What has to come out of each source: of a `new` store, or one that knows all states."""
        states = {os.path.join(self.root, name): made for name, made in self._made.items()}
        for path in self.paths() - states.keys():
            with open(path, "rb") as file:
                states[path] = (file.read(),)
        for path, known in states.items():
            there = [each for each in known[-1 if new else 0 :] if each is not None]
            if not path.endswith(_ENDS) or not there:
                continue
            first, last = _text(path, there[0]), _text(path, there[-1])
            # A line that was not whole yet is stored anew, too.
            grown = last.startswith(first) and first.endswith(b"\n")
            whole = None if path.endswith(".jsonl") else there[-1]
            yield Text(path, last, last if grown else first, whole)
