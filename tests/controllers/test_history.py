"""What happened to a gang: recorded once per time, kept across restarts, told as events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tests.builders import make_pod, make_pod_group
from tests.cluster import make_cluster

from koord.controllers.history import HistoryRecorder
from koord.controllers.status_publishing import PreemptionAnnouncer
from koord.core.model.gang_history import (
    MAX_EPISODES,
    OF_PLACEMENT,
    OF_POD_GROUPS,
    Episode,
    Happened,
    find_eviction,
    merge,
)

if TYPE_CHECKING:
    from koord.kube.objects import ObjectRef

GROUP = make_pod_group("team/a", 2).build()


@dataclass
class Written:
    """Stands for the writer and the recorder of events."""

    news: list[str] = field(default_factory=list)
    """PodGroups whose status is to be written."""
    events: list[tuple[str, str]] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    """Objects that got an event."""

    def record(self, ref: ObjectRef, _kind: object, *, reason: str, note: str, **_: Any) -> None:
        self.events.append((reason, note))
        self.told.append(f"{ref.kind}/{ref.name}")

    def forget(self, _ref: ObjectRef, _action: str) -> None:
        pass


def make_recorder(
    written: Written, *own: frozenset[Happened], now: float = 100.0, shown: Any = None
):
    return HistoryRecorder(
        own,
        written,  # type: ignore[arg-type]
        lambda _: shown,
        lambda: now,
        lambda ref: written.news.append(ref.name),
    )


def history_of(recorder: HistoryRecorder) -> list[dict[str, str]]:
    return recorder.fields_of(GROUP.uid).get("history", [])


def test_an_episode_is_written_with_an_event() -> None:
    written = Written()
    recorder = make_recorder(written, OF_PLACEMENT)
    recorder.record(GROUP, Happened.RECLAIMED, "used 8", "b/mine")
    assert written.news == [GROUP.key.partition("/")[2]]
    assert history_of(recorder) == [
        {"time": "1970-01-01T00:01:40Z", "what": "Reclaimed", "why": "used 8", "by": "b/mine"}
    ]
    assert written.events == [("Reclaimed", "used 8. For b/mine.")]


def test_earlier_episodes_of_the_same_operator_stay_and_those_of_others_are_left_to_them() -> None:
    written = Written()
    known = (Episode(10, "Degraded", "x"), Episode(20, "Restarted", "y"))
    recorder = make_recorder(written, OF_PLACEMENT)
    recorder.record(replace(GROUP, history=known), Happened.RECLAIMED, "z")
    assert [one["what"] for one in history_of(recorder)] == ["Restarted", "Reclaimed"]


def test_one_process_keeps_the_episodes_of_all_its_operators() -> None:
    shown = [
        {"time": "1970-01-01T00:00:10Z", "what": "Degraded", "why": "x"},
        {"time": "1970-01-01T00:00:20Z", "what": "Restarted", "why": "y"},
        {"time": "1970-01-01T00:00:30Z", "what": "Unheard", "why": "z"},
    ]
    both = make_recorder(Written(), OF_PLACEMENT, OF_POD_GROUPS, shown={"history": shown})
    assert history_of(both) == shown[:2], "as it is until something happens"
    alone = make_recorder(Written(), OF_PLACEMENT, shown={"history": shown})
    assert history_of(alone) == shown[1:2]
    many = [Episode(at, "Degraded", "") for at in range(1, 20)]
    many += [Episode(at, "Restarted", "") for at in range(1, 20)]
    both.record(replace(GROUP, history=tuple(many)), Happened.RECLAIMED, "w")
    kinds = Counter(entry["what"] for entry in history_of(both))
    assert kinds == {"Degraded": MAX_EPISODES, "Restarted": MAX_EPISODES - 1, "Reclaimed": 1}


def test_what_is_not_seen_yet_is_not_lost() -> None:
    written, now = Written(), [100.0]
    recorder = make_recorder(written, OF_POD_GROUPS)
    recorder.wall_clock = lambda: now[0]
    recorder.record(GROUP, Happened.DEGRADED, "1 of 2")
    now[0] += 5
    recorder.record(GROUP, Happened.DEGRADED, "0 of 2")
    assert len(history_of(recorder)) == 2


def test_a_history_is_bounded_and_ordered() -> None:
    many = [Episode(at, "Degraded", "") for at in range(20, 0, -1)]
    merged = merge(many, many)
    assert [one.time for one in merged] == [*range(20 - MAX_EPISODES + 1, 21)]


def test_the_last_eviction_is_found() -> None:
    history = (
        Episode(1, "Reclaimed", "a"),
        Episode(2, "Preempted", "b"),
        Episode(3, "Degraded", ""),
    )
    assert find_eviction(history) == history[1]
    assert find_eviction(history[2:]) is None


def test_a_preemption_gives_each_victim_and_each_pod_group_one_event() -> None:
    cluster = make_cluster().pod_groups(make_pod_group("default/low", 2))
    gang = [make_pod(f"low-{at}").gang("default/low").running("n").build() for at in range(2)]
    single = make_pod("alone").running("n").build()
    cluster.pods(*gang, single)
    written = Written()
    recorder = make_recorder(written, OF_PLACEMENT)
    announcer = PreemptionAnnouncer(written, cluster.state, recorder.record)  # type: ignore[arg-type]
    text = "b/high (priority 7) needs its place (plan p)"
    announcer.announce_preempted(gang, f"{text}.", by="b/high")
    announcer.announce_preempted((single,), f"{text}.", by="b/high")
    assert sorted(written.told) == ["Pod/alone", "Pod/low-0", "Pod/low-1", "PodGroup/low"]
    assert set(written.events) == {("Preempted", f"{text}.")}, "the unit is not named twice"
