"""Models: begun, complete, and gone when another one took over."""

from perdure.embedding.vectors import Model, Vectors
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

__all__ = ["Models"]

C = "model/c"


class Models(VectorsCase):
    """Which model answers, and from when on."""

    def test_a_model_is_told_of(self, vectors: Vectors) -> None:
        """A model that was begun is told of with what it was begun with, whatever its name."""
        vectors.begin("\ud800 a/b#c", "spec:\ud800", 7)
        assert vectors.models() == [Model("\ud800 a/b#c", "spec:\ud800", 7, False, 0)]
        assert vectors.complete("\ud800 a/b#c")
        assert vectors.models() == [Model("\ud800 a/b#c", "spec:\ud800", 7, True, 0)]

    def test_a_model_is_begun_once(self, vectors: Vectors) -> None:
        """Beginning a model again takes nothing of what is kept of it."""
        begun(vectors)
        put(vectors, A, [1], around(0))
        vectors.put_reading(A, "", "s", 4)
        vectors.complete(A)
        begun(vectors)
        assert vectors.models() == [Model(A, "spec:a", 2, True, 1)]
        assert asked(vectors, 0) == [(1, 0)]
        assert vectors.versions(A, "").get("s") == 4

    def test_a_model_is_where_it_was_found_last(self, vectors: Vectors) -> None:
        """A model that is begun again from another place is made from that one from then on."""
        vectors.begin(A, "model2vec:/old", 2)
        put(vectors, A, [1], around(0))
        vectors.complete(A)
        vectors.begin(A, "model2vec:/new", 2)
        assert vectors.models() == [Model(A, "model2vec:/new", 2, True, 1)]

    def test_the_one_that_is_complete_comes_first(self, vectors: Vectors) -> None:
        """Models that are complete come first, and of the others the one begun last."""
        begun(vectors, A)
        vectors.put_reading(A, "", "s", 1)
        assert vectors.complete(A)
        begun(vectors, B)
        begun(vectors, C)
        begun(vectors, B)
        assert [model.name for model in vectors.models()] == [A, C, B]
        assert [model.complete for model in vectors.models()] == [True, False, False]

    def test_an_older_model_answers_until_the_new_one_has_all_sessions(
        self, vectors: Vectors
    ) -> None:
        """A model is complete when it was given each session that another one was."""
        begun(vectors, A)
        put(vectors, A, [1, 2], around(0, 10))
        for session in ("s", "t"):
            vectors.put_reading(A, "", session, 1)
        assert vectors.complete(A)
        begun(vectors, B)
        assert not vectors.complete(B)
        put(vectors, B, [1], around(90))
        vectors.put_reading(B, "", "s", 5)
        vectors.put_reading(B, "", "new", 5)
        assert not vectors.complete(B)
        assert vectors.models()[0] == Model(A, "spec:a", 2, True, 2)
        assert asked(vectors, 0, name=A) == [(1, 0), (2, 0)]

        vectors.put_reading(B, "", "t", 5)
        assert vectors.complete(B)
        assert vectors.models() == [Model(B, "spec:b", 2, True, 1)]
        assert asked(vectors, 0, name=A) == []
        assert everything(vectors, A) == []
        assert vectors.missing(A, [1, 2]) == {1, 2}
        assert asked(vectors, 0, name=B) == [(1, 0)]
        assert (len(vectors.versions(A, "")), vectors.versions(A, "").get("s")) == (0, None)
        assert len(vectors.versions(B, "")) == 3

    def test_sessions_of_all_namespaces_count(self, vectors: Vectors) -> None:
        """A model that lacks a session of another namespace is not complete."""
        begun(vectors, A)
        for namespace in ("", "n", "\ud800"):
            vectors.put_reading(A, namespace, "s", 1)
        assert vectors.complete(A)
        begun(vectors, B)
        for namespace in ("", "n"):
            vectors.put_reading(B, namespace, "s", 1)
            assert not vectors.complete(B)
        vectors.put_reading(B, "\ud800", "s", 1)
        assert vectors.complete(B)

    def test_sessions_that_are_gone_are_waited_for_by_nobody(self, vectors: Vectors) -> None:
        """What was noted of a session that is gone keeps no model from being complete."""
        begun(vectors, A)
        for session in ("s", "gone"):
            vectors.put_reading(A, "", session, 1)
        assert vectors.complete(A)
        begun(vectors, B)
        vectors.put_reading(B, "", "s", 1)
        assert not vectors.complete(B)
        vectors.keep_readings("", ["s"])
        assert vectors.complete(B)

    def test_a_model_that_answers_goes_on_answering(self, vectors: Vectors) -> None:
        """One that is complete stays so when a new one, which is not, has more sessions."""
        begun(vectors, A)
        vectors.put_reading(A, "", "s", 1)
        assert vectors.complete(A)
        begun(vectors, B)
        vectors.put_reading(B, "", "new", 1)
        assert vectors.complete(A)
        assert [(each.name, each.complete) for each in vectors.models()] == [(A, True), (B, False)]
        vectors.put_reading(A, "", "new", 1)
        assert vectors.complete(A)
        # What was begun later is on its way to take over, and loses nothing by that.
        assert [each.name for each in vectors.models()] == [A, B]
        vectors.put_reading(B, "", "s", 1)
        assert vectors.complete(B)
        assert [each.name for each in vectors.models()] == [B]

    def test_a_model_may_come_back(self, vectors: Vectors) -> None:
        """One that was replaced and is begun again begins with nothing, and answers as any."""
        begun(vectors, A)
        put(vectors, A, [1, 2], around(0, 10))
        assert vectors.complete(A)
        assert asked(vectors, 0) == [(1, 0), (2, 0)]
        begun(vectors, B)
        put(vectors, B, [1], around(90))
        assert vectors.complete(B)
        begun(vectors, A)
        assert asked(vectors, 0) == []
        put(vectors, A, [3], around(40))
        assert asked(vectors, 0) == asked(vectors, 0, [1, 2, 3]) == [(3, 0)]
        assert [each.name for each in vectors.models()] == [B, A]
