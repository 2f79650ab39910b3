"""The expressions that turn CPU and memory of batch and mid pods into what is left over for them.

CPU is counted in milli-CPU there, memory in bytes. A pod whose resources are given for the whole
pod stays as it is: Kubernetes takes only CPU and memory there. Requests that are missing are filled
in by the API server from the limits.
"""

from collections.abc import Iterator
from typing import Final

from koord.core.model.koordinator_class import (
    BANDS,
    TIERS,
    KoordinatorClass,
    KoordinatorQos,
)
from koord.core.model.units import CPU, MEMORY
from koord.core.profiles.cel import write_patch, write_text, write_texts

CONTAINERS: Final = ("containers", "initContainers")
KINDS: Final = ("requests", "limits")
_MILLI: Final = "string(int(quantity(string({amount})).asApproximateFloat() * 1000.0 + 0.999999))"
"""Rounds up."""
_AS_IT_IS: Final = "string({amount})"
_AMOUNTS: Final = {CPU: _MILLI, MEMORY: _AS_IT_IS}


def write_tier(class_label: str, qos_label: str, priority: str) -> str:
    """Return the expression of the tier of a pod, empty for none.

    The first two name lists, empty without the label; the third names a number.
    """
    names = write_texts(str(each) for each in KoordinatorClass)
    by_number = "".join(
        f"{priority} >= {values[0]} && {priority} <= {values[-1]} ? {write_text(band)} : "
        for band, values in BANDS.items()
    )
    raw = (
        f"{class_label}.size() > 0 "
        f'? ({class_label}[0] in {names} ? {class_label}[0] : "") : ({by_number}"")'
    )
    is_best_effort = f'({qos_label}.size() > 0 && {qos_label}[0] == "{KoordinatorQos.BE}")'
    mid, batch = KoordinatorClass.MID, KoordinatorClass.BATCH
    return (
        f'[{raw}].map(raw, raw == "{batch}" || raw == "" && {is_best_effort} '
        f'? "{TIERS[batch]}" : raw == "{mid}" ? "{TIERS[mid]}" : "")[0]'
    )


def list_translations(tier: str) -> Iterator[str]:
    """Yield expressions of lists of operations; ``tier`` is an expression."""
    for containers in CONTAINERS:
        for kind in KINDS:
            for resource in (CPU, MEMORY):
                yield _translate(containers, kind, resource, tier)


def _translate(containers: str, kind: str, resource: str, tier: str) -> str:
    field = f"object.spec.{containers}"
    amounts = f"c.resources.{kind}"
    has_amount = f'has(c.resources) && has({amounts}) && "{resource}" in {amounts}'
    place = f'"/spec/{containers}/" + string({field}.indexOf(c)) + "/resources/{kind}/'
    value = _AMOUNTS[resource].format(amount=f'{amounts}["{resource}"]')
    added = write_patch("add", f'{place}kubernetes.io~1" + {tier} + "-{resource}"', value)
    removed = write_patch("remove", f'{place}{resource}"')
    present = f"(has({field}) ? {field} : [])"
    return f"{present}.filter(c, {has_amount}).map(c, [{added}, {removed}]).flatten()"
