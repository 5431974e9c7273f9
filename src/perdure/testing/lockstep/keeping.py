"""Steps of keepers: content, expiry, the trash, what is remembered, listings, compaction."""

import hashlib
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from perdure.errors import SessionBusy, SessionNotFound
from perdure.testing.lockstep.media import TICK_MS, Name, Site, Space
from perdure.testing.lockstep.outcomes import deleted, expiry, facts, numbered, spaces
from perdure.testing.lockstep.writing import Writing, drawn_names

__all__ = ["Keeping"]

_CONTENT = (b"", b"a", b"b" * 5000, b"\0\xff" * 140_000)
_DIGESTS = (*(hashlib.sha256(value).hexdigest() for value in _CONTENT), "0" * 64, "no digest")
"""Of the content by its number, and two of none."""

_RULES = st.just({"older_than": 0}) | st.fixed_dictionaries(
    {},
    optional={
        "older_than": st.sampled_from((0, 3 * TICK_MS / 1000, 3600)),
        "kinds": st.sampled_from(({"note"}, {"pay"}, {"note", "pay"})),
        "keep_last": st.integers(0, 2),
    },
)
"""What expires."""

_LEFT_ALONE = "somebody writes it"


def _written(site: Site, name: Name) -> bool:
    with suppress(SessionNotFound):
        return site.backend(name[0]).holder(name[1]) is not None
    return False


class Keeping(Writing):
    """What keepers do."""

    # --- content ---------------------------------------------------------------------------------

    @rule(
        name=drawn_names(),
        number=st.integers(0, len(_CONTENT) - 1),
        named=st.booleans(),
        pinned=st.booleans(),
    )
    def put_blob(self, name: Name, number: int, named: bool, pinned: bool) -> None:
        """Content is stored, referred to or not, pinned or not."""
        value = _CONTENT[number]

        def act(site: Site) -> object:
            session = site.writer(name)
            digest = session.put_blob(value, pinned=pinned)
            event = [session.append("note", {"blob": digest})] if named else []
            there = session.position.seq >= 0
            read = site.space(name[0], elsewhere=True).blob(name[1], digest) if there else value
            return digest, numbered(event), read == value

        self.together("put blob", act, name)

    @rule(
        name=drawn_names(),
        number=st.integers(0, len(_DIGESTS) - 1),
        ready=st.booleans(),
        elsewhere=st.booleans(),
    )
    def blob(self, name: Name, number: int, ready: bool, elsewhere: bool) -> None:
        """Content is read, whether it is there or not."""
        digest = _DIGESTS[number]
        if ready:
            self.put_blob(name, number % len(_CONTENT), named=True, pinned=False)

        def act(site: Site) -> object:
            return site.space(name[0], elsewhere=elsewhere).blob(name[1], digest)

        self.together("blob", act, name=name, digest=digest)

    @rule(
        name=drawn_names(),
        rule=_RULES,
        dry_run=st.sampled_from((False, False, True)),
        ready=st.sampled_from((True, True, False)),
    )
    def expire(self, name: Name, rule: dict[str, Any], dry_run: bool, ready: bool) -> None:
        """Content expires by a rule, or would."""
        if ready:
            self.stored(name)
            for number in (1, 2, 3):
                self.put_blob(name, number, named=number > 1, pinned=False)
            # What a writer has put is spared as long as it is open.
            self.stored(name)

        def act(site: Site) -> object:
            if name in site.sessions:
                return expiry(site.sessions[name].expire(**rule, dry_run=dry_run))
            gone = site.space(name[0]).expire(name[1], **rule, dry_run=dry_run)
            if not dry_run:
                site.torn.discard(name)
            return expiry(gone)

        self.together("expire", act, name, rule=rule, dry_run=dry_run)

    # --- whole sessions --------------------------------------------------------------------------

    @rule(name=drawn_names(), ready=st.booleans())
    def compact(self, name: Name, ready: bool) -> None:
        """The same in less room."""
        if ready:
            self.stored(name)

        def act(site: Site) -> None:
            if name in site.sessions:
                site.sessions[name].compact()
                return
            site.space(name[0]).compact(name[1])
            site.torn.discard(name)

        self.together("compact", act, name)

    @rule(name=drawn_names(), back=st.booleans())
    def archive(self, name: Name, back: bool) -> None:
        """A session is done with, or not after all."""

        def act(site: Site) -> object:
            store = site.space(name[0])
            event = store.unarchive(name[1]) if back else store.archive(name[1])
            site.torn.discard(name)
            return numbered([event])

        self.together("archive", act, name)

    @rule(name=drawn_names(), ready=st.booleans())
    def accept(self, name: Name, ready: bool) -> None:
        """The log as it stands is the truth."""
        if ready:
            self.stored(name)

        def act(site: Site) -> object:
            position = site.space(name[0]).accept(name[1])
            site.torn.discard(name)
            return position

        self.together("accept", act, name)

    @rule(name=drawn_names(), elsewhere=st.booleans(), ready=st.booleans())
    def delete(self, name: Name, elsewhere: bool, ready: bool) -> None:
        """A session goes to the trash."""
        if ready:
            self.stored(name)

        def act(site: Site) -> object:
            return deleted([site.space(name[0], elsewhere=elsewhere).delete(name[1])])

        self.together("delete", act, name, elsewhere=elsewhere)

    @rule(name=drawn_names(), ready=st.booleans(), elsewhere=st.booleans())
    def restore(self, name: Name, ready: bool, elsewhere: bool) -> None:
        """A deleted session comes back, whole."""
        if ready:
            self.put_blob(name, 2, named=True, pinned=False)
            self.delete(name, elsewhere=False, ready=True)

        def act(site: Site) -> None:
            site.space(name[0], elsewhere=elsewhere).restore(name[1])

        self.together("restore", act, name)

    @rule(
        name=drawn_names(),
        others=st.sets(drawn_names(), min_size=1, max_size=2),
        everything=st.booleans(),
        old=st.booleans(),
    )
    def empty_trash(self, name: Name, others: set[Name], everything: bool, old: bool) -> None:
        """What is deleted is removed for good, and nothing else."""
        for other in sorted({name, *others}):
            self.delete(other, elsewhere=False, ready=True)
        id, age = None if everything else name[1], TICK_MS / 1000 if old else None

        def act(site: Site) -> object:
            return deleted(site.space(name[0]).empty_trash(id, older_than=age))

        self.together("empty trash", act, name, *sorted(others), id=id, older_than=age)
        self.let_go()

    @rule(name=drawn_names(), ready=st.booleans())
    def forget(self, name: Name, ready: bool) -> None:
        """What is remembered of a session that is gone is dropped, and its id is free."""
        if ready:
            self.empty_trash(name, {name}, everything=False, old=False)
        self.together("forget", lambda site: site.space(name[0]).forget(name[1]), name)

    def let_go(self) -> None:
        """A torn tail goes with its session."""
        for site in self.sites:
            site.torn = {name for name in site.torn if self._there(name)}

    def _there(self, name: Name) -> bool:
        trash = self.model.space(name[0]).trash()
        return self.length(name) > 0 or any(each.id == name[1] for each in trash)

    # --- elsewhere -------------------------------------------------------------------------------

    @rule(name=drawn_names(), to=drawn_names(), ready=st.booleans())
    def copy(self, name: Name, to: Name, ready: bool) -> None:
        """A session is copied to another namespace, with its content."""
        self._copy(name, to[0], 0, ready=ready)

    @rule(name=drawn_names(), to=drawn_names(), ready=st.booleans())
    def copy_across(self, name: Name, to: Name, ready: bool) -> None:
        """Each medium copies to the next one, where it is the same session all the same."""
        self._copy(name, to[0], 1, ready=ready)

    def _copy(self, name: Name, space: Space, on: int, *, ready: bool) -> None:
        if ready:
            self.stored(name)
        target = (space, name[1])

        def act(site: Site) -> object:
            other = self.sites[(self.sites.index(site) + on) % len(self.sites)]
            try:
                copied = site.space(name[0]).copy(name[1], other.space(space))
            except SessionBusy:
                return _LEFT_ALONE
            if copied.status in ("unchanged", "ahead") and _written(other, target):
                # Whether it has to be waited for depends on what the medium's own clock says of
                # the content there.
                return _LEFT_ALONE
            if copied.status == "continued":
                other.torn.discard(target)
            problems = [facts(problem) for problem in copied.problems]
            return copied._replace(problems=()), problems

        self.together("copy across" if on else "copy", act, name, target)

    @rule(name=drawn_names(), number=st.integers(0, 2))
    def put_aside(self, name: Name, number: int) -> None:
        """Bytes are kept beside the log, once for each place."""
        self.stored(name)
        content, place = _CONTENT[number + 1], f"place-{number}"

        def act(site: Site) -> object:
            backend = site.backend(name[0])
            hold = backend.lock(name[1])
            try:
                backend.put_aside(hold, [content, b"!"], place=place, reason="asked for")
            finally:
                hold.release()
            kept = [each for each in backend.asides(name[1]) if each.place.startswith("place-")]
            parts = [b"".join(backend.aside(name[1], each.place) or ()) for each in kept]
            return [(each.place, each.reason, each.size) for each in kept], parts

        self.together("put aside", act, name)

    # --- all of them -----------------------------------------------------------------------------

    @rule(name=drawn_names(), elsewhere=st.booleans())
    def look(self, name: Name, elsewhere: bool) -> None:
        """The listings of a namespace."""
        self.together(
            "look",
            lambda site: spaces(site.space(name[0], elsewhere=elsewhere)),
            elsewhere=elsewhere,
        )
