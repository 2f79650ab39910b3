"""Label selectors of nodes and devices: from the form of the API to the core's, and back."""

from sys import intern
from typing import Any

import msgspec

from koord.api.quotaprofile import NodeSelector
from koord.api.resource import LabelSelector
from koord.core.model.selectors import Requirement, SelectorOperator


def translate_selector(selector: NodeSelector | LabelSelector) -> tuple[Requirement, ...]:
    labels = (selector.match_labels or {}).items()
    # Keys are the same in many objects, so they are kept once.
    return (
        *(Requirement(intern(key), SelectorOperator.IN, (value,)) for key, value in sorted(labels)),
        *(
            Requirement(
                intern(match_expression.key),
                SelectorOperator(match_expression.operator),
                tuple(match_expression.values or ()),
            )
            for match_expression in selector.match_expressions or ()
        ),
    )


def encode_selector(selector: tuple[Requirement, ...]) -> str:
    """Return a selector as the text of an annotation."""
    return msgspec.json.encode(make_selector(selector)).decode()


def make_selector(selector: tuple[Requirement, ...]) -> dict[str, Any]:
    """Return a selector in the form of the API."""
    return {"matchExpressions": [_make(requirement) for requirement in selector]}


def _make(requirement: Requirement) -> dict[str, Any]:
    made: dict[str, Any] = {"key": requirement.key, "operator": str(requirement.operator)}
    return made | {"values": list(requirement.values)} if requirement.values else made
