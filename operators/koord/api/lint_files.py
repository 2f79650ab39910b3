"""What files say, reduced to what rules about several objects need; and what the cluster has.

Everything is read leniently: whether a field is valid is for others to say.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.json_text import load_json
from koord.api.keys import gang, quota
from koord.api.lint_isolation import Finding, find_of
from koord.api.quantity import InvalidQuantityError, parse_quantity
from koord.api.untyped import to_list, to_map

_COUNTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "Job": ("parallelism", "completions"),
    "Deployment": ("replicas",),
    "StatefulSet": ("replicas",),
    "ReplicaSet": ("replicas",),
}
"""Kind -> where its spec says how many pods it has at once: the least of these, 1 by default. Of
other kinds that is not known."""


INJECT_ALL: Final = "all"
INJECT_ACCELERATORS: Final = "accelerators"
"""Values of the label of a namespace: all pods opt in, or all that ask for accelerators."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """Objects of the cluster; without it only those of the files are known."""

    pod_groups: frozenset[tuple[str, str]] = frozenset()
    """(Namespace, name)."""
    quotas: frozenset[str] = frozenset()
    default_namespace: str = ""
    limits: tuple["Quota", ...] = ()
    nodes: tuple[Mapping[str, int], ...] = ()
    """What each node offers, in the units of ``to_amounts``."""
    injects: frozenset[str] = frozenset()
    """Namespaces in which the policy ``inject`` adds the gate to what names a gang or a quota."""
    injects_accelerators: frozenset[str] = frozenset()
    """Those of them in which it does so for all that asks for accelerators."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What an ElasticQuota says of namespaces and limits; ``at`` is its document, -1: none."""

    name: str
    namespace: str
    tree: str
    namespaces: tuple[str, ...]
    max: Mapping[str, int]
    at: int = -1
    parent: str = ""
    is_root: bool = False


@dataclass(slots=True)
class Pods:
    """The pods that an object makes.

    ``count`` is how many at once, None if that is not known; ``total`` how many in its life, 0
    unless it is a Job with completions.
    """

    at: int
    kind: str
    namespace: str
    meta: Mapping[str, Any]
    spec: Mapping[str, Any]
    prefix: str
    count: int | None
    total: int = 0

    @property
    def group(self) -> str:
        """The PodGroup that its label names; empty: none."""
        return str(to_map(self.meta.get("labels")).get(gang.POD_GROUP) or "")


@dataclass(slots=True)
class Files:
    """What several documents say together."""

    groups: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(Namespace, name) -> which document, and its minimum."""
    quotas: set[str] = field(default_factory=set)
    limits: list[Quota] = field(default_factory=list)
    pods: list[Pods] = field(default_factory=list)
    members: dict[tuple[str, str], list[Pods]] = field(default_factory=dict)
    """(Namespace, name) of a PodGroup -> the pods that name it."""
    failed: list[Finding] = field(default_factory=list)
    """Documents that could not be read so."""


def collect_all(documents: Iterable[Any], default: str) -> Files:
    """Return what documents say; ``default`` is the namespace of those that have none."""
    files = Files()
    for at, document in enumerate(documents):
        if isinstance(document, Mapping):
            files.failed += find_of(at, _collect_one, files, at, document, default)
    for pods in files.pods:
        if group := pods.group:
            files.members.setdefault((pods.namespace, group), []).append(pods)
    return files


def _collect_one(
    files: Files, at: int, document: Mapping[Any, Any], default: str
) -> Iterator[Finding]:
    collect(files, at, document, default)
    yield from ()


def collect(files: Files, at: int, document: Mapping[Any, Any], default: str) -> None:
    kind, meta = str(document.get("kind")), to_map(document.get("metadata"))
    spec, namespace = to_map(document.get("spec")), str(meta.get("namespace") or default)
    name = str(meta.get("name") or "")
    if kind == "PodGroup":
        minimum = spec.get("minMember")
        files.groups[namespace, name] = at, minimum if isinstance(minimum, int) else 0
    elif kind == "ElasticQuota":
        files.quotas.add(name)
        files.limits.append(_read_quota(at, name, namespace, document))
    elif kind == "Pod":
        files.pods.append(Pods(at, kind, namespace, meta, spec, "", 1))
    elif template := to_map(spec.get("template")):
        inner = to_map(template.get("metadata")), to_map(template.get("spec"))
        count, total = _count(kind, spec)
        files.pods.append(Pods(at, kind, namespace, *inner, "spec.template.", count, total))


def _count(kind: str, spec: Mapping[str, Any]) -> tuple[int | None, int]:
    """Return how many pods an object makes at once, and in its life."""
    if kind not in _COUNTS:
        return None, 0
    first_field, *other_fields = _COUNTS[kind]
    numbers = [
        spec.get(first_field, 1),
        *(spec[key] for key in other_fields if spec.get(key) is not None),
    ]
    if not all(isinstance(number, int) and number >= 0 for number in numbers):
        return None, 0
    return min(numbers), numbers[-1] if other_fields and len(numbers) > 1 else 0


def _read_quota(at: int, name: str, namespace: str, document: Mapping[Any, Any]) -> Quota:
    meta = to_map(document.get("metadata"))
    labels = to_map(meta.get("labels"))
    tree, parent = (str(labels.get(key) or "") for key in (quota.TREE_ID, quota.PARENT))
    text = to_map(meta.get("annotations")).get(quota.NAMESPACES)
    try:
        read = load_json(text) if isinstance(text, str) else ()
    except (ValueError, RecursionError):
        read = ()
    namespaces = tuple(name for name in to_list(read) if isinstance(name, str))
    most = to_amounts(to_map(document.get("spec")).get("max"))
    is_root = labels.get(quota.IS_ROOT) == "true"
    return Quota(name, namespace, tree, namespaces, most, at, parent, is_root)


def to_amounts(written: object) -> dict[str, int]:
    """Return the valid amounts of a resource list: CPUs in thousandths, all others as they are."""
    amounts = {}
    for key, text in to_map(written).items():
        try:
            amount = parse_quantity(text)
        except (InvalidQuantityError, TypeError):
            continue
        amounts[str(key)] = amount.milli if key == "cpu" else amount.whole
    return amounts


def write_amount(resource: str, amount: int) -> str:
    """Write an amount of ``to_amounts`` for people."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    is_large = amount >= 1 << 30 and amount % (1 << 30) == 0
    return f"{amount >> 30}Gi" if is_large else str(amount)
