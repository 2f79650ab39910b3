"""The operators of all domains, and what a process that runs some of them reads and writes."""

from collections.abc import Collection, Iterator
from importlib import import_module
from typing import Final

from koord.domains import DOMAINS
from koord.domains.registry import KINDS
from koord.kube.kind import AnyKind
from koord.kube.write_check import Write
from koord.operators.operator import Operator


def _load() -> Iterator[Operator]:
    for domain in DOMAINS:
        for module in domain.operators:
            operator: Operator = import_module(module).OPERATOR
            yield operator


REGISTERED: Final = tuple(_load())
"""All operators, in the order of their domains."""
OPERATORS: Final = tuple(operator.name for operator in REGISTERED)
ALL_KINDS: Final = tuple(
    dict.fromkeys([*KINDS, *(kind for operator in REGISTERED for kind in operator.reads)])
)


def choose_operators(names: Collection[str]) -> list[Operator]:
    return [operator for operator in REGISTERED if operator.name in names]


def kinds_of(names: Collection[str]) -> tuple[AnyKind, ...]:
    """Return the kinds that these operators reflect, in the order of their start."""
    kinds = {kind for operator in choose_operators(names) for kind in operator.reads}
    return tuple(kind for kind in ALL_KINDS if kind in kinds)


def writes_of(names: Collection[str]) -> frozenset[Write]:
    """Return what these operators write."""
    return frozenset().union(*(operator.writes for operator in choose_operators(names)))


def required_resources(names: Collection[str]) -> list[tuple[str, str]]:
    """Return what has to be served, by API version and plural."""
    read = [(kind.api_version, kind.plural) for kind in kinds_of(names) if kind.is_required]
    validated = [
        (operator.resource.names.api_version, operator.resource.names.plural)
        for operator in choose_operators(names)
        if operator.resource is not None
    ]
    return list(dict.fromkeys(read + validated))
