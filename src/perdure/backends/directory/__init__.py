"""The default medium: one folder for each session, one file for its log."""

from perdure.backends.directory.backend import DirectoryBackend

__all__ = ["DirectoryBackend"]
