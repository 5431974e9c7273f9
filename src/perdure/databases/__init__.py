"""SQLite files: opened safely, told apart from those of others, and never divided by a fork."""
