"""The cluster at a glance: its GPUs, what waits and why, and which quotas are over or owed.

Sums up what other answers say, and decides nothing.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from koord.answers.fragmentation import ModelFragmentation, view_fragmentation
from koord.answers.health import find_sick
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import view_quotas
from koord.core.engine.state import ClusterState
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import class_of

MOST_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class GpuSums:
    """The GPUs of a cluster by what they do: the others add up to ``total``.

    ``held`` are those of reservations that no pod uses; ``stranded`` are free and no pod can take
    them; those of nodes that are ``down`` are nothing else.
    """

    total: int
    used: int
    held: int
    free: int
    stranded: int
    broken: int
    down: int


@dataclass(frozen=True, slots=True)
class Overview:
    """``waiting`` counts units by class of their reason; ``longest`` are those that wait longest.

    ``over`` are quotas that use more than they are entitled to; ``sick`` counts what is not well.
    """

    gpus: GpuSums
    waiting: Mapping[str, int]
    waiting_pods: int
    longest: tuple[QueueEntry, ...]
    over: tuple[str, ...]
    sick: int


def view_overview(state: ClusterState, waiting: Sequence[QueueEntry], now: float) -> Overview:
    counts = Counter(class_of(entry.reason.code) for entry in waiting)
    return Overview(
        gpus=sum_gpus(view_fragmentation(state)),
        waiting={str(each): counts[each] for each in ReasonClass},
        waiting_pods=sum(entry.pods for entry in waiting),
        longest=tuple(sorted(waiting, key=lambda entry: (entry.since, entry.names))[:MOST_SHOWN]),
        over=tuple(quota.summary.name for quota in view_quotas(state).quotas if quota.over),
        sick=len(find_sick(state, now)),
    )


def sum_gpus(models: Sequence[ModelFragmentation]) -> GpuSums:
    """Return the GPUs of all models together."""
    return GpuSums(
        total=sum(model.total for model in models),
        used=sum(model.used for model in models),
        held=sum(model.held for model in models),
        free=sum(model.free for model in models),
        stranded=sum(sum(model.stranded.values()) for model in models),
        broken=sum(model.broken for model in models),
        down=sum(model.down for model in models),
    )
