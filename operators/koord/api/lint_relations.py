"""Checks what objects of the same files, or of the cluster, say of each other.

One object alone may be valid and yet never start: its label names no PodGroup, its gang needs more
members than there are pods, its gate is misspelled. Knows files and names, not the cluster.

What pods request is compared with what there is: a node, the cluster, the max of their quota. Also
whether pods that ask for accelerators opt in, without which no quota limits them, and whether two
quotas claim one namespace. Amounts that are not known are not compared.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from koord.api.keys import gang, operators, quota
from koord.api.lint_files import (
    INJECT_ALL,
    ClusterFacts,
    Files,
    Pods,
    Quota,
    collect,
    to_amounts,
    write_amount,
)
from koord.api.parse import Problem, format_field
from koord.api.untyped import to_list, to_map
from koord.parents import walk_up

_QUOTA_LIKENESS: Final = 0.75


def find_relation_problems(
    documents: Iterable[Any], cluster: ClusterFacts | None = None
) -> Iterator[tuple[int, Problem]]:
    """Yield the place of a document and a problem of it."""
    objects = [document for document in documents if isinstance(document, Mapping)]
    places = [at for at, document in enumerate(documents) if isinstance(document, Mapping)]
    files = Files()
    for at, document in zip(places, objects, strict=True):
        collect(files, at, document, cluster.default_namespace if cluster else "")
        yield from ((at, problem) for problem in _check_quota(document))
    for pods in files.pods:
        yield from ((pods.at, problem) for problem in _check_pods(pods, files, cluster))
    yield from _check_counts(files)


def find_parent_problems(
    documents: Sequence[Any], cluster: ClusterFacts | None = None
) -> Iterator[tuple[int, Problem]]:
    """Yield the place of each quota whose parent is not there, and what is wrong.

    Without a cluster these are only notes: the parent may be there.
    """
    quotas = {
        at: to_map(document.get("metadata"))
        for at, document in enumerate(documents)
        if isinstance(document, Mapping) and document.get("kind") == "ElasticQuota"
    }
    made = {
        str(to_map(document.get("spec")).get("quotaName"))
        for document in documents
        if isinstance(document, Mapping) and document.get("kind") == "ElasticQuotaProfile"
    }
    there = made | {str(meta.get("name")) for meta in quotas.values()}
    there |= cluster.quotas if cluster else set()
    for at, meta in quotas.items():
        parent = str(to_map(meta.get("labels")).get(quota.PARENT) or "")
        if not parent or parent == quota.ROOT_QUOTA or parent in there:
            continue
        where = "in these files or in the cluster" if cluster else "in these files"
        meant = _suggest(parent, there - {str(meta.get("name"))}, _QUOTA_LIKENESS)
        text = f"there is no such quota {where}{meant}"
        yield at, Problem(format_field(("metadata", "labels", quota.PARENT)), parent, text)


def _check_pods(pods: Pods, files: Files, cluster: ClusterFacts | None) -> Iterator[Problem]:
    labels = to_map(pods.meta.get("labels"))
    group = str(labels.get(gang.POD_GROUP) or "")
    there = set(files.groups) | (cluster.pod_groups if cluster else set())
    if group and (pods.namespace, group) not in there:
        names = [name for namespace, name in there if namespace == pods.namespace]
        where = "in these files or in the cluster" if cluster else "in these files"
        text = f"there is no such PodGroup {where}{_suggest(group, names, 0.6)}"
        yield _at(pods, ("metadata", "labels", gang.POD_GROUP), group, text)
    named = str(labels.get(quota.NAME) or "")
    quotas = files.quotas | (cluster.quotas if cluster else set())
    if named and quotas and named not in quotas:
        text = f"there is no such quota{_suggest(named, quotas, _QUOTA_LIKENESS)}"
        yield _at(pods, ("metadata", "labels", quota.NAME), named, text)
    for at, gate in enumerate(to_list(pods.spec.get("schedulingGates"))):
        name = str(to_map(gate).get("name") or "")
        is_near = get_close_matches(name, (operators.PLACEMENT_GATE,), 1, 0.75)
        if name != operators.PLACEMENT_GATE and (is_near or name.startswith(operators.PREFIX)):
            text = f"nobody removes this gate. Did you mean {operators.PLACEMENT_GATE}?"
            yield _at(pods, ("spec", "schedulingGates", at, "name"), name, text)


def _check_counts(files: Files) -> Iterator[tuple[int, Problem]]:
    for key, (at, minimum) in files.groups.items():
        members = [
            pods
            for pods in files.pods
            if (pods.namespace, to_map(pods.meta.get("labels")).get(gang.POD_GROUP)) == key
        ]
        counts = [pods.count for pods in members]
        if not members or any(count is None for count in counts):
            continue
        total = sum(count for count in counts if count is not None)
        if total < minimum:
            text = (
                f"only {total} pods of these files join it, so it never starts: raise "
                "parallelism or replicas, or lower minMember"
            )
            yield at, Problem("spec.minMember", str(minimum), text)
        elif len(members) == 1:
            yield from _check_waves(members[0], total, minimum)


def _check_waves(job: Pods, parallelism: int, minimum: int) -> Iterator[tuple[int, Problem]]:
    """Check that what a Job makes last is a gang, too."""
    last = job.total % parallelism if parallelism else 0
    if job.total > parallelism and 0 < last < minimum:
        text = (
            f"with {parallelism} at once, the last {last} are less than minMember, {minimum}: they "
            "start alone, when as many have succeeded; set a multiple of parallelism, or raise "
            "parallelism to this number"
        )
        yield job.at, Problem("spec.completions", str(job.total), text)


def _check_quota(document: Mapping[Any, Any]) -> Iterator[Problem]:
    if document.get("kind") != "ElasticQuota":
        return
    spec = to_map(document.get("spec"))
    most = to_map(spec.get("max"))
    for key, amount in to_map(spec.get("min")).items():
        if most and key not in most:
            text = "is in min and not in max: the quota does not count it, so add it to max"
            yield Problem(format_field(("spec", "min", str(key))), str(amount), text)


def _at(pods: Pods, path: tuple[str | int, ...], value: str, text: str) -> Problem:
    return Problem(f"{pods.prefix}{format_field(path)}", value, text)


def _suggest(name: str, names: Iterable[str], likeness: float) -> str:
    near = get_close_matches(name, sorted(names), 1, likeness)
    return f". Did you mean {near[0]}?" if near else ""


_ACCELERATORS: Final = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu", "huawei.com/npu-core")
_ACCELERATOR_PREFIXES: Final = ("koordinator.sh/gpu", "kubernetes.io/gpu", "nvidia.com/mig-")
_DEFAULT_SCHEDULERS: Final = ("", "default-scheduler", operators.SCHEDULER_NAME)
_INJECTED: Final = (gang.POD_GROUP, quota.NAME)
_OPT_IN: Final = (
    f"add the scheduling gate {operators.PLACEMENT_GATE} and schedulerName "
    f"{operators.SCHEDULER_NAME}"
)


def find_capacity_problems(
    documents: Iterable[Any], cluster: ClusterFacts | None = None
) -> Iterator[tuple[int, Problem]]:
    """Yield the place of a document and a problem of it."""
    files = Files()
    for at, document in enumerate(documents):
        if isinstance(document, Mapping):
            collect(files, at, document, cluster.default_namespace if cluster else "")
    limits = [*files.limits, *_not_in(files, cluster)]
    yield from _check_claims(files, limits)
    for pods in files.pods:
        yield from _check_opt_in(pods, cluster)
        yield from _check_nodes(pods, cluster)
    yield from _check_limits(files, limits, cluster)


def _not_in(files: Files, cluster: ClusterFacts | None) -> Iterator[Quota]:
    """Yield the quotas of the cluster that the files do not replace."""
    yield from (
        limit for limit in (cluster.limits if cluster else ()) if limit.name not in files.quotas
    )


def _check_claims(files: Files, limits: list[Quota]) -> Iterator[tuple[int, Problem]]:
    """Two quotas of one tree, which share their nodes, cannot have the same namespace."""
    by_name = {limit.name: limit for limit in limits}
    for limit in files.limits:
        for namespace in limit.namespaces:
            owner = next(
                (
                    other.name
                    for other in limits
                    if other.name != limit.name
                    and _tree_of(other, by_name) == _tree_of(limit, by_name)
                    and namespace in other.namespaces
                ),
                "",
            )
            if owner:
                text = (
                    f"belongs to quota {owner}, too: a namespace has one quota of a tree; of the "
                    "two, the one that was there first has it"
                )
                field = format_field(("metadata", "annotations", quota.NAMESPACES))
                yield limit.at, Problem(field, namespace, text)


def _tree_of(quota: Quota, by_name: Mapping[str, Quota]) -> str:
    """Return the id of a quota's tree, or the name of a quota that stands for it."""
    for at in walk_up(
        quota, lambda ancestor: ancestor.name, lambda ancestor: by_name.get(ancestor.parent)
    ):
        if at.tree or at.is_root or not at.parent:
            return at.tree or (at.name if at.is_root else "")
        if at.parent not in by_name:
            return at.parent
    return ""


def _check_opt_in(pods: Pods, cluster: ClusterFacts | None) -> Iterator[tuple[int, Problem]]:
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
    yield pods.at, Problem(path, accelerator, f"{why}; {_OPT_IN}{inject}")


def is_accelerator(resource: str) -> bool:
    return resource in _ACCELERATORS or resource.startswith(_ACCELERATOR_PREFIXES)


def _opts_in(pods: Pods) -> bool:
    named = {to_map(gate).get("name") for gate in to_list(pods.spec.get("schedulingGates"))}
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


def _check_nodes(pods: Pods, cluster: ClusterFacts | None) -> Iterator[tuple[int, Problem]]:
    if cluster is None or not cluster.nodes:
        return
    for name, amount in _ask(pods).items():
        most = max(node.get(name, 0) for node in cluster.nodes)
        if amount > most:
            has = f"the largest node has {write_amount(name, most)}" if most else "no node has any"
            text = f"each pod asks for {write_amount(name, amount)} of it, and {has}"
            yield pods.at, Problem(f"{pods.prefix}spec", name, text)


def _check_limits(
    files: Files, limits: list[Quota], cluster: ClusterFacts | None
) -> Iterator[tuple[int, Problem]]:
    """Compare what starts together with the cluster, and with the max of its quota."""
    offer: Counter[str] = Counter()
    for node in cluster.nodes if cluster else ():
        offer.update(node)
    for at, where, members, count in _list_units(files):
        owner = _find_quota(members[0], limits)
        for name, amount in _add_up_least(members, count).items():
            text = f"{count} pods that start together ask for {write_amount(name, amount)} of it, "
            if cluster and cluster.nodes and amount > offer[name] and count > 1:
                yield (
                    at,
                    Problem(
                        where, name, f"{text}the cluster has {write_amount(name, offer[name])}"
                    ),
                )
            if owner is not None and amount > owner.max.get(name, amount):
                most = write_amount(name, owner.max[name])
                yield at, Problem(where, name, f"{text}the max of quota {owner.name} is {most}")


def _list_units(files: Files) -> Iterator[tuple[int, str, list[Pods], int]]:
    """Yield document, field, pods, and how many of them start together."""
    for (namespace, name), (at, minimum) in files.groups.items():
        members = [
            pod for pod in files.pods if _group_of(pod) == name and pod.namespace == namespace
        ]
        if members:
            yield at, "spec.minMember", members, max(minimum, 1)
    for pod in files.pods:
        if not _group_of(pod):
            yield pod.at, f"{pod.prefix}spec", [pod], 1


def _group_of(pods: Pods) -> str:
    return str(to_map(pods.meta.get("labels")).get(gang.POD_GROUP) or "")


def _add_up_least(members: list[Pods], count: int) -> dict[str, int]:
    """Return what ``count`` of these pods ask for at least, whichever they are."""
    requests = [(_ask(member), member.count or count) for member in members]
    total = {}
    for name in {name for request, _ in requests for name in request}:
        left, amount = count, 0
        for request, number in sorted(((a.get(name, 0), n) for a, n in requests)):
            taken = min(left, number)
            amount, left = amount + taken * request, left - taken
        total[name] = amount
    return total


def _find_quota(pods: Pods, limits: list[Quota]) -> Quota | None:
    """Return the quota of pods, where one rule alone says so."""
    label = str(to_map(pods.meta.get("labels")).get(quota.NAME) or "")
    if label:
        return next((limit for limit in limits if limit.name == label), None)
    own = [limit for limit in limits if limit.name == limit.namespace == pods.namespace]
    listed = [limit for limit in limits if pods.namespace in limit.namespaces]
    candidates = own or listed
    return candidates[0] if len(candidates) == 1 else None
