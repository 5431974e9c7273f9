"""Which lens reads a format: perdure's own, and those that other packages bring."""

from importlib import import_module
from importlib.metadata import entry_points

from perdure.lenses.lens import Lens

__all__ = ["ENTRY_POINTS", "LENSES", "lens_of"]

ENTRY_POINTS = "perdure.lenses"
"""The group of entry points in which another package names a format and its class."""

LENSES: dict[str, tuple[str, str]] = {
    "claude-code": ("perdure.lenses.claude_code", "ClaudeCode"),
    "codex": ("perdure.lenses.codex", "Codex"),
    "deepseek-harness": ("perdure.lenses.deepseek_harness", "DeepseekHarness"),
}
"""Name of a format to its module and class, imported when it is first asked for."""


def lens_of(format: str) -> Lens | None:  # noqa: A002
    """A new lens for a session of this format; None if nobody reads it."""
    kind: type[Lens]
    if format in LENSES:
        module, name = LENSES[format]
        kind = getattr(import_module(module), name)
        return kind()
    for point in entry_points(group=ENTRY_POINTS, name=format):
        kind = point.load()
        return kind()
    return None
