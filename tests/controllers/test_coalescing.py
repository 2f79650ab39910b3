"""When a key that keeps changing is due."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.controllers import coalescing
from koord.controllers.coalescing import Agenda, Pause

PAUSE = Pause(quiet=1.0, longest=3.0)
OTHER = Pause(quiet=0.5, longest=2.0)


def test_key_is_due_once_after_a_quiet_pause() -> None:
    agenda = Agenda[str]()
    agenda.put_off("a", 10.0, PAUSE)
    assert agenda.first() == 11.0
    assert agenda.take(10.9) == []
    assert agenda.take(11.0) == ["a"]
    assert agenda.first() is None


def test_changes_delay_a_key_up_to_the_longest_pause() -> None:
    agenda = Agenda[str]()
    moments = []
    for now in (10.0, 10.5, 11.0, 12.5, 12.9):
        agenda.put_off("a", now, PAUSE)
        moments.append(agenda.first())
    assert moments == [11.0, 11.5, 12.0, 13.0, 13.0]


def test_change_with_another_pause_counts_as_first() -> None:
    agenda = Agenda[str]()
    agenda.put_off("a", 10.0, PAUSE)
    agenda.put_off("a", 10.1, OTHER)
    assert agenda.first() == 10.6


def test_change_makes_a_scheduled_key_due_earlier() -> None:
    agenda = Agenda[str]()
    agenda.look_at("a", 70.0)
    agenda.look_at("a", 80.0)
    assert agenda.first() == 70.0
    agenda.put_off("a", 10.0, PAUSE)
    assert agenda.first() == 11.0


def test_dropped_key_is_never_due() -> None:
    agenda = Agenda[str]()
    agenda.look_at("a", 1.0)
    agenda.look_at("b", 2.0)
    agenda.drop("a")
    agenda.drop("never seen")
    assert (agenda.first(), len(agenda)) == (2.0, 1)
    assert agenda.take(3.0) == ["b"]


def test_stale_heap_entries_are_removed() -> None:
    agenda = Agenda[int]()
    for now in range(1000):
        for key in range(10):
            agenda.look_at(key, now + 300.0)
            agenda.put_off(key, now, PAUSE)
        assert len(agenda.take(now + 1.0)) == 10
    assert len(agenda._heap) < 100


KEYS = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("put_off"), KEYS, st.sampled_from([PAUSE, OTHER])),
    st.tuples(st.just("look_at"), KEYS, st.integers(0, 9)),
    st.tuples(st.just("drop"), KEYS, st.none()),
    st.tuples(st.just("take"), st.none(), st.none()),
)


@pytest.mark.parametrize("max_stale", [0, coalescing._MAX_STALE])
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 1.0]), STEPS), max_size=40))
def test_agenda_agrees_with_a_scan_of_all_keys(max_stale: int, steps: list) -> None:
    """Whether the heap is rebuilt often or never: what is put off while that happens is due."""
    with mock.patch.object(coalescing, "_MAX_STALE", max_stale):
        _compare_with_scan(steps)


def _compare_with_scan(steps: list) -> None:
    agenda, dues, now = Agenda[str](), {}, 0.0
    for passed, (what, key, how) in steps:
        now += passed
        if what == "put_off":
            agenda.put_off(key, now, how)
            first = dues[key][1] if key in dues and dues[key][0] is how else now
            dues[key] = (how, first, min(now + how.quiet, first + how.longest))
        elif what == "look_at":
            agenda.look_at(key, now + how)
            if key not in dues or dues[key][2] > now + how:
                dues[key] = (None, now, now + how)
        elif what == "drop":
            agenda.drop(key)
            dues.pop(key, None)
        else:
            over = {one for one, due in dues.items() if due[2] <= now}
            assert set(agenda.take(now)) == over
            dues = {one: due for one, due in dues.items() if one not in over}
        assert agenda.first() == min((due[2] for due in dues.values()), default=None)
        assert len(agenda) == len(dues)
