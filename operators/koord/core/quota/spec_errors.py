"""Faults of ElasticQuotas as values: the rule, the key, the numbers, the text."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from koord.core.model.units import format_amount
from koord.core.quota.model import QuotaName


class QuotaProblem(StrEnum):
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
        QuotaProblem.STRICT_KEY_NOT_IN_MAX,
        QuotaProblem.MAX_BELOW_USED,
        QuotaProblem.IS_PARENT_HAS_PODS,
        QuotaProblem.GUARANTEE_UNSATISFIABLE,
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

    rule: QuotaProblem
    quota: QuotaName
    other: str = ""
    key: str = ""
    value: int = 0
    limit: int = 0
    text: str = ""

    def describe(self) -> str:
        return _TEXTS[self.rule].format(
            quota=self.quota,
            other=self.other,
            key=self.key,
            value=format_amount(self.key, self.value),
            limit=format_amount(self.key, self.limit),
            text=self.text,
            count=self.value,
        )


_TEXTS: Final[Mapping[QuotaProblem, str]] = {
    QuotaProblem.ALREADY_EXISTS: "another ElasticQuota has the name {quota}; names are unique in "
    "the cluster: rename one",
    QuotaProblem.NAMESPACE_BOUND: "annotation namespaces: {key} already belongs to quota {other}; "
    "remove it from one of the two, or put each of them into a tree with its own node selector",
    QuotaProblem.PROTECTED: "{quota} is built in and cannot be changed",
    QuotaProblem.NOT_FOUND: "there is no quota {quota}",
    QuotaProblem.NEGATIVE_MAX: "max of {key} is {value}; it must not be negative",
    QuotaProblem.NEGATIVE_MIN: "min of {key} is {value}; it must not be negative",
    QuotaProblem.INVALID_SHARED_WEIGHT: "annotation {key} is not a list of non-negative "
    'amounts: {text}; write it like {{"cpu":"40","memory":"40Gi"}}',
    QuotaProblem.NEGATIVE_SHARED_WEIGHT: "the shared weight of {key} is {value}; it must not be "
    "negative",
    QuotaProblem.MIN_KEY_NOT_IN_MAX: "min names {key}, but max does not; add it to max",
    QuotaProblem.MIN_EXCEEDS_MAX: "min of {key} is {value}, above max {limit}; raise max or "
    "lower min",
    QuotaProblem.INVALID_ANNOTATION: "annotation {key} cannot be read: {text}; docs/quota.md shows "
    "its form",
    QuotaProblem.INVALID_STRICT_KEYS: "annotation {key} is not a list of resources: {text}; write "
    'it like ["cpu","memory"]',
    QuotaProblem.STRICT_KEY_NOT_IN_MAX: "{limit} of {key} are used and max does not name it, "
    "but the annotation max-strict-check-resource-keys does; add it to max, or remove it from the "
    "annotation",
    QuotaProblem.MAX_BELOW_USED: "max of {key} is {value}, below the {limit} in use, and it is "
    "checked strictly; raise it, or delete pods first",
    QuotaProblem.IS_PARENT_HAS_CHILDREN: "it has children ({other} and maybe more) and must stay a "
    'parent; move them first, or restore the label is-parent "true"',
    QuotaProblem.IS_PARENT_HAS_PODS: "it has pods and cannot become a parent; move them to another "
    "quota first",
    QuotaProblem.TREE_ID_CHANGED: 'label tree-id is "{key}", and the tree of a quota cannot '
    'change; restore "{text}", or create another quota',
    QuotaProblem.TREE_ID_MISMATCH_PARENT: 'label tree-id is "{key}", and its parent {other} is in '
    'tree "{text}"; use that, or name another parent',
    QuotaProblem.TREE_ID_MISMATCH_CHILD: 'label tree-id is "{key}", and its child {other} is in '
    'tree "{text}"; use that, or move the child',
    QuotaProblem.PARENT_NOT_FOUND: "its parent {other} does not exist, or is itself not active; "
    "create or correct it, or name another in the label parent",
    QuotaProblem.PARENT_NOT_PARENT: "its parent {other} is not a parent quota; label it "
    'is-parent "true"',
    QuotaProblem.CYCLE: "its parent {other} is below itself; name another in the label parent",
    QuotaProblem.KEYS_NOT_SAME: "its max and that of {other} do not name the same resources: "
    "{key}; name it in both",
    QuotaProblem.MAX_KEYS_NOT_INCLUDED: "max names {key}, which is not in the max above it "
    "({other}); add it there, or remove it",
    QuotaProblem.MIN_KEYS_NOT_INCLUDED: "min names {key}, which is not in the min above it "
    "({other}); add it there, or remove it",
    QuotaProblem.SIBLING_MIN_SUM_EXCEEDS_PARENT: "min of {key} adds up to {value} below {other}, "
    "whose min is {limit}; raise the min of {other}, or lower one below it",
    QuotaProblem.CHILD_MIN_SUM_EXCEEDS_MIN: "min of {key} of its children adds up to {value}, "
    "above its own {limit}; raise that, or lower theirs first",
    QuotaProblem.GUARANTEE_UNSATISFIABLE: "the root of its tree, {other}, can guarantee {limit} of "
    "{key}, not {value}; raise the min of {other}, or lower this one",
    QuotaProblem.HAS_CHILD_QUOTAS: "it is being deleted, and stays active for its child quotas "
    "({count}, {other} among them): delete them, or name another parent in them",
    QuotaProblem.HAS_PODS: "it is being deleted, and stays active for its pods ({count}): wait for "
    "them to end, or delete them; pods that wait may be labelled with another quota instead",
    QuotaProblem.INTERNAL_ERROR: "an internal error prevents it from being checked ({text}); the "
    "last valid spec stays active; report it with the operators' log",
}
