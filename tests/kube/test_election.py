"""The rules of the election: as tables, and with many processes and lost messages."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace
from tests.support.laws import examples

from koord.api.keys import operators
from koord.kube.election import (
    DEADLINE_SECONDS,
    LEASE_SECONDS,
    REMEMBERED_RENEWALS,
    RETRY_SECONDS,
    Election,
    Lease,
    LeaseAction,
    LeaseSpec,
)
from koord.kube.http1 import UNACKNOWLEDGED_SECONDS

ME, OTHER = "me", "other"


def lease(
    holder: str | None,
    duration: int | None = LEASE_SECONDS,
    renewed: str = "r1",
    at: str | None = None,
) -> Lease:
    """Make a lease; ``at`` is when it was renewed, on the clock of its holder."""
    spec = LeaseSpec(holder, duration, acquire_time="a", renew_time=renewed, lease_transitions=3)
    annotations = {} if at is None else {"annotations": {operators.RENEWED_AT: at}}
    return Lease({"name": "koord", "resourceVersion": "7", **annotations}, spec)


def make_election(found: Lease | None, *, renewed_at: float | None = None) -> Election:
    """Make a candidate that has read a lease at second 100, or one that leads since then."""
    election = Election(ME, is_candidate=True)
    election.observe(found, 100.0)
    election.renewed_at = renewed_at
    return election


@pytest.mark.parametrize(
    ("found", "at", "move"),
    [
        (None, 100.0, LeaseAction.CREATE),
        (lease(None), 100.0, LeaseAction.TAKE),
        (lease(""), 100.0, LeaseAction.TAKE),
        (lease(ME), 100.0, LeaseAction.TAKE),
        (lease(OTHER), 100.0, LeaseAction.WAIT),
        (lease(OTHER), 114.9, LeaseAction.WAIT),
        (lease(OTHER), 115.0, LeaseAction.TAKE),
        (lease(OTHER, 40), 139.9, LeaseAction.WAIT),
        (lease(OTHER, 40), 140.0, LeaseAction.TAKE),
        (lease(OTHER, None), 114.9, LeaseAction.WAIT),
        (lease(OTHER, None), 115.0, LeaseAction.TAKE),
    ],
)
def test_moves_of_a_candidate(found: Lease | None, at: float, move: LeaseAction) -> None:
    assert make_election(found).next_action(at) is move


def take(before: Lease | None, identity: str = ME, *, signs: bool = False) -> Lease:
    """Return the Lease after a process of this release has taken it."""
    election = Election(identity, is_candidate=True, signs=signs)
    election.observe(before, 100.0)
    claim = election.claim(0.0)
    return Lease(election.mark(before.metadata if before else {}, claim, 100.0), claim)


def take_unsigned(before: Lease) -> Lease:
    """The same, by a process of a release that did not sign plans."""
    claim = LeaseSpec(OTHER, lease_transitions=(before.spec.lease_transitions or 0) + 1)
    return Lease(before.metadata, claim)


def test_terms_after_a_leader_that_did_not_sign_are_recognised_until_its_plans_are_signed() -> None:
    """Whatever the order of releases, and however often a leader ends before it has signed."""
    first = take(None)
    assert first.is_signed, "nobody has led before"
    assert take(take(first)).is_signed
    interrupted = take(take_unsigned(first))
    assert not interrupted.is_signed
    assert not take(interrupted, OTHER).is_signed
    signed = take(interrupted, OTHER, signs=True)
    assert take(signed).is_signed
    assert not take(take_unsigned(take_unsigned(signed))).is_signed


def test_leader_whose_lease_was_deleted_is_remembered() -> None:
    for before in (take(None), take_unsigned(take(None))):
        election = make_election(before)
        election.observe(None, 101.0)
        claim = election.claim(0.0)
        assert Lease(election.mark({}, claim, 101.0), claim).is_signed == before.is_signed


@pytest.mark.parametrize("found", [None, lease(""), lease(OTHER), lease(ME)])
def test_process_that_is_not_a_candidate_only_waits(found: Lease | None) -> None:
    election = make_election(found)
    election.is_candidate = False
    assert election.next_action(1000.0) is LeaseAction.WAIT


@pytest.mark.parametrize(
    ("found", "at", "move"),
    [
        (lease(ME), 100.0, LeaseAction.RENEW),
        (lease(ME), 109.9, LeaseAction.RENEW),
        (lease(ME), 110.0, LeaseAction.RENEW),
        (lease(ME), 1000.0, LeaseAction.RENEW),
        (lease(OTHER), 101.0, LeaseAction.GIVE_UP),
        (lease(""), 101.0, LeaseAction.GIVE_UP),
        (None, 101.0, LeaseAction.CREATE),
        (None, 110.0, LeaseAction.GIVE_UP),
    ],
)
def test_moves_of_a_leader(found: Lease | None, at: float, move: LeaseAction) -> None:
    assert make_election(found, renewed_at=100.0).next_action(at) is move


def test_changed_lease_starts_its_duration_again() -> None:
    election = make_election(lease(OTHER))
    election.observe(lease(OTHER, renewed="r2"), 114.0)
    assert election.next_action(128.9) is LeaseAction.WAIT
    assert election.next_action(129.0) is LeaseAction.TAKE


def test_renewal_observed_late_is_recognised_as_old() -> None:
    election = make_election(lease(OTHER, at="5000"))
    # Renewed two seconds later; then the API server was unavailable until now.
    election.observe(lease(OTHER, renewed="r2", at="5002"), 116.9)
    assert election.next_action(116.9) is LeaseAction.WAIT
    assert election.next_action(117.0) is LeaseAction.TAKE


def test_smallest_clock_difference_counts() -> None:
    election = make_election(lease(OTHER, at="5000"))
    election.observe(lease(OTHER, renewed="r2", at="5004"), 103.0)
    election.observe(lease(OTHER, renewed="r3", at="5006"), 130.0)
    assert election.free_at == 105.0 + LEASE_SECONDS


def follow(
    election: Election, began: float, renewals: int, clock: Callable[[float], float]
) -> None:
    """Let a healthy leader renew, and observe each renewal; ``clock`` is the leader's."""
    for turn in range(renewals):
        now = began + turn * RETRY_SECONDS
        election.observe(lease(OTHER, renewed=f"r{now}", at=f"{clock(now):.3f}"), now)
        assert election.next_action(now) is LeaseAction.WAIT


def test_slower_clock_of_the_holder_makes_no_renewal_old() -> None:
    election = make_election(lease(OTHER, at="0"))
    two_days = int(2 * 24 * 3600 / RETRY_SECONDS)
    follow(election, 102.0, two_days, lambda now: (now - 100.0) * (1 - 1e-4))
    last = 102.0 + (two_days - 1) * RETRY_SECONDS
    assert election.free_at == pytest.approx(last + LEASE_SECONDS, abs=0.1)


def test_paused_machine_is_trusted_again_after_a_minute() -> None:
    election = make_election(lease(OTHER, at="0"))
    follow(election, 102.0, 100, lambda now: now - 100.0)
    follow(election, 310.0, REMEMBERED_RENEWALS, lambda now: now - 108.0)
    last = 310.0 + (REMEMBERED_RENEWALS - 1) * RETRY_SECONDS
    assert election.free_at == pytest.approx(last + LEASE_SECONDS)


def test_clock_difference_is_kept_per_holder() -> None:
    election = make_election(lease(OTHER, at="5000"))
    election.observe(lease("third", at="2"), 120.0)
    assert election.next_action(134.9) is LeaseAction.WAIT
    assert election.next_action(135.0) is LeaseAction.TAKE


@pytest.mark.parametrize("at", ["", "soon", "nan", "inf", "-inf"])
def test_invalid_clock_reading_is_ignored(at: str) -> None:
    election = make_election(lease(OTHER, at=at))
    election.observe(lease(OTHER, renewed="r2", at=at), 120.0)
    assert election.free_at == 120.0 + LEASE_SECONDS


def test_renewal_without_response_counts_once_it_is_read() -> None:
    election = make_election(lease(ME), renewed_at=100.0)
    claim = election.claim(0.5)
    election.send(claim, 104.0)
    election.observe(lease(ME), 106.0)
    assert election.deadline == 100.0 + DEADLINE_SECONDS, "it has not arrived"
    election.observe(Lease({}, claim), 108.0)
    assert election.deadline == 104.0 + DEADLINE_SECONDS


def test_change_of_metadata_is_not_a_renewal() -> None:
    election = make_election(lease(OTHER))
    annotated = replace(lease(OTHER), metadata={"name": "koord", "resourceVersion": "8"})
    election.observe(annotated, 114.0)
    assert election.next_action(115.0) is LeaseAction.TAKE
    assert election.lease is annotated, "the next claim goes from what was read last"


@pytest.mark.parametrize(("held_by", "free_at"), [(OTHER, 120.0), ("", 100.0)])
def test_deleted_lease_is_free_only_after_its_duration(held_by: str, free_at: float) -> None:
    election = make_election(lease(held_by))
    election.observe(None, 105.0)
    election.observe(None, 110.0)
    assert election.next_action(free_at - 0.1) is LeaseAction.WAIT
    assert election.next_action(free_at) is LeaseAction.CREATE


def test_times_in_the_spec_are_ignored() -> None:
    election = make_election(lease(OTHER, renewed="2001-01-01T00:00:00.000000Z"))
    assert election.next_action(100.0) is LeaseAction.WAIT


def test_the_deadline_counts_from_when_the_renewal_was_sent() -> None:
    election = make_election(lease(ME), renewed_at=100.0)
    election.grant(lease(ME, renewed="r2"), sent_at=104.0)
    assert election.deadline == 104.0 + DEADLINE_SECONDS


def test_writes_before_the_deadline_arrive_before_a_takeover() -> None:
    assert DEADLINE_SECONDS + UNACKNOWLEDGED_SECONDS < LEASE_SECONDS


@pytest.mark.parametrize(
    ("election", "at", "pause"),
    [
        (make_election(lease(OTHER)), 101.0, 2.0),
        (make_election(lease(OTHER)), 114.5, 0.5),
        (make_election(lease(OTHER)), 115.5, 2.0),
        (make_election(None), 101.0, 2.0),
        (make_election(lease(ME), renewed_at=100.0), 101.0, 2.0),
        (make_election(lease(ME), renewed_at=100.0), 109.5, 0.5),
    ],
)
def test_pause_ends_at_the_next_deadline(election: Election, at: float, pause: float) -> None:
    assert election.pause(at, RETRY_SECONDS) == pause


def test_first_claim() -> None:
    assert make_election(None).claim(0.0) == LeaseSpec(
        holder_identity=ME,
        lease_duration_seconds=LEASE_SECONDS,
        acquire_time="1970-01-01T00:00:00.000000Z",
        renew_time="1970-01-01T00:00:00.000000Z",
        lease_transitions=0,
    )


def test_claim_of_a_takeover() -> None:
    claim = make_election(lease(OTHER, 40)).claim(0.5)
    assert claim == LeaseSpec(
        holder_identity=ME,
        lease_duration_seconds=LEASE_SECONDS,
        acquire_time="1970-01-01T00:00:00.500000Z",
        renew_time="1970-01-01T00:00:00.500000Z",
        lease_transitions=4,
    )


def test_renewal_changes_only_the_renew_time() -> None:
    before = lease(ME)
    claim = make_election(before, renewed_at=100.0).claim(0.5)
    assert claim == replace(before.spec, renew_time="1970-01-01T00:00:00.500000Z")


def test_released_lease_is_free_immediately() -> None:
    left = make_election(lease(ME), renewed_at=100.0).surrender(0.5)
    assert left.holder_identity == ""
    assert make_election(Lease({}, left)).next_action(100.0) is LeaseAction.TAKE


class Fate(Enum):
    """The outcome of a claim."""

    ANSWERED = auto()
    ANSWER_LOST = auto()
    ANSWER_LATE = auto()
    REQUEST_LATE = auto()
    REQUEST_LOST = auto()


@dataclass(frozen=True)
class Claim:
    """A write in transit, or its response with the new version."""

    sender: "Process"
    version: int
    lease: Lease
    sent_at: float


@dataclass(eq=False)
class Process:
    election: Election
    ahead: float
    """How far its clock is ahead of the others'."""
    version: int = -1
    is_doubtful: bool = True
    is_over: bool = False
    is_stopped: bool = False
    fate: Fate = Fate.ANSWERED
    """Of everything that it sends."""


PROCESSES = st.integers(0, 2)


class ManyProcesses(RuleBasedStateMachine):
    """Three processes and one lease, with pauses, partitions and slow messages.

    Time only advances explicitly, so any events may be simultaneous. A write
    arrives within UNACKNOWLEDGED_SECONDS or never; its response at any time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.version = 0
        self.stored: Lease | None = None
        self.deleted_at = float("-inf")
        self.started = 0
        self.processes = [self._start() for _ in range(3)]
        self.claims: list[Claim] = []
        self.answers: list[Claim] = []

    def _start(self) -> Process:
        self.started += 1
        return Process(Election(f"p{self.started}", is_candidate=True), 1000.0 * self.started)

    @rule(seconds=st.sampled_from([2.0, 3.9, 5.0, 9.9, 15.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        oldest = self.now - UNACKNOWLEDGED_SECONDS
        self.claims = [claim for claim in self.claims if claim.sent_at > oldest]
        for one in self.processes:
            self._act(one)

    @rule(at=PROCESSES, fate=st.sampled_from(Fate))
    def the_network_changes(self, at: int, fate: Fate) -> None:
        self.processes[at].fate = fate

    @rule(at=PROCESSES, is_stopped=st.booleans())
    def is_stopped_or_continued(self, at: int, *, is_stopped: bool) -> None:
        self.processes[at].is_stopped = is_stopped

    @rule(at=PROCESSES)
    def acts(self, at: int) -> None:
        self._act(self.processes[at])

    @rule(at=PROCESSES)
    def acts_on_what_it_has_read_before(self, at: int) -> None:
        self._move(self.processes[at])

    @precondition(lambda self: self.claims)
    @rule(at=st.integers(0, 10), fate=st.sampled_from(Fate))
    def a_claim_arrives(self, at: int, fate: Fate) -> None:
        self._store(self.claims.pop(at % len(self.claims)), fate)

    @precondition(lambda self: self.answers)
    @rule(at=st.integers(0, 10))
    def an_answer_arrives(self, at: int) -> None:
        self._grant(self.answers.pop(at % len(self.answers)))

    @rule(at=PROCESSES)
    def ends_and_another_one_starts(self, at: int) -> None:
        # A process that has never seen a deleted lease cannot give its holder time.
        if self.now >= self.deleted_at + LEASE_SECONDS:
            self.processes[at].is_over = True
            self.processes[at] = self._start()

    @rule()
    def somebody_deletes_the_lease(self) -> None:
        if all(one.election.lease is not None or one.is_over for one in self.processes):
            self.version += 1
            self.stored = None
            self.deleted_at = self.now

    @invariant()
    def one_leads_at_most(self) -> None:
        leaders = [
            one.election.identity
            for one in self.processes
            if not one.is_over and self.now + one.ahead < one.election.deadline
        ]
        assert len(leaders) <= 1

    def _act(self, one: Process) -> None:
        if not one.is_stopped and (one.is_doubtful or not one.election.leads):
            if one.fate is Fate.REQUEST_LOST:
                return
            one.election.observe(self.stored, self.now + one.ahead)
            one.version, one.is_doubtful = self.version, False
        self._move(one)

    def _move(self, one: Process) -> None:
        if one.is_stopped or one.is_over:
            return
        now = self.now + one.ahead
        move = one.election.next_action(now)
        if move is LeaseAction.GIVE_UP:
            one.is_over = True
        elif move is not LeaseAction.WAIT and not one.is_doubtful:
            claimed = one.election.claim(self.now)
            sent = Lease(one.election.mark({}, claimed, now), claimed)
            one.election.send(sent.spec, now)
            claim = Claim(one, one.version, sent, self.now)
            one.is_doubtful = True
            if one.fate is Fate.REQUEST_LATE:
                self.claims.append(claim)
            elif one.fate is not Fate.REQUEST_LOST:
                self._store(claim, one.fate)

    def _store(self, claim: Claim, fate: Fate) -> None:
        if claim.version != self.version:
            return
        self.version += 1
        self.stored = claim.lease
        answer = replace_version(claim, self.version)
        if fate is Fate.ANSWERED:
            self._grant(answer)
        elif fate is not Fate.ANSWER_LOST:
            self.answers.append(answer)

    def _grant(self, answer: Claim) -> None:
        one = answer.sender
        one.election.grant(answer.lease, answer.sent_at + one.ahead)
        one.version, one.is_doubtful = answer.version, False


def replace_version(claim: Claim, version: int) -> Claim:
    return Claim(claim.sender, version, claim.lease, claim.sent_at)


TestManyProcesses = ManyProcesses.TestCase
TestManyProcesses.settings = settings(
    max_examples=examples(100), stateful_step_count=25, deadline=None
)
