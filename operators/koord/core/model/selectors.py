"""Label selectors.

Semantics are those of the API: all requirements of a selector must hold, an empty selector selects
everything, and no selector (None) selects nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_LIMIT: Final = 1 << 63


class SelectorOperator(StrEnum):
    """Operators of a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression over labels (or over ``metadata.name`` when used as a field of nodes)."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()


LabelSelector: TypeAlias = tuple[Requirement, ...] | None
"""ANDed requirements: ``()`` selects everything, None selects nothing."""


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """A node selector term: expressions and fields must all hold; with neither it matches none."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


def is_selected(labels: Mapping[str, str], selector: LabelSelector) -> bool:
    """Whether a selector selects an object with these labels."""
    if selector is None:
        return False
    return all(_holds(labels.get(requirement.key), requirement) for requirement in selector)


def can_select_alike(first: LabelSelector, second: LabelSelector) -> bool:
    """Whether an object that just fulfils one of two selectors is selected by the other."""
    if first is None or second is None:
        return False
    return is_selected(_fulfil(first), second) or is_selected(_fulfil(second), first)


def _fulfil(selector: tuple[Requirement, ...]) -> dict[str, str]:
    """Return the fewest labels that a selector asks for."""
    labels = {}
    for requirement in selector:
        if requirement.operator is SelectorOperator.IN and requirement.values:
            labels[requirement.key] = requirement.values[0]
        elif requirement.operator is SelectorOperator.EXISTS:
            labels[requirement.key] = ""
    return labels


def _holds(value: str | None, requirement: Requirement) -> bool:
    match requirement.operator:
        case SelectorOperator.IN:
            return value in requirement.values
        case SelectorOperator.NOT_IN:
            return value not in requirement.values
        case SelectorOperator.EXISTS:
            return value is not None
        case SelectorOperator.DOES_NOT_EXIST:
            return value is None
        case SelectorOperator.GT | SelectorOperator.LT:
            return value is not None and satisfies_bound(value, requirement)


def satisfies_bound(value: str, requirement: Requirement) -> bool:
    """Whether an integer label is greater (``Gt``) or less (``Lt``) than the bound."""
    bound = _parse_integer(requirement.values[0]) if len(requirement.values) == 1 else None
    number = _parse_integer(value)
    if bound is None or number is None:
        return False
    return number > bound if requirement.operator is SelectorOperator.GT else number < bound


def _parse_integer(text: str) -> int | None:
    # int() alone also accepts underscores, blanks and digits of other scripts.
    number = int(text) if _INTEGER.fullmatch(text) else None
    return number if number is not None and -_LIMIT <= number < _LIMIT else None
