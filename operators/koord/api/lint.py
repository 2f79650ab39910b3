"""Validates YAML files against the models, as strictly as the API server.

Our own kinds are validated in full. Of other objects and their pod templates only labels and
annotations are, which is where gangs, quotas and devices are requested.

Names of resources in pods and quotas are checked, and half a request for a GPU. Kubernetes takes
any name with a prefix. A pod that asks for one that no node has never starts, and a quota limits
nothing by it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koord.api import gang
from koord.api.annotations import find_problems
from koord.api.crdgen import RESOURCE_BY_KIND
from koord.api.keys.gang import LEGACY_MIN_AVAILABLE, NETWORK_TOPOLOGY_INDEX
from koord.api.lint_isolation import Finding, find_of
from koord.api.misspelled_keys import find_misspelled_keys
from koord.api.model import Model
from koord.api.parse import MAX_NAME, InvalidObject, Problem, cut, format_field, parse
from koord.api.pod_qos import find_qos_problems
from koord.api.podgroup import PodGroup
from koord.api.quantity import NANO_PER_UNIT, parse_quantity
from koord.api.resource import ObjectMeta
from koord.api.resource_names import find_meant
from koord.api.run_terms import find_bad_run_settings
from koord.api.untyped import to_list, to_map


@dataclass(frozen=True, slots=True)
class Checked:
    """One document of a file and its problems."""

    title: str
    """Kind and name, such as ``PodGroup default/training-job``."""
    problems: tuple[Problem, ...]


class _Metadata(Model):
    """Another kind of object, or its pod template."""

    metadata: ObjectMeta = ObjectMeta()


def lint_documents(documents: Iterable[Any]) -> Iterator[Checked]:
    """Validate documents one by one; what one of them breaks concerns it alone."""
    for number, document in enumerate(documents, start=1):
        findings = find_of(number, _find_all, number, document)
        yield Checked(make_title(document, number), tuple(problem for _, problem in findings))


def _find_all(number: int, document: Any) -> Iterator[Finding]:
    if isinstance(document, Mapping):
        yield from ((number, problem) for problem in _check(document))
    else:
        yield number, Problem("", "", "is not a Kubernetes object: a mapping is expected")


def _check(document: Mapping[Any, Any]) -> Iterator[Problem]:
    resource = RESOURCE_BY_KIND.get(str(document.get("kind")))
    if resource is None or not _is_ours(resource.names.group, document):
        yield from _check_pods(document)
        yield from find_resource_problems(document)
        return
    parsed = parse(resource, document, unknown_fields="forbid")
    if isinstance(parsed, InvalidObject):
        yield from parsed.problems
    yield from find_resource_problems(document)
    named = parse(_Metadata, document) if isinstance(parsed, InvalidObject) else parsed
    if isinstance(named, InvalidObject):
        return
    yield from find_problems(named.metadata.annotations, unknown_fields="forbid")
    yield from _find_misspelled(named.metadata)
    if isinstance(parsed, PodGroup):
        meta, spec = parsed.metadata, parsed.spec
        _, bad = gang.parse_pod_group_settings(
            f"{meta.namespace}/{meta.name}",
            spec.min_member,
            spec.schedule_timeout_seconds,
            meta.annotations,
        )
        yield from map(_make_problem, bad)


def _check_pods(document: Mapping[Any, Any], at: str = "") -> Iterator[Problem]:
    parsed = parse(_Metadata, document)
    if isinstance(parsed, InvalidObject):
        problems: tuple[Problem, ...] = parsed.problems
    else:
        meta = parsed.metadata
        pod = gang.parse_pod_gang(meta.namespace, meta.labels, meta.annotations)
        in_json = find_problems(meta.annotations, unknown_fields="forbid")
        index = gang.parse_topology_index(meta.annotations.get(NETWORK_TOPOLOGY_INDEX))
        run = () if pod and pod.settings else _find_bad_runs(meta.annotations)
        settings = (*(pod.bad if pod else ()), *run, index)
        bad = (
            _make_problem(setting) for setting in settings if isinstance(setting, gang.BadSetting)
        )
        qos = find_qos_problems(meta.labels, meta.annotations)
        problems = (*in_json, *qos, *bad, *_find_misspelled(meta))
    for problem in problems:
        yield Problem(at + problem.field, problem.value, problem.message)
    spec = document.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    if isinstance(template, Mapping):
        yield from _check_pods(template, f"{at}spec.template.")


def _find_bad_runs(annotations: Mapping[str, str]) -> Iterator[gang.BadSetting]:
    """Yield what pods say wrongly of their run; gangs by annotation are asked with the rest."""
    for key, value, problem, in_force in find_bad_run_settings(annotations):
        yield gang.BadSetting(key, gang.cut(value), problem, in_force)


def _make_problem(bad: gang.BadSetting) -> Problem:
    where = "labels" if bad.key == LEGACY_MIN_AVAILABLE else "annotations"
    field = format_field(("metadata", where, bad.key))
    return Problem(field, bad.value, f"{bad.problem}; in force is {bad.in_force}")


def _find_misspelled(meta: ObjectMeta) -> Iterator[Problem]:
    for misspelled_key in find_misspelled_keys(meta.labels, meta.annotations):
        where = "labels" if misspelled_key.key in meta.labels else "annotations"
        yield Problem(
            format_field(("metadata", where, misspelled_key.key)), "", misspelled_key.problem
        )


def _is_ours(group: str, document: Mapping[Any, Any]) -> bool:
    """Whether a kind is ours: Volcano and Kubernetes have PodGroups, too."""
    written, _, version = str(document.get("apiVersion")).partition("/")
    return written == group or not version


def make_title(document: Any, number: int) -> str:
    """Return kind and name, or the number of a document that has no kind, whoever wrote them."""
    if not isinstance(document, Mapping):
        return f"document {number}"
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(_to_line(names[key]) for key in ("namespace", "name") if names.get(key))
    kind = _to_line(document.get("kind") or f"document {number}")
    return " ".join(filter(None, (kind, name)))


def _to_line(name: object) -> str:
    return cut(str(name), MAX_NAME)


_CORE: Final = "gpu-core"
_BESIDE_CORE: Final = ("gpu-memory", "gpu-memory-ratio", "gpu")
"""With one of these a share of the cores is a valid request."""
_TIERS: Final = frozenset({"kubernetes.io/batch", "kubernetes.io/mid"})
_PREFIXES: Final = ("koordinator.sh/", "kubernetes.io/")
"""The present prefix of parts of a GPU, and the old one."""


def find_resource_problems(document: Mapping[Any, Any]) -> Iterator[Problem]:
    """Yield problems of an ElasticQuota, a pod, or an object with a template of pods."""
    spec = to_map(document.get("spec"))
    if document.get("kind") == "ElasticQuota":
        for field in ("min", "max"):
            yield from _check_names(spec.get(field), ("spec", field))
        return
    yield from _check_containers(spec, ("spec",))
    template = to_map(to_map(spec.get("template")).get("spec"))
    yield from _check_containers(template, ("spec", "template", "spec"))


def _check_containers(spec: Mapping[str, Any], at: tuple[str, ...]) -> Iterator[Problem]:
    places: dict[str, tuple[str | int, ...]] = {}
    for field in ("initContainers", "containers"):
        for number, container in enumerate(to_list(spec.get(field))):
            resources = to_map(to_map(container).get("resources"))
            named: set[str] = set()
            for kind in ("limits", "requests"):
                place = (*at, field, number, "resources", kind)
                amounts = to_map(resources.get(kind))
                fresh = {key: n for key, n in amounts.items() if key not in named}
                named |= fresh.keys()
                yield from _check_names(fresh, place)
                places |= {str(key): (*place, str(key)) for key in fresh}
    yield from _check_core(places)


def _check_names(amounts: object, at: tuple[str | int, ...]) -> Iterator[Problem]:
    for key, amount in to_map(amounts).items():
        if meant := find_meant(str(key)):
            text = f"is no known resource. Did you mean {meant}?"
            yield Problem(format_field((*at, str(key))), cut(str(amount)), text)
        elif text := _find_unit(str(key), str(amount)):
            yield Problem(format_field((*at, str(key))), cut(str(amount)), text)


def _find_unit(resource: str, amount: str) -> str:
    """Return what is wrong with the unit of batch and mid resources; empty if nothing is."""
    prefix, _, unit = resource.rpartition("-")
    if prefix not in _TIERS:
        return ""
    try:
        quantity = parse_quantity(amount)
    except ValueError:
        return ""
    if quantity.nano % NANO_PER_UNIT == 0:
        return ""
    if unit == "cpu":
        return f"counts thousandths of a CPU: write {quantity.milli} for {amount} of a CPU"
    return f"counts bytes, which have no parts. Did you mean {amount.replace('m', 'M')}?"


def _check_core(places: Mapping[str, tuple[str | int, ...]]) -> Iterator[Problem]:
    if any(f"{prefix}{name}" in places for prefix in _PREFIXES for name in _BESIDE_CORE):
        return
    for key in (f"{prefix}{_CORE}" for prefix in _PREFIXES):
        if key in places:
            text = (
                "is no valid request alone: add koordinator.sh/gpu-memory-ratio or "
                "koordinator.sh/gpu-memory, or ask for koordinator.sh/gpu"
            )
            yield Problem(format_field(places[key]), "", text)
