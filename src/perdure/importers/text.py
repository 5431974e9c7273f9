"""The text of a source, compressed or not: its lines from any place on, and parts of it again."""

from collections.abc import Iterator

from perdure.importers import compressed, lines
from perdure.importers.files import SourceFile
from perdure.importers.lines import Gap, Line

__all__ = ["SourceText"]

_PIECE_BYTES = 256 * 1024

_HELD_BYTES = 64 * 1024 * 1024
"""Lines of compressed files are held in memory up to this length."""


class SourceText:
    """The text of an open file, read in bounded memory as often as somebody asks.

    Attributes:
        file: the file.
        compressed: whether it consists of Zstandard frames; offsets are those of their text.

    """

    def __init__(self, file: SourceFile) -> None:
        """Look at the first bytes: they decide, the name only in doubt."""
        self.file = file
        head = file.read(0, 8)
        # A file whose first frame lost its magic number still does not begin as JSON does.
        doubtful = file.path.endswith((".zst", ".zstd")) and head[:1] not in b"{[ \t\r\n\xef"
        self.compressed = compressed.looks_compressed(head) or doubtful

    def lines(self, offset: int = 0, number: int = 1) -> Iterator[Line]:
        """The lines from the one of this number on, which begins at `offset`.

        One that is too long is given without its bytes.
        """
        # To find a long line again in a compressed text, all before it has to be unpacked.
        limit = _HELD_BYTES if self.compressed else lines.LINE_BYTES_MAX
        return lines.split(self._pieces(offset), limit, number=number, offset=offset)

    def between(self, start: int, size: int) -> Iterator[bytes]:
        """`size` bytes of the text from `start` on; fewer if it has become shorter."""
        left = size
        for piece in self._pieces(start):
            if isinstance(piece, Gap):
                continue
            part = piece[:left]
            left -= len(part)
            if part:
                yield part
            if not left:
                return

    def begins(self, whole: "SourceText") -> bool:
        """Whether all of this text can be read, and another one begins with it."""
        at = 0
        for piece in self._pieces(0):
            if isinstance(piece, Gap) or b"".join(whole.between(at, len(piece))) != piece:
                return False
            at += len(piece)
        return True

    def _pieces(self, start: int) -> Iterator[bytes | Gap]:
        return self._squeezed(start) if self.compressed else self._plain(start)

    def _plain(self, start: int) -> Iterator[bytes | Gap]:
        at = start
        while piece := self.file.read(at, _PIECE_BYTES):
            yield piece
            at += len(piece)

    def _squeezed(self, start: int) -> Iterator[bytes | Gap]:
        at = 0
        for piece in compressed.frames(self.file):
            if isinstance(piece, Gap):
                if at >= start:
                    yield piece
                continue
            part = piece[max(start - at, 0) :]
            at += len(piece)
            if part:
                yield part
