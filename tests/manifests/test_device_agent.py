"""The device agent as shipped: few rights, only for its own node; what it reports is used."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml
from tests.agent.machine import environment, make_switched, make_sys
from tests.manifests.conftest import MANIFESTS, ROOT, load_all
from tests.manifests.someone import APPLY, Someone
from tests.manifests.test_rights import Rights, read_requests
from tests.manifests.waiting import wait_for
from tests.support.operators import KOORD, run_operators

from koord_sandbox import Component, Sandbox
from koord_sandbox.errors import SandboxApiError

pytestmark = pytest.mark.sandbox

OVERLAY = MANIFESTS / "overlays/device-agent"
POLICY = Path(__file__).parent / "audit-policy.yaml"
ACCOUNT = "koord-device-agent"
DEVICES = "/apis/scheduling.koordinator.sh/v1alpha1/devices"
GATE = "operators.koordinator.sh/placement"


def pod_of(box: Sandbox, node: str) -> dict[str, Any]:
    """Create the pod that the DaemonSet would have on a node."""
    objects = load_all(box.kubectl("kustomize", str(OVERLAY)))
    (daemon_set,) = (one for one in objects if one["kind"] == "DaemonSet")
    spec = daemon_set["spec"]["template"]["spec"] | {"nodeName": node}
    pod = {"metadata": {"name": f"agent-{node}"}, "spec": spec}
    return box.client.create("/api/v1/namespaces/koord-system/pods", pod)


class Agent:
    """An agent on a node: its token is bound to its pod there, as the kubelet's would be."""

    def __init__(self, box: Sandbox, node: str, folder: Path) -> None:
        self.box, self.node, self.folder = box, node, folder
        pod = pod_of(box, node)
        bound = {"kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        path = f"/api/v1/namespaces/koord-system/serviceaccounts/{ACCOUNT}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"boundObjectRef": {"apiVersion": "v1", **bound}},
        }
        token = box.client.create(path, request)["status"]["token"]
        config = yaml.safe_load(box.kubeconfig_for("koord-system", ACCOUNT).read_text("utf-8"))
        config["users"][0]["user"]["token"] = token
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        self.sys = make_sys("two-switches", folder / "sys")
        self.state = make_switched()

    def start(self, *options: str, **other: str) -> subprocess.Popen[str]:
        variables = environment(self.state, self.folder)
        path = os.pathsep.join([variables.pop("STAND_IN_PATH"), os.environ.get("PYTHONPATH", "")])
        command = [KOORD, "device-agent", f"--sys-root={self.sys}", *options]
        return subprocess.Popen(
            [*command, f"--kubeconfig={self.kubeconfig}"],
            env=os.environ | variables | {"PYTHONPATH": path, "NODE_NAME": self.node} | other,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **other: str) -> str:
        """Report once; return what was printed."""
        process = self.start("--once", **other)
        output, errors = process.communicate()
        assert process.returncode in {0, 3}, errors
        return output if process.returncode == 0 else errors

    def device(self) -> dict[str, Any]:
        return self.box.client.get(f"{DEVICES}/{self.node}")


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    with Sandbox(arguments={Component.APISERVER: [f"--audit-policy-file={POLICY}"]}) as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(MANIFESTS / "base"))
        box.kubectl("apply", "-k", str(OVERLAY))
        yield box


@pytest.fixture
def agent(box: Sandbox, tmp_path: Path) -> Agent:
    (node,) = box.add_nodes(1, "cpu16")
    return Agent(box, node, tmp_path)


def test_its_pods_are_admitted_under_the_restricted_standard(box: Sandbox, agent: Agent) -> None:
    (container,) = box.client.get(f"/api/v1/namespaces/koord-system/pods/agent-{agent.node}")[
        "spec"
    ]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["resources"].keys() >= {"requests", "limits"}


def test_devices_that_it_reports_are_given_to_pods(
    box: Sandbox, agent: Agent, tmp_path: Path
) -> None:
    assert "written, 6 devices, 1 of them unhealthy" in agent.run()
    pod = {
        "metadata": {"name": "two"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "schedulingGates": [{"name": GATE}],
            "nodeName": None,
            "containers": [
                {
                    "name": "c",
                    "image": "x",
                    "resources": {"limits": {"koordinator.sh/gpu": "200"}},
                }
            ],
        },
    }
    kubeconfig = box.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path):
        box.client.create("/api/v1/namespaces/default/pods", pod)
        box.kubectl("wait", "--for=condition=PodScheduled", "pod/two", "--timeout=60s")
    placed = box.client.get("/api/v1/namespaces/default/pods/two")
    assert placed["spec"]["nodeName"] == agent.node
    uuids = placed["metadata"]["annotations"]["scheduling.koordinator.sh/gpu-uuids"]
    assert uuids == "GPU-0,GPU-1"


def test_it_goes_on_with_its_own_object(agent: Agent) -> None:
    agent.run()
    before = agent.device()
    assert before["metadata"]["ownerReferences"][0]["name"] == agent.node
    agent.run()
    again = agent.device()
    assert again["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    agent.state["gpus"][1]["lost"] = True
    assert "2 of them unhealthy (NvmlError: GPU 1 of 4: GPU is lost)" in agent.run()
    after = agent.device()
    assert len(after["spec"]["devices"]) == 6
    sick = [one["id"] for one in after["spec"]["devices"] if not one["health"]]
    assert sick == ["GPU-1", "0000:9c:00.0"]


def test_an_xid_counts_at_once_and_until_it_was_quiet(box: Sandbox, agent: Agent) -> None:
    agent.state["events"] = [(2, 79)]

    def health() -> tuple[bool, str]:
        try:
            one = agent.device()["spec"]["devices"][2]
        except SandboxApiError:
            return True, "not reported yet"
        return one["health"], one["conditions"][0]["reason"]

    with agent.start("--interval=3600") as process:
        wait_for(lambda: health() == (False, "Xid79"), "the GPU is unhealthy")
        process.terminate()
        assert process.wait() == 0
    agent.state["events"] = []
    # Another process: what an earlier one saw counts as if it had just happened.
    with agent.start("--interval=1", "--healthy-after=3") as process:
        wait_for(lambda: health() == (True, "DeviceHealthy"), "the GPU is healthy")
        process.terminate()
        output, errors = process.communicate()
        assert process.returncode == 0
    assert "written, 6 devices, 2 of them unhealthy" in errors, output
    assert "written, 6 devices, 1 of them unhealthy" in errors


def test_it_serves_what_its_gpus_do(agent: Agent) -> None:
    agent.state["gpus"][1] |= {"used": 5 << 30, "load": [93, 41]}
    agent.state["events"] = [(2, 79)]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

    def read() -> str:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    options = (f"--metrics-address=127.0.0.1:{port}", "--hami-names")
    with agent.start("--interval=3600", *options) as process:
        wait_for(lambda: 'uuid="GPU-2",xid="79"} 1.0' in read(), "the error is counted")
        text = read()
        process.terminate()
        assert process.wait() == 0
    labels = f'minor="1",model="A100-SXM4-80GB",node="{agent.node}",uuid="GPU-1"'
    assert f"koord_gpu_utilization_percent{{{labels}}} 93.0" in text
    assert f"koord_gpu_memory_used_bytes{{{labels}}} 5.36870912e+09" in text
    assert 'HostCoreUtilization{deviceidx="1"' in text


def test_its_series_are_on_the_port_that_prometheus_looks_for(box: Sandbox) -> None:
    job = yaml.safe_load((MANIFESTS / "monitoring/scrape.yaml").read_text("utf-8"))
    keep = job["scrape_configs"][0]["relabel_configs"][0]["regex"]
    for overlay in ("device-agent-metrics", "device-regions"):
        objects = load_all(box.kubectl("kustomize", str(MANIFESTS / "overlays" / overlay)))
        (daemon_set,) = (one for one in objects if one["kind"] == "DaemonSet")
        template = daemon_set["spec"]["template"]
        (container,) = template["spec"]["containers"]
        (port,) = container["ports"]
        assert f"--metrics-address=0.0.0.0:{port['containerPort']}" in container["args"]
        name = template["metadata"]["labels"]["app.kubernetes.io/name"]
        assert f"{name};{port['name']}" == keep


@pytest.mark.parametrize("manager", ["koordlet", "kubectl-client-side-apply"])
def test_an_object_of_others_is_left_alone(box: Sandbox, agent: Agent, manager: str) -> None:
    entry = {"type": "gpu", "minor": 0, "health": True}
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": agent.node},
        "spec": {"devices": [entry]},
    }
    box.client.create(f"{DEVICES}?fieldManager={manager}", body)
    before = agent.device()
    assert f"left alone: the devices are reported by {manager}" in agent.run()
    assert agent.device() == before


def test_a_label_of_others_is_not_taken_over(box: Sandbox, agent: Agent) -> None:
    label = "node.koordinator.sh/gpu-model"
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {"name": agent.node, "labels": {label: "A100"}},
    }
    box.client.create(DEVICES, body)
    text = agent.run()
    assert "left alone" in text
    assert label in text
    assert "devices" not in agent.device().get("spec", {})


def test_no_object_where_there_is_nothing(box: Sandbox, agent: Agent) -> None:
    agent.state["gpus"] = []
    for port in agent.sys.glob("devices/**/ports/1/state"):
        port.unlink()
    assert "no devices found" in agent.run()
    with pytest.raises(Exception, match="404"):
        agent.device()


def test_it_writes_the_object_of_its_own_node_only(box: Sandbox, agent: Agent) -> None:
    (other,) = box.add_nodes(1, "cpu16")
    wait_for(lambda: "may not write Device" in agent.run(NODE_NAME=other), "the policy is in force")
    with pytest.raises(Exception, match="404"):
        box.client.get(f"{DEVICES}/{other}")
    agent.run()
    assert agent.device()


def test_a_token_that_names_no_node_writes_nothing(box: Sandbox, agent: Agent) -> None:
    someone = Someone(box, "koord-system", ACCOUNT)
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device"}
    path = f"{DEVICES}/{agent.node}?fieldManager=x"
    answer = someone.send("PATCH", path, body | {"metadata": {"name": agent.node}}, APPLY)
    someone.close()
    assert answer.status == 403
    assert "does not name a node" in answer.message


def test_it_makes_its_object_depend_on_nothing_else(box: Sandbox, agent: Agent) -> None:
    token = yaml.safe_load(agent.kubeconfig.read_text())["users"][0]["user"]["token"]
    someone = Someone(box, "koord-system", ACCOUNT)
    someone._token = token
    path = f"{DEVICES}/{agent.node}?fieldManager=koord-device-agent"
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"}
    for metadata in ({"finalizers": ["example.com/f"]}, {"ownerReferences": [other]}):
        body = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": agent.node, **metadata},
        }
        assert someone.send("PATCH", path, body, APPLY).status == 403
    someone.close()


def test_it_has_the_rights_that_it_uses_and_no_others(box: Sandbox, agent: Agent) -> None:
    agent.run()
    granted = Rights(box).of(ACCOUNT)
    user = f"system:serviceaccount:koord-system:{ACCOUNT}"
    used = {grant for who, grant in read_requests(box.audit_log) if who == user}
    created = {("scheduling.koordinator.sh", "devices", "create")}  # the log calls that a patch
    assert granted == used | created
