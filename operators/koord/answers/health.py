"""What is sick in the cluster: nodes, devices, pods that do not end, gangs below their minimum.

Found in what was read, each finding with what to do. What only the process of the operators knows
(refused writes, lists that are not read) is in its Lease. Decides nothing.
"""

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypedDict

from koord.answers.encoding import Encoded, encode
from koord.answers.fragmentation import count_gpus_of_nodes
from koord.answers.pod_tallies import tally_pods
from koord.answers.redaction import Sight, redact
from koord.core.device.model import DeviceReport
from koord.core.device.plugin import Devices
from koord.core.device.status import NodeDeviceStatus, observe_devices
from koord.core.engine.state import ClusterState
from koord.core.gang.quorum import find_lost
from koord.core.model.device_names import GPU
from koord.core.model.gangs import GangKey
from koord.core.model.nodes import Node
from koord.core.model.pods import Pod
from koord.core.model.text import format_time, listed, plural
from koord.core.reservation.placeholders import find_overfull
from koord.core.reservation.plugin import Reservations
from koord.isolation import Isolation

STUCK_SECONDS: Final = 60
"""This long after its grace period a pod that terminates is stuck."""
_MOST_NAMED: Final = 4
MOST_OF_NAMESPACE: Final = 100
"""Findings of one kind about its objects."""
_ISOLATED: Final = Isolation("answers")


class Severity(StrEnum):
    """How much it matters."""

    ERROR = "Error"
    """Pods or GPUs are out of use, and it does not end by itself."""
    WARNING = "Warning"
    """It keeps pods away, or may be meant."""


@dataclass(frozen=True, slots=True)
class SickSubject:
    """The object that is not well; ``device`` is a part of it."""

    kind: str
    name: str
    namespace: str = ""
    device: str = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind.lower()}/{name}{f' {self.device}' if self.device else ''}"


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """Something that is not well. ``since`` is in seconds since the epoch; 0: that is not known.

    ``gpus_out`` is how many GPUs nobody can get because of it; ``units`` are pods and gangs that it
    concerns.
    """

    subject: SickSubject
    reason: str
    severity: Severity
    message: str
    do_this: str
    since: float = 0.0
    gpus_out: int = 0
    units: tuple[str, ...] = ()


def find_sick(state: ClusterState, now: float) -> tuple[HealthFinding, ...]:
    """Return all findings: errors first, then by GPUs out, then by subject."""
    state.refresh()
    findings = (finding for finder in _FINDERS for finding in finder(state, now))
    return tuple(
        sorted(
            _sum_up(findings),
            key=lambda finding: (
                finding.severity is not Severity.ERROR,
                -finding.gpus_out,
                str(finding.subject),
                finding.reason,
            ),
        )
    )


def _sum_up(findings: Iterable[HealthFinding]) -> Iterator[HealthFinding]:
    """Yield findings, of one kind in one namespace the first, and how many more there are.

    A namespace may have thousands of pods that its owner keeps from ending.
    """
    seen: Counter[tuple[str, str]] = Counter()
    for finding in findings:
        kind = finding.subject.namespace, finding.reason
        seen[kind] += 1
        if not finding.subject.namespace or seen[kind] <= MOST_OF_NAMESPACE:
            yield finding
    for (namespace, reason), count in seen.items():
        if namespace and count > MOST_OF_NAMESPACE:
            yield HealthFinding(
                SickSubject("Namespace", namespace, namespace),
                reason,
                Severity.ERROR,
                f"{count - MOST_OF_NAMESPACE} more of its objects are not well for this reason",
                f"kubectl get pods -n {namespace}",
            )


def see_sick(findings: tuple[HealthFinding, ...], sight: Sight) -> tuple[HealthFinding, ...]:
    """Return the findings about what an asker may list; others that they concern are not named."""
    seen = (finding for finding in findings if _is_seen(finding.subject, sight))
    return tuple(redact(finding, sight.hide) for finding in seen)


def _is_seen(subject: SickSubject, sight: Sight) -> bool:
    if subject.namespace:
        return sight.sees(subject.namespace)
    if subject.kind == "ElasticQuota":
        return sight.sees_quota(subject.name)
    if subject.kind == "Reservation" and not sight.reservations:
        return False
    return sight.nodes  # what is in no namespace names nodes


class HealthFindingDocument(TypedDict):
    """Something that is not well; ``since`` is null if that is not known."""

    subject: Encoded[SickSubject]
    reason: str
    severity: Severity
    message: str
    doThis: str
    since: str | None
    gpusOut: int
    units: list[str | None]


@encode.register
def _(finding: HealthFinding) -> HealthFindingDocument:
    return {
        "subject": encode(finding.subject),
        "reason": finding.reason,
        "severity": finding.severity,
        "message": finding.message,
        "doThis": finding.do_this,
        "since": format_time(finding.since) if finding.since else None,
        "gpusOut": finding.gpus_out,
        "units": encode(finding.units),
    }


def _find_nodes(state: ClusterState, _now: float) -> Iterator[HealthFinding]:
    sick_nodes = state.follower(SickNodes, SickNodes).find(state)
    gpus = count_gpus_of_nodes(state) if sick_nodes else {}
    for node, (reason, severity, message, do_this) in sick_nodes:
        of_node = gpus.get(node.name)
        out = 0 if of_node is None else of_node.total if of_node.is_down else of_node.stranded
        subject = SickSubject("Node", node.name)
        yield HealthFinding(
            subject, reason, severity, message, do_this, node.out_since, gpus_out=out
        )


_Described = tuple[str, Severity, str, str]


class SickNodes:
    """The nodes of one state that are not well, looked for again once a node has changed."""

    def __init__(self) -> None:
        self._nodes: list[Node | None] = []
        self._found: tuple[tuple[Node, _Described], ...] = ()

    def find(self, state: ClusterState) -> tuple[tuple[Node, _Described], ...]:
        """Return them, by name, with what is to be said of each."""
        nodes = state.table.nodes
        if len(nodes) != len(self._nodes) or not all(map(operator.is_, nodes, self._nodes)):
            self._nodes = list(nodes)
            live = (state.table.node_at(row) for _, row in state.table.live_rows())
            self._found = tuple(
                (node, described)
                for node in live
                if (described := _describe_node(node)) is not None
            )
        return self._found


def _describe_node(node: Node) -> _Described | None:
    if node.has_failed:
        return (
            "NotReady",
            Severity.ERROR,
            "its kubelet does not report, or reports that it is not ready",
            f"kubectl describe node {node.name}",
        )
    if node.is_terminating:
        return (
            "BeingDeleted",
            Severity.WARNING,
            "it is being deleted, and takes no pods",
            f"kubectl get node {node.name} -o jsonpath={{.metadata.finalizers}}",
        )
    if node.is_unschedulable:
        return (
            "Cordoned",
            Severity.WARNING,
            "it is cordoned, and takes no new pods",
            f"kubectl uncordon {node.name}, if it is meant to take pods again",
        )
    return None


def _find_devices(state: ClusterState, _now: float) -> Iterator[HealthFinding]:
    return state.follower(SickDevices, SickDevices).find(state)


class SickDevices:
    """What is to be said of the devices of one state: looked for again where their use changed."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[DeviceReport, tuple[HealthFinding, ...]]] = {}
        """Node -> what it reported, and what was found."""
        self._use_read = 0
        """The last change of their use that was looked at."""

    def find(self, state: ClusterState) -> Iterator[HealthFinding]:
        """Yield it by name of the node."""
        plugin, before = state.plugin(Devices), self._found
        use, self._found = plugin.changes_of_use, {}
        changed = frozenset(use.after(self._use_read))
        self._use_read = use.last
        for name in sorted(plugin.reports):
            report = plugin.reports[name]
            of_report, findings = before.get(name, (None, None))
            if findings is None or of_report is not report or name in changed:
                findings = _ISOLATED.call(name, _describe_devices, state, report)
            if findings is not None:
                self._found[name] = report, findings
        for _, findings in self._found.values():
            yield from findings


def _describe_devices(state: ClusterState, report: DeviceReport) -> tuple[HealthFinding, ...]:
    plugin = state.plugin(Devices)
    status = observe_devices(plugin, report, state.pods)
    return tuple(_describe_status(report.node, status))


def _describe_status(name: str, status: NodeDeviceStatus) -> Iterator[HealthFinding]:
    for device in status.unhealthy:
        yield HealthFinding(
            SickSubject("Node", name, device=f"{device.kind} {device.minor}"),
            "Recovering" if device.is_recovering else "DeviceUnhealthy",
            Severity.WARNING if device.is_recovering else Severity.ERROR,
            "it is healthy again and not used yet"
            if device.is_recovering
            else "its Device reports it as unhealthy",
            f"koord devices {name}",
            since=0.0 if device.is_recovering else device.since,
            gpus_out=int(device.kind == GPU),
            units=device.pods,
        )
    if status.problems:
        path, problem = status.problems[0]
        yield HealthFinding(
            SickSubject("Device", name),
            "InvalidEntries",
            Severity.WARNING,
            f"{plural(len(status.problems), 'entry')} cannot be used: {path} {problem}",
            "mend what writes it: the agent of the node, or koordlet",
        )
    if status.strayed:
        yield HealthFinding(
            SickSubject("Device", name),
            str(status.records),
            Severity.WARNING,
            status.describe_records(),
            "restart those pods when it suits them: they may use devices of others",
            units=tuple(sorted({pod for pod, _ in status.strayed})),
        )


def _find_stuck(state: ClusterState, now: float) -> Iterator[HealthFinding]:
    ending = tally_pods(state).ending
    for pod in ending.values():
        if now - pod.gone_by > STUCK_SECONDS:
            finding = _ISOLATED.call(pod.key, _describe_stuck, pod)
            if finding is not None:
                yield finding


def _describe_stuck(pod: Pod) -> HealthFinding:
    held = f"; finalizers {listed(pod.finalizers[:_MOST_NAMED])}" if pod.finalizers else ""
    return HealthFinding(
        SickSubject("Pod", pod.name, pod.namespace),
        "TerminationStuck",
        Severity.ERROR,
        f"it should have ended, and is still on node {pod.node}{held}",
        "see what its finalizers wait for"
        if pod.finalizers
        else f"see whether node {pod.node} still answers",
        since=pod.gone_by,
    )


def _find_gangs(state: ClusterState, _now: float) -> Iterator[HealthFinding]:
    for key in state.gangs.keys():  # noqa: SIM118 - no dict
        lost = _ISOLATED.call(key, _count_lost, state, key)
        if lost:
            namespace, _, name = key.partition("/")
            yield HealthFinding(
                SickSubject("PodGroup", name, namespace),
                "BelowMin",
                Severity.ERROR,
                f"it runs, and lacks {plural(lost, 'member')} that it needs",
                f"koord explain podgroup {name} -n {namespace}",
            )


def _count_lost(state: ClusterState, gang: GangKey) -> int:
    return sum(lost_member.missing for lost_member in find_lost(state.gangs, gang))


def _find_quotas(state: ClusterState, _now: float) -> Iterator[HealthFinding]:
    for problem in state.quotas.catalog.problems.values():
        yield HealthFinding(
            SickSubject("ElasticQuota", problem.quota),
            str(problem.rule),
            Severity.WARNING,
            problem.describe(),
            "correct the quota; its last valid settings are in force until then",
        )


def _find_topologies(state: ClusterState, _now: float) -> Iterator[HealthFinding]:
    for name in state.topologies:
        if state.topologies.problem(name) is not None:
            yield HealthFinding(
                SickSubject("ClusterNetworkTopology", name),
                "InvalidLayers",
                Severity.WARNING,
                "its layers are invalid",
                f"koord topology {name}",
            )


def _find_reservations(state: ClusterState, _now: float) -> Iterator[HealthFinding]:
    for account in state.plugin(Reservations).accounts.values():
        over = find_overfull(state, account)
        if over:
            yield HealthFinding(
                SickSubject("Reservation", account.reservation.name),
                "CapacityStolen",
                Severity.ERROR,
                f"pods of others use what it holds on node {account.reservation.status.node}: "
                f"{listed(sorted(over))}",
                "koord reservation explain shows who",
            )


_FINDERS: Final[tuple[Callable[[ClusterState, float], Iterator[HealthFinding]], ...]] = (
    _find_nodes,
    _find_devices,
    _find_stuck,
    _find_gangs,
    _find_quotas,
    _find_topologies,
    _find_reservations,
)
