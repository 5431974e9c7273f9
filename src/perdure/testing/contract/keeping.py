"""What goes in comes out: values, fields, sizes, and whatever a caller or reader does meanwhile."""

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from perdure.errors import InvalidValue
from perdure.model import Parent, Source
from perdure.model.event import Draft
from perdure.store import Store
from perdure.testing.contract.place import TURN, ContractCase, Place, brief, dicts
from perdure.testing.strategies import commits, nested

__all__ = ["Keeping"]

AWKWARD: tuple[Any, ...] = (
    None,
    "",
    0,
    -0.0,
    [0.0, -0.0, 1e22, 5e-324],
    10**3000,
    [2**63, -(2**63) - 1, 2**64, 2**53 + 1],
    "ok \ud83d",
    ["\udfff\ud800", {"\ud800": "\udc00"}],
    "line\u2028separator\u2029next\x85line\x0b\x0c\x1c\r\n",
    '","crc":"00000000"}\n{"seq":0,"prev":"',
    "\0\x01\x7f\ufeff\uffff\U0010ffff",
    {"z": 1, "a": {"y": 2, "b": 3}, "": [], "m": {}},
    nested(198),
    "日本語" * 1000,
)

UNLIKELY_IDS = (
    "a",
    "A",
    "..",
    "a/b",
    "con",
    "a.",
    " ",
    "\0",
    "\ud800",
    "e\u0301",
    "\u00e9",
    "x" * 1024,
    "x" * 1023 + "y",
    "\U0001f600" * 1024,
)


class Keeping(ContractCase):
    """Round trips."""

    def test_a_turn_comes_back_as_it_was(self, place: Place) -> None:
        """A session that was written is read by another store, header and events."""
        # deepseek-harness 1
        with place.store().create("s", cwd="/work") as session:
            written = session.append_many(TURN)

        found = place.store().load("s")

        assert found.header == session.header
        assert (found.id, session.header.id, session.header.cwd) == ("s", "s", "/work")
        assert dicts(found.events) == dicts(written)
        assert [event.seq for event in written] == list(range(6))
        assert [event.data for event in written] == [event["data"] for event in TURN]

    def test_every_header_field_comes_back(self, place: Place) -> None:
        """What a session was created with is what its header says for ever."""
        # deepseek-harness 18, 50
        config = {"model": "m", "limits": [2**70, -0.0], "text": "\ud800\u2028"}
        session = place.store().create(
            "child",
            cwd="/w\u00e9",
            parent=Parent("parent", 41),
            origin="subagent",
            depth=3,
            preset="reviewer",
            config=config,
            source=Source("other", id="77", host="h", path="/p"),
            vocabulary=None,
            created_at=2**53 - 1,
        )
        session.append("x")
        session.close()

        header = place.store().inspect("child").header

        assert header == session.header
        assert header is not None
        assert (header.parent, header.depth, header.config) == (Parent("parent", 41), 3, config)
        assert header.created_at == 2**53 - 1

    @pytest.mark.parametrize("value", AWKWARD, ids=range(len(AWKWARD)))
    def test_awkward_values_come_back(self, place: Place, value: Any) -> None:
        """Big integers, lone surrogates, separators, signed zeros, depth, key order are kept."""
        with place.store().create("s") as session:
            written = [session.append("x", value), session.append("x", {"in": [value]})]

        read = list(place.store().read_from("s"))

        assert [event.raw for event in read] == [event.raw for event in written]
        assert repr(read[0].data) == repr(value)

    def test_every_field_of_an_event_comes_back(self, place: Place) -> None:
        """Agent, turn, key, time and ignorable are kept as given; the time may go back."""
        given_fields: list[dict[str, Any]] = [
            {"type": "a/b.c-d_9", "time": 2**53 - 1, "agent": "\ud800", "turn": "t\n", "key": "k"},
            {"type": "z", "time": -1, "ignorable": True},
            {"type": "z", "time": 0, "agent": "a" * 256, "turn": "t" * 256, "key": "k" * 1024},
        ]
        with place.store().create("s") as session:
            session.append_many(given_fields)

        read = dicts(place.store().read_from("s"))

        assert [event["seq"] for event in read] == [0, 1, 2]
        assert [
            {name: event[name] for name in event if name not in ("seq", "data")} for event in read
        ] == given_fields

    @pytest.mark.parametrize("count", [1, 2, 3, 1024, 1025, 5000])
    def test_any_number_of_events_comes_back(self, place: Place, count: int) -> None:
        """One event or thousands in one commit come back complete and in order."""
        deltas = [{"type": "assistant/delta", "data": {"text": f"{n} "}} for n in range(count)]
        with place.store().create("s") as session:
            written = session.append_many(deltas)

        assert dicts(place.store().read_from("s")) == dicts(written)
        assert len(written) == count

    def test_packing_is_not_seen(self, place: Place) -> None:
        """Packed and unpacked writing are read alike, from any sequence number."""
        deltas = [{"type": "assistant/delta", "data": {"text": "\ud800" * n}} for n in range(40)]
        mixed = [{**event, "time": -n * n} for n, event in enumerate([*TURN, *deltas, *TURN])]
        other = place.elsewhere()
        for where, pack in ((place, True), (other, False)):
            with where.store(pack=pack).create("s") as session:
                session.append_many(mixed)

        for seq in (0, 5, 6, 7, 20, 45, 46, 51, 52):
            packed = dicts(place.store(pack=False).read_from("s", seq))
            plain = dicts(other.store(pack=True).read_from("s", seq))
            assert packed == plain
            assert [event["seq"] for event in packed] == list(range(seq, 52))

    @settings(
        max_examples=25,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    @given(batches=commits(max_commits=4))
    def test_any_commits_come_back(self, place: Place, batches: list[list[Draft]]) -> None:
        """Any events in any commits come back exactly."""
        made = [
            [{name: getattr(one, name) for name in _FIELDS} | {"data": one.value} for one in batch]
            for batch in batches
        ]
        with place.store().create() as session:
            written = [event for batch in made for event in session.append_many(batch)]

        read = list(place.store().read_from(session.id))

        assert [event.raw for event in read] == [event.raw for event in written]
        assert read == written

    def test_unknown_types_are_kept(self, place: Place) -> None:
        """Types that no vocabulary knows are kept in the chain, those that may be ignored too."""
        # deepseek-harness 23, 49; heinzel 12
        with place.store().create("s") as session:
            session.append("future/thing", {"x": 1.5})
            session.append("future/other", [1], ignorable=True)
            session.append("tool/call", "not what the vocabulary says")

        kinds = ["future/thing", "future/other", "tool/call"]
        store = place.store()
        for events in (store.inspect("s").events, store.read_from("s"), store.load("s").events):
            read = list(events)
            assert [event.type for event in read] == kinds
            assert [event.ignorable for event in read] == [False, True, False]
        assert brief(store.read_from("s", types=("future/other",))) == [(1, "future/other")]

    def test_what_the_caller_changes_later_changes_nothing(self, store: Store) -> None:
        """Values are taken at the call: a list or dict may be used again at once."""
        # deepseek-harness 24
        data = {"items": [1]}
        batch = [{"type": "x", "data": data}]
        with store.create("s") as session:
            events = [session.buffer("x", data), *session.append_many(batch)]
            data["items"].append(2)
            batch[0]["type"] = "y"
            batch.clear()
            session.flush()

        assert [event.data for event in events] == [{"items": [1]}] * 2
        assert [event.data for event in store.read_from("s")] == [{"items": [1]}] * 2

    def test_what_a_reader_changes_changes_nothing(self, store: Store) -> None:
        """Events are frozen, and data that a reader changes is that reader's own."""
        # deepseek-harness 19, 20
        with store.create("s") as session:
            event = session.append("x", {"items": [1]})
        event.data["items"].append(2)
        for read in store.load("s").events:
            with pytest.raises(AttributeError):
                read.type = "y"  # type: ignore[misc]
            read.data.clear()

        assert [e.data for e in store.read_from("s")] == [{"items": [1]}]
        assert [e.data for e in store.inspect("s").events] == [{"items": [1]}]

    def test_any_id_has_its_own_session(self, place: Place) -> None:
        """Ids that look alike, lead elsewhere or are very long each name their own session."""
        # case 37
        store = place.store()
        for number, id in enumerate(UNLIKELY_IDS):
            with store.create(id) as session:
                session.append("x", number)

        again = place.store()

        assert [[e.data for e in again.read_from(id)] for id in UNLIKELY_IDS] == [
            [number] for number in range(len(UNLIKELY_IDS))
        ]
        assert sorted(entry.id for entry in again.list()) == sorted(UNLIKELY_IDS)

    def test_what_cannot_be_kept_is_refused_by_name(self, store: Store) -> None:
        """Data that JSON cannot carry is refused with its path; nothing is stored of it."""
        # deepseek-harness 12; case 19
        cycle: list[Any] = []
        cycle.append(cycle)
        offenders = (float("nan"), float("inf"), b"x", {1}, {1: 2}, object(), cycle, len, 1j)
        for number, offender in enumerate(offenders):
            session = store.create(f"s{number}")
            with pytest.raises(InvalidValue) as refused:
                session.append("x", {"list": [0, offender]})
            assert refused.value.path.startswith("data.list[1]")
            session.close()

        assert store.list() == []

    def test_a_bad_event_spoils_its_batch_only(self, store: Store) -> None:
        """If one event of a batch is refused, none is accepted and the session goes on."""
        with store.create("s") as session:
            session.append("x", 0)
            before = copy.copy(session.position)
            for bad in (
                {"type": "Bad Type"},
                {"type": "x", "data": float("nan")},
                {"type": "x", "mood": "fine"},
                {"data": "no type"},
                {"type": "x", "time": 1.5},
                {"type": "x", "key": ""},
            ):
                with pytest.raises(InvalidValue):
                    session.append_many([{"type": "x", "data": 1}, bad])
            assert session.position == before
            assert session.append("x", 2).seq == 1

        assert [event.data for event in store.read_from("s")] == [0, 2]


_FIELDS = ("type", "time", "agent", "turn", "ignorable")
