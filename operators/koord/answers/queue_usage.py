"""Who uses a queue and who waits in it, by user: the namespace, as for limits per user."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from koord.answers.gpus import count_gpus
from koord.answers.pending import find_pending
from koord.answers.queue_view import gpus_of
from koord.core.engine.state import ClusterState
from koord.core.queue.plugin import Queues
from koord.core.quota.model import DEFAULT

_LIMITS = ("max_running", "max_running_per_user", "max_pending", "max_pending_per_user")


@dataclass(frozen=True, slots=True)
class UserUsage:
    """One user: what has started and what waits, as units and GPUs."""

    user: str
    started: int
    gpus: int
    waiting: int
    gpus_waiting: int


@dataclass(frozen=True, slots=True)
class QueueUsage:
    """The users of a queue, those of most GPUs first; limits by setting, None: none."""

    queue: str
    policy: str
    limits: Mapping[str, int | None]
    users: tuple[UserUsage, ...]


def view_queue_usage(state: ClusterState, queue: str) -> QueueUsage | None:
    """Return who uses a queue; None if there is no such quota."""
    if queue not in state.quotas.catalog.registry.specs and queue != DEFAULT:
        return None
    queues = state.plugin(Queues)
    gpus: Counter[str] = Counter()
    units: dict[str, set[str]] = {}
    for pod in state.pods.values():
        if pod.planned_node and not pod.phase.is_terminal and queues.queue_of(pod) == queue:
            gpus[pod.namespace] += count_gpus(dict(pod.shape.requests))
            key = pod.uid if pod.gang is None else min(state.gangs.group(pod.gang.key).gangs)
            units.setdefault(pod.namespace, set()).add(key)
    waiting: Counter[str] = Counter()
    requested: Counter[str] = Counter()
    for unit in find_pending(state):
        pod = unit.pods[0]
        if queues.queue_of(pod) == queue:
            waiting[pod.namespace] += 1
            requested[pod.namespace] += gpus_of(unit)
    users = [
        UserUsage(user, len(units.get(user, ())), gpus[user], waiting[user], requested[user])
        for user in units.keys() | waiting.keys()
    ]
    settings = queues.settings_of(queue)
    return QueueUsage(
        queue,
        str(settings.policy),
        {_camel(name): getattr(settings, name) for name in _LIMITS},
        tuple(sorted(users, key=lambda usage: (-usage.gpus, usage.user))),
    )


def _camel(name: str) -> str:
    first, *words = name.split("_")
    return first + "".join(word.capitalize() for word in words)
