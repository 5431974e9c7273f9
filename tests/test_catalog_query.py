"""Queries: what people type is looked for as it is, and never read as a language."""

import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perdure.catalog import Phrase, parse
from perdure.catalog.query import PREFIX_CHARS_MIN, TERMS_MAX, TOKENS_MAX
from perdure.testing.strategies import strings
from tests.test_catalog_analysis import Index

# What FTS5 would read as its own, and what other programs stumbled over.
AWKWARD = [
    *(
        "don't",
        "a-b",
        '"',
        '""',
        '"""',
        "C++",
        "std::vec",
        "foo(",
        "*",
        "AND",
        "OR",
        "NOT",
        "NEAR(",
    ),
    *("^x", "path/to/f.py:12", "-x", "%", "_", "ask-codex", "POL-358", "words:x", "{words}:x"),
    *("a*b*", "x AND", "AND x", "(a OR", "NEAR(a b, 5)", "a + b", "'; DROP TABLE passages; --"),
    *(
        "\0",
        "a\0b",
        "\ud800",
        "\udfff x",
        "-",
        "--",
        "words :",
        "- {parts} : x",
        "\\",
        "a\\",
        ":",
        "^",
    ),
    *(
        "agent:main",
        "\u201c",
        "\u300c\u300d",
        "\u00ab\u00ab",
        "\u2016",
        "a\u2016b",
        "\uff3f",
        "c\uff0b",
    ),
]
NOTHING = [
    "",
    " ",
    "\t\n",
    '"',
    '""',
    '" "',
    "-",
    "...",
    "*",
    "%",
    "_",
    "()",
    "\0",
    "\ud800",
    "\u201c\u201d",
    "､。",
]

METACHARACTERS = st.text(
    st.sampled_from("\"'()*^:-+{},.ANDORNEAT \0\u201c\u300c\ud800悬の"), max_size=40
)


@pytest.fixture(scope="module")
def index() -> Index:
    return Index("some words to find", "path/to/f.py:12 don't POL-358")


def tokens_of(query: str) -> list[Any]:
    """The phrases of each term: text, and * if it may go on."""
    return [
        [" ".join(phrase.tokens) + "*" * phrase.prefix for phrase in term.phrases]
        for term in parse(query).terms
    ]


# --- nothing is syntax --------------------------------------------------------------------------


@pytest.mark.parametrize("query", AWKWARD, ids=ascii)
@pytest.mark.parametrize("repeat", [1, 2, 5000])
def test_awkward_queries_are_answered(index: Index, query: str, repeat: int) -> None:
    """What means something to FTS5 raises nothing, however often it is repeated."""
    for text in (query * repeat, f"{query} " * repeat, f"words {query}"):
        index.search(text)
        index.search(text, "any")


@given(METACHARACTERS | strings(max_size=50), st.integers(1, 300))
@example('NEAR("a" "b', 100)
@example("\0" * 40, 250)
def test_no_query_raises(text: str, repeat: int) -> None:
    """Whatever is typed, up to 10,000 characters of it, is answered in both modes."""
    index = Index("a", "the text")
    for query in (text, (text * repeat)[:10_000]):
        index.search(query)
        index.search(query, "any")


@pytest.mark.parametrize("query", AWKWARD, ids=ascii)
def test_awkward_words_find_themselves(query: str) -> None:
    """A text with exactly what was typed is found, unless nothing of it can be looked for."""
    assert parse(query).empty or Index(f"before {query} after").finds(query)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("cat AND dog", "cat dog"),
        ("cat OR dog", "cat"),
        ("cat NOT dog", "cat fish"),
        ("ca*", "cat"),
        ("agent:main", "agent other"),
        ("words:cat", "cat"),
        ("^cat", "dog ocat"),
        ("-cat", "dog"),
    ],
)
def test_operators_are_words(query: str, text: str) -> None:
    """What is an operator elsewhere is a word here: a text without that word is not found."""
    assert not Index(text).finds(f"{query} ")
    assert Index(query).finds(query)


# --- nothing to look for ------------------------------------------------------------------------


@pytest.mark.parametrize("query", NOTHING, ids=ascii)
def test_empty_queries_match_nothing(index: Index, query: str) -> None:
    """A query without a letter, digit or sign is empty, says so, and matches nothing."""
    assert parse(query).empty
    assert parse(query).terms == ()
    assert parse(query).ignored == ()
    assert index.search(query) == index.search(query, "any") == []


# --- words and phrases --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "terms"),
    [
        ("cat", [["cat", "cat*"]]),
        ("cat ", [["cat"]]),
        ("cat\n", [["cat"]]),
        ("cat dog", [["cat"], ["dog", "dog*"]]),
        ("cat (dog)", [["cat"], ["dog"]]),
        ("do", [["do"]]),
        ('"cat dog"', [["cat dog"]]),
        ('"cat dog', [["cat dog"]]),
        ('a "cat dog" b', [["a"], ["cat dog"], ["b"]]),
        ('a"cat"', [["a"], ["cat"]]),
        ('"cat" "dog"', [["cat"], ["dog"]]),
        ("\u201ccat dog\u201d bird", [["cat dog"], ["bird", "bird*"]]),
        ("\u201ecat dog\u201c", [["cat dog"]]),
        ('\u201ccat dog" bird ', [["cat dog"], ["bird"]]),
        ("\u00abcat dog\u00bb", [["cat dog"]]),
        ("\u300c悬空 的\u300d", [["悬空 空 的*"]]),
        ("\u300c悬空指", [["悬空 空指"]]),
        ("\u300ecat dog\u300f", [["cat dog"]]),
        ("\uff02cat dog\uff02", [["cat dog"]]),
        ("get_item", [["getitem", "getitem*"]]),
        ("get.item.li", [["getitem itemli", "getitem itemli*"]]),
        ("getItemList ", [["getitemlist", "getitem itemlist"]]),
        ("appendBatch ", [["appendbatch"]]),
        ("foo(bar", [["foo bar", "foo bar*"]]),
        ("悬空", [["悬空"]]),
        ("の", [["の*"]]),
        ("重跑gen", [["重跑 跑 gen", "重跑 跑 gen*"]]),
        ("C++ ", [["c\uff0b\uff0b"]]),
        ("1,234", [["1234"]]),
        ("1.2", [["1\uff3f2", "1\uff3f2*"]]),
        ("✅", [["✅"]]),
        ("cat CAT Cat ", [["cat"]]),
        ("don\u2019t ", [["dont"]]),
    ],
)
def test_terms(query: str, terms: list[list[str]]) -> None:
    """Each word and each quoted phrase is a term, the last word also the beginning of others."""
    assert tokens_of(query) == terms


def test_beginnings_are_of_the_last_word_only() -> None:
    """A word that is not the last finds no longer one, nor does a quoted or a finished one."""
    index = Index("session stored", "session store")
    assert set(index.search("session store")) == {1, 2}
    assert index.search("store session") == [2]
    assert index.search('session "store"') == [2]
    assert index.search('session "store') == [2]
    assert index.search("session store ") == [2]
    assert index.search("session store.") == [2]


def test_short_beginnings_are_words() -> None:
    """A last word shorter than the minimum finds only itself."""
    index = Index("abcd")
    assert index.finds("abcd"[:PREFIX_CHARS_MIN])
    assert not index.finds("abcd"[: PREFIX_CHARS_MIN - 1])


def test_what_is_typed_exactly_comes_first() -> None:
    """A text with the very word is ranked before one with a longer word."""
    index = Index("E0308 here", "E03081 here", "E03082 here", "other text", "more of it")
    assert index.search("E0308")[0] == 1
    assert set(index.search("E0308")) == {1, 2, 3}


# --- all and any --------------------------------------------------------------------------------


def test_all_terms_or_any() -> None:
    """All: texts with every term. Any: texts with one of them, those with more and rarer first."""
    index = Index("cat dog", "cat bird", "bird", "dog fish", "cat", "cat", "cat")
    assert index.search("cat dog ") == [1]
    assert set(index.search("cat dog ", "any")) == {1, 2, 4, 5, 6, 7}
    assert index.search("cat dog ", "any")[:2] == [1, 4]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("tool-call", "a call of the tool"),
        ("appendBatch", "to append it"),
        ('"cat dog"', "a dog"),
        ("悬空指针", "指针"),
        ("重跑gen", "gen"),
        ("a.b/c", "only c"),
        ("1,234", "it was 1 234"),
    ],
)
def test_any_falls_back_to_parts(query: str, text: str) -> None:
    """In the mode "any" a term is found by what it is made of as well, in "all" it is not."""
    assert not Index(text).finds(query)
    assert Index(text).search(query, "any") == [1]


@given(strings(max_size=40))
def test_any_finds_what_all_finds(text: str) -> None:
    """Whatever a query finds with all of its terms, it finds with any of them."""
    index = Index(text, "other words")
    words = text.split()
    query = " ".join(words[: len(words) // 2 + 1])
    assert set(index.search(query)) <= set(index.search(query, "any"))


# --- bounds -------------------------------------------------------------------------------------


def test_terms_are_bounded_and_the_rest_is_told() -> None:
    """Words beyond the greatest number are not looked for, and are named."""
    words = [f"w{number:x}" for number in range(TERMS_MAX + 10)]
    query = parse(" ".join(words))
    assert len(query.terms) == TERMS_MAX
    assert query.ignored == tuple(words[TERMS_MAX:])
    assert Index(" ".join(words[:TERMS_MAX])).finds(" ".join(words))
    assert parse(" ".join(words[:TERMS_MAX])).ignored == ()


def test_tokens_are_bounded_and_the_rest_is_told() -> None:
    """Of a sentence without blanks that is too long the beginning is looked for."""
    sentence = "".join(map(chr, range(0x4E00, 0x4E00 + 200)))
    query = parse(f"{sentence} more")
    (term,) = query.terms
    assert len(term.phrases[0].tokens) == TOKENS_MAX
    assert query.ignored[1:] == ("more",)
    assert query.ignored[0].startswith(sentence[TOKENS_MAX : TOKENS_MAX + 2])
    assert Index(sentence).finds(sentence)
    assert not Index(sentence[: TOKENS_MAX - 1]).finds(sentence)


def test_repeated_words_leave_room_for_others() -> None:
    """A word counts once, however often it is typed; signs between words count nothing."""
    query = parse("again - " * 1000 + "end ")
    assert [term.text for term in query.terms] == ["again", "end"]
    assert query.ignored == ()


@given(strings(max_size=300))
def test_every_query_is_bounded(text: str) -> None:
    """No query has more terms and tokens than the bounds say, and what is left out is told once."""
    query = parse(text * 20)
    assert len(query.terms) <= TERMS_MAX
    assert sum(len(term.phrases[0].tokens) for term in query.terms) <= TOKENS_MAX
    assert all(len(phrase.tokens) <= TOKENS_MAX for term in query.terms for phrase in term.phrases)
    assert len(query.match("any")) < 60_000
    assert query.text == text * 20


# --- ids ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "id"),
    [
        ("bd-q3fy", "bd-q3fy"),
        ("POL-358", "POL-358"),
        (" toolu_01AbC\n", "toolu_01AbC"),
        ("550e8400-e29b-41d4-a716-446655440000", "550e8400-e29b-41d4-a716-446655440000"),
        ("E0308", "E0308"),
        ("[E0308]", "E0308"),
        ('"bd-q3fy"', "bd-q3fy"),
        ("#358", "358"),
        ("src/a1.py:12", "src/a1.py:12"),
        ("word", None),
        ("two w0rds", None),
        ("x1", None),
        ("", None),
        ("-12", None),
        ("悬空1", None),
        ("1" * 300, None),
    ],
)
def test_ids(query: str, id: str | None) -> None:
    """One word with a digit may be an id, which is told without the signs around it."""
    assert parse(query).exact_id == id


# --- expressions --------------------------------------------------------------------------------


def test_expressions() -> None:
    """An expression has phrases in quotes, alternatives in brackets, stars for beginnings."""
    query = parse('cat "dog bird" sto')
    assert query.match() == '("cat") AND ("dog bird") AND ("sto" OR "sto"*)'
    assert query.match("any") == '("cat" OR "dog bird" OR "dog" OR "bird" OR "sto" OR "sto"*)'
    assert parse("").match() == parse("").match("any") == '""'
    assert Phrase(("a", "b"), prefix=True).expression() == '"a b"*'


@given(st.text(string.printable + "悬の✅\ud800", max_size=60))
def test_only_tokens_reach_the_index(text: str) -> None:
    """Between the quotes of an expression there are letters, digits and blanks only."""
    inside = parse(text).match("any").split('"')[1::2]
    plain = "".join(char for piece in inside for char in piece if char.isascii())
    assert all(char == " " or char.islower() or char.isdigit() for char in plain)
