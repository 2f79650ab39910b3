"""PodGroups of scheduler-plugins and Volcano, which pods name: read where a site wants it."""

from typing import Any

import msgspec
import pytest
from tests.builders import make_pod
from tests.owners.frameworks import Jobs, reference

from koord.api.keys import operators
from koord.api.owner_kinds import WorkloadKind
from koord.core.model.pods import Pod
from koord.core.owners.plugin import OwnerOptions
from koord.domains.placement import PODS
from koord.domains.registry import make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WirePod

GPUS = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"nvidia.com/gpu": "8"}}
PLUGINS = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
VOLCANO = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
VERSIONS = {"scheduling.x-k8s.io": "v1alpha1", "scheduling.volcano.sh": "v1beta1"}


def make_kind(group: str) -> WorkloadKind:
    roles = "[{name: '', size: not_null(spec.minMember, `1`)}]"
    names = {"kind": "PodGroup", "plural": "podgroups", "gang": {"roles": roles}}
    return WorkloadKind.model_validate({"group": group, "version": VERSIONS[group], **names})


def make_group(group: str, least: Any) -> dict[str, Any]:
    version = f"{group}/{VERSIONS[group]}"
    meta = {"name": "g", "uid": "uid-of-the-object"}
    spec = {"minMember": least}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}


def read(name: str, metadata: dict[str, Any], namespace: str = "default") -> Pod:
    body = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", **metadata},
        "spec": {
            "schedulerName": "koord-scheduler",
            "schedulingGates": [{"name": operators.PLACEMENT_GATE}],
            "containers": [{"name": "c", "resources": GPUS}],
        },
        "status": {"phase": "Pending"},
    }
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    options = make_translator_options(TranslatorOptions(), OwnerOptions(is_on=True))
    return PODS.make_translator(options).translate(wire)


@pytest.mark.parametrize(
    ("group", "named"), [("scheduling.x-k8s.io", PLUGINS), ("scheduling.volcano.sh", VOLCANO)]
)
def test_pods_that_name_a_podgroup_start_together(group: str, named: dict[str, Any]) -> None:
    jobs = Jobs(own=(make_kind(group),))
    jobs.pods(read("g-0", named))
    assert jobs.step() == []
    assert jobs.why("g-0").code == "OwnerNotFound"
    jobs.own_objects(make_group(group, 2))
    assert jobs.step() == []
    jobs.pods(read("g-1", named))
    assert jobs.gang_name("g-1") == "podgroup:g"
    assert jobs.step() == ["g-0", "g-1"]


def test_a_site_that_does_not_want_it_has_single_pods() -> None:
    jobs = Jobs().pods(read("g-0", PLUGINS), read("g-1", VOLCANO))
    assert jobs.gang_of("g-0") == jobs.gang_of("g-1") == ""
    assert jobs.step() == ["g-0", "g-1"]


def test_an_owner_and_a_podgroup_of_ours_win_over_the_name() -> None:
    jobs = Jobs(own=(make_kind("scheduling.x-k8s.io"),))
    jobs.own_objects(make_group("scheduling.x-k8s.io", 2))
    train = {"apiVersion": "acme.example/v1", "kind": "Train", "metadata": {"name": "t"}}
    jobs.pods(read("t-0", {**PLUGINS, "ownerReferences": [reference(train)]}))
    assert jobs.gang_of("t-0") == ""
    jobs.pods(make_pod("w-0").gang("default/mine").gpu(8))
    assert jobs.gang_of("w-0") == "default/mine"


@pytest.mark.parametrize("least", [None, "two", -1, 10**9, {}])
def test_a_minimum_that_makes_no_sense_keeps_the_pods(least: Any) -> None:
    jobs = Jobs(own=(make_kind("scheduling.x-k8s.io"),))
    jobs.own_objects(make_group("scheduling.x-k8s.io", least))
    jobs.pods(read("g-0", PLUGINS))
    assert jobs.step() == (["g-0"] if least is None else [])


def test_a_name_joins_no_podgroup_of_another_namespace() -> None:
    jobs = Jobs(own=(make_kind("scheduling.x-k8s.io"),))
    jobs.own_objects(make_group("scheduling.x-k8s.io", 2))
    jobs.pods(read("g-0", PLUGINS), read("spy", PLUGINS, namespace="evil"))
    # Nor does a reference with what stands for its uid.
    forged = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup", "name": "g",
        "uid": "scheduling.x-k8s.io/default/g", "controller": True,
    }  # fmt: skip
    jobs.pods(read("liar", {"ownerReferences": [forged]}, namespace="evil"))
    assert jobs.step() == []
    keys = {pod.gang.key.partition("/")[0] for pod in jobs.state.pods.values() if pod.gang}
    assert keys == {"default", "evil"}
