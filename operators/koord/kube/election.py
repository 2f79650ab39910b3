"""Electing a leader with a Lease: what to do next, as a pure state machine.

Two rules carry everything. A Lease is over only when it has not been renewed for its whole duration
*on the clock of the one who looks*: times written by others are never compared with it. And who
leads counts from when its last renewal was *sent*, and stops writing well before anybody else may
take over. It may go on when a later renewal succeeds: that names the version of the Lease which it
goes from, so nobody else has led in between. What travels is not known here: moves are carried out,
and observations brought, by ``lease``.

A renewal that is first seen after a gap, when the API server was not there for example, need not be
young. So each carries a reading of its holder's own steady clock. How far that is from ours is not
known, but it was read before we saw it: the least difference that was seen bounds it, and that
tells how old a renewal is at least. Only the last ones count: clocks drift apart, and that of a
machine that was paused stays behind.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from math import isfinite
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from koord.api.keys import operators
from koord.kube.errors import ConnectionLost

LEASE_SECONDS: Final = 15
"""A Lease that has not changed for so long is free."""
DEADLINE_SECONDS: Final = 10.0
"""A leader that could not renew for so long must not write until it can. What it sent last has the
rest of the Lease to arrive, or to be given up."""
RETRY_SECONDS: Final = 2.0
"""How often a leader renews, and the others look."""
REMEMBERED_RENEWALS: Final = 30
"""From so many of them, about a minute, it is known how far clocks are apart."""


class LeadershipLost(Exception):  # noqa: N818 - what it says is what is wrong
    """Another process leads, or may: this one ends.

    Not one of the errors of the API: nothing that handles those may catch it and go on.
    """


class FenceClosed(ConnectionLost):
    """A write did not leave this process, because another one may lead."""

    def __init__(self) -> None:
        super().__init__("nothing is written before the lease is renewed", sent=False)


def read_clock() -> float:
    """Return seconds that never go back, and go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Fence:
    """Closed at first. What is written through it passes only while it is open."""

    clock: Callable[[], float] = read_clock
    _until: float = float("-inf")

    def open_until(self, until: float) -> None:
        """Let writes pass until a moment of ``clock``."""
        self._until = until

    def close(self) -> None:
        """Let nothing pass any more."""
        self._until = float("-inf")

    @property
    def is_open(self) -> bool:
        """Whether a write may leave now."""
        return self.clock() < self._until

    def check(self) -> None:
        """Raise ``FenceClosed`` if a write must not leave now."""
        if not self.is_open:
            raise FenceClosed


class LeaseSpec(Struct, rename="camel", frozen=True, omit_defaults=True):
    """``spec`` of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(Struct, rename="camel", frozen=True):
    """A Lease; ``metadata`` goes back as it came."""

    metadata: dict[str, Any]
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"

    @property
    def renewed_at(self) -> float | None:
        """When it was renewed, on its holder's clock, if that is known."""
        text = (self.metadata.get("annotations") or {}).get(operators.RENEWED_AT, "")
        try:
            seconds = float(text)
        except ValueError:
            return None
        return seconds if isfinite(seconds) else None


class Move(StrEnum):
    """What a candidate or leader does next."""

    WAIT = "wait"
    CREATE = "create"
    """Create the Lease, as its holder."""
    TAKE = "take"
    """Write ourselves into a Lease that is free."""
    RENEW = "renew"
    """Show that we are still there."""
    GIVE_UP = "give up"
    """End this process: it does not lead any more."""


@dataclass(slots=True)
class Election:
    """What one process knows of the election. All times are of one clock that never goes back."""

    identity: str
    is_candidate: bool = False
    """Whether this process could lead if it were elected."""
    lease: Lease | None = None
    """As last read or written; None: there is none."""
    free_at: float = float("-inf")
    """From when on nobody leads, if nothing changes until then."""
    renewed_at: float | None = None
    """When the last renewal that was granted was sent; None: we do not lead."""
    _sent: LeaseSpec | None = None
    _sent_at: float = float("-inf")
    """What we have claimed last, and when."""
    _clock_of: str = ""
    """Whose clock ``_ahead`` is about."""
    _ahead: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_RENEWALS))
    """How many seconds our clock is ahead of the holder's, at most, by its last renewals."""

    @property
    def leads(self) -> bool:
        """Whether we were elected, and have not given up since."""
        return self.renewed_at is not None

    @property
    def holder(self) -> str:
        """Who holds the Lease; empty: nobody."""
        return (self.lease and self.lease.spec.holder_identity) or ""

    @property
    def deadline(self) -> float:
        """When writing must end."""
        return float("-inf") if self.renewed_at is None else self.renewed_at + DEADLINE_SECONDS

    def observe(self, lease: Lease | None, now: float) -> None:
        """Take in what was read just now; our last claim there proves that it was accepted."""
        known, self.lease = self.lease, lease
        if self.leads and lease is not None and lease.spec == self._sent:
            self.grant(lease, self._sent_at)
        if lease is None:
            # Whoever held a Lease that somebody deleted may not know it yet.
            if known is not None and known.spec.holder_identity:
                self.free_at = now + LEASE_SECONDS
        elif known is None or lease.spec != known.spec:
            duration = lease.spec.lease_duration_seconds or LEASE_SECONDS
            renewed_at = self._latest_renewal(lease, now)
            self.free_at = renewed_at + duration if lease.spec.holder_identity else now

    def _latest_renewal(self, lease: Lease, now: float) -> float:
        """Return when, on our clock, a renewal was sent at the latest."""
        holder, theirs = lease.spec.holder_identity or "", lease.renewed_at
        if theirs is None:
            return now
        if holder != self._clock_of:
            self._clock_of = holder
            self._ahead.clear()
        self._ahead.append(now - theirs)
        return theirs + min(self._ahead)

    def send(self, claim: LeaseSpec, now: float) -> None:
        """Note that a claim is sent now."""
        self._sent, self._sent_at = claim, now

    def grant(self, lease: Lease, sent_at: float) -> None:
        """Take in that a claim of ours was accepted."""
        self.lease = lease
        self.renewed_at = sent_at

    def next_move(self, now: float) -> Move:
        """Decide on what is known."""
        if self.leads:
            if self.holder == self.identity:
                return Move.RENEW
            # Where there is no Lease nothing proves that nobody else has led, if we came late.
            may_create = self.lease is None and now < self.deadline
            return Move.CREATE if may_create else Move.GIVE_UP
        # Our own name there means that the answer to our claim was lost.
        is_free = now >= self.free_at or self.holder == self.identity
        if not self.is_candidate or not is_free:
            return Move.WAIT
        return Move.CREATE if self.lease is None else Move.TAKE

    def pause(self, now: float, retry: float) -> float:
        """Return how long to do nothing, at most ``retry`` seconds: less if time runs out before.

        A follower wakes when nobody may lead any more, a leader when it must not itself.
        """
        left = (self.deadline if self.leads else self.free_at) - now
        return left if 0 < left < retry else retry

    def claim(self, wall: float) -> LeaseSpec:
        """Return what to write to become or stay the leader; ``wall`` is seconds since the epoch.

        The times in it are for people.
        """
        now = _format_time(wall)
        before = self.lease.spec if self.lease else LeaseSpec(lease_transitions=-1)
        mine = replace(
            before,
            holder_identity=self.identity,
            lease_duration_seconds=LEASE_SECONDS,
            renew_time=now,
        )
        if before.holder_identity == self.identity:
            return mine
        return replace(
            mine, acquire_time=now, lease_transitions=(before.lease_transitions or 0) + 1
        )

    @staticmethod
    def mark(metadata: dict[str, Any], now: float) -> dict[str, Any]:
        """Return the metadata for what is sent now, on our clock."""
        annotations = {**(metadata.get("annotations") or {}), operators.RENEWED_AT: f"{now:.3f}"}
        return {**metadata, "annotations": annotations}

    def surrender(self, wall: float) -> LeaseSpec:
        """Return what to write so that another one may lead at once."""
        before = self.lease.spec if self.lease else LeaseSpec()
        return replace(
            before, holder_identity="", lease_duration_seconds=1, renew_time=_format_time(wall)
        )


def _format_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
