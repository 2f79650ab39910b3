"""Validates YAML files against the models, as strictly as the API server.

Our own kinds are validated in full. Of other objects and their pod templates only labels and
annotations are, which is where gangs, quotas and devices are requested.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koord.api import gang
from koord.api.annotations import find_problems
from koord.api.documents import read_documents
from koord.api.keys.gang import LEGACY_MIN_AVAILABLE
from koord.api.kinds import RESOURCE_BY_KIND
from koord.api.misspelled_keys import find_misspelled_keys
from koord.api.model import Model
from koord.api.parse import InvalidObject, Problem, format_field, parse
from koord.api.podgroup import PodGroup
from koord.api.resource import ObjectMeta


@dataclass(frozen=True, slots=True)
class Checked:
    """One document of a file and its problems."""

    title: str
    """Kind and name, such as ``PodGroup default/training-job``."""
    problems: tuple[Problem, ...]


class _Metadata(Model):
    """Another kind of object, or its pod template."""

    metadata: ObjectMeta = ObjectMeta()


def lint(text: str) -> Iterator[Checked]:
    """Validate every document of a YAML text. Raises `UnreadableError`."""
    for number, document in enumerate(read_documents(text), start=1):
        if isinstance(document, Mapping):
            yield Checked(_make_title(document, number), tuple(_check(document)))
        else:
            problem = Problem("", "", "is not a Kubernetes object: a mapping is expected")
            yield Checked(f"document {number}", (problem,))


def _check(document: Mapping[Any, Any]) -> Iterator[Problem]:
    resource = RESOURCE_BY_KIND.get(str(document.get("kind")))
    if resource is None or not _is_ours(resource.names.group, document):
        yield from _check_pods(document)
        return
    found = parse(resource, document, unknown_fields="forbid")
    if isinstance(found, InvalidObject):
        yield from found.problems
        return
    yield from find_problems(found.metadata.annotations, unknown_fields="forbid")
    yield from _find_misspelled(found.metadata)
    if isinstance(found, PodGroup):
        meta, spec = found.metadata, found.spec
        _, bad = gang.parse_pod_group_settings(
            f"{meta.namespace}/{meta.name}",
            spec.min_member,
            spec.schedule_timeout_seconds,
            meta.annotations,
        )
        yield from map(_make_problem, bad)


def _check_pods(document: Mapping[Any, Any], at: str = "") -> Iterator[Problem]:
    found = parse(_Metadata, document)
    if isinstance(found, InvalidObject):
        problems: tuple[Problem, ...] = found.problems
    else:
        meta = found.metadata
        pod = gang.parse_pod_gang(meta.namespace, meta.labels, meta.annotations)
        in_json = find_problems(meta.annotations, unknown_fields="forbid")
        bad = map(_make_problem, pod.bad if pod else ())
        problems = (*in_json, *bad, *_find_misspelled(meta))
    for problem in problems:
        yield Problem(at + problem.field, problem.value, problem.message)
    spec = document.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    if isinstance(template, Mapping):
        yield from _check_pods(template, f"{at}spec.template.")


def _make_problem(bad: gang.BadSetting) -> Problem:
    where = "labels" if bad.key == LEGACY_MIN_AVAILABLE else "annotations"
    field = format_field(("metadata", where, bad.key))
    return Problem(field, bad.value, f"{bad.problem}; in force is {bad.in_force}")


def _find_misspelled(meta: ObjectMeta) -> Iterator[Problem]:
    for one in find_misspelled_keys(meta.labels, meta.annotations):
        where = "labels" if one.key in meta.labels else "annotations"
        yield Problem(format_field(("metadata", where, one.key)), "", one.problem)


def _is_ours(group: str, document: Mapping[Any, Any]) -> bool:
    """Whether a kind is ours: Volcano and Kubernetes have PodGroups, too."""
    written, _, version = str(document.get("apiVersion")).partition("/")
    return written == group or not version


def _make_title(document: Mapping[Any, Any], number: int) -> str:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(str(names[key]) for key in ("namespace", "name") if names.get(key))
    return " ".join(filter(None, (str(document.get("kind") or f"document {number}"), name)))
