"""Which messages the model is still told, by the numbers of the source."""

__all__ = ["Surface"]


class Surface:
    """The source's numbers of live messages, in order, with those of the stored events.

    Memory goes with what the model is told: a compaction takes away what it stands for.
    """

    def __init__(self) -> None:
        """Begin without a message."""
        self._live: list[tuple[int, int]] = []

    def append(self, seq: int, number: int) -> None:
        """The message `seq` of the source comes; it is in the stored event `number`."""
        self._live.append((seq, number))

    def holds(self, seq: int) -> bool:
        """Whether the message `seq` is live."""
        return self._at(seq) is not None

    def rewrite(self, old: int, seq: int) -> None:
        """The message `seq` tells less of what `old` said, in its place."""
        at = self._at(old)
        if at is not None:
            self._live[at] = (seq, self._live[at][1])

    def replace(self, start: int, end: int, seq: int, number: int) -> tuple[bool, int | None]:
        """The message `seq` takes the place of those from `start` to `end`.

        Returns whether nothing is live before it, and the stored event of the first message behind
        it, None if there is none. The range is one of places: numbers in it need not rise.
        """
        first, last = self._at(start), self._at(end)
        if first is None or last is None or first > last:
            # Parts of the log are lost; what is newer than the range is behind it.
            first, behind = 0, [each for each in self._live if each[0] > end]
            self._live = [(seq, number), *behind]
        else:
            behind = self._live[last + 1 :]
            self._live[first : last + 1] = [(seq, number)]
        return first == 0, min((each[1] for each in behind), default=None)

    def _at(self, seq: int) -> int | None:
        places = range(len(self._live) - 1, -1, -1)
        return next((at for at in places if self._live[at][0] == seq), None)
