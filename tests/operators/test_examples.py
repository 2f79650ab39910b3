"""The examples of gangs and quotas work as documented, and bad variants are rejected."""

import re
import shlex

import pytest
import yaml
from tests.operators.conftest import ROOT, Cluster
from tests.operators.test_devices import DEVICES, make_device

from koord_sandbox.errors import KubectlError, SandboxApiError

EXAMPLES = ROOT / "examples"
NAMES = (
    "elastic-quota",
    "gang-by-annotations",
    "gang-groups",
    "gpu-quota",
    "hp-training-job",
    "preemption",
    "quota-tree",
    "reservation",
    "training-job",
)
OF_DEVICES = {"gpu-quota"}
"""Their nodes report devices."""
PAGES = [EXAMPLES / name / "README.md" for name in NAMES]
COMMAND = re.compile(r"^\$ kubectl (.*)$", re.MULTILINE)
GROUPS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces"
LIST = ["namespaceA/podGroupA", "namespaceB/podGroupB"]


def run(cluster: Cluster, command: str) -> None:
    """Run a documented command in the namespace of the test."""
    words = shlex.split(command.replace("examples/", f"{EXAMPLES}/"))
    own = [] if "-n" in words or "gang-groups.yaml" in command else ["-n", cluster.namespace]
    timeout = ["--timeout=30s"] if words[0] == "wait" else []
    cluster.box.kubectl(*words, *own, *timeout)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.parent.name)
def test_example_works_as_documented(cluster: Cluster, page) -> None:
    nodes = cluster.add_nodes(2)
    for node in nodes if page.parent.name in OF_DEVICES else ():
        cluster.box.client.create(DEVICES, make_device(node))
    commands = COMMAND.findall(page.read_text(encoding="utf-8"))
    assert len(commands) > 1, "it applies something and waits for it"
    try:
        for command in commands:
            run(cluster, command)
    finally:
        run(cluster, commands[0].replace("apply", "delete --wait=false"))
        for node in nodes if page.parent.name in OF_DEVICES else ():
            cluster.box.client.delete(f"{DEVICES}/{node}")


def test_single_worker_does_not_start(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    text = (EXAMPLES / "hp-training-job/hp-training-job.yaml").read_text(encoding="utf-8")
    objects = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] != "hp-worker-2"]
    cluster.box.kubectl(
        "apply", "-n", cluster.namespace, "-f", "-", stdin=yaml.safe_dump_all(objects)
    )
    cluster.expect_pod("hp-worker-1", "MissingMembers")
    cluster.expect_group("hp-training-job", "MissingMembers")
    assert not cluster.bound()


def test_version_without_group_is_rejected(cluster: Cluster) -> None:
    body = {"apiVersion": "v1alpha1", "kind": "PodGroup", "metadata": {"name": "a"}}
    with pytest.raises(KubectlError, match="no matches for kind"):
        cluster.box.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))


@pytest.mark.parametrize(
    ("meta", "problem"),
    [
        ({"name": "podGroupA"}, "lowercase"),
        ({"name": "a", "annotations": {"gang.scheduling.koordinator.sh/groups": LIST}}, "string"),
    ],
)
def test_capitals_and_lists_are_rejected(cluster: Cluster, meta, problem: str) -> None:
    body = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"namespace": cluster.namespace, **meta},
        "spec": {"minMember": 1},
    }
    with pytest.raises(SandboxApiError, match=problem):
        cluster.box.client.create(f"{GROUPS}/{cluster.namespace}/podgroups", body)
