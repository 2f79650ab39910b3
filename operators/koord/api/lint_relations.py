"""Checks what objects of the same files, or of the cluster, say of each other.

One object alone may be valid and yet never start: its label names no PodGroup, its gang needs more
members than there are pods, its gate is misspelled. Knows files and names, not the cluster.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from koord.api.keys import gang, operators, quota
from koord.api.lint_files import ClusterFacts, Files, Pods, collect
from koord.api.parse import Problem, format_field
from koord.api.untyped import to_list, to_map

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
