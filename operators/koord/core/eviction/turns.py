"""What queues say to evictions: who waits instead, and whose plan goes first.

Storms come from evicting for room that becomes free anyway, or that another takes. With no setting
of queues nothing here keeps anybody from anything. Nothing here plans or evicts.
"""

from collections.abc import Iterable

from koord.core.engine.state import ClusterState
from koord.core.model.patience import Patience
from koord.core.model.plan import Unit
from koord.core.model.pods import Pod
from koord.core.queue.plugin import Queues
from koord.core.queue.run_time import killed_at
from koord.core.quota.model import DEFAULT_TREE, TreeId


def waits_instead(state: ClusterState, unit: Unit) -> bool:
    """Whether a unit has room reserved for a time so near that nobody is evicted for it."""
    return state.plugin(Queues).starts_soon(unit)


def find_ending(state: ClusterState, patience: Patience, now: float) -> set[str]:
    """Return the uids of pods that their limits end as soon as an eviction would.

    A long grace period makes nobody such a pod for longer than others wait for it.
    """
    if not state.plugin(Queues).is_limiting:
        return set()
    return {
        pod.uid
        for pod in state.pods.values()
        if pod.node
        and (at := killed_at(pod)) is not None
        and now <= at <= now + min(pod.grace, patience.grace_limit)
    }


def tree_of(state: ClusterState, pods: Iterable[Pod]) -> TreeId:
    """Return the quota tree of a unit."""
    queues = state.plugin(Queues)
    return next((queues.tree_of(queues.queue_of(pod)) for pod in pods), DEFAULT_TREE)


def find_busy_trees(state: ClusterState, patience: Patience, now: float) -> set[TreeId]:
    """Return the quota trees in which a unit waits for its victims: one at a time.

    A victim that hangs keeps nobody from evicting others.
    """
    if not state.plugin(Queues).is_limiting:
        return set()
    return {
        tree_of(state, nomination.pods)
        for nomination in state.nominations
        if any(_is_leaving(state, pod, patience, now) for pod in nomination.victims)
    }


def _is_leaving(state: ClusterState, victim: Pod, patience: Patience, now: float) -> bool:
    pod = state.pods.get(victim.uid)
    return pod is not None and not pod.phase.is_terminal and not patience.hangs(pod, now)
