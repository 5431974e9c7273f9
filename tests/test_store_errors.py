"""Every error of the tree has its facts, a hint and a sentence for people."""

import inspect
import re

import pytest

import perdure
from perdure import errors
from perdure.errors import PerdureError

EXAMPLES: list[PerdureError] = [
    errors.InvalidValue("data.a", "is not JSON"),
    errors.EmbedderUnavailable("offline", "it is not installed"),
    errors.EmbedderUnavailable("https://e", "it answered 429", retryable=True),
    errors.TextRefused("https://e", "it answered 413"),
    errors.EmbedderFaulty("https://e", "its vectors have 3 numbers, not 4"),
    errors.PersistenceDisabled("reading"),
    errors.SessionNotFound("s"),
    errors.SessionNotFound(""),
    errors.SessionExists("s"),
    errors.SessionBusy("s", pid=1, host="h", since=5),
    errors.SessionBusy("s"),
    errors.FormatUnsupported("session 's'", found=9, supported=0),
    errors.FormatUnsupported("session 's'", found="x", supported=0),
    errors.UnsafeFile("/p", "is a link"),
    errors.KeyConflict("s", type="pay", key="k", seq=3),
    errors.EffectUnknown("s", "k", begun_at=5),
    errors.EffectFailed("s", "k", failure="TimeoutError", reason="too slow"),
    errors.StaleWriter("s", "somebody wrote"),
    errors.SessionClosed("s", "this writer was closed"),
    errors.StorageFull("/p", "No space left"),
    errors.StorageUnavailable("/p", "Input/output error"),
    errors.SessionDamaged("s", "a record is missing"),
    errors.SessionNotFound("s", deleted_at=5),
    errors.SessionExists("s", deleted_at=5),
    errors.StoreClosed(),
    errors.SessionDiverged("s", 5),
    errors.SessionDiverged("s", None),
    errors.WorkspaceMissing("s", "/srv/app"),
    errors.PresetUnknown("s", "coder", ["reviewer"]),
    errors.PresetUnknown(None, "codr", ["coder"]),
    errors.NotAuthenticated("the request has no token"),
    errors.NotAllowed("the Host is another one"),
    errors.NotOffered("repair"),
    errors.NoSuchOperation("GET", "/api/sesions"),
    errors.NoSuchOperation("PUT", "/api/sessions", ("GET", "POST")),
    errors.RequestTooLarge(1024),
    errors.RequestTimedOut(30.0),
    errors.ServerUnavailable("http://127.0.0.1:8766", "nobody listens"),
    errors.ServerFaulty("http://127.0.0.1:8766", "its answer is no JSON"),
    errors.ContentExpired("s", "0" * 64),
    errors.ContentDamaged("s", "0" * 64, "it has other bytes"),
    errors.ConversationNotFound("c"),
    errors.ConversationBusy("c", pid=1, host="h", since=5),
    errors.ConversationBusy("c"),
    errors.RequestConflict("r"),
    errors.RevisionConflict("c", expected=1, current=3),
]


def test_every_error_is_in_the_tree() -> None:
    """Every public error descends from the root, has a code of its own, and an example here."""
    classes = [getattr(errors, name) for name in errors.__all__]

    assert all(issubclass(one, PerdureError) for one in classes)
    assert len({one.code for one in classes}) == len(classes)
    assert {type(example) for example in EXAMPLES} == set(classes) - {PerdureError}


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: error.code)
def test_an_error_says_what_to_do(error: PerdureError) -> None:
    """An error keeps its facts as attributes and its hint apart from its message."""
    given = [name for name in inspect.signature(type(error)).parameters if name != "hint"]

    assert all(hasattr(error, "found" if name == "what" else name) for name in given)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", error.code)
    assert error.message in str(error)
    assert error.hint in str(error)
    assert isinstance(error.retryable, bool)


def test_only_what_may_pass_by_itself_is_retryable() -> None:
    """Trying again helps where somebody else is in the way or space is short."""
    assert {type(error) for error in EXAMPLES if error.retryable} == {
        errors.RequestTimedOut,
        errors.ServerUnavailable,
        errors.SessionBusy,
        errors.ConversationBusy,
        errors.EmbedderUnavailable,
        errors.StorageFull,
    }


@pytest.mark.parametrize("location", ["sqlite3:x", "ftp:/x", "", "dir:"])
def test_an_unknown_location_is_refused(location: str) -> None:
    """A location that names no backend is refused with the ones there are."""
    with pytest.raises(errors.InvalidValue) as refused:
        perdure.open(location)
    assert refused.value.path == "location"
    assert refused.value.hint != ""


def test_a_preset_that_is_not_there_is_named_without_a_session() -> None:
    """Where a new session was to be made, the error speaks of the preset alone."""
    agents = perdure.Agents({"coder": lambda session, _: session})

    with pytest.raises(errors.PresetUnknown) as unknown:
        agents.create("codr", id="mine")

    assert unknown.value.message == "there is no preset 'codr'"
    assert unknown.value.session is None
    assert unknown.value.hint == "presets here: 'coder'"
