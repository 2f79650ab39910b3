"""Records that somebody else than the operators wrote on a pod give it nothing, in any domain.

The policies refuse to write them; here nothing but signatures shows who wrote what.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.support.plan_keys import make_keys, sign_plan

from koord.core.device.allocation import ALLOCATED
from koord.core.numa.model import STATUS, NumaAllocation
from koord.core.reservation.model import ALLOCATED as RESERVED
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.wire import WirePod

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

GPU = {"minor": 0, "resources": {"koordinator.sh/gpu-core": "100"}}
NIC = {"minor": 0, "id": "0000:09:00.0", "resources": {"koordinator.sh/rdma": "100"}}
CPUS = {"cpuset": "0-15", "numaNodeResources": [{"node": 0, "resources": {"cpu": "16"}}]}
RECORDS = {
    "gpu": (ALLOCATED, {"gpu": [GPU]}),
    "rdma": (ALLOCATED, {"rdma": [NIC]}),
    "cpuset": (STATUS, CPUS),
    "reservation": (RESERVED, {"name": "room", "uid": "uid-of-the-reservation"}),
}
each_record = pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
TOPOLOGY = "scheduling.koordinator.sh/network-topology-selector"


def plan_with(records: dict[str, str]) -> str:
    digests = {
        key: blake2b(text.encode(), digest_size=16).hexdigest() for key, text in records.items()
    }
    return json.dumps({"node": "n", "plan": "p", "records": digests})


def translate(annotations: dict[str, str], namespace: str = "team", node: str = "n") -> Pod:
    meta = {"name": "p", "namespace": namespace, "uid": "u", "annotations": annotations}
    limits = {"koordinator.sh/gpu": "100", "koordinator.sh/rdma": "100", "cpu": "16"}
    container: dict[str, Any] = {"name": "c", "resources": {"limits": limits, "requests": limits}}
    spec = {"nodeName": node, "schedulerName": "koord-scheduler", "containers": [container]}
    body = msgspec.json.encode({"metadata": meta, "spec": spec})
    return make_pod_translator(TranslatorOptions(plans=make_keys())).translate(
        msgspec.json.decode(body, type=WirePod)
    )


@each_record
def test_the_operators_own_records_are_read(record: tuple[str, Any]) -> None:
    """Shows for each record that the tests below can fail."""
    key, value = record
    written = {key: json.dumps(value)}
    assert translate(written | sign_plan("u", plan_with(written))).allocations


@each_record
@pytest.mark.parametrize("node", ["", "n"])
def test_a_record_without_a_plan_gives_nothing(record: tuple[str, Any], node: str) -> None:
    key, value = record
    assert translate({key: json.dumps(value)}, node=node).allocations == ()


@each_record
def test_a_record_that_the_plan_does_not_have_gives_nothing(record: tuple[str, Any]) -> None:
    key, value = record
    assert translate({key: json.dumps(value)} | sign_plan("u", plan_with({}))).allocations == ()


@each_record
def test_a_plan_of_another_pod_covers_no_record(record: tuple[str, Any]) -> None:
    key, value = record
    written = {key: json.dumps(value)}
    assert translate(written | sign_plan("other", plan_with(written))).allocations == ()


@each_record
def test_a_changed_record_gives_nothing(record: tuple[str, Any]) -> None:
    """Of CPUs all that the pod asks for count as used: they are not given to others."""
    key, value = record
    plan = sign_plan("u", plan_with({key: json.dumps(value)}))
    found = translate({key: json.dumps(value) + " "} | plan).allocations
    assert all(isinstance(one, NumaAllocation) and one.lost for one in found)
    assert not found or key == STATUS


def test_pods_of_other_namespaces_draw_nobody() -> None:
    mine, others = (translate({TOPOLOGY: "job-7"}, name) for name in ("team", "evil"))
    assert mine.attraction == translate({TOPOLOGY: "job-7"}).attraction != others.attraction
    assert translate({}).attraction == ""
