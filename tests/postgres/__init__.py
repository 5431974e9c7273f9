"""PostgreSQL servers for tests: one, or a primary with its standbys."""
