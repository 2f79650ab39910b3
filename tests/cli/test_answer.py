"""The answer: reason, time, reported conditions, and what is unknown."""

from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_pods
from tests.cli.readings import SINCE, ask_gang, ask_pod, make_condition, make_reading

from koord.answers.explain import PlacementState
from koord.answers.reading import Extent, TargetNotFoundError
from koord.api.keys import operators
from koord.core.engine.reasons import InsufficientNodes
from koord.core.gang.reasons import GangCount, MissingMembers, MissingPodGroup
from koord.core.gang.status import ConditionType
from koord.core.model.gangs import GangPhase
from koord.core.model.pods import OwnerReference, Pod, PodPhase
from koord.core.model.reasons import RefusedByScheduler
from koord.domains.gang import POD_GROUPS
from koord.domains.placement import NODES, PODS
from koord.domains.quota import QUOTAS

A, B = "default/a", "default/b"
WAITING, PLACEABLE = PlacementState.WAITING, PlacementState.PLACEABLE


def make_gang(count: int, min_member: int, key: str = A, gpu: int = 0):
    namespace, name = key.split("/")
    pods = [
        make_pod(f"{namespace}/{'w' if key == A else name}-{i}").created(100.0 + i).gang(key)
        for i in range(count)
    ]
    return [
        make_pod_group(key, min_member).created(50.0).build(),
        *((pod.gpu(gpu) if gpu else pod).build() for pod in pods),
    ]


def test_the_message_equals_the_condition() -> None:
    answer = ask_pod(make_reading(*make_gang(2, 3)), "default/w-1")
    assert answer.standing is WAITING
    assert answer.reason is not None
    assert answer.reason.reason == MissingMembers((GangCount(A, 2, 3),))
    assert answer.reason.message == ("2 of 3 members of default/a present")
    assert answer.advice == ("Create 1 more member of default/a, or lower its minimum to 2.",)


def test_a_member_names_the_gang_it_waits_for() -> None:
    nodes = [make_node(f"n-{i}").gpu(8).build() for i in range(2)]
    answer = ask_pod(make_reading(*nodes, *make_gang(3, 3, gpu=8)))
    assert answer.reason is not None
    assert isinstance(answer.reason.reason, InsufficientNodes)
    assert answer.reason.message.endswith(" This pod only starts together with default/w-2.")
    assert [(offer.pods, offer.fit) for offer in answer.offers] == [(1, 2)]


def test_what_its_own_scheduler_says_of_a_released_pod_is_shown() -> None:
    message = "0/2 nodes are available: 1 node(s) had volume node affinity conflict."
    left = make_pod("w-0").gang(A).released("n-0", "p1", A, 2).not_ours().pinned()
    left = left._set(is_unschedulable=True, scheduler_message=message)
    runs = make_pod("w-1").gang(A).released("n-1", "p1", A, 2).running("n-1")
    reading = make_reading(make_pod_group(A, 2).build(), left.build(), runs.build())
    reason = RefusedByScheduler("default/w-0", "n-0", message)
    answer = ask_pod(reading)
    assert (answer.standing, answer.advice) == (WAITING, reason.advice())
    assert answer.reason is not None
    assert answer.reason.message.endswith(f"does not bind it: {message}")
    gang = ask_gang(reading)
    assert (gang.standing, gang.advice) == (PlacementState.DEGRADED, reason.advice())
    assert gang.reason is not None
    assert message in gang.reason.message
    assert not gang.add


def test_all_gangs_of_the_group_are_counted() -> None:
    groups = [
        make_pod_group(A, 2).group(A, B).build(),
        make_pod_group(B, 3).group(A, B).build(),
    ]
    members = [make_pod(f"w-{i}").gang(A).build() for i in range(2)]
    answer = ask_gang(make_reading(*groups, *members, make_pod("x-0").gang(B).build()))
    assert answer.gang is not None
    assert answer.gang.group == (GangCount(A, 2, 2), GangCount(B, 1, 3))
    assert answer.gang.members.present == 2


def test_a_gang_without_settings_has_no_counts() -> None:
    answer = ask_gang(make_reading(make_pod("w-0").gang(A).build()))
    assert answer.reason is not None
    assert answer.reason.reason == MissingPodGroup(A)
    assert answer.gang is not None
    assert answer.gang.group == ()
    assert not answer.is_reported_on


@pytest.mark.parametrize(
    ("conditions", "since", "reported"),
    [
        ([], "1970-01-01T00:01:40Z", None),
        ([make_condition(operators.PLACED, "False", "MissingMembers")], SINCE, "MissingMembers"),
        ([make_condition(operators.PLACED, "True", "Planned")], "1970-01-01T00:01:40Z", "Planned"),
        ([make_condition("PodScheduled", "False", "x")], "1970-01-01T00:01:40Z", None),
    ],
)
def test_a_pod_waits_since_its_condition_or_its_creation(conditions, since, reported) -> None:
    answer = ask_pod(make_reading(*make_gang(2, 3), conditions=conditions))
    assert answer.history.since == since
    assert (answer.history.reported and answer.history.reported.reason) == reported


INCOMPLETE = make_condition("QuorumReached", "False", "MissingMembers")
COMPLETE = make_condition("QuorumReached", "True", "Reached")
NO_PLACE = make_condition("Placed", "False", "InsufficientNodes")


@pytest.mark.parametrize(
    ("present", "conditions", "since", "reported"),
    [
        (2, [], "1970-01-01T00:00:50Z", None),
        (2, [INCOMPLETE, NO_PLACE], SINCE, "MissingMembers"),
        (2, [COMPLETE], "1970-01-01T00:00:50Z", "Reached"),
        (3, [COMPLETE], SINCE, "Reached"),
        (3, [COMPLETE, NO_PLACE], SINCE, "InsufficientNodes"),
    ],
)
def test_a_gang_waits_since_the_matching_condition(present, conditions, since, reported) -> None:
    answer = ask_gang(make_reading(*make_gang(present, 3), conditions=conditions))
    assert answer.standing is WAITING
    assert answer.history.since == since
    assert (answer.history.reported and answer.history.reported.reason) == reported


@pytest.mark.parametrize(
    ("status", "code", "nodes", "standing"),
    [
        ("False", "BindFailed", 1, PlacementState.HELD_UP),
        ("False", "NodeLocked", 1, PlacementState.HELD_UP),
        ("False", "InsufficientNodes", 1, PlacementState.PLACEABLE),
        ("False", "BindFailed", 0, WAITING),
    ],
)
def test_rejected_writes_make_a_pod_held_up(status, code, nodes, standing) -> None:
    objects = (*make_gang(2, 2), *(make_node(f"n-{at}").build() for at in range(nodes)))
    gang = make_condition("Placed", status, code)
    assert ask_gang(make_reading(*objects, conditions=[gang])).standing is standing
    pod = make_condition(operators.PLACED, status, code)
    assert ask_pod(make_reading(*objects, conditions=[pod])).standing is standing


def test_a_gang_that_runs() -> None:
    pods = [make_pod(f"w-{i}").gang(A).released("n", "p1", A, 2).running("n") for i in range(2)]
    bound = make_condition("Bound", "True", "AllBound")
    node = make_node("n").build()
    group = make_pod_group(A, 2).build()
    reading = make_reading(node, group, *(pod.build() for pod in pods), conditions=[bound])
    answer = ask_gang(reading)
    assert (answer.standing, answer.history.since) == (PlacementState.NOTHING_WAITS, SINCE)
    assert answer.gang is not None
    assert (answer.gang.plan_id, answer.gang.nodes) == ("p1", ("n",))


@pytest.mark.parametrize(
    ("phases", "standing"),
    [
        ((PodPhase.SUCCEEDED, PodPhase.SUCCEEDED), PlacementState.ENDED),
        ((PodPhase.SUCCEEDED, PodPhase.FAILED), PlacementState.WAITING),
    ],
)
def test_a_gang_that_has_done_its_work_does_not_wait(
    phases: tuple[PodPhase, ...], standing: PlacementState
) -> None:
    pods = [
        replace(
            make_pod(f"w-{at}").gang(A).released("n", "p1", A, 2).running("n").build(), phase=phase
        )
        for at, phase in enumerate(phases)
    ]
    node, group = make_node("n").build(), make_pod_group(A, 2).build()
    answer = ask_gang(make_reading(node, group, *pods))
    assert answer.standing is standing
    assert (answer.reason is None) is (standing is PlacementState.ENDED)


def test_a_bound_pod_has_a_node_a_time_and_a_plan() -> None:
    pod = make_pod("w-0").released("n-1", "p1", A, 4).running("n-1").build()
    scheduled = make_condition("PodScheduled", "True", "")
    answer = ask_pod(make_reading(pod, conditions=[scheduled]))
    assert (answer.standing, answer.history.since) == (PlacementState.BOUND, SINCE)
    assert answer.place is not None
    assert (answer.place.node, answer.place.plan_id) == ("n-1", "p1")
    assert answer.place.is_bound


def test_a_plan_for_another_node_did_not_place_the_pod() -> None:
    pod = make_pod("w-0").released("n-1", "p1").running("n-2").build()
    place = ask_pod(make_reading(pod)).place
    assert place is not None
    assert (place.node, place.plan_id) == ("n-2", "")


def test_a_foreign_pod_gets_the_missing_yaml() -> None:
    reading = make_reading(
        make_pod("w-0").not_ours().build(),
        scheduler="default-scheduler",
        owners=("ReplicaSet/web-1",),
    )
    answer = ask_pod(reading)
    assert answer.standing is PlacementState.NOT_OURS
    assert "so default-scheduler places it" in answer.advice[0]
    assert "ReplicaSet/web-1" in answer.advice[1]
    assert answer.add.splitlines() == [
        "spec:",
        "  schedulerName: koord-scheduler",
        "  schedulingGates:",
        "    - name: operators.koordinator.sh/placement",
    ]
    assert not answer.is_reported_on


def test_a_pod_released_for_another_scheduler_gets_no_yaml() -> None:
    answer = ask_pod(make_reading(make_pod("w-0").released("n-1", "p1").not_ours().build()))
    assert answer.standing is PlacementState.NOT_OURS
    assert answer.add == ""
    assert answer.place is not None
    assert not answer.place.is_bound


@pytest.mark.parametrize(
    "pod", [make_pod("w-0").phase(PodPhase.SUCCEEDED), make_pod("w-0").terminating()]
)
def test_a_pod_that_has_ended(pod) -> None:
    answer = ask_pod(make_reading(pod.build()))
    assert (answer.standing, answer.reason) == (PlacementState.ENDED, None)


# What may not be read is not made up.


def test_without_nodes_room_is_unknown() -> None:
    answer = ask_pod(make_reading(make_pod("w-0").build(), gaps={NODES: Extent.NOTHING}))
    assert (answer.standing, answer.reason, answer.offers) == (WAITING, None, ())
    assert answer.advice == ()
    (warning,) = answer.warnings
    assert "you may not list nodes" in warning
    assert "koord-user" in warning


def test_without_nodes_missing_members_are_still_reported() -> None:
    answer = ask_pod(make_reading(*make_gang(2, 3), gaps={NODES: Extent.NOTHING}))
    assert answer.reason is not None
    assert answer.reason.reason.code == MissingMembers.code
    assert answer.offers == ()


def test_without_pods_of_other_namespaces_there_is_a_warning() -> None:
    gaps = {PODS: Extent.NAMESPACE}
    answer = ask_pod(make_reading(make_node("n").build(), make_pod("w-0").build(), gaps=gaps))
    assert answer.standing is PLACEABLE
    (warning,) = answer.warnings
    assert warning == (
        "you may not list pods of other namespaces (the ClusterRole koord-user has it): what these "
        "use is not known"
    )


def test_all_missing_rights_are_one_line() -> None:
    gaps = {
        NODES: Extent.NOTHING,
        PODS: Extent.NAMESPACE,
        POD_GROUPS: Extent.NAMESPACE,
        QUOTAS: Extent.NAMESPACE,
    }
    answer = ask_pod(make_reading(make_pod("w-0").build(), gaps=gaps))
    (warning,) = answer.warnings
    assert warning == (
        "you may read namespace default only (the ClusterRole koord-user shows more): what is said "
        "of nodes, quotas and others is what the operators reported"
    )


def test_without_podgroups_none_is_reported_missing() -> None:
    reading = make_reading(make_pod("w-0").gang(A).build(), gaps={POD_GROUPS: Extent.NOTHING})
    answer = ask_pod(reading)
    assert (answer.standing, answer.reason, answer.gang) == (WAITING, None, None)
    assert "you may not list podgroups" in answer.warnings[0]


def test_a_cluster_without_the_kind_has_no_podgroups() -> None:
    reading = make_reading(make_pod("w-0").gang(A).build(), gaps={POD_GROUPS: Extent.NOT_SERVED})
    assert ask_pod(reading).warnings == ()
    answer = ask_gang(reading)
    assert answer.reason is not None
    assert answer.reason.reason == MissingPodGroup(A)
    assert "PodGroups are not installed" in answer.warnings[0]


@pytest.mark.parametrize("resource", [PODS, POD_GROUPS])
def test_gangs_of_unreadable_namespaces_are_not_reported_short(resource) -> None:
    other = "other/b"
    groups = [
        make_pod_group(A, 1).group(A, other).build(),
        make_pod_group(other, 1).group(A, other).build(),
    ]
    pod = make_pod("w-0").gang(A).build()
    answer = ask_pod(make_reading(*groups, pod, gaps={resource: Extent.NAMESPACE}))
    assert answer.reason is None
    unseen = make_pod_group(A, 1).group(A, other).build()
    answer = ask_pod(make_reading(unseen, pod, gaps={resource: Extent.NAMESPACE}))
    assert answer.reason is None


def test_gangs_of_readable_namespaces_are_reported_short() -> None:
    other = "other/b"
    groups = [
        make_pod_group(A, 2).group(A, other).build(),
        make_pod_group(other, 1).group(A, other).build(),
    ]
    pod = make_pod("w-0").gang(A).build()
    answer = ask_pod(make_reading(*groups, pod, gaps={PODS: Extent.NAMESPACE}))
    assert answer.reason is not None
    assert answer.reason.reason == MissingMembers((GangCount(A, 1, 2),))


def test_invalid_objects_are_counted() -> None:
    rejected = {"x/b": "bad", "x/a": "worse"}
    answer = ask_pod(make_reading(make_pod("w-0").build(), rejected=rejected))
    assert answer.warnings == ("2 invalid objects are left out; the first is x/a: worse",)


# What is not there.


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            "default/worker0",
            "there is no Pod worker0 in namespace default; did you mean worker-0 or worker-1?",
        ),
        (
            "default/Worker-2",
            "there is no Pod Worker-2 in namespace default; did you mean worker-1 or worker-0?",
        ),
        ("other/worker-1", "there is no Pod worker-1 in namespace other; there is one in default"),
        ("other/quite-different", "there is no Pod quite-different in namespace other"),
    ],
)
def test_a_missing_pod(key, message) -> None:
    reading = make_reading(*make_pods("worker", 2))
    with pytest.raises(TargetNotFoundError) as caught:
        ask_pod(reading, key)
    assert str(caught.value) == message


def test_a_missing_podgroup() -> None:
    with pytest.raises(TargetNotFoundError, match=r"no PodGroup trian in .* did you mean train\?"):
        ask_gang(make_reading(make_pod_group("default/train").build()), "default/trian")
    gaps = {POD_GROUPS: Extent.NOT_SERVED}
    with pytest.raises(TargetNotFoundError, match=r"apply --server-side -f crds/"):
        ask_gang(make_reading(gaps=gaps))


def test_an_invalid_target_is_not_reported_missing() -> None:
    reading = make_reading(rejected={"default/w-0": "cpu is no quantity"})
    with pytest.raises(
        TargetNotFoundError, match="default/w-0 cannot be understood: cpu is no quantity"
    ):
        ask_pod(reading)


def test_free_gpus_are_listed_by_node() -> None:
    nodes = [make_node("big").gpu(8).build(), make_node("small").gpu(2).build()]
    (offers,) = ask_pod(make_reading(*nodes, make_pod("w-0").gpu(4).build())).offers
    assert [(offer.node, offer.pods, offer.short) for offer in offers.nodes] == [
        ("big", 2, ()),
        ("small", 0, ((GPU, 4, 2),)),
    ]


def test_a_gang_below_its_minimum_is_degraded_and_says_what_its_members_wait_for() -> None:
    group = make_pod_group(A, min_member=2).phase(GangPhase.RUNNING).build()
    started = make_pod("a-0").gang(A).gpu(1).released("n0", "p1", A, 2, 2).running("n0").build()
    lost = make_pod("a-1").gang(A).gpu(1).build()
    node = make_node("n0").gpu(1).build()
    degraded = make_condition(ConditionType.DEGRADED, "True", "BelowMin")
    answer = ask_gang(make_reading(node, group, started, lost, conditions=[degraded]))
    assert answer.standing is PlacementState.DEGRADED
    assert answer.reason is not None
    assert answer.waits is not None
    codes = (answer.reason.reason.code, answer.waits.reason.code)
    assert codes == ("BelowMin", "InsufficientNodes")
    assert answer.history.since == SINCE


def make_below(*more_members: Pod):
    group = make_pod_group(A, min_member=2).phase(GangPhase.RUNNING).build()
    left = make_pod("a-0").gang(A).gpu(1).released("n0", "p1", A, 2, 2).running("n0")
    job = OwnerReference("train", "Job", is_controller=True)
    node = make_node("n0").gpu(1).build()
    return make_reading(node, group, left._set(owners=(job,)).build(), *more_members)


def test_the_owner_is_expected_to_replace_lost_members() -> None:
    answer = ask_gang(make_below())
    assert answer.standing is PlacementState.DEGRADED
    assert answer.advice == (
        "Job train is expected to create 1 member again.",
        "If that does not happen, see why: kubectl describe job -n default train",
    )


def test_replacements_that_wait_need_no_owner() -> None:
    answer = ask_gang(make_below(make_pod("a-1").gang(A).gpu(1).build()))
    assert answer.waits is not None
    assert answer.waits.reason.code == "InsufficientNodes"
    assert not any("expected to create" in sentence for sentence in answer.advice)
