"""The client: a store behind a URL, with the names of the store itself."""

from perdure.http.client.opening import open_url
from perdure.http.client.session import RemoteSession
from perdure.http.client.store import RemoteStore

__all__ = ["RemoteSession", "RemoteStore", "open_url"]
