"""`perdure search`, `reindex` and `stats`, as people and programs see them."""

import pytest

import perdure
from perdure.cli.exits import Exit
from tests.command_line import Line


@pytest.fixture
def store(line: Line) -> perdure.Store:
    return perdure.open(line.location)


def say(store: perdure.Store, id: str, *texts: str) -> None:
    with store.create(id, cwd=f"/srv/{id}") as session:
        for text in texts:
            content = [{"type": "text", "text": text}]
            session.append(
                "user/message", {"content": content}, agent="ann", time=1_700_000_000_000
            )


def test_search_shows_where_something_was_said(line: Line, store: perdure.Store) -> None:
    """A hit has its session, event, kind, agent and time, and the words stand between signs."""
    say(store, "a", "why does the retry  loop\nwait for ever", "something else")
    shown = line("search", "retry", "loop").stdout.splitlines()
    assert shown[0].startswith("a 0  user  ann  2023-11-1")
    assert shown[1] == "    why does the retry loop wait for ever  /srv/a"
    assert shown[2] == "    why does the «retry loop» wait for ever"
    assert len(shown) == 3
    assert line("search", "nowhere").stdout == "nothing was found\n"


def test_search_is_told_to_programs(line: Line, store: perdure.Store) -> None:
    """The JSON has all facts of each hit, and the spans count characters of its snippet."""
    say(store, "a", "a needle in hay")
    say(store, "b", "another needle")
    found = line.json("search", "needle", "--session", "a")
    (hit,) = found["hits"]
    ((start, end),) = hit["spans"]
    assert hit["snippet"][start:end] == "needle"
    assert (hit["session"], hit["seq"], hit["kind"], hit["agent"]) == ("a", 0, "user", "ann")
    assert (found["mode"], found["fallback"], found["capped"]) == ("keyword", False, False)
    assert found["coverage"] == {"sessions": 2, "indexed": 2, "skipped": 0, "reasons": []}
    for options in (["--without", "b"], ["--cwd", "/srv/a"], ["--kind", "user", "-k", "1"]):
        assert len(line.json("search", "needle", *options)["hits"]) == 1
    for options in (["--agent", "bob"], ["--since", "1d"], ["--program", "codex"]):
        assert line.json("search", "needle", *options)["hits"] == []


def test_pages_go_on_where_the_last_one_ended(line: Line, store: perdure.Store) -> None:
    """The cursor that is printed gives the next page."""
    say(store, "a", *(f"needle {number}" for number in range(5)))
    assert "more: --after " in line("search", "needle", "-k", "2").stderr
    assert "more:" not in line("search", "needle", "-k", "5").stderr
    met: list[int] = []
    after: list[str] = []
    while True:
        page = line.json("search", "needle", "-k", "2", "--sort", "seq", *after)
        met += [hit["seq"] for hit in page["hits"]]
        if page["cursor"] is None:
            break
        after = ["--after", page["cursor"]]
    assert met == [0, 1, 2, 3, 4]
    assert line.error("search", "needle", "--after", "nonsense")["code"] == "invalid-value"


def test_a_fallback_says_that_it_is_one(line: Line, store: perdure.Store) -> None:
    """Where no passage has all words, people are told that these have some."""
    say(store, "a", "alpha", "beta")
    result = line("search", "alpha beta")
    assert "no passage has all of these words" in result.stderr
    assert "«alpha»" in result.stdout


def test_what_was_said_obeys_no_terminal(line: Line, store: perdure.Store) -> None:
    """Control characters of a text, an id or an agent reach no terminal."""
    say(store, "\x1b[31mid\n", "needle \x1b]0;title\x07 \u202e reversed")
    for arguments in (["search", "needle"], ["ls"], ["stats"]):
        shown = line(*arguments).stdout
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert "\u202e" not in shown


def test_reindex_says_what_it_read(line: Line, store: perdure.Store) -> None:
    """What changed is read, and with --all everything; what is not whole is named."""
    say(store, "a", "needle")
    say(store, "b", "needle")
    line("ls")
    assert line("reindex").stdout == "2 sessions: 0 read, 0 gone\n"
    assert line("reindex", "--all").stdout == "2 sessions: 2 read, 0 gone\n"
    log = line.log("b")
    data = bytearray(log.read_bytes())
    data[-60] ^= 1
    log.write_bytes(data)
    result = line("reindex")
    assert result.exit_code == Exit.FAILED
    assert result.stdout.startswith("2 sessions: 1 read, 0 gone\nfailed b: ")
    found = line.json("reindex", "--all", ends=Exit.FAILED)
    assert [session for session, _ in found["failed"]] == ["b"]
    assert "indexed" in line("search", "needle").stderr


def test_stats_count_what_there_is(line: Line, store: perdure.Store) -> None:
    """Sessions, agents, events and passages are counted, and the index is named."""
    say(store, "a", "one", "two")
    say(store, "b", "three")
    found = line.json("stats")
    assert (found["sessions"], found["events"], found["passages"]) == (2, 3, 3)
    assert found["by_agent"] == {"ann": 2}
    assert found["by_program"] == {"perdure": 2}
    assert found["by_status"] == {"paused": 2}
    assert found["place"] == str(line.location / "index.sqlite")
    shown = line("stats").stdout
    assert "sessions  2: 2 paused\n" in shown
    assert "coverage  indexed 2 of 2 sessions\n" in shown


def test_what_was_embedded_is_found_by_meaning(line: Line, store: perdure.Store) -> None:
    """`embed` says what it made, `search` by what it found, and `stats` what there is."""
    say(store, "a", "the violin is out of tune")
    say(store, "b", "the ship lies at the quay")
    made = line.json("embed", "--embedder", "hashing:64")
    assert (made["model"], made["sessions"], made["complete"]) == ("hashing/1/64", 2, True)
    assert line("embed").stdout.endswith(
        "2 sessions: 0 had something new, 0 vectors made by hashing/1/64\n"
    )
    assert line("embed", "a").stdout.startswith("1 session: 0 had something new")
    found = line.json("search", "violinist")
    assert (found["mode"], found["model"]) == ("hybrid", "hashing/1/64")
    assert found["warnings"] == [
        "no passage has any of these words; these are the nearest in meaning"
    ]
    assert line.json("search", "violin")["warnings"] == []
    assert line.json("search", "???")["mode"] == "keyword"
    assert found["hits"][0]["session"] == "a"
    assert line.json("search", "violin", "--mode", "keyword")["model"] is None
    assert line.json("stats")["models"][0]["vectors"] == made["vectors"]
    assert f"meaning   {made['vectors']} vectors of hashing/1/64\n" in line("stats").stdout


def test_an_embedder_that_is_not_there_is_told(line: Line, store: perdure.Store) -> None:
    """What an embedder lacks is an error with a hint, and a warning where words can answer."""
    say(store, "a", "the violin is out of tune")
    assert line.error("embed", "--embedder", "nonsense")["code"] == "invalid-value"
    wanted = ("--embedder", "model2vec:/nowhere")
    assert line.error("embed", *wanted)["code"] == "embedder-unavailable"
    assert line.error("search", "x", "--mode", "semantic")["code"] == "embedder-unavailable"
    line("embed", "--embedder", "hashing")
    found = line("search", "violin", *wanted)
    assert "there is no such folder" in found.stderr
    assert "«violin»" in found.stdout


def test_a_store_that_is_not_there_has_nothing(line: Line) -> None:
    """To search, count or index what does not exist makes nothing and is no error."""
    for arguments in (
        ["search", "x"],
        ["stats"],
        ["reindex"],
        ["ls", "x"],
        ["embed", "--embedder", "hashing"],
    ):
        assert line(*arguments).exit_code == Exit.OK
    assert not line.location.exists()
