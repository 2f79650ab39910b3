"""The series: their names, and that each recorder moves its own."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koord.runtime.metrics import Metrics


def value_of(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("record", "name", "labels", "expected"),
    [
        (lambda m: m.observe_cycle(0.2), "koord_cycle_seconds_sum", {}, 0.2),
        (lambda m: m.observe_bind_latency(3), "koord_bind_latency_seconds_count", {}, 1),
        (lambda m: m.count_bind("bound"), "koord_binds_total", {"outcome": "bound"}, 1),
        (lambda m: m.count_release("gone"), "koord_releases_total", {"outcome": "gone"}, 1),
        (lambda m: m.set_assumed(4), "koord_assumed_pods", {}, 4),
        (
            lambda m: m.count_planned(placed=3, refused=2),
            "koord_plan_pods_total",
            {"result": "refused"},
            2,
        ),
        (
            lambda m: m.count_status_write("podgroups", "written"),
            "koord_status_writes_total",
            {"resource": "podgroups", "outcome": "written"},
            1,
        ),
    ],
)
def test_a_recorder_moves_its_series(record, name, labels, expected):
    metrics = Metrics()
    record(metrics)
    assert value_of(metrics, name, **labels) == expected


@pytest.mark.parametrize(
    ("record", "name", "labels", "expected"),
    [
        (lambda r: r.set_objects(7), "koord_reflector_objects", {}, 7),
        (lambda r: r.count_event("ADDED"), "koord_reflector_events_total", {"type": "ADDED"}, 1),
        (lambda r: r.count_relist(), "koord_reflector_relists_total", {}, 1),
        (
            lambda r: r.count_inferred_deletes(3),
            "koord_reflector_inferred_deletes_total",
            {},
            3,
        ),
        (lambda r: r.count_decode_error(), "koord_reflector_decode_errors_total", {}, 1),
    ],
)
def test_a_reflector_moves_the_series_of_its_resource(record, name, labels, expected):
    metrics = Metrics()
    metrics.for_reflector("nodes")
    record(metrics.for_reflector("pods"))
    assert value_of(metrics, name, resource="pods", **labels) == expected
    assert not value_of(metrics, name, resource="nodes", **labels)


def test_reasons_that_nobody_waits_for_disappear():
    metrics = Metrics()
    metrics.set_pending({"MissingMembers": 2, "InsufficientNodes": 1})
    metrics.set_pending({"InsufficientNodes": 5})
    assert value_of(metrics, "koord_pending_units", reason="MissingMembers") is None
    assert value_of(metrics, "koord_pending_units", reason="InsufficientNodes") == 5


def test_two_processes_do_not_share_counts():
    one, other = Metrics(), Metrics()
    one.count_bind("bound")
    assert value_of(other, "koord_binds_total", outcome="bound") is None


def test_names_follow_the_convention():
    families = text_string_to_metric_families(Metrics().encode().decode())
    names = {family.name for family in families if not family.name.startswith("process_")}
    assert names
    assert all(re.fullmatch(r"koord(_[a-z]+)+", name) for name in names), names
