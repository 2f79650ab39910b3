"""Devices that fail and recover: when they are used again."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.device.nodes import a100x8, report

from koord.core.device.inventory import Recoveries
from koord.core.model.device_names import GPU


def used(recoveries: Recoveries, sick: set[int]) -> set[int]:
    masked = recoveries.mask(report("n0", a100x8(sick)))
    return {
        device.minor
        for kind, pool in masked.devices
        for device in pool
        if kind == GPU and device.total
    }


def note(recoveries: Recoveries, sick: set[int]) -> None:
    recoveries.note(report("n0", a100x8(sick)))


def test_a_device_is_used_again_after_it_was_healthy_for_a_while() -> None:
    recoveries = Recoveries(30)
    note(recoveries, set())
    assert used(recoveries, set()) == set(range(8))
    assert recoveries.next_due() is None
    note(recoveries, {3})
    assert recoveries.next_due() is None
    note(recoveries, set())
    assert used(recoveries, set()) == set(range(8)) - {3}
    assert recoveries.advance(100.0) == []
    assert recoveries.next_due() == 130.0
    note(recoveries, {3})
    note(recoveries, set())
    assert recoveries.advance(120.0) == [], "it failed again: the time starts again"
    assert recoveries.advance(149.9) == []
    assert recoveries.is_recovering(report("n0"), (GPU, 3))
    assert recoveries.advance(150.0) == ["n0"]
    assert used(recoveries, set()) == set(range(8))
    assert recoveries.next_due() is None


def test_what_the_status_shows_as_unhealthy_recovers_after_a_restart() -> None:
    recoveries = Recoveries(30)
    shown = frozenset({(GPU, 5), (GPU, 99)})
    recoveries.note(replace(report("n0"), shown_unhealthy=shown))
    assert used(recoveries, set()) == set(range(8)) - {5}
    recoveries.advance(0.0)
    # Later the status follows what is known here.
    recoveries.note(replace(report("n0"), shown_unhealthy=shown))
    assert recoveries.advance(30.0) == ["n0"]
    recoveries.note(replace(report("n0"), shown_unhealthy=shown))
    assert used(recoveries, set()) == set(range(8))


def test_a_device_that_recovers_keeps_its_time_when_its_minor_changes() -> None:
    recoveries = Recoveries(30)
    note(recoveries, {3})
    first = report("n0")
    swapped = dict(first.names)
    swapped[GPU, 3], swapped[GPU, 4] = swapped[GPU, 4], swapped[GPU, 3]
    moved = replace(first, names=swapped)
    recoveries.note(moved)
    assert recoveries.is_recovering(moved, (GPU, 4))
    assert not recoveries.is_recovering(moved, (GPU, 3))
    masked = recoveries.mask(moved)
    assert [device.minor for device in dict(masked.devices)[GPU] if not device.total] == [4]


def test_without_a_pause_devices_are_used_at_once() -> None:
    recoveries = Recoveries(0)
    note(recoveries, {1})
    note(recoveries, set())
    assert used(recoveries, set()) == set(range(8))
    assert recoveries.next_due() is None


@given(st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8))
def test_no_unhealthy_device_is_used_and_all_are_in_the_end(reports: list[set[int]]) -> None:
    recoveries = Recoveries(5)
    now = 0.0
    for sick in reports:
        note(recoveries, sick)
        recoveries.advance(now)
        assert used(recoveries, sick).isdisjoint(sick)
        now += 2.0
    note(recoveries, set())
    recoveries.advance(now)
    recoveries.advance(now + 5.0)
    assert used(recoveries, set()) == set(range(8))
    assert recoveries.next_due() is None
