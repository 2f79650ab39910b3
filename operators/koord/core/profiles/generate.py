"""Which policies there are to be for a set of profiles, and what becomes of each profile.

A profile whose policy would have the API server or our own policies refuse pods is not published:
its PriorityClass does not exist, its QoS cannot be combined with its class. The rest is published
as if it were not there.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2s
from typing import Any, Final

from koord.core.model.koordinator_class import (
    QOS_LABEL,
    parse_class,
    parse_qos,
)
from koord.core.model.qos_rules import QosProblem, QosRule, describe, is_allowed
from koord.core.profiles.model import ALWAYS, ClassValue, ColocationProfile, PutField, PutText
from koord.core.profiles.overlap import group_profiles
from koord.core.profiles.policy import (
    can_stand_in,
    find_parameter,
    make_policy_spec,
    make_reservation_policy_spec,
)

PREFIX: Final = "koord-profile-"
STAND_IN_PREFIX: Final = "koord-profile.without-class-"
"""Of policies that are applied where the PriorityClass of another one is not there."""
RESERVATION_PREFIX: Final = "koord-profile.reservations-"
MAX_NAME: Final = 253
MAX_TEXT: Final = 96 * 1024
"""Characters that the profiles of one policy write; annotations of a pod may have 256 KiB."""
MAX_MEMBERS: Final = 128
"""Profiles in one policy: each new pod is checked against all of them."""


class PublishOutcome(StrEnum):
    """What becomes of a profile; also the reason of its condition ``Published``."""

    PUBLISHED = "Published"
    INVALID = "Invalid"
    NEVER = "NeverApplied"
    NOTHING = "NothingToWrite"
    PROBABILITY = "ProbabilityNotExpressible"
    PRIORITY_CLASS_MISSING = "PriorityClassMissing"
    FORBIDDEN_COMBINATION = "ForbiddenCombination"
    TOO_LARGE = "TooLarge"
    DISABLED = "Disabled"
    NOT_SERVED = "PoliciesNotServed"
    WRITE_FAILED = "WriteFailed"


@dataclass(frozen=True, slots=True)
class PublishVerdict:
    """What becomes of one profile: in which policy it is, with which others, or why in none."""

    outcome: PublishOutcome
    policy: str = ""
    beside: tuple[str, ...] = ()
    """Other profiles in the same policy."""
    problem: QosProblem | None = None
    number: int = 0
    """The probability, or the size in characters."""
    limit: int = 0


@dataclass(frozen=True, slots=True)
class GeneratedPolicy:
    """A MutatingAdmissionPolicy; its binding has its name."""

    name: str
    spec: Mapping[str, Any]
    owners: tuple[tuple[str, str], ...]
    """Names and uids of its profiles."""
    priority_class: str = ""
    """The PriorityClass that it is bound to: without that it is not applied."""


@dataclass(frozen=True, slots=True)
class Generation:
    """All policies, and the verdict on each profile by name."""

    policies: tuple[GeneratedPolicy, ...]
    verdicts: Mapping[str, PublishVerdict]


def generate(
    profiles: Iterable[ColocationProfile],
    classes: Mapping[str, ClassValue],
    excluded: Sequence[str],
) -> Generation:
    """Return the policies for these profiles; ``excluded`` are namespaces without any."""
    verdicts: dict[str, PublishVerdict] = {}
    usable = []
    for profile in sorted(profiles, key=lambda profile: profile.name):
        verdict = judge(profile, classes)
        if verdict is not None:
            verdicts[profile.name] = verdict
        if verdict is None or (verdict.outcome is PublishOutcome.NEVER and profile.skips_resources):
            usable.append(profile)
    policies = []
    for group in group_profiles(usable):
        members = _take_in(group, classes, verdicts)
        if not any(_does_something(profile) for profile in members):
            for profile in members:
                verdicts.setdefault(profile.name, PublishVerdict(PublishOutcome.NOTHING))
            continue
        policy = name_policy(members[0].name)
        owners = tuple((profile.name, profile.uid) for profile in members)
        spec = make_policy_spec(members, classes, excluded)
        parameter = find_parameter(members)
        if can_stand_in(members):
            # Without the class the policy of all is not applied, until it is written without it.
            # This one is written first, so that it is there whenever that one is.
            name = name_policy(members[0].name, STAND_IN_PREFIX)
            stand_in = make_policy_spec(members, classes, excluded, without=parameter)
            policies.append(GeneratedPolicy(name, stand_in, owners))
        policies.append(GeneratedPolicy(policy, spec, owners, parameter))
        of_reservations = make_reservation_policy_spec(members, classes)
        if of_reservations is not None:
            name = name_policy(members[0].name, RESERVATION_PREFIX)
            policies.append(GeneratedPolicy(name, of_reservations, owners))
        for profile in members:
            beside = tuple(other.name for other in members if other is not profile)
            verdicts.setdefault(
                profile.name, PublishVerdict(PublishOutcome.PUBLISHED, policy, beside)
            )
    return Generation(tuple(policies), verdicts)


def _does_something(profile: ColocationProfile) -> bool:
    """Whether pods may be different for a profile: without fields it still translates resources."""
    return profile.probability > 0 and (not profile.skips_resources or profile.writes_fields)


def judge(profile: ColocationProfile, classes: Mapping[str, ClassValue]) -> PublishVerdict | None:
    """Return why a profile is in no policy; None if it may be in one."""
    if profile.is_invalid:
        return PublishVerdict(PublishOutcome.INVALID)
    if profile.probability <= 0:
        return PublishVerdict(PublishOutcome.NEVER)
    if profile.probability < ALWAYS and not profile.is_per_owner:
        return PublishVerdict(PublishOutcome.PROBABILITY, number=profile.probability)
    if profile.priority_class and profile.priority_class not in classes:
        return PublishVerdict(PublishOutcome.PRIORITY_CLASS_MISSING)
    problem = find_forbidden(profile, classes)
    if problem is not None:
        return PublishVerdict(PublishOutcome.FORBIDDEN_COMBINATION, problem=problem)
    return None


def find_forbidden(
    profile: ColocationProfile, classes: Mapping[str, ClassValue]
) -> QosProblem | None:
    """Return the problem of QoS and class that a profile writes, as far as both are known."""
    qos = parse_qos(profile.find_put(QOS_LABEL) or "")
    name = profile.find_class(classes)
    if name is None:
        return None
    koordinator_class = parse_class(name)
    if is_allowed(qos, koordinator_class):
        return None
    return QosProblem(QosRule.FORBIDDEN_COMBINATION, qos, koordinator_class)


def _take_in(
    group: Sequence[ColocationProfile],
    classes: Mapping[str, ClassValue],
    verdicts: dict[str, PublishVerdict],
) -> list[ColocationProfile]:
    """Return the profiles of a group that there is room for, in the order of names."""
    members: list[ColocationProfile] = []
    size = 0
    for profile in group:
        size += measure(profile, classes)
        if size > MAX_TEXT or len(members) >= MAX_MEMBERS:
            verdicts[profile.name] = PublishVerdict(
                PublishOutcome.TOO_LARGE, number=size, limit=MAX_TEXT
            )
            size -= measure(profile, classes)
        else:
            members.append(profile)
    return members


def measure(profile: ColocationProfile, classes: Mapping[str, ClassValue]) -> int:
    """Return how many characters of text a profile writes and selects by."""
    if profile.priority_class and profile.priority_class not in classes:
        classes = {**classes, profile.priority_class: ClassValue(0)}
    written = 0
    for step in profile.steps(classes):
        if isinstance(step, PutText):
            written += len(step.key) + len(step.value.encode())
        elif isinstance(step, PutField):
            written += len(repr(step.value))
        else:
            written += 2 * len(step.key)
    selected = (*profile.selector, *profile.namespace_selector)
    return written + sum(
        len(requirement.key) + sum(map(len, requirement.values)) for requirement in selected
    )


def name_policy(profile: str, prefix: str = PREFIX) -> str:
    """Return the name of the policy whose first profile this is."""
    name = f"{prefix}{profile}"
    if len(name) <= MAX_NAME:
        return name
    digest = blake2s(profile.encode(), digest_size=8).hexdigest()
    return f"{name[: MAX_NAME - len(digest) - 1].rstrip('-.')}-{digest}"


_TEXTS: Final[Mapping[PublishOutcome, str]] = {
    PublishOutcome.PUBLISHED: (
        "new pods are changed by the MutatingAdmissionPolicy {policy}{beside}"
    ),
    PublishOutcome.INVALID: "there are no valid settings; no pod is changed",
    PublishOutcome.NEVER: "the probability is 0; no pod is changed",
    PublishOutcome.NOTHING: "it keeps resources as they are, and nothing else is written",
    PublishOutcome.PROBABILITY: (
        "no policy can change {number}% of the pods: set probabilityScope to Owner to have the "
        "owner of a pod decide, or probability to 0 or 100"
    ),
    PublishOutcome.PRIORITY_CLASS_MISSING: (
        "there is no PriorityClass {priority_class}: create it; no pod is changed until then, "
        "since the API server would refuse all of them"
    ),
    PublishOutcome.FORBIDDEN_COMBINATION: "{problem}",
    PublishOutcome.TOO_LARGE: (
        "the profiles that may select the same pods write {number} characters with this one, "
        "{limit} are allowed in at most {most} profiles: write less, or select apart"
    ),
    PublishOutcome.DISABLED: (
        "profiles are switched off: set profiles.enabled in the configuration and apply "
        "manifests/overlays/profiles"
    ),
    PublishOutcome.NOT_SERVED: (
        "the cluster serves no MutatingAdmissionPolicies in admissionregistration.k8s.io/v1, which "
        "Kubernetes 1.36 brings: until then write the fields into the templates; koord lint "
        "--profile shows them"
    ),
    PublishOutcome.WRITE_FAILED: (
        "the policy {policy} cannot be written, which is tried again: {error}"
    ),
}
_MAX_NAMED: Final = 8


def write_verdict(profile: ColocationProfile, verdict: PublishVerdict, error: str = "") -> str:
    """Return what a verdict says, and what helps; ``error`` is that of a write."""
    beside = ""
    if verdict.beside:
        more = len(verdict.beside) - _MAX_NAMED
        beside = f", together with {', '.join(verdict.beside[:_MAX_NAMED])}"
        beside += f" and {more} more" if more > 0 else ""
    text = _TEXTS[verdict.outcome].format(
        policy=verdict.policy,
        beside=beside,
        number=verdict.number,
        limit=verdict.limit,
        most=MAX_MEMBERS,
        priority_class=profile.priority_class,
        problem="" if verdict.problem is None else describe(verdict.problem),
        error=error,
    )
    return f"the last valid settings count: {text}" if profile.is_kept else text
