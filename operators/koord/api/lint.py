"""Validates YAML files against the models, as strictly as the API server.

Our own kinds are validated in full. Of other objects and their pod templates only labels and
annotations are, which is where gangs, quotas and devices are requested.

YAML is read as kubectl reads it. PyYAML follows YAML 1.1 literally: ``0000:09:00.0`` is a base-60
number, dates become Python objects, and the second of two equal keys wins.

Names of resources in pods and quotas are checked, and half a request for a GPU. Kubernetes takes
any name with a prefix. A pod that asks for one that no node has never starts, and a quota limits
nothing by it.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import yaml
from typing_extensions import override

from koord.api import gang
from koord.api.annotations import find_problems
from koord.api.crdgen import RESOURCE_BY_KIND
from koord.api.keys.gang import LEGACY_MIN_AVAILABLE, NETWORK_TOPOLOGY_INDEX
from koord.api.misspelled_keys import find_misspelled_keys
from koord.api.model import Model
from koord.api.parse import InvalidObject, Problem, format_field, parse
from koord.api.pod_qos import find_qos_problems
from koord.api.podgroup import PodGroup
from koord.api.quantity import NANO_PER_UNIT, parse_quantity
from koord.api.resource import ObjectMeta
from koord.api.resource_names import find_meant
from koord.api.run_terms import find_bad_run_settings
from koord.api.untyped import to_list, to_map
from koord.api.yaml_text import UnicodeLoader

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_NODES: Final = 1_000_000
"""Values in one document with aliases expanded."""

_INT: Final = re.compile(r"^[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT: Final = re.compile(
    r"^([-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)
_REPLACED: Final = {
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:timestamp",
}


class UnreadableError(ValueError):
    """The text is not YAML that kubectl accepts; the message says where."""


def read_documents(text: str) -> Iterator[Any]:
    """Yield the documents of a YAML text, without empty ones. Raises UnreadableError."""
    if len(text.encode()) > MAX_FILE_BYTES:
        raise UnreadableError(f"is larger than {MAX_FILE_BYTES} bytes")
    try:
        for document in yaml.load_all(text, Loader=_ManifestLoader):
            if document is not None:
                yield document
    except yaml.YAMLError as error:
        raise UnreadableError(_describe(error)) from error
    except (RecursionError, ValueError) as error:
        raise UnreadableError(f"is not YAML: {error}") from error


def _describe(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return str(error)


def _measure(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Count the nodes with aliases expanded; reject documents that expand too much."""
    if id(node) not in sizes:
        sizes[id(node)] = MAX_NODES  # the size of an alias to itself
        children: Any = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = chain.from_iterable(children)
        size = 1 + sum(_measure(child, sizes) for child in children)
        if size > MAX_NODES:
            raise yaml.constructor.ConstructorError(
                problem="its aliases expand to too many values", problem_mark=node.start_mark
            )
        sizes[id(node)] = size
    return sizes[id(node)]


class _ManifestLoader(UnicodeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - as yaml requires
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    @override
    def get_data(self) -> Any:
        node = self.get_node()
        if node is not None:
            _measure(node, {})
        return self.construct_document(node)

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))


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
    """Validate documents one by one."""
    for number, document in enumerate(documents, start=1):
        if isinstance(document, Mapping):
            yield Checked(_make_title(document, number), tuple(_check(document)))
        else:
            problem = Problem("", "", "is not a Kubernetes object: a mapping is expected")
            yield Checked(f"document {number}", (problem,))


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


def _make_title(document: Mapping[Any, Any], number: int) -> str:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(str(names[key]) for key in ("namespace", "name") if names.get(key))
    return " ".join(filter(None, (str(document.get("kind") or f"document {number}"), name)))


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
            yield Problem(format_field((*at, str(key))), str(amount), text)
        elif text := _find_unit(str(key), str(amount)):
            yield Problem(format_field((*at, str(key))), str(amount), text)


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
