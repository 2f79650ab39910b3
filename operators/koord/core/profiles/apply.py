"""Applies profiles to a pod as the policies do in the API server, for ``koord lint`` and tests.

A pod is its JSON form. The API server fills in requests from limits before policies see a pod; so
does this.
"""

import copy
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from re import fullmatch
from typing import Any, Final

from koord.core.model.koordinator_class import (
    PRIORITY_CLASS_LABEL,
    QOS_LABEL,
    TIERS,
    KoordinatorClass,
    KoordinatorQos,
    find_class_by_priority,
    parse_class,
)
from koord.core.model.selectors import is_selected
from koord.core.model.units import CPU, MEMORY
from koord.core.profiles.generate import PublishOutcome, judge
from koord.core.profiles.model import (
    LABEL_VALUE,
    MAX_LABEL,
    AppendText,
    ClassValue,
    ColocationProfile,
    CopyText,
    PutField,
    PutText,
    Step,
    TextMap,
)
from koord.core.profiles.policy import UUID, find_lot_start
from koord.core.profiles.translation import CONTAINERS, KINDS

Document = dict[str, Any]
_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal("1e3"),
    "M": Decimal("1e6"),
    "G": Decimal("1e9"),
    "T": Decimal("1e12"),
    "P": Decimal("1e15"),
    "E": Decimal("1e18"),
    **{f"{unit}i": Decimal(1 << 10 * n) for n, unit in enumerate("KMGTPE", start=1)},
}


@dataclass(frozen=True, slots=True)
class AppliedProfiles:
    """A pod as profiles leave it, and the names of those that apply, in order."""

    pod: Document
    names: tuple[str, ...]


def apply_profiles(
    pod: Document,
    namespace_labels: Mapping[str, str],
    profiles: Iterable[ColocationProfile],
    classes: Mapping[str, ClassValue],
) -> AppliedProfiles:
    """Return a pod with what profiles write into it, and its resources translated."""
    made = copy.deepcopy(pod)
    _default_requests(made)
    labels = dict((made.get("metadata") or {}).get("labels") or {})
    selecting = [
        profile
        for profile in sorted(profiles, key=lambda profile: profile.name)
        if not profile.is_invalid
        and is_selected(labels, profile.selector)
        and is_selected(namespace_labels, profile.namespace_selector)
    ]
    verdicts = {profile.name: judge(profile, classes) for profile in selecting}
    applied = [
        profile
        for profile in selecting
        if verdicts[profile.name] is None and has_lot(profile, made)
    ]
    for profile in applied:
        for step in profile.steps(classes):
            _take_step(made, step)
    spares = any(
        profile.skips_resources
        for profile in selecting
        if (verdict := verdicts[profile.name]) is None or verdict.outcome is PublishOutcome.NEVER
    )
    tier = "" if spares or not applied else find_tier(made)
    if tier and not made["spec"].get("resources"):
        _translate(made["spec"], tier)
    return AppliedProfiles(made, tuple(profile.name for profile in applied))


def has_lot(profile: ColocationProfile, pod: Mapping[str, Any]) -> bool:
    """Whether a pod is among the percent that a profile is for."""
    if profile.probability >= 100:
        return True
    start = find_lot_start(profile.name)
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    uids = [str(owner.get("uid")) for owner in owners if owner.get("controller")]
    return any(
        fullmatch(UUID, uid) and int(uid[start : start + 4], 16) * 100 < 16**4 * profile.probability
        for uid in uids
    )


def find_tier(pod: Mapping[str, Any]) -> str:
    """Return how the names of the resources begin that a pod is to use; "" for CPU and memory."""
    labels = (pod.get("metadata") or {}).get("labels") or {}
    name = labels.get(PRIORITY_CLASS_LABEL)
    priority = int(pod["spec"].get("priority") or 0)
    raw = find_class_by_priority(priority) if name is None else parse_class(name)
    if raw is None and labels.get(QOS_LABEL) == KoordinatorQos.BE:
        raw = KoordinatorClass.BATCH
    return TIERS.get(raw, "") if raw is not None else ""


def _take_step(pod: Document, step: Step) -> None:
    match step:
        case PutText():
            _texts_of(pod, step.where)[step.key] = step.value
        case CopyText():
            texts = _texts_of(pod, step.where)
            if step.source in texts:
                texts[step.key] = texts[step.source]
        case AppendText():
            texts = _texts_of(pod, step.where)
            whole = f"{texts.get(step.key)}{step.suffix}"
            if step.key in texts and len(whole) <= MAX_LABEL and fullmatch(LABEL_VALUE, whole):
                texts[step.key] = whole
        case PutField():
            at = pod["spec"]
            for name in step.path[:-1]:
                at = at.setdefault(name, {})
            at[step.path[-1]] = copy.deepcopy(step.value)


def _texts_of(pod: Document, where: TextMap) -> MutableMapping[str, str]:
    _, part, name = where.split("/")
    outer: Document = pod.setdefault(part, {})
    if not isinstance(outer.get(name), dict):
        outer[name] = {}
    texts: MutableMapping[str, str] = outer[name]
    return texts


def _containers_of(pod: Mapping[str, Any]) -> Iterable[Document]:
    spec = pod.get("spec") or {}
    return [container for field in CONTAINERS for container in spec.get(field) or ()]


def _default_requests(pod: Mapping[str, Any]) -> None:
    for container in _containers_of(pod):
        resources = container.get("resources") or {}
        for name, amount in (resources.get("limits") or {}).items():
            if resources.get("requests") is None:
                resources["requests"] = {}
            resources["requests"].setdefault(name, amount)


def _translate(spec: Mapping[str, Any], tier: str) -> None:
    for container in _containers_of({"spec": spec}):
        resources = container.get("resources") or {}
        for kind in KINDS:
            amounts = resources.get(kind) or {}
            if CPU in amounts:
                amounts[f"kubernetes.io/{tier}-{CPU}"] = to_milli(amounts.pop(CPU))
            if MEMORY in amounts:
                amounts[f"kubernetes.io/{tier}-{MEMORY}"] = str(amounts.pop(MEMORY))


def to_milli(amount: object) -> str:
    """Return a quantity of CPUs in milli-CPU, rounded up; what is no quantity stays as it is."""
    text = str(amount)
    match = fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]{1,2})?)([numkMGTPE]?|[KMGTPE]i)", text)
    if match is None:
        return text
    try:
        exact = Decimal(match[1]) * _SUFFIXES[match[2]] * 1000
    except InvalidOperation:
        return text
    return str(int(exact.to_integral_value(ROUND_CEILING)))
