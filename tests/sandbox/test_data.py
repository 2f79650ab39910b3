"""The data files of the package, and the audit log."""

import json

import pytest

from koord.api.device import Device
from koord.api.parse import parse
from koord_sandbox import AuditedWrite, list_shapes, load_shape, make_node
from koord_sandbox.audit import read_writes
from koord_sandbox.errors import UnknownShapeError
from koord_sandbox.node_reports import make_device


@pytest.mark.parametrize("name", list_shapes())
def test_shapes_have_the_fields_of_scheduling(name):
    shape = load_shape(name)
    assert shape.name == name
    assert shape.allocatable.keys() == shape.capacity.keys()
    assert {"cpu", "memory", "ephemeral-storage", "pods"} <= shape.capacity.keys()
    assert shape.capacity["pods"] == "110"
    is_nvidia = shape.labels.get("node.koordinator.sh/gpu-vendor") == "nvidia"
    assert ("nvidia.com/gpu" in shape.capacity) == is_nvidia


@pytest.mark.parametrize("name", [name for name in list_shapes() if load_shape(name).devices])
def test_devices_of_a_shape_are_valid(name):
    shape = load_shape(name)
    body = make_device(shape, "n0", "uid")
    found = parse(Device, body, unknown_fields="forbid")
    assert isinstance(found, Device), found
    cards = int(shape.capacity.get("nvidia.com/gpu", shape.capacity.get("cambricon.com/mlu", "8")))
    gpus = [one for one in body["spec"]["devices"] if one["type"] == "gpu"]
    assert len(gpus) == cards
    devices = body["spec"]["devices"]
    assert len({one["topology"]["busID"] for one in devices}) == len(devices)
    numa_of = {one["topology"]["pcieID"]: one["topology"]["nodeID"] for one in gpus}
    assert all(numa_of[at["pcieID"]] == at["nodeID"] for at in (one["topology"] for one in devices))


def test_an_unknown_shape_is_an_error():
    with pytest.raises(UnknownShapeError, match="a100x8, ascend910bx8, cpu16"):
        load_shape("../shapes/a100x8")


@pytest.mark.parametrize(
    ("number", "name", "block", "spine"),
    [
        (0, "a100x8-0000", 0, 0),
        (7, "a100x8-0007", 0, 0),
        (8, "a100x8-0008", 1, 0),
        (64, "a100x8-0064", 8, 1),
        (12345, "a100x8-12345", 1543, 192),
    ],
)
def test_nodes_of_a_domain_share_its_labels(number, name, block, spine):
    labels = make_node(load_shape("a100x8"), number)["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == name
    assert labels["network.topology.nvidia.com/block"] == f"a100-block-{block}"
    assert labels["network.topology.nvidia.com/spine"] == f"a100-spine-{spine}"
    assert labels["network.topology.nvidia.com/datacenter"] == "sandbox"


def test_incomplete_lines_of_the_audit_log_are_not_read(tmp_path):
    event = {
        "stage": "ResponseComplete",
        "verb": "create",
        "user": {"username": "somebody"},
        "objectRef": {"resource": "pods", "subresource": "binding", "namespace": "n", "name": "p"},
        "responseStatus": {"code": 201},
    }
    log = tmp_path / "audit.log"
    line = json.dumps(event)
    log.write_text(f"{line}\n{line[:40]}")

    assert list(read_writes(log)) == [
        AuditedWrite("somebody", "create", "pods", "binding", "n", "p", 201)
    ]
