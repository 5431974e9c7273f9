"""Search by meaning where others are at work: namespaces, models, threads, embedders that fail."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

import perdure
from perdure.embedding.arithmetic import checked
from perdure.embedding.sqlite import NAME, SqliteVectors
from perdure.embedding.vectors import Made
from perdure.errors import EmbedderUnavailable, InvalidValue, TextRefused
from perdure.store import background
from tests.test_meaning import Topics, filled, say


@pytest.fixture
def store(tmp_path: Path) -> Iterator[perdure.Store]:
    with perdure.open(tmp_path / "s", embedder=Topics(batch=64)) as opened:
        yield opened


def test_other_namespaces_crowd_nobody_out(store: perdure.Store) -> None:
    """What many passages of another namespace are nearer than is found all the same."""
    crowd, few = store.namespace("crowd"), store.namespace("few")
    say(crowd, "many", *(f"ship number {number} at the quay" for number in range(500)))
    say(few, "one", "an anchor, and more that is of no matter here")
    crowd.embed()
    assert few.search("quay").mode == "keyword"
    few.embed()
    for mode in ("semantic", "hybrid"):
        assert [hit.session for hit in few.search("ship", mode=mode).hits] == ["one"]


def test_what_was_deleted_crowds_nobody_out(store: perdure.Store) -> None:
    """Vectors that nobody says any more take no place in an answer."""
    say(store, "many", *(f"ship number {number} at the quay" for number in range(500)))
    filled(store)
    store.embed()
    store.delete("many")
    hits = store.search("anchor", mode="semantic").hits
    assert hits[0].session == "sea"
    assert len(hits) == 4


def test_what_no_session_is_left_out_of_is_not_listed(store: perdure.Store) -> None:
    """A search without the session that asks finds as one that is about all others."""
    filled(store)
    store.embed()
    without = store.search("quay", mode="semantic", without="sea").hits
    assert without == store.search("quay", mode="semantic", session=["home", "music"]).hits


def test_the_old_model_does_not_stop_the_new_one(tmp_path: Path) -> None:
    """Whoever embeds with the old model takes nothing away from one that is on its way."""
    old, new = Topics("topics/1"), Topics("topics/2")
    with perdure.open(tmp_path / "s", embedder=old) as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s", embedder=new) as store:
        made = store.embed(["sea", "home"])
        assert not made.complete
    with perdure.open(tmp_path / "s", embedder=old) as store:
        assert store.embed().complete
    new.calls.clear()
    with perdure.open(tmp_path / "s", embedder=new) as store:
        assert store.embed().complete
        assert not [text for call in new.calls for text in call if "quay" in text or "soup" in text]
        assert [each.name for each in store.stats().models] == ["topics/2"]


def test_an_index_made_anew_costs_no_vectors(store: perdure.Store) -> None:
    """Where the index does not know another namespace just now, its vectors stay."""
    other = store.namespace("other")
    say(other, "theirs", "the conductor has the score")
    filled(store)
    other.embed()
    store.embed()
    (before,) = store.stats().models
    store.full_rescan()
    store.embed()
    (after,) = store.stats().models
    assert after.vectors == before.vectors
    assert other.search("violin", mode="semantic").hits[0].session == "theirs"


def test_damage_does_not_hold_a_new_model_up(tmp_path: Path) -> None:
    """A session that cannot be read any more keeps no model from taking over."""
    with perdure.open(tmp_path / "s", embedder=Topics("topics/1"), encoding="raw") as store:
        filled(store)
        store.embed()
        store.refresh()
    (log,) = (tmp_path / "s").rglob("music*/*.jsonl")
    log.write_bytes(b"noise\n" + log.read_bytes())
    with perdure.open(tmp_path / "s", embedder=Topics("topics/2")) as store:
        store.refresh()
        for _ in range(2):
            made = store.embed()
            assert made.complete
            assert [id for id, _ in made.failed] == ["music"]
        assert [each.name for each in store.stats().models] == ["topics/2"]


def test_an_emptied_namespace_does_not_hold_a_new_model_up(tmp_path: Path) -> None:
    """Sessions that are gone keep no model from taking over."""
    with perdure.open(tmp_path / "s", embedder=Topics("topics/1")) as store:
        filled(store)
        store.embed()
        say(store.namespace("gone"), "a", "soup")
        store.namespace("gone").embed()
    with perdure.open(tmp_path / "s", embedder=Topics("topics/2")) as store:
        store.namespace("gone").delete("a")
        assert not store.embed().complete
        store.namespace("gone").embed()
        assert store.embed().complete


def test_an_answer_says_what_was_not_embedded(store: perdure.Store) -> None:
    """A session that is new, or that went on, is counted, and one that is gone is not."""
    filled(store)
    store.embed()
    assert store.search("quay").warnings == ()
    with store.writer("sea") as session:
        session.append("user/message", {"content": [{"type": "text", "text": "a violin"}]})
    (warning,) = store.search("quay").warnings
    assert warning.startswith("1 of 3 sessions says something that has no vectors yet")
    store.delete("home")
    say(store, "new", "an oven")
    (warning,) = store.search("quay").warnings
    assert warning.startswith("2 of 3 sessions say")
    store.embed()
    assert store.search("quay").warnings == ()


def test_closing_waits_for_no_embedder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store is closed while an embedder is at work, and keeps nothing of what that gives."""
    entered, gate, left = threading.Event(), threading.Event(), threading.Event()

    class Slow(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            entered.set()
            gate.wait()
            left.set()
            return super().embed_documents(texts)

    monkeypatch.setattr(background, "SECONDS", 0.0)
    monkeypatch.setattr(background, "_STOP_SECONDS", 0.01)
    store = perdure.open(tmp_path / "s", embedder=Slow(), embed=True)
    filled(store)
    store._indexer._push(lambda: None)  # type: ignore[union-attr]
    assert entered.wait(60)
    thread = store._background._flusher._thread  # type: ignore[union-attr]
    store.close()
    gate.set()
    assert left.wait(60)
    if thread is not None:
        thread.join(60)
    with perdure.open(tmp_path / "s", embedder=Topics()) as again:
        assert [each.vectors for each in again.stats().models] in ([], [0])


def test_one_thread_at_a_time_is_in_an_embedder(tmp_path: Path) -> None:
    """Each call of an embedder has it alone, whoever embeds and whoever searches."""

    class Watched(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            assert calls.locked()
            return super().embed_documents(texts)

        def embed_query(self, text: str) -> Any:
            assert calls.locked()
            return super().embed_query(text)

    with perdure.open(tmp_path / "s", embedder=Watched()) as store:
        calls = store._cataloguing.embedders.calls  # type: ignore[union-attr]
        filled(store)
        store.embed()
        assert store.search("quay", mode="semantic").hits
        assert not calls.locked()


def test_whatever_an_embedder_raises_is_of_the_tree(tmp_path: Path) -> None:
    """Foreign code lets no foreign error out, and spoils no closing."""

    class Raising(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:  # noqa: ARG002
            raise RuntimeError("no")

        def close(self) -> None:
            raise OSError("no")

    with perdure.open(tmp_path / "s", embedder=Raising()) as store:
        filled(store)
        with pytest.raises(EmbedderUnavailable, match="RuntimeError: no"):
            store.embed()
        for wrong in (10**400, 1e-300, float("inf")):
            with pytest.raises(InvalidValue):
                store.embed(per_minute=wrong)
    broken = Topics()
    broken.model = None  # type: ignore[assignment]
    for given in (broken, ["hashing"], "no-such-thing", 5):
        with pytest.raises(InvalidValue):
            perdure.open(tmp_path / "s", embedder=given)  # type: ignore[arg-type]


def test_a_text_that_is_refused_stops_no_other(tmp_path: Path) -> None:
    """What an embedder does not take is named, and everything else is embedded."""

    class Picky(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            if len(texts) > 2 or any("soup" in text for text in texts):
                raise TextRefused("picky", "it answered 413")
            return super().embed_documents(texts)

    with perdure.open(tmp_path / "s", embedder=Picky(batch=64)) as store:
        filled(store)
        made = store.embed()
        assert {id for id, _ in made.failed} == {"home"}
        assert made.failed[0][1].endswith("it answered 413")
        assert store.search("anchor", mode="semantic").hits[0].session == "sea"
        assert store.search("conductor", mode="semantic").hits[0].session == "music"


def test_an_endpoint_may_take_fewer_texts_than_one_passage_has(tmp_path: Path) -> None:
    """A long passage is embedded whole, however few texts an embedder takes at once."""

    class Narrow(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            if len(texts) > 3:
                raise TextRefused("narrow", "it answered 413")
            return super().embed_documents(texts)

    embedder = Narrow(batch=64)
    with perdure.open(tmp_path / "s", embedder=embedder) as store:
        say(store, "a", "nothing of note happened on that day. " * 300 + "the violin")
        made = store.embed()
        assert made.failed == ()
        assert made.vectors == sum(map(len, embedder.calls)) > 20
        assert store.search("orchestra", mode="semantic").hits[0].session == "a"


def test_pieces_of_long_passages_crowd_nobody_out(tmp_path: Path) -> None:
    """So many passages are found as are asked for, however many pieces others have."""
    rng = np.random.default_rng(3)
    long = rng.standard_normal((30 * 128, 16)) * 0.01 + np.ones(16)
    short = rng.standard_normal((400, 16))
    vectors = SqliteVectors(str(tmp_path))
    vectors.begin("m", "m", 16)
    rows = checked(np.concatenate((long, short)), len(long) + len(short), 16, "m")
    made = [Made(at // 128, at % 128) for at in range(len(long))]
    made += [Made(1000 + at, 0) for at in range(len(short))]
    vectors.put("m", made, rows)
    query = checked([np.ones(16)], 1, 16, "m")[0]
    found = vectors.nearest("m", query, None, 200)
    assert len({each.digest for each in found}) == 200
    assert {each.digest for each in found[:30]} == set(range(30))


def test_what_went_meanwhile_is_not_noted_as_read(tmp_path: Path) -> None:
    """Nobody notes a session as embedded if vectors were taken away since he looked."""
    vectors = SqliteVectors(str(tmp_path))
    vectors.begin("m", "m", 2)
    vectors.put("m", [Made(1, 0)], checked([[1.0, 0.0]], 1, 2, "m"))
    before = vectors.era()
    vectors.remove("m", [1])
    vectors.put_reading("m", "", "s", 5, era=before)
    assert vectors.versions("m", "").get("s") is None
    vectors.put_reading("m", "", "s", 5, era=vectors.era())
    assert vectors.versions("m", "") == {"s": 5}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors SET half = x'00' WHERE id = 1",
        "UPDATE sketches SET sketch = x'00' WHERE id = 1",
        "DELETE FROM vectors WHERE id = 1",
        "UPDATE models SET dimension = 7",
    ],
)
def test_damaged_cells_are_made_anew(tmp_path: Path, damage: str) -> None:
    """Where some vectors make no sense any more words answer, and embedding makes them anew."""
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        vectors = store.embed().vectors
    db = apsw.Connection(str(tmp_path / "s" / NAME))
    db.execute(damage)
    db.close()
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        found = store.search("quay")
        assert (found.mode, len(found.hits), len(found.warnings)) == ("keyword", 1, 1)
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        assert store.embed().vectors >= 1
        assert store.stats().models[0].vectors == vectors
        assert store.search("anchor").mode == "hybrid"
        assert store.search("anchor", mode="semantic").hits[0].session == "sea"


def test_a_file_that_is_lost_while_it_is_filled_is_filled_again(tmp_path: Path) -> None:
    """Vectors that are deleted under whoever makes them are made by the next who embeds."""
    path = tmp_path / "s" / NAME

    class Losing(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:
            if len(self.calls) == 2 and path.exists():
                path.unlink()
            return super().embed_documents(texts)

    with perdure.open(tmp_path / "s", embedder=Losing(batch=1)) as store:
        filled(store)
        store.embed()
        store.embed()
    whole = Topics()
    with perdure.open(tmp_path / "whole", embedder=whole) as other:
        filled(other)
        wanted = other.embed().vectors
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        assert store.embed().vectors == 0
        assert store.stats().models[0].vectors == wanted


def test_a_call_is_found_once(store: perdure.Store) -> None:
    """A tool call is one hit, though the answer and the call itself say it."""
    call = {"id": "c", "name": "read", "arguments": {"path": "the ship at the quay"}}
    with store.create("calls") as session:
        session.append("assistant/message", {"content": [{"type": "tool-call", **call}]}, turn="t")
        session.append("tool/call", call, turn="t")
    store.embed()
    for mode in ("keyword", "semantic", "hybrid"):
        hits = store.search("quay", mode=mode, kind="tool-call").hits
        assert len(hits) == 1, mode


def test_a_fallback_of_no_words_is_none(store: perdure.Store) -> None:
    """Where not one word of the query is found, no answer says that some are."""
    filled(store)
    store.embed()
    found = store.search("anchor spoon", mode="hybrid")
    assert found.hits
    assert not found.fallback


@pytest.mark.parametrize(
    "spec",
    [
        "http://..a/v1#m",
        f"http://{'a' * 64}.test/v1#m",
        f"model2vec:/{'m' * 300}",
        f"sentence-transformers:/{'m' * 300}",
        "model2vec:/\0",
    ],
)
def test_names_that_no_system_takes_are_refused(tmp_path: Path, spec: str) -> None:
    """Hosts and folders that cannot be are errors of the tree, and words answer."""
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s", embedder=spec) as store:
        with pytest.raises((InvalidValue, EmbedderUnavailable)):
            store.embed()
        assert store.search("quay").mode == "keyword"


def test_a_long_query_is_cut(tmp_path: Path) -> None:
    """However much is typed, an embedder is given so much of it as says what it is about."""
    given: list[str] = []

    class Noting(Topics):
        def embed_query(self, text: str) -> Any:
            given.append(text)
            return super().embed_query(text)

    with perdure.open(tmp_path / "s", embedder=Noting()) as store:
        filled(store)
        store.embed()
        store.search("quay " * 100_000, mode="semantic")
    assert len(given[0]) == 2_000


def test_an_answer_by_another_model_says_so(tmp_path: Path) -> None:
    """Where the embedder that was asked for has no vectors, the answer names the one that has."""
    with perdure.open(tmp_path / "s", embedder="hashing:64") as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s", embedder="hashing:32") as store:
        found = store.search("quay")
        assert found.model == "hashing/1/64"
        assert found.warnings[0].startswith("hashing:32 has not embedded everything")
        store.embed("sea")
    with perdure.open(tmp_path / "s") as store:
        # What is on its way is gone on with.
        assert store.embed().model == "hashing/1/32"
        assert store.search("quay").warnings == ()
