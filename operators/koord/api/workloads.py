"""The pod templates of objects of any kind. Knows nothing of gangs and schedulers.

Where they are, the files of kinds say.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from koord.api.owner_kinds import load_owner_kinds

Document = dict[str, Any]
"""An object as it was written."""


@cache
def _find_paths() -> Mapping[tuple[str, str], tuple[str, ...]]:
    """Return the paths of pod templates by API group and kind."""
    return {(kind.group, kind.kind): kind.templates for kind in load_owner_kinds()}


def _paths_of(document: Document) -> tuple[str, ...]:
    """Return where an object has pod templates; of an unknown group as others of its kind."""
    paths, kind = _find_paths(), str(document.get("kind"))
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    if (group, kind) in paths:
        return paths[group, kind]
    return next((at for (_, name), at in paths.items() if name == kind and at), ())


def find_values(root: Any, path: str) -> Iterator[Document]:
    """Yield the objects at a path, those that exist."""
    head, _, remaining_path = path.partition(".")
    if not isinstance(root, dict):
        return
    if head == "*":
        values = list(root.values())
    else:
        value = root.get(head.removesuffix("[]"))
        values = value if head.endswith("[]") and isinstance(value, list) else [value]
    for value in values:
        if remaining_path:
            yield from find_values(value, remaining_path)
        elif isinstance(value, dict):
            yield value


def find_templates(document: Document) -> list[Document]:
    """Return what has the metadata and the spec of pods: templates, or the pod itself."""
    return [template for _, template in list_templates(document)]


def list_templates(document: Document) -> list[tuple[str, Document]]:
    """Return the templates with their paths; the path of a pod is empty."""
    if document.get("kind") == "Pod":
        return [("", document)]
    paths = _paths_of(document)
    return [(path, template) for path in paths for template in find_values(document, path)]


_JOBS: Final = ("Job", "CronJob", "JobSet", "TrainingRuntime", "ClusterTrainingRuntime")
"""Kinds whose pod templates are those of Jobs of Kubernetes."""


def find_jobs(document: Document) -> Iterator[tuple[str, Document]]:
    """Yield the path and the spec of each Job of Kubernetes that an object is or makes."""
    kind, version = str(document.get("kind")), str(document.get("apiVersion", ""))
    if kind not in _JOBS or (kind == "Job" and not version.startswith("batch/")):
        return
    for path in _paths_of(document):
        place = path.removesuffix(".template")
        yield from ((place, job) for job in find_values(document, place))
