"""Every store of vectors passes the contract suite, and the suite notices one that cheats."""

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from perdure.embedding.sqlite import SqliteVectors
from perdure.embedding.sqlite.vectors import EXACT_MAX
from perdure.embedding.vectors import Made, Near, Vectors
from perdure.runtime import Runtime
from perdure.testing.vectors import PlainVectors, VectorsContract
from tests.support import SOAK, scaled

EXAMPLES = scaled(400)
MANY = 60_000 if SOAK else 6_000


class TestFile(VectorsContract):
    exact_max = EXACT_MAX
    examples = EXAMPLES
    many = MANY

    def make_vectors(self, folder: Path, runtime: Runtime) -> Vectors:
        return SqliteVectors(str(folder), runtime=runtime)


class TestMemory(VectorsContract):
    survives_close = False
    exact_max = EXACT_MAX
    examples = EXAMPLES
    many = MANY

    def make_vectors(self, folder: Path, runtime: Runtime) -> Vectors:  # noqa: ARG002
        return SqliteVectors(None, runtime=runtime)


class TestPlain(VectorsContract):
    survives_close = False
    exact_max = 200
    examples = scaled(50)
    many = 600

    def make_vectors(self, folder: Path, runtime: Runtime) -> Vectors:  # noqa: ARG002
        return PlainVectors()


# --- stores that cheat ----------------------------------------------------------------------------


class Late(PlainVectors):
    """Lets the last to put win."""

    def put(self, name: str, made: Sequence[Made], vectors: Any) -> int:
        count = super().put(name, made, vectors)
        for each, row in zip(made, vectors, strict=True):
            self._kept[name].rows[each] = row
        return count


class Repeating(PlainVectors):
    """Gives a passage once for each of its pieces."""

    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        found = super().nearest(name, query, digests, most)
        return found + found[: most - len(found)]


class Shuffled(PlainVectors):
    """Gives equal scores in the order in which they were asked for."""

    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        order = list(digests or ())
        found = super().nearest(name, query, digests, 10**6)
        if digests is not None:
            found.sort(key=lambda each: (-each.score, order.index(each.digest)))
        return found[: max(0, most)]


class Mixing(PlainVectors):
    """Takes what one model has for what another one lacks."""

    def _digests(self, name: str) -> set[int]:
        del name
        return {made.digest for kept in self._kept.values() for made in kept.rows}


class Hasty(PlainVectors):
    """Lets a new model answer at once."""

    def complete(self, name: str) -> bool:
        own = self._begun(name)
        own.complete = True
        self._kept = {name: own}
        return True


class Sloppy(PlainVectors):
    """Looks at one in ten of many vectors."""

    def nearest(
        self, name: str, query: Any, digests: Collection[int] | None, most: int
    ) -> list[Near]:
        kept = self._kept.get(name)
        if kept is not None and len(kept.rows) >= TestPlain.many:
            digests = [made.digest for made in kept.rows if made.digest % 10 == 0]
        return super().nearest(name, query, digests, most)


class Coarse(PlainVectors):
    """Keeps of each number whether it is above 0."""

    def put(self, name: str, made: Sequence[Made], vectors: Any) -> int:
        return super().put(name, made, (2 * (vectors > 0) - 1) / vectors.shape[1] ** 0.5)


class Sessile(PlainVectors):
    """Keeps readings when what was read is removed."""

    def remove(self, name: str, digests: Collection[int]) -> None:
        read = dict(self._kept[name].read) if name in self._kept else {}
        super().remove(name, digests)
        if name in self._kept:
            self._kept[name].read = read


class Everywhere(PlainVectors):
    """Forgets what was noted in all namespaces, where one was named."""

    def keep_readings(self, namespace: str, sessions: Collection[str]) -> None:
        del namespace
        for each in {place for kept in self._kept.values() for place, _ in kept.read}:
            super().keep_readings(each, sessions)


Shown = Callable[..., None]


@pytest.mark.parametrize(
    ("cheat", "noticed"),
    [
        (Late, VectorsContract.test_the_first_to_put_wins),
        (Repeating, VectorsContract.test_a_passage_comes_once_by_its_nearest_piece),
        (Shuffled, VectorsContract.test_equal_scores_come_in_the_order_of_digests),
        (Mixing, VectorsContract.test_models_never_mix),
        (Hasty, VectorsContract.test_sessions_of_all_namespaces_count),
        (Sloppy, VectorsContract.test_of_many_nearly_all_that_are_nearest_come),
        (Coarse, VectorsContract.test_of_few_the_answer_is_exact),
        (Sessile, VectorsContract.test_what_was_removed_has_to_be_read_again),
        (Everywhere, VectorsContract.test_readings_of_sessions_that_are_gone_go),
    ],
)
def test_the_suite_notices_vectors_that_cheat(cheat: type[PlainVectors], noticed: Shown) -> None:
    """A store of vectors that breaks one promise fails the test that is about it."""
    with pytest.raises(AssertionError):
        noticed(TestPlain(), cheat())


@pytest.mark.parametrize("cheat", [Late, Repeating, Hasty, Everywhere])
def test_the_model_notices_vectors_that_cheat(
    tmp_path: Path, cheat: type[PlainVectors], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawn histories find a broken promise without being told which one it is."""
    # What is found need not be made small.
    settings.register_profile("found", settings.default, phases=[Phase.generate])
    usual = settings.get_current_profile_name()
    settings.load_profile("found")
    suite = TestPlain()
    monkeypatch.setattr(suite, "make_vectors", lambda *_: cheat())
    monkeypatch.setattr(suite, "examples", 4_000, raising=False)
    try:
        with pytest.raises(AssertionError):
            suite.test_vectors_agree_with_the_model(tmp_path)
    finally:
        settings.load_profile(usual)
