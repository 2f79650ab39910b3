"""Whether a started gang below its minimum is restarted, by its settings.

``Replace`` keeps the room of lost members for their replacements; ``Ignore`` treats replacements
like any other pod; ``RestartGang`` evicts what is left of the gang, so that it starts again as a
whole. Only the last is decided here, from the members alone.
"""

from dataclasses import dataclass

from koord.core.gang.cache import GangCache, order_of
from koord.core.gang.quorum import count_lost, is_satisfied
from koord.core.gang.start import find_unbound
from koord.core.gang.sub_group_members import find_incomplete, find_started, is_placed_whole
from koord.core.model.gangs import GangKey, OnBindFailure, OnMemberFailure
from koord.core.model.pods import Pod


@dataclass(frozen=True, slots=True)
class Restart:
    """A gang to restart: the remaining members of its incarnation, all to be evicted.

    ``lost`` members are gone. If none is, ``unbound`` ones were released and have no node. If the
    gang itself is complete, only sub-groups that are not restart; ``what`` says which it is.
    """

    gang: GangKey
    pods: tuple[Pod, ...]
    lost: int
    unbound: int
    what: str = "gang"


def find_restart(cache: GangCache, key: GangKey) -> Restart | None:
    """Return the restart that a gang needs; None if it has its minimum, or must not be restarted.

    An interrupted start, where ``lost`` is 0, is a reason only once the released members had time
    to get their nodes: the caller waits for that.
    """
    spec = cache.spec(key)
    if spec is None or cache.compat:
        return None
    below = count_lost(cache, key)
    if not below:
        return None
    unbound = _count_unbound(cache, key)
    lost = max(0, below - unbound)
    if lost and spec.on_member_failure is not OnMemberFailure.RESTART_GANG:
        return None
    if not lost and spec.on_bind_failure is not OnBindFailure.RESTART_GANG:
        return None
    pods = _find_incarnation(cache, key)
    tree = spec.sub_groups
    if tree is None or not is_placed_whole(cache, key):
        return Restart(key, pods, lost, unbound) if pods else None
    broken = find_incomplete(cache, key)
    own, parts = cache.members(key), {pod.sub_group for pod in pods}
    parts = {part for part in parts if any(tree.is_in(part, name) for name in broken)}
    pods = tuple(pod for pod in pods if pod.uid in own and pod.sub_group in parts)
    return Restart(key, pods, lost, unbound, "sub-group") if pods else None


def _count_unbound(cache: GangCache, key: GangKey) -> int:
    """Count members without a node that were to start together with others that have theirs."""
    own = cache.members(key)
    group = (cache.members(gang).values() for gang in cache.group(key).gangs)
    unbound = [p for p in find_unbound(pod for members in group for pod in members) if p.uid in own]
    started = find_started(cache, key)
    return sum(pod.recorded is not None or started(pod) for pod in unbound)


def _find_incarnation(cache: GangCache, key: GangKey) -> tuple[Pod, ...]:
    """Return the living members that were released, of all gangs that started with this one."""
    members = (
        pod
        for gang in cache.group(key).gangs
        if is_satisfied(cache, gang)
        for pod in cache.members(gang).values()
    )
    released = (pod for pod in members if pod.is_alive and pod.recorded is not None)
    return tuple(sorted((pod for pod in released if not pod.is_gated), key=order_of))
