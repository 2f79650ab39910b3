"""Answers as plain values, for JSON and YAML: one encoder for all of them.

A value of its own form registers it beside its class (``@encode.register``), and says which fields
that has by the ``TypedDict`` that it returns: the OpenAPI document is made of it. Every other
dataclass is written with all its fields, a reason with its numbers among them.

Names are camelCase; times and quantities have the format of the API. Fields that do not apply are
null or empty, never left out. Fields may be added; none is renamed or removed.
"""

import dataclasses
from collections.abc import Mapping
from functools import singledispatch
from typing import Any, Final, Generic, TypeVar

from koord.core.engine.reasons import CauseCount
from koord.core.model.reasons import Reason
from koord.core.model.units import Amounts, format_amount, format_limit
from koord.core.quota.entitlement import UnmetEntitlement
from koord.core.quota.reasons import QuotaShortage
from koord.core.quota.spec_errors import InvalidQuota
from koord.core.topology.reasons import UnknownLayer

T = TypeVar("T")


class Encoded(Generic[T]):
    """The type of a field of a document: what ``encode`` makes of a value of this type."""


_DOCUMENTED: Final[Mapping[tuple[type, str], str]] = {
    (CauseCount, "cause"): "refusal",
    (InvalidQuota, "rule"): "fault",
    (Reason, "context"): "remark",
    (QuotaShortage, "requested"): "asked",
    (UnknownLayer, "existing"): "known",
    (UnmetEntitlement, "requested"): "asked",
}
"""Fields with another name in documents, where names never change; also those of subclasses."""


@singledispatch
def encode(value: Any) -> Any:
    """Return a value as JSON has it."""
    if dataclasses.is_dataclass(value):
        return {
            name_of_field(type(value), field.name): encode(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple | list):
        return [encode(element) for element in value]
    return value


@encode.register
def _(values: Mapping) -> dict[str, Any]:  # type: ignore[type-arg]
    return {key: encode(value) for key, value in values.items()}


def name_of_field(kind: Any, field: str) -> str:
    first, *later_words = field.split("_")
    camel = first + "".join(word.capitalize() for word in later_words)
    bases = (base for base in kind.__mro__ if (base, field) in _DOCUMENTED)
    return next((_DOCUMENTED[base, field] for base in bases), camel)


def encode_amounts(amounts: Amounts) -> dict[str, str]:
    return {key: format_amount(key, amount) for key, amount in sorted(amounts.items())}


def encode_limits(amounts: Amounts) -> dict[str, str]:
    """Return amounts that may be ``unlimited``, as the max of generated quotas is."""
    return {key: format_limit(key, amount) for key, amount in sorted(amounts.items())}
