"""The overlay ``devices``: which containers get environment and mounts. No container runs here."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest
from tests.manifests.waiting import wait_for

from koord.core.device.allocation import GPU_UUIDS
from koord.core.device.device_plugins import CORE_LIMIT, MEMORY_LIMIT
from koord.core.device.vendors import HAMI_CORE, ISOLATION_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from koord.sandbox import Sandbox

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
        "the policy in force",
    )
    yield made
    guarded.client.delete(f"/api/v1/namespaces/{made.name}")


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


@pytest.mark.parametrize("limits", [{"cpu": "1"}, {"nvidia.com/gpu": "1"}])
def test_other_pods_are_not_changed(namespace: Namespace, limits: dict[str, str]) -> None:
    spec = namespace.admit(make_pod(limits, labels={ISOLATION_LABEL: HAMI_CORE}))
    assert not any(read_env(one) for one in spec["containers"])


def test_a_pod_cannot_choose_gpus_itself(namespace: Namespace) -> None:
    """Of equal names the last one counts, for the kubelet as for a dictionary."""
    spec = namespace.admit(make_pod(HALF, env=[{"name": VISIBLE, "value": "all"}]))
    assert read_env(spec["containers"][0])[VISIBLE] == f"metadata.annotations['{GPU_UUIDS}']"
