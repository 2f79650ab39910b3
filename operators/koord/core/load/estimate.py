"""What a pod will probably use, from what it requests: nobody has measured a new pod.

Integers, half rounded up. With ``compat`` as Koordinator does it, otherwise pods of lower classes
without requests count like others, and no annotation makes a pod count for less than its requests.
"""

from collections.abc import Mapping
from typing import Final

from koord.core.load.model import LoadHints
from koord.core.model.koordinator_class import KoordinatorClass, name_of_tier
from koord.core.model.units import CPU, MEMORY, Amounts

_MIB: Final = 1 << 20
_UNREQUESTED: Final[Amounts] = {CPU: 250, MEMORY: 200 * _MIB}
"""What a pod counts for that says nothing."""


def estimate(
    requests: Amounts, hints: LoadHints, factors: Mapping[str, int], *, compat: bool = False
) -> Amounts:
    """Return what a pod will use of each resource that has a factor (percent)."""
    custom, limits = dict(hints.factors), dict(hints.limits)
    amounts: dict[str, int] = {}
    for resource, factor in factors.items():
        name = name_of_tier(hints.koordinator_class, resource)
        request, limit = requests.get(name, 0), limits.get(name, 0)
        if not request and not limit:
            amounts[resource] = _unrequested(hints.koordinator_class, resource, compat=compat)
            continue
        amount = _scale(max(request, limit), custom.get(resource, factor), limit)
        least = 0 if compat else _scale(request, factor, limit)
        amounts[resource] = max(amount, least) if resource in custom else amount
    return amounts


def deadline(
    hints: LoadHints, scheduled: float, after_scheduled: int, after_initialized: int
) -> float:
    """Return until when the estimate of a pod counts although it is measured; 0: no longer."""
    initialized = _first(hints.after_initialized, after_initialized)
    if initialized > 0 and hints.initialized > 0:
        return hints.initialized + initialized
    seconds = _first(hints.after_scheduled, after_scheduled)
    return scheduled + seconds if seconds > 0 else 0.0


def _first(own: int | None, default: int) -> int:
    return default if own is None else own


def _scale(amount: int, percent: int, limit: int) -> int:
    scaled = (2 * amount * percent + 100) // 200
    return min(scaled, limit) if limit else scaled


def _unrequested(koordinator_class: KoordinatorClass, resource: str, *, compat: bool) -> int:
    is_known = koordinator_class in {KoordinatorClass.PROD, KoordinatorClass.BATCH}
    return _UNREQUESTED.get(resource, 0) if is_known or not compat else 0
