"""Every reason, condition and event that the code writes has an entry of the reference.

The words are read from the sources, so a new one fails here until it is described, or listed below
as a word that says something else.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from koord.agent.region import Unreadable
from koord.answers.envelope import GapCause
from koord.answers.reading import Extent
from koord.answers.remedies import RemedyActor, RemedyKind, Verified
from koord.core.balance.outcome import CAPPED, NO_TARGET, NO_USAGE, NOT_SETTLED, Stop
from koord.core.colocation.publishing import Unusable
from koord.core.colocation.terms import AmountTermKind
from koord.core.device.status import DeviceReadiness
from koord.core.eviction.model import Outcome
from koord.core.migration.stage import MoveStage
from koord.core.model.qos_rules import QosRule
from koord.core.quota.profile import ProfileOutcome
from koord.core.quota.status import REASON_IF_FALSE
from koord.core.reservation.matching import ClosedBy
from koord.core.reservation.placeholders import HoldState
from koord.core.topology.status import Readiness as TopologyReadiness
from koord.core.usage.lost import LossBasis, LossCause
from koord.core.usage.segments import EndBasis, Flag
from koord.reference.entries import EntryKind, list_entries

PACKAGE = Path(__file__).parents[2] / "operators" / "koord"
PARTS = ("agent", "answers", "controllers", "core", "kube", "runtime")
WORDS = re.compile(r"([A-Z]+[a-z]+){2,}")
OF_OUTPUT = {
    "BeingEvicted",
    "HeldUp",
    "NotOurs",
    "NothingWaits",
    "UnknownGang",
    "NotReady",
    "NotActive",
    "NotKnown",
    *map(str, MoveStage),
    "BeingDeleted",
    "NewLeader",
    "ClocksDiffer",
    *map(str, (*GapCause, *RemedyKind, *RemedyActor, *Verified)),
    *(str(stop) for stop in Stop),
    *(refusal.rule for refusal in (NO_TARGET, NO_USAGE, NOT_SETTLED, *CAPPED.values())),
}
"""States that commands print in words."""
OF_FAULTS = {
    *("RootListed", "NoNodeLayer", "UnknownParent", "TwoRoots", "TwoChildren", "NoLabel"),
    *("NoVolume", "NotForPod"),
    *map(str, (*Outcome, *ClosedBy, *Extent, *QosRule)),
}
"""What a message says in words, and no field by its name."""
OF_VALUES = {
    *("ApplyForAll", "BestEffort", "ConstrainedBurst", "ContainerLevel", "DeviceLevel", "PodLevel"),
    *("GangFromNativePodGroup", "GangFromPodAnnotation", "GangFromPodGroupCrd", "GangFromOwner"),
    "GiveUp",
    "BatchReclaim",
    *("ClusterTopologyLayer", "NodeTopologyLayer", "MustGather", "PreferGather", "NonStrict"),
    *("LeastAllocated", "MostAllocated", "PreScheduling", "RequestsAsCount", "RestartGang"),
    *("ForeignGate", "ReleaseAndBind", "ReleasePinned", "StandIn"),
    *("OperatorConfiguration", "NVLink"),
    *("FullPCPUs", "FullPCPUsOnly", "SpreadByPCPUs", "SingleNUMANode", "NUMANodeLevel"),
    *("PCIeLevel", "SamePCIe"),
    *("LowNodeLoad", "ReservationFirst", "EvictDirectly"),
    *("ProdHigh", "ProdLow", "BothLow"),
    "SoftEviction",
    *("HigherPriority", "HoldExpired", "LateEnd", "QuotaChanged"),
    *("BarePods", "EvictionCost", "ExpectedReplicas", "LabelSelector", "LocalStorage"),
    *("MaxMigratingGlobally", "MaxMigratingPerNamespace", "MaxMigratingPerNode"),
    *("MaxMigratingPerWorkload", "MaxUnavailablePerWorkload", "PriorityThreshold"),
    *("NotSet", "SystemCritical", "CloneSet", "ReplicationController", "PodGroup"),
    *map(str, (*AmountTermKind, *Unusable)),
    *map(str, (*EndBasis, *Flag, *LossBasis, *LossCause, *Unreadable)),
    *("HostGPUMemoryUsage", "HostCoreUtilization"),
}
"""Values of fields, annotations and settings: see the entries of these."""
OF_KUBERNETES = {
    *("BookingExpired", "CapacityRevoked", "PodTemplate", "ProvisioningRequest", "ScalingUp"),
    *("ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler", "SchedulingGated"),
    *("SelfSubjectAccessReview", "RuntimeDefault", "AlwaysAllow"),
    *("AntiAffinity", "NodeAffinity", "NodeName", "NodePorts", "TaintToleration"),
    *(
        "BearerToken",
        "DaemonSet",
        "ReplicaSet",
        "StatefulSet",
        "DoesNotExist",
        "NotIn",
        "DoNotSchedule",
        "RuntimeDefault",
    ),
    *("InvalidNodeInfo", "OutOf", "TopologyAffinityError", "UnexpectedAdmissionError"),
    *("NoExecute", "NoSchedule", "PreferNoSchedule", "PodResizePending", "PodScheduled"),
    *("ReadWriteOncePod", "WaitForFirstConsumer", "SubjectAccessReview", "TokenReview"),
    *("DisruptionTarget", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch"),
    *("NodeMetric", "MetricsAPI"),
    *("IfNeeded", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"),
    "PreemptLowerPriority",
    *("CronJob", "FailureTarget", "SuccessCriteriaMet"),
    *("ContainersReady", "PodReadyToStartContainers"),
    *("AllowedPodNumber", "BindingMemberPods", "EphemeralStorage", "GangGroup", "GangGroupId"),
    *("OnceResourceSatisfied", "RepresentativePodKey", "ScalarResources", "WaitingGangIDs"),
    *("DeviceShare", "ElasticQuota", "InterPodAffinity", "LoadAwareScheduling", "NodeNUMAResource"),
    *("NodeResourcesFit", "NodeResourcesFitPlus", "NodeUnschedulable", "PodTopologySpread"),
    *("PodTopologySpreadLabel", "ScarceResourceAvoidance", "VolumeBinding", "VolumeRestrictions"),
    *("VolumeZone", "DeleteConflictPVC", "WaitingVictimReleased"),
    *("DeletionByTaintManager", "TerminationByKubelet"),
    *("AddrInfoType", "ClientRequest", "NamespaceName", "ReadingKeys"),
}
PATHS = [path for part in PARTS for path in sorted(PACKAGE.joinpath(part).rglob("*.py"))]


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes_of_all() -> tuple[ast.AST, ...]:
    return tuple(node for path in PATHS for node in ast.walk(tree_of(path)))


@cache
def classes() -> frozenset[str]:
    """Return classes of ours, which annotations of types name."""
    return frozenset(node.name for node in nodes_of_all() if isinstance(node, ast.ClassDef))


def words_in(tree: ast.AST) -> Iterator[str]:
    """Yield what may be a reason: words in CamelCase, and what conditions and events are given."""
    constants = {
        node.target.id: node.value.value
        for node in ast.walk(tree)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("ConditionPatch"), args=[kind, _, reason, *_]):
                given = [one for one in (kind, reason) if isinstance(one, (ast.Name, ast.Constant))]
                found = (
                    one.value if isinstance(one, ast.Constant) else constants.get(one.id)
                    for one in given
                )
                yield from filter(None, found)
            case ast.keyword(arg="reason", value=ast.Constant(str(word))) if word:
                yield word
            case ast.Constant(str(word)) if WORDS.fullmatch(word):
                yield word


def causes_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the names of parts of messages, and of documents: these are no reasons of their own."""
    for node in nodes:
        match node:
            case ast.Call(func=ast.Name("Cause" | "TypedDict"), args=[ast.Constant(str(word)), *_]):
                yield word


@cache
def other_words() -> frozenset[str]:
    return frozenset(
        {*OF_OUTPUT, *OF_FAULTS, *OF_VALUES, *OF_KUBERNETES, *causes_in(nodes_of_all())}
    )


@cache
def described() -> frozenset[str]:
    """Return every reason, and every type of condition, that the reference has."""
    entries = [one for one in list_entries() if one.kind is EntryKind.CONDITION]
    types = {word for one in entries for word in re.findall(r"\w+", one.where)}
    return frozenset({one.key for one in entries} | types)


def undescribed(tree: ast.AST) -> set[str]:
    return set(words_in(tree)) - described() - classes() - other_words()


@pytest.mark.parametrize("path", PATHS, ids=lambda one: str(one.relative_to(PACKAGE)))
def test_every_reason_in_the_source_has_an_entry(path):
    assert undescribed(tree_of(path)) == set()


@pytest.mark.parametrize(
    "kind", [DeviceReadiness, TopologyReadiness, ProfileOutcome, HoldState], ids=str
)
def test_every_reason_of_an_enumeration_has_an_entry(kind):
    assert {str(one.value) for one in kind} <= described()


def test_every_reason_of_a_false_condition_of_quotas_has_an_entry():
    assert set(REASON_IF_FALSE.values()) <= described()


@pytest.mark.parametrize(
    "source",
    [
        'events.record(ref, kind, action=A, reason="NewThing", note=text)',
        'kind, reason = EventType.WARNING, "NewThing"',
        'self.warn("NewThing", "a note")',
        'ConditionPatch(READY, True, "New", text, generation)',
        'code: ClassVar = "NewThing"',
        'KIND: Final = "New"\nConditionPatch(KIND, True, reason, text, generation)',
    ],
)
def test_new_reason_without_an_entry_is_found(source):
    assert undescribed(ast.parse(source)) in ({"NewThing"}, {"New"})


def test_words_that_say_something_else_are_still_written():
    written = {node.value for node in nodes_of_all() if isinstance(node, ast.Constant)}
    assert {one for one in other_words() if one not in written} == set()
