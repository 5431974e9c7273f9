"""Analysis: what of a text is found, shown with the index that DESIGN.md describes."""

import itertools
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import perdure.catalog
from perdure.catalog import analyse, analysis, parse
from perdure.catalog.analysis import (
    TEXT_CHARS_MAX,
    TOKENIZER,
    Unit,
    _chunks,
    _units,
    places,
    tokens,
    unit_texts,
)
from perdure.catalog.letters import fold, normal, patterns
from perdure.catalog.query import PREFIX_CHARS_MIN
from perdure.catalog.units import BARRIER, TOKEN_CHARS_MAX
from perdure.testing.strategies import strings

DESIGN = (Path(perdure.catalog.__file__).parent / "DESIGN.md").read_text("utf-8")
TABLE = re.findall("```sql\n(CREATE.*?)```", DESIGN, re.DOTALL)[0]
RANKED = re.findall("```sql\n(SELECT.*?)```", DESIGN, re.DOTALL)[0]


class Index:
    """The table of DESIGN.md, in memory; rows are numbered from 1 in the order of their texts."""

    def __init__(self, *texts: str) -> None:
        self.db = apsw.Connection(":memory:")
        self.db.execute(TABLE)
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        found = analyse(text)
        self.db.execute(
            "INSERT INTO passages (words, parts) VALUES (?, ?)", (found.words, found.parts)
        )

    def search(self, query: str, mode: Literal["all", "any"] = "all") -> list[int]:
        """Rows, best first."""
        match = {"match": parse(query).match(mode), "newest": 1000, "most": 1000}
        return [row for row, *_ in self.db.execute(RANKED, match)]

    def finds(self, query: str) -> bool:
        return bool(self.search(query))


def finds(text: str, query: str) -> bool:
    return Index(text).finds(query)


# --- what is found ------------------------------------------------------------------------------

FOUND = [
    # Words: case, accents and forms do not matter; order does not; every one must be there.
    (
        "Café au lait, naïve ÉCOLE",
        "cafe | CAFÉ | école naive | lait cafe | Cafe\u0301",
        "tea | caf\u00a0",
    ),
    ("Straße nach Łódź über Ærø", "strasse | STRASSE | lodz | uber | aero", "strase"),
    ("ΣΊΣΥΦΟΣ Ёлка Йод", "σισυφος | елка | ЁЛКА | йод", "сисифос"),
    ("ﬁle \uff21\uff22\uff23\uff11\uff12 ① ㎏", "file | abc12 | ABC12 | 1 | kg", "fi\u0020"),
    ("שָׁלוֹם \u0627لعَرَبِيَّة", "שלום | \u0627لعربية", "שלו\u05dd\u05dd"),
    ("हिन्दी में लिखा", "हिन्दी | में लिखा", "हन\u0020"),
    (
        "co\u00adope\u200brate می\u200cخو\u0627\u0647م",
        "coope\u0020 | میخو\u0627\u0647م | rate | cooperate",
        "operate",
    ),
    (
        "I don't know — it\u2019s l'été",
        "don't | dont | it's | its | don\u2019t | l'ete | ete",
        "donut",
    ),
    # Names: whole, by their parts, and in whatever way they are written.
    (
        "call appendBatch here",
        (
            "appendBatch | appendbatch | append | batch | append_batch | append-batch | APPEND "
            '| "append batch" | "call appendBatch" | "call appendbatch here" | appendB | here batch'
        ),
        '"call append" | "batch append" | pend | appendBatches',
    ),
    (
        "HTTPServer2 getX iPhone MyID base64Encode",
        (
            "HTTPServer2 | httpserver2 | http | server | server2 | http_server | Server2 "
            "| get | phone | iphone | id | encode | base64"
        ),
        "TPServer | xiphone | ttp",
    ),
    (
        "the session_store and get_item_list",
        (
            "session_store | session | store | sessionStore | session-store | session.store "
            '| SESSION_STORE | sessionstore | item_list | getItemList | "the session_store and" '
            "| item | session_st | get_item_li"
        ),
        "store_session | session_list | ession_store | get_list",
    ),
    (
        "getItemList",
        "get_item_list | item_list | get_item | itemList | item",
        "get_list | list_get",
    ),
    (
        "run --dry-run -x --no-color=auto",
        "--dry-run | dry-run | -x | dry | run | --no-color | --no-color=auto | color",
        "--dry-walk | -y | no-run",
    ),
    (
        "import dotted.names.here",
        "dotted.names | names.here | dotted | names.here | dotted/names | dotted.na",
        "dotted.here | names.dotted",
    ),
    (
        "edit src/perdure/store.py:12 now",
        (
            "src/perdure/store.py | store.py | perdure/store | perdure | store.py:12 | src/perdure "
            '| "edit src/perdure/store.py:12 now" | src\\perdure\\store.py | ./store.py | store.p'
        ),
        "src/store.py | store/perdure | tore.py | perdure/store.pyc",
    ),
    (
        "open C:\\x\\y\\Name.TXT",
        "C:\\x\\y | c:/x/y | \\y\\name.txt | name.txt | name",
        "y\\x | C:\\y",
    ),
    (
        "see https://example.com/a/b?page=2#top",
        (
            "https://example.com | example.com/a | example.com | page | page=2 | top | "
            "https://example.com/a/b?page=2#top"
        ),
        "com.example | https://example.org",
    ),
    (
        "mail jane.doe@example.com",
        "jane.doe@example.com | jane.doe | doe@example | example.com | jane | @example.com",
        "jane@example.com | doe.jane",
    ),
    (
        "std::vec and foo(bar) x->y",
        "std::vec | vec | foo( | foo(bar | foo | bar) | x->y",
        "vec::std",
    ),
    ("C++ and c# and objective-c, F#.", "C++ | c++ | C# | c# | F# | c | objective-c", "g++ | d#"),
    ("c or c", "c", "C++ | c#"),
    ("C++17 i++", "c++ | C++17 | i++", "c#"),
    # Ids and numbers.
    (
        "task bd-q3fy POL-358",
        "bd-q3fy | POL-358 | pol-358 | q3fy | 358 | bd-q3",
        "bd-q3fx | POL-35\u0020",
    ),
    (
        "call toolu_01AbCdEf9 done",
        "toolu_01AbCdEf9 | toolu_01abcdef9 | 01AbCdEf9 | toolu_01 | toolu",
        "toolu_02 | cdef9",
    ),
    (
        "id 550e8400-e29b-41d4-a716-446655440000",
        (
            "550e8400-e29b-41d4-a716-446655440000 | 550e8400 | 41d4-a716 | 550E8400-E29B "
            "| 446655440000 | 550e84"
        ),
        "550e8400-41d4 | e8400",
    ),
    ("error[E0308]: mismatched", "E0308 | e0308 | E03 | error[E0308]", "E0309 | 0308"),
    (
        "rust 1.2.3 v4.5.6-rc1",
        "1.2.3 | 1.2 | v4.5.6 | 4.5.6 | 4.5 | v4 | 4.5.6-rc1 | rc1",
        "12.3 | 123 | 1.3",
    ),
    (
        "1,234,567 rows 12_000 of 9'500",
        "1234567 | 1,234,567 | 12000 | 12_000 | 9500 | 234",
        "1234\u0020 | 4567",
    ),
    ("1234567 rows", "1234567 | 1,234,567 | 1_234_567 | 1234", "234567"),
    (
        "utf-8 sha256 gpt4",
        "utf8 | utf-8 | sha-256 | sha256 | sha | 256 | gpt-4 | gpt",
        "utf16 | 25\u0020",
    ),
    # Scripts without blanks: every substring of two characters and more, and single characters.
    (
        "重跑gen-itgc后",
        "itgc | gen-itgc | 重跑 | 重跑gen | 后 | 跑 | gen | itgc后 | 重跑gen-itgc后",
        "跑重 | 悬空",
    ),
    (
        "这个悬空的指针\uff0c用户看不到",
        "悬空 | 用户 | 悬空的指针 | 指 | 到 | 的指针\uff0c用户 | 用户 悬空 | “悬空的”",
        "空悬 | 用到 | 针用",
    ),
    ("youer服务端", "youer 服务端 | youer | 服务端 | 务端 | youer服务", "务服 | 服端"),
    (
        "これはペンです。設定ファイル",
        "です | ペン | 設定 | ファイル | は | これは",
        "んで | ファル",
    ),
    ("日本の本", "の | 本 | 日本 | 日本の本", "本日 | 月"),
    ("ｶﾞｲﾄﾞを読む", "ガイド | ｶﾞｲﾄﾞ | ガイ | ド", "カイト"),
    ("ㄅㄆㄇ ㄈ", "ㄅㄆ | ㄇ | ㄈ", "ㄆㄅ"),
    ("카드로 결제했다", "결제 | 결제했다 | 카드 | 했다 | 제 | 카드 결제", "제결 | 드결"),
    ("\u1100\u1161\u1102\u1161 NFD", "가나 | 나", "나가"),
    ("สวัสดีชาวโลก ພາສາລາວ", "สวัสดี | ชาว | โลก | ລາວ", "โลกชาว"),
    ("ភាសាខ្មែរ မြန်မာဘာသာ", "ខ្មែរ | ភាសា | မြန်မာ | ဘာသာ", "សាភា"),
    ("葛󠄀城と葛城", "葛城 | 葛", "城葛"),
    ("用db存", "db | 用db | 存 | DB", "d"),
    # Signs.
    ("done ✅ ship it 🚀🎉", '✅ | 🚀 | 🎉 | 🚀🎉 | done ✅ | "✅ ship" | ✅ 🎉', "❌ | 🎉🚀"),
    ("family 👨‍👩‍👧 here", "👨‍👩‍👧 | 👩 | 👨‍👩 | family 👧", "👨‍👧 | 👦"),
    ("flags 🇩🇪🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇩🇪 | 🇫🇷 | 🇩🇪🇫🇷 | 🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇪🇫 | 🇫🇷🇩🇪 | 🏴"),
    ("thumbs 👍🏽 ☺️ 1️⃣ →", "👍 | 👍🏿 | ☺ | ☺️ | 1️⃣ | →", "👎 | ←"),
    ("€100 and 25°C ©", "€ | €100 | 100 | 25°C | 25℃ | ©", "£"),
    # What terminals and programs put between letters.
    ("\x1b[1;31mErr\x1b[0mor: \x1b[32mok\x1b[0m", "error | ok | error: ok", "31 | 31merr"),
    ("src/\x1b[35mstore\x1b[0m.py", "src/store.py | store | store.py", "35"),
    ("a\0b \ud800c\udfff", "a | b | c | a\0b", "d"),
    ("\ufeffhead zero", "head", "ahead"),
    ("━━━ ▓▓ ⠋ box", "box", "━ | ▓ | ⠋"),
]


def _cases(column: int) -> list[Any]:
    return [
        pytest.param(case[0], query, id=f"{query!a} in {case[0]!a}")
        for case in FOUND
        for query in case[column].split(" | ")
    ]


@pytest.mark.parametrize(("text", "query"), _cases(1))
def test_found(text: str, query: str) -> None:
    """A text is found by its words, names, parts of names, ids, numbers, signs and substrings."""
    assert finds(text, query)


@pytest.mark.parametrize(("text", "query"), _cases(2))
def test_not_found(text: str, query: str) -> None:
    """A text is not found by what it has not."""
    assert not finds(text, query)


# --- whatever the text --------------------------------------------------------------------------

NAMES = st.sampled_from(
    [
        "plain",
        "the",
        "sessionStore",
        "get_item_list",
        "src/perdure/store.py",
        "HTTPServer2",
        "v1.2.3",
        "1,234",
        "--dry-run",
        "C++",
        "naïve",
        "悬空",
        "の",
        "重跑gen后",
        "결제했다",
        "don't",
        "✅",
        "a.b",
        "x",
    ]
)
DENSE = st.text("重跑悬空的用户是のはペン設定결제했다สวัด", min_size=2, max_size=12)


@given(strings(max_size=60))
@example("\u0640\u2019\u0640 \u0640a \u0640")
@example('c#"d 1,234"5 5"1,234 a"b')
@example("\u00dc\u00df \u0130I \ufdfa \u2163 \u1e9e")
def test_every_word_finds_its_text(text: str) -> None:
    """Whatever stands between two blanks finds its text, unless there is nothing to look for."""
    index = Index(text)
    for word in text.split():
        assert parse(f"{word} ").empty or index.finds(f"{word} ")


@given(
    st.lists(DENSE | NAMES, min_size=1, max_size=6), st.sampled_from(["", " ", "\n", ", ", "。"])
)
def test_every_substring_of_two_finds_its_text(pieces: list[str], between: str) -> None:
    """Any two neighbours of a script without blanks find their text, whatever they are glued to."""
    text = between.join(pieces)
    index = Index(text)
    for left, right in itertools.pairwise(text):
        if all(patterns().dense.fullmatch(each) for each in (left, right)):
            assert index.finds(left + right)


@given(st.lists(NAMES, min_size=1, max_size=8), st.data())
def test_every_phrase_finds_its_text(words: list[str], data: st.DataObject) -> None:
    """Words that follow each other in a text find it as a phrase, names among them."""
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    phrase = " ".join(words[first : last + 1])
    assert finds(" ".join(words), f'"{phrase}"')


@given(st.lists(st.sampled_from(["one", "two", "three"]), min_size=2, max_size=6), st.data())
def test_words_are_no_phrase_in_another_order(words: list[str], data: st.DataObject) -> None:
    """A phrase finds a text only where its words follow each other."""
    phrase = data.draw(st.lists(st.sampled_from(["one", "two", "three"]), min_size=2, max_size=3))
    there = any(words[at : at + len(phrase)] == phrase for at in range(len(words)))
    assert finds(" ".join(words), f'"{" ".join(phrase)}"') == there


@given(st.lists(NAMES, min_size=1, max_size=4), st.data())
def test_the_beginning_of_the_last_word_finds_its_text(
    words: list[str], data: st.DataObject
) -> None:
    """While the last word of a query is being typed, the text is found, from three letters on."""
    word = data.draw(st.sampled_from(["appendBatch", "get_item_list", "perdure/store.py", "naïve"]))
    typed = data.draw(st.integers(PREFIX_CHARS_MIN, len(word)))
    assert finds(" ".join([*words, word]), f"{words[0]} {word[:typed]}")


@given(strings(max_size=80))
@example("Straße ﷺ \u1e9b\u0323 ㍿ e\u0301\u200d\u0302x ｶﾞ")
@example("\x1b[1mfoo\x1b[0mBar.baz-1,234 c++ " + "x" * 600 + "/y.z")
def test_places_have_the_same_tokens(text: str) -> None:
    """What a text is indexed by, unit by unit, is what its places are looked up by."""
    words: list[str] = []
    parts: Counter[str] = Counter()
    for unit in places(text):
        for some_words, some_parts in tokens(unit):
            words += [each.text for each in some_words]
            parts.update(each.text for each in some_parts)
    found = analyse(text)
    assert words == found.words.split()
    assert parts == Counter(each for each in found.parts.split() if each != BARRIER)


@given(strings(max_size=80))
@example("a" * 300 + "\u0301b " + "ﬃﬃ" * 5)
def test_places_lie_in_the_text(text: str) -> None:
    """Every token says which characters of its unit it was made of."""
    for unit in places(text):
        end = unit.start + len(unit.text)
        for found in tokens(unit):
            for token in itertools.chain(*found):
                assert unit.start <= token.start < token.end <= end
                piece = text[token.start : token.end]
                if piece.isalnum() and piece.isascii():
                    assert token.text == piece.lower()[:TOKEN_CHARS_MAX]


def test_no_character_breaks_a_token() -> None:
    """The index takes every token as it is: whatever it is made of, FTS5 sees the same tokens."""
    expected: set[str] = set()
    index = Index()
    with index.db:
        for block in (*range(0, 0x3500, 0x100), *range(0xD700, 0x17100, 0x100), 0x1F300, 0x1F900):
            text = " ".join(f"a{chr(code)}b {chr(code)}" for code in range(block, block + 0x100))
            index.add(text)
            found = analyse(text)
            expected.update(found.words.split(" "), found.parts.split(" "))
    index.db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(passages, 'row')")
    kept = {term for (term,) in index.db.execute("SELECT term FROM terms")}
    assert kept == expected - {""}
    assert all(token.islower() or token.isdigit() for token in kept if token.isascii())


def test_marks_do_not_end_words() -> None:
    """Whatever Unicode calls a mark goes on a word, or is part of a script without blanks."""
    apart = [
        f"{code:04x}"
        for code in range(0x300, 0x1FC00)
        if unicodedata.category(chr(code))[0] == "M"
        and len(analyse(f"a{chr(code)}b").words.split()) != 1
        and not patterns().char.match(chr(code))
    ]
    assert apart == []


def test_folding_is_done_once() -> None:
    """A folded word is its own folded form: what is copied from an index is found."""
    again = [
        f"{code:04x}"
        for code in range(0x20000)
        if fold(normal(fold(normal(f"a{chr(code)}")))) != fold(normal(f"a{chr(code)}"))
    ]
    assert again == []


# --- bounds -------------------------------------------------------------------------------------


def test_long_words_are_cut_and_counted() -> None:
    """Of a word of 10,000 characters the beginning is kept, finds it, and the rest is counted."""
    word = "Abcdefghij" * 1000
    found = analyse(f"before {word} after")
    assert found.cut == 10_000 - TOKEN_CHARS_MAX
    assert found.words == f"before {word[:TOKEN_CHARS_MAX].lower()} after"
    assert finds(f"before {word} after", f"{word} after")
    assert finds(word, f"{word} ")
    assert not finds(word, f"{word[: TOKEN_CHARS_MAX - 1]} ")


def test_hashes_are_whole() -> None:
    """The longest ids in use, 128 hexadecimal digits, are kept whole."""
    assert finds("0123456789abcdef" * 8, "0123456789abcdef" * 8)
    assert analyse("0123456789abcdef" * 8).cut == 0


def test_data_is_left_out() -> None:
    """Of data in Base64, which nobody looks for, little is kept; what stands around it is."""
    data = "iVBORw0KGgo/AAA+NSUhEUg" * 1000
    found = analyse(f'{{"src":"data:image/png;base64,{data}=","alt":"a cat"}}')
    assert len(found.words) + len(found.parts) < 1000
    assert found.cut == len(data) - TOKEN_CHARS_MAX
    assert {"alt", "cat", "png"} <= set(found.words.split())


def test_rulers_are_not_counted() -> None:
    """A line of dashes has nothing to be found by, so that nothing is missing of it."""
    assert analyse("-" * 5000 + " x " + "=" * 5000 + "_" * 5000).cut == 0


def test_a_limit_ends_between_words() -> None:
    """What is beyond the limit is counted, and the word that it would go through with it."""
    text = "some words " * 10
    found = analyse(text, limit=24)
    assert found.words == "some words some words"
    assert found.cut == len(text) - len("some words some words ") + 1
    assert analyse(text, limit=0).words == ""
    assert analyse("x" * 50, limit=20).words == "x" * 20
    assert analyse("ab " * TEXT_CHARS_MAX).cut > TEXT_CHARS_MAX


def test_texts_in_blocks_are_read_as_one() -> None:
    """A text of many blocks gives the tokens of its words, wherever a block ends."""
    words = [f"word{number} 悬空{number}" for number in range(12_000)]
    found = analyse(" ".join(words))
    one_by_one = [analyse(word) for word in words]
    assert found.words == " ".join(each.words for each in one_by_one)
    assert found.parts == " ".join(each.parts for each in one_by_one)


def test_a_long_chain_of_names_is_joined_throughout() -> None:
    """Names joined in a row of any length are found by any two neighbours."""
    chain = ".".join(f"n{number}x" for number in range(500))
    index = Index(chain)
    assert all(index.finds(f"n{number}x.n{number + 1}x ") for number in range(499))
    assert not index.finds("n7x.n9x ")


def test_growing_characters_are_bounded() -> None:
    """A character that becomes a whole sentence does not make a text many times as long."""
    assert finds("\ufdfa", "\u0635\u0644\u0649")
    assert len(analyse("\ufdfa" * 10_000).words) < 30_000


SHAPES: dict[str, Callable[[int], str]] = {
    "words": lambda size: "some words " * (size // 11),
    "one word": lambda size: "a" * size,
    "chain": lambda size: "a." * (size // 2),
    "names": lambda size: "aB_" * (size // 3),
    "unique": lambda size: " ".join(f"w{number:x}" for number in range(size // 6)),
    "unique names": lambda size: "".join(f"fooBar{number:x}(" for number in range(size // 10)),
    "han": lambda size: "重跑悬空的用" * (size // 6),
    "marks": lambda size: "a" + "\u0301" * size,
    "joiners": lambda size: "👩\u200d" * (size // 2),
    "colours": lambda size: "\x1b[1m" * (size // 4),
    "numbers": lambda size: "123," * (size // 4),
    "jamo": lambda size: "\u1112\u1161\u11ab" * (size // 3),
    "data": lambda size: ("A/b+" * 150 + ".") * (size // 601),
    "grown": lambda size: "\ufdfa" * size,
}


def calls(work: Callable[[], object]) -> int:
    """How many calls `work` makes, of Python functions and of built-in ones."""
    count = 0

    def see(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    for cache in (_units, _chunks):
        cache.clear()
        cache._older.clear()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("shape", SHAPES)
def test_work_grows_with_the_text(shape: str) -> None:
    """A text four times as long takes at most four times the calls, whatever its shape."""
    small, large = SHAPES[shape](8_000), SHAPES[shape](32_000)
    analyse(small)
    assert calls(lambda: analyse(large)) <= 4.4 * calls(lambda: analyse(small)) + 200


def test_units_are_remembered_within_bounds() -> None:
    """However many different words are met, few are kept in memory, and all give the same again."""
    text = " ".join(f"w{number}" for number in range(36_000))
    first = analyse(text)
    assert analyse(text) == first
    assert len(_units) + len(_units._older) <= 2 << 14
    assert unit_texts("appendBatch") == ("appendbatch", f"{BARRIER} append batch")


def test_threads_share_what_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that analyse at once, while what they remember is let go, get what one gets alone."""
    monkeypatch.setattr(analysis, "_CACHED_TEXTS_MAX", 8)
    given = [f"unit{number} foo_bar{number}.c fooBar{number}" * 3 for number in range(40)]
    alone = [analyse(text) for text in given]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(analyse, given)) == alone


def test_tokens_of_one_unit() -> None:
    """The tokens of a unit stand where its characters are, in the whole text."""
    text = "x ﬁle_Name.py"
    (_, unit) = places(text)
    assert unit == Unit("ﬁle_Name.py", 2)
    found = next(([*words], parts) for words, parts in tokens(unit))
    assert [(each.text, text[each.start : each.end]) for each in found[0]] == [
        ("file", "ﬁle"),
        ("name", "Name"),
        ("py", "py"),
    ]
    assert [(each.text, text[each.start : each.end]) for each in found[1]] == [
        ("filename", "ﬁle_Name"),
        ("namepy", "Name.py"),
    ]


def test_the_tokenizer_is_the_documented_one() -> None:
    """The table of DESIGN.md uses the tokenizer that the module names."""
    assert f"tokenize='{TOKENIZER}'" in TABLE
