"""Checks what objects of the same files, or of the cluster, say of each other.

One object alone may be valid and yet never start: its label names no PodGroup, its gang needs more
members than there are pods, its gate is misspelled. Knows files and names, not the cluster.

What pods request is compared with what there is: see ``lint_capacity``.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from koord.api.keys import gang, operators, quota
from koord.api.lint_files import ClusterFacts, Files, Pods, collect_all
from koord.api.lint_isolation import Finding, find_of
from koord.api.parse import Problem, cut, format_field
from koord.api.untyped import to_list, to_map
from koord.similar_names import find_nearest

_QUOTA_LIKENESS: Final = 0.75
_GROUP_LIKENESS: Final = 0.6
_MAX_SUGGESTED: Final = 32
"""Names of one run for which others are looked for: somebody may misspell thousands."""
_MAX_GATE: Final = 128
"""Characters of a gate that are compared with ours."""


class _Suggestions:
    """Names that exist, and which of them may be meant by one that does not."""

    def __init__(self) -> None:
        self._left = _MAX_SUGGESTED

    def tell(self, name: str, names: Iterable[str], likeness: float) -> str:
        if self._left <= 0:
            return ""
        self._left -= 1
        near = find_nearest(name, names, likeness)
        return f". Did you mean {cut(near)}?" if near else ""


def find_relation_problems(
    documents: Sequence[Any], cluster: ClusterFacts | None = None
) -> Iterator[Finding]:
    """Yield what is wrong between documents."""
    files = collect_all(documents, cluster.default_namespace if cluster else "")
    yield from files.failed
    for at, document in enumerate(documents):
        yield from find_of(at, _check_quota, at, document)
    names = _ExistingNames(files, cluster)
    for pods in files.pods:
        yield from find_of(pods.at, _check_pods, pods, names)
    for key, (at, minimum) in files.groups.items():
        yield from find_of(at, _check_count, files.members.get(key, []), at, minimum)


def find_parent_problems(
    documents: Sequence[Any], cluster: ClusterFacts | None = None
) -> Iterator[Finding]:
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
    suggestions = _Suggestions()
    for at, meta in quotas.items():
        parent = str(to_map(meta.get("labels")).get(quota.PARENT) or "")
        if not parent or parent == quota.ROOT_QUOTA or parent in there:
            continue
        where = "in these files or in the cluster" if cluster else "in these files"
        own = str(meta.get("name"))
        candidates = (name for name in there if name != own)
        meant = suggestions.tell(parent, candidates, _QUOTA_LIKENESS)
        text = f"there is no such quota {where}{meant}"
        yield at, Problem(format_field(("metadata", "labels", quota.PARENT)), cut(parent), text)


class _ExistingNames:
    """The PodGroups and quotas that there are, in files and in a cluster."""

    def __init__(self, files: Files, cluster: ClusterFacts | None) -> None:
        self.groups = files.groups.keys() | (cluster.pod_groups if cluster else set())
        self.quotas = files.quotas | (cluster.quotas if cluster else set())
        self.where = "in these files or in the cluster" if cluster else "in these files"
        self._suggestions = _Suggestions()
        self._by_namespace: dict[str, list[str]] = {}
        for namespace, name in self.groups:
            self._by_namespace.setdefault(namespace, []).append(name)

    def suggest_group(self, namespace: str, name: str) -> str:
        there = self._by_namespace.get(namespace, ())
        return self._suggestions.tell(name, there, _GROUP_LIKENESS)

    def suggest_quota(self, name: str) -> str:
        return self._suggestions.tell(name, self.quotas, _QUOTA_LIKENESS)


def _check_pods(pods: Pods, names: _ExistingNames) -> Iterator[Finding]:
    labels, group = to_map(pods.meta.get("labels")), pods.group
    if group and (pods.namespace, group) not in names.groups:
        meant = names.suggest_group(pods.namespace, group)
        text = f"there is no such PodGroup {names.where}{meant}"
        yield _at(pods, ("metadata", "labels", gang.POD_GROUP), group, text)
    named = str(labels.get(quota.NAME) or "")
    if named and names.quotas and named not in names.quotas:
        text = f"there is no such quota{names.suggest_quota(named)}"
        yield _at(pods, ("metadata", "labels", quota.NAME), named, text)
    for at, gate in enumerate(to_list(pods.spec.get("schedulingGates"))):
        name = str(to_map(gate).get("name") or "")
        is_near = get_close_matches(name[:_MAX_GATE], (operators.PLACEMENT_GATE,), 1, 0.75)
        if name != operators.PLACEMENT_GATE and (is_near or name.startswith(operators.PREFIX)):
            text = f"nobody removes this gate. Did you mean {operators.PLACEMENT_GATE}?"
            yield _at(pods, ("spec", "schedulingGates", at, "name"), name, text)


def _check_count(members: Sequence[Pods], at: int, minimum: int) -> Iterator[Finding]:
    counts = [pods.count for pods in members]
    if not members or any(count is None for count in counts):
        return
    total = sum(count for count in counts if count is not None)
    if total < minimum:
        text = (
            f"only {total} pods of these files join it, so it never starts: raise "
            "parallelism or replicas, or lower minMember"
        )
        yield at, Problem("spec.minMember", str(minimum), text)
    elif len(members) == 1:
        yield from _check_waves(members[0], total, minimum)


def _check_waves(job: Pods, parallelism: int, minimum: int) -> Iterator[Finding]:
    """Check that what a Job makes last is a gang, too."""
    last = job.total % parallelism if parallelism else 0
    if job.total > parallelism and 0 < last < minimum:
        text = (
            f"with {parallelism} at once, the last {last} are less than minMember, {minimum}: they "
            "start alone, when as many have succeeded; set a multiple of parallelism, or raise "
            "parallelism to this number"
        )
        yield job.at, Problem("spec.completions", str(job.total), text)


def _check_quota(at: int, document: Any) -> Iterator[Finding]:
    if not isinstance(document, Mapping) or document.get("kind") != "ElasticQuota":
        return
    spec = to_map(document.get("spec"))
    most = to_map(spec.get("max"))
    for key, amount in to_map(spec.get("min")).items():
        if most and key not in most:
            text = "is in min and not in max: the quota does not count it, so add it to max"
            yield at, Problem(format_field(("spec", "min", str(key))), cut(str(amount)), text)


def _at(pods: Pods, path: tuple[str | int, ...], value: str, text: str) -> Finding:
    return pods.at, Problem(f"{pods.prefix}{format_field(path)}", cut(value), text)
