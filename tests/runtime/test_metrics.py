"""The series: their names, and that each recorder moves its own."""

import re
import time
from dataclasses import dataclass, fields

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.core.quota.status import Summary
from koord.kube.events import EventStats
from koord.kube.reflector import ReflectorStats
from koord.kube.status import StatusStats
from koord.runtime.collectors import (
    QuotaSeries,
    assumed_pods,
    event_outcomes,
    pending_units,
    reflector_series,
    status_writes,
)
from koord.runtime.metrics import Metrics


def families_of(metrics):
    """Read and render all series; return them parsed, without those of the process."""
    metrics.take()
    families = text_string_to_metric_families(metrics.encode().decode())
    return [family for family in families if not family.name.startswith("process_")]


def value_of(metrics, name, /, **labels):
    samples = (sample for family in families_of(metrics) for sample in family.samples)
    found = (one.value for one in samples if (one.name, one.labels) == (name, labels))
    return next(found, None)


@pytest.mark.parametrize(
    ("record", "name", "labels", "expected"),
    [
        (lambda m: m.observe_cycle(0.2), "koord_cycle_seconds_sum", {}, 0.2),
        (lambda m: m.observe_bind_latency(3), "koord_bind_latency_seconds_count", {}, 1),
        (lambda m: m.count_futile_plan(), "koord_futile_plans_total", {}, 1),
        (lambda m: m.count_bind("bound"), "koord_binds_total", {"outcome": "bound"}, 1),
        (lambda m: m.count_release("gone"), "koord_releases_total", {"outcome": "gone"}, 1),
        (
            lambda m: m.count_planned(placed=3, refused=2),
            "koord_plan_pods_total",
            {"result": "refused"},
            2,
        ),
    ],
)
def test_a_recorder_moves_its_series(record, name, labels, expected):
    metrics = Metrics()
    record(metrics)
    assert value_of(metrics, name, **labels) == expected


@dataclass
class FakeWriter:
    """Stands for a status writer or an event recorder: its numbers."""

    stats: StatusStats | EventStats


@dataclass
class FakeReflector:
    """Stands for a reflector, of which only its numbers matter here."""

    objects: int
    stats: ReflectorStats
    version = "v1"
    is_absent = False

    def __len__(self):
        return self.objects


EVENT_TYPES = ("added", "modified", "deleted")


@pytest.mark.parametrize(
    ("stats", "name", "expected"),
    [
        (ReflectorStats(), "koord_reflector_objects", 7),
        (ReflectorStats(lists=2), "koord_reflector_relists_total", 2),
        (ReflectorStats(watches=3), "koord_reflector_watches_total", 3),
        (ReflectorStats(inferred_deletes=5), "koord_reflector_inferred_deletes_total", 5),
        (ReflectorStats(poison=6), "koord_reflector_decode_errors_total", 6),
        (ReflectorStats(decode_seconds=0.5), "koord_reflector_decode_seconds_total", 0.5),
        (ReflectorStats(errors=8), "koord_reflector_errors_total", 8),
    ],
)
def test_reflectors_are_read_at_every_scrape(stats, name, expected):
    metrics = Metrics()
    pods, nodes = FakeReflector(0, ReflectorStats()), FakeReflector(0, ReflectorStats())
    metrics.watch(*reflector_series({"pods": pods, "nodes": nodes}))
    pods.objects, pods.stats = 7, stats
    assert value_of(metrics, name, resource="pods") == expected
    assert value_of(metrics, name, resource="nodes") == 0


def test_changes_are_counted_by_type():
    metrics = Metrics()
    stats = ReflectorStats(added=1, modified=2, deleted=4)
    metrics.watch(*reflector_series({"pods": FakeReflector(3, stats)}))
    name = "koord_reflector_events_total"
    counts = [value_of(metrics, name, resource="pods", type=kind) for kind in EVENT_TYPES]
    assert counts == [1, 2, 4]


def test_status_writers_of_one_resource_are_added_up_at_every_scrape():
    metrics, placement, podgroup = Metrics(), FakeWriter(StatusStats()), FakeWriter(StatusStats())
    pods = FakeWriter(StatusStats(retried=5))
    writers = [("podgroups", placement), ("podgroups", podgroup), ("pods", pods)]
    metrics.watch(status_writes(writers))
    placement.stats, podgroup.stats = StatusStats(written=2, refused=1), StatusStats(written=3)
    name = "koord_status_writes_total"
    assert value_of(metrics, name, resource="podgroups", outcome="written") == 5
    assert value_of(metrics, name, resource="podgroups", outcome="refused") == 1
    assert value_of(metrics, name, resource="pods", outcome="retried") == 5
    assert value_of(metrics, name, resource="pods", outcome="written") == 0


@pytest.mark.parametrize(
    ("stats", "make_collector", "name"),
    [
        (
            StatusStats,
            lambda one: status_writes([("pods", one)]),
            "koord_status_writes",
        ),
        (EventStats, event_outcomes, "koord_events"),
    ],
)
def test_every_counter_of_a_writer_is_an_outcome(stats, make_collector, name):
    counters = [field.name for field in fields(stats) if field.type is int]
    numbers = {counter: at for at, counter in enumerate(counters, 1)}
    metrics = Metrics()
    metrics.watch(make_collector(FakeWriter(stats(**numbers))))
    (family,) = (family for family in families_of(metrics) if family.name == name)
    assert {one.labels["outcome"]: one.value for one in family.samples} == numbers


def test_the_silence_of_a_reflector_grows():
    metrics = Metrics()
    stats = ReflectorStats(last_contact=time.monotonic() - 60)
    metrics.watch(*reflector_series({"pods": FakeReflector(0, stats)}))
    assert value_of(metrics, "koord_reflector_silence_seconds", resource="pods") >= 60


INCOMPLETE = {"class": "Incomplete", "reason": "MissingMembers"}
ROOM = {"class": "Room", "reason": "InsufficientNodes"}


def test_reason_without_pending_units_has_no_series():
    metrics, waiting = Metrics(), {"MissingMembers": 2, "InsufficientNodes": 1}
    metrics.watch(pending_units(lambda: waiting))
    assert value_of(metrics, "koord_pending_units", **INCOMPLETE) == 2
    del waiting["MissingMembers"]
    assert value_of(metrics, "koord_pending_units", **INCOMPLETE) is None
    assert value_of(metrics, "koord_pending_units", **ROOM) == 1


def test_gauges_are_read_at_every_scrape():
    metrics, assumed = Metrics(), {"a", "b"}
    metrics.watch(assumed_pods(lambda: len(assumed)))
    assumed.add("c")
    assert value_of(metrics, "koord_assumed_pods") == 3


def test_two_processes_do_not_share_counts():
    one, other = Metrics(), Metrics()
    one.count_bind("bound")
    assert value_of(other, "koord_binds_total", outcome="bound") is None


def test_names_follow_the_convention():
    metrics = Metrics()
    metrics.watch(pending_units(dict))
    metrics.watch(*reflector_series({}))
    metrics.watch(status_writes([]))
    metrics.watch(event_outcomes(FakeWriter(EventStats())))
    metrics.watch_text(QuotaSeries(tuple))
    names = {family.name for family in families_of(metrics)}
    assert names
    form = r"(koord|scheduler_(update_)?elastic_quota)(_[a-z]+)+"  # Koordinator's own, too
    assert all(re.fullmatch(form, name) for name in names), names


def test_quotas_have_koordinators_names() -> None:
    metrics = Metrics()
    summaries = [
        Summary("team", "org", max={"cpu": 4000}, share={"cpu": 2000}, used={"memory": 5}),
    ]
    metrics.watch_text(QuotaSeries(lambda: tuple(summaries)))
    labels = {"name": "team", "tree": "", "is_parent": "false", "parent": "org"}
    name = "scheduler_elastic_quota_status"
    assert value_of(metrics, name, **labels, field="runtime", resource="cpu") == 2000
    assert value_of(metrics, name, **labels, field="used", resource="memory") == 5
    summaries.clear()
    assert value_of(metrics, name, **labels, field="max", resource="cpu") is None


def test_numbers_change_when_they_are_taken_and_not_before() -> None:
    """Between, another thread renders them."""
    metrics, waiting = Metrics(), {"MissingMembers": 2}
    metrics.watch(pending_units(lambda: waiting))
    metrics.take()
    waiting["MissingMembers"] = 3
    assert (
        b'koord_pending_units{class="Incomplete",reason="MissingMembers"} 2.0' in metrics.encode()
    )


def test_labels_of_quotas_are_escaped() -> None:
    metrics, odd = Metrics(), 'a"b\\c\nd'
    metrics.watch_text(QuotaSeries(lambda: (Summary("team", tree=odd, max={odd: 1}),)))
    labels = {"name": "team", "tree": odd, "is_parent": "false", "parent": ""}
    name = "scheduler_elastic_quota_status"
    assert value_of(metrics, name, **labels, field="max", resource=odd) == 1
