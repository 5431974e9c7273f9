"""The server of the API and of its first page. Needs the extra `server`."""
