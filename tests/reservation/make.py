"""Builders of reservations for the tests of their rules."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders import make_pod

from koord.core.model.pods import Handling
from koord.core.model.selectors import LabelSelector, Requirement, SelectorOperator
from koord.core.reservation.ledger import ReservationAccount
from koord.core.reservation.model import (
    AllocatePolicy,
    ObjectOwner,
    Owner,
    ReservationInfo,
    ReservationPhase,
    ReservationState,
)

RESTRICTED = AllocatePolicy.RESTRICTED
ALIGNED = AllocatePolicy.ALIGNED


def labelled(**labels: str) -> Owner:
    """Own by labels."""
    selector: LabelSelector = tuple(
        Requirement(key, SelectorOperator.IN, (value,)) for key, value in labels.items()
    )
    return Owner(selector=selector)


def named(name: str, namespace: str = "") -> Owner:
    return Owner(ObjectOwner(name, namespace))


def make_reservation(name: str = "r", node: str = "n1", **fields: Any) -> ReservationInfo:
    """Make one that holds 8 CPUs on a node for pods with app=web, unless the fields differ."""
    cpu = fields.pop("cpu", 8000)
    reserved = fields.pop("reserved", {"cpu": cpu})
    pod = make_pod(f"reservation:{name}").uid(f"uid-{name}").requests(**{**reserved, "pods": 1})
    waiting = replace(pod.build(), handling=Handling.RESERVE, is_gated=False)
    phase = ReservationPhase.AVAILABLE if node else ReservationPhase.PENDING
    status = ReservationState(phase=phase, node=node, allocatable=reserved if node else {})
    given = {"status": status, "owners": (labelled(app="web"),), "namespace": "default", **fields}
    return ReservationInfo(name, f"uid-{name}", waiting, **{"is_once": False, **given})


def account(name: str = "r", used: int = 0, **fields: Any) -> ReservationAccount:
    pods = fields.pop("pods", int(bool(used)))
    return ReservationAccount(make_reservation(name, **fields), {"cpu": used} if used else {}, pods)
