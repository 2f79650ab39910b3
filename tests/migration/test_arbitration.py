"""Which jobs start: the order, the limits, groups, and what is never exceeded."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.laws import examples

from koord.core.migration.arbitration import (
    Answer,
    MigratingGang,
    MigrationCandidate,
    Verdict,
    arbitrate,
)
from koord.core.migration.model import (
    JobPhase,
    JobReason,
    JobStatus,
    MigrationJob,
    MigrationOptions,
    MovedPod,
    MoveOrigin,
    PodReference,
)
from koord.core.migration.rate import wait_until
from koord.core.migration.workload import Workload
from koord.core.model.pods import OwnerReference


def make_pod(
    name: str, node: str = "n1", *, owner: str = "web", kind: str = "ReplicaSet", **fields: object
) -> MovedPod:
    owners = (OwnerReference(owner, kind, "apps/v1", f"uid-{owner}", is_controller=True),)
    pod = MovedPod("ml", name, f"uid-{name}", node=node, owners=owners, is_ours=True)
    return replace(pod, **fields)  # type: ignore[arg-type]


def make_job(pod: MovedPod, created: float = 0.0, group: str = "", size: int = 1) -> MigrationJob:
    reference = PodReference(pod.namespace, pod.name, pod.uid)
    return MigrationJob(
        f"job-{pod.name}", f"job-{pod.name}", reference, created, group=group, group_size=size
    )


def started(pod: MovedPod) -> MigrationJob:
    running = JobStatus(JobPhase.RUNNING)
    origin = MoveOrigin(pod.node, pod.workload, pod.gang)
    return replace(make_job(pod), is_admitted=True, status=running, origin=origin)


def candidate(pod: MovedPod, replicas: int = 6, created: float = 0.0) -> MigrationCandidate:
    return MigrationCandidate(make_job(pod, created), pod, Workload(pod.workload, "web", replicas))


def answers(
    candidates: list[MigrationCandidate],
    active: tuple[MigrationJob, ...] = (),
    options: MigrationOptions = MigrationOptions(),  # noqa: B008 - a frozen value
) -> list[tuple[str, Answer]]:
    verdicts = arbitrate(candidates, active, options)
    return [(uid.removeprefix("job-"), verdict.answer) for uid, verdict in verdicts.items()]


def test_the_order_and_the_limit_of_a_node() -> None:
    """Batch first, then the younger of two alike; a node loses two at once."""
    pods = [
        make_pod("web-1", created=1.0),
        make_pod("web-2", created=2.0),
        make_pod("batch-1", owner="batch", labels={"koordinator.sh/priority-class": "koord-batch"}),
    ]
    assert answers([candidate(pod) for pod in pods]) == [
        ("batch-1", Answer.START),
        ("web-2", Answer.START),
        ("web-1", Answer.WAIT),
    ]


def test_pods_of_others_who_name_the_same_controller_use_up_no_limit() -> None:
    """Owners are what a tenant writes: only in its own namespace do they count."""
    theirs = make_pod("web-1", node="n1")
    liar = replace(make_pod("liar", node="n2"), namespace="evil", evicts_protected=True)
    assert answers([candidate(theirs, 3)], (started(liar),)) == [("web-1", Answer.START)]
    assert answers([candidate(theirs, 3)], (started(make_pod("web-2", node="n2")),)) == [
        ("web-1", Answer.WAIT)
    ]


def test_pods_of_others_who_name_a_job_that_is_moved_go_before_nobody() -> None:
    begun = started(make_pod("a-0", owner="a", kind="Job"))
    liar = make_pod("liar", owner="a", kind="Job", namespace="evil", priority=9)
    other = make_pod("b-0", owner="b", kind="Job")
    verdicts = arbitrate([candidate(liar), candidate(other)], (begun,), MigrationOptions())
    assert list(verdicts) == ["job-b-0", "job-liar"]


def test_a_job_whose_pod_is_not_there_fails_and_starts_nothing() -> None:
    """Thousands of them must not hold up the others, each with a write that it starts."""
    here = candidate(make_pod("web-1"))
    lost = [MigrationCandidate(make_job(make_pod(f"lost-{at}"))) for at in range(3)]
    verdicts = arbitrate([*lost, here], (), MigrationOptions())
    text = "ml/lost-0: there is no such pod"
    assert verdicts["job-lost-0"] == Verdict(Answer.FORBID, text, JobReason.MISSING_POD)
    assert verdicts["job-web-1"].answer is Answer.START


def test_more_jobs_of_a_node_than_may_move_at_once_are_moved_one_after_the_other() -> None:
    """koordinator 1150: jobs that waited counted as moving, and none ever started."""
    pods = [make_pod(f"p{at}", owner=f"w{at}") for at in range(10)]
    done: list[MovedPod] = []
    for _ in range(5):
        waiting = [candidate(pod) for pod in pods if pod not in done]
        begun = [name for name, answer in answers(waiting) if answer is Answer.START]
        assert len(begun) == 2
        moving = [pod for pod in pods if pod.name in begun]
        others = [candidate(pod) for pod in pods if pod not in done and pod not in moving]
        active = tuple(map(started, moving))
        assert all(answer is Answer.WAIT for _, answer in answers(others, active))
        done += moving
    assert len(done) == 10


def test_what_forbids_a_move_is_told_with_the_numbers_that_were_written() -> None:
    """koordinator 2699: 100 % of one replica was told as none."""
    all_of_one = MigrationOptions(most_per_workload="100%", most_unavailable="100%")
    (verdict,) = arbitrate([candidate(make_pod("only"), 1)], (), all_of_one).values()
    assert verdict.text.startswith("rule 11 (ExpectedReplicas): web has 1 replicas")
    assert "of which 1 may be moved and 1 be away at once" in verdict.text


def test_what_a_job_has_begun_is_finished_first_and_its_pods_are_moved_together() -> None:
    kinds = {"a": "Job", "b": "Job"}
    pods = [
        make_pod(f"{o}-{at}", f"n{o}{at}", owner=o, kind=kinds[o]) for o in "ab" for at in (1, 2)
    ]
    others = [replace(pods[1], created=-9.0), *pods[:1], *pods[2:]]
    order = [name for name, _ in answers([candidate(pod) for pod in others])]
    assert order == ["a-1", "a-2", "b-1", "b-2"]
    moved = started(make_pod("b-3", "n9", owner="b", kind="Job"))
    order = [name for name, _ in answers([candidate(pod) for pod in others], (moved,))]
    assert order == ["b-1", "b-2", "a-1", "a-2"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (MigrationOptions(most_globally=1), "MaxMigratingGlobally: 1 of 1 in all"),
        (MigrationOptions(most_per_node=1), "MaxMigratingPerNode: 1 of 1 of node n1"),
        (MigrationOptions(most_per_namespace=1), "MaxMigratingPerNamespace: 1 of 1 of namespace"),
        (MigrationOptions(most_per_workload="1"), "MaxMigratingPerWorkload: 1 of 1"),
        (MigrationOptions(most_unavailable="1"), "MaxUnavailablePerWorkload: 1 of 1"),
        (MigrationOptions(most_per_node=0), "MaxMigratingPerNode: 1 of 0"),
    ],
)
def test_limits_are_told_with_their_numbers(options: MigrationOptions, text: str) -> None:
    verdicts = arbitrate([candidate(make_pod("w2"))], [started(make_pod("w1"))], options)
    verdict = verdicts["job-w2"]
    assert verdict.answer is Answer.WAIT
    assert verdict.text.startswith(text)


def test_jobs_of_a_group_start_together_or_wait_for_each_other() -> None:
    gang = MigratingGang("ml/train", frozenset({"uid-t1", "uid-t2", "uid-t3"}), least=3)
    pods = [make_pod(f"t{at}", owner="train", gang="ml/train") for at in (1, 2, 3)]
    units = [
        MigrationCandidate(
            make_job(pod, group="train", size=3), pod, Workload("t", "Job train", 3), gang
        )
        for pod in pods
    ]
    assert {answer for _, answer in answers(units[:2])} == {Answer.WAIT}
    assert {answer for _, answer in answers(units)} == {Answer.START}
    for_two = [replace(unit, job=replace(unit.job, group_size=2)) for unit in units[:2]]
    verdict = arbitrate(for_two, (), MigrationOptions())["job-t1"]
    assert verdict == Verdict(
        Answer.FORBID,
        "1 members of the gang ml/train would go on, which needs 3: "
        "it moves as a whole or not at all",
    )


def test_a_member_moves_alone_only_if_its_gang_goes_on() -> None:
    gang = MigratingGang("ml/train", frozenset({"uid-t1", "uid-t2", "uid-t3"}), least=2)
    pods = [make_pod(f"t{at}", f"n{at}", owner="train", gang="ml/train") for at in (1, 2)]
    units = [
        MigrationCandidate(make_job(pod), pod, Workload("t", "Job t", 9), gang) for pod in pods
    ]
    assert [answer for _, answer in answers(units)] == [Answer.START, Answer.FORBID]


def test_a_rate_per_workload_is_told_from_past_moves() -> None:
    """Two in five minutes, one at once: the next tokens come after 150 s each."""
    assert wait_until([], 2, 300.0, 1, 0.0) == 0.0
    assert wait_until([0.0], 2, 300.0, 1, 10.0) == pytest.approx(150.0)
    assert wait_until([0.0], 2, 300.0, 1, 150.0) == 150.0
    assert wait_until([0.0, 150.0], 2, 300.0, 1, 151.0) == pytest.approx(300.0)
    assert wait_until([0.0, 0.0], 2, 300.0, 3, 0.0) == 0.0
    assert wait_until([0.0] * 3, 2, 300.0, 3, 0.0) == pytest.approx(150.0)


@given(st.data())
@settings(max_examples=examples(100), deadline=None)
def test_limits_hold_whatever_comes(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 14))
    pods = [
        make_pod(f"p{at}", f"n{data.draw(st.integers(0, 2))}", owner=f"w{at % 3}")
        for at in range(count)
    ]
    split = data.draw(st.integers(0, count))
    replicas = data.draw(st.integers(0, 12))
    unready = frozenset(pod.uid for pod in pods if data.draw(st.booleans()))
    workloads = {
        f"uid-w{at}": Workload(
            f"uid-w{at}",
            f"w{at}",
            replicas,
            frozenset(pod.uid for pod in pods if pod.workload == f"uid-w{at}") & unready,
        )
        for at in range(3)
    }
    units = [
        MigrationCandidate(make_job(pod), pod, workloads[pod.workload]) for pod in pods[split:]
    ]
    active = [started(pod) for pod in pods[:split]]
    verdicts = arbitrate(units, active, MigrationOptions(most_globally=5))
    begun = [pod for pod in pods[split:] if verdicts[f"job-{pod.name}"].answer is Answer.START]
    assert not begun or split + len(begun) <= 5
    before = Counter(pod.node for pod in pods[:split])
    for node, new in Counter(pod.node for pod in begun).items():
        assert before[node] + new <= 2
    for uid, workload in workloads.items():
        moved = {pod.uid for pod in begun if pod.workload == uid}
        if moved:
            most = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
            others = {pod.uid for pod in pods[:split] if pod.workload == uid}
            before_it = workload.unready | others
            assert len(before_it | moved) <= max(most, len(before_it))
