"""A primary of PostgreSQL and two standbys, of which one has to have what is committed."""

from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

from tests.postgres.server import SECONDS, Server, until

__all__ = ["Cluster"]

NAMES = ("n1", "n2", "n3")
_SETTINGS = {
    # pg_rewind asks for it, whatever may be lost here.
    "full_page_writes": "on",
    # The same on every node: nobody names itself, and who is dead confirms nothing. So a promoted
    # standby commits nothing alone, not even at first.
    "synchronous_standby_names": f"ANY 1 ({', '.join(NAMES)})",
    "synchronous_commit": "on",
    "wal_keep_size": "512MB",
    "wal_retrieve_retry_interval": "50ms",
}


class Cluster:
    """Three servers on loopback; a commit is acknowledged when two of them have it on disk.

    Attributes:
        nodes: all three, n1 to n3, dead or alive.
        primary: the last one that was made primary, dead or alive.
        standbys: those that follow it, or would if they ran.

    """

    def __init__(self, *, fsync: bool = False, settings: Mapping[str, str] = {}) -> None:
        self.nodes: list[Server] = []
        try:
            for name in NAMES:
                node = Server(name, fsync=fsync, settings={**_SETTINGS, **settings})
                self.nodes.append(node)
        except BaseException:
            self.close()
            raise
        self.primary = self.nodes[0]
        self.standbys = self.nodes[1:]

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- its life -------------------------------------------------------------------------------

    def start(self) -> Self:
        """Make the primary and a copy of it for each standby; wait until both follow it."""
        self.primary.start()
        for node in self.standbys:
            node.copy(self.primary)
            node.start()
        self.wait_until_quorum()
        return self

    def stop(self) -> None:
        """Let those that run end in order, the primary first."""
        for node in (self.primary, *self.standbys):
            if node.running:
                node.stop()

    def restart(self) -> Self:
        """Start what does not run, with the roles that they had."""
        for node in (self.primary, *self.standbys):
            if not node.running:
                node.start()
        self.wait_until_quorum()
        return self

    def close(self) -> None:
        """Kill those that run, and remove all folders."""
        for node in self.nodes:
            node.close()

    # --- failing over ---------------------------------------------------------------------------

    def kill_primary(self) -> Server:
        """End all processes of the primary at once, and return it."""
        self.primary.kill()
        return self.primary

    def promote(self) -> Server:
        """Make the standby that received most the primary, and the other one follow it.

        Every standby has to run: any one of them may be the only one with what was acknowledged.
        Nothing is committed before this returns, because no standby follows the new primary.
        """
        assert all(node.running for node in self.standbys), "a standby is missing"
        assert self.standbys, "there is no standby"
        for node in self.standbys:
            node.follow(None)
        for node in self.standbys:
            # What has come as far as this machine still counts, and would put one of them ahead
            # of the one that is chosen.
            until(partial(_receives_nothing, node), f"{node.name} goes on receiving")
        heir = max(self.standbys, key=_received)
        assert heir.ask("SELECT pg_promote(true, %s)", int(SECONDS)), f"{heir.name} stays"
        self.primary = heir
        self.standbys = [node for node in self.standbys if node is not heir]
        for node in self.standbys:
            node.follow(heir)
        if self.standbys:
            self.wait_until_quorum()
        return heir

    def rejoin(self, node: Server) -> None:
        """Make a node that does not run a standby, and wait until it follows the primary."""
        if node in self.standbys:
            node.follow(self.primary)
        else:
            # It has to know the new timeline from the control file, which a checkpoint writes.
            self.primary.ask("CHECKPOINT")
            node.rewind(self.primary)
            self.standbys.append(node)
        node.start()
        self.wait_until_quorum()

    def wait_until_quorum(self) -> None:
        """Wait until each standby that runs follows the primary and has all that it wrote."""
        names = {node.name for node in self.standbys if node.running}
        assert names, "no standby runs"
        written = self.primary.ask("SELECT pg_current_wal_flush_lsn()")
        until(lambda: names <= self._confirming(written), f"{names} do not follow")

    def _confirming(self, written: str) -> set[str]:
        with self.primary.connect() as connection:
            rows: list[tuple[Any, ...]] = connection.execute(
                "SELECT application_name FROM pg_stat_replication WHERE state = 'streaming' "
                "AND sync_state = 'quorum' AND flush_lsn >= %s::pg_lsn",
                (written,),
            ).fetchall()
        return {name for (name,) in rows}

    # --- reaching it ----------------------------------------------------------------------------

    def url(self, *, schema: str | None = None, **more: str) -> str:
        """Return the URL of whichever node takes writes; `more` are parameters of libpq."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        options = {"target_session_attrs": "read-write", "connect_timeout": "2"}
        options |= {} if schema is None else {"schema": schema}
        password = self.nodes[0].password
        return f"postgresql://postgres:{password}@{hosts}/postgres?{urlencode(options | more)}"


def _receives_nothing(node: Server) -> bool:
    return bool(node.ask("SELECT count(*) = 0 FROM pg_stat_wal_receiver"))


def _received(node: Server) -> int:
    """Return how far a standby has the log on disk, in bytes since its beginning."""
    return int(
        node.ask(
            "SELECT greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0'::pg_lsn"
        )
    )
