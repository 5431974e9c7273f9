"""Which embedder a name stands for: perdure's own, and those that other packages bring."""

from collections.abc import Callable

from perdure.embedding.contract import Embedder
from perdure.embedding.hashing import HashingEmbedder
from perdure.errors import EmbedderFaulty, EmbedderUnavailable, InvalidValue
from perdure.lenses.registry import PlugIns, told
from perdure.model import values
from perdure.runtime import SYSTEM, Runtime

__all__ = ["ENTRY_POINTS", "OWN", "check_spec", "embedder_of"]

ENTRY_POINTS = "perdure.embedders"
"""The group of entry points in which another package names what makes an embedder.

That is called with what stands behind the colon of `NAME:ARGUMENT`, "" without one.
"""

Maker = Callable[[str, Runtime], Embedder]


def _hashing(argument: str, _runtime: Runtime) -> Embedder:
    if not argument:
        return HashingEmbedder()
    if not argument.isascii() or not argument.isdigit():
        raise InvalidValue("embedder", f"{values.shown(argument)} is no dimension")
    return HashingEmbedder(int(argument.lstrip("0")[:9] or "0"))


def _offline(argument: str, _runtime: Runtime) -> Embedder:
    from perdure.embedding.offline import OfflineEmbedder  # noqa: PLC0415 - brings numpy

    _no_argument("offline", argument)
    return OfflineEmbedder()


def _model2vec(argument: str, runtime: Runtime) -> Embedder:
    from perdure.embedding.local import Model2VecEmbedder  # noqa: PLC0415 - brings numpy

    return Model2VecEmbedder(argument, runtime)


def _sentence_transformers(argument: str, runtime: Runtime) -> Embedder:
    from perdure.embedding.local import SentenceTransformersEmbedder  # noqa: PLC0415 - as above

    return SentenceTransformersEmbedder(argument, runtime)


def _remote(address: str, runtime: Runtime) -> Embedder:
    from perdure.embedding.remote import RemoteEmbedder  # noqa: PLC0415 - brings TLS

    return RemoteEmbedder(address, runtime)


OWN: dict[str, Maker] = {
    "hashing": _hashing,
    "offline": _offline,
    "model2vec": _model2vec,
    "sentence-transformers": _sentence_transformers,
    "http": _remote,
    "https": _remote,
}
"""By the name in front of the colon; an address is one whole."""


def _no_argument(name: str, argument: str) -> None:
    if argument:
        raise InvalidValue("embedder", f"{name} takes nothing behind a colon")


def _checked(_name: str, _package: str, make: object) -> Callable[[str], object]:
    if not callable(make):
        raise TypeError(f"{values.shown(make)} cannot be called")
    return make


_foreign = PlugIns(ENTRY_POINTS, OWN, _checked)


def embedder_of(spec: str | Embedder, runtime: Runtime = SYSTEM) -> Embedder:
    """The embedder that a text names; one that is given is taken as it is.

    `hashing`, `hashing:DIMENSION`, `offline` (the extra `semantic`), `model2vec:FOLDER`,
    `sentence-transformers:FOLDER`, `https://HOST/v1#MODEL` or, for vectors of 256 numbers,
    `https://HOST/v1?dimensions=256#MODEL` (any endpoint that is compatible with OpenAI's; its key
    is in the environment variable PERDURE_EMBEDDING_KEY), or a name that another package brings.
    Nothing is ever downloaded.

    Raises:
        InvalidValue: nothing is called so, or the one that is given is not whole.
        EmbedderUnavailable: its package is not installed, or its model is not there.

    """
    check_spec(spec)
    if isinstance(spec, Embedder):
        return spec
    name, _, argument = spec.partition(":")
    own = OWN.get(name)
    if own is not None:
        return own(spec if own is _remote else argument, runtime)
    make = _foreign.get(name)
    if make is None:
        raise _foreign.wrong(name) or InvalidValue("embedder", "is not there any more")
    return _made(spec, make, argument)


def check_spec(spec: object) -> None:
    """Refuse what names no embedder, without making one.

    Raises:
        InvalidValue: nothing is called so.

    """
    if isinstance(spec, Embedder):
        try:
            lacking = _lacking(spec)
        except Exception as error:  # attributes of an object may do anything
            raise InvalidValue("embedder", told(error)) from error
        if lacking:
            raise InvalidValue("embedder", lacking)
        return
    if not isinstance(spec, str):
        raise InvalidValue("embedder", f"{values.shown(spec)} is neither a text nor an Embedder")
    name = spec.partition(":")[0]
    if name not in OWN and _foreign.wrong(name) is None and _foreign.get(name) is None:
        known = ", ".join(sorted({*OWN, *_foreign.names()}))
        raise InvalidValue("embedder", f"{values.shown(spec)} is none", hint=f"known: {known}")


def _made(spec: str, make: Callable[[str], object], argument: str) -> Embedder:
    """What another package makes.

    Raises:
        EmbedderUnavailable: that is none.
        EmbedderFaulty, InvalidValue: as the package says.

    """
    try:
        made = make(argument)
        lacking = _lacking(made)
    except (EmbedderFaulty, EmbedderUnavailable, InvalidValue):
        raise
    except (Exception, SystemExit) as error:  # a package may do anything
        raise EmbedderUnavailable(spec, f"its package failed: {told(error)}") from error
    if lacking or not isinstance(made, Embedder):
        raise EmbedderUnavailable(spec, f"its package made none: {lacking}")
    return made


def _lacking(made: object) -> str:
    """What an embedder does not say of itself as it should; "": nothing."""
    if not isinstance(made, Embedder):
        return f"{values.shown(made)} is no Embedder"
    for name in ("spec", "model"):
        text = getattr(made, name, None)
        if not isinstance(text, str) or not text:
            return f"its {name} is {values.shown(text)}, no text"
    for name in ("dimension", "batch"):
        number = getattr(made, name, None)
        if type(number) is not int or number < 1:
            return f"its {name} is {values.shown(number)}, no number above 0"
    return ""
