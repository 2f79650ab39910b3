"""The custom resources of this project: every ``Resource`` that a module of this package defines.

They are found, not listed, so that a new one needs no edit here.
"""

from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from koord.api.resource import Resource

_READERS: Final = frozenset({"kinds", "lint"})
"""Modules that need this one, and define no resource."""


def _find_resources() -> tuple[type[Resource], ...]:
    names = {module.name for module in iter_modules([str(Path(__file__).parent)])} - _READERS
    for name in sorted(names):
        import_module(f"{__package__}.{name}")
    found = (
        one for one in Resource.__subclasses__() if one.__module__.startswith(f"{__package__}.")
    )
    return tuple(sorted(found, key=lambda one: one.names.crd_name))


RESOURCES: Final = _find_resources()
RESOURCE_BY_KIND: Final = {resource.names.kind: resource for resource in RESOURCES}
