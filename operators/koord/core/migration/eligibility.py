"""Whether a pod may be moved at all: rules in order, of which the first that fails is reported.

These rules do not depend on what else is moved, so a job whose pod breaks one fails. The numbers
are part of what users see; a pod with the annotation ``evict`` is only asked the first two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from koord.core.migration.model import (
    NEVER_EVICT,
    SYSTEM_CRITICAL,
    JobMode,
    MigrationOptions,
    MovedPod,
)
from koord.core.migration.workload import Workload, has_expected_replicas, limits_of
from koord.core.model.selectors import is_selected

_DAEMON_SET: Final = "DaemonSet"


@dataclass(frozen=True, slots=True)
class Ineligible:
    """Why a pod is not moved: the rule that it breaks first, by number and name."""

    number: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"rule {self.number} ({self.rule}): {self.text}"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule; ``breaks`` returns what is wrong, "" if nothing is."""

    name: str
    breaks: Callable[[MovedPod, MigrationOptions], str]
    is_hard: bool = False
    """Whether the annotation ``evict`` does not help."""


def _of_scheduler(pod: MovedPod, options: MigrationOptions) -> str:
    if pod.is_ours or pod.scheduler in options.schedulers:
        return ""
    return f"its scheduler {pod.scheduler} does not know the place that is reserved for it"


def _of_namespace(pod: MovedPod, options: MigrationOptions) -> str:
    if pod.namespace in options.namespaces or not options.checks("Namespaces"):
        return ""
    return f"the settings leave out the namespace {pod.namespace}"


def _of_cost(pod: MovedPod, _: MigrationOptions) -> str:
    return f"its eviction cost is {NEVER_EVICT}" if pod.eviction_cost >= NEVER_EVICT else ""


def _of_kind(pod: MovedPod, _: MigrationOptions) -> str:
    if any(owner.kind == _DAEMON_SET for owner in pod.owners):
        return "it belongs to a DaemonSet"
    if pod.is_static:
        return "the kubelet made it from a file of its node"
    return "it is being deleted" if pod.is_terminating else ""


def _of_bare(pod: MovedPod, options: MigrationOptions) -> str:
    if pod.owners or not options.checks("BarePods") or options.evicts_all_bare:
        return ""
    if pod.phase == "Failed" and options.evicts_failed_bare:
        return ""
    return "nothing would create it again: it has no owner"


def _of_priority(pod: MovedPod, options: MigrationOptions) -> str:
    if options.evicts_critical or not options.checks("SystemCritical"):
        return ""
    if pod.priority >= SYSTEM_CRITICAL:
        return f"its priority {pod.priority} is one of the system"
    most = options.priority_threshold
    if most is None or pod.priority < most or not options.checks("PriorityThreshold"):
        return ""
    return f"its priority {pod.priority} is not below {most}"


def _of_storage(pod: MovedPod, options: MigrationOptions) -> str:
    if options.evicts_local_storage or not options.checks("LocalStorage"):
        return ""
    # Memory is lost with the processes of a pod, which expect nothing else.
    is_local = pod.has_local_storage or (options.compat and pod.has_memory_storage)
    return "it would lose an emptyDir or hostPath volume" if is_local else ""


def _of_claims(pod: MovedPod, options: MigrationOptions) -> str:
    is_kept = options.ignores_claims and options.checks("PVC") and pod.has_claims
    return "it has a persistent volume" if is_kept else ""


def _of_labels(pod: MovedPod, options: MigrationOptions) -> str:
    if not options.checks("LabelSelector"):
        return ""
    if not is_selected(pod.labels, options.label_selector):
        return "the settings do not select its labels"
    is_chosen = is_selected(pod.node_labels, options.node_selector)
    return "" if is_chosen else f"the settings do not select its node {pod.node}"


RULES: Final = (
    _Rule("Scheduler", _of_scheduler, is_hard=True),
    _Rule("Namespaces", _of_namespace),
    _Rule("EvictionCost", _of_cost),
    _Rule("Kind", _of_kind),
    _Rule("BarePods", _of_bare),
    _Rule("Priority", _of_priority),
    _Rule("LocalStorage", _of_storage),
    _Rule("PVC", _of_claims),
    _Rule("LabelSelector", _of_labels),
)
"""From the second on; the first is that no other job moves the pod, which its jobs say."""
DUPLICATE: Final = 1
EXPECTED_REPLICAS: Final = len(RULES) + 2


def find_ineligible(
    pod: MovedPod,
    options: MigrationOptions,
    *,
    workload: Workload | None = None,
    has_job: bool = False,
    mode: JobMode = JobMode.RESERVATION_FIRST,
) -> Ineligible | None:
    """Return the first rule that a pod breaks; None if it may be moved.

    Without ``workload`` it is not asked how many replicas remain. ``has_job``: another job moves
    the pod.
    """
    if has_job:
        return Ineligible(DUPLICATE, "Duplicate", "another job moves it")
    for number, rule in enumerate(RULES, DUPLICATE + 1):
        is_skipped = pod.evicts_protected and not rule.is_hard
        if is_skipped or (rule.is_hard and mode is JobMode.EVICT_DIRECTLY):
            continue
        if text := rule.breaks(pod, options):
            return Ineligible(number, rule.name, text)
    if workload is None or pod.evicts_protected or options.skips_expected_replicas:
        return None
    return _check_replicas(workload, options) if options.checks("ExpectedReplicas") else None


def _check_replicas(workload: Workload, options: MigrationOptions) -> Ineligible | None:
    replicas = workload.replicas
    limits = limits_of(
        replicas, options.most_per_workload, options.most_unavailable, compat=options.compat
    )
    if has_expected_replicas(replicas, limits):
        return None
    if replicas == 0:
        text = f"it is unknown how many pods {workload.name} should have"
    else:
        text = (
            f"{workload.name} has {replicas} replicas, of which {limits.most_migrating} may be "
            f"moved and {limits.most_unavailable} be away at once: none would remain"
        )
    return Ineligible(EXPECTED_REPLICAS, "ExpectedReplicas", text)
