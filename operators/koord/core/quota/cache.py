"""Quotas of the cluster as it is: joins quotas, gangs, pods and nodes.

Keeps what pods ask and use in step with the state, and the fair shares with that. Without any
ElasticQuota nothing is kept. What quotas allow a unit is asked of ``quota_gate``.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, TypeAlias

from koord.core.engine.state_view import GangView
from koord.core.model.device_names import WHOLE
from koord.core.model.nodes import Node
from koord.core.model.pod_requests import subtract_overhead
from koord.core.model.pods import Handling, Pod
from koord.core.model.selectors import LabelSelector
from koord.core.model.units import Amounts, is_extended
from koord.core.quota.admission import Submitted, find_exceeding_submissions
from koord.core.quota.catalog import QuotaCatalog
from koord.core.quota.hooks import Hooks
from koord.core.quota.model import (
    DEFAULT,
    DEFAULT_TREE,
    QuotaName,
    QuotaRules,
    QuotaSpec,
    TreeId,
    Usage,
    add_up,
    is_counted,
    shared_out,
    tree_totals,
)
from koord.core.quota.reasons import QuotaReason
from koord.core.quota.registry import (
    OUTSIDE,
    Binding,
    Facts,
    PodQuotaKey,
    find_quota,
    requirements_of,
)
from koord.core.quota.solve import ShareInput, Solution, solve
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.quota.supply import Supply
from koord.core.quota.tree import find_uncharged
from koord.core.quota.usage import PodUse, TerminatingPods, UsageTracker, count_devices
from koord.core.quota.validation import check_unused
from koord.isolation import Isolation

if TYPE_CHECKING:
    from koord.core.model.plan import Unit, UnitKey
    from koord.core.quota.leftovers import PendingUnit
    from koord.core.quota.reasons import SubmissionExceeded


MOST_STALE: Final = 1024
"""Pods, labels and quotas that are remembered beyond twice those that there are."""

_Limited: TypeAlias = dict[QuotaName, tuple[QuotaSpec, Usage | None]]


class QuotaCache:
    """Quotas in force, what their pods ask and use, and what each is entitled to."""

    def __init__(
        self,
        rules: QuotaRules | None = None,
        catalog: QuotaCatalog | None = None,
        hooks: Hooks | None = None,
        charged: dict[str, QuotaName] | None = None,
    ) -> None:
        self.rules = rules or QuotaRules()
        self.hooks = hooks or Hooks()
        self.catalog = catalog or QuotaCatalog(self.rules)
        self.usage = self._make_usage()
        self.leftovers_given: dict[QuotaName, float] = {}
        """Quota -> when it was given leftovers last; see ``leftovers``."""
        self.without_leftovers: dict[QuotaName, UnitKey] = {}
        """Quota that is given no leftovers -> the unit that waits for what was taken back."""
        self.supply = Supply()
        self._nodes: dict[str, Node] = {}
        self._foreign_on: dict[str, set[str]] = {}
        """Node, whether it exists or not -> pods there that other schedulers placed."""
        self.pending_units: dict[UnitKey, tuple[Unit, PendingUnit]] = {}
        """What units ask that were looked at before; as long as they are the very same."""
        self._members: dict[str, set[str]] = {}
        """Gang -> uids of its pods that are counted."""
        self._seen: dict[str, tuple[Pod, bool]] = {}
        """Pod -> how it was looked at last: the very pod, and whether its gang was whole."""
        self.exceeding_submissions: dict[str, SubmissionExceeded] = {}
        """Pod that waits -> why it is more than may be submitted to its quota."""
        self._limited: _Limited = {}
        """Quota that limits what is submitted -> what ``exceeding_submissions`` was found with."""
        self._bindings_of: dict[PodQuotaKey, Binding] = {}
        self.terminating = TerminatingPods(self.rules.terminating_use)
        self.has_blocked_pods = False
        """Whether some pods name quotas that they may not use."""
        self._known_names: frozenset[QuotaName] = frozenset()
        """The quotas that pods on nodes could be charged to, as of the last ``settle``."""
        self.charged = charged if charged is not None else {}
        """Pod on a node -> the quota that it was charged to when it was first counted there."""
        self._bindings = -1
        self._shared: frozenset[str] = frozenset()
        """The namespaces that several quotas list, as of then."""
        self._solutions: dict[TreeId, Solution] = {}
        self._failures: dict[TreeId, Exception] = {}
        self._is_outdated = False
        """Whether the shares follow from what was true before."""
        self._isolated = Isolation("quota-usage")
        self._uncounted: dict[str, Exception] = {}
        """Pod -> the defect that keeps it from being counted; it counts as it did before."""
        self._solved = 0
        self.stopwatch: Callable[[str], AbstractContextManager[object]] = nullcontext
        """Is entered, with its name, while an operation on all quotas runs: here is no clock."""

    def _make_usage(self) -> UsageTracker:
        return UsageTracker(
            self.rules, on_change=self.hooks.notify_pod if self.hooks.hooks else None
        )

    @property
    def is_in_use(self) -> bool:
        """Whether there is any ElasticQuota, or one was deleted that is still remembered."""
        return bool(self.catalog.written or self.catalog.gone)

    @property
    def version(self) -> tuple[int, int]:
        """Grows with everything that may let units through that were refused."""
        self._solve_again()
        return (self.catalog.bindings, self._solved)

    @property
    def solutions(self) -> Mapping[TreeId, Solution]:
        """Tree -> its fair shares."""
        self._solve_again()
        return self._solutions

    @property
    def failures(self) -> Mapping[TreeId, Exception]:
        """Tree -> the defect that keeps its shares from being computed; its pods wait."""
        self._solve_again()
        return self._failures

    def outdate(self) -> None:
        """Have the shares computed anew when they are asked for next: most changes ask nothing."""
        self._is_outdated = True

    def _solve_again(self) -> None:
        if self._is_outdated:
            with self.stopwatch("solve"):
                self.solve()

    def upsert_node(self, node: Node) -> None:
        """Take in a node."""
        before = self._nodes.get(node.name)
        self._nodes[node.name] = node
        if before is None or before.allocatable != node.allocatable:
            self._recount_foreign(node.name)
        if self.rules.supplies_use:
            self.supply.upsert_node(node)

    def remove_node(self, name: str) -> None:
        """Note that a node is gone."""
        self._nodes.pop(name, None)
        self._recount_foreign(name)
        if self.rules.supplies_use:
            self.supply.remove_node(name)

    def _recount_foreign(self, node: str) -> None:
        """Count pods of other schedulers by what their node has by now."""
        for uid in sorted(self._foreign_on.pop(node, ())):
            seen = self._seen.pop(uid, None)
            if seen is not None:
                self.count_pod(seen[0], is_whole=seen[1])

    def quota_of(self, pod: Pod) -> QuotaName:
        """Return the quota that a pod counts for; the default quota if it is under none.

        Once a pod has a node, neither its labels nor the quota's annotations move it to another
        quota: the release has recorded its quota, and a pod that others placed stays where it was
        seen first.
        """
        if self.rules.restricts_use and is_used(pod):
            recorded = pod.recorded.quota if pod.recorded is not None else ""
            name = recorded or self.charged.get(pod.uid, "")
            if name in self.catalog.known_names:
                return name
        return self._find(self.quota_key_of(pod)).quota

    @property
    def bindings_version(self) -> object:
        """Another object as soon as pods that wait may count for other quotas."""
        return self._bindings_of

    def quota_key_of(self, pod: Pod) -> PodQuotaKey:
        """Return what decides on the quota of a pod."""
        if self.catalog.registry.is_shared(pod.namespace):
            return PodQuotaKey(pod.quota, pod.namespace, requirements_of(pod.shape))
        return PodQuotaKey(pod.quota, pod.namespace)

    def find_use(self, name: QuotaName) -> InvalidQuota | None:
        """Return what a quota is kept for after its deletion; None if it is not used."""
        return check_unused(name, self.catalog.children(name), self.usage.count(name))

    def charges_of(self, pods: Iterable[Pod]) -> dict[str, QuotaName]:
        """Return uid -> quota of pods that are about to be released, to be recorded with that."""
        if not (self.is_in_use and self.rules.restricts_use):
            return {}
        names = {pod.uid: self.quota_of(pod) for pod in pods}
        return {uid: name for uid, name in names.items() if name != DEFAULT}

    def reason_of(self, pod: Pod) -> QuotaReason | None:
        """Return why a pod may not start in the quota that it names."""
        if not self.has_blocked_pods or is_used(pod):
            return None
        return self._find(self.quota_key_of(pod)).reason

    def _find(self, quota_key: PodQuotaKey) -> Binding:
        binding = self._bindings_of.get(quota_key)
        if binding is None:
            binding = self._bindings_of[quota_key] = self._resolve(quota_key)
        return binding

    def _resolve(self, quota_key: PodQuotaKey) -> Binding:
        book = self.catalog
        binding = find_quota(quota_key, book.registry, self.rules, book.inactive) or OUTSIDE
        self.has_blocked_pods |= binding.reason is not None
        return binding

    def pools(self) -> dict[TreeId, tuple[LabelSelector, ...]]:
        """Return where pods may go, of each tree that is confined to some nodes."""
        return self.catalog.registry.pools()

    def settle(self) -> list[Pod]:
        """Bring quotas into force; return the pods that now count for another quota."""
        usage = self.usage.usage()
        used = {name: usage_of_quota.used for name, usage_of_quota in usage.items()}
        in_force = dict(self.catalog.registry.specs) if self.hooks.hooks else {}
        self.catalog.settle(Facts(labels=usage.keys(), used=used))
        if self.hooks.hooks:
            self.hooks.notify_quotas(in_force, self.catalog.registry.specs)
        if self.catalog.bindings == self._bindings:
            return []
        self._bindings = self.catalog.bindings
        before, known_names = self._bindings_of, self._known_names
        self._known_names = self.catalog.known_names
        self.has_blocked_pods = False
        self._bindings_of = {quota_key: self._resolve(quota_key) for quota_key in before}
        self.pending_units.clear()
        moved = {
            quota_key for quota_key in before if before[quota_key] != self._bindings_of[quota_key]
        }
        shared, self._shared = self._shared, self.catalog.registry.shared
        if shared != self._shared:  # then more or less of a pod decides
            moved |= {self.quota_key_of(pod) for pod, _ in self._seen.values()} - before.keys()
        if not moved and known_names == self._known_names:
            return []
        pods = [
            pod
            for uid, (pod, _) in self._seen.items()
            if self.quota_key_of(pod) in moved or self._is_charged_elsewhere(uid, pod)
        ]
        for pod in pods:  # otherwise they would not be recounted
            del self._seen[pod.uid]
        return pods

    def _is_charged_elsewhere(self, uid: str, pod: Pod) -> bool:
        use = self.usage.get(uid)
        return use is not None and use.quota != self.quota_of(pod)

    def forget_stale(self) -> None:
        """Forget pods and quotas that are gone, and labels that no pod has any more."""
        most = 2 * len(self._seen) + MOST_STALE
        if len(self.charged) > most:
            self.charged = {uid: self.charged[uid] for uid in self.charged.keys() & self._seen}
        if len(self._bindings_of) > most:
            quota_keys = {self.quota_key_of(pod) for pod, _ in self._seen.values()}
            self._bindings_of = {
                quota_key: self._bindings_of[quota_key]
                for quota_key in self._bindings_of.keys() & quota_keys
            }
        specs = self.catalog.registry.specs
        if len(self.leftovers_given) > 2 * len(specs) + MOST_STALE:
            for name in self.leftovers_given.keys() - specs.keys():
                del self.leftovers_given[name]

    def forget_counted(self) -> None:
        """Forget nodes and what pods use, and all that follows from it."""
        self._nodes = {}
        self.supply = Supply()
        self.usage = self._make_usage()
        self.terminating.clear()
        self._foreign_on.clear()
        self._members.clear()
        self._seen.clear()
        self._solutions = {}

    def count_gangs(
        self, gangs: Iterable[str], book: GangView, is_complete: Callable[[str], bool]
    ) -> None:
        """Recount the pods of gangs; only complete gangs have demand."""
        touched = sorted({name for gang in gangs for name in book.group(gang).gangs})
        for gang in touched:
            members = book.members(gang)
            for uid in self._members.pop(gang, set()) - members.keys():
                self.forget_pod(uid)
            if members:
                self._members[gang] = set(members)
        for gang in touched:
            with self._isolated.of(gang):
                is_whole = is_complete(gang)
                for pod in book.members(gang).values():
                    self.count_pod(pod, is_whole=is_whole)

    def count_pod(self, pod: Pod, *, is_whole: bool = True) -> None:
        """Count a pod as it is now; if that fails, all others are counted all the same."""
        seen = self._seen.get(pod.uid)
        if seen is not None and seen[0] is pod and seen[1] is is_whole:
            return  # another member has changed
        try:
            self._count(pod, is_whole=is_whole)
        except Exception as error:  # noqa: BLE001 - see above
            self._uncounted[pod.key] = error
            self._seen.pop(pod.uid, None)
        else:
            self._uncounted.pop(pod.key, None)
            self._seen[pod.uid] = (pod, is_whole)

    def limit_submissions(self) -> None:
        """Find the pods above the submission limits; see ``exceeding_submissions``."""
        usage = self.usage.usage()
        limited: _Limited = {
            name: (spec, usage.get(name))
            for name, spec in self.catalog.registry.specs.items()
            if spec.admission
        }
        if _are_same(limited, self._limited):
            return
        self._limited = limited
        pods: dict[QuotaName, list[Submitted]] = {name: [] for name in limited}
        for uid, (pod, _) in self._seen.items():
            use = self.usage.get(uid)
            if use is not None and use.quota in pods and self.reason_of(pod) is None:
                request = count_devices(dict(self.requests_of(pod)), self.rules)
                submitted = Submitted(uid, request, pod.created, is_used=use.is_used)
                pods[use.quota].append(submitted)
        before, self.exceeding_submissions = self.exceeding_submissions, {}
        for name, (spec, _) in limited.items():
            self.exceeding_submissions |= find_exceeding_submissions(spec, pods[name])
        for uid in before.keys() ^ self.exceeding_submissions.keys():
            seen = self._seen.pop(uid, None)
            if seen is not None:
                self.count_pod(seen[0], is_whole=seen[1])

    def forget_pod(self, uid: str) -> None:
        self._stop_counting(uid)
        self.terminating.forget(uid)
        self._seen.pop(uid, None)

    def _stop_counting(self, uid: str) -> None:
        use = self.usage.get(uid)
        foreign = self._foreign_on.get(use.node) if use is not None else None
        if use is not None and foreign is not None:
            foreign.discard(uid)
            if not foreign:
                del self._foreign_on[use.node]
        self.usage.remove(uid)

    def recount_terminating(self) -> None:
        """Stop counting pods whose grace period is over, if that is a rule."""
        for uid in self.terminating.take_due():
            seen = self._seen.pop(uid, None)
            if seen is not None:
                self.count_pod(seen[0], is_whole=seen[1])

    def _count(self, pod: Pod, *, is_whole: bool) -> None:
        uses = is_used(pod)
        has_left = self.terminating.note(pod)
        if pod.phase.is_terminal or (pod.is_terminating and not uses) or has_left:
            self._stop_counting(pod.uid)
            return
        quota = self.quota_of(pod)
        if uses and quota != DEFAULT:
            self.charged[pod.uid] = quota
        else:
            self.charged.pop(pod.uid, None)
        is_held = pod.handling is Handling.FOREIGN_GATE or (
            pod.handling is Handling.NOT_OURS and pod.is_gated
        )
        is_foreign = pod.handling is Handling.NOT_OURS and pod.recorded is None
        counted = self.requests_of(pod)
        if uses and is_foreign and self.rules.restricts_use:
            self._foreign_on.setdefault(pod.node, set()).add(pod.uid)
            counted = self._limit_by_node(pod.node, counted)
        self.usage.upsert(
            PodUse(
                pod.uid,
                quota,
                pod.shape,
                is_used=uses,
                is_ready=is_whole and not is_held and self._may_start(pod),
                is_non_preemptible=pod.is_non_preemptible,
                is_foreign=is_foreign,
                counted=counted,
                node=pod.planned_node if uses else "",
            )
        )

    def _limit_by_node(
        self, name: str, requests: tuple[tuple[str, int], ...]
    ) -> tuple[tuple[str, int], ...]:
        """Return what a pod can use of its node at most: whoever creates a pod may name any node.

        A kubelet refuses what its node has not; of a node that does not exist nothing is used.
        """
        node = self._nodes.get(name)
        if node is None:
            return tuple((key, 0) for key, _ in requests)
        room = node.allocatable
        # Shares of devices are no resources of a node: 100 of each card.
        shares = WHOLE * sum(n for key, n in room.items() if is_extended(key))
        return tuple((key, min(n, room.get(key, shares))) for key, n in requests)

    def requests_of(self, pod: Pod) -> tuple[tuple[str, int], ...]:
        """Return the amounts that count for a pod, by the names that it uses."""
        if pod.uid in self.terminating.ignored:
            return ()
        is_more = pod.counted and self.rules.counts_device_shares
        counted = pod.counted if is_more else pod.shape.requests
        if pod.shape.overhead and not self.rules.counts_overhead:
            return subtract_overhead(counted, pod.shape.overhead)
        return counted

    def _may_start(self, pod: Pod) -> bool:
        return pod.uid not in self.exceeding_submissions and self.reason_of(pod) is None

    def solve(self) -> list[Solution]:
        """Return the fair shares of all trees."""
        before, self._solutions, self._failures = self._solutions, {}, {}
        self._is_outdated = False
        trees = sorted(self.catalog.registry.trees())
        try:
            totals = self._totals()
        except Exception as error:  # noqa: BLE001 - pods under no quota go on
            self._failures = dict.fromkeys(trees, error)
            return []
        for tree_id in trees:
            self._solve_tree(tree_id, totals.get(tree_id, {}), before.get(tree_id))
        if any(before.get(tree) is not solution for tree, solution in self._solutions.items()):
            self._solved += 1
        return list(self._solutions.values())

    def outside(self) -> Usage:
        """Return what pods ask and use that are in no quota in force."""
        specs = self.catalog.registry.specs
        outside_usages = [usage for name, usage in self.usage.usage().items() if name not in specs]
        return Usage(
            submitted=add_up(usage.submitted for usage in outside_usages),
            demand=add_up(usage.demand for usage in outside_usages),
            used=add_up(usage.used for usage in outside_usages),
        )

    def failure_of(self, name: QuotaName) -> Exception | None:
        """Return why the shares of a quota in force cannot be computed; None if they can."""
        spec = self.catalog.registry.specs.get(name) if self.failures else None
        return None if spec is None else self.failures.get(spec.tree_id)

    @property
    def defects(self) -> dict[str, Exception]:
        """What of quotas cannot be computed for a defect of ours, by what it is about."""
        return {
            **{f"tree {tree_id!r}": error for tree_id, error in self.failures.items()},
            **{f"quota {key}": error for key, error in self.catalog.defects.items()},
            **{f"pod {key}": error for key, error in self._uncounted.items()},
        }

    def _totals(self) -> dict[TreeId, dict[str, int]]:
        specs = self.catalog.registry.specs
        if self.rules.supplies_use:
            return self.supply.totals(self.usage, specs, self._find_uncharged())
        self.usage.take_touched()  # nobody else does
        counted = (node for node in self._nodes.values() if is_counted(node, self.rules))
        totals = tree_totals(
            add_up(node.allocatable for node in counted), specs.values(), self.rules
        )
        totals[DEFAULT_TREE] = shared_out(totals[DEFAULT_TREE], self.outside().used)
        return totals

    def _find_uncharged(self) -> dict[TreeId, Amounts]:
        """Return what pods of each tree use that its root is not charged with."""
        usage, specs = self.usage.usage(), self.catalog.registry.specs
        users = (name for name, own in usage.items() if own.foreign_used and name in specs)
        uncharged: dict[TreeId, Amounts] = {}
        for tree_id in {specs[name].tree_id for name in users}:
            try:
                uncharged[tree_id] = find_uncharged(self.catalog.tree(tree_id), usage, self.rules)
            except Exception as error:  # noqa: BLE001 - a defect that one tree shows stops no other
                self._failures[tree_id] = error
        return uncharged

    def _solve_tree(self, tree_id: TreeId, total: Amounts, before: Solution | None) -> None:
        if tree_id in self._failures:
            return
        try:
            tree = self.catalog.tree(tree_id)
            if len(tree.specs) == 1:
                return  # its root quota was deleted
            inputs = ShareInput(tree, total, self.usage.usage(), self.rules)
            is_known = before is not None and before.inputs == inputs
            self._solutions[tree_id] = before if before and is_known else solve(inputs, before)
        except Exception as error:  # noqa: BLE001 - a defect that one tree shows stops no other
            self._failures[tree_id] = error


def is_used(pod: Pod) -> bool:
    """Whether a pod uses a share of its quota: it has a node, or is about to get it."""
    return bool(pod.node) or (pod.recorded is not None and not pod.is_gated)


def _are_same(limited: _Limited, before: _Limited) -> bool:
    """Whether neither quotas nor their pods have changed: equal sums may be of other pods."""
    return limited.keys() == before.keys() and all(
        mine is other
        for name, both in limited.items()
        for mine, other in zip(both, before[name], strict=True)
    )
