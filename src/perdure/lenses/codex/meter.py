"""What the model cost, from running totals that are repeated, start again, and are inherited."""

from typing import Any

__all__ = ["Meter"]

_COUNT_MAX = 2**53
_NAMES = {
    "input": ("input_tokens", "prompt"),
    "output": ("output_tokens", "completion"),
    "cached": ("cached_input_tokens",),
    "reasoning": ("reasoning_output_tokens",),
}
"""Members of the vocabulary's `usage` and what Codex calls them, in any generation.

Both count alike: what came from the cache is a part of the input, thinking a part of the output.
"""

Counts = dict[str, int]


class Meter:
    """Tells the cost of one response from the next report of it.

    Attributes:
        context: tokens of the last request and its answer: the size of the context; or None.

    """

    __slots__ = ("_total", "context")

    def __init__(self) -> None:
        """Begin before the first report."""
        self._total: Counts | None = None
        self.context: int | None = None

    def read(self, info: dict[str, Any]) -> Counts | None:
        """What a response cost of which this tells; None: nothing that was not told before.

        `total_token_usage` tells whether this is news, as a report is repeated whenever limits of
        the account change; `last_token_usage` is then the response, or else the difference.
        """
        total, last = _counts(info.get("total_token_usage")), _counts(info.get("last_token_usage"))
        before, known = self._total, total is not None
        if known:
            self._total = total
            if total == before:
                return None
        if last is None and total is not None:
            last = _difference(total, before)
        if last is None and not known:
            last = _counts(info)
        if not last or not any(last.values()):
            return None
        self.context = last.get("input", 0) + last.get("output", 0)
        return last


def _difference(total: Counts, before: Counts | None) -> Counts:
    """What a total grew by; one that is smaller anywhere began again from nothing."""
    if before is None or any(total.get(name, 0) < count for name, count in before.items()):
        return total
    return {name: count - before.get(name, 0) for name, count in total.items()}


def _counts(said: object) -> Counts | None:
    if not isinstance(said, dict):
        return None
    found = {}
    for name, theirs in _NAMES.items():
        known = (said.get(each) for each in theirs)
        count = next((each for each in known if type(each) is int), None)
        if count is not None and 0 <= count <= _COUNT_MAX:
            found[name] = count
    return found or None
