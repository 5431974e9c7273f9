"""Whoever is killed while vectors are made: what was made is kept, once, and of one model."""

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.databases.cells import ask
from perdure.embedding.hashing import HashingEmbedder
from perdure.embedding.sqlite import SqliteVectors
from perdure.store import embedding
from tests.proof.summary import summarise
from tests.support import scaled

pytestmark = pytest.mark.proof

SESSIONS, MESSAGES = 6, 9
KILLS = 50
STEPS = ("embed_documents", "put", "put_reading", "complete", "begin", "remove", "keep_readings")


class Logged(HashingEmbedder):
    """Keeps a list of all texts that it was given, in a file that outlives the process."""

    def __init__(self, log: Path, dimension: int) -> None:
        super().__init__(dimension)
        self.batch = 4
        self._log = log

    def embed_documents(self, texts: Sequence[str]) -> Any:
        with self._log.open("a", encoding="utf-8") as file:
            file.writelines(f"{self.dimension} {text}\n" for text in texts)
        return super().embed_documents(texts)

    def texts(self) -> Counter[str]:
        if not self._log.exists():
            return Counter()
        return Counter(self._log.read_text(encoding="utf-8").splitlines())


def fill(place: Path) -> None:
    rng = random.Random(5)
    words = [f"word{number}" for number in range(60)]
    with perdure.open(place) as store:
        for number in range(SESSIONS):
            with store.create(f"s{number}") as session:
                for _ in range(MESSAGES):
                    text = " ".join(rng.choices(words, k=12))
                    content = [{"type": "text", "text": text}]
                    session.append("user/message", {"content": content}, time=1)
        store.refresh()


def embedded(place: Path, log: Path, dimension: int) -> embedding.Embedded:
    with perdure.open(place, embedder=Logged(log, dimension)) as store:
        return store.embed()


def killed(place: Path, log: Path, dimension: int, visit: int) -> bool:
    """Embed in a process that is killed at a visit of a step, before or after it; whether it was.

    Visits are counted from 0: an even one strikes before a step, an odd one behind it.
    """
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)
    try:
        left = [visit]

        def strike() -> None:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def deadly(step: Callable[..., Any]) -> Callable[..., Any]:
            def stepped(*args: Any, **more: Any) -> Any:
                strike()
                found = step(*args, **more)
                strike()
                return found

            return stepped

        for name in STEPS:
            kind = Logged if name == "embed_documents" else SqliteVectors
            setattr(kind, name, deadly(getattr(kind, name)))
        embedded(place, log, dimension)
    except BaseException:  # noqa: BLE001 - the child says how it ended by its status
        os._exit(1)
    os._exit(0)


def vectors_of(place: Path, model: str) -> dict[tuple[int, int], bytes]:
    """Each vector of a model, by what it was made of."""
    vectors = SqliteVectors(str(place), read_only=True)
    query = (
        "SELECT s.digest, s.part, v.half FROM sketches AS s JOIN vectors AS v ON v.id = s.id"
        " JOIN models AS m ON m.number = s.model WHERE m.name = ?"
    )
    kinds = (int, int, bytes)
    rows = vectors._place.read(lambda db: ask(db, query, (model.encode(),), kinds))
    stray = "SELECT count(*) FROM vectors WHERE id NOT IN (SELECT id FROM sketches)"
    assert vectors._place.read(lambda db: ask(db, stray)) == [(0,)]
    vectors.close()
    found = {(digest, part): half for digest, part, half in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("before", [None, 32], ids=["first", "other model"])
def test_killed_embeddings_go_on(tmp_path: Path, seed: int, before: int | None) -> None:
    """Killed at any step: begun again it makes what is missing, nothing twice, no models mixed."""
    base, log = tmp_path / "base", tmp_path / "log"
    fill(base)
    if before is not None:
        embedded(base, tmp_path / "old", before)
    whole = tmp_path / "whole"
    shutil.copytree(base, whole)
    assert embedded(whole, log, 64).complete
    model = HashingEmbedder(64).model
    wanted, texts = vectors_of(whole, model), Logged(log, 64).texts()
    visits = 2 * len(texts)
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    for number in range(scaled(KILLS)):
        place, log = tmp_path / f"k{number}", tmp_path / f"log{number}"
        shutil.copytree(base, place)
        # Again and again, as on a machine that goes down each night.
        died = 0
        while killed(place, log, 64, rng.randrange(visits)):
            died += 1
            kept = vectors_of(place, model)
            assert wanted.items() >= kept.items()
            with perdure.open(place, embedder=Logged(log, before or 64)) as store:
                found = store.search("word7 word9")
                assert found.hits
                if before is not None and found.model is not None:
                    # All of what answers is of one model, and there is always one.
                    assert found.model in (model, HashingEmbedder(before).model)
                    complete = store._cataloguing.vectors.models()[0]  # type: ignore[union-attr]
                    assert complete.complete
            if died > 3:
                break
        assert embedded(place, log, 64).complete
        assert vectors_of(place, model) == wanted
        if before is not None:
            assert vectors_of(place, HashingEmbedder(before).model) == {}
        again = Logged(log, 64).texts()
        assert again.keys() == texts.keys()
        # What was given away before the kill, and not kept, is one batch each time.
        assert sum(again.values()) <= sum(texts.values()) + 4 * died
        counts["kills"] += died
        counts["unharmed"] += not died
        shutil.rmtree(place)
    summarise("kills of embeddings", seed, counts)
    assert counts["kills"]
