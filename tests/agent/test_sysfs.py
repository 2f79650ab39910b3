"""Places of devices and NICs, from trees of /sys."""

from pathlib import Path

import pytest
from tests.agent.machine import make_sys

from koord.agent.reading import Fault, PciPlace
from koord.agent.sysfs import Sysfs, normalise_address


@pytest.mark.parametrize(
    ("machine", "place"),
    [
        ("two-switches", PciPlace("0000:19:00.0", "0000:17:00.0", 0, 0)),
        ("two-switches", PciPlace("0000:1b:00.0", "0000:17:00.0", 0, 0)),
        ("two-switches", PciPlace("0000:9a:00.0", "0000:98:00.0", 1, 1)),
        ("workstation", PciPlace("0000:01:00.0", "pci0000:00")),
        ("workstation", PciPlace("0000:02:00.0", "pci0000:00")),
        ("workstation", PciPlace("0000:00:02.0", "pci0000:00")),
        ("workstation", PciPlace("0000:7f:00.0")),
    ],
)
def test_a_device_is_at_its_switch_or_else_at_its_host_bridge(
    tmp_path: Path, machine: str, place: PciPlace
) -> None:
    assert Sysfs(make_sys(machine, tmp_path)).place_of(place.bus_id) == place


def test_nics_have_their_virtual_functions_and_the_state_of_their_ports(tmp_path: Path) -> None:
    up, down = Sysfs(make_sys("two-switches", tmp_path)).find_nics().devices
    assert (up.id, up.functions, up.fault) == ("0000:1b:00.0", (), None)
    assert (down.id, down.functions) == ("0000:9c:00.0", ("0000:9c:00.1", "0000:9c:00.2"))
    assert down.fault == Fault("LinkDown", "ports are 1: DOWN")


def test_what_is_no_nic_with_rdma_is_none(tmp_path: Path) -> None:
    assert Sysfs(make_sys("workstation", tmp_path)).find_nics().devices == ()
    assert Sysfs(tmp_path / "nothing").find_nics().devices == ()


def test_displays_are_found_by_vendor(tmp_path: Path) -> None:
    sysfs = Sysfs(make_sys("workstation", tmp_path))
    assert sysfs.find_displays("0x10de") == ["0000:01:00.0", "0000:02:00.0"]


def test_addresses_of_the_library_are_those_of_the_kernel() -> None:
    assert normalise_address("00000000:3B:00.0") == "0000:3b:00.0"
    assert normalise_address("00010000:3B:00.0") == "10000:3b:00.0"
