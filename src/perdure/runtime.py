"""The only reader of clock, randomness, process and environment.

Everything nondeterministic enters perdure through a `Runtime`, so that a test can hand in another
one and get the same bytes each time.
"""

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Callable

__all__ = ["SYSTEM", "Runtime"]

_MACHINE_IDS = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_MACHINE_ID_CHARS = 32


class Runtime:
    """The real clock, ids, process facts and environment. Subclass it to replace any of them."""

    def now_ms(self) -> int:
        """Wall clock, Unix milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds of a clock that never goes back; only differences mean anything."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let other processes run while waiting for a lock."""
        time.sleep(seconds)

    def token(self, size: int = 8) -> str:
        """Random lower-case hex digits, two per byte of `size`."""
        return secrets.token_hex(size)

    def session_id(self) -> str:
        """A new id: the time first, so that folders sort by creation, then 80 random bits."""
        return f"{self.now_ms():012x}-{self.token(10)}"

    def pid(self) -> int:
        """Id of this process."""
        return os.getpid()

    def uid(self) -> int:
        """Effective user id; files of other owners are refused."""
        return os.geteuid()

    def host(self) -> str:
        """Name of this machine, for people who look for the holder of a lock."""
        return socket.gethostname()

    def machine(self) -> str:
        """What tells this machine from others, also after it was renamed: 16 hex digits.

        A digest of the id that the system was given when it was installed (machine-id(5)), which
        itself is to be shown to nobody; without one, of the name.
        """
        for place in _MACHINE_IDS:
            try:
                with open(place, encoding="ascii") as file:  # noqa: PTH123
                    told = file.read(64).strip()
            except (OSError, UnicodeDecodeError):
                continue
            if len(told) == _MACHINE_ID_CHARS:
                break
        else:
            told = self.host()
        return hashlib.sha256(f"perdure {told}".encode("utf-8", "surrogateescape")).hexdigest()[:16]

    def environment(self, name: str) -> str | None:
        """Value of an environment variable, or None."""
        return os.environ.get(name)

    def at_fork(self, in_child: Callable[[], None]) -> None:
        """Call `in_child` in every process forked from this one, where the system can fork."""
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=in_child)


SYSTEM = Runtime()
