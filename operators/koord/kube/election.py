"""Leader election with a Lease as a pure state machine, and the fence that writes have to pass.

Two rules make it safe. A candidate treats a Lease as expired only after it saw no renewal for the
whole duration *on its own clock*; times written by others are never compared with it. A leader
counts from when it *sent* its last renewal, and stops writing well before anybody else may take
over. It continues when a later renewal succeeds: that is conditional on the version of the Lease,
so nobody else has led in between. I/O is in ``lease``.

A renewal that is observed late, for example after an outage of the API server, may be old. So each
carries a reading of its holder's monotonic clock. The offset between the two clocks is unknown, but
the smallest difference observed is an upper bound, which gives the minimum age of a renewal. Only
the last renewals count: clocks drift, and the clock of a paused machine falls behind.
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
from koord.isolation import EndsProcess
from koord.kube.errors import ConnectionLost

LEASE_SECONDS: Final = 15
"""A Lease that has not changed for this long is free."""
DEADLINE_SECONDS: Final = 10.0
"""A leader that has not renewed for this long must not write. Its last write has the rest of the
Lease to arrive or to time out."""
RETRY_SECONDS: Final = 2.0
"""How often the leader renews and followers read the Lease."""
REMEMBERED_RENEWALS: Final = 30
"""Number of renewals, about a minute's, that bound the clock offset."""


class LeadershipLost(EndsProcess):
    """Another process leads, or may: this one must exit.

    Not a ``KubeError``: code that handles those must not catch it.
    """


class FenceClosed(ConnectionLost):
    """A write was not sent, because another process may lead. Callers retry as after an outage."""

    def __init__(self) -> None:
        super().__init__("writes are blocked until the lease is renewed", sent=False)


def read_clock() -> float:
    """Return seconds of a monotonic clock that continues while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Fence:
    """Lets writes pass until a deadline; closed at first.

    A stopped or partitioned process cannot know whether another one leads. So leadership is not a
    flag but a deadline, which renewals extend, checked right before each write is sent.
    """

    clock: Callable[[], float] = read_clock
    _until: float = float("-inf")

    def open_until(self, until: float) -> None:
        self._until = until

    def close(self) -> None:
        self._until = float("-inf")

    @property
    def is_open(self) -> bool:
        return self.clock() < self._until

    def check(self) -> None:
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
    """A Lease; ``metadata`` is written back unchanged."""

    metadata: dict[str, Any]
    spec: LeaseSpec = msgspec.field(default_factory=LeaseSpec)
    api_version: str = "coordination.k8s.io/v1"
    kind: str = "Lease"

    @property
    def renewed_at(self) -> float | None:
        """When it was renewed, on its holder's clock; None if unknown."""
        text = (self.metadata.get("annotations") or {}).get(operators.RENEWED_AT, "")
        try:
            seconds = float(text)
        except ValueError:
            return None
        return seconds if isfinite(seconds) else None

    @property
    def is_signed(self) -> bool:
        """Whether the last leader signed its plans. Earlier releases did not."""
        signed = (self.metadata.get("annotations") or {}).get(operators.SIGNED_TERM)
        return signed == str(self.spec.lease_transitions or 0)


class LeaseAction(StrEnum):
    """The next step of a process."""

    WAIT = "wait"
    CREATE = "create"
    TAKE = "take"
    """Become the holder of a free Lease."""
    RENEW = "renew"
    GIVE_UP = "give up"
    """Exit: leadership is lost."""


@dataclass(slots=True)
class Election:
    """One process's view of the election. All times are of one monotonic clock."""

    identity: str
    is_candidate: bool = False
    """Whether this process is ready to lead."""
    lease: Lease | None = None
    """As last read or written; None if it does not exist."""
    free_at: float = float("-inf")
    """When the Lease is free unless it changes before."""
    renewed_at: float | None = None
    """When the last successful renewal was sent; None: not the leader."""
    signs: bool = False
    """Whether all plans are known to be signed since we lead."""
    report: str = ""
    """What we say of ourselves with each renewal (``leader_report``)."""
    _is_signed: bool = True
    """Whether the last leader signed its plans, also if its Lease is gone."""
    _sent: LeaseSpec | None = None
    _sent_at: float = float("-inf")
    """Our last claim, and when it was sent."""
    _clock_of: str = ""
    """The holder whose clock ``_ahead`` refers to."""
    _ahead: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED_RENEWALS))
    """Upper bounds, in seconds, of how far our clock is ahead of the holder's."""

    @property
    def leads(self) -> bool:
        return self.renewed_at is not None

    @property
    def holder(self) -> str:
        """Identity of the holder; empty if the Lease is free or missing."""
        return (self.lease and self.lease.spec.holder_identity) or ""

    @property
    def deadline(self) -> float:
        return float("-inf") if self.renewed_at is None else self.renewed_at + DEADLINE_SECONDS

    def observe(self, lease: Lease | None, now: float) -> None:
        """Record the Lease as just read; our last claim in it proves that it was accepted."""
        previous, self.lease = self.lease, lease
        self._is_signed = self._is_signed if lease is None else lease.is_signed
        if self.leads and lease is not None and lease.spec == self._sent:
            self.grant(lease, self._sent_at)
        if lease is None:
            # The holder of a deleted Lease may not know about it yet.
            if previous is not None and previous.spec.holder_identity:
                self.free_at = now + LEASE_SECONDS
        elif previous is None or lease.spec != previous.spec:
            duration = lease.spec.lease_duration_seconds or LEASE_SECONDS
            renewed_at = self._latest_renewal(lease, now)
            self.free_at = renewed_at + duration if lease.spec.holder_identity else now

    def _latest_renewal(self, lease: Lease, now: float) -> float:
        """Return the latest time, on our clock, at which the renewal can have been sent."""
        holder, theirs = lease.spec.holder_identity or "", lease.renewed_at
        if theirs is None:
            return now
        if holder != self._clock_of:
            self._clock_of = holder
            self._ahead.clear()
        self._ahead.append(now - theirs)
        return theirs + min(self._ahead)

    def send(self, claim: LeaseSpec, now: float) -> None:
        self._sent, self._sent_at = claim, now

    def grant(self, lease: Lease, sent_at: float) -> None:
        self.lease = lease
        self.renewed_at = sent_at

    def next_action(self, now: float) -> LeaseAction:
        if self.leads:
            if self.holder == self.identity:
                return LeaseAction.RENEW
            # Past the deadline a missing Lease does not prove that nobody else has led.
            may_create = self.lease is None and now < self.deadline
            return LeaseAction.CREATE if may_create else LeaseAction.GIVE_UP
        # If we are the holder, the response to our claim was lost.
        is_free = now >= self.free_at or self.holder == self.identity
        if not self.is_candidate or not is_free:
            return LeaseAction.WAIT
        return LeaseAction.CREATE if self.lease is None else LeaseAction.TAKE

    def pause(self, now: float, retry: float) -> float:
        """Return how many seconds to sleep: ``retry``, or less if a deadline comes first.

        A follower wakes when the Lease becomes free, a leader at its own deadline.
        """
        left = (self.deadline if self.leads else self.free_at) - now
        return left if 0 < left < retry else retry

    def claim(self, wall: float) -> LeaseSpec:
        """Return the spec that makes or keeps us the leader; ``wall`` is seconds since the epoch.

        Its times are informational.
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

    def mark(self, metadata: dict[str, Any], claim: LeaseSpec, now: float) -> dict[str, Any]:
        """Return the metadata to write with a claim.

        A term counts as signed if the one before does, which that of an earlier release does not.
        """
        annotations = {**(metadata.get("annotations") or {}), operators.RENEWED_AT: f"{now:.3f}"}
        if self.signs or self._is_signed:
            annotations[operators.SIGNED_TERM] = str(claim.lease_transitions or 0)
        annotations.pop(operators.REPORT, None)  # perhaps that of another process
        if self.report:
            annotations[operators.REPORT] = self.report
        return {**metadata, "annotations": annotations}

    def surrender(self, wall: float) -> LeaseSpec:
        before = self.lease.spec if self.lease else LeaseSpec()
        return replace(
            before, holder_identity="", lease_duration_seconds=1, renew_time=_format_time(wall)
        )


def _format_time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
