"""Going on after damage: a new log from what is kept, and the old one aside, untouched.

A repair is a plan, written down before anything changes. Whoever comes after a crash finishes that
plan: of each step it is asked first whether it was done. The steps, in this order: damaged content
aside; the new log in the place of the old one, which goes aside first; damaged content away; what
is remembered of the session put right; the plan away.
"""

import re
from typing import Any, NamedTuple

import msgspec

from perdure.backends.base import Backend, Hold
from perdure.errors import FormatUnsupported, StaleWriter, StorageUnavailable, UnsafeFile
from perdure.evidence import Acceptance
from perdure.model import values
from perdure.model.header import Header
from perdure.model.record import Position, seal
from perdure.recovery.walk import Known, Problem
from perdure.runtime import Runtime
from perdure.store.findings import Findings, Log
from perdure.store.queue import Keys
from perdure.store.rebuilding import Rebuilt, expired_drafts
from perdure.store.survey import Survey
from perdure.store.verification import MINOR, intact
from perdure.store.witness import Witness

__all__ = ["Repair", "Repairer"]

_FORMAT = 0
_PLACE = re.compile("repair-([0-9]+)(?:-[0-9a-f]{64})?")
_REASON = "the log as it was before it was repaired"
_CONTENT_REASON = "content whose bytes do not have the SHA-256 that names it"


class Repair(NamedTuple):
    """What a repair did, or would do.

    Attributes:
        session: its id.
        done: it was done; False where it was only asked for, or nothing had to be done.
        resumed: it was begun before and broken off.
        problems: what is wrong with the log.
        kept: number of events that hold together and stay as they are.
        acknowledged: the last event that was acknowledged, or None if nobody remembers.
        lost: first and last acknowledged event that is not among those kept, or None.
        later: number of intact events behind the damage.
        salvaged: how many of them follow in the new log, with new numbers.
        header_lost: only the id and what the events tell is left of the header.
        aside: where the old log is kept beside the new one; None if the log stays as it is.
        content: digests of damaged content, which counts as expired afterwards.
        unsafe: digests of content whose files others can change, which stays as it is.

    """

    session: str
    done: bool = False
    resumed: bool = False
    problems: tuple[Problem, ...] = ()
    kept: int = 0
    acknowledged: int | None = None
    lost: tuple[int, int] | None = None
    later: int = 0
    salvaged: int = 0
    header_lost: bool = False
    aside: str | None = None
    content: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()

    @property
    def needed(self) -> bool:
        """Whether there was, or is, anything to repair."""
        return self.aside is not None or bool(self.content)

    @property
    def sound(self) -> bool:
        """Whether the session is as it should be now."""
        return (self.done or not self.needed) and not self.unsafe

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **self._asdict(),
            "needed": self.needed,
            "sound": self.sound,
            "problems": [each._asdict() for each in self.problems],
            "lost": [*self.lost] if self.lost is not None else None,
            "content": [*self.content],
            "unsafe": [*self.unsafe],
        }


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done, as it stands on disk.

    Attributes:
        format: 0.
        time: Unix milliseconds of all that it writes.
        place: where the old log goes, and with a digest behind it, damaged content.
        salvage: whether intact events behind the damage follow in the new log.
        replaced: whether the log is replaced; if not, only content is damaged.
        tail: the position of the tail slots when it was made, or None.
        known: what was acknowledged, or None.
        header: digest of the header of the new log; empty if the log is not replaced.
        final: where the new log ends.
        result: what is told about it.

    """

    time: int
    place: str
    salvage: bool
    replaced: bool
    tail: Position | None
    known: Position | None
    header: str
    final: Position
    result: Repair
    format: int = _FORMAT


class Repairer:
    """Repairs sessions of one namespace."""

    def __init__(
        self, backend: Backend, witness: Witness, survey: Survey, runtime: Runtime
    ) -> None:
        """Nothing is opened."""
        self._backend = backend
        self._witness = witness
        self._survey = survey
        self._runtime = runtime

    # --- deciding --------------------------------------------------------------------------------

    def foretell(self, session: str, *, salvage: bool) -> Repair:
        """What `repair` would do; nothing is written and nobody is waited for.

        Raises:
            As `Store.repair`, but for SessionBusy.

        """
        plan = self._stored_plan(session)
        if plan is not None:
            return plan.result._replace(resumed=True)
        log = Log(self._backend, session, self._witness.about(session).seen)
        return self._result(session, log.findings(), salvage=salvage)

    def _stored_plan(self, session: str) -> _Plan | None:
        raw = self._backend.plan(session)
        return _decoded(raw, session) if raw is not None else None

    def _result(self, session: str, found: Findings, *, salvage: bool) -> Repair:
        damaged: list[str] = []
        unsafe: list[str] = []
        for blob in self._backend.blobs(session):
            if not intact(self._backend, session, blob.digest):
                readable = self._readable(session, blob.digest)
                (damaged if readable else unsafe).append(blob.digest)
        return Repair(
            session,
            problems=found.problems,
            kept=found.kept,
            acknowledged=found.acknowledged.seq if found.acknowledged is not None else None,
            lost=found.lost,
            later=found.later,
            salvaged=found.later if salvage else 0,
            header_lost=found.header is None,
            aside=self._place(session) if found.damaged else None,
            content=tuple(damaged),
            unsafe=tuple(unsafe),
        )

    def _readable(self, session: str, digest: str) -> bool:
        """Whether the bytes of damaged content can be kept aside at all."""
        try:
            self._backend.blob(session, digest)
        except UnsafeFile:
            return False
        return True

    def _place(self, session: str) -> str:
        """Where the next repair keeps things: `repair-1`, then `repair-2`."""
        found = (_PLACE.fullmatch(aside.place) for aside in self._backend.asides(session))
        last = max((int(each[1]) for each in found if each is not None), default=0)
        return f"repair-{last + 1}"

    def _planned(
        self, session: str, *, salvage: bool
    ) -> tuple[_Plan | None, Rebuilt | None, Repair]:
        """The plan for what is there now, or None if nothing is to be done."""
        log = Log(self._backend, session, self._witness.about_to_write(session).seen)
        found = log.findings()
        result = self._result(session, found, salvage=salvage)
        if not result.needed:
            return None, None, result
        plan = _Plan(
            time=self._runtime.now_ms(),
            place=result.aside or self._place(session),
            salvage=salvage,
            replaced=found.damaged,
            tail=log.tail.acknowledged,
            known=found.acknowledged,
            header="",
            final=found.position,
            result=result,
        )
        if not found.damaged:
            return plan, None, result
        rebuilt = _rebuilt(session, log, found, plan)
        named = msgspec.structs.replace(plan, header=rebuilt.header.digest, final=rebuilt.final)
        return named, rebuilt, result

    # --- doing -----------------------------------------------------------------------------------

    def repair(self, session: str, *, salvage: bool, wait: float) -> Repair:
        """See `Store.repair`."""
        # What was still to be noted is not to come back after what is put right now.
        self._witness.push()
        hold = self._backend.lock(session, wait=wait)
        try:
            begun = self._stored_plan(session)
            if begun is not None and self._execute(hold, begun, None):
                return begun.result._replace(done=True, resumed=True)
            plan, rebuilt, result = self._planned(session, salvage=salvage)
            if plan is None:
                if begun is not None:
                    # What it was about has gone away.
                    self._backend.set_plan(hold, None)
                return result
            self._backend.set_plan(hold, _encoded(plan))
            if not self._execute(hold, plan, rebuilt):
                raise StaleWriter(session, "it changed while it was repaired")
            return result._replace(done=True)
        finally:
            hold.release()

    def _execute(self, hold: Hold, plan: _Plan, rebuilt: Rebuilt | None) -> bool:
        """Take every step of a plan that was not taken yet; False if it does not fit any more."""
        session = hold.session
        for digest in plan.result.content:
            parts = self._backend.blob(session, digest) if self._damaged(session, digest) else None
            if parts is not None:
                place = f"{plan.place}-{digest}"
                self._backend.put_aside(hold, parts, place=place, reason=_CONTENT_REASON)
        header = self._replace(hold, plan, rebuilt) if plan.replaced else self._note(hold, plan)
        if header is None:
            return False
        if self._backend.tail(session).acknowledged != hold.position:
            # A medium may go on without it; the old tail would accuse the new log.
            raise StorageUnavailable(
                self._backend.locate(session) or session,
                "where the new log ends could not be stored",
                hint="repair the session again: it goes on from here",
            )
        gone = [digest for digest in plan.result.content if self._damaged(session, digest)]
        self._backend.drop_blobs(hold, gone)
        if plan.replaced:
            self._put_right(hold, header, plan)
        self._backend.set_plan(hold, None)
        return True

    def _damaged(self, session: str, digest: str) -> bool:
        return not intact(self._backend, session, digest)

    def _replace(self, hold: Hold, plan: _Plan, rebuilt: Rebuilt | None) -> Header | None:
        """The new log in the place of the old one, if it is not there already."""
        session = hold.session
        if rebuilt is None:
            log = Log(self._backend, session, self._witness.about_to_write(session).seen)
            standing = log.stored.header
            if standing is not None and standing.digest == plan.header and log.holds(plan.final):
                return self._take(hold, log, plan)
            found = log.findings()
            if not found.damaged:
                return None
            rebuilt = _rebuilt(session, log, found, plan)
            if (rebuilt.header.digest, rebuilt.final) != (plan.header, plan.final):
                return None
        self._backend.replace(
            hold, rebuilt.header, rebuilt.records(), place=plan.place, reason=_REASON
        )
        return rebuilt.header

    def _take(self, hold: Hold, log: Log, plan: _Plan) -> Header | None:
        """Go on behind the replacement: the tail may still be that of the old log."""
        tail = log.tail.acknowledged
        known = Known(None if tail == plan.tail else tail)
        return self._settled(hold, log, known)[0]

    def _note(self, hold: Hold, plan: _Plan) -> Header | None:
        """Write down what content goes, once, in a log that is sound."""
        log = Log(self._backend, hold.session, self._witness.about_to_write(hold.session).seen)
        header, keys = self._settled(hold, log, log.known)
        if header is not None:
            drafts = expired_drafts(plan.result.content, plan.place, plan.time)
            new = [each for each in drafts if (each.type, each.key) not in keys]
            if new:
                self._backend.commit(hold, hold.position, seal(hold.position, new))
            self._witness.moved(header, hold.position)
        return header

    def _settled(self, hold: Hold, log: Log, known: Known) -> tuple[Header | None, Keys]:
        """Take position in a log that needs no new one; its header and keys, or None."""
        header = log.stored.header
        if header is None:
            return None, {}
        facts = self._survey.read(hold.session, header, log.stored.begin, known)
        if facts.damaged or any(each.kind in MINOR for each in facts.further):
            return None, {}
        self._backend.settle(hold, facts.ending, log.tail.acknowledged)
        return header, facts.keys or {}

    def _put_right(self, hold: Hold, header: Header, plan: _Plan) -> None:
        """Make the new log what is remembered of the session; the reports of damage go."""
        session, position = hold.session, hold.position
        about = self._witness.about_to_write(session)
        if about.damage or [each[1:3] for each in about.seen] != [(header.digest, position)]:
            now = self._runtime.now_ms()
            acceptance = Acceptance(session, header.digest, position, plan.known, now)
            self._witness.evidence.accept(self._witness.namespace, acceptance)
        self._witness.drop(session)


def _rebuilt(session: str, log: Log, found: Findings, plan: _Plan) -> Rebuilt:
    return Rebuilt(
        session,
        log,
        found,
        place=plan.place,
        time=plan.time,
        salvage=plan.salvage,
        content=plan.result.content,
    )


def _encoded(plan: _Plan) -> bytes:
    return values.encode(msgspec.to_builtins(plan)) + b"\n"


def _decoded(raw: bytes, session: str) -> _Plan | None:
    """A stored plan; None if it cannot be read, and what is there has to be looked at anew.

    Raises:
        FormatUnsupported: another version made it.

    """
    try:
        members = values.decode(raw)
        number = members["format"]
    except (ValueError, TypeError, LookupError):
        return None
    if number != _FORMAT or isinstance(number, bool):
        what = f"the repair of session {session!r} that is under way"
        raise FormatUnsupported(what, found=number, supported=_FORMAT)
    try:
        return msgspec.convert(members, _Plan)
    except msgspec.ValidationError:
        return None
