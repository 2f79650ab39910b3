"""Checks which resources pods and quotas name: misspelled ones, and half a request for a GPU.

Kubernetes takes any name with a prefix. A pod that asks for one that no node has never starts, and
a quota limits nothing by it.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from koord.api.parse import Problem, format_field
from koord.api.resource_names import find_meant
from koord.api.untyped import to_list, to_map

_CORE: Final = "gpu-core"
_BESIDE_CORE: Final = ("gpu-memory", "gpu-memory-ratio", "gpu")
"""With one of these a share of the cores is a valid request."""
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
