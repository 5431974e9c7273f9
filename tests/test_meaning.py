"""Search by meaning, as a program sees it: what is embedded, and what answers."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.embedding import Embedder
from perdure.embedding.hashing import HashingEmbedder
from perdure.embedding.sqlite import NAME
from perdure.errors import EmbedderFaulty, EmbedderUnavailable, InvalidValue
from perdure.store import embedders
from perdure.store.background import Background
from tests.media import open_medium

TOPICS = ("harbour", "kitchen", "orchestra")


class Topics(Embedder):
    """An embedder that knows three topics, by any of their words.

    Attributes:
        calls: the texts of each call.

    """

    WORDS = (
        {"harbour", "ship", "anchor", "quay"},
        {"kitchen", "soup", "oven", "spoon"},
        {"orchestra", "violin", "conductor", "score"},
    )
    spec = "topics"
    dimension = 4

    def __init__(self, model: str = "topics/1", batch: int = 4) -> None:
        self.model = model
        self.batch = batch
        self.calls: list[list[str]] = []

    def vector(self, text: str) -> list[float]:
        words = set(text.casefold().replace(".", " ").split())
        return [*(float(len(words & topic)) for topic in self.WORDS), 0.01]

    def embed_documents(self, texts: Sequence[str]) -> Any:
        assert 1 <= len(texts) <= self.batch
        self.calls.append(list(texts))
        return [self.vector(text) for text in texts]

    def embed_query(self, text: str) -> Any:
        return self.vector(text)


def say(store: perdure.Store, id: str, *texts: str, agent: str = "ann", time: int = 1) -> None:
    with store.create(id, cwd=f"/srv/{id}") as session:
        for text in texts:
            content = [{"type": "text", "text": text}]
            session.append("user/message", {"content": content}, agent=agent, time=time)


def filled(store: perdure.Store) -> None:
    say(store, "sea", "the ship lies at the quay", "nothing of note")
    say(store, "home", "put the soup on the table", agent="bob", time=2)
    say(store, "music", "the violin is out of tune")


def first(found: perdure.store.found.Found) -> str:
    return found.hits[0].snippet


@pytest.fixture(params=["raw", "sqlite", "memory"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_other_words_of_the_same_meaning_are_found(kind: str, tmp_path: Path) -> None:
    """What was embedded is found by its meaning, and the answer says by which model."""
    embedder = Topics()
    with open_medium(kind, tmp_path, embedder=embedder) as store:
        filled(store)
        made = store.embed()
        assert (made.model, made.sessions, made.read, made.failed) == ("topics/1", 3, 3, ())
        assert made.complete
        assert made.vectors == sum(map(len, embedder.calls))
        found = store.search("anchor in the harbour", mode="semantic")
        assert (found.mode, found.model, found.warnings) == ("semantic", "topics/1", ())
        assert first(found) == "the ship lies at the quay"
        (hit, *_) = found.hits
        assert (hit.session, hit.seq, hit.kind, hit.agent) == ("sea", 0, "user", "ann")
        assert store.search("oven", mode="hybrid").mode == "hybrid"
        assert first(store.search("oven")) == "put the soup on the table"
        assert store.search("oven", mode="keyword").hits == []


def test_only_what_is_new_is_embedded(kind: str, tmp_path: Path) -> None:
    """Embedding again embeds nothing, and what is said twice is embedded once."""
    embedder = Topics()
    with open_medium(kind, tmp_path, embedder=embedder) as store:
        filled(store)
        store.embed()
        embedder.calls.clear()
        again = store.embed()
        assert (again.read, again.passages, again.vectors, embedder.calls) == (0, 0, 0, [])
        with store.writer("music") as session:
            session.append(
                "user/message", {"content": [{"type": "text", "text": "the conductor waits"}]}
            )
        say(store, "copy", "the ship lies at the quay")
        assert store.embed("music").passages == 1
        assert embedder.calls == [["the conductor waits"]]
        store.embed()
        # Of the copy only its title is new.
        assert not [text for call in embedder.calls[1:] for text in call if text.endswith("tune")]
        found = store.search("anchor", mode="semantic")
        assert {hit.session for hit in found.hits[:2]} == {"sea", "copy"}


def test_filters_are_inside(tmp_path: Path) -> None:
    """Filters choose among all passages, not among the nearest ones."""
    with perdure.open(tmp_path / "s", embedder=Topics(batch=64)) as store:
        say(store, "many", *(f"ship number {number} at the quay" for number in range(300)))
        filled(store)
        store.embed()
        for options in (
            {"session": "music"},
            {"cwd": "/srv/music"},
            {"without": ["many", "sea", "home"]},
        ):
            hits = store.search("anchor", mode="semantic", **options).hits
            assert {hit.session for hit in hits} == {"music"}, options
        assert {h.agent for h in store.search("quay", mode="hybrid", agent="bob").hits} == {"bob"}
        assert store.search("quay", mode="semantic", kind="error").hits == []
        hits = store.search("quay", mode="semantic", since=2, until=3).hits
        assert {hit.session for hit in hits} == {"home"}


def test_pages_follow_each_other(tmp_path: Path) -> None:
    """Pages of an answer hold each hit once, in one order, and no other question takes them."""
    with perdure.open(tmp_path / "s", embedder=Topics(batch=64)) as store:
        say(store, "many", *(f"ship number {number} at the quay" for number in range(30)))
        store.embed()
        for mode in ("semantic", "hybrid"):
            whole = [hit.seq for hit in store.search("quay ship", mode=mode, k=30).hits]
            met: list[int] = []
            after = None
            while True:
                page = store.search("quay ship", mode=mode, k=7, after=after)
                met += [hit.seq for hit in page.hits]
                if page.cursor is None:
                    break
                after = page.cursor
            assert met[:30] == whole
            assert len(set(met)) == len(met)
        cursor = store.search("quay", mode="semantic", k=2).cursor
        with pytest.raises(InvalidValue):
            store.search("quay", mode="keyword", k=2, after=cursor)
        # A page that began by words goes on so, though there are vectors by now.
        words = store.search("quay", mode="keyword", k=2)
        assert store.search("quay", k=2, after=words.cursor).mode == "keyword"


def test_without_vectors_words_answer(tmp_path: Path) -> None:
    """Where nothing was embedded auto goes by words and says nothing; by meaning it is refused."""
    with perdure.open(tmp_path / "s") as store:
        filled(store)
        found = store.search("quay")
        assert (found.mode, found.model, found.warnings) == ("keyword", None, ())
        for mode in ("semantic", "hybrid"):
            with pytest.raises(EmbedderUnavailable) as refused:
                store.search("quay", mode=mode)
            assert "perdure embed" in refused.value.hint
        assert not (tmp_path / "s" / NAME).exists()


def test_auto_looks_at_the_sessions_that_are_asked(tmp_path: Path) -> None:
    """A session without vectors is asked by its words, though others have some."""
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        store.embed("sea")
        assert store.search("quay", session="sea").mode == "hybrid"
        assert store.search("violin", session="music").mode == "keyword"
        found = store.search("quay")
        assert found.mode == "hybrid"
        assert found.warnings == (
            "2 of 3 sessions say something that has no vectors yet; `perdure embed` makes them",
        )


def test_what_has_no_embedder_any_more_is_searched_by_words(tmp_path: Path) -> None:
    """Vectors whose embedder is not there leave auto to the words, with a warning."""
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s") as store:
        found = store.search("quay")
        assert (found.mode, len(found.hits)) == ("keyword", 1)
        (warning,) = found.warnings
        assert "topics" in warning
        with pytest.raises(EmbedderUnavailable):
            store.search("quay", mode="semantic")


def test_vectors_of_a_known_model_need_no_name(tmp_path: Path) -> None:
    """What `embed` was told once is not asked again: the vectors name their embedder."""
    with perdure.open(tmp_path / "s", embedder="hashing:64") as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s") as store:
        found = store.search("quays")
        assert (found.mode, found.model) == ("hybrid", "hashing/1/64")
        say(store, "more", "another ship")
        assert store.embed().model == "hashing/1/64"


@pytest.mark.parametrize(
    "spec", ["http://127.0.0.1:9/v1#m", "https://evil.invalid/v1#m", "foreign:x"]
)
def test_a_store_sends_queries_nowhere_by_itself(tmp_path: Path, spec: str) -> None:
    """An address or a plug-in that only the store names is not asked: a store may be a gift."""
    embedder = Topics()
    embedder.spec = spec
    with perdure.open(tmp_path / "s", embedder=embedder) as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s") as store:
        found = store.search("quay")
        assert found.mode == "keyword"
        assert "not asked unless you name it" in found.warnings[0]
        with pytest.raises(EmbedderUnavailable):
            store.embed()


def test_the_old_model_answers_until_the_new_one_is_complete(tmp_path: Path) -> None:
    """While another model is embedded the old one answers; then its vectors are gone."""
    old, new = Topics("topics/1"), Topics("topics/2")
    with perdure.open(tmp_path / "s", embedder=old) as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s", embedder=new) as store:
        assert not store.embed("sea").complete
        assert [(each.name, each.complete) for each in store.stats().models] == [
            *(("topics/1", True), ("topics/2", False))
        ]
        # Nobody else knows what made the old ones.
        assert store.search("quay").mode == "keyword"
    with perdure.open(tmp_path / "s", embedder=old) as store:
        assert store.search("anchor").model == "topics/1"
    with perdure.open(tmp_path / "s", embedder=new) as store:
        assert store.embed().complete
        assert [each.name for each in store.stats().models] == ["topics/2"]
        assert store.search("anchor").model == "topics/2"


def test_what_was_deleted_leaves_no_vectors(tmp_path: Path) -> None:
    """Embedding everything forgets what no session says any more, in any namespace."""
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        with_same = store.namespace("other")
        say(with_same, "sea", "the ship lies at the quay")
        store.embed()
        with_same.embed()
        (before,) = store.stats().models
        store.delete("sea")
        store.delete("music")
        store.embed()
        (after,) = store.stats().models
        assert after.vectors < before.vectors
        assert store.search("violin", mode="semantic").hits[0].session == "home"
        # What is still said elsewhere stays.
        assert with_same.search("anchor", mode="semantic").hits[0].session == "sea"


def test_namespaces_do_not_see_each_other(tmp_path: Path) -> None:
    """The nearest passages of one namespace are none of another."""
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        for name, text in (("ann", "the ship of ann"), ("bob", "the anchor of bob")):
            say(store.namespace(name), "same-id", text)
            store.namespace(name).embed()
        for name in ("ann", "bob"):
            hits = store.namespace(name).search("quay", mode="semantic").hits
            assert all(hit.snippet.endswith(f"of {name}") for hit in hits)
            assert hits
        assert store.search("quay", mode="semantic").hits == []


@pytest.mark.parametrize(
    "given",
    [
        [[1.0, 2.0]],
        [[float("nan")] * 4],
        [[float("inf")] * 4],
        [["a"] * 4],
        [[1.0] * 4, [1.0] * 4, [1.0] * 4, [1.0] * 4, [1.0] * 4],
        None,
        [],
    ],
    ids=["dimension", "nan", "infinite", "text", "count", "none", "nothing"],
)
def test_what_is_no_vector_is_refused(tmp_path: Path, given: Any) -> None:
    """Answers that cannot be vectors of the model raise, and nothing of them is kept."""

    class Broken(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:  # noqa: ARG002
            return given

        def embed_query(self, text: str) -> Any:  # noqa: ARG002
            return given if given is None or not given else given[0]

    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        store.embed("sea")
    with perdure.open(tmp_path / "s", embedder=Broken()) as store:
        before = store.stats().models
        with pytest.raises(EmbedderFaulty):
            store.embed()
        assert store.stats().models == before
        found = store.search("quay")
        if len(given or []) < 5:
            assert (found.mode, len(found.warnings)) == ("keyword", 1)


def test_an_embedder_that_raises_stops_nothing_else(tmp_path: Path) -> None:
    """Whatever the code of an embedder raises is told as what it is, and words answer."""

    class Raising(Topics):
        def embed_query(self, text: str) -> Any:
            raise RuntimeError(f"no {text}")

    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        store.embed()
    with perdure.open(tmp_path / "s", embedder=Raising()) as store:
        assert "RuntimeError: no quay" in store.search("quay").warnings[0]
        with pytest.raises(EmbedderUnavailable) as refused:
            store.search("quay", mode="semantic")
        assert isinstance(refused.value.__cause__, RuntimeError)


def test_a_query_waits_only_so_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedder that never answers leaves auto to the words, and is asked by nobody else."""
    gate = threading.Event()

    class Hanging(Topics):
        def embed_query(self, text: str) -> Any:
            gate.wait()
            return self.vector(text)

    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        filled(store)
        store.embed()
    monkeypatch.setattr(embedders, "_QUERY_SECONDS", 0.05)
    with perdure.open(tmp_path / "s", embedder=Hanging()) as store:
        for _ in range(2):
            found = store.search("quay")
            assert (found.mode, len(found.hits)) == ("keyword", 1)
            assert "embedder" in found.warnings[0]
        with pytest.raises(EmbedderUnavailable) as refused:
            store.search("quay", mode="hybrid")
        assert refused.value.retryable
        gate.set()


def test_calls_are_bounded_in_a_minute(tmp_path: Path) -> None:
    """With `per_minute` calls of the embedder are as far apart as that says."""

    class Clock(perdure.runtime.Runtime):
        def __init__(self) -> None:
            self.now = 0.0
            self.slept: list[float] = []

        def monotonic(self) -> float:
            return self.now

        def sleep(self, seconds: float) -> None:
            if seconds:
                self.slept.append(seconds)
                self.now += seconds

    clock = Clock()
    embedder = Topics(batch=1)
    with perdure.open(tmp_path / "s", embedder=embedder, runtime=clock) as store:
        say(store, "a", *(f"ship {number}" for number in range(6)))
        clock.slept.clear()
        store.embed(per_minute=30)
        assert len(embedder.calls) == len(clock.slept) + 1
        assert clock.slept == pytest.approx([2.0] * len(clock.slept))
        for wrong in (0, -1, float("nan"), "many", True):
            with pytest.raises(InvalidValue):
                store.embed(per_minute=wrong)  # type: ignore[arg-type]


def test_one_session_that_cannot_be_read_stops_no_other(tmp_path: Path) -> None:
    """What cannot be read is told with its reason, and everything else is embedded."""
    with perdure.open(tmp_path / "s", embedder=Topics(), encoding="raw") as store:
        filled(store)
        store.refresh()
        (log,) = (tmp_path / "s").rglob("music*/*.jsonl")
        log.write_bytes(b"noise\n" + log.read_bytes())
        made = store.embed()
        assert [id for id, _ in made.failed] == ["music"]
        assert store.search("anchor", mode="semantic").hits[0].session == "sea"
        assert store.embed("nowhere").failed == (("nowhere", "there is no such session"),)


def test_long_passages_are_found_by_any_of_their_pieces(tmp_path: Path) -> None:
    """What stands deep in a long text is found by its meaning, and shown."""
    filler = "nothing of note happened on that day and nobody wrote it down. " * 60
    with perdure.open(tmp_path / "s", embedder=Topics(batch=8)) as store:
        say(store, "a", f"{filler}the violin is out of tune. {filler}")
        store.embed()
        (hit, *_) = store.search("orchestra", mode="semantic").hits
        assert (hit.seq, hit.cut) == (0, (True, True))
        deep = store.search("orchestra", mode="semantic", snippet_chars=500).hits[0]
        assert "violin" in deep.snippet


def test_what_is_written_is_embedded_in_the_background(tmp_path: Path) -> None:
    """With `embed` a thread makes the vectors of what is written, and closing waits for none."""
    embedder = Topics()
    with perdure.open(tmp_path / "s", embedder=embedder, embed=True) as store:
        background = store._background
        assert isinstance(background, Background)
        filled(store)
        # What the threads have not come to yet is done here, so that nothing has to be waited for.
        store._indexer._push(lambda: None)  # type: ignore[union-attr]
        background._embed_due()
        assert store.search("anchor", mode="semantic").hits[0].session == "sea"
    with perdure.open(tmp_path / "s", embedder=embedder) as store:
        assert store.embed().vectors == 0


def test_an_embedder_that_fails_in_the_background_stops_no_commit(tmp_path: Path) -> None:
    """What the background cannot embed is left to the next call, and nobody hears of it."""

    class Down(Topics):
        def embed_documents(self, texts: Sequence[str]) -> Any:  # noqa: ARG002
            raise EmbedderUnavailable("down", "is down", retryable=True)

    with perdure.open(tmp_path / "s", embedder=Down(), embed=True) as store:
        filled(store)
        store._indexer._push(lambda: None)  # type: ignore[union-attr]
        background = store._background
        assert background is not None
        background._embed_due()
        # It tries again later.
        assert set(background._due) == {"sea", "home", "music"}
        assert len(store.search("quay").hits) == 1
    with perdure.open(tmp_path / "s", embedder=Topics()) as store:
        assert store.embed().read == 3


def test_hashing_is_an_embedder_like_any_other(tmp_path: Path) -> None:
    """The embedder that is always there finds by parts of words."""
    with perdure.open(tmp_path / "s", embedder=HashingEmbedder()) as store:
        filled(store)
        store.embed()
        assert first(store.search("violinist", mode="semantic")) == "the violin is out of tune"
