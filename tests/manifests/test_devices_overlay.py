"""The overlay ``devices``: which containers get environment and mounts. No container runs here."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.someone import STRATEGIC
from tests.manifests.waiting import wait_for
from tests.support.namespaces import empty

from koord.core.device.allocation import GPU_UUIDS
from koord.core.device.vendors import CORE_LIMIT, HAMI_CORE, ISOLATION_LABEL, MEMORY_LIMIT
from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord_sandbox import Sandbox

pytestmark = pytest.mark.sandbox

HALF = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
LOCKS = "/tmp/vgpulock"  # noqa: S108 - where HAMi-core wants it
VISIBLE = "NVIDIA_VISIBLE_DEVICES"


def make_pod(limits: dict[str, str], *, labels: Any = None, env: Any = ()) -> dict[str, Any]:
    container = {"name": "a", "image": "x", "resources": {"limits": limits}, "env": list(env)}
    return {
        "metadata": {"name": f"p-{secrets.token_hex(3)}", "labels": labels or {}},
        "spec": {
            "initContainers": [{"name": "i", "image": "x"}],
            "containers": [container, {"name": "b", "image": "x"}],
        },
    }


class Namespace:
    def __init__(self, box: Sandbox) -> None:
        self._client = box.client
        self.name = f"test-{secrets.token_hex(3)}"
        box.create_namespace(self.name)
        box.kubectl("label", "namespace", self.name, "operators.koordinator.sh/devices=enabled")

    def admit(self, pod: dict[str, Any]) -> dict[str, Any]:
        path = f"/api/v1/namespaces/{self.name}/pods?dryRun=All"
        spec: dict[str, Any] = self._client.create(path, pod)["spec"]
        return spec

    def refuses(self, pod: dict[str, Any]) -> bool:
        try:
            self.admit(pod)
        except SandboxApiError:
            return True
        return False

    def debug(self, pod: dict[str, Any] | None, container: dict[str, Any]) -> dict[str, Any]:
        """Add a container to a new pod, or to the last one; return the pod."""
        path = f"/api/v1/namespaces/{self.name}/pods"
        if pod is not None:
            self._debugged: str = pod["metadata"]["name"]
            self._client.create(path, pod)
        change = {"spec": {"ephemeralContainers": [container]}}
        at = f"{path}/{self._debugged}/ephemeralcontainers"
        done = self._client.request("PATCH", at, change, content_type=STRATEGIC)
        return dict(done["spec"])


def read_env(container: dict[str, Any]) -> dict[str, str]:
    return {
        one["name"]: one["valueFrom"]["fieldRef"]["fieldPath"]
        if "valueFrom" in one
        else one.get("value", "")
        for one in container.get("env", ())
    }


@pytest.fixture(scope="module")
def namespace(guarded: Sandbox) -> Iterator[Namespace]:
    made = Namespace(guarded)
    wait_for(
        lambda: VISIBLE in read_env(made.admit(make_pod(HALF))["containers"][0]),
        "the policy that adds in force",
    )
    wait_for(lambda: made.refuses(make_pod({"nvidia.com/gpu": "1"}, env=[ALL])), "the other, too")
    yield made
    empty(guarded.client, made.name)


def test_all_containers_see_the_gpus_of_their_pod_only(namespace: Namespace) -> None:
    spec = namespace.admit(make_pod(HALF, env=[{"name": "A", "value": "1"}]))
    path = f"metadata.annotations['{GPU_UUIDS}']"
    a, b = spec["containers"]
    assert read_env(a) == {"A": "1", VISIBLE: path}
    assert read_env(b) == read_env(spec["initContainers"][0]) == {VISIBLE: path}
    assert "hostPath" not in str(spec.get("volumes", ""))


def test_isolated_containers_load_the_library_with_limits_per_gpu(namespace: Namespace) -> None:
    own = [{"name": VISIBLE, "value": "all"}, {"name": "LD_PRELOAD", "value": "other.so"}]
    spec = namespace.admit(make_pod(HALF, labels={ISOLATION_LABEL: HAMI_CORE}, env=own))
    for container in spec["containers"]:
        env = read_env(container)
        assert env["LD_PRELOAD"] == "/usr/local/vgpu/libvgpu.so"
        assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"metadata.annotations['{MEMORY_LIMIT}0']"
        assert env["CUDA_DEVICE_SM_LIMIT_7"] == f"metadata.annotations['{CORE_LIMIT}7']"
        mounts = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
        assert mounts["/usr/local/vgpu"]
        assert not mounts[LOCKS]
    paths = {one["hostPath"]["path"] for one in spec["volumes"] if "hostPath" in one}
    assert paths == {"/usr/local/vgpu", LOCKS}


ALL = {"name": VISIBLE, "value": "all"}
OWN = {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['mine']"}}}
GIVEN = f"metadata.annotations['{GPU_UUIDS}']"
LITERAL = {"name": VISIBLE, "value": GIVEN}


@pytest.mark.parametrize("env", [[], [ALL], [{"name": VISIBLE, "value": "void"}, ALL], [OWN]])
def test_who_requests_no_gpus_sees_none(namespace: Namespace, env: list[Any]) -> None:
    """Images of CUDA say that they want to see all, and so may a template."""
    spec = namespace.admit(make_pod({"cpu": "1"}, labels={ISOLATION_LABEL: HAMI_CORE}, env=env))
    for container in (*spec["containers"], *spec["initContainers"]):
        assert read_env(container) == {VISIBLE: "void"}
    assert "hostPath" not in str(spec.get("volumes", ""))


def test_a_pod_with_cards_is_left_to_their_device_plugin(namespace: Namespace) -> None:
    spec = namespace.admit(make_pod({"nvidia.com/gpu": "1"}))
    first, second = spec["containers"]
    assert read_env(first) == {}
    assert read_env(second) == read_env(spec["initContainers"][0]) == {VISIBLE: "void"}


def test_a_container_with_cards_may_not_choose_others(namespace: Namespace) -> None:
    with pytest.raises(SandboxApiError, match="leave NVIDIA_VISIBLE_DEVICES out"):
        namespace.admit(make_pod({"nvidia.com/gpu": "1"}, env=[ALL]))


@pytest.mark.parametrize("env", [[ALL], [OWN], [LITERAL], [OWN, ALL]])
def test_a_pod_cannot_choose_gpus_itself(namespace: Namespace, env: list[Any]) -> None:
    """Of equal names the last one counts, for the kubelet as for a dictionary."""
    spec = namespace.admit(make_pod(HALF, env=env))
    container = spec["containers"][0]
    assert read_env(container)[VISIBLE] == GIVEN
    assert "valueFrom" in container["env"][-1]


def test_limits_are_given_although_the_gpus_are_named_already(namespace: Namespace) -> None:
    named = {"name": VISIBLE, "valueFrom": {"fieldRef": {"fieldPath": GIVEN}}}
    free = [{"name": f"CUDA_DEVICE_MEMORY_LIMIT_{at}", "value": "1000g"} for at in range(8)]
    spec = namespace.admit(make_pod(HALF, labels={ISOLATION_LABEL: HAMI_CORE}, env=[*free, named]))
    env = read_env(spec["containers"][0])
    assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"metadata.annotations['{MEMORY_LIMIT}0']"


@pytest.mark.parametrize(("limits", "seen"), [(HALF, GIVEN), ({"cpu": "1"}, "void")])
def test_a_container_for_debugging_sees_no_more_than_its_pod(
    namespace: Namespace, limits: dict[str, str], seen: str
) -> None:
    for at in range(2):
        debug = {"name": f"debug-{at}", "image": "cuda", "env": [ALL][at:]}
        spec = namespace.debug(make_pod(limits) if at == 0 else None, debug)
    assert [read_env(one) for one in spec["ephemeralContainers"]] == [{VISIBLE: seen}] * 2
