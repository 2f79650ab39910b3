"""What becomes of a started gang that falls below its minimum, by what its settings say.

``Replace`` keeps the room of lost members for their replacements; ``Ignore`` lets replacements come
like any other pod; ``RestartGang`` gives up what is left of the gang, so that it starts anew as a
whole. The last is decided here, from the members alone: who asks again gets the same answer.
"""

from dataclasses import dataclass

from koord.core.gang.cache import GangCache, order_of
from koord.core.gang.model import GangKey, OnBindFailure, OnMemberFailure
from koord.core.gang.quorum import count_lost, is_satisfied
from koord.core.gang.start import find_unbound
from koord.core.pods import Pod


@dataclass(frozen=True, slots=True)
class Restart:
    """A gang to be started anew: the members of its incarnation that are left, all to be evicted.

    ``lost`` members are gone. If none is, ``unbound`` ones were released and got no node.
    """

    gang: GangKey
    pods: tuple[Pod, ...]
    lost: int
    unbound: int


def find_restart(book: GangCache, key: GangKey) -> Restart | None:
    """Tell whether a gang is to be started anew; None if all is well, or it asks for no such thing.

    A start that was cut off is none for as long as the members that were released may get their
    nodes: then ``lost`` is 0, and the caller knows how long to wait.
    """
    spec = book.spec(key)
    if spec is None or book.compat:
        return None
    below = count_lost(book, key)
    if not below:
        return None
    unbound = _count_unbound(book, key)
    lost = max(0, below - unbound)
    if lost and spec.on_member_failure is not OnMemberFailure.RESTART_GANG:
        return None
    if not lost and spec.on_bind_failure is not OnBindFailure.RESTART_GANG:
        return None
    pods = _find_incarnation(book, key)
    return Restart(key, pods, lost, unbound) if pods else None


def _count_unbound(book: GangCache, key: GangKey) -> int:
    """Count members without a node that were to start together with others that have theirs."""
    own = book.members(key)
    group = (book.members(gang).values() for gang in book.group(key).gangs)
    return sum(pod.uid in own for pod in find_unbound(pod for one in group for pod in one))


def _find_incarnation(book: GangCache, key: GangKey) -> tuple[Pod, ...]:
    """Return the living members that were released, of all gangs that started with this one."""
    members = (
        pod
        for gang in book.group(key).gangs
        if is_satisfied(book, gang)
        for pod in book.members(gang).values()
    )
    released = (pod for pod in members if pod.is_alive and pod.recorded is not None)
    return tuple(sorted((pod for pod in released if not pod.is_gated), key=order_of))
