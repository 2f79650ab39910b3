"""Adapters for network topology: cases as API objects, planned like by the operators."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
from tests.cluster import make_cluster, open_cycle, plan_in
from tests.conformance.compare import Exact
from tests.objects import upsert_pod_group, upsert_topology

from koord.api.annotations import NETWORK_TOPOLOGY_SPEC
from koord.api.gang import NO_INDEX, BadSetting, parse_topology_index
from koord.api.keys import gang as keys
from koord.api.keys import operators
from koord.api.keys.gang import NETWORK_TOPOLOGY_SELECTOR
from koord.api.parse import InvalidObject
from koord.core.model.plan import Demand, Unit
from koord.core.model.topology_constraint import NODE_LAYER, ROOT_LAYER
from koord.core.topology.capacity import make_goal
from koord.core.topology.layers import InvalidLayers, order_layers
from koord.core.topology.plugin import Topologies
from koord.core.topology.reasons import MultipleNotMet, NoDomainFits
from koord.core.topology.strategy.domain_placer import sort_members
from koord.core.topology.tree import describe_domains
from koord.domains.registry import make_pod_translator
from koord.kube.translate.cluster_objects import TopologyTranslator, translate_node
from koord.kube.translate.gangs import PodGroupTranslator, translate_constraint
from koord.kube.wire import WireCustomResource, WireNode, WirePod

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from koord.core.engine.state import ClusterState
    from koord.core.model.pods import Pod
    from koord.core.model.topology_constraint import TopologyConstraint
    from koord.core.topology.tree import TopologyTree

Fields = dict[str, Any]

PODS = make_pod_translator()


def decode(manifest: Mapping[str, Any], kind: type[Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(manifest), type=kind)


def decode_pod(pod: Mapping[str, Any], node: str = "", gang: str = "") -> Pod:
    annotations = {}
    if pod.get("selector"):
        annotations[NETWORK_TOPOLOGY_SELECTOR] = pod["selector"]
    if pod.get("index") is not None:
        annotations[keys.NETWORK_TOPOLOGY_INDEX] = str(pod["index"])
    namespace = pod.get("namespace", "default")
    manifest = {
        "metadata": {
            "uid": f"{namespace}/{pod['name']}",
            "name": pod["name"],
            "namespace": namespace,
            "annotations": annotations,
            "labels": {keys.POD_GROUP: gang} if gang else {},
        },
        "spec": {
            "nodeName": node,
            "schedulerName": operators.SCHEDULER_NAME,
            "priority": pod.get("priority", 0),
            "containers": [{"name": "main", "resources": {"requests": amounts(pod, "requests")}}],
        },
    }
    return PODS.translate(decode(manifest, WirePod))


def amounts(holder: Mapping[str, Any], field: str) -> Mapping[str, str]:
    return {name: str(amount) for name, amount in (holder.get(field) or {}).items()}


def fill_state(case: Mapping[str, Any]) -> ClusterState:
    state = make_cluster().state
    if "networkTopologySpec" in case:
        upsert_topology(state, decode_topology(case))
    for node in case["nodes"]:
        status = {"allocatable": amounts(node, "allocatable")}
        meta = {"name": node["name"], "labels": node.get("labels") or {}}
        state.upsert_node(translate_node(decode({"metadata": meta, "status": status}, WireNode)))
        for pod in node.get("pods") or ():
            state.upsert_pod(decode_pod(pod, node["name"]))
    return state


def decode_topology(case: Mapping[str, Any]) -> Any:
    spec = {"networkTopologySpec": case["networkTopologySpec"]}
    manifest = {"metadata": {"name": "default", "uid": "t"}, "spec": spec}
    return TopologyTranslator().translate(decode(manifest, WireCustomResource))


def decode_gang(case: Mapping[str, Any], pods: Iterable[Pod]) -> Any:
    text = json.dumps({"gatherStrategy": case.get("gatherStrategy") or []})
    manifest = {
        "metadata": {
            "name": "job",
            "namespace": "default",
            "uid": "job",
            "annotations": {keys.NETWORK_TOPOLOGY_SPEC: text},
        },
        "spec": {"minMember": len(list(pods))},
    }
    return PodGroupTranslator().translate(decode(manifest, WireCustomResource))


def plan_case(case: Fields) -> Fields:
    state = fill_state(case)
    pods = tuple(decode_pod(pod, gang="job") for pod in case["pods"])
    upsert_pod_group(state, decode_gang(case, pods))
    for pod in pods:
        state.upsert_pod(pod)
    unit = Unit("default/job", (Demand("default/job", pods, len(pods)),), "default/job")
    cycle = open_cycle(state)
    answer: Fields = {"offers": offers(cycle, sort_members(pods)[0], len(pods))}
    answer["mustGatherLayer"] = must_gather_layer(case)["layer"]
    outcome = plan_in(cycle, [unit])
    if outcome.refusals:
        return answer | refused(outcome.refusals[0].reason)
    placement = outcome.placements[0]
    answer["placement"] = Exact({one.pod.name: one.node for one in placement.assignments})
    for where in placement.topologies:
        name = where.domain[-1] if where.domain else ""
        answer["domain"] = {"layer": where.layer, "name": name}
    return answer


def offers(snapshot: Any, pod: Pod, most: int) -> Fields:
    room = snapshot.room(pod.shape)
    return {name: min(int(room[row]), most) for name, row in snapshot.table.live_rows()}


def refused(reason: Any) -> Fields:
    answer: Fields = {"message": reason.text(compat=True)}
    if isinstance(reason, NoDomainFits | MultipleNotMet):
        answer["domainOffers"] = {
            f"{reason.layer}/{one.path[-1] if one.path else ''}": one.offer for one in reason.offers
        }
    return answer


def detail_status(case: Fields) -> Fields:
    tree = fill_state(case).topologies.tree("default")
    assert tree is not None
    return {"detailStatus": [write_domain(one) for one in describe_domains(tree)]}


def write_domain(domain: Any) -> Fields:
    entry: Fields = {
        "topologyInfo": {"topologyLayer": domain.layer, "topologyName": domain.name},
        "childTopologyLayer": domain.child_layer,
        "childTopologyNames": list(domain.child_names),
        "nodeNum": domain.nodes,
    }
    if domain.parent is not None:
        layer, name = domain.parent
        entry["parentTopologyInfo"] = {"topologyLayer": layer, "topologyName": name}
    return entry


def tree_case(case: Fields) -> Fields:
    tree = fill_state(case).topologies.tree("default")
    assert tree is not None
    return {"tree": write_tree(tree, 0, 0), "nodesLeftOut": sorted(tree.left_out)}


def write_tree(tree: TopologyTree, layer: int, domain: int) -> Fields:
    if layer == tree.depth:
        return {"layer": NODE_LAYER, "name": tree.path_of(layer, domain)[-1]}
    path = tree.path_of(layer, domain)
    below = tree.members_of(layer, domain).tolist()
    return {
        "layer": tree.layers[layer],
        "name": path[-1] if path else "",
        "children": [write_tree(tree, layer + 1, one) for one in below],
    }


def layer_order(case: Fields) -> Fields:
    chain = order_layers(decode_topology(case).layers)
    if isinstance(chain, InvalidLayers):
        return {"error": chain.describe()}
    return {"order": [layer.name for layer in chain]}


def spec_parse(case: Fields) -> Fields:
    text = case["annotation"]
    annotations = {} if text is None else {keys.NETWORK_TOPOLOGY_SPEC: text}
    found = NETWORK_TOPOLOGY_SPEC.read(annotations)
    if isinstance(found, InvalidObject):
        return {"error": str(found.problems[0])}
    dumped = None if found is None else found.model_dump(by_alias=True, mode="json")
    return {"spec": dumped}


def index_parse(case: Fields) -> Fields:
    index = parse_topology_index(case["annotation"])
    return {"index": NO_INDEX, "error": True} if isinstance(index, BadSetting) else {"index": index}


def sort_pods(case: Fields) -> Fields:
    return {"order": [pod.name for pod in sort_members([decode_pod(pod) for pod in case["pods"]])]}


def read_wish(case: Fields) -> TopologyConstraint:
    text = json.dumps({"gatherStrategy": case.get("gatherStrategy") or []})
    found = NETWORK_TOPOLOGY_SPEC.read({keys.NETWORK_TOPOLOGY_SPEC: text})
    assert found is not None
    assert not isinstance(found, InvalidObject)
    return translate_constraint(found)


def pod_count_multiple(case: Fields) -> Fields:
    return {"multiples": Exact(read_wish(case).multiples)}


def must_gather_layer(case: Fields) -> Fields:
    chain = order_layers(decode_topology(case).layers)
    assert not isinstance(chain, InvalidLayers)
    layers = (ROOT_LAYER, *(layer.name for layer in chain))
    goal = make_goal(read_wish(case), layers)
    if isinstance(goal, frozenset):
        return {"layer": min(goal)}
    return {"layer": layers[goal.must] if goal.must else ""}


def existing_pods(case: Fields) -> Fields:
    state = fill_state(case)
    # Pods attract those of their own namespace alone; all of a case are in one.
    counts = state.plugin(Topologies).attraction.pods_by_node(f"default/{case['selector']}")
    return {"existing": {node["name"]: counts.get(node["name"], 0) for node in case["nodes"]}}


ADAPTERS = {
    "detail_status": detail_status,
    "existing_pods": existing_pods,
    "index_parse": index_parse,
    "layer_order": layer_order,
    "must_gather_layer": must_gather_layer,
    "plan": plan_case,
    "pod_count_multiple": pod_count_multiple,
    "sort_pods": sort_pods,
    "spec_parse": spec_parse,
    "tree": tree_case,
}
