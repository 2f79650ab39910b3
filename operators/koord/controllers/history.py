"""Adds to the history of PodGroups: an entry in the status, and an event.

Entries of one operator are applied under a field manager of its own, so that those of others stay.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from koord.api.podgroup import GroupEpisode, PodGroupStatus
from koord.api.resource import to_time
from koord.core.model.gang_history import MAX_BY, MAX_WHY, Episode, Happened, merge
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.text import cut
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ref_of_pod_group
from koord.kube.status import StatusPatch, StatusWriter

LIVING: Final = "Living"
"""The action in events about what happened to a gang."""
MAX_REMEMBERED: Final = 4096


@dataclass(slots=True)
class HistoryRecorder:
    """Records what happened to gangs; ``own`` are the kinds of episodes of this operator.

    Without ``events``, in a process that places no pods, the status has to do. ``wall_clock``
    returns seconds since the epoch.
    """

    writer: StatusWriter
    own: frozenset[Happened]
    events: EventRecorder | None
    wall_clock: Callable[[], float]
    _recorded: dict[str, tuple[Episode, ...]] = field(default_factory=dict)
    """PodGroup uid -> what was recorded here, and may not be seen in its status yet."""

    def record(self, pod_group: ObservedPodGroup, what: Happened, why: str, by: str = "") -> None:
        """Add an episode. ``why`` is a sentence without its full stop; ``by`` names a unit."""
        new = Episode(int(self.wall_clock()), str(what), cut(why, MAX_WHY), cut(by, MAX_BY))
        own = {str(happened) for happened in self.own}
        seen = (episode for episode in pod_group.history if episode.what in own)
        episodes = merge(seen, (*self._recorded.pop(pod_group.uid, ()), new))
        self._recorded[pod_group.uid] = episodes
        if len(self._recorded) > MAX_REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        ref = ref_of_pod_group(pod_group)
        status = PodGroupStatus(history=list(map(_write, episodes)))
        self.writer.submit(ref, StatusPatch(fields=status.encode_set()))
        if self.events is not None:
            self.events.forget(ref, LIVING)  # each time counts
            kind, note = EventType.WARNING, new.note()
            self.events.record(ref, kind, action=LIVING, reason=str(what), note=note)


def _write(episode: Episode) -> GroupEpisode:
    return GroupEpisode(
        time=to_time(episode.time), what=episode.what, why=episode.why, by=episode.by or None
    )
