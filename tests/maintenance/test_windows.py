"""Windows of maintenance keep pods off that would not end before."""

from __future__ import annotations

from datetime import datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node, make_pod, select_labels
from tests.cluster import FakeCluster, make_cluster, make_unit, nodes_of
from tests.queue.planned import MINUTE, Job, play_on
from tests.queue.planned import NOW as PLAY_NOW

from koord.core.engine.reasons import InsufficientNodes
from koord.core.maintenance.plugin import Maintenances, MaintenanceWindow
from koord.core.model.text import format_time
from koord.core.queue.plugin import Queues
from koord.core.queue.run_time import QueueHints
from koord.kube.translate.maintenance import MaintenanceTranslator
from koord.kube.wire import WireCustomResource

NOW, START, END, LEAD = 1_000_000.0, 1_010_000.0, 1_020_000.0, 3600.0
WINDOW = MaintenanceWindow("w", START, END, frozenset({"n0"}), None, LEAD)


def maintained(*windows: MaintenanceWindow, at: float = NOW) -> FakeCluster:
    cluster = make_cluster().nodes(make_node("n0").gpu(8).label("rack", "r1"))
    for window in windows:
        cluster.state.plugin(Maintenances).upsert(window)
    cluster.state.advance(at)
    return cluster


def fits(cluster: FakeCluster, seconds: int | None = None) -> bool:
    pod = make_pod("p").gpu(1)
    pod = pod if seconds is None else pod.says((("queue", QueueHints(deadline=seconds)),))
    return bool(cluster.plan(make_unit("u", [pod])).placements)


@pytest.mark.parametrize("start", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
def test_times_that_utc_does_not_have_are_told_all_the_same(start: str) -> None:
    """The window keeps pods off, and every pod that waits is told so."""
    begin = msgspec.convert(start, datetime).timestamp()
    cluster = maintained(MaintenanceWindow("w", begin, 1e12, frozenset({"n0"}), None, 1e12))
    (refusal,) = cluster.plan(make_unit("u", [make_pod("p").gpu(1)])).refusals
    assert "maintenance" in refusal.reason.text()


@given(st.floats())
def test_every_time_has_a_text(seconds: float) -> None:
    assert len(format_time(seconds)) == len("2026-01-31T12:00:00Z")


@pytest.mark.parametrize(
    ("at", "seconds", "fitting"),
    [
        (NOW, None, True),
        (START - LEAD, None, True),
        (START - LEAD + 1, None, False),
        (NOW, 10_000, True),
        (NOW, 10_001, False),
        (START - 60, 60, True),
        (START - 60, 61, False),
        (START, 1, False),
        (END - 1, 1, False),
        (END, None, True),
        (END, 100_000, True),
    ],
)
def test_pods_that_end_before_use_a_node_until_then_and_others_until_the_lead_time(
    at: float,
    seconds: int | None,
    fitting: bool,  # noqa: FBT001 - a table
) -> None:
    assert fits(maintained(WINDOW, at=at), seconds) is fitting


def test_nodes_are_named_or_selected_and_others_are_used() -> None:
    rack = MaintenanceWindow("rack", NOW, END, selector=select_labels(rack="r1"))
    cluster = maintained(rack)
    assert not fits(cluster)
    cluster.nodes(make_node("n1").gpu(8).label("rack", "r2"))
    unit = make_unit("u", [make_pod("p").gpu(1)])
    assert nodes_of(cluster.plan(unit)) == {"p": "n1"}
    cluster.nodes(make_node("n1").gpu(8).label("rack", "r1"))
    assert not fits(cluster)


def test_it_says_when_the_node_goes() -> None:
    cluster = maintained(WINDOW, at=START - 10)
    (refusal,) = cluster.plan(make_unit("u", [make_pod("p").gpu(1)])).refusals
    assert isinstance(refusal.reason, InsufficientNodes)
    assert f"go into maintenance at {format_time(START)}" in refusal.reason.text()


def test_units_are_tried_again_at_the_end_and_when_a_window_is_deleted() -> None:
    cluster = maintained(WINDOW, at=START)
    cluster.pods(make_pod("p").gpu(1))
    assert cluster.step() == []
    assert cluster.state.next_due() == END
    cluster.state.note_freed(cluster.state.advance(END))
    assert cluster.step() == ["p"]
    other = maintained(WINDOW, at=START)
    other.pods(make_pod("p").gpu(1))
    assert other.step() == []
    other.state.plugin(Maintenances).remove(WINDOW)
    assert other.step() == ["p"]


def test_without_windows_nothing_is_asked() -> None:
    cluster = maintained()
    assert not any(session.name == Maintenances.name for session in cluster.open_cycle().sessions)
    over = maintained(WINDOW, at=END)
    assert not any(session.name == Maintenances.name for session in over.open_cycle().sessions)


@given(
    now=st.floats(0, 100),
    start=st.floats(0, 100),
    length=st.floats(0, 100),
    lead=st.floats(0, 100),
    seconds=st.floats(0, 100),
    more=st.floats(0, 100),
)
def test_who_ends_later_is_never_let_in_where_who_ends_earlier_is_not(  # noqa: PLR0917
    now: float, start: float, length: float, lead: float, seconds: float, more: float
) -> None:
    window = MaintenanceWindow("w", start, start + length, lead=lead)
    if window.keeps_off(now, seconds):
        assert window.keeps_off(now, seconds + more)
    if start <= now < start + length:
        assert window.keeps_off(now, None)


def test_objects_are_read_and_invalid_ones_keep_nobody_off() -> None:
    def read(spec: str) -> MaintenanceWindow:
        text = f'{{"metadata": {{"name": "w", "uid": "u"}}, "spec": {spec}}}'
        return MaintenanceTranslator().translate(msgspec.json.decode(text, type=WireCustomResource))

    times = '"start": "1970-01-12T13:46:40Z", "end": "1970-01-12T13:46:50Z"'
    window = read(f'{{"nodes": ["n0"], {times}, "leadTime": "90s"}}')
    expected = MaintenanceWindow("w", NOW, NOW + 10, frozenset({"n0"}), None, 90.0, "u")
    assert window == expected
    for spec in ("{}", '{"nodes": 3}', f'{{"nodes": ["n0"], {times}, "leadTime": "x"}}', "null"):
        assert not read(spec).keeps_off(NOW, None)


def test_room_is_reserved_where_no_window_comes_between() -> None:
    """Also a start in the future ends before the window, or is on another node."""
    play = play_on("ab").running("R1", "1x8", "a", 10).running("R2", "1x8", "b", 30)
    start, end = float(PLAY_NOW + 15 * MINUTE), float(PLAY_NOW + 500 * MINUTE)
    window = MaintenanceWindow("w", start, end, frozenset({"a"}), None, 1.0)
    play.cluster.state.plugin(Maintenances).upsert(window)
    play.jobs["H"] = head = Job("H", "1x8", 12, 1)
    play.step(1)
    queues, (unit,) = play.cluster.state.plugin(Queues), play.cluster.queue.pending()
    reserved = queues._find_head(unit.key)[1]
    assert reserved is not None
    assert list(reserved.nodes) == ["b"]
    assert reserved.start // MINUTE == PLAY_NOW // MINUTE + 30
    assert play.play(head) == "H 30"
