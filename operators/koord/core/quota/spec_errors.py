"""What can be wrong with an ElasticQuota, as values: the rule, the key, and the numbers."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.quota.model import QuotaName


class QuotaFault(StrEnum):
    """Which rule a quota breaks. The words stand in conditions: they do not change."""

    ALREADY_EXISTS = "AlreadyExists"
    NAMESPACE_BOUND = "NamespaceBound"
    PROTECTED = "ProtectedQuota"
    NOT_FOUND = "NotFound"
    NEGATIVE_MAX = "NegativeMax"
    NEGATIVE_MIN = "NegativeMin"
    INVALID_SHARED_WEIGHT = "InvalidSharedWeight"
    NEGATIVE_SHARED_WEIGHT = "NegativeSharedWeight"
    MIN_KEY_NOT_IN_MAX = "MinKeyNotInMax"
    MIN_EXCEEDS_MAX = "MinExceedsMax"
    INVALID_ANNOTATION = "InvalidAnnotation"
    INVALID_STRICT_KEYS = "InvalidStrictKeys"
    STRICT_KEY_NOT_IN_MAX = "StrictKeyNotInMax"
    MAX_BELOW_USED = "MaxBelowUsed"
    IS_PARENT_HAS_CHILDREN = "IsParentHasChildren"
    IS_PARENT_HAS_PODS = "IsParentHasPods"
    TREE_ID_CHANGED = "TreeIDChanged"
    TREE_ID_MISMATCH_PARENT = "TreeIDMismatchParent"
    TREE_ID_MISMATCH_CHILD = "TreeIDMismatchChild"
    PARENT_NOT_FOUND = "ParentNotFound"
    PARENT_NOT_PARENT = "ParentNotParent"
    CYCLE = "Cycle"
    KEYS_NOT_SAME = "KeysNotSame"
    MAX_KEYS_NOT_INCLUDED = "MaxKeysNotIncluded"
    MIN_KEYS_NOT_INCLUDED = "MinKeysNotIncluded"
    SIBLING_MIN_SUM_EXCEEDS_PARENT = "SiblingMinSumExceedsParent"
    CHILD_MIN_SUM_EXCEEDS_MIN = "ChildMinSumExceedsMin"
    GUARANTEE_UNSATISFIABLE = "GuaranteeUnsatisfiable"
    HAS_CHILD_QUOTAS = "HasChildQuotas"
    HAS_PODS = "HasPods"
    INTERNAL_ERROR = "InternalError"


DEPENDS_ON_PODS: Final = frozenset(
    {
        QuotaFault.STRICT_KEY_NOT_IN_MAX,
        QuotaFault.MAX_BELOW_USED,
        QuotaFault.IS_PARENT_HAS_PODS,
        QuotaFault.GUARANTEE_UNSATISFIABLE,
    }
)
"""What may clear up without anybody touching a quota."""


@dataclass(frozen=True, slots=True)
class InvalidQuota:
    """Why a quota is not in force as written.

    ``other`` is the other object concerned: a parent, a child, the owner of a namespace. ``key``
    is the resource (or namespace, or annotation), ``value`` what is written and ``limit`` what it
    may be, in the units of ``core.units``. ``text`` quotes what is no number.
    """

    fault: QuotaFault
    quota: QuotaName
    other: str = ""
    key: str = ""
    value: int = 0
    limit: int = 0
    text: str = ""
