"""What a pod writes about itself spares it only at a price, or where it has the right."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import FakeCluster, make_cluster, make_unit
from tests.objects import upsert_namespace
from tests.support.plan_keys import make_keys, sign_plan

from koord.api.keys.preemption import ALLOW_DISABLE_PREEMPTIBLE
from koord.core.engine.member_holds import priority_of
from koord.core.eviction.model import Preemption
from koord.core.eviction.protection import ALLOWED_IN, has_paid
from koord.core.eviction.search import plan_preemption
from koord.core.model.pods import Handling, OwnerReference, Pod
from koord.core.quota.model import SYSTEM
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WirePod

PAID: dict[str, Any] = {"is_non_preemptible": True, "quota": "q"}


def make_full() -> FakeCluster:
    """One node with 8 GPUs; quota ``q`` is guaranteed all of them."""
    return make_cluster().nodes(make_node("n").gpu(8)).quotas(make_quota("q", min={GPU: 8}))


def run(cluster: FakeCluster, name: str = "low", gpus: int = 8, gang: str = "", **more: Any) -> Pod:
    """Let a pod run that we have placed."""
    made = make_pod(name).gpu(gpus)
    placed = (made.gang(gang) if gang else made).released("n", "p", gang).running("n").build()
    pod = replace(placed, **more)
    cluster.pods(pod)
    return pod


def is_preempted(cluster: FakeCluster) -> bool:
    unit = make_unit("urgent", [make_pod("urgent").gpu(8).priority(10)])
    return isinstance(plan_preemption(cluster.state, unit), Preemption)


@pytest.mark.parametrize(
    "more",
    [
        {"owners": (OwnerReference("d", kind, "apps/v1", "uid", True),)}
        for kind in ("DaemonSet", "Node", "ReplicaSet", "Job", "StaticPod")
    ]
    + [
        {"is_protected": True},
        {"is_non_preemptible": True},
        {"is_non_preemptible": True, "quota": "no-such-quota"},
        {"is_non_preemptible": True, "quota": "counts-no-gpus"},
        {"is_non_preemptible": True, "quota": SYSTEM},
        {**PAID, "recorded": None},
    ],
    ids=str,
)
def test_claims_of_a_pod_about_itself_spare_nobody(more: dict[str, Any]) -> None:
    cluster = make_full().quotas(make_quota("counts-no-gpus", min={"cpu": 1000}))
    run(cluster, **more)
    assert is_preempted(cluster)


def test_a_guarantee_pays_for_the_label() -> None:
    cluster = make_full()
    run(cluster, **PAID)
    assert not is_preempted(cluster)


def test_the_label_of_a_namespace_gives_the_right() -> None:
    assert ALLOWED_IN == ALLOW_DISABLE_PREEMPTIBLE
    cluster = make_full()
    run(cluster, is_protected=True)
    upsert_namespace(cluster.state, "default", {ALLOWED_IN: "true"})
    assert not is_preempted(cluster)
    upsert_namespace(cluster.state, "default", {ALLOWED_IN: "no"})
    assert is_preempted(cluster)


def make_gang(cluster: FakeCluster, *members: dict[str, Any]) -> None:
    cluster.pod_groups(make_pod_group("default/g", len(members)))
    for at, more in enumerate(members):
        run(cluster, f"m{at}", 8 // len(members), "default/g", **more)


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_gang_is_spared_if_all_its_members_have_paid(is_whole: bool) -> None:  # noqa: FBT001
    cluster = make_full()
    make_gang(cluster, PAID, PAID if is_whole else {})
    assert is_preempted(cluster) is not is_whole
    assert (priority_of("default/g", cluster.state) == float("inf")) is is_whole


def test_a_member_of_another_scheduler_does_not_keep_a_gang() -> None:
    cluster = make_full()
    make_gang(cluster, {}, {})
    run(cluster, "guard", 0, "default/g", recorded=None, handling=Handling.NOT_OURS)
    assert is_preempted(cluster)
    assert priority_of("default/g", cluster.state) == 0


@pytest.mark.parametrize(
    ("plan", "label", "is_fixed"),
    [
        ('{"node":"n","plan":"p","fixed":true}', "false", True),
        ('{"node":"n","plan":"p","fixed":true}', "true", False),
        ('{"node":"n","plan":"p","fixed":false}', "false", False),
        ('{"node":"n","plan":"p"}', "false", True),  # of an earlier release
        ("", "false", True),  # it waits
    ],
)
def test_a_label_that_a_pod_gets_when_it_runs_is_late(
    plan: str,
    label: str,
    is_fixed: bool,  # noqa: FBT001
) -> None:
    annotations = sign_plan("u", plan) if plan else {}
    labels = {"quota.scheduling.koordinator.sh/preemptible": label}
    meta = {"name": "p", "namespace": "d", "uid": "u", "labels": labels, "annotations": annotations}
    body = {"metadata": meta, "spec": {"containers": [], "schedulerName": "koord-scheduler"}}
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    pod = make_pod_translator(TranslatorOptions(plans=make_keys())).translate(wire)
    assert (pod.recorded is not None) is bool(plan)
    assert pod.is_non_preemptible is is_fixed


@pytest.mark.parametrize(
    ("least", "most", "is_spared"),
    [
        ({GPU: 8}, {GPU: 8}, True),
        ({GPU: 8, "cpu": 4000}, {GPU: 8, "cpu": 8000}, True),
        ({"cpu": 4000}, {GPU: 8, "cpu": 8000}, False),
        ({"cpu": 4000}, {"cpu": 8000}, False),
        ({GPU: 8}, {GPU: 8, "cpu": 8000}, False),
    ],
)
def test_what_is_guaranteed_pays_for_nothing_else(
    least: Any, most: Any, *, is_spared: bool
) -> None:
    """A pod with 8 GPUs and a little CPU; of both, what ``max`` limits or is scarce has a price."""
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.quotas(make_quota("q", min=least, max=most))
    shape = make_pod("like").gpu(8).requests(cpu=1).build().shape
    pod = run(cluster, shape=shape, **PAID)
    assert has_paid(cluster.state.quotas, pod) is is_spared


@pytest.mark.parametrize(("least", "goes"), [({"cpu": 4000, GPU: 0}, True), ({GPU: 8}, False)])
def test_a_little_cpu_that_is_guaranteed_keeps_no_gpus(least: Any, *, goes: bool) -> None:
    cluster = make_cluster().nodes(make_node("n").gpu(8))
    cluster.quotas(make_quota("q", min=least, max={GPU: 16, "cpu": 8000}))
    run(cluster, shape=make_pod("like").gpu(8).requests(cpu=1).build().shape, quota="q")
    assert is_preempted(cluster) is goes
