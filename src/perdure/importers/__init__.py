"""Importers: sessions of other agents, every line kept exactly as it was found.

`sync` finds what the agents of this machine keep, `import_sessions` takes what is named. What is
particular to a format is one small class, named in `perdure.importers.formats`; what its records
mean is told by its lens, in `perdure.lenses`.
"""

from perdure.importers.formats import FORMATS, LineFormat, format_names, format_of
from perdure.importers.report import ImportReport, SourceProblem, SourceReport
from perdure.importers.running import import_sessions
from perdure.importers.stored_lines import session_id, source_text
from perdure.importers.syncing import Progress, places, sync

__all__ = [
    "FORMATS",
    "ImportReport",
    "LineFormat",
    "Progress",
    "SourceProblem",
    "SourceReport",
    "format_names",
    "format_of",
    "import_sessions",
    "places",
    "session_id",
    "source_text",
    "sync",
]
