"""What an ElasticQuota must satisfy by itself, in the order in which it is said.

The first rule that is broken is the answer; what quotas must satisfy together is in ``hierarchy``.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from koord.core.quota.model import NOTHING, QuotaSpec
from koord.core.quota.spec_errors import InvalidQuota, QuotaFault
from koord.core.units import Amounts

SHARED_WEIGHT: Final = "shared-weight"
STRICT_KEYS: Final = "max-strict-check-resource-keys"
"""Names by which ``QuotaSpec.unreadable`` calls annotations, without their prefix."""


def check_spec(spec: QuotaSpec, used: Amounts = NOTHING) -> InvalidQuota | None:
    """Return the first rule that a quota breaks by itself, given what its pods use."""
    found = (rule(spec, used) for rule in _RULES)
    return next((fault for fault in found if fault), None)


def _check_max(spec: QuotaSpec, _: Amounts) -> InvalidQuota | None:
    return _negative(spec, spec.max, QuotaFault.NEGATIVE_MAX)


def _check_min(spec: QuotaSpec, _: Amounts) -> InvalidQuota | None:
    return _negative(spec, spec.min, QuotaFault.NEGATIVE_MIN)


def _check_weight(spec: QuotaSpec, _: Amounts) -> InvalidQuota | None:
    return _unreadable(spec, SHARED_WEIGHT, QuotaFault.INVALID_SHARED_WEIGHT) or _negative(
        spec, spec.weight or NOTHING, QuotaFault.NEGATIVE_SHARED_WEIGHT
    )


def _check_min_within_max(spec: QuotaSpec, _: Amounts) -> InvalidQuota | None:
    for key, amount in sorted(spec.min.items()):
        if key not in spec.max:
            return InvalidQuota(QuotaFault.MIN_KEY_NOT_IN_MAX, spec.name, key=key, value=amount)
        if amount > spec.max[key]:
            limit = spec.max[key]
            return InvalidQuota(
                QuotaFault.MIN_EXCEEDS_MAX, spec.name, key=key, value=amount, limit=limit
            )
    return None


def _check_strict_keys(spec: QuotaSpec, used: Amounts) -> InvalidQuota | None:
    unreadable = _unreadable(spec, STRICT_KEYS, QuotaFault.INVALID_STRICT_KEYS)
    if unreadable:
        return unreadable
    for key in spec.strict_keys:
        if key not in used:
            continue
        amount = used[key]
        if key not in spec.max:
            return InvalidQuota(QuotaFault.STRICT_KEY_NOT_IN_MAX, spec.name, key=key, limit=amount)
        if spec.max[key] < amount:
            value = spec.max[key]
            return InvalidQuota(
                QuotaFault.MAX_BELOW_USED, spec.name, key=key, value=value, limit=amount
            )
    return None


def _check_annotations(spec: QuotaSpec, _: Amounts) -> InvalidQuota | None:
    name = next((name for name, _ in spec.unreadable), "")
    return _unreadable(spec, name, QuotaFault.INVALID_ANNOTATION)


def _negative(spec: QuotaSpec, amounts: Amounts, fault: QuotaFault) -> InvalidQuota | None:
    key = next((key for key, amount in sorted(amounts.items()) if amount < 0), None)
    return None if key is None else InvalidQuota(fault, spec.name, key=key, value=amounts[key])


def _unreadable(spec: QuotaSpec, annotation: str, fault: QuotaFault) -> InvalidQuota | None:
    text = dict(spec.unreadable).get(annotation)
    return None if text is None else InvalidQuota(fault, spec.name, key=annotation, text=text)


_Rule: TypeAlias = Callable[[QuotaSpec, Amounts], InvalidQuota | None]
_RULES: Final[tuple[_Rule, ...]] = (
    _check_max,
    _check_min,
    _check_weight,
    _check_min_within_max,
    _check_strict_keys,
    _check_annotations,
)
