"""Every bound of the model, the unit in the name."""

__all__ = [
    "AGENT_CHARS_MAX",
    "DATA_BYTES_MAX",
    "DEPTH_MAX",
    "ID_CHARS_MAX",
    "INTEGER_BITS_MAX",
    "KEY_CHARS_MAX",
    "RECORD_BYTES_MAX",
    "RUN_BYTES_MAX",
    "RUN_EVENTS_MAX",
    "RUN_EVENTS_MIN",
    "TIME_MS_MAX",
    "TURN_CHARS_MAX",
]

RECORD_BYTES_MAX = 16 * 1024 * 1024
"""One record line, its newline included. Larger data belongs outside the log."""

DATA_BYTES_MAX = RECORD_BYTES_MAX - 64 * 1024
"""Data of one event, as JSON: what a record holds less room for its other members."""

RUN_EVENTS_MIN = 3
"""Fewer equal neighbours are not worth a packed run."""

RUN_EVENTS_MAX = 1024
RUN_BYTES_MAX = 1024 * 1024
"""Bounds of one packed run: what a reader must expand to reach one event."""

DEPTH_MAX = 200
"""Nested arrays and objects in the data of one event."""

INTEGER_BITS_MAX = 13_000
"""About 3,900 digits: below the 4,300 at which Python refuses to convert text to int."""

ID_CHARS_MAX = 1024
AGENT_CHARS_MAX = 256
TURN_CHARS_MAX = 256
KEY_CHARS_MAX = 1024

TIME_MS_MAX = 2**53 - 1
"""Times are integers that every JSON reader keeps exact (RFC 8259, section 6)."""
