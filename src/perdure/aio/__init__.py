"""`perdure` for tasks of asyncio and trio: the same names, with `await` before what blocks."""

from perdure.aio.agents import AsyncAgents
from perdure.aio.inspection import AsyncInspection
from perdure.aio.opening import AsyncPrepared
from perdure.aio.output import AsyncOutputRecorder
from perdure.aio.pages import Pages
from perdure.aio.session import AsyncSession
from perdure.aio.steps import AsyncStep, AsyncTurn
from perdure.aio.store import AsyncStore
from perdure.aio.store import open_store as open  # noqa: A004

__all__ = [
    "AsyncAgents",
    "AsyncInspection",
    "AsyncOutputRecorder",
    "AsyncPrepared",
    "AsyncSession",
    "AsyncStep",
    "AsyncStore",
    "AsyncTurn",
    "Pages",
    "open",
]
