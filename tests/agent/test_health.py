"""A device is unhealthy at once, and healthy again after it was quiet."""

from hypothesis import given
from hypothesis import strategies as st

from koord.agent.loop import Health
from koord.agent.reading import Fault

XID = Fault("Xid79", "fell off the bus")


def test_a_fault_counts_at_once_and_until_it_was_quiet() -> None:
    health = Health(60)
    assert health.faults(0) == {}
    health.note({"a": XID}, 10)
    assert health.faults(10) == {"a": XID}
    assert health.faults(69) == {"a": XID}
    health.note({"a": XID}, 69)
    assert health.faults(128) == {"a": XID}
    assert health.faults(129) == {}


@given(st.lists(st.floats(0, 1000), min_size=1), st.floats(0.1, 100))
def test_no_device_is_healthy_within_the_quiet_time(times: list[float], quiet: float) -> None:
    health = Health(quiet)
    for now in sorted(times):
        health.note({"a": XID}, now)
        assert health.faults(now)
    last = max(times)
    assert health.faults(last + quiet * 0.9)
    assert not health.faults(last + quiet * 1.1)
