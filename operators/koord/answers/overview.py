"""The cluster at a glance: its GPUs, what waits and why, and which quotas are over or owed.

Sums up what other answers say, and decides nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final

from koord.answers.fragmentation import ModelFragmentation
from koord.answers.placed_entries import PlacedEntries
from koord.answers.queue_sight import hide_others
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import QuotaView
from koord.answers.redaction import Sight, redact
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


def view_overview(
    waiting: Sequence[QueueEntry],
    models: Sequence[ModelFragmentation],
    quotas: Iterable[QuotaView],
    sick: int,
) -> Overview:
    """Sum up what waits, in order, GPUs by model, and quotas, with the names of all."""
    rows = waiting.unplaced if isinstance(waiting, PlacedEntries) else waiting
    counts = Counter(entry.reason.code for entry in rows)
    classes: Counter[ReasonClass | None] = Counter()
    for code, count in counts.items():
        classes[class_of(code)] += count
    return Overview(
        gpus=sum_gpus(models),
        waiting={str(each): classes[each] for each in ReasonClass},
        waiting_pods=sum(entry.pods for entry in rows),
        longest=tuple(
            waiting[at]
            for at in nsmallest(MOST_SHOWN, range(len(rows)), key=lambda at: rows[at].since)
        ),
        over=tuple(quota.summary.name for quota in quotas if quota.over),
        sick=sick,
    )


def see_overview(view: Overview, sight: Sight) -> Overview:
    """Return an overview as an asker sees it."""
    over = redact(view, sight.hide).over
    return replace(view, longest=hide_others(view.longest, sight), over=over)


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
