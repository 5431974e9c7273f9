"""What it costs to list sessions, to find passages among a million, and to keep an index at all."""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import apsw

import perdure
from benchmarks.appends import FLAT
from benchmarks.measure import ROUNDS, SQLITE, median_us, opened, timed
from benchmarks.session import EVENTS_PER_TURN, turn_events
from benchmarks.table import Row, at_most
from perdure.catalog import analyse, parse
from perdure.catalog.contract import Candidates, Catalog, Change, Filters, Listed, Passage, Scope
from perdure.catalog.passages import digest_of
from perdure.catalog.query import Query
from perdure.model.event import draft
from perdure.model.header import new_header
from perdure.model.record import Position, seal
from perdure.store import background

__all__ = ["appends", "listings", "listings_of_file", "searches"]

AT = 1_750_000_000_000

# --- listing --------------------------------------------------------------------------------------

TINY, SMALL, LARGE = 500, 1_000, 10_000
PAGE = 100
LISTING_US, FIRST_US = 2_000, 50_000
TIMES, COLD_ROUNDS = 1.5, 7
_TICK_SECONDS = 0.03
"""Longer than a tick of the kernel's clock: what came in the last one is looked at again."""

_COLD = """
import gc, json, os, sys, tempfile, time
import apsw
import perdure

# Modules are loaded when they are needed first: not while the clock runs.
with tempfile.TemporaryDirectory() as folder:
    with perdure.open(folder + "/warm", encoding="raw") as store:
        store.create("w").append("x", 1)
        store.sessions(20)
gc.collect()
counts = {"opened": 0, "looked": 0, "connected": 0}

def counted(call, name):
    def count(*given, **named):
        counts[name] += 1
        return call(*given, **named)
    return count

if sys.argv[2] == "count":
    os.open = counted(os.open, "opened")
    for name in ("stat", "lstat", "fstat", "listdir", "scandir"):
        setattr(os, name, counted(getattr(os, name), "looked"))
    apsw.connection_hooks.append(counted(lambda connection: None, "connected"))
at = [time.perf_counter_ns()]
store = perdure.open(sys.argv[1], encoding="raw")
at.append(time.perf_counter_ns())
page = store.sessions(20)
at.append(time.perf_counter_ns())
assert len(page.sessions) == 20 and page.coverage.complete, page.coverage
told = [at[1] - at[0], at[2] - at[1], *counts.values()]
store.close()
print(json.dumps(told))
"""


def listings(folder: Path) -> Iterator[Row]:
    """A page of 20 among 1,000 sessions and among 10,000, in turns; and what comes before it."""
    with ExitStack() as stack:
        stores = {}
        for count in (TINY, SMALL, LARGE):
            root = folder / f"listed-{count}"
            stores[count] = stack.enter_context(_published(root, "raw", count))
        yield _first(stores)
        time.sleep(_TICK_SECONDS)
        cursors = {count: _cursor(stores[count]) for count in (SMALL, LARGE)}
        for what, after in ((f"page 1 of {LARGE:,}", {}), (f"page {PAGE}, or the last", cursors)):
            large, small = _warm(stores[LARGE], stores[SMALL], after)
            yield at_most(f"{what}, warm, against {SMALL:,}", large, small, "us", TIMES)
            yield _under(f"{what}, warm", large, LISTING_US)
        yield _unnoticed(stores)
    yield from _cold(folder)


def listings_of_file(folder: Path) -> Iterator[Row]:
    """The same page in an SQLite file, among fewer: it is slow to fill."""
    with ExitStack() as stack:
        stores = []
        for count in (SMALL, TINY // 5):
            root = folder / f"listed-{SQLITE}-{count}"
            root.mkdir(0o700)
            stores.append(stack.enter_context(_published(root, SQLITE, count)))
        large, small = _warm(stores[0], stores[1], {})
        what = f"page 1 of {SMALL:,}, warm"
        yield at_most(f"{what}, against {TINY // 5}", large, small, "us", TIMES)
        yield _under(what, large, LISTING_US)


@contextmanager
def _published(root: Path, medium: str, count: int) -> Iterator[perdure.Store]:
    """A store of real sessions; what makes folders durable is left out: nobody measures it."""
    with opened(root, medium) as store, _unsynced():
        for number in range(count):
            _publish(store, number)
    with opened(root, medium) as store:
        yield store


@contextmanager
def _unsynced() -> Iterator[None]:
    kept = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
    for name in kept:
        setattr(os, name, lambda _descriptor: None)
    try:
        yield
    finally:
        for name, call in kept.items():
            setattr(os, name, call)


def _publish(store: perdure.Store, number: int) -> None:
    """A session of one short turn, by one commit."""
    at = AT + number * 1_000
    header = new_header(f"s{number:06d}", created_at=at, cwd=f"/srv/app-{number % 100}")
    asked = [{"type": "text", "text": f"why does test {number} fail in lib/net/retry.py?"}]
    turn: list[tuple[str, Any]] = [
        ("turn/start", {}),
        ("user/message", {"content": asked}),
        ("turn/end", {"reason": "completed"}),
    ]
    drafts = [draft(kind, data, time=at, turn="t0") for kind, data in turn]
    backend = store._backend  # noqa: SLF001 - one commit a session, and nothing beside it
    backend.publish(header, seal(Position(-1, header.genesis), drafts)).release()


def _first(stores: dict[int, perdure.Store]) -> Row:
    """Who asks first waits until everything was read."""
    spent = {count: timed(partial(store.sessions, 1)) for count, store in stores.items()}
    each = {count: spent[count] / count / 1000 for count in stores}
    rate = {"sessions_s": 1e6 / each[LARGE]}
    what = f"the first listing, a session of {LARGE:,} against {SMALL:,}"
    return Row(what, each[LARGE], each[SMALL], "us", more=rate)


def _cursor(store: perdure.Store) -> str:
    """What leads to page 100, or to the last one."""
    cursor = before = store.sessions(20).cursor
    for _ in range(PAGE - 2):
        if cursor is None:
            break
        before, cursor = cursor, store.sessions(20, cursor).cursor
    found = cursor or before
    if found is None:
        raise RuntimeError("there is one page only")
    return found


def _warm(
    large: perdure.Store, small: perdure.Store, after: Mapping[int, str | None]
) -> tuple[float, float]:
    """Medians of the same page among many sessions and among few, in turns."""
    asked = [
        partial(large.sessions, 20, after.get(LARGE)),
        partial(small.sessions, 20, after.get(SMALL)),
    ]
    samples: list[list[int]] = [[], []]
    for call in asked:
        call()
    for _ in range(ROUNDS):
        for spent, call in zip(samples, asked, strict=True):
            spent.append(timed(call))
    return median_us(samples[0]), median_us(samples[1])


def _under(what: str, ours: float, most: float, **more: Any) -> Row:
    return Row(what, ours, most, "us", f"at most {most / 1000:g} ms", ours <= most, more)


def _unnoticed(stores: dict[int, perdure.Store]) -> Row:
    """The first listing after a session came, of which this store is not the first to know."""
    samples: dict[int, list[int]] = {LARGE: [], SMALL: []}
    for number in range(COLD_ROUNDS):
        for count, spent in samples.items():
            _publish(stores[count], count + number)
            spent.append(timed(partial(stores[count].sessions, 20)))
            time.sleep(_TICK_SECONDS)
            stores[count].sessions(20)
    what = f"page 1 of {LARGE:,} after a session came, against {SMALL:,}"
    return Row(what, median_us(samples[LARGE]), median_us(samples[SMALL]), "us")


def _cold(folder: Path) -> Iterator[Row]:
    """The same in processes that know nothing yet, and what they open and look at."""
    counts = (TINY, SMALL, LARGE)
    rounds = [{n: _child(folder, n, "time") for n in counts} for _ in range(COLD_ROUNDS)]

    def median(count: int, parts: slice) -> float:
        return statistics.median(sum(each[count][parts]) for each in rounds) / 1000

    large, small = (median(count, slice(1, 2)) for count in (LARGE, SMALL))
    what = f"page 1 of {LARGE:,}, cold process"
    opening = median(LARGE, slice(0, 1))
    yield at_most(f"{what}, against {SMALL:,}", large, small, "us", TIMES, opening_us=opening)
    whole = median(TINY, slice(0, 2))
    yield _under(f"page 1 of {TINY}, cold process, opening included", whole, FIRST_US)
    opened = {n: _child(folder, n, "count")[2:] for n in counts}
    for index, name in enumerate(("files opened", "stat calls", "connections to the index")):
        many, few = opened[LARGE][index], opened[SMALL][index]
        what = f"{name}, cold, {LARGE:,} against {SMALL:,}"
        yield Row(what, many, few, "", "equal", many == few)


def _child(folder: Path, count: int, how: str) -> list[int]:
    # As where perdure is installed: modules that were compiled once are not compiled again.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _COLD, str(folder / f"listed-{count}"), how]
    done = subprocess.run(command, check=True, capture_output=True, env=environment)
    found: list[int] = json.loads(done.stdout)
    return found


# --- texts ----------------------------------------------------------------------------------------

_ONSETS = [*"bcdfghjklmnprstvw", "br", "ch", "cl", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "sp"]
_ONSETS += ["st", "str", "th", "tr"]
_VOWELS = [*"aeiou", "ai", "ea", "ee", "io", "ou"]
_CODAS = ["", "", "l", "m", "n", "nd", "nt", "r", "rt", "s", "st", "t", "x"]
_ENDINGS = ["", "", "", "s", "ed", "er", "ing", "ion", "ly", "able"]
_HEX = "0123456789abcdef"


class _Texts:
    """Texts as agents leave them: prose, names, paths, Chinese; the same for the same seed.

    Words of all languages, and the names that are made of them, are as frequent as Zipf has it.
    """

    def __init__(self, seed: int) -> None:
        self._rng = rng = random.Random(seed)
        words = dict.fromkeys(self._word() for _ in range(300_000))
        self.words = [*words]
        self._frequent = [*accumulate(1 / (rank + 2.7) for rank in range(len(self.words)))]
        # The commonest words of a language name nothing.
        self._naming = self.words[150:6_000]
        self._names = [self._name() for _ in range(20_000)]
        self._often = [*accumulate(1 / (rank + 10) for rank in range(len(self._names)))]
        signs = [chr(code) for code in rng.sample(range(0x4E00, 0x8000), 2_500)]
        chinese = (
            "".join(rng.choices(signs, k=rng.choice((1, 2, 2, 2, 3)))) for _ in range(15_000)
        )
        self._chinese = [*dict.fromkeys(chinese)]
        self._written = [*accumulate(1 / (rank + 2.7) for rank in range(len(self._chinese)))]

    def _word(self) -> str:
        rng = self._rng
        count = rng.choice((1, 1, 2, 2, 2, 3))
        parts = (
            (rng.choice(_ONSETS), rng.choice(_VOWELS), rng.choice(_CODAS)) for _ in range(count)
        )
        return "".join("".join(part) for part in parts) + rng.choice(_ENDINGS)

    def _name(self) -> str:
        rng = self._rng
        parts = rng.choices(self._naming, k=rng.choice((1, 2, 2, 3)))
        if rng.random() < 0.5:
            return "_".join(parts)
        return parts[0] + "".join(part.capitalize() for part in parts[1:])

    def _prose(self, most: int) -> str:
        rng = self._rng
        return " ".join(
            rng.choices(self.words, cum_weights=self._frequent, k=rng.randrange(6, most))
        )

    def _named(self, count: int) -> list[str]:
        return self._rng.choices(self._names, cum_weights=self._often, k=count)

    def _path(self) -> str:
        rng = self._rng
        folders = "/".join(rng.choices(self._naming[:400], k=rng.randrange(1, 4)))
        return f"{folders}/{self._named(1)[0]}.{rng.choice(('py', 'rs', 'ts', 'md'))}"

    def _id(self) -> str:
        return "".join(self._rng.choices(_HEX, k=12))

    def __call__(self) -> tuple[str, str]:
        """Kind and text of a passage."""
        rng = self._rng
        draw = rng.random()
        if draw < 0.45:
            kind = rng.choice(("user", "assistant", "assistant", "thinking"))
            return kind, f"{self._prose(44)}."
        if draw < 0.6:
            return (
                "assistant",
                f"{self._prose(16)} `{'` `'.join(self._named(3))}` {self._prose(16)}",
            )
        if draw < 0.75:
            return "tool-call", f"grep -n {self._named(1)[0]} {self._path()} {self._path()}"
        if draw < 0.9:
            lines = (
                f"{self._path()}:{rng.randrange(2_000)}: {' '.join(self._named(3))}"
                for _ in range(rng.randrange(1, 5))
            )
            return "tool-result", "\n".join(lines)
        if draw < 0.94:
            return "error", f"{self._named(1)[0]} {self._id()} {self._prose(14)}"
        said = rng.choices(self._chinese, cum_weights=self._written, k=rng.randrange(6, 40))
        return "assistant", f"{''.join(said)}。"


# --- search ---------------------------------------------------------------------------------------

PASSAGES = int(os.environ.get("PERDURE_BENCH_PASSAGES", "1000000"))
PASSAGES_EACH = 500
FOLDERS = 100
SPAN_MS = 365 * 24 * 3_600_000
SEARCHES = 30
SOME = 5
"""Of so many texts of a session it is remembered what they said."""
SEED = 20_260_101
BOUNDS_US = {
    "rare": 5_000,
    "three words": 5_000,
    "medium": 20_000,
    "medium, and what it begins": 20_000,
    "very common": 30_000,
}
_COMMON, _MEDIUM = 0.3, 0.001


class _Built(NamedTuple):
    """What was put into a catalog: nanoseconds in all and by what, bytes of text, some texts."""

    whole: int
    analysing: int
    putting: int
    text_bytes: int
    some: list[str]


def searches(folder: Path) -> Iterator[Row]:
    """A million passages: how long they take to be indexed, how much room, and to be found."""
    root = folder / "searched"
    with perdure.open(root, encoding="raw") as store:
        store.create("first").append("x", 0)
        store.sessions(1)
        indexer = store._indexer  # noqa: SLF001 - sessions of a million passages take minutes
        if indexer is None:
            raise RuntimeError("there is no index")
        catalog, namespace = indexer.catalog, indexer.namespace
        texts = _Texts(SEED)
        built = _build(catalog, namespace, texts)
        yield _built_row(built)
        place = catalog.place
        if place is None:
            raise RuntimeError("it is in memory")
        catalog.close()
        taken = os.stat(place).st_size
        yield Row("bytes of the index beside the texts", taken, built.text_bytes, "bytes")
        queries = _queries(Path(place), texts, built.some)
        yield from _classes(catalog, namespace, queries)


def _built_row(built: _Built) -> Row:
    each = built.whole / PASSAGES / 1000
    more = {
        "passages_s": 1e6 / each,
        "MB_s": built.text_bytes / built.whole * 1e3,
        "analysing": f"{built.analysing / built.whole:.0%}",
        "putting": f"{built.putting / built.whole:.0%}",
        "bytes_each": built.text_bytes / PASSAGES,
    }
    analysed = built.analysing / PASSAGES / 1000
    return Row("to index a passage, beside its analysis", each, analysed, "us", more=more)


def _build(catalog: Catalog, namespace: str, texts: _Texts) -> _Built:
    """Put sessions of 500 passages each, as the store puts what it reads; texts are not counted."""
    analysing = putting = size = 0
    some: list[str] = []
    sessions = _sessions()
    for number in range(sessions):
        said = [texts() for _ in range(PASSAGES_EACH)]
        some += [text for kind, text in said if kind == "user"][:SOME]
        size += sum(len(text.encode()) for _, text in said)
        started = time.perf_counter_ns()
        passages = [_passage(seq, *each, _time(number, seq)) for seq, each in enumerate(said)]
        analysing += time.perf_counter_ns() - started
        listed = Listed(
            id=f"s{number:06d}",
            title=said[0][1][:60],
            created=_time(number, 0),
            last_active=_time(number, PASSAGES_EACH),
            cwd=_folder(number),
            events=PASSAGES_EACH,
        )
        position = Position(PASSAGES_EACH - 1, "0" * 64)
        change = Change(listed, "-", position, PASSAGES_EACH, b"", "-", passages=passages)
        putting += timed(partial(catalog.put, namespace, change, None))
    return _Built(analysing + putting, analysing, putting, size, some)


def _sessions() -> int:
    return max(2, PASSAGES // PASSAGES_EACH)


def _time(session: int, seq: int) -> int:
    return AT + session * SPAN_MS // _sessions() + seq * 1_000


def _folder(session: int) -> str:
    """Half of the sessions are at work below one folder, a hundredth below each of the others."""
    return "/srv/main/app" if session % 2 else f"/srv/other-{session // 2 % (FOLDERS // 2)}"


def _passage(seq: int, kind: str, text: str, at: int) -> Passage:
    found = analyse(text)
    return Passage(seq, kind, found.words, found.parts, digest_of(text), "main", at)


def _queries(index: Path, texts: _Texts, some: list[str]) -> dict[str, list[Query]]:
    """What is looked for, by how often it is said; what is typed last may go on."""
    rng = random.Random(SEED)
    counts = _counts(index, {*texts.words})
    by_count = sorted(counts, key=lambda word: (counts[word], word))

    def nearest(share: float, most: int) -> list[str]:
        wanted = share * PASSAGES
        return sorted(by_count, key=lambda word: abs(counts[word] - wanted))[:most]

    # Three words of one text, as whoever remembers it would type them: none is said everywhere.
    usual = {word for word in by_count if counts[word] < PASSAGES // 10}
    said = [[word for word in text.rstrip(".").split() if word in usual] for text in some]
    said = [words for words in said if len(words) >= 3]
    medium = nearest(_MEDIUM, SEARCHES)
    typed = {
        "rare": rng.sample(by_count[: 10 * SEARCHES], SEARCHES),
        "three words": [" ".join(rng.sample(rng.choice(said), 3)) for _ in range(SEARCHES)],
        # A blank behind it: the word itself, and none that it begins.
        "medium": [f"{word} " for word in medium],
        "medium, and what it begins": medium,
        "very common": nearest(_COMMON, 5),
    }
    return {name: [parse(text) for text in found] for name, found in typed.items()}


def _counts(index: Path, words: set[str]) -> Counter[str]:
    """In how many passages each word stands, by FTS5's own list of them."""
    connection = apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.execute("CREATE VIRTUAL TABLE temp.terms USING fts5vocab(main, texts, row)")
    counts: Counter[str] = Counter()
    for term, count in connection.execute("SELECT term, doc FROM temp.terms"):
        if term in words:
            counts[term] = count
    connection.close()
    return counts


def _scopes() -> dict[str, Callable[[int], Scope]]:
    """What is searched, for the search of a number."""
    sessions = _sessions()

    def one(number: int) -> Scope:
        return Scope(Filters(ids=[f"s{number * 7919 % sessions:06d}"]))

    def folder(number: int) -> Scope:
        return Scope(Filters(cwd=f"/srv/other-{number % (FOLDERS // 2)}"))

    since = AT + SPAN_MS * 9 // 10
    return {
        "": lambda _: Scope(),
        ", one session": one,
        ", of a kind": lambda _: Scope(kinds=["thinking"]),
        ", 1% of the sessions by cwd": folder,
        ", 50% of the sessions by cwd": lambda _: Scope(Filters(cwd="/srv/main")),
        ", since the last tenth": lambda _: Scope(since=since),
    }


def _classes(catalog: Catalog, namespace: str, queries: dict[str, list[Query]]) -> Iterator[Row]:
    for name, of_class in queries.items():
        for where, scope in _scopes().items():
            ask = partial(catalog.candidates, namespace, most=200)
            yield _searched(f"{name}{where}", BOUNDS_US[name], ask, of_class, scope)


def _searched(
    what: str,
    most: int,
    ask: Callable[[Scope, Query], Candidates],
    queries: Sequence[Query],
    scope: Callable[[int], Scope],
) -> Row:
    """Time of one search of a class within a scope: the half, and 95 of 100, take no longer."""
    samples, capped, found = [], 0, 0
    for number in range(SEARCHES):
        query, within = queries[number % len(queries)], scope(number)
        started = time.perf_counter_ns()
        answer = ask(within, query)
        samples.append(time.perf_counter_ns() - started)
        capped += answer.capped
        found += len(answer.found)
    more = {"p95": _quantile(samples, 0.95), "found": found / SEARCHES, "capped": capped / SEARCHES}
    return _under(what, median_us(samples), most, **more)


def _quantile(samples: Sequence[int], share: float) -> float:
    return sorted(samples)[min(len(samples) - 1, int(share * len(samples)))] / 1000


# --- appends --------------------------------------------------------------------------------------

BLOCK = 30
BLOCKS = max(1, 3 * ROUNDS // BLOCK)
"""The share of the slow ones takes more commits than a median."""


def appends(folder: Path) -> Iterator[Row]:
    """Commits of one event and of ten, with an index that follows and without, in turns.

    By blocks, behind each of which the index is up to date: so that it takes its time from the
    commits that it follows, and from no others. And the same with an index, and with vectors that
    are made at once beside it.
    """
    yield from _beside(folder, "", {"index": True}, {"index": False})
    # Otherwise it would wait until the commits are over.
    usual, background.SECONDS = background.SECONDS, 0.0
    embeds = {"embedder": "hashing", "embed": True}
    yield from _beside(folder, ", embedded at once, beside the index alone", embeds, {})
    background.SECONDS = usual


def _beside(
    folder: Path, how: str, options: Mapping[str, Any], others: Mapping[str, Any]
) -> Iterator[Row]:
    with ExitStack() as stack:
        sessions = []
        for number, each in enumerate((options, others)):
            root = folder / f"beside{len(how)}-{number}"
            store = stack.enter_context(perdure.open(root, encoding="raw", **each))
            session = stack.enter_context(store.create("s"))
            session.append_many(turn_events(0))
            sessions.append((store, session))
        for size in (1, 10):
            samples: list[list[int]] = [[], []]
            for block in range(BLOCKS):
                for which in (block % 2, 1 - block % 2):
                    samples[which] += _block(*sessions[which], size, block)
            ours, theirs = map(median_us, samples)
            if size == 1 and not how:
                yield at_most(f"commit of {size}, p50", ours, theirs, "us", FLAT)
            else:
                # What is read beside many events at once takes the interpreter's time.
                yield Row(f"commit of {size}, p50{how}", ours, theirs, "us")
            slow, quick = (_quantile(each, 0.99) for each in samples)
            yield Row(f"commit of {size}, p99{how}", slow, quick, "us")


def _block(store: perdure.Store, session: perdure.Session, size: int, number: int) -> list[int]:
    """Nanoseconds of the commits of one block, which has the same events in every store."""
    first = number * BLOCK * size
    turns = range(first // EVENTS_PER_TURN, (first + BLOCK * size) // EVENTS_PER_TURN + 1)
    events = [event for turn in turns for event in turn_events(1 + turn)][first % EVENTS_PER_TURN :]
    spent = []
    for index in range(BLOCK):
        batch = events[index * size : (index + 1) * size]
        spent.append(timed(partial(session.append_many, batch)))
    indexer = store._indexer  # noqa: SLF001 - to wait until it has followed
    if indexer is not None:
        indexer.ready()
    return spent
