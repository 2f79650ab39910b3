"""What Jobs and other workloads stand for, why a Job has no pods, and pods that were evicted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.console import Console
from tests.builders import make_pod_group
from tests.cli.readings import NOW, make_reading

from koord.answers.explain import PlacementState
from koord.answers.reading import Target, TargetKind, TargetNotFoundError
from koord.cli.explain_view import _answer, _refuse_evicted, make_parts
from koord.cli.find_target import TargetLookup, find_target
from koord.core.model.gang_history import Episode
from koord.kube.errors import Forbidden, KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.model.gangs import ObservedPodGroup

GANG = "pod-group.scheduling.sigs.k8s.io"
PODS, JOBS, EVENTS = "/api/v1/pods", "/apis/batch/v1/jobs", "/api/v1/events"


class Server:
    """Answers with the objects of namespace ``a``; refuses what a test forbids."""

    def __init__(self, *objects: dict[str, Any], forbids: str = "") -> None:
        self.objects = objects
        self.forbids = forbids
        self.paths: list[str] = []

    async def get(self, path: str, of: Any, params: Mapping[str, str] | None = None) -> Any:
        self.paths.append(path)
        path = path.replace("/namespaces/a", "")
        if self.forbids and path.startswith(self.forbids):
            raise Forbidden(403, "Forbidden", "no")
        listed = [item for item in self.objects if path.startswith(item["path"])]
        if path not in {PODS, JOBS, EVENTS}:
            named = [
                item for item in listed if path == f"{item['path']}/{item['metadata']['name']}"
            ]
            if not named:
                raise NotFound(404, "NotFound", path)
            return msgspec.convert(named[0], of)
        kept = [item for item in listed if _is_selected(item, params or {})]
        return msgspec.convert({"items": kept}, of)


def _is_selected(item: dict[str, Any], params: Mapping[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    key, equals, value = params.get("labelSelector", "").partition("=")
    fields = dict(part.split("=") for part in params.get("fieldSelector", "").split(",") if part)
    is_labelled = not key or (labels.get(key) == value if equals else key in labels)
    name = item.get("involvedObject", {}).get("name")
    return (
        is_labelled
        and fields.get("reason") in {None, item.get("reason")}
        and fields.get("involvedObject.name") in {None, name}
    )


def time_at(ago: float) -> str:
    return datetime.fromtimestamp(NOW - ago, UTC).isoformat()


def pod(name: str, owner: str = "", *, phase: str = "Pending", **labels: str) -> dict[str, Any]:
    kind, _, owner_name = owner.partition("/")
    owners = [{"kind": kind, "name": owner_name, "controller": True}] if owner else []
    meta = {"name": name, "namespace": "a", "labels": labels, "ownerReferences": owners}
    return {"path": PODS, "metadata": meta, "spec": {}, "status": {"phase": phase}}


def job(name: str, *, age: float = 60.0, gang: str = "", **more: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "a", "creationTimestamp": time_at(age)} | more.pop(
        "meta", {}
    )
    conditions = [
        {"type": kind, "status": "True", "reason": reason, "message": "said"}
        for kind, reason in more.pop("conditions", {}).items()
    ]
    template = {"metadata": {"labels": {GANG: gang} if gang else {}}}
    spec = {"template": template, "suspend": more.pop("suspend", False)}
    return {
        "path": JOBS,
        "metadata": meta,
        "spec": spec,
        "status": {"conditions": conditions} | more,
    }


def event(name: str, reason: str = "Preempted") -> dict[str, Any]:
    return {
        "path": EVENTS,
        "metadata": {"name": f"{name}.1", "namespace": "a"},
        "involvedObject": {"name": name},
        "reason": reason,
        "message": "preempted for b/high.",
        "eventTime": time_at(180),
    }


def test_the_pods_of_a_workload_without_a_gang_are_named_that_have_no_node() -> None:
    owned = {"batch.kubernetes.io/job-name": "train"}
    there = [pod(f"train-{at}", "Job/train", **owned) for at in range(3)]
    there[1]["spec"] = {"nodeName": "n1"}
    lookup = find(Server(*there, pod("other")), TargetKind.JOB, "train")
    assert (lookup.target.name, lookup.pods) == ("train-0", ("train-0", "train-2"))


def find(server: Server, kind: TargetKind, name: str) -> TargetLookup:
    return asyncio.run(find_target(server, Target(kind, "a", name), NOW))  # type: ignore[arg-type]


def print_answer(lookup: TargetLookup, *groups: ObservedPodGroup) -> str:
    reading = make_reading(*groups) if groups else None
    console = Console(width=300)
    with console.capture() as capture:
        for part in make_parts(_answer(lookup, reading, NOW), NOW, None):
            console.print(part)
    return capture.get()


JOB = "batch.kubernetes.io/job-name"
HASH = "pod-template-hash"
OF_JOB = pod("x-1", "Job/x", **{JOB: "x"})


@pytest.mark.parametrize(
    ("kind", "pods", "target"),
    [
        (TargetKind.JOB, [OF_JOB], "Pod x-1"),
        (TargetKind.JOB, [pod("x-1", "Job/x", **{JOB: "x", GANG: "g"})], "PodGroup g"),
        (
            TargetKind.STATEFUL_SET,
            [
                pod("x-0", "StatefulSet/x", **{"statefulset.kubernetes.io/pod-name": "x-0"}),
                pod("w-0", "StatefulSet/w", **{"statefulset.kubernetes.io/pod-name": "w-0"}),
            ],
            "Pod x-0",
        ),
        (TargetKind.REPLICA_SET, [pod("x-1", "ReplicaSet/x", **{HASH: "5d"})], "Pod x-1"),
        (
            TargetKind.DEPLOYMENT,
            [
                pod("x-5d-1", "ReplicaSet/x-5d", **{HASH: "5d", GANG: "g"}),
                pod("x-y-5d-1", "ReplicaSet/x-y-5d", **{HASH: "5d"}),
            ],
            "PodGroup g",
        ),
    ],
)
def test_workloads_stand_for_the_gang_or_the_first_of_their_pods(
    kind: TargetKind, pods: list[dict[str, Any]], target: str
) -> None:
    server = Server(*pods)
    lookup = find(server, kind, "x")
    assert f"{lookup.target.kind} {lookup.target.name}" == target
    assert lookup.job is None
    assert len(server.paths) == 1, "no further reading while pods live"


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([job("train")], "there is no Job x in namespace a; there are: train"),
        ([job("xy")], "there is no Job x in namespace a; did you mean xy?"),
        ([], "there is no Job x in namespace a; there are none"),
    ],
)
def test_a_job_that_does_not_exist(objects: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(TargetNotFoundError) as raised:
        find(Server(*objects), TargetKind.JOB, "x")
    assert str(raised.value) == message


def test_workloads_without_pods_are_refused_with_similar_names() -> None:
    server = Server(pod("web-5d-1", "ReplicaSet/web-5d", **{HASH: "5d"}))
    with pytest.raises(TargetNotFoundError) as raised:
        find(server, TargetKind.DEPLOYMENT, "wep")
    assert str(raised.value).startswith("Deployment a/wep has no pods: it does not exist")
    assert str(raised.value).endswith("; did you mean web?")


def test_who_may_not_read_jobs_is_told_so() -> None:
    with pytest.raises(KubeError, match=r"you may not get jobs.batch \(the ClusterRole koord-user"):
        find(Server(job("x"), forbids=JOBS), TargetKind.JOB, "x")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (
            job("x", suspend=True),
            """Job a/x is suspended, so it has no pods.

What would help
  - To resume it: kubectl patch job -n a x -p '{"spec":{"suspend":false}}'
""",
        ),
        (
            job("x", suspend=True, meta={"labels": {"kueue.x-k8s.io/queue-name": "q"}}),
            "Kueue resumes it when its LocalQueue q admits it.",
        ),
        (
            job("x", suspend=True, meta={"annotations": {"scheduling.x-k8s.io/suspend": "true"}}),
            "koord-queue resumes it.",
        ),
        (
            job("x", conditions={"Failed": "BackoffLimitExceeded"}),
            "Job a/x Ended\n  Job a/x has failed: BackoffLimitExceeded: said.\n",
        ),
        (job("x", conditions={"Complete": ""}, succeeded=2), "is complete: 2 pods succeeded."),
        (job("x", age=2), "Job a/x is 2s old and has no pods yet: its controller creates them."),
        (job("x", age=300), "If that lasts, kubectl describe job -n a x says why."),
        (job("x", failed=2), "Job a/x has no pod that lives (0 succeeded, 2 failed)."),
    ],
)
def test_the_state_of_a_job_without_pods_is_the_answer(made: dict[str, Any], says: str) -> None:
    lookup = find(Server(made, pod("other", "Job/other", **{JOB: "other"})), TargetKind.JOB, "x")
    assert lookup.target.kind is TargetKind.JOB
    text = print_answer(lookup)
    assert says in text
    assert "not known from here" not in text


def test_a_failed_job_says_that_its_pods_were_evicted() -> None:
    made = job("x", age=300, conditions={"Failed": "BackoffLimitExceeded"})
    lookup = find(Server(made, event("x-1"), event("y-1")), TargetKind.JOB, "x")
    text = print_answer(lookup)
    assert "Of its pod x-1: it was preempted 3m ago: preempted for b/high." in text
    assert "Evicted pods count against backoffLimit, unless a podFailurePolicy ignores" in text
    assert "docs/recipes/job.md" in text
    lookup = find(Server(made, event("x-1"), forbids=EVENTS), TargetKind.JOB, "x")
    assert "Evicted pods" not in print_answer(lookup)


@pytest.mark.parametrize("more", [{"failed": 2}, {}])
def test_a_job_that_goes_on_says_that_its_pods_were_evicted(more: dict[str, Any]) -> None:
    server = Server(job("x", age=300, **more), event("x-1", "OverEntitlement"), event("y-1"))
    text = print_answer(find(server, TargetKind.JOB, "x"))
    assert "Of its pod x-1: it was reclaimed 3m ago: preempted for b/high." in text
    assert "Evicted pods count against backoffLimit, unless a podFailurePolicy ignores" in text
    server = Server(job("x", age=60, **more), event("x-1"))
    assert "x-1" not in print_answer(find(server, TargetKind.JOB, "x")), "of a Job before it"


def test_no_events_are_read_of_a_job_that_is_meant_to_have_no_pods() -> None:
    for made in (job("x", conditions={"Complete": ""}), job("x", suspend=True)):
        server = Server(made, event("x-1"))
        find(server, TargetKind.JOB, "x")
        assert not any(path.startswith(EVENTS) for path in server.paths)


def test_the_gang_that_the_template_names_is_the_answer() -> None:
    lookup = find(Server(job("x", gang="g", suspend=True)), TargetKind.JOB, "x")
    assert lookup.target == Target(TargetKind.POD_GROUP, "a", "g")
    text = print_answer(lookup, make_pod_group("a/g", 2).build())
    assert text.startswith("PodGroup a/g Waiting MissingMembers")
    assert "Job a/x is suspended, so it has no pods." in text
    assert "0 of 2 members of a/g present" in text
    assert "To resume it: kubectl patch" in text
    assert "Create 2 more" not in text
    other = print_answer(lookup, make_pod_group("a/other", 2).build())
    assert other.startswith("Job a/x Waiting"), "there is no such PodGroup"


def test_a_failed_job_of_an_evicted_gang() -> None:
    made = job("x", gang="g", conditions={"Failed": "BackoffLimitExceeded"})
    lookup = find(Server(made), TargetKind.JOB, "x")
    group = make_pod_group("a/g", 2).build()
    text = print_answer(lookup, group)
    assert "has failed" in text
    assert text.rstrip().endswith("- It makes no more pods: delete it and create it again.")
    assert "Evicted pods count" not in text
    episode = Episode(int(NOW - 60), "Preempted", "no room", "b/high")
    text = print_answer(lookup, replace(group, history=(episode,)))
    assert "Evicted pods count against backoffLimit" in text
    assert "60s ago it was Preempted: no room. For b/high." in text


def test_pods_that_have_ended_come_with_the_state_of_their_job() -> None:
    made = job("x", conditions={"Failed": "BackoffLimitExceeded"})
    ended = pod("x-1", "Job/x", phase="Failed", **{JOB: "x"})
    lookup = find(Server(made, ended), TargetKind.JOB, "x")
    assert lookup.target == Target(TargetKind.POD, "a", "x-1")
    assert lookup.job is not None
    assert lookup.job.standing is PlacementState.ENDED
    assert find(Server(ended), TargetKind.JOB, "x").job is None, "the Job may be deleted"


def test_a_pod_that_was_evicted_is_not_just_unknown() -> None:
    server, gone = Server(event("x-1", "OverEntitlement")), Target(TargetKind.POD, "a", "x-1")
    with pytest.raises(TargetNotFoundError) as raised:
        asyncio.run(_refuse_evicted(server, gone, NOW))  # type: ignore[arg-type]
    assert str(raised.value) == (
        "there is no Pod x-1 in namespace a: it was reclaimed 3m ago: preempted for b/high (event "
        "OverEntitlement)"
    )
    for silent in (Server(event("x-2")), Server(event("x-1"), forbids=EVENTS)):
        asyncio.run(_refuse_evicted(silent, gone, NOW))  # type: ignore[arg-type]
