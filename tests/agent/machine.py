"""Trees of ``/sys`` made from short descriptions, and the stand-in library that goes with them.

Nothing here was recorded on a real machine; each file in ``machines`` says what it follows.
"""

import json
from pathlib import Path
from typing import Any

MACHINES = Path(__file__).parent / "machines"
STAND_IN = Path(__file__).parent / "stand_in"


def make_sys(machine: str, root: Path) -> Path:
    """Write the tree of a machine under ``root``, which is returned."""
    buses = root / "bus/pci/devices"
    buses.mkdir(parents=True)
    lines = (MACHINES / f"{machine}.txt").read_text("utf-8").splitlines()
    devices = [line.split() for line in lines if not line.startswith("#")]
    for path, *pairs in devices:
        fields = dict(pair.split("=") for pair in pairs)
        if path.startswith("node"):
            _write_node(root, path, fields)
        else:
            _write_device(root / "devices" / path, buses, fields)
    for path, *pairs in devices:
        fields = dict(pair.split("=") for pair in pairs)
        if "physfn" in fields:
            _link_function(root / "devices" / path, fields["physfn"])
    return root


def _write_node(root: Path, name: str, fields: dict[str, str]) -> None:
    node = root / f"devices/system/node/{name}"
    node.mkdir(parents=True)
    (node / "cpulist").write_text(f"{fields['cpus']}\n")
    topology = root / f"devices/system/cpu/cpu{fields['cpus'].partition('-')[0]}/topology"
    topology.mkdir(parents=True)
    (topology / "physical_package_id").write_text(f"{fields['socket']}\n")


def _write_device(device: Path, buses: Path, fields: dict[str, str]) -> None:
    device.mkdir(parents=True)
    (buses / device.name).symlink_to(device)
    for file, key in (("vendor", "vendor"), ("class", "class"), ("numa_node", "numa")):
        (device / file).write_text(f"{fields[key]}\n")
    if "port" in fields:
        port = device / "infiniband/mlx5/ports/1"
        port.mkdir(parents=True)
        (port / "state").write_text(f"{fields['port'].replace(':', ': ')}\n")


def _link_function(device: Path, physical: str) -> None:
    parent = device.parent / physical
    (device / "physfn").symlink_to(parent)
    number = len(list(parent.glob("virtfn*")))
    (parent / f"virtfn{number}").symlink_to(device)


def make_gpus(*addresses: str, links: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """Return the state of the stand-in library: GPUs in this order, ``links`` by address."""
    return {
        "driver": "570.86.15",
        "gpus": [
            {
                "uuid": f"GPU-{number}",
                "minor": number,
                "name": "NVIDIA A100-SXM4-80GB",
                "address": f"0000{address.upper()}",
                "memory": 80 << 30,
                "links": [f"0000{other}" for other in (links or {}).get(address, [])],
            }
            for number, address in enumerate(addresses)
        ],
        "events": [],
    }


TWO_SWITCHES = ("0000:19:00.0", "0000:1a:00.0", "0000:9a:00.0", "0000:9b:00.0")
NVSWITCH = "0000:e0:00.0"


def make_switched() -> dict[str, Any]:
    """Return GPUs that are all linked through NVSwitch."""
    return make_gpus(*TWO_SWITCHES, links=dict.fromkeys(TWO_SWITCHES, [NVSWITCH] * 12))


def environment(state: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return variables that make a process import the stand-in library with this state."""
    file = folder / "nvml.json"
    file.write_text(json.dumps(state))
    return {"STAND_IN_NVML": str(file), "STAND_IN_PATH": str(STAND_IN)}
