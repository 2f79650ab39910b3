"""Adds to the history of PodGroups: an entry in the status, and an event.

Who writes the status is not known here. Each operator has its own kinds of episodes, and of each as
many are kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from koord.api.podgroup import GroupEpisode, PodGroupStatus
from koord.api.resource import to_time
from koord.core.model.gang_history import MAX_BY, MAX_WHY, Episode, Happened, merge
from koord.core.model.gangs import ObservedPodGroup
from koord.core.model.text import cut
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef, ref_of_pod_group

LIVING: Final = "Living"
"""The action in events about what happened to a gang."""
MAX_REMEMBERED: Final = 4096


@dataclass(slots=True)
class HistoryRecorder:
    """Records what happened to gangs; ``own`` are the kinds of episodes of each operator here.

    ``present`` returns the observed status of a PodGroup by uid, ``wall_clock`` seconds since the
    epoch. ``on_news`` is called with each PodGroup of which something was recorded.
    """

    own: tuple[frozenset[Happened], ...]
    events: EventRecorder
    present: Callable[[str], Mapping[str, Any] | None]
    wall_clock: Callable[[], float]
    on_news: Callable[[ObjectRef], None] = field(default=lambda _: None)
    on_episode: Callable[[ObservedPodGroup, Happened, str], None] = field(default=lambda *_: None)
    """Called with each episode that is recorded."""
    _recorded: dict[str, tuple[Episode, ...]] = field(default_factory=dict)
    """PodGroup uid -> what was recorded here, and may not be seen in its status yet."""

    def record(self, pod_group: ObservedPodGroup, what: Happened, why: str, by: str = "") -> None:
        """Add an episode. ``why`` is a sentence without its full stop; ``by`` names a unit."""
        self.on_episode(pod_group, what, why)
        new = Episode(int(self.wall_clock()), str(what), cut(why, MAX_WHY), cut(by, MAX_BY))
        before = (*pod_group.history, *self._recorded.pop(pod_group.uid, ()))
        self._recorded[pod_group.uid] = tuple(
            sorted(
                episode
                for kinds in self.own
                for episode in merge(_select(before, kinds), (new,) if what in kinds else ())
            )
        )
        if len(self._recorded) > MAX_REMEMBERED:
            del self._recorded[next(iter(self._recorded))]
        ref = ref_of_pod_group(pod_group)
        self.on_news(ref)
        self.events.forget(ref, LIVING)  # each time counts
        kind, note = EventType.WARNING, new.note()
        self.events.record(ref, kind, action=LIVING, reason=str(what), note=note)

    def fields_of(self, uid: str) -> dict[str, Any]:
        """Return the field of the status, of a PodGroup that may have no history."""
        recorded = self._recorded.get(uid)
        if recorded is not None:
            return PodGroupStatus(history=list(map(_write, recorded))).encode_set()
        kinds = {str(happened) for kinds in self.own for happened in kinds}
        shown = (self.present(uid) or {}).get("history") or ()
        entries = [entry for entry in shown if entry.get("what") in kinds]
        return {"history": entries} if entries else {}


def _select(episodes: tuple[Episode, ...], kinds: frozenset[Happened]) -> list[Episode]:
    names = {str(happened) for happened in kinds}
    return [episode for episode in episodes if episode.what in names]


def _write(episode: Episode) -> GroupEpisode:
    return GroupEpisode(
        time=to_time(episode.time), what=episode.what, why=episode.why, by=episode.by or None
    )
