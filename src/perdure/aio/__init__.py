"""`perdure` for tasks of asyncio and trio: the same names, with `await` before what blocks."""

from perdure.aio.inspection import AsyncInspection
from perdure.aio.pages import Pages
from perdure.aio.session import AsyncSession
from perdure.aio.store import AsyncPrepared, AsyncStore
from perdure.aio.store import open_store as open  # noqa: A004

__all__ = ["AsyncInspection", "AsyncPrepared", "AsyncSession", "AsyncStore", "Pages", "open"]
