"""Sessions over HTTP: what is said (`wire`, `operations`), who says it (`client`, `server`).

Nothing here needs the extra `server` but `perdure.http.server`.
"""
