"""What a `postgresql://` URL says: where the server is, and which of its schemas is meant."""

import re
import urllib.parse
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

import psycopg.conninfo
from psycopg import errors, pq

from perdure.errors import InvalidValue

__all__ = ["SCHEMA", "Address", "parse_address"]

SCHEMA = "perdure"
"""The schema in which the tables stand if the URL names none."""

_SCHEMA = re.compile("[a-z_][a-z0-9_]{0,47}")
_OWN = ("schema", "lease", "timeout", "pooled", "connections")
_HINT = (
    "postgresql://user@host:5432/database, or several hosts: host1,host2; within a name or password"
    " write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23 and % as %25"
)


class Address(NamedTuple):
    """A place in a server.

    Attributes:
        conninfo: what libpq gets; may hold a password.
        schema: the PostgreSQL schema of the tables.
        shown: for people and messages, without a password.
        lease: seconds without a sign of life after which a writer may be taken over.
        timeout: seconds for which a broken connection, or a failover, is bridged.
        pooled: a pooler that gives each transaction another connection stands in between: nothing
            is prepared, and no lock is held by a connection.
        connections: most connections of one process at once, but for the one of its lease, those
            of long readers and those of who reads in the middle of a transaction.
        seeks_primary: libpq looks for a server that takes changes.

    """

    conninfo: str
    schema: str
    shown: str
    lease: float = 20.0
    timeout: float = 30.0
    pooled: bool = False
    connections: int = 10
    seeks_primary: bool = False


def parse_address(url: str) -> Address:
    """Read a URL.

    Parameters of perdure's own are `schema`, `lease` and `timeout` (seconds), `pooled` (`true`
    behind a pooler in transaction mode) and `connections`; all others are libpq's, see
    https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-PARAMKEYWORDS.

    Raises:
        InvalidValue: it is no such URL, or a parameter is none.

    """
    base, query = _split(url)
    own: dict[str, str] = {}
    others: list[str] = []
    for part in filter(None, query.split("&")):
        name, _, value = part.partition("=")
        if name in own:
            raise InvalidValue("location", f"{name} stands in it twice")
        if name in _OWN:
            own[name] = urllib.parse.unquote(value)
            continue
        # Before an @ it may be the rest of a password, which is shown to nobody.
        if "@" not in query and name not in _known():
            known = f"perdure's are {', '.join(_OWN)}; all others are libpq's"
            raise InvalidValue("location", f"{name!r:.80} is no parameter of it", hint=known)
        others.append(part)
    text = f"{base}?{'&'.join(others)}" if others else base
    try:
        given = psycopg.conninfo.conninfo_to_dict(text)
    except (psycopg.Error, UnicodeError) as error:
        # libpq repeats what it was given, password and all.
        raise InvalidValue("location", "is no PostgreSQL URL", hint=_HINT) from (
            None if isinstance(error, errors.ProgrammingError) else error
        )
    if any("\0" in str(value) for value in given.values()):
        raise InvalidValue("location", "a URL holds no NUL character", hint=_HINT)
    hosts = str(given.get("host") or given.get("hostaddr") or "")
    if "," in hosts:
        # The first one that answers may be a standby, which takes nothing.
        given.setdefault("target_session_attrs", "read-write")
    given.setdefault("application_name", "perdure")
    given.setdefault("connect_timeout", "5")
    # A host that went away without a word is noticed, and so is one that takes nothing any more.
    given.setdefault("keepalives_idle", "10")
    given.setdefault("keepalives_interval", "5")
    given.setdefault("keepalives_count", "3")
    given.setdefault("tcp_user_timeout", "20000")
    if str(given.setdefault("client_encoding", "UTF8")).upper() not in ("UTF8", "UTF-8"):
        raise InvalidValue("location", "client_encoding is UTF8 here", hint="leave it out")
    schema = own.get("schema", SCHEMA)
    if not _SCHEMA.fullmatch(schema) or schema.startswith("pg_"):
        hint = "1 to 48 lower-case letters, digits and underscores, no digit first"
        raise InvalidValue("location", f"{schema!r:.80} is no name of a schema", hint=hint)
    return Address(
        psycopg.conninfo.make_conninfo("", **given),
        schema,
        _shown(given, schema),
        lease=_number(own, "lease", 20.0, 1.0, 3600.0),
        timeout=_number(own, "timeout", 30.0, 0.0, 3600.0),
        pooled=_truth(own, "pooled"),
        connections=int(_number(own, "connections", 10, 1, 1000)),
        seeks_primary=given.get("target_session_attrs") in ("read-write", "primary"),
    )


def _split(url: str) -> tuple[str, str]:
    """What names the place, and the parameters, where libpq takes them apart.

    Raises:
        InvalidValue: it would take them apart elsewhere than was meant, and part of a password for
            a host.

    """
    scheme, mark, rest = url.partition("://")
    user, at, place = rest.partition("@")
    if not at or "/" in user:
        # As in `postgresql:///database`.
        user, at, place = "", "", rest
    place, _, query = place.partition("?")
    if "@" in place:
        raise InvalidValue("location", "a sign in it has to be encoded", hint=_HINT)
    return f"{scheme}{mark}{user}{at}{place}", query


@cache
def _known() -> frozenset[str]:
    """What libpq takes; of `ssl` it takes the one value that JDBC has for it."""
    return frozenset(each.keyword.decode() for each in pq.Conninfo.get_defaults()) | {"ssl"}


def _shown(given: Mapping[str, object], schema: str) -> str:
    hosts = str(given.get("host") or given.get("hostaddr") or "").split(",")
    ports = str(given.get("port") or "").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    places = ",".join(
        f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=False)
    )
    user = f"{given['user']}@" if given.get("user") else ""
    suffix = "" if schema == SCHEMA else f"?schema={schema}"
    return f"postgresql://{user}{places}/{given.get('dbname') or ''}{suffix}"


def _number(own: dict[str, str], name: str, instead: float, least: float, most: float) -> float:
    try:
        number = float(own.get(name, instead))
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        reason = f"{name}={own[name]!r:.40} is no number from {least:g} to {most:g}"
        raise InvalidValue("location", reason)
    return number


def _truth(own: dict[str, str], name: str) -> bool:
    value = own.get(name, "false").lower()
    if value not in ("true", "false", "1", "0", "yes", "no"):
        raise InvalidValue("location", f"{name}={value!r:.40} is neither true nor false")
    return value in ("true", "1", "yes")
