"""Remembered answers about states of devices."""

from __future__ import annotations

from tests.device.nodes import DeviceLocation, a100x8, gpu, make_node, wish

from koord.core.device.ledger import DeviceLedger
from koord.core.device.plugin import PACKED
from koord.core.device.states import DeviceDemand, LedgerStates
from koord.core.model.device_names import GPU_CORE, GPU_MEMORY_RATIO


def test_answers_about_states_that_are_renumbered_are_forgotten() -> None:
    states = LedgerStates(PACKED)
    one_zone = DeviceLedger(make_node([gpu(0, DeviceLocation(0, 1, "pcie0"))]))
    demand = DeviceDemand(wish({GPU_CORE: 100, GPU_MEMORY_RATIO: 100}))
    first, second = states.number(DeviceLedger(a100x8())), states.number(one_zone)
    before = states.hints(first, demand), states.hints(second, demand)
    assert before[0] != before[1]
    states.compact([one_zone])
    assert states.hints(first, demand) == before[1]
