"""Closed, opened again, used by many at once."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from perdure.embedding.vectors import Vectors
from perdure.testing.contract import Clockwork
from perdure.testing.vectors.place import (
    A,
    B,
    VectorsCase,
    around,
    asked,
    begun,
    everything,
    put,
)

__all__ = ["Sharing", "together"]


class Sharing(VectorsCase):
    """What several have in common."""

    def test_what_was_closed_opens_again(self, vectors: Vectors) -> None:
        """After closing, any call opens what was closed; closing again does nothing."""
        begun(vectors)
        put(vectors, A, [1], around(0))
        assert asked(vectors, 0) == [(1, 0)]
        vectors.close()
        vectors.close()
        expected = [(1, 0)] if self.survives_close else []
        assert asked(vectors, 0) == expected
        vectors.close()
        assert asked(vectors, 0, [1]) == expected
        vectors.close()
        begun(vectors)
        put(vectors, A, [2], around(10))
        assert asked(vectors, 0) == [*expected, (2, 0)]

    def test_others_see_each_change(self, place: Path) -> None:
        """A second instance at one place answers as the first, after each change of either."""
        clock = Clockwork()
        one, other = self.make_vectors(place, clock), self.make_vectors(place, clock)
        begun(one)
        put(one, A, [1], around(0))
        if not self.survives_close:
            assert other.models() == []
            return
        assert asked(other, 0) == asked(one, 0) == [(1, 0)]
        put(other, A, [2], around(10))
        assert asked(one, 0) == [(1, 0), (2, 0)]
        one.put_reading(A, "", "s", 3)
        assert other.versions(A, "").get("s") == 3
        other.remove(A, [1])
        assert asked(one, 0) == asked(other, 0) == [(2, 0)]
        put(other, A, [1, 3], around(20, 5))
        assert asked(one, 0) == asked(other, 0) == [(3, 0), (2, 0), (1, 0)]
        assert put(one, A, [3], around(90)) == 0
        one.remove(A, [1, 2, 3])
        put(one, A, [4], around(30))
        assert asked(other, 0) == asked(one, 0) == [(4, 0)]
        begun(other, B)
        put(other, B, [4, 5], around(50, 60))
        other.put_reading(B, "", "s", 3)
        assert other.complete(B)
        assert asked(one, 0) == []
        assert asked(one, 0, name=B) == [(4, 0), (5, 0)]
        begun(one, A)
        put(one, A, [6], around(0))
        assert asked(other, 0) == asked(one, 0) == [(6, 0)]
        one.close()
        other.close()

    def test_many_put_at_once(self, vectors: Vectors) -> None:
        """Threads that put, ask and remove are in nobody's way, and lose nothing."""
        begun(vectors)
        new: list[int] = []

        def add(number: int) -> None:
            for turn in range(5):
                own = [number * 100 + turn * 10 + each for each in range(10)]
                count = put(vectors, A, [*own, -1], around(*range(11)))
                assert (-1, 0) in asked(vectors, 10, most=1_000)
                vectors.remove(A, own[:1])
                found = [digest for digest, _ in asked(vectors, 0, most=1_000)]
                assert own[0] not in found
                assert set(own[1:]) <= set(found)
                new.append(count)

        together([partial(add, number) for number in range(4)])
        assert sum(new) == 4 * 5 * 10 + 1
        digests = [
            number * 100 + turn * 10 + each
            for number in range(4)
            for turn in range(5)
            for each in range(1, 10)
        ]
        assert everything(vectors) == [-1, *digests]
        assert vectors.models()[0].vectors == len(digests) + 1


def together(calls: list[Callable[[], None]]) -> None:
    """Call each in a thread of its own; what one raises is raised here."""
    errors: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
