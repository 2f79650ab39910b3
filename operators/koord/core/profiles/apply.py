"""Applies profiles to a pod as the policies do in the API server, for ``koord lint`` and tests.

A pod is its JSON form. The API server fills in requests from limits before policies see a pod; so
does this.
"""

import copy
import json
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
    name_of_tier,
    parse_class,
)
from koord.core.model.selectors import is_selected
from koord.core.model.units import CPU
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
    ReplaceText,
    Step,
    TextMap,
)
from koord.core.profiles.policy import UUID, find_lot_start
from koord.core.profiles.translation import (
    AGENT_ANNOTATION,
    CONTAINERS,
    KINDS,
    MOST,
    RESOURCES,
)

Document = dict[str, Any]
_MILLI: Final = 1000
_MAX_TEXT: Final = 64
"""Characters of a quantity; longer ones are nonsense."""
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
    if tier:
        _translate(made, tier)
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
        case ReplaceText():
            texts = _texts_of(pod, step.where)
            if step.key in texts:
                texts[step.key] = step.value
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


def _translate(pod: Document, tier: str) -> None:
    spec: Document = pod["spec"]
    extra = {(kind, of): _find_extra(spec, kind, of) for kind in KINDS for of in RESOURCES}
    for container in _containers_of({"spec": spec}):
        for kind in KINDS:
            amounts = (container.get("resources") or {}).get(kind) or {}
            for resource in RESOURCES:
                if resource in amounts:
                    text = _to_text(amounts.pop(resource), resource)
                    amounts[f"kubernetes.io/{tier}-{resource}"] = text
    for (kind, resource), more in extra.items():
        if more <= 0:
            continue
        first = spec["containers"][0]
        for name in ("resources", kind):
            if not isinstance(first.get(name), dict):
                first[name] = {}
            first = first[name]
        name = f"kubernetes.io/{tier}-{resource}"
        first[name] = str(_to_number(first.get(name) or 0, 1) + more)
    _clear_pod(spec)
    if tier == TIERS[KoordinatorClass.BATCH]:
        _describe_to_agent(pod)


def _find_extra(spec: Document, kind: str, resource: str) -> int:
    """Return how much is asked for the whole pod beyond what its containers asked for."""
    of_pod = ((spec.get("resources") or {}).get(kind) or {}).get(resource)
    if of_pod is None or not spec.get("containers"):
        return 0
    running = [
        *spec["containers"],
        *(
            init
            for init in spec.get("initContainers") or ()
            if init.get("restartPolicy") == "Always"
        ),
    ]
    amounts = [((c.get("resources") or {}).get(kind) or {}).get(resource) for c in running]
    factor = _MILLI if resource == CPU else 1
    given = sum(_to_number(amount, factor) for amount in amounts if amount is not None)
    return max(0, _to_number(of_pod, factor) - given)


def _clear_pod(spec: Document) -> None:
    """Take CPU and memory from the whole pod, and all if there is nothing else."""
    whole = spec.get("resources")
    if not isinstance(whole, dict):
        return
    for kind in KINDS:
        for resource in RESOURCES:
            (whole.get(kind) or {}).pop(resource, None)
    if not any(whole.get(kind) for kind in KINDS):
        del spec["resources"]


def _describe_to_agent(pod: Document) -> None:
    names = [name_of_tier(KoordinatorClass.BATCH, resource) for resource in RESOURCES]
    used = {}
    for container in pod["spec"].get("containers") or ():
        kinds = {}
        for kind in reversed(KINDS):
            amounts = (container.get("resources") or {}).get(kind) or {}
            if listed := {name: str(amounts[name]) for name in names if name in amounts}:
                kinds[kind] = listed
        if kinds:
            used[str(container.get("name"))] = kinds
    if used:
        text = json.dumps({"containers": used}, separators=(",", ":"), ensure_ascii=False)
        _texts_of(pod, TextMap.ANNOTATIONS)[AGENT_ANNOTATION] = text


def _to_text(amount: object, resource: str) -> str:
    return to_milli(amount) if resource == CPU else str(amount)


def to_milli(amount: object) -> str:
    """Return a quantity of CPUs in milli-CPU, rounded up; what is no quantity stays as it is."""
    number = _read_number(amount, _MILLI)
    return str(amount) if number is None else str(number)


def _to_number(amount: object, factor: int) -> int:
    return _read_number(amount, factor) or 0


def _read_number(amount: object, factor: int) -> int | None:
    """Return a quantity times a factor, rounded up, and no more than policies count."""
    text = str(amount)
    if len(text) > _MAX_TEXT:
        return None
    match = fullmatch(r"([+-]?[0-9.]+(?:[eE][+-]?[0-9]{1,2})?)([numkMGTPE]?|[KMGTPE]i)", text)
    if match is None:
        return None
    try:
        exact = Decimal(match[1]) * _SUFFIXES[match[2]] * factor
    except InvalidOperation:
        return None
    return int(min(exact, Decimal(MOST)).to_integral_value(ROUND_CEILING))
