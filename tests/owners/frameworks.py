"""Owners and pods as job frameworks make them: recorded objects, cut to what is read of them.

The objects are those of the frameworks' own documentation and API types; pods are named and
labelled as their controllers do it. No controller runs here.
"""

from dataclasses import replace
from typing import Any

import msgspec
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster

from koord.api.owner_kinds import WorkloadKind, choose_owner_kinds
from koord.core.gang.quorum import demands
from koord.core.gang.start import make_start_id
from koord.core.model.constraints import PodLabels
from koord.core.model.gangs import GangSource
from koord.core.model.pods import Handling, OwnerReference, Pod, PodPhase, RecordedPlan
from koord.core.owners.model import OwnerObject
from koord.core.owners.plugin import OwnerGangs, OwnerOptions
from koord.domains.registry import make_translator_options
from koord.kube.translate.owners import OwnerTranslator, make_rules
from koord.kube.wire import WireCustomResource

TRAINING = "training.kubeflow.org/"
JOBSET = "jobset.sigs.k8s.io/"
LWS = "leaderworkerset.sigs.k8s.io/"
JOB_INDEX = "batch.kubernetes.io/job-completion-index"


def find_kind(api_version: str, kind: str, own: tuple[WorkloadKind, ...] = ()) -> WorkloadKind:
    kinds = choose_owner_kinds(own)
    return next(each for each in kinds if (each.api_version, each.kind) == (api_version, kind))


def translate(document: dict[str, Any], own: tuple[WorkloadKind, ...] = ()) -> OwnerObject:
    """Translate an object as its reflector does."""
    meta = {"namespace": "default", "uid": f"uid-{document['metadata']['name']}"}
    whole = {**document, "metadata": meta | document["metadata"]}
    kind = find_kind(document["apiVersion"], document["kind"], own)
    wire = msgspec.json.decode(msgspec.json.encode(whole), type=WireCustomResource)
    return OwnerTranslator(kind, make_translator_options()).translate(wire)


def owned_by(document: dict[str, Any], uid: str = "") -> OwnerReference:
    name = document["metadata"]["name"]
    uid = uid or document["metadata"].get("uid", f"uid-{name}")
    return OwnerReference(name, document["kind"], document["apiVersion"], uid, True)


def reference(document: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of ownerReferences that names a controller."""
    owner = owned_by(document)
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }


def pod_as_owner(pod: Pod) -> OwnerReference:
    return OwnerReference(pod.name, "Pod", "v1", pod.uid, True)


class Jobs(FakeCluster):
    """A cluster whose planner finds gangs from owners."""

    def __init__(self, nodes: int = 16, own: tuple[WorkloadKind, ...] = (), **options: Any) -> None:
        self.own, self.now = own, 1_800_000_000.0
        rules = make_rules(choose_owner_kinds(own))
        super().__init__(owners=OwnerOptions(True, rules), **options)
        self.nodes(*(make_node(f"n{at}").gpu(8) for at in range(nodes)))

    @property
    def owners(self) -> OwnerGangs:
        return self.state.plugin(OwnerGangs)

    def own_objects(self, *documents: dict[str, Any]) -> "Jobs":
        for document in documents:
            self.owners.upsert(translate(document, self.own))
        return self

    def remove_owner(self, document: dict[str, Any]) -> None:
        self.owners.remove(translate(document, self.own))

    def gang_of(self, name: str) -> str:
        gang = self.pod(name).gang
        return "" if gang is None else gang.key

    def gang_name(self, name: str) -> str:
        """Return the gang of a pod without what tells runs apart."""
        return self.gang_of(name).partition("#")[0].removeprefix("default/")

    def spec_of(self, name: str) -> Any:
        return self.state.gangs.spec(self.gang_of(name))

    def why(self, name: str) -> Any:
        """Return why the gang of a pod is not planned."""
        return demands(self.state.gangs, self.gang_of(name))

    def run(self) -> list[str]:
        """Place what fits, and let it run as the operators would have released it."""
        self.state.advance(self.now)
        outcome = self.decide(self.take(self.now))
        self.assume(outcome)
        for placement in outcome.placements:
            uids = frozenset(each.pod.uid for each in placement.assignments)
            for each in placement.assignments:
                if each.pod.handling is Handling.STAND_IN:
                    continue
                observed = self.state.observed(each.pod.uid)
                plan = RecordedPlan(
                    each.node,
                    f"plan-{placement.unit}",
                    placement.group,
                    len(uids),
                    len(uids),
                    start_id=make_start_id(uids),
                )
                running = replace(
                    self.raw(observed),
                    node=each.node,
                    recorded=plan,
                    is_gated=False,
                    handling=Handling.BIND,
                    phase=PodPhase.RUNNING,
                    allocations=each.allocations,
                )
                self.state.upsert_pod(running)
        self.state.advance(self.now)
        return sorted(
            each.pod.name
            for placement in outcome.placements
            for each in placement.assignments
            if each.pod.handling is not Handling.STAND_IN
        )

    def raw(self, pod: Pod) -> Pod:
        """Return a pod as its translator made it, without what owners say."""
        if pod.gang is not None and pod.gang.source is not GangSource.OWNER:
            return pod
        return replace(pod, gang=None, sub_group="", index=-1)

    def end(self, name: str, phase: PodPhase = PodPhase.SUCCEEDED) -> None:
        self.state.upsert_pod(replace(self.raw(self.pod(name)), phase=phase))

    def replaced(self, old: str, pod: Pod) -> "Jobs":
        self.delete_pods(old)
        self.pods(pod)
        return self


def owned(
    name: str, owner: OwnerReference | dict[str, Any] | None, labels: Any = None, **fields: Any
) -> Pod:
    """Make a waiting pod with a whole node's GPUs, behind our gate, and no word of a gang."""
    pod = make_pod(name).gpu(fields.pop("gpus", 8)).build()
    reference = owned_by(owner) if isinstance(owner, dict) else owner
    fields.setdefault("owners", () if reference is None else (reference,))
    return replace(pod, profile=PodLabels(pod.namespace, dict(labels or {})), **fields)


def indexed(job: dict[str, Any], index: int, suffix: str = "x", **fields: Any) -> Pod:
    name = f"{job['metadata']['name']}-{index}-{suffix}"
    return owned(name, job, {JOB_INDEX: str(index), **fields.pop("labels", {})}, **fields)


def replica(job: dict[str, Any], role: str, index: int, **fields: Any) -> Pod:
    """Make a pod of the training operator."""
    labels = {f"{TRAINING}replica-type": role, f"{TRAINING}replica-index": str(index)}
    return owned(f"{job['metadata']['name']}-{role}-{index}", job, labels, **fields)
