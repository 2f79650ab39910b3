"""Units that start are counted with how long they waited, for what, and how often overtaken."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from koord.answers.audit_starts import StartFinder
from koord.answers.story import Phase
from koord.see.start_series import StartedSeries


def record(kind: str, at: str, trace: str = "a", **fields: Any) -> dict[str, Any]:
    unit = {"key": trace, "namespace": "t", "pods": 1, "quota": "q", "milliGpus": 8000,
            "asks": {"nvidia.com/gpu": "8"}}  # fmt: skip
    return {"kind": kind, "at": f"2026-11-25T{at}Z", "trace": trace, "unit": unit, **fields}


def list_start() -> list[dict[str, Any]]:
    """The unit ``a`` waits for room and is overtaken by ``b``, which stands behind it."""
    return [
        record("Seen", "05:17:00.000", since="2026-11-25T05:17:00Z"),
        record("Complete", "05:20:00.000", since="2026-11-25T05:20:00Z"),
        record("Attempt", "05:20:00.000", **{"class": "Quota"}, position=1, attempt=1),
        record("Attempt", "06:00:00.000", **{"class": "Room"}, position=1, attempt=2),
        record("Attempt", "06:00:00.000", "b", **{"class": "Room"}, position=2, attempt=1),
        record("Placed", "07:00:00.000", "b", position=2),
        record("Placed", "08:00:00.014", due="2026-11-25T08:00:00Z", position=1),
        record("Committed", "08:00:11.200"),
        record("Running", "08:00:41.200"),
    ]


def test_phases_of_a_unit_that_starts_add_up() -> None:
    units = StartFinder()
    *before, started = map(units.add, list_start())
    assert before == [None] * 8
    assert started is not None
    assert started.phases == {
        Phase.INCOMPLETE: 180_000, Phase.QUOTA: 2_400_000, Phase.ROOM: 7_200_000,
        Phase.DECIDING: 14, Phase.WRITING: 11_186, Phase.STARTING: 30_000,
    }  # fmt: skip
    assert (started.mostly, started.waited, started.overtaken) == (Phase.ROOM, 9_791_200, 1)
    assert units.add(record("Running", "08:00:42.000")) is None


def test_nothing_is_kept_of_units_that_are_over() -> None:
    units = StartFinder()
    for each in list_start():
        units.add(each)
    units.add(record("Gone", "09:00:00.000", "b"))
    assert not units._units
    assert not units._overtaking._counts


def test_starts_that_were_counted_before_are_not_counted_again() -> None:
    units = StartFinder(since=2_000_000_000_000)
    assert [units.add(each) for each in list_start()] == [None] * 9


def test_series_tell_what_started() -> None:
    series, registry = StartedSeries(), CollectorRegistry()
    registry.register(series)
    series.read([*map(msgspec.json.encode, list_start()), b"{", b"[]", b"{}"])
    assert registry.get_sample_value("koord_wait_seconds_sum", {"class": "Room"}) == 9791.2
    assert registry.get_sample_value("koord_phase_seconds_total", {"phase": "Quota"}) == 2400
    assert registry.get_sample_value("koord_overtaken_sum") == 1
