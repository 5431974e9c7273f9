"""What can happen to the bytes of a log, and what must come out of them.

`Original` cuts a sound log into units (lines, or compressed frames) without the help of the
product. A mutation makes other bytes of it. `expect` works out what readers must make of those: it
checks neither checksums nor links, it only asks which units still stand where, by comparing bytes.
"""

import contextlib
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from perdure.model.event import Event
from perdure.testing.ledger import Finding

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = [
    "MUTATIONS",
    "Mutation",
    "Original",
    "Outcome",
    "Unit",
    "expect",
    "from_elsewhere",
    "unframed",
]

_SKIPPABLE = 0x184D2A50


class Unit(NamedTuple):
    """What one commit or one record left in the file.

    Attributes:
        body: its bytes: a line, or a frame without its trailer.
        start: where it stands.
        end: where the next one starts, behind its trailer if it has one.
        first: number of its first event; 0 for the header.
        after: number behind its last event; 0 for the header.
        last: number of the first event of its last record.

    """

    body: bytes
    start: int
    end: int
    first: int
    after: int
    last: int


class Original:
    """A log before it is harmed.

    Attributes:
        data: its bytes.
        units: the header, then what holds its events.
        events: the events, by number.
        encoding: "raw" or "zst".
        namesake: the header of another session with the same id, as it stands in its file.

    """

    def __init__(
        self, data: bytes, encoding: str, events: Sequence[Event], namesake: bytes = b""
    ) -> None:
        """Cut `data` into units, without the help of the product."""
        self.data = data
        self.namesake = namesake
        self.encoding = encoding
        self.events = [*events]
        cut = _cut_lines if encoding == "raw" else _cut_frames
        self.units: list[Unit] = []
        at = 0
        for body, plain, end in cut(data):
            lines = [json.loads(line) for line in plain.splitlines()] if self.units else []
            first = self.units[-1].after if self.units else 0
            last = lines[-1]["seq"] if lines else 0
            after = last + len(lines[-1].get("more") or ()) + 1 if lines else 0
            self.units.append(Unit(body, at, end, first, after, last))
            at = end
        if at != len(data) or self.units[-1].after != len(self.events):
            raise Finding("the original does not add up")


def _cut_lines(data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    end = 0
    for line in data.split(b"\n")[:-1]:
        end += len(line) + 1
        yield line + b"\n", line, end


def _cut_frames(data: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    at = 0
    while at < len(data):
        size = zstd.get_frame_size(data[at:])
        body, end = data[at : at + size], at + size
        if int.from_bytes(data[end : end + 4], "little") & 0xFFFFFFF0 == _SKIPPABLE:
            end += 8 + int.from_bytes(data[end + 4 : end + 8], "little")
        yield body, zstd.decompress(body), end
        at = end


def unframed(data: bytes) -> bytes:
    """The lines of a compressed log, up to the first frame that is not whole."""
    lines = []
    with contextlib.suppress(zstd.ZstdError):
        for _, plain, _ in _cut_frames(data):
            lines.append(plain)
    return b"".join(lines)


# --- the oracle ----------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What must come out of a changed log.

    Attributes:
        header: whether the header is whole and in its place.
        verified: how many events are verified.
        least: how many of them it may be at the least; see `expect`.
        foreign: whether units of another session were put in.
        later: numbers of the events of whole units behind that, in the order of the file.

    """

    header: bool
    verified: int
    least: int
    foreign: bool
    later: list[int]


def expect(original: Original, data: bytes, *, foreign: bool = False) -> Outcome:
    """Work out what must come out of `data`, which was made of the bytes of `original`.

    With `foreign`, units of another session stand among them. Two records that do not link and are
    whole each leave open which of them is the stranger, so the prefix may end one record earlier.
    """
    standing = _whole_lines if original.encoding == "raw" else _whole_frames
    found = [*standing(original, data)]
    # A header in any other place is noise.
    found = [pair for at, pair in enumerate(found) if at == 0 or pair[1].after]
    header = bool(found) and found[0] == (0, original.units[0])
    verified, least, behind, wanted = 0, 0, found, 1
    if header:
        behind = found[1:]
        while behind and wanted < len(original.units) and behind[0][1] == original.units[wanted]:
            verified = behind[0][1].after
            least = behind[0][1].last if foreign else verified
            behind = behind[1:]
            wanted += 1
    later = [seq for _, unit in behind for seq in range(unit.first, unit.after)]
    return Outcome(header, verified, least, foreign, later)


def _whole_lines(original: Original, data: bytes) -> Iterator[tuple[int, Unit]]:
    """Place and unit of every line that is one of the original's."""
    known = {unit.body: unit for unit in original.units}
    at = 0
    for line in data.split(b"\n"):
        # The last record may lack its newline and nothing else; the header may not.
        unit = known.get(line + b"\n")
        if unit is not None and (unit.after or at + len(line) < len(data)):
            yield at, unit
        at += len(line) + 1


def _whole_frames(original: Original, data: bytes) -> Iterator[tuple[int, Unit]]:
    """Place and unit of every frame of the original that stands somewhere in `data`.

    A frame some bits of which may change without changing what it says counts as whole.
    """
    found = []
    for unit in original.units:
        at = data.find(unit.body)
        if at < 0:
            # A byte more or less in the head of a frame may make another head of the same meaning.
            size = len(unit.body) + len(data) - len(original.data)
            changed = data[unit.start : unit.start + size]
            if _says_the_same(changed, unit.body):
                found.append((unit.start, unit))
        while at >= 0:
            found.append((at, unit))
            at = data.find(unit.body, at + 1)
    taken = 0
    for at, unit in sorted(found, key=lambda pair: pair[0]):
        # Where a byte at the border of two equals its neighbour, either may have lost it.
        if at >= taken:
            yield at, unit
            whole = original.data[unit.start : unit.end]
            taken = at + len(whole if data.startswith(whole, at) else unit.body)


def _says_the_same(changed: bytes, frame: bytes) -> bool:
    reader = zstd.ZstdDecompressor()
    with contextlib.suppress(zstd.ZstdError):
        # Where the flag of the checksum was flipped, the frame ends before it.
        return reader.decompress(changed) == zstd.decompress(frame) and reader.eof
    return False


# --- mutations -----------------------------------------------------------------------------------

Mutation = Callable[[Original, Original, random.Random], bytes]
"""A changed log, made of the victim's bytes and perhaps those of its twin."""


def _spot(original: Original, rng: random.Random) -> int:
    """A place in the file: anywhere, or within some bytes of the edge of a unit."""
    if rng.random() < 0.5:
        return rng.randrange(len(original.data))
    unit = rng.choice(original.units)
    edge = rng.choice([unit.start, unit.start + len(unit.body), unit.end])
    return min(max(0, edge + rng.randint(-4, 4)), len(original.data) - 1)


def _flip_bits(original: Original, _: Original, rng: random.Random) -> bytes:
    data = bytearray(original.data)
    for _bit in range(rng.choice([1, 1, 1, 2, 8])):
        data[_spot(original, rng)] ^= 1 << rng.randrange(8)
    return bytes(data)


def _flip_byte(original: Original, _: Original, rng: random.Random) -> bytes:
    data = bytearray(original.data)
    data[_spot(original, rng)] = rng.choice([0, 10, 34, 123, rng.randrange(256)])
    return bytes(data)


def _cut(original: Original, _: Original, rng: random.Random) -> bytes:
    return original.data[: _spot(original, rng)]


def _cut_at_edge(original: Original, _: Original, rng: random.Random) -> bytes:
    unit = rng.choice(original.units)
    return original.data[: rng.choice([unit.start + len(unit.body), unit.end])]


def _insert(original: Original, _: Original, rng: random.Random) -> bytes:
    at = _spot(original, rng)
    size = rng.choice([1, 2, 40, 200])
    noise = rng.choice([rng.randbytes(size), b"\0" * size, b"\n" * rng.randint(1, 3)])
    return original.data[:at] + noise + original.data[at:]


def _zero(original: Original, _: Original, rng: random.Random) -> bytes:
    at, size = _spot(original, rng), rng.choice([1, 8, 100, 512, 4096])
    end = min(at + size, len(original.data))
    return original.data[:at] + bytes(end - at) + original.data[end:]


def _remove(original: Original, _: Original, rng: random.Random) -> bytes:
    at = _spot(original, rng)
    return original.data[:at] + original.data[at + rng.choice([1, 1, 7, 300]) :]


def _swap_header(original: Original, twin: Original, rng: random.Random) -> bytes:
    """The header of another session, or of a session with the same id in another store."""
    header = rng.choice([twin.data[: twin.units[0].end], original.namesake])
    return header + original.data[original.units[0].end :]


def _keep(original: Original, _: Original, __: random.Random) -> bytes:
    """The log stays whole; `corrupt` harms its tail file instead."""
    return original.data


def _join(original: Original, units: Sequence[Unit]) -> bytes:
    return b"".join(original.data[unit.start : unit.end] for unit in units)


def _repeat_unit(original: Original, _: Original, rng: random.Random) -> bytes:
    units = [*original.units]
    units.insert(rng.randrange(len(units) + 1), rng.choice(units))
    return _join(original, units)


def _reorder_units(original: Original, _: Original, rng: random.Random) -> bytes:
    units = [*original.units]
    a = rng.randrange(len(units) - 1)
    b = rng.choice([a + 1, rng.randrange(len(units))])
    units[a], units[b] = units[b], units[a]
    return _join(original, units)


def _delete_units(original: Original, _: Original, rng: random.Random) -> bytes:
    units = [*original.units]
    at = rng.randrange(len(units))
    del units[at : at + rng.choice([1, 1, 2, 5])]
    return _join(original, units)


def _splice_twin(original: Original, twin: Original, rng: random.Random) -> bytes:
    """The middle of another session's log where this one's should be."""
    at = rng.randrange(len(original.units))
    many = rng.choice([1, 2, 5])
    inside = twin.units[at : at + many]
    return (
        _join(original, original.units[:at])
        + _join(twin, inside)
        + _join(original, original.units[at + len(inside) :])
    )


MUTATIONS: dict[str, Mutation] = {
    "bits flipped": _flip_bits,
    "byte changed": _flip_byte,
    "cut": _cut,
    "cut at an edge": _cut_at_edge,
    "bytes inserted": _insert,
    "zeros": _zero,
    "bytes removed": _remove,
    "header exchanged": _swap_header,
    "unit repeated": _repeat_unit,
    "units reordered": _reorder_units,
    "units deleted": _delete_units,
    "twin spliced in": _splice_twin,
    "tail file harmed": _keep,
}


def from_elsewhere(name: str) -> bool:
    """Whether a mutation puts units of another session in."""
    return MUTATIONS[name] is _splice_twin
