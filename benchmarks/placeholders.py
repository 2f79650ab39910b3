"""Hand-overs from placeholders to owners, under load, next to kube-scheduler.

    python -m benchmarks.placeholders

Every node is reserved as a whole, with placeholders, for single-GPU pods that arrive over time.
All the while hundreds of pods of kube-scheduler wait for a GPU, and more are created and deleted.
A hand-over is lost if one of them gets onto a reserved node.
"""

import argparse
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

import msgspec

from benchmarks.cluster import SERVICE_ACCOUNT
from benchmarks.objects import GATE, SCHEDULER, make_namespace, pods_path
from benchmarks.processes import ROOT, Operators
from koord.api.keys import operators
from koord_sandbox import Sandbox
from koord_sandbox.errors import SandboxApiError

GPU: Final = "nvidia.com/gpu"
GPUS: Final = 8
WAITING: Final = 300
"""Pods of kube-scheduler that wait all the time."""
OWNERS, OTHERS = "owners", "others"
RESERVATIONS: Final = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
PLACEHOLDERS: Final = "/api/v1/namespaces/koord-placeholders/pods"


class Figures(msgspec.Struct, frozen=True):
    """The result; ``others_tried`` are pods that kube-scheduler tried to place meanwhile."""

    hand_overs: int
    not_bound: int
    lost: int
    others_tried: int
    guards_left: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placeholders", description=__doc__)
    parser.add_argument("--hand-overs", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=10.0, help="owners per second")
    parser.add_argument(
        "--json", type=Path, default=ROOT / "build" / "faults" / "placeholders.json", metavar="FILE"
    )
    options = parser.parse_args()
    with Sandbox() as box:
        box.apply(ROOT / "crds")
        for part in ("base", "overlays/placeholders"):
            box.kubectl("apply", "-k", str(ROOT / "manifests" / part))
        figures = measure(box, options.hand_overs, options.rate)
    text = msgspec.json.format(msgspec.json.encode(figures), indent=2)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(text + b"\n")
    print(text.decode())


def measure(box: Sandbox, count: int, rate: float) -> Figures:
    nodes = -(-count // GPUS)
    for name in (OWNERS, OTHERS):
        box.client.create("/api/v1/namespaces", make_namespace(name))
    names = set(box.add_nodes(nodes, "a100x8"))
    with Operators(box.directory, box.kubeconfig_for(*SERVICE_ACCOUNT)) as contender:
        contender.wait_ready()
        for at in range(nodes):
            box.client.create(RESERVATIONS, _make_reservation(f"room-{at:04}"))
        _wait(lambda: _count_protected(box) == nodes, "all rooms are protected")
        load = _Load(box)
        load.start()
        began = monotonic()
        for at in range(count):
            sleep(max(0.0, began + at / rate - monotonic()))
            box.client.create(pods_path(OWNERS), _make_pod(f"owner-{at:05}", SCHEDULER))
        with suppress(TimeoutError):
            _wait(lambda: _count_bound(box, OWNERS, names) == count, "all owners are bound")
        seconds = monotonic() - began
        sleep(2.0)
        load.stop()
        contender.check()

        left = [pod for pod in box.client.get(PLACEHOLDERS)["items"] if _is_guard(pod)]
    return Figures(
        hand_overs=count,
        not_bound=count - _count_bound(box, OWNERS, names),
        lost=_count_bound(box, OTHERS, names),
        others_tried=load.created,
        guards_left=len(left),
        seconds=round(seconds, 1),
    )


class _Load(threading.Thread):
    """Keeps pods of kube-scheduler waiting; the oldest are replaced by new ones."""

    def __init__(self, box: Sandbox) -> None:
        super().__init__(name="load", daemon=True)
        self.created = 0
        self._client = box.client
        self._ends = threading.Event()

    def run(self) -> None:
        while not self._ends.is_set():
            body = _make_pod(f"other-{self.created:06}", "default-scheduler")
            self._client.create(pods_path(OTHERS), body)
            self.created += 1
            if self.created > WAITING:
                self._replace(f"other-{self.created - WAITING - 1:06}")
                self._ends.wait(0.02)

    def _replace(self, name: str) -> None:
        path = f"{pods_path(OTHERS)}/{name}"
        if self._client.get(path)["spec"].get("nodeName"):
            return  # It has taken room that was held: it is counted at the end.
        with suppress(SandboxApiError):
            self._client.delete(path)

    def stop(self) -> None:
        self._ends.set()
        self.join()


def _make_reservation(name: str) -> dict[str, Any]:
    template = {"metadata": {"namespace": OWNERS}, "spec": {"containers": [_make_container(GPUS)]}}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name, "annotations": {operators.PROTECTION: "Placeholder"}},
        "spec": {
            "owners": [{"labelSelector": {"matchLabels": {"app": OWNERS}}}],
            "allocateOnce": False,
            "template": template,
        },
    }


def _make_pod(name: str, scheduler: str) -> dict[str, Any]:
    is_ours = scheduler == SCHEDULER
    spec: dict[str, Any] = {"schedulerName": scheduler, "containers": [_make_container(1)]}
    if is_ours:
        spec["schedulingGates"] = [{"name": GATE}]
    labels = {"app": OWNERS if is_ours else OTHERS}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _make_container(gpus: int) -> dict[str, Any]:
    amounts = {GPU: str(gpus)}
    return {"name": "c", "image": "x", "resources": {"requests": amounts, "limits": amounts}}


def _count_protected(box: Sandbox) -> int:
    items = box.client.get(RESERVATIONS)["items"]
    every = (one for item in items for one in (item.get("status") or {}).get("conditions") or ())
    return sum(one["type"] == "Protected" and one["status"] == "True" for one in every)


def _count_bound(box: Sandbox, namespace: str, nodes: set[str]) -> int:
    items = box.client.get(pods_path(namespace))["items"]
    return sum(item["spec"].get("nodeName") in nodes for item in items)


def _is_guard(pod: dict[str, Any]) -> bool:
    return operators.RESERVATION_UID not in (pod["metadata"].get("labels") or {})


def _wait(is_true: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = monotonic() + seconds
    while not is_true():
        if monotonic() > deadline:
            raise TimeoutError(what)
        sleep(0.5)


if __name__ == "__main__":
    main()
