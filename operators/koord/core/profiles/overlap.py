"""Which profiles have to be in one policy, because the order in which they are applied matters.

Nobody promises an order of policies. So profiles that may select the same pod are put together, and
those that write a label that another one selects by: matching is about the pod as it was created.
Whether two selectors can select one object is decided key by key, and in doubt they can.
"""

from collections.abc import Iterable, Sequence

from koord.core.model.selectors import Requirement, SelectorOperator
from koord.core.profiles.model import ColocationProfile

_PRESENT = frozenset({SelectorOperator.IN, SelectorOperator.EXISTS})


def group_profiles(profiles: Iterable[ColocationProfile]) -> list[tuple[ColocationProfile, ...]]:
    """Return the groups of profiles that belong together, all in the order of names."""
    groups: list[list[ColocationProfile]] = []
    for profile in sorted(profiles, key=lambda profile: profile.name):
        merged, apart = [profile], list[list[ColocationProfile]]()
        for group in groups:
            if any(_interact(profile, other) for other in group):
                merged += group
            else:
                apart.append(group)
        groups = [*apart, merged]
    ordered = (sorted(group, key=lambda profile: profile.name) for group in groups)
    return sorted((tuple(group) for group in ordered), key=lambda group: group[0].name)


def _interact(first: ColocationProfile, second: ColocationProfile) -> bool:
    return may_both_select(first, second) or feeds(first, second) or feeds(second, first)


def may_both_select(first: ColocationProfile, second: ColocationProfile) -> bool:
    """Whether there may be a pod that both profiles select."""
    return can_both_hold(first.selector, second.selector) and can_both_hold(
        first.namespace_selector, second.namespace_selector
    )


def feeds(writer: ColocationProfile, reader: ColocationProfile) -> bool:
    """Whether a profile writes a label that another one selects by."""
    return not writer.written_labels.isdisjoint(requirement.key for requirement in reader.selector)


def can_both_hold(first: Sequence[Requirement], second: Sequence[Requirement]) -> bool:
    """Whether there may be labels that satisfy both lists of requirements."""
    by_key: dict[str, list[Requirement]] = {}
    for requirement in (*first, *second):
        by_key.setdefault(requirement.key, []).append(requirement)
    return all(_is_satisfiable(requirements) for requirements in by_key.values())


def _is_satisfiable(requirements: Sequence[Requirement]) -> bool:
    """Whether one label can satisfy these requirements on it."""
    operators = {requirement.operator for requirement in requirements}
    if SelectorOperator.DOES_NOT_EXIST in operators:
        return operators.isdisjoint(_PRESENT)
    allowed: set[str] | None = None
    for requirement in requirements:
        if requirement.operator is SelectorOperator.IN:
            values = set(requirement.values)
            allowed = values if allowed is None else allowed & values
    if allowed is None:
        return True
    refused = {
        value
        for requirement in requirements
        if requirement.operator is SelectorOperator.NOT_IN
        for value in requirement.values
    }
    return bool(allowed - refused)
