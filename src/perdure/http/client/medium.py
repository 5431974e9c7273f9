"""The store of a server as a medium: the same contract as that of a folder, asked for over HTTP.

Whatever is above a backend works as it does anywhere else: events are checked, numbered and linked
here, so that the server's answer proves what it stored, and a log that is read whole is verified
here. What belongs to the machine of the store (repairs, what lies beside a log, the trash) is
refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from perdure.backends.base import (
    Blob,
    Entry,
    Hold,
    Stored,
    Tail,
)
from perdure.durable.locks import Holder
from perdure.durable.temporary import gathered, temporary_folder
from perdure.errors import (
    ContentExpired,
    PerdureError,
    ServerFaulty,
    ServerUnavailable,
    SessionBusy,
    SessionNotFound,
    StaleWriter,
    StorageUnavailable,
)
from perdure.evidence import Evidence
from perdure.http.client.asking import Asking
from perdure.http.client.connection import Body, Connection
from perdure.http.client.failing import doubtful, told
from perdure.http.client.headers import header_of, holder_of, stored_of, tail_of
from perdure.http.client.hold import Lease, Staged
from perdure.http.client.refusing import Refusing
from perdure.http.client.sending import batches_of, creation, request
from perdure.http.wire.events import WriterShape, Written
from perdure.http.wire.finding import ListingShape
from perdure.http.wire.session import ContentShape, PutShape
from perdure.model import values
from perdure.model.header import Header, check_id
from perdure.model.record import BadRecordError, Position, Record, decode_line
from perdure.recovery.walk import Ending, Piece
from perdure.runtime import Runtime
from perdure.store.flusher import Flusher

__all__ = ["Medium"]

_LEASES_MAX = 16
"""So often a lease may end under one commit: each restart of the server ends it."""

_PAGE = 1_000
_POLL_SECONDS = 0.1
_RENEWING_SECONDS = 1.0
_PROBLEM = b'{"problem":'


class Medium(Refusing):
    """The sessions of one namespace of a server.

    Attributes:
        asking: asks about them.

    """

    scheme = "http"

    def __init__(self, asking: Asking, renewer: Flusher, runtime: Runtime) -> None:
        """Nothing is sent; `renewer` keeps the leases of all namespaces."""
        self.asking = asking
        self._renewer = renewer
        self._runtime = runtime
        self._evidence = Evidence(None, runtime=runtime)

    def __repr__(self) -> str:
        """The URL."""
        return self.asking.url

    @property
    def place(self) -> str | None:
        """The URL."""
        return self.asking.url

    @property
    def connection(self) -> Connection:
        """To the server."""
        return self.asking.connection

    # --- the right to write -----------------------------------------------------------------------

    def lock(self, session: str, *, wait: float = 0.0) -> Lease:
        """See `Backend.lock`; the position is known, and closers are committed."""
        check_id(session)
        until = self._runtime.monotonic() + wait
        name = self._runtime.token(16)
        shape: WriterShape | None = None
        while shape is None:
            left = until - self._runtime.monotonic()
            try:
                shape = self.asking.take(session, left, name)
            except SessionBusy:
                if left <= 0:
                    raise
                self._runtime.sleep(min(_POLL_SECONDS, left))
        place = Position(shape.position.seq, shape.position.hash)
        lease = self._lease(session, shape.writer, place, shape.seconds)
        lease.header = header_of(self.asking, session, shape.header)
        return lease

    def _lease(
        self, session: str, writer: str, place: Position, seconds: float | None = None
    ) -> Lease:
        return Lease(
            self.asking,
            session,
            writer,
            place,
            renewer=self._renewer,
            runtime=self._runtime,
            seconds=seconds,
        )

    def holder(self, session: str) -> Holder | None:
        """See `Backend.holder`."""
        return holder_of(self.asking.session(session))

    def stage(self, header: Header) -> Staged:
        """See `Backend.stage`: kept here until the session is stored."""
        return Staged(header)

    # --- writing ----------------------------------------------------------------------------------

    def publish(
        self, header: Header, records: Iterable[Record], staged: Hold | None = None
    ) -> Lease:
        """See `Backend.publish`."""
        first, *others = batches_of(list(records))
        body = Body.json(creation(header, first, self._runtime.token(16)))
        try:
            written = self._create(body)
            if written.writer is None:
                raise ServerFaulty(self.asking.url, "gives no right to write a new session")
        except PerdureError as error:
            raise told(error, self.asking.url) from error
        lease = self._lease(header.id, written.writer, first[-1].position)
        try:
            self._take_answer(lease, first, written)
            for found in staged.content.values() if isinstance(staged, Staged) else ():
                self._put(lease, Body(found.parts, found.size), found.digest)
            for batch in others:
                self._post(lease, batch)
        except PerdureError as error:
            lease.release()
            raise doubtful(error, self.asking.url) from error
        if staged is not None:
            staged.release()
        return lease

    def _create(self, body: Body) -> Written:
        """Ask for a new session. It is busy where an earlier answer, and its lease, were lost."""
        until = self._runtime.monotonic() + self.connection.timeout
        while True:
            try:
                written: Written = self.asking.ask("create_session", Written, body=body)
            except SessionBusy:
                if self._runtime.monotonic() > until:
                    raise
                self._runtime.sleep(_POLL_SECONDS)
            else:
                return written

    def commit(self, hold: Hold, expected: Position, records: Sequence[Record]) -> None:
        """See `Backend.commit`; of many records those that are stored are known by the position."""
        hold.check()
        lease = _own(hold)
        if lease.position != expected:
            raise StaleWriter(hold.session, "its writer does not stand where the log does")
        try:
            for batch in batches_of(records):
                self._post(lease, batch)
        except PerdureError as error:
            failure = told(error, self.asking.url)
            if isinstance(failure, StorageUnavailable) and failure.uncertain:
                lease.die()
            raise failure from error
        except BaseException:
            # An interrupt, whatever the server made of what it got.
            lease.die()
            raise

    def _post(self, lease: Lease, records: Sequence[Record]) -> None:
        """Store records in one commit, with another lease where the one has ended meanwhile."""
        tries = 0
        while True:
            body = Body.json(request(records, lease.writer))
            try:
                written: Written = self.asking.ask(
                    "append_events", Written, lease.session, body=body
                )
            except StaleWriter as error:
                tries += 1
                if tries > _LEASES_MAX:
                    raise
                records = records[self._again(lease, error, records) :]
                if not records:
                    return
            else:
                self._take_answer(lease, records, written)
                return

    def _again(self, lease: Lease, error: StaleWriter, records: Sequence[Record]) -> int:
        """See `Lease.again`. What cannot be found out then may be stored or not."""
        try:
            return lease.again(error.reason, records)
        except StaleWriter:
            raise
        except PerdureError as failure:
            raise doubtful(failure, self.asking.url) from failure

    def _take_answer(self, lease: Lease, records: Sequence[Record], written: Written) -> None:
        first, last = records[0].first, records[-1].last
        place = Position(written.position.seq, written.position.hash)
        if (written.first, written.last, place.seq) != (first, last, last):
            lease.die()
            reason = f"stored events {written.first} to {written.last}, not {first} to {last}"
            raise StaleWriter(lease.session, reason)
        lease.moved(place)

    def settle(self, hold: Hold, ending: Ending, seen: Position | None) -> None:
        """The server has done it when it gave the right to write."""

    # --- reading ----------------------------------------------------------------------------------

    def stored(self, session: str) -> Stored:
        """See `Backend.stored`."""
        check_id(session)
        return stored_of(self.asking, session, self.asking.session(session))

    def scan(self, session: str, begin: int, *, seq: int = 0) -> Iterator[Piece]:
        """See `Backend.scan`; where something lies on the medium is not known here."""
        del begin
        return self._pieces(session, seq)

    def _pieces(self, session: str, seq: int) -> Iterator[Piece]:
        """The records from one on. What is cut off is asked for again behind the last record."""
        place, header = 0, not seq
        while True:
            last: bytes | None = None
            with self.asking.open("raw_lines", session, [("start", str(seq))]) as stream:
                try:
                    for lines in stream.lines():
                        some = lines[1:] if header else lines
                        header = False
                        for piece in _pieces_of(some, place):
                            place = piece.end
                            yield piece
                        last = some[-1] if some else last
                    return
                except ServerUnavailable as error:
                    if last is None:
                        raise
                    seq = _behind(last, error)

    def tail(self, session: str) -> Tail:
        """See `Backend.tail`."""
        return tail_of(self.asking.session(session))

    def revision(self, session: str) -> str:
        """See `Backend.revision`: where the log stands."""
        shape = self.asking.session(session)
        if shape.position is None:
            return shape.status
        return f"{shape.position.seq}:{shape.position.hash}"

    def entries(self) -> Iterator[Entry]:
        """See `Backend.entries`; each header is asked for by itself."""
        for id in self.ids():
            try:
                shape = self.asking.session(id)
            except SessionNotFound:
                continue
            stored = stored_of(self.asking, id, shape)
            place = shape.position
            revision = shape.status if place is None else f"{place.seq}:{place.hash}"
            yield Entry(id, id, stored.header, stored.problem, revision)

    def ids(self) -> Iterator[str]:
        """The ids of all sessions, in the order of their creation, the newest first."""
        after: str | None = None
        while True:
            page = self.listing(after)
            if page is None:
                return
            yield from (each.id for each in page.sessions)
            after = page.cursor
            if after is None:
                return

    def listing(self, after: str | None = None, *, limit: int = _PAGE) -> ListingShape | None:
        """A page of the listing; None where there is no such namespace."""
        query = [("limit", str(limit)), ("sort", "created")]
        if after is not None:
            query.append(("after", after))
        try:
            found: ListingShape = self.asking.ask("list_sessions", ListingShape, query=query)
        except SessionNotFound:
            return None
        return found

    def locate(self, session: str) -> str | None:
        """None: there are no files here."""
        check_id(session)
        return None

    # --- content ----------------------------------------------------------------------------------

    def put_blob(self, hold: Hold, parts: Iterable[bytes]) -> Blob:
        """See `Backend.put_blob`; it is read to its end before it is sent."""
        if isinstance(hold, Staged):
            found = hold.keep(parts)
            return Blob(found.digest, found.size, self._runtime.now_ms())
        lease = _own(hold)
        lease.check()
        with temporary_folder("perdure-") as folder, gathered(parts, folder) as found:
            self._put(lease, Body(found.parts, found.size), found.digest)
            return Blob(found.digest, found.size, self._runtime.now_ms())

    def _put(self, lease: Lease, body: Body, digest: str) -> None:
        for last in (False, True):
            query = [("writer", lease.writer)]
            try:
                put: PutShape = self.asking.ask(
                    "put_content", PutShape, lease.session, query, body=body
                )
            except StaleWriter as error:
                if last:
                    raise
                self._again(lease, error, ())
                continue
            if put.digest != digest:
                raise ServerFaulty(self.asking.url, f"stored {put.digest} in place of {digest}")
            return

    def blob(self, session: str, digest: str) -> Iterator[bytes] | None:
        """See `Backend.blob`."""
        try:
            stream = self.asking.open("read_content", session, path={"digest": digest})
        except ContentExpired:
            return None
        return iter(stream.read, b"")

    def blobs(self, session: str) -> Iterator[Blob]:
        """See `Backend.blobs`."""
        found: ContentShape = self.asking.ask("list_content", ContentShape, session)
        return iter([Blob(each.digest, each.size, each.stored_at) for each in found.content])

    # --- the medium -------------------------------------------------------------------------------

    def namespace(self, part: str) -> Self:
        """See `Backend.namespace`."""
        check_id(part)
        asking = Asking(self.connection, (*self.asking.parts, part))
        return type(self)(asking, self._renewer, self._runtime)

    def namespaces(self) -> Iterator[str]:
        """See `Backend.namespaces`."""
        page = self.listing(limit=1)
        return iter([] if page is None else page.namespaces)

    @property
    def evidence(self) -> Evidence:
        """Nothing: the server remembers."""
        return self._evidence

    @property
    def parts(self) -> tuple[str, ...]:
        """See `Backend.parts`."""
        return self.asking.parts

    def close(self) -> None:
        """Close the connections, if all of the store is closed."""
        if not self.asking.parts:
            # One that waits for an answer of a server that is gone is not waited for.
            self._renewer.stop(_RENEWING_SECONDS)
            self.connection.close()


def _pieces_of(lines: Sequence[bytes], place: int) -> Iterator[Piece]:
    """Lines as pieces of a log; a line of its own says where the medium holds none."""
    run: list[bytes] = []
    for line in lines:
        flaw = _flaw_in(line) if line.startswith(_PROBLEM) else None
        if flaw is None:
            run.append(line)
            continue
        if run:
            yield Piece(place, place := place + sum(map(len, run)), run)
            run = []
        yield Piece(place, place := place + len(line), (), flaw)
    if run:
        yield Piece(place, place + sum(map(len, run)), run)


def _flaw_in(line: bytes) -> str | None:
    try:
        told = values.decode(line)["problem"]["reason"]
    except (ValueError, LookupError, TypeError):
        return None
    return told if isinstance(told, str) else None


def _behind(line: bytes, error: ServerUnavailable) -> int:
    """The event behind a record.

    Raises:
        ServerUnavailable: it is none, so nobody knows where to go on.

    """
    try:
        return decode_line(line).last + 1
    except BadRecordError:
        raise error from None


def _own(hold: Hold) -> Lease:
    if not isinstance(hold, Lease):
        raise TypeError(f"{hold!r} is no lease of a server's")
    return hold
