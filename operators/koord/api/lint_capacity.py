"""Compares what pods request with what there is: a node, the cluster, the max of their quota.

Also whether pods that ask for accelerators opt in, without which no quota limits them, and whether
two quotas claim one namespace. Amounts that are not known are not compared. Knows files and what
the cluster has, as values; what many files say is looked up, never searched for.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from koord.api.keys import gang, operators, quota
from koord.api.lint_files import (
    INJECT_ALL,
    ClusterFacts,
    Files,
    Pods,
    Quota,
    collect_all,
    to_amounts,
    write_amount,
)
from koord.api.lint_isolation import Finding, find_of
from koord.api.parse import Problem, cut, format_field
from koord.api.untyped import to_list, to_map
from koord.parents import walk_up

_ACCELERATORS: Final = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu", "huawei.com/npu-core")
_ACCELERATOR_PREFIXES: Final = ("koordinator.sh/gpu", "kubernetes.io/gpu", "nvidia.com/mig-")
_DEFAULT_SCHEDULERS: Final = ("", "default-scheduler", operators.SCHEDULER_NAME)
_INJECTED: Final = (gang.POD_GROUP, quota.NAME)
_OPT_IN: Final = (
    f"add the scheduling gate {operators.PLACEMENT_GATE} and schedulerName "
    f"{operators.SCHEDULER_NAME}"
)


class _StartUnit(NamedTuple):
    """Pods of which ``number`` start together: of which document, and what field says so."""

    at: int
    field: str
    members: Sequence[Pods]
    number: int


def find_capacity_problems(
    documents: Sequence[Any], cluster: ClusterFacts | None = None
) -> Iterator[Finding]:
    """Yield what documents ask for, or leave out, and cannot get."""
    files = collect_all(documents, cluster.default_namespace if cluster else "")
    limits, room = _QuotaLimits([*files.limits, *_not_in(files, cluster)]), _Room(cluster)
    for limit in files.limits:
        yield from find_of(limit.at, _check_claims, limit, limits)
    for pods in files.pods:
        yield from find_of(pods.at, _check_opt_in, pods, cluster)
        yield from find_of(pods.at, _check_nodes, pods, room)
    for unit in _list_units(files):
        yield from find_of(unit.at, _check_limits, unit, limits, room)


def _not_in(files: Files, cluster: ClusterFacts | None) -> Iterator[Quota]:
    """Yield the quotas of the cluster that the files do not replace."""
    yield from (
        limit for limit in (cluster.limits if cluster else ()) if limit.name not in files.quotas
    )


class _Room:
    """What the nodes of a cluster have: each at most, and all together."""

    def __init__(self, cluster: ClusterFacts | None) -> None:
        nodes = cluster.nodes if cluster else ()
        self.is_known = bool(nodes)
        self.most: dict[str, int] = {}
        self.all: Counter[str] = Counter()
        for node in nodes:
            self.all.update(node)
            for name, amount in node.items():
                self.most[name] = max(amount, self.most.get(name, 0))


class _QuotaLimits:
    """Quotas, by what they are looked up by."""

    def __init__(self, limits: Sequence[Quota]) -> None:
        self.by_name: dict[str, Quota] = {}
        self._own: dict[str, list[Quota]] = {}
        """Namespace -> quotas of its name in it."""
        self._listed: dict[str, list[Quota]] = {}
        self._claims: dict[tuple[str, str], list[str]] = {}
        """Tree and namespace -> names of the quotas that claim it, each once."""
        for limit in limits:
            self.by_name.setdefault(limit.name, limit)
        self._trees = self._find_trees()
        for limit in limits:
            if limit.name == limit.namespace:
                self._own.setdefault(limit.namespace, []).append(limit)
            for namespace in dict.fromkeys(limit.namespaces):
                self._listed.setdefault(namespace, []).append(limit)
                names = self._claims.setdefault((self._trees[limit.name], namespace), [])
                if limit.name not in names[:2]:
                    names.append(limit.name)

    def find_rival(self, limit: Quota, namespace: str) -> str:
        """Return another quota of its tree that claims a namespace; empty if none does."""
        names = self._claims[self._trees[limit.name], namespace]
        return next((name for name in names if name != limit.name), "")

    def find_quota(self, pods: Pods) -> Quota | None:
        """Return the quota of pods, where one rule alone says so."""
        label = str(to_map(pods.meta.get("labels")).get(quota.NAME) or "")
        if label:
            return self.by_name.get(label)
        namespace = pods.namespace
        candidates = self._own.get(namespace) or self._listed.get(namespace, [])
        return candidates[0] if len(candidates) == 1 else None

    def _find_trees(self) -> dict[str, str]:
        """Return by quota the id of its tree, or the name of a quota that stands for it."""
        trees: dict[str, str] = {}
        for first in self.by_name.values():
            tree, below = "", []
            for at in walk_up(
                first, lambda each: each.name, lambda each: self.by_name.get(each.parent)
            ):
                if at.name in trees:
                    tree = trees[at.name]
                    break
                below.append(at.name)
                if at.tree or at.is_root or not at.parent:
                    tree = at.tree or (at.name if at.is_root else "")
                    break
                if at.parent not in self.by_name:
                    tree = at.parent
                    break
            trees |= dict.fromkeys(below, tree)
        return trees


def _check_claims(limit: Quota, limits: _QuotaLimits) -> Iterator[Finding]:
    """Two quotas of one tree, which share their nodes, cannot have the same namespace."""
    for namespace in limit.namespaces:
        if owner := limits.find_rival(limit, namespace):
            text = (
                f"belongs to quota {cut(owner)}, too: a namespace has one quota of a tree; of the "
                "two, the one that was there first has it"
            )
            field = format_field(("metadata", "annotations", quota.NAMESPACES))
            yield limit.at, Problem(field, cut(namespace), text)


def _check_opt_in(pods: Pods, cluster: ClusterFacts | None) -> Iterator[Finding]:
    accelerator = next((name for name in _ask(pods) if is_accelerator(name)), "")
    if not accelerator or pods.kind == "DaemonSet" or _opts_in(pods):
        return
    labels = to_map(pods.meta.get("labels"))
    may_be_injected = any(key in labels for key in _INJECTED)
    if may_be_injected and (cluster is None or pods.namespace in cluster.injects):
        return
    if cluster is not None and pods.namespace in cluster.injects_accelerators:
        return
    why = "is asked for by pods that do not opt in: no quota limits them, and no gang is whole"
    value = "enabled" if may_be_injected else INJECT_ALL
    inject = f"; or have the policy inject do so (label the namespace {operators.INJECT}={value})"
    path = f"{pods.prefix}spec"
    yield pods.at, Problem(path, cut(accelerator), f"{why}; {_OPT_IN}{inject}")


def is_accelerator(resource: str) -> bool:
    return resource in _ACCELERATORS or resource.startswith(_ACCELERATOR_PREFIXES)


def _opts_in(pods: Pods) -> bool:
    named = [to_map(gate).get("name") for gate in to_list(pods.spec.get("schedulingGates"))]
    scheduler = str(pods.spec.get("schedulerName") or "")
    # Ours, or another that is named on purpose.
    names_scheduler = scheduler not in _DEFAULT_SCHEDULERS or scheduler == operators.SCHEDULER_NAME
    return operators.PLACEMENT_GATE in named or names_scheduler


def _ask(pods: Pods) -> dict[str, int]:
    """Return what each pod requests; limits count where requests are left out."""
    total: Counter[str] = Counter()
    for container in to_list(pods.spec.get("containers")):
        resources = to_map(to_map(container).get("resources"))
        total.update(
            {**to_amounts(resources.get("limits")), **to_amounts(resources.get("requests"))}
        )
    return {name: amount for name, amount in total.items() if amount > 0}


def _check_nodes(pods: Pods, room: _Room) -> Iterator[Finding]:
    if not room.is_known:
        return
    for name, amount in _ask(pods).items():
        most = room.most.get(name, 0)
        if amount > most:
            has = f"the largest node has {write_amount(name, most)}" if most else "no node has any"
            text = f"each pod asks for {write_amount(name, amount)} of it, and {has}"
            yield pods.at, Problem(f"{pods.prefix}spec", cut(name), text)


def _check_limits(unit: _StartUnit, limits: _QuotaLimits, room: _Room) -> Iterator[Finding]:
    """Compare what starts together with the cluster, and with the max of its quota."""
    owner, count = limits.find_quota(unit.members[0]), unit.number
    for name, amount in _add_up_least(unit.members, count).items():
        text = f"{count} pods that start together ask for {write_amount(name, amount)} of it, "
        if room.is_known and amount > room.all[name] and count > 1:
            has = f"{text}the cluster has {write_amount(name, room.all[name])}"
            yield unit.at, Problem(unit.field, cut(name), has)
        if owner is not None and amount > owner.max.get(name, amount):
            most = f"{text}the max of quota {cut(owner.name)} is "
            most += write_amount(name, owner.max[name])
            yield unit.at, Problem(unit.field, cut(name), most)


def _list_units(files: Files) -> Iterator[_StartUnit]:
    for key, (at, minimum) in files.groups.items():
        if members := files.members.get(key, []):
            yield _StartUnit(at, "spec.minMember", members, max(minimum, 1))
    for pods in files.pods:
        if not pods.group:
            yield _StartUnit(pods.at, f"{pods.prefix}spec", [pods], 1)


def _add_up_least(members: Sequence[Pods], count: int) -> dict[str, int]:
    """Return what ``count`` of these pods ask for at least, whichever they are."""
    requested: dict[str, list[tuple[int, int]]] = {}
    everybody = 0
    for member in members:
        number = member.count or count
        everybody += number
        for name, amount in _ask(member).items():
            requested.setdefault(name, []).append((amount, number))
    total = {}
    for name, requests in requested.items():
        amount, left = 0, count - (everybody - sum(number for _, number in requests))
        for request, number in sorted(requests):
            taken = max(0, min(left, number))
            amount, left = amount + taken * request, left - taken
        total[name] = amount
    return total
