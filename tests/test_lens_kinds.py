"""Kinds of records that lenses count: their names are the source's, and are bounded for all."""

import json
from collections import Counter
from typing import Any

import pytest

from perdure.lenses import LENSES, Lens, lens_of
from perdure.lenses.lens import KIND_CHARS_MAX, KINDS_MAX, OTHER_KINDS, Kinds
from perdure.model import values
from perdure.model.event import Event


def read(name: str, records: list[Any]) -> Lens:
    lens = lens_of(name)
    assert lens is not None
    for seq, record in enumerate(records):
        raw = values.encode(json.dumps(record))
        list(lens.read(Event(seq, f"{name}/x", 0, None, None, None, False, raw)))
    list(lens.end())
    return lens


@pytest.mark.parametrize("name", LENSES)
def test_no_lens_counts_more_kinds_than_is_sane(name: str) -> None:
    """However many kinds a source names, and however long, each record is counted once."""
    records: list[Any] = [{"type": f"kind-{number}"} for number in range(KINDS_MAX + 500)]
    records += [{"type": "x" * 10_000, "payload": {}}, {"type": "kind-1"}]
    lens = read(name, records)
    assert sum(lens.raw.values()) + sum(lens.understood.values()) == len(records)
    assert len(lens.raw) == KINDS_MAX + 1
    assert (lens.raw[OTHER_KINDS], lens.raw["kind-1"]) == (501, 2)


@pytest.mark.parametrize("name", LENSES)
def test_names_of_kinds_are_cut(name: str) -> None:
    """A long name counts as its beginning, and one that no output can show as what can be shown."""
    records = [{"type": "y" * 100}, {"type": "y" * 64}, {"type": "\ud800"}]
    assert read(name, records).raw == {"y" * KIND_CHARS_MAX: 2, "\ufffd": 1}


def test_kinds_count_like_any_counter() -> None:
    """Names that are none yet count as nothing, and asking for them adds none."""
    kinds = Kinds()
    kinds["a"] += 1
    kinds["a"] += 2
    assert (kinds["a"], kinds["b"], kinds["z" * 100], len(kinds)) == (3, 0, 0, 1)
    assert kinds == Counter({"a": 3})
    kinds.update(["b", "c" * 70])
    assert dict(kinds) == {"a": 3, "b": 1, "c" * 64: 1}
    assert kinds.total() == 5
