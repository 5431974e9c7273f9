"""Readings: which sessions were embedded to their ends."""

from perdure.embedding.vectors import Vectors
from perdure.testing.vectors.place import A, B, VectorsCase, around, begun, put

__all__ = ["Readings"]

NAMES = ("", "n", "N", "\ud800", "n\0", "a/b")


class Readings(VectorsCase):
    """What is noted of sessions."""

    def test_a_reading_is_the_last_that_was_noted(self, vectors: Vectors) -> None:
        """What was noted last of a session holds, and there is nothing of any other."""
        begun(vectors)
        for version in (7, 2**62, 3):
            vectors.put_reading(A, "", "s", version)
            assert vectors.versions(A, "").get("s") == version
        assert len(vectors.versions(A, "")) == 1
        assert vectors.versions(A, "").get("t") is None

    def test_readings_are_by_model_namespace_and_session(self, vectors: Vectors) -> None:
        """Each model has its own, and so has each namespace, whatever they are called."""
        begun(vectors, A)
        begun(vectors, B)
        noted = {
            (model, namespace, session): number
            for number, (model, namespace, session) in enumerate(
                (model, namespace, session)
                for model in (A, B)
                for namespace in NAMES
                for session in NAMES
                if model == A or namespace != session
            )
        }
        for place, number in noted.items():
            vectors.put_reading(*place, number)
        for model in (A, B):
            for namespace in NAMES:
                assert len(vectors.versions(model, namespace)) == len(NAMES) - (model == B)
                for session in NAMES:
                    place = (model, namespace, session)
                    assert vectors.versions(*place[:2]).get(place[2]) == noted.get(place)

    def test_readings_of_sessions_that_are_gone_go(self, vectors: Vectors) -> None:
        """Of one namespace those of the sessions that are named stay, for all models."""
        begun(vectors, A)
        begun(vectors, B)
        for model in (A, B):
            for namespace in NAMES:
                for session in NAMES:
                    vectors.put_reading(model, namespace, session, 1)
        vectors.keep_readings("n", ["n", "\ud800", "unknown"])
        for model in (A, B):
            assert [len(vectors.versions(model, each)) for each in NAMES] == [6, 2, 6, 6, 6, 6]
            left = [each for each in NAMES if vectors.versions(model, "n").get(each) is not None]
            assert left == ["n", "\ud800"]
        vectors.keep_readings("", set())
        assert [len(vectors.versions(A, each)) for each in NAMES] == [0, 2, 6, 6, 6, 6]
        vectors.keep_readings("unknown", [])
        assert [len(vectors.versions(B, each)) for each in NAMES] == [0, 2, 6, 6, 6, 6]

    def test_what_was_removed_has_to_be_read_again(self, vectors: Vectors) -> None:
        """After a removal every session of the model is one whose version is not known."""
        begun(vectors, A)
        begun(vectors, B)
        put(vectors, A, [1], around(0))
        for session in ("s", "t"):
            vectors.put_reading(A, "", session, 5)
        vectors.put_reading(B, "", "s", 6)
        vectors.remove(A, [2])
        vectors.remove(A, [])
        assert [vectors.versions(A, "").get(each) for each in "st"] == [5, 5]
        vectors.remove(A, [1])
        assert [vectors.versions(A, "").get(each) for each in "st"] == [-1, -1]
        assert len(vectors.versions(A, "")) == 2
        assert vectors.versions(B, "").get("s") == 6
