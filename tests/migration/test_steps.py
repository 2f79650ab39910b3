"""The steps of a job, one by one, and what must hold whatever is seen."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples

from koord.core.migration.memory import count_returns, find_left_nodes, find_recently_moved
from koord.core.migration.model import (
    JobMode,
    JobPhase,
    JobReason,
    JobStatus,
    JobStep,
    MigrationJob,
    MigrationOptions,
    MoveOrigin,
    PodReference,
    StepCondition,
)
from koord.core.migration.steps import (
    Act,
    PlacePhase,
    SeenCluster,
    SeenPlace,
    SetStatus,
    Step,
    Wait,
    next_step,
)

OURS = MigrationOptions()
COMPAT = MigrationOptions(compat=True)
JOB = MigrationJob("j", "uid-j", PodReference("ml", "web-2", "u2"), 1000.0, 300.0, is_admitted=True)
USER = PodReference("ml", "web-9", "u9")
PENDING = SeenPlace(PlacePhase.PENDING)
AVAILABLE = SeenPlace(PlacePhase.AVAILABLE, "n5")
USED = SeenPlace(PlacePhase.USED, "n5", USER)


def step(job: MigrationJob, options: MigrationOptions = OURS, **seen: Any) -> Step:
    return next_step(job, SeenCluster(**{"now": 1001.0, "pod_node": "n1", **seen}), options)


def after(job: MigrationJob, options: MigrationOptions = OURS, **seen: Any) -> MigrationJob:
    """Return the job once its next write, a status, is there."""
    made = step(job, options, **seen)
    assert isinstance(made, SetStatus), made
    return replace(job, status=made.status)


RUNNING = after(JOB)
CREATED = after(RUNNING, place=PENDING)
SCHEDULED = after(CREATED, place=AVAILABLE)
EVICTING = after(SCHEDULED, place=AVAILABLE)
EVICTED = after(EVICTING, place=AVAILABLE, pod_node=None)
BOUND = after(EVICTED, place=USED, pod_node=None)
DONE = after(BOUND, place=USED, pod_node=None, is_user_ready=True)


def test_a_move_step_by_step() -> None:
    assert step(replace(JOB, is_admitted=False)) == Wait()
    assert step(RUNNING) is Act.RESERVE
    assert CREATED.status.has(JobStep.RESERVATION_CREATED)
    assert step(CREATED, place=PENDING) == Wait()
    assert SCHEDULED.status.node == "n5"
    assert EVICTING.status.is_evicting
    assert step(EVICTING, place=AVAILABLE) == Wait()
    assert EVICTED.status.status == JobReason.WAIT_FOR_POD
    assert step(EVICTED, place=AVAILABLE, pod_node=None) == Wait()
    assert BOUND.status.pod == USER
    assert step(BOUND, place=USED, pod_node=None, is_user_ready=False) == Wait()
    assert DONE.status.phase is JobPhase.SUCCEEDED
    assert DONE.status.status == JobReason.COMPLETE


@pytest.mark.parametrize(
    ("job", "seen", "reason"),
    [
        (RUNNING, {"pod_node": None}, JobReason.MISSING_POD),
        (CREATED, {}, JobReason.MISSING_RESERVATION),
        (CREATED, {"place": SeenPlace(PlacePhase.EXPIRED)}, JobReason.RESERVATION_EXPIRED),
        (CREATED, {"place": SeenPlace(PlacePhase.UNSCHEDULABLE)}, JobReason.UNSCHEDULABLE),
        (CREATED, {"place": replace(AVAILABLE, node="n1")}, JobReason.FORBIDDEN),
        (CREATED, {"place": USED}, JobReason.FORBIDDEN),
        (CREATED, {"place": replace(AVAILABLE, problem="small")}, JobReason.FORBIDDEN),
        (EVICTING, {}, JobReason.MISSING_RESERVATION),
        (EVICTING, {"place": USED}, JobReason.FORBIDDEN),
        (EVICTED, {"pod_node": None}, JobReason.MISSING_RESERVATION),
        (replace(JOB, problem="no pod"), {}, JobReason.INVALID),
        (RUNNING, {"now": 1300.0}, JobReason.TIMEOUT),
        (SCHEDULED, {"place": AVAILABLE, "failed_group": "x"}, JobReason.FORBIDDEN),
    ],
)
def test_failures(job: MigrationJob, seen: dict[str, Any], reason: JobReason) -> None:
    if job is CREATED and seen:
        job = replace(RUNNING, status=RUNNING.status.with_step(JobStep.RESERVATION_CREATED))
    failed = after(job, **seen).status
    assert failed.phase is JobPhase.FAILED
    assert failed.reason == reason


def test_a_reservation_that_was_bound_by_another_pod_fails_before_anybody_is_evicted() -> None:
    job = replace(JOB, reservation="room")
    running = after(job)
    created = after(running, place=USED)
    assert after(created, place=USED).status.reason == JobReason.FORBIDDEN


def test_the_ttl_counts_from_the_creation_and_its_last_second_is_over() -> None:
    assert step(CREATED, place=PENDING, now=1299.9) == Wait()
    assert after(CREATED, place=PENDING, now=1300.0).status.reason == JobReason.TIMEOUT


def test_without_ttl_a_job_is_deleted_after_half_an_hour_and_its_reservation_before() -> None:
    job = replace(CREATED, ttl=None)
    assert step(job, place=PENDING, now=2799.0) == Wait()
    assert step(job, place=PENDING, now=2800.0) is Act.RELEASE
    assert step(job, now=2800.0) is Act.FORGET


def test_a_reservation_that_the_job_refers_to_is_not_deleted() -> None:
    theirs = replace(AVAILABLE, is_own=False)
    failed = after(replace(SCHEDULED, reservation="room"), place=theirs, now=1300.0)
    assert isinstance(step(failed, place=theirs, now=1301.0), Wait)
    assert step(failed, place=theirs, now=1600.0) is Act.FORGET


def test_a_paused_job_gives_up_its_place_and_reserves_another_later() -> None:
    paused = after(replace(EVICTING, is_paused=True), place=AVAILABLE)
    assert not paused.status.is_evicting
    assert step(paused, place=AVAILABLE) is Act.RELEASE
    assert step(paused) == Wait()
    assert step(paused, now=1300.0) == Wait()
    resumed = after(replace(paused, is_paused=False))
    assert step(resumed) is Act.RESERVE


def test_what_was_evicted_cannot_be_paused() -> None:
    paused = replace(EVICTED, is_paused=True)
    assert after(paused, place=USED, pod_node=None).status.pod == USER


def test_the_replacement_of_an_evicted_pod_keeps_its_place_after_the_ttl() -> None:
    failed = after(EVICTED, place=AVAILABLE, pod_node=None, now=1300.0)
    assert isinstance(step(failed, place=AVAILABLE, pod_node=None, now=1301.0), Wait)
    assert step(failed, COMPAT, place=AVAILABLE, pod_node=None, now=1301.0) is Act.RELEASE
    assert step(failed, place=AVAILABLE, pod_node=None, now=1e9) is Act.RELEASE


def test_a_group_that_ends_half_moved_leaves_what_went_its_place_and_what_stays_none() -> None:
    """One pod of two has gone when the time is over, and the other one was never evicted."""
    gone, staying = (
        replace(job, group="g", group_size=2, name=name)
        for job, name in ((EVICTED, "went"), (EVICTING, "stays"))
    )
    late = after(staying, place=AVAILABLE, now=1300.0)
    assert late.status.reason == JobReason.TIMEOUT
    assert step(late, place=AVAILABLE, now=1301.0) is Act.RELEASE
    assert isinstance(step(late, now=1301.0), Wait)
    # The other one goes on if it has time, and keeps the place for its replacement if it has none.
    bound = after(gone, place=USED, pod_node=None, failed_group="stays has failed")
    done = after(bound, place=USED, pod_node=None, is_user_ready=True, failed_group="x")
    assert done.status.phase is JobPhase.SUCCEEDED
    over = after(gone, place=AVAILABLE, pod_node=None, now=1300.0)
    assert isinstance(step(over, place=AVAILABLE, pod_node=None, now=1301.0), Wait)
    assert step(over, place=AVAILABLE, pod_node=None, now=9000.0) is Act.RELEASE
    assert step(over, place=None, pod_node=None, now=9000.0) is Act.FORGET


def test_a_bound_pod_that_has_gone_is_waited_for_again() -> None:
    assert after(BOUND, COMPAT, place=USED, pod_node=None).status.phase is JobPhase.SUCCEEDED
    again = after(BOUND, place=replace(USED, user=None), pod_node=None)
    assert again.status.status == JobReason.WAIT_FOR_POD
    assert again.status.pod is None


def test_a_soft_eviction_is_taken_back_when_the_job_ends_without_success() -> None:
    failed = after(EVICTING, place=AVAILABLE, is_asked=True, now=1300.0)
    assert step(failed, is_asked=True, now=1300.0) is Act.UNASK
    assert isinstance(step(failed, COMPAT, is_asked=True, now=1300.0), Wait)


def test_nothing_is_decided_while_the_pod_is_about_to_be_evicted() -> None:
    assert step(EVICTING, is_evicting=True, now=1e9) == Wait()


def test_evict_directly() -> None:
    direct = replace(RUNNING, mode=JobMode.EVICT_DIRECTLY)
    evicting = after(direct)
    assert evicting.status.is_evicting
    done = after(evicting, pod_node=None)
    assert (done.status.phase, done.status.status) == (JobPhase.SUCCEEDED, JobReason.COMPLETE)
    assert after(direct, pod_node=None).status.reason == JobReason.MISSING_POD


def test_what_was_moved_is_remembered() -> None:
    gone = {JobStep.EVICTION: StepCondition(is_true=True, changed=1030.0)}
    job = replace(
        DONE, status=replace(DONE.status, conditions=gone), origin=MoveOrigin("n1", "web")
    )
    assert find_recently_moved([job], "u9", 1040.0, OURS) is job
    assert find_recently_moved([job], "u9", 1030.0 + 1800.0, OURS) is None
    assert find_left_nodes([job], job.workload, 1040.0, OURS) == {"n1"}
    for other in ("other", "web", f"others/{job.origin.workload}"):
        assert find_left_nodes([job], other, 1040.0, OURS) == set()
    assert isinstance(step(job, now=1700.0), Wait)
    assert step(job, now=1030.0 + 1800.0) is Act.FORGET


def test_each_return_to_a_node_is_remembered_twice_as_long_and_moves_at_once_are_no_returns() -> (
    None
):
    def moved(uid: str, at: float, created: float, node: str = "n1") -> MigrationJob:
        gone = {JobStep.EVICTION: StepCondition(is_true=True, changed=at)}
        status = replace(DONE.status, conditions=gone)
        origin = MoveOrigin(node, "web", pod_created=created)
        return replace(DONE, uid=uid, status=status, origin=origin)

    first, beside = moved("a", 1000.0, 500.0), moved("b", 1001.0, 500.0)
    back, again = moved("c", 2000.0, 1500.0), moved("d", 4000.0, 3000.0)
    elsewhere = moved("e", 4000.0, 3000.0, "n2")
    jobs = [again, back, first, beside, elsewhere]
    assert count_returns(jobs) == {"a": 0, "b": 0, "c": 1, "d": 2, "e": 0}
    assert find_left_nodes(jobs, first.workload, 4000.0 + 4 * 1800.0 - 1, OURS) == {"n1"}
    assert find_left_nodes(jobs, first.workload, 4000.0 + 4 * 1800.0, OURS) == set()
    assert find_left_nodes([first], first.workload, 1000.0 + 1800.0, OURS) == set()
    assert isinstance(step(again, now=4000.0 + 1800.0, returns=2), Wait)
    assert step(again, now=4000.0 + 4 * 1800.0, returns=2) is Act.FORGET


JOBS = (JOB, RUNNING, CREATED, SCHEDULED, EVICTING, EVICTED, BOUND, DONE)
PLACES = st.none() | st.builds(
    SeenPlace,
    phase=st.sampled_from(PlacePhase),
    node=st.sampled_from(["n1", "n5"]),
    user=st.none() | st.just(USER),
    is_own=st.booleans(),
    problem=st.sampled_from(["", "small"]),
)
SEEN = st.builds(
    SeenCluster,
    now=st.sampled_from([1001.0, 1299.0, 1300.0, 1700.0, 9000.0]),
    pod_node=st.none() | st.just("n1"),
    is_leaving=st.booleans(),
    place=PLACES,
    is_evicting=st.booleans(),
    is_group_ready=st.booleans(),
    failed_group=st.sampled_from(["", "x"]),
    is_user_ready=st.none() | st.booleans(),
    is_asked=st.booleans(),
)


@given(
    st.sampled_from(JOBS),
    SEEN,
    st.sampled_from([OURS, COMPAT]),
    st.booleans(),
    st.sampled_from(["", "room"]),
)
@settings(max_examples=examples(500), deadline=None)
def test_nobody_is_to_be_evicted_without_a_place(
    job: MigrationJob,
    seen: SeenCluster,
    options: MigrationOptions,
    is_paused: bool,  # noqa: FBT001 - drawn
    reservation: str,
) -> None:
    job = replace(job, is_paused=is_paused, reservation=reservation)
    made, place = next_step(job, seen, options), seen.place
    if made is Act.RELEASE:
        assert place is not None
        assert place.is_own
        assert not seen.is_evicting
        may_evict = job.status.is_evicting and not seen.is_leaving and seen.pod_node is not None
        assert not may_evict or seen.now >= 1600.0, "it is written first that it is not evicted"
    if not isinstance(made, SetStatus):
        return
    new: JobStatus = made.status
    if new.is_evicting and not job.status.is_evicting:
        assert place is not None
        assert (place.phase, place.node, place.problem) == (PlacePhase.AVAILABLE, "n5", "")
        assert seen.pod_node == "n1"
        assert not is_paused
    if new.phase is JobPhase.SUCCEEDED:
        assert new.has(JobStep.EVICTION)
    assert not job.status.phase.is_over
