"""Why a gang has no settings: nothing declares it, or what does cannot be read.

Knows the cache of gangs; not who asks, and no rule of quorums.
"""

from koord.core.gang.cache import GangCache, order_of
from koord.core.gang.reasons import InvalidAnnotation, MissingPodGroup, NotReady, PodGroupsNotServed
from koord.core.model.gangs import GangKey, GangSpec


def explain_no_settings(cache: GangCache, gang: GangKey) -> NotReady:
    """Return why a gang has no settings: no PodGroup, or no member with a valid minimum."""
    unset = cache.gang(gang)
    if unset.derived is not None and not isinstance(unset.derived, GangSpec):
        return unset.derived
    if unset.is_native and cache.unread_versions:
        return PodGroupsNotServed(gang, cache.unread_versions)
    if unset.tally.label_claims or not unset.members:
        return MissingPodGroup(gang)
    first = min(unset.members.values(), key=order_of)
    return InvalidAnnotation(first.gang.bad_values if first.gang is not None else ())
