"""Tokens: who is let in, who is not any more, and what of it stands on the disk."""

import hmac
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.cli.exits import Exit
from perdure.errors import (
    InvalidValue,
    PerdureError,
    PersistenceDisabled,
    SessionDamaged,
    SessionExists,
    SessionNotFound,
)
from perdure.http import tokens as module
from perdure.http.tokens import NAMESPACE, SESSION, Token, Tokens
from perdure.runtime import Runtime
from tests.command_line import Line
from tests.media import open_medium

KINDS = ("memory", "raw", "zst", "sqlite", "bundle")
NOW = 1_900_000_000_000


class Clock(Runtime):
    """A clock that is set."""

    now = NOW

    def now_ms(self) -> int:
        return self.now


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[perdure.Store]:
    with open_medium(request.param, tmp_path) as opened:
        yield opened


def log_of(store: perdure.Store) -> Path:
    return Path(str(store.namespace(NAMESPACE).locate(SESSION)))


# --- who is let in --------------------------------------------------------------------------------


def test_the_text_of_a_token_finds_it(store: perdure.Store) -> None:
    """A token is found by its text, in every kind of store, by whoever opens it."""
    tokens = Tokens(store, Clock())
    assert (tokens.all(), tokens.any()) == ([], False)
    mine, text = tokens.create("laptop")
    theirs, other = tokens.create("ci", principal="bob/ø", expires_in=60)
    assert mine == Token(mine.id, "laptop", None, NOW)
    assert theirs == Token(theirs.id, "ci", "bob/ø", NOW, NOW + 60_000)
    for asked in (tokens, Tokens(store, Clock())):
        assert (asked.find(text), asked.find(other)) == (mine, theirs)
        assert (asked.all(), asked.any()) == ([mine, theirs], True)
    assert mine.as_dict()["principal"] is None


def test_only_the_digest_of_a_secret_is_kept(tmp_path: Path) -> None:
    """Nothing of a secret stands in any file of the store."""
    with open_medium("raw", tmp_path) as store:
        token, text = Tokens(store).create("laptop")
    secret = text.rpartition("_")[2]
    said = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(token.id.encode() in each for each in said)
    assert not any(secret.encode() in each or bytes.fromhex(secret) in each for each in said)


def test_a_revoked_token_lets_nobody_in(store: perdure.Store) -> None:
    """A token that was revoked is not found at the next request; to revoke it again is nothing."""
    tokens = Tokens(store)
    token, text = tokens.create("a")
    _, other = tokens.create("b")
    assert tokens.find(text) == token
    revoked = tokens.revoke(token.id)
    assert revoked.revoked is not None
    assert tokens.revoke(token.id) == revoked
    assert (tokens.find(text), tokens.any()) == (None, True)
    assert tokens.find(other) is not None
    events = [event.type for event in store.namespace(NAMESPACE).read_from(SESSION)]
    assert events == ["token/created", "token/created", "token/revoked"]


@pytest.mark.parametrize("kind", ["raw", "zst", "sqlite"])
def test_what_another_process_did_counts_at_once(tmp_path: Path, kind: str) -> None:
    """A token that another process made or revoked is, or is not, found by the next request."""
    with open_medium(kind, tmp_path) as store:
        tokens = Tokens(store)
        token, text = tokens.create("a")
        assert tokens.find(text) == token
        code = (
            "import sys\nfrom pathlib import Path\nfrom tests.media import open_medium\n"
            "from perdure.http.tokens import Tokens\n"
            "with open_medium(sys.argv[1], Path(sys.argv[2])) as store:\n"
            "    Tokens(store).revoke(sys.argv[3])\n    print(Tokens(store).create('b')[1])\n"
        )
        arguments = [sys.executable, "-c", code, kind, str(tmp_path), token.id]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        assert tokens.find(text) is None
        assert tokens.find(done.stdout.strip()) is not None


def test_a_token_expires(store: perdure.Store) -> None:
    """A token counts before its end, and not from it on."""
    clock = Clock()
    tokens = Tokens(store, clock)
    token, text = tokens.create("a", expires_in=1.5)
    clock.now = NOW + 1499
    assert (tokens.find(text), tokens.any()) == (token, True)
    clock.now += 1
    assert (tokens.find(text), tokens.any()) == (None, False)


def test_hostile_texts_are_nobody(store: perdure.Store, rng: random.Random) -> None:
    """Whatever else is sent in place of a token finds none and raises nothing."""
    tokens = Tokens(store)
    token, text = tokens.create("a")
    secret = text.rpartition("_")[2]
    hostile: list[Any] = [
        "",
        "perdure_",
        text.upper(),
        text + "\n",
        " " + text,
        text + "0",
        text[:-1],
        f"perdure_{token.id}_" + "0" * 64,
        f"perdure_{'0' * 16}_{secret}",
        f"perdure_{token.id}_{secret[:-1]}\uff10",
        text.replace("_", "\x00"),
        "\ud800" * 89,
        "\U0001f600" * 89,
        "perdure_" + "a" * 1_000_000,
        None,
        7,
        text.encode(),
        [text],
    ]
    for _ in range(50):
        at = rng.randrange(len(text))
        hostile.append(text[:at] + chr(rng.randrange(0x110000)) + text[at + 1 :])
    found = [each for each in hostile if each != text and tokens.find(each) is not None]
    assert found == []
    assert tokens.find(text) == token


def test_an_unknown_id_is_compared_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id that is not there costs the comparison that one that is there does."""
    compared: list[tuple[bytes, bytes]] = []

    def noting(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(module, "hmac", type("Noting", (), {"compare_digest": noting}))
    with perdure.open("memory:") as store:
        tokens = Tokens(store)
        token, text = tokens.create("a")
        assert tokens.find(text) == token
        assert tokens.find(text.replace(token.id, "0" * 16)) is None
    assert [(len(one), len(other)) for one, other in compared] == [(32, 32)] * 2


def test_an_unchanged_log_is_not_read_again(
    store: perdure.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding reads the log once after each change, however often it is asked."""
    below = store.namespace(NAMESPACE)
    reads: list[str] = []
    read = below.read_from

    def counted(id: str, *rest: Any) -> Any:
        reads.append(id)
        return read(id, *rest)

    monkeypatch.setattr(below, "read_from", counted)
    tokens = Tokens(store)
    token, text = tokens.create("a")
    for _ in range(20):
        assert tokens.find(text) == token
    assert reads == [SESSION]
    tokens.create("b")
    for _ in range(20):
        assert tokens.find(text) == token
    assert reads == [SESSION] * 2


def test_threads_find_and_revoke_at_once(tmp_path: Path) -> None:
    """Threads that ask while others create and revoke see each token as it stood, never another."""
    with open_medium("zst", tmp_path) as store:
        tokens = Tokens(store)
        made = [tokens.create(f"t{number}") for number in range(6)]
        wrong: list[object] = []
        over = threading.Event()

        def ask() -> None:
            while not over.is_set():
                for token, text in made:
                    found = tokens.find(text)
                    if found is not None and found != token:
                        wrong.append(found)

        def revoke(token: Token, text: str) -> None:
            tokens.revoke(token.id)
            if tokens.find(text) is not None:
                wrong.append(token)

        asking = [threading.Thread(target=ask) for _ in range(2)]
        revoking = [threading.Thread(target=revoke, args=each) for each in made[:4]]
        for thread in (*asking, *revoking):
            thread.start()
        for thread in revoking:
            thread.join()
        over.set()
        for thread in asking:
            thread.join()
        assert wrong == []
        assert [token.revoked is not None for token in tokens.all()] == [True] * 4 + [False] * 2


def test_two_processes_make_the_first_tokens(tmp_path: Path) -> None:
    """Processes that make the first token of a store at once all have theirs afterwards."""
    code = (
        "import sys\nfrom perdure.cli.main import main\n"
        "sys.stdin.readline()\n"
        "sys.argv[1:] = ['--store', sys.argv[1], 'token', 'create', 'x', '--owner']\nmain()\n"
    )
    place = str(tmp_path / "store")
    started = [
        subprocess.Popen(
            [sys.executable, "-c", code, place],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for _ in range(4)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    texts = [process.communicate()[0].strip() for process in started]
    assert [process.returncode for process in started] == [0] * 4
    with perdure.open(place) as store:
        tokens = Tokens(store)
        found = [tokens.find(text) for text in texts]
    assert len({token.id for token in found if token is not None}) == 4


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("name", {"name": ""}),
        ("name", {"name": " \n"}),
        ("name", {"name": "x" * 201}),
        ("name", {"name": 7}),
        ("principal", {"name": "a", "principal": ""}),
        ("principal", {"name": "a", "principal": "x" * 1025}),
        ("principal", {"name": "a", "principal": 7}),
        ("expires_in", {"name": "a", "expires_in": 0}),
        ("expires_in", {"name": "a", "expires_in": -1}),
        ("expires_in", {"name": "a", "expires_in": float("nan")}),
        ("expires_in", {"name": "a", "expires_in": float("inf")}),
        ("expires_in", {"name": "a", "expires_in": 10**30}),
        ("expires_in", {"name": "a", "expires_in": True}),
        ("expires_in", {"name": "a", "expires_in": "30d"}),
    ],
)
def test_arguments_that_cannot_be_are_refused(path: str, arguments: dict[str, Any]) -> None:
    """A name, a principal or an end that cannot be is refused by its path, and nothing is made."""
    with perdure.open("memory:") as store:
        with pytest.raises(InvalidValue) as refused:
            Tokens(store).create(**arguments)
        assert refused.value.path == path
        assert store.namespaces() == []


def test_only_a_whole_id_is_revoked(store: perdure.Store) -> None:
    """The beginning of an id, and an unknown one, are refused and revoke nothing."""
    tokens = Tokens(store)
    token, text = tokens.create("a")
    for id in (token.id[:-1], token.id.upper() + "0", "", text, None, 7):
        with pytest.raises(InvalidValue, match="is no token here"):
            tokens.revoke(id)  # type: ignore[arg-type]
    assert tokens.find(text) == token


def test_a_store_that_keeps_nothing_has_no_tokens() -> None:
    """Where persistence is off no token is made, and none is found."""
    with perdure.open("none:") as store:
        with pytest.raises(PersistenceDisabled):
            Tokens(store).create("a")
        tokens = Tokens(store)
        assert (tokens.any(), tokens.find(f"perdure_{'0' * 16}_{'0' * 64}")) == (False, None)


# --- damage ---------------------------------------------------------------------------------------


def harmed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("known", [True, False])
def test_a_damaged_log_lets_nobody_in(tmp_path: Path, known: bool, rng: random.Random) -> None:
    """Wherever a bit of the log flips, each token is refused, whether or not it was known."""
    with open_medium("raw", tmp_path) as store:
        tokens = Tokens(store)
        _, text = tokens.create("a")
        tokens.create("b")
        if known:
            assert tokens.find(text) is not None
        log = log_of(store)
        whole = log.read_bytes()
        for at in {0, len(whole) // 2, *(rng.randrange(len(whole)) for _ in range(5))}:
            log.write_bytes(harmed(whole, at))
            for _ in range(2):
                with pytest.raises(PerdureError):
                    tokens.find(text)
            with pytest.raises(PerdureError):
                tokens.create("c")
        log.write_bytes(whole)
        assert tokens.find(text) is not None


def test_a_damaged_frame_brings_no_revoked_token_back(tmp_path: Path, rng: random.Random) -> None:
    """Wherever a bit of a compressed log flips, a revoked token stays so, or all are refused.

    What only helps to find records may be wrong without harm.
    """
    with open_medium("zst", tmp_path) as store:
        tokens = Tokens(store)
        token, text = tokens.create("a")
        other, second = tokens.create("b")
        tokens.revoke(token.id)
        whole = log_of(store).read_bytes()
        refused = 0
        for at in rng.sample(range(len(whole)), 40):
            log_of(store).write_bytes(harmed(whole, at))
            try:
                assert (tokens.find(text), tokens.find(second)) == (None, other)
            except PerdureError:
                refused += 1
        assert refused > 10


def test_an_older_log_brings_no_revoked_token_back(tmp_path: Path) -> None:
    """Where a copy from before the revocation was put in place, nobody is let in."""
    with open_medium("raw", tmp_path) as store:
        tokens = Tokens(store)
        token, text = tokens.create("a")
        older = log_of(store).read_bytes()
        tokens.revoke(token.id)
        log_of(store).write_bytes(older)
        with pytest.raises(SessionDamaged):
            tokens.find(text)


def test_a_log_that_vanished_lets_nobody_in(tmp_path: Path) -> None:
    """Where the log is gone though nobody deleted it, that is told, and no new one is begun."""
    with open_medium("raw", tmp_path) as store:
        tokens = Tokens(store)
        _, text = tokens.create("a")
        folder = log_of(store).parent
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    with open_medium("raw", tmp_path) as store:
        tokens = Tokens(store)
        for ask in (tokens.any, lambda: tokens.find(text), lambda: tokens.create("b")):
            with pytest.raises(SessionNotFound, match="is gone"):
                ask()


def test_a_deleted_log_has_no_tokens(store: perdure.Store) -> None:
    """Whoever deletes the log ends all tokens; brought back, they count again."""
    tokens = Tokens(store)
    token, text = tokens.create("a")
    store.namespace(NAMESPACE).delete(SESSION)
    assert (tokens.find(text), tokens.any(), tokens.all()) == (None, False, [])
    with pytest.raises(SessionExists):
        tokens.create("b")
    store.namespace(NAMESPACE).restore(SESSION)
    assert tokens.find(text) == token


@pytest.mark.parametrize("salvage", [False, True])
def test_a_repair_revokes_what_it_cannot_vouch_for(tmp_path: Path, salvage: bool) -> None:
    """Behind a repair no earlier token counts, since its revocation may be what was lost."""
    with open_medium("raw", tmp_path) as store:
        tokens = Tokens(store)
        texts = [tokens.create(name)[1] for name in "abcd"]
        tokens.revoke(tokens.all()[0].id)
        log = log_of(store)
        lines = log.read_bytes().splitlines(keepends=True)
        lines[2] = lines[2].replace(b'"name":"b"', b'"name":"B"')
        log.write_bytes(b"".join(lines))
        with pytest.raises(SessionDamaged):
            tokens.any()
        store.namespace(NAMESPACE).repair(SESSION, salvage=salvage)
        assert [tokens.find(text) for text in texts] == [None] * 4
        assert [token.name for token in tokens.all()] == (["a", "c", "d"] if salvage else ["a"])
        assert not tokens.any()
        assert tokens.find(tokens.create("e")[1]) is not None


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("token/created", None),
        ("token/created", {"id": "x"}),
        ("token/created", {"id": "x", "principal": None, "name": "n", "sha256": "0", "created": 1}),
        (
            "token/created",
            {"id": "x", "principal": None, "name": "n", "sha256": "00" * 31, "created": 1},
        ),
        ("token/revoked", {}),
        ("token/revoked", {"id": 7}),
    ],
)
def test_events_that_are_none_of_ours_let_nobody_in(type: str, data: Any) -> None:  # noqa: A002
    """An event of tokens that cannot be understood may revoke any of them, so none counts."""
    with perdure.open("memory:") as store:
        tokens = Tokens(store)
        _, text = tokens.create("a")
        store.namespace(NAMESPACE).append(SESSION, [{"type": type, "data": data}])
        with pytest.raises(SessionDamaged, match="event 1 is no token"):
            tokens.find(text)


def test_a_second_token_of_one_id_lets_nobody_in() -> None:
    """An id that was given twice is damage: nobody can say who its bearer is."""
    with perdure.open("memory:") as store:
        tokens = Tokens(store)
        _, text = tokens.create("a")
        below = store.namespace(NAMESPACE)
        (event,) = below.read_from(SESSION)
        below.append(SESSION, [{"type": "token/created", "data": event.data}])
        with pytest.raises(SessionDamaged, match="twice"):
            tokens.find(text)


def test_other_events_mean_nothing() -> None:
    """Events of other types in the log change nothing."""
    with perdure.open("memory:") as store:
        tokens = Tokens(store)
        token, text = tokens.create("a")
        store.namespace(NAMESPACE).append(SESSION, [{"type": "note", "data": {"id": token.id}}])
        assert tokens.find(text) == token


# --- the command ----------------------------------------------------------------------------------


def test_the_command_makes_lists_and_revokes(line: Line) -> None:
    """What the command prints once lets in until it is revoked."""
    made = line("token", "create", "my\nlaptop", "--owner")
    text = made.stdout.strip()
    other = line.json("token", "create", "ci", "--principal", "bob", "--expires", "30d")
    assert other["token"]["expires"] - other["token"]["created"] == 30 * 86_400_000
    with perdure.open(line.location) as store:
        tokens = Tokens(store)
        mine = tokens.find(text)
        assert mine is not None
        assert mine.principal is None
        assert line.json("token", "ls")["tokens"] == [mine.as_dict(), other["token"]]
        rows = line("token", "ls").stdout.splitlines()
        assert rows[1].startswith(f"{mine.id}  counts ")
        assert rows[1].endswith(r"(owner)  my\nlaptop")
        assert text not in line("token", "ls").stdout
        assert line.json("token", "revoke", mine.id)["token"]["revoked"] is not None
        assert tokens.find(text) is None
        assert tokens.find(other["text"]) is not None
    assert " revoked " in line("token", "ls").stdout
    assert line("token", "revoke", mine.id).stdout == f"revoked {mine.id} (my\\nlaptop)\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["token"],
        ["token", "create", "a"],
        ["token", "create", "a", "--owner", "--principal", "b"],
        ["token", "create", "--owner"],
        ["token", "create", "a", "--owner", "--expires", "soon"],
        ["token", "create", "a", "--principal", ""],
        ["token", "revoke", "abc"],
        ["--namespace", "x", "token", "ls"],
    ],
)
def test_wrong_usage_makes_nothing(line: Line, arguments: list[str]) -> None:
    """Whoever does not say as whom, or for how long, is told so, and no store appears."""
    assert line(*arguments).exit_code == Exit.USAGE
    assert not line.location.exists()


def test_a_store_without_tokens_says_so(line: Line) -> None:
    """Where there is no token, that is said; looking creates nothing."""
    assert line("token", "ls").stdout == f"no tokens in {line.location}\n"
    assert line.json("token", "ls") == {"tokens": []}
    assert not line.location.exists()


@pytest.mark.parametrize("command", ["create", "ls", "revoke"])
def test_each_of_them_explains_its_json(line: Line, command: str) -> None:
    """Every action has --json, and its help says what it prints then."""
    text = line("token", command, "--help").stdout
    assert "--json" in text
    assert "JSON: " in text
