"""Checks YAML against the models, as strictly as the API server and with more to say.

Our own kinds are checked in full; of all other objects only the metadata is, because labels and
annotations are where gangs, quotas and devices are asked for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from koord.api.documents import read_documents
from koord.api.kinds import RESOURCE_BY_KIND
from koord.api.model import Model
from koord.api.parse import Invalid, Problem, parse
from koord.api.resource import ObjectMeta


@dataclass(frozen=True, slots=True)
class Checked:
    """One document of a file and what is wrong with it, if anything."""

    title: str
    """What the document is, as ``PodGroup default/training-job``."""
    problems: tuple[Problem, ...]


class _AnyObject(Model):
    """An object of somebody else."""

    metadata: ObjectMeta = ObjectMeta()


def lint(text: str) -> Iterator[Checked]:
    """Check every document of a YAML text; raises `UnreadableError` if it is none."""
    for number, document in enumerate(read_documents(text), start=1):
        if isinstance(document, Mapping):
            yield Checked(_make_title(document, number), _check(document))
        else:
            problem = Problem("", "", "is no Kubernetes object: a mapping is expected")
            yield Checked(f"document {number}", (problem,))


def _check(document: Mapping[Any, Any]) -> tuple[Problem, ...]:
    resource = RESOURCE_BY_KIND.get(str(document.get("kind")))
    found: Model | Invalid
    if resource is None or not _is_ours(resource.names.group, document):
        found = parse(_AnyObject, document)
    else:
        found = parse(resource, document, unknown_fields="forbid")
    return found.problems if isinstance(found, Invalid) else ()


def _is_ours(group: str, document: Mapping[Any, Any]) -> bool:
    """Tell our kinds from others of the same name (Volcano and Kubernetes have PodGroups, too)."""
    written, _, version = str(document.get("apiVersion")).partition("/")
    return written == group or not version


def _make_title(document: Mapping[Any, Any], number: int) -> str:
    metadata = document.get("metadata")
    names = metadata if isinstance(metadata, Mapping) else {}
    name = "/".join(str(names[key]) for key in ("namespace", "name") if names.get(key))
    return " ".join(filter(None, (str(document.get("kind") or f"document {number}"), name)))
