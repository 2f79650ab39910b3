"""Faults of ElasticQuotas as values: the rule, the key, the numbers, the text."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.quota.model import QuotaName
from koord.core.units import format_amount


class QuotaFault(StrEnum):
    """The rule that a quota breaks. The values are reasons of conditions: they never change."""

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
"""Faults that may disappear without an edit of a quota."""


@dataclass(frozen=True, slots=True)
class InvalidQuota:
    """Why the current settings of a quota are not in force.

    ``other`` is the other object concerned: a parent, a child, the owner of a namespace. ``key``
    is the resource (or namespace, or annotation), ``value`` the current amount and ``limit`` the
    allowed one, in the units of ``core.units``. ``text`` quotes what is not a number.
    """

    fault: QuotaFault
    quota: QuotaName
    other: str = ""
    key: str = ""
    value: int = 0
    limit: int = 0
    text: str = ""

    def describe(self) -> str:
        return _FAULTS[self.fault].format(
            quota=self.quota,
            other=self.other,
            key=self.key,
            value=format_amount(self.key, self.value),
            limit=format_amount(self.key, self.limit),
            text=self.text,
            count=self.value,
        )


_FAULTS: Final[Mapping[QuotaFault, str]] = {
    QuotaFault.ALREADY_EXISTS: "another ElasticQuota is called {quota}; names are unique in the "
    "cluster: rename one",
    QuotaFault.NAMESPACE_BOUND: "annotation namespaces: {key} already belongs to quota {other}; "
    "take it out of one of the two",
    QuotaFault.PROTECTED: "{quota} is built in and cannot be changed",
    QuotaFault.NOT_FOUND: "there is no quota {quota}",
    QuotaFault.NEGATIVE_MAX: "max of {key} is {value}; it must not be negative",
    QuotaFault.NEGATIVE_MIN: "min of {key} is {value}; it must not be negative",
    QuotaFault.INVALID_SHARED_WEIGHT: "annotation {key} is no list of amounts, none negative: "
    '{text}; write it like {{"cpu":"40","memory":"40Gi"}}',
    QuotaFault.NEGATIVE_SHARED_WEIGHT: "the shared weight of {key} is {value}; it must not be "
    "negative",
    QuotaFault.MIN_KEY_NOT_IN_MAX: "min names {key} and max does not; name it in max, too",
    QuotaFault.MIN_EXCEEDS_MAX: "min of {key} is {value}, above max {limit}; raise max or "
    "lower min",
    QuotaFault.INVALID_ANNOTATION: "annotation {key} cannot be read: {text}; docs/quota.md shows "
    "its form",
    QuotaFault.INVALID_STRICT_KEYS: "annotation {key} is no list of resources: {text}; write it "
    'like ["cpu","memory"]',
    QuotaFault.STRICT_KEY_NOT_IN_MAX: "{limit} of {key} are used and max does not name it, "
    "although it is to be checked strictly; name it there, or take it out of the annotation "
    "max-strict-check-resource-keys",
    QuotaFault.MAX_BELOW_USED: "max of {key} is {value}, below the {limit} in use, although it is "
    "to be checked strictly; raise it, or end pods first",
    QuotaFault.IS_PARENT_HAS_CHILDREN: "it has children, {other} among them, and must stay a "
    'parent; move them first, or put the label is-parent "true" back',
    QuotaFault.IS_PARENT_HAS_PODS: "it has pods and cannot become a parent; move them to another "
    "quota first",
    QuotaFault.TREE_ID_CHANGED: 'label tree-id is "{key}", and the tree of a quota does not '
    'change; put back "{text}", or make another quota',
    QuotaFault.TREE_ID_MISMATCH_PARENT: 'label tree-id is "{key}", and its parent {other} is in '
    'tree "{text}"; write that, or name another parent',
    QuotaFault.TREE_ID_MISMATCH_CHILD: 'label tree-id is "{key}", and its child {other} is in '
    'tree "{text}"; write that, or move the child',
    QuotaFault.PARENT_NOT_FOUND: "its parent {other} does not exist, or is not in force itself; "
    "create or correct that one, or name another in the label parent",
    QuotaFault.PARENT_NOT_PARENT: "its parent {other} takes no children; label that one with "
    'is-parent "true"',
    QuotaFault.CYCLE: "its parent {other} is below itself; name another in the label parent",
    QuotaFault.KEYS_NOT_SAME: "max of it and of {other} do not name the same resources: {key}; "
    "name it in both",
    QuotaFault.MAX_KEYS_NOT_INCLUDED: "max names {key}, which is not in the max above it "
    "({other}); name it there, too, or take it out",
    QuotaFault.MIN_KEYS_NOT_INCLUDED: "min names {key}, which is not in the min above it "
    "({other}); name it there, too, or take it out",
    QuotaFault.SIBLING_MIN_SUM_EXCEEDS_PARENT: "min of {key} adds up to {value} below {other}, "
    "which is guaranteed {limit}; raise the min of {other}, or lower one below it",
    QuotaFault.CHILD_MIN_SUM_EXCEEDS_MIN: "min of {key} of its children adds up to {value}, above "
    "its own {limit}; raise that, or lower theirs first",
    QuotaFault.GUARANTEE_UNSATISFIABLE: "the root of its tree, {other}, can guarantee {limit} of "
    "{key}, not {value}; raise the min of that, or lower this one",
    QuotaFault.HAS_CHILD_QUOTAS: "it has {count} child quotas, {other} among them",
    QuotaFault.HAS_PODS: "pods are labelled with it",
    QuotaFault.INTERNAL_ERROR: "a defect of the operators keeps it from being checked ({text}); "
    "what was valid last stays in force; report it, with the operators' log",
}
