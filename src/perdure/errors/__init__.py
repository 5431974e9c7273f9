"""The one error tree: what went wrong, where, what to do, and whether trying again can help.

Every error that leaves perdure descends from `PerdureError`. Each class carries its facts as
attributes, a `hint` that says what to do, and `retryable`: whether the same call may succeed later
without anybody changing anything. Errors of the operating system and of libraries are translated at
the edge where they occur and kept as `__cause__`.
"""

from perdure.errors.appending import (
    EffectFailed,
    EffectUnknown,
    KeyConflict,
    SessionClosed,
    StaleWriter,
    StorageFull,
    StorageUnavailable,
    StoreClosed,
)
from perdure.errors.calling import (
    InvalidValue,
    PersistenceDisabled,
)
from perdure.errors.conversing import (
    ConversationBusy,
    ConversationNotFound,
    RequestConflict,
    RevisionConflict,
)
from perdure.errors.copying import (
    SessionDiverged,
)
from perdure.errors.embedding import EmbedderFaulty, EmbedderUnavailable, TextRefused
from perdure.errors.opening import (
    FormatUnsupported,
    PresetUnknown,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    UnsafeFile,
    WorkspaceMissing,
)
from perdure.errors.reading import (
    ContentDamaged,
    ContentExpired,
    SessionDamaged,
)
from perdure.errors.serving import (
    NoSuchOperation,
    NotAllowed,
    NotAuthenticated,
    NotOffered,
    RequestTimedOut,
    RequestTooLarge,
    ServerFaulty,
    ServerUnavailable,
)
from perdure.errors.tree import PerdureError

__all__ = [
    "ContentDamaged",
    "ContentExpired",
    "ConversationBusy",
    "ConversationNotFound",
    "EffectFailed",
    "EffectUnknown",
    "EmbedderFaulty",
    "EmbedderUnavailable",
    "FormatUnsupported",
    "InvalidValue",
    "KeyConflict",
    "NoSuchOperation",
    "NotAllowed",
    "NotAuthenticated",
    "NotOffered",
    "PerdureError",
    "PersistenceDisabled",
    "PresetUnknown",
    "RequestConflict",
    "RequestTimedOut",
    "RequestTooLarge",
    "RevisionConflict",
    "ServerFaulty",
    "ServerUnavailable",
    "SessionBusy",
    "SessionClosed",
    "SessionDamaged",
    "SessionDiverged",
    "SessionExists",
    "SessionNotFound",
    "StaleWriter",
    "StorageFull",
    "StorageUnavailable",
    "StoreClosed",
    "TextRefused",
    "UnsafeFile",
    "WorkspaceMissing",
]
