"""Importers: sessions of other agents, every line kept exactly as it was found.

`import_sessions` works for every format that keeps a session as lines of JSON; what is particular
to a format is one small class, named in `perdure.importers.formats`.
"""

from perdure.importers.formats import FORMATS
from perdure.importers.incremental import import_sessions
from perdure.importers.report import ImportReport, SourceProblem, SourceReport
from perdure.importers.stored_lines import session_id, source_text

__all__ = [
    "FORMATS",
    "ImportReport",
    "SourceProblem",
    "SourceReport",
    "import_sessions",
    "session_id",
    "source_text",
]
