"""Our answer: the feasible nodes of pods by the planner's rules, from objects of an API server."""

from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from tests.cluster import make_cluster, open_cycle
from tests.objects import upsert_claim, upsert_namespace, upsert_storage_class, upsert_volume

from benchmarks.parity.cases import SCHEDULER, Object
from koord.core.engine.state import ClusterState
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.cluster_objects import (
    translate_namespace,
    translate_node,
    translate_storage_class,
    translate_volume,
    translate_volume_claim,
)
from koord.kube.wire import (
    WireNamespace,
    WireNode,
    WirePod,
    WireStorageClass,
    WireVolume,
    WireVolumeClaim,
)
from koord_sandbox.client import AdminClient

W = TypeVar("W")
Feasible = dict[str, frozenset[str]]
"""Pod name -> its feasible nodes."""


@dataclass(frozen=True, slots=True)
class Sight:
    """All objects of a cluster that matter, as the API server has them."""

    namespaces: list[WireNamespace]
    nodes: list[WireNode]
    volumes: list[WireVolume]
    claims: list[WireVolumeClaim]
    classes: list[WireStorageClass]
    pods: list[WirePod]
    subjects: list[WirePod]


def read_sight(client: AdminClient, subjects: list[Object]) -> Sight:
    """Read all objects but the pods in question."""

    def list_all(path: str, wire: type[W]) -> list[W]:
        return [_decode(item, wire) for item in client.get(path)["items"]]

    pods = list_all("/api/v1/pods", WirePod)
    return Sight(
        list_all("/api/v1/namespaces", WireNamespace),
        list_all("/api/v1/nodes", WireNode),
        list_all("/api/v1/persistentvolumes", WireVolume),
        list_all("/api/v1/persistentvolumeclaims", WireVolumeClaim),
        list_all("/apis/storage.k8s.io/v1/storageclasses", WireStorageClass),
        [pod for pod in pods if pod.spec.scheduler_name != SCHEDULER],
        [_decode(item, WirePod) for item in subjects],
    )


def find_feasible(sight: Sight) -> Feasible:
    """Return the feasible nodes of each pod, as if it were the only new one."""
    state, translator = _make_state(sight), make_pod_translator(TranslatorOptions(SCHEDULER))
    found = {}
    for wire in sight.subjects:
        pod = translator.translate(wire)
        cycle = open_cycle(state)
        room = cycle.room(cycle.shape_of(pod))
        if cycle.blocking_reasons((pod,)):
            room[:] = 0
        rows = state.table.live_rows()
        found[pod.name] = frozenset(name for name, row in rows if room[row])
    return found


def _make_state(sight: Sight) -> ClusterState:
    state, translator = make_cluster().state, make_pod_translator(TranslatorOptions(SCHEDULER))
    for space in map(translate_namespace, sight.namespaces):
        upsert_namespace(state, space.name, space.labels)
    for node in sight.nodes:
        state.upsert_node(translate_node(node))
    for volume in sight.volumes:
        upsert_volume(state, translate_volume(volume))
    for claim in sight.claims:
        upsert_claim(state, translate_volume_claim(claim))
    for one in sight.classes:
        upsert_storage_class(state, translate_storage_class(one))
    for pod in sight.pods:
        state.upsert_pod(translator.translate(pod))
    return state


def _decode(item: Object, wire: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(item), type=wire)
