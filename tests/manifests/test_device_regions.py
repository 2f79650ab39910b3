"""The overlay ``device-regions``: a folder for each container. No container runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.conftest import MANIFESTS, load_all
from tests.manifests.test_devices_overlay import HALF, Namespace, make_pod, read_env
from tests.manifests.waiting import wait_for
from tests.support.namespaces import empty

from koord.agent.regions import _FOLDER
from koord.core.device.vendors import HAMI_CORE, ISOLATION_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

OVERLAY = MANIFESTS / "overlays/device-regions"
PATH = "/usr/local/vgpu/containers"
VOLUME = "koord-regions"
LIMITED = {ISOLATION_LABEL: HAMI_CORE}


def limited(**container: Any) -> dict[str, Any]:
    pod = make_pod(HALF, labels=LIMITED)
    pod["spec"]["containers"][1] |= container
    return pod


@pytest.fixture(scope="module")
def namespace(guarded: Sandbox) -> Iterator[Namespace]:
    guarded.kubectl("apply", "-f", str(OVERLAY / "policy.yaml"))
    made = Namespace(guarded)
    foreign = {"name": "KOORD_POD_UID", "value": "x"}
    wait_for(lambda: PATH in str(made.admit(limited())), "the policy that adds in force")
    wait_for(lambda: made.refuses(make_pod({}, env=[foreign])), "the other, too")
    yield made
    guarded.kubectl("delete", "-f", str(OVERLAY / "policy.yaml"))
    wait_for(lambda: PATH not in str(made.admit(limited())), "no policy in force any more")
    empty(guarded.client, made.name)


def test_each_container_has_a_folder_that_the_agent_knows(namespace: Namespace) -> None:
    spec = namespace.admit(limited())
    (volume,) = (one for one in spec["volumes"] if one["name"] == VOLUME)
    assert volume["hostPath"]["path"] == PATH
    for container in spec["containers"]:
        env = read_env(container)
        assert env["KOORD_POD_UID"] == "metadata.uid"
        (mount,) = (one for one in container["volumeMounts"] if one["name"] == VOLUME)
        assert env["CUDA_DEVICE_MEMORY_SHARED_CACHE"].startswith(f"{mount['mountPath']}/")
        assert env["CUDA_DEVICE_MEMORY_SHARED_CACHE"].endswith(".cache")
        folder = mount["subPathExpr"].replace("$(KOORD_POD_UID)", "0" * 36)
        found = _FOLDER.fullmatch(folder)
        assert found is not None
        assert found[2] == container["name"]


def test_pods_without_the_library_get_none(namespace: Namespace) -> None:
    assert VOLUME not in str(namespace.admit(make_pod(HALF)))
    assert VOLUME not in str(namespace.admit(make_pod({"cpu": "1"}, labels=LIMITED)))


@pytest.mark.parametrize(
    "container",
    [
        {"volumeMounts": [{"name": VOLUME, "mountPath": "/all"}]},
        {"volumeMounts": [{"name": VOLUME, "mountPath": "/other", "subPath": "x_a"}]},
        {"env": [{"name": "KOORD_POD_UID", "value": "of-another"}]},
    ],
)
def test_nobody_reaches_the_folders_of_others(namespace: Namespace, container: Any) -> None:
    assert namespace.refuses(limited(**container))


def test_the_agent_reads_them_from_a_namespace_of_its_own(guarded: Sandbox) -> None:
    objects = load_all(guarded.kubectl("kustomize", str(OVERLAY)))
    (daemon_set,) = (one for one in objects if one["kind"] == "DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"]
    (volume,) = spec["volumes"]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert volume["hostPath"]["path"] == PATH
    assert mount["readOnly"] is True
    assert f"--hami-containers={mount['mountPath']}" in spec["containers"][0]["args"]
    (space,) = (one for one in objects if one["kind"] == "Namespace")
    name = space["metadata"]["name"]
    assert name == daemon_set["metadata"]["namespace"]
    (binding,) = (one for one in objects if one["kind"] == "ClusterRoleBinding")
    (subject,) = binding["subjects"]
    user = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
    assert subject["namespace"] == name
    policies = [one for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
    assert [one for one in policies if user in str(one["spec"].get("matchConditions", ""))]
