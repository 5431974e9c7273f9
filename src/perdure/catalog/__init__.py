"""Catalog: what is found across sessions, and how texts are analysed for it.

DESIGN.md says how words reach the index. The modules of analysis are pure: they take and give text.
"""

from perdure.catalog.analysis import Analysed, analyse
from perdure.catalog.query import Phrase, Query, Term, parse
from perdure.catalog.snippets import Snippet, snippet

__all__ = ["Analysed", "Phrase", "Query", "Snippet", "Term", "analyse", "parse", "snippet"]
