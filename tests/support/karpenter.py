"""Karpenter itself, with the cloud of its own tests, which makes Node objects of what it buys.

It is built once per content of ``tools/scalers`` and runs on this machine against a sandbox.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from koord_sandbox.build import make_go_environment
from koord_sandbox.paths import cache_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.operators.conftest import Cluster

MODULE = Path(__file__).parents[2] / "tools" / "scalers"
PACKAGE = "sigs.k8s.io/karpenter/kwok"
POOLS = "/apis/karpenter.sh/v1/nodepools"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
KINDS = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh")
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"


def build() -> Path:
    """Return the program; building it takes some minutes, once."""
    key = hashlib.sha256((MODULE / "go.mod").read_bytes() + (MODULE / "go.sum").read_bytes())
    program = cache_directory() / "scalers" / key.hexdigest()[:16] / "karpenter"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f".karpenter.{os.getpid()}")
        command = ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", str(partial), PACKAGE]
        subprocess.run(command, check=True, cwd=MODULE, env=make_go_environment())
        partial.rename(program)
    return program


def find_definitions() -> list[Path]:
    """Return the folders with its CRDs, of the version that is built."""
    listing = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"]
    environment = make_go_environment()
    answer = subprocess.run(
        listing, check=True, cwd=MODULE, env=environment, capture_output=True, text=True
    )
    folder = Path(answer.stdout.strip())
    return [folder / "pkg" / "apis" / "crds", folder / "kwok" / "apis" / "crds"]


def make_instance_type() -> dict[str, Any]:
    """Return the one kind of machine that it can buy: with eight GPUs, like the nodes of a test."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a"]},
    ]
    return {
        "name": "gpux8",
        "offerings": [{"Price": 1.0, "Available": True, "Requirements": requirements}],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {
            "cpu": "64",
            "memory": "256Gi",
            "ephemeral-storage": "200Gi",
            "pods": "110",
            "nvidia.com/gpu": "8",
        },
    }


@contextmanager
def run_karpenter(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Run it with one pool, of nodes that the pods of the test tolerate; yields its log."""
    box, program = cluster.box, build()
    for definitions in find_definitions():
        box.kubectl("apply", "--server-side", "-f", str(definitions))
    names = [f"crd/{name}" for name in ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh")]
    box.kubectl("wait", "--for=condition=Established", *names, "--timeout=30s")
    types, log = folder / "types.json", folder / "karpenter.log"
    types.write_text(json.dumps([make_instance_type()]))
    make_pool(cluster)
    environment = {
        **os.environ,
        "KUBECONFIG": str(box.kubeconfig),
        "INSTANCE_TYPES_FILE_PATH": str(types),
        "DISABLE_LEADER_ELECTION": "true",
        "METRICS_PORT": "0",
        "HEALTH_PROBE_PORT": "0",
        "BATCH_IDLE_DURATION": "1s",
        "SYSTEM_NAMESPACE": "kube-system",
    }
    with log.open("wb") as output:
        process = subprocess.Popen([program], env=environment, stdout=output, stderr=output)
    try:
        yield log
        assert process.poll() is None, log.read_text()[-3000:]
    finally:
        process.terminate()
        process.wait(30)
        remove_all(cluster)


def make_pool(cluster: Cluster) -> None:
    name, group = cluster.namespace, "karpenter.kwok.sh"
    box = cluster.box
    box.client.create(
        CLASSES,
        {"apiVersion": f"{group}/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": name}},
    )
    spec = {
        "template": {
            "metadata": {"labels": {"test": name}},
            "spec": {
                "nodeClassRef": {"group": group, "kind": "KWOKNodeClass", "name": name},
                "expireAfter": "Never",
                # The operators' own pods wait in the sandbox, too: none is to be bought for them.
                "taints": [{"key": "test", "value": name, "effect": "NoSchedule"}],
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
                ],
            },
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"},
    }
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}}
    box.client.create(POOLS, {**body, "spec": spec})


def remove_all(cluster: Cluster) -> None:
    """Delete what it has made, and without it what waits for it."""
    kubectl = cluster.box.kubectl
    targets = kubectl("get", ",".join(KINDS), "-o", "name").split()
    targets += kubectl("get", "nodes", "-l", "karpenter.sh/nodepool", "-o", "name").split()
    for target in targets:
        kubectl("patch", target, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        kubectl("delete", target, "--wait=false", "--ignore-not-found")


def wait_for_claims(cluster: Cluster, count: int, seconds: float = 60.0) -> None:
    """Wait until it has bought so many nodes."""
    until = time.monotonic() + seconds
    while len(claims(cluster)) < count and time.monotonic() < until:
        time.sleep(0.5)
    assert len(claims(cluster)) == count


def claims(cluster: Cluster) -> list[dict[str, Any]]:
    return list(cluster.box.client.get(CLAIMS)["items"])
