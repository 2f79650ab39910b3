"""What a reservation holds is read from annotations that the operators wrote for its node."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.device.nodes import report, whole
from tests.reservation.make import make_reservation

from koord.api.keys import operators
from koord.core.device.allocation import ALLOCATED, record
from koord.core.model.plan import Assignment, Placement
from koord.domains.registry import make_pod_translator
from koord.kube.kind import TranslatorOptions
from koord.kube.plan_keys import PlanKeys
from koord.kube.release import encode_reservation
from koord.kube.translate.reservations import ReservationTranslator
from koord.kube.wire import WireCustomResource

KEYS = PlanKeys(b"k" * 32)
HELD = record("uid-r", [whole(2), whole(3)], report("n1").names)


def annotations(node: str = "n1") -> dict[str, str]:
    pod = make_reservation(node="").pod
    assert pod is not None
    assigned = Assignment(pod, node, (HELD,))
    return encode_reservation(assigned, Placement("u", "plan-1", "", (assigned,)), KEYS)


def read(written: dict[str, str], *, keys: PlanKeys = KEYS, **changes: Any) -> Any:
    manifest = {
        "metadata": {"name": "r", "uid": "uid-r", "annotations": written},
        "spec": {
            "owners": [{"labelSelector": {}}],
            "template": {
                "spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}}}]}
            },
        },
        "status": {"phase": "Available", "nodeName": "n1", **changes.pop("status", {})},
    }
    manifest["metadata"] |= changes
    translator = ReservationTranslator(make_pod_translator(TranslatorOptions(plans=keys)))
    found = translator.translate(msgspec.json.decode(json.dumps(manifest), type=WireCustomResource))
    return found.pod.allocations, translator.outdated


def test_what_was_recorded_is_read_back() -> None:
    written = annotations()
    assert set(written) == {operators.PLAN, operators.PLAN_SIGNATURE, ALLOCATED}
    assert read(written) == ((HELD,), {})


@pytest.mark.parametrize(
    "changes",
    [{"uid": "another"}, {"status": {"nodeName": "n2"}}, {"status": {"nodeName": ""}}],
)
def test_it_counts_for_this_reservation_and_node_only(changes: dict[str, Any]) -> None:
    assert read(annotations(), **changes)[0] == ()


def test_what_somebody_else_wrote_counts_for_nothing() -> None:
    text = json.dumps({"gpu": [{"minor": 7, "resources": {"koordinator.sh/gpu-core": "100"}}]})
    assert read({ALLOCATED: text})[0] == ()
    assert read({**annotations(), ALLOCATED: text})[0] == ()
    assert read(annotations(), keys=PlanKeys(b"x" * 32))[0] == ()


def test_a_record_by_an_earlier_key_counts_and_is_signed_again() -> None:
    keys = PlanKeys(b"n" * 32, [b"k" * 32])
    found, outdated = read(annotations(), keys=keys)
    assert found == (HELD,)
    assert outdated["uid-r"].path.endswith("/scheduling.koordinator.sh/v1alpha1/reservations/r")


def test_plain_amounts_need_no_record() -> None:
    pod = make_reservation(node="").pod
    assert pod is not None
    assigned = Assignment(pod, "n1")
    assert encode_reservation(assigned, Placement("u", "plan-1", "", (assigned,)), KEYS) == {}
