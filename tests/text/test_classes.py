"""The ten classes of reasons: which codes each has, who acts, and which comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from tests.builders import GPU, make_node, make_pod, make_quota
from tests.cluster import make_cluster

from koord.answers.conditions import list_conditions
from koord.answers.summary import find_dominant
from koord.answers.waiting import JobSuspended
from koord.core.model.reason_class import ReasonClass
from koord.core.model.reasons import REASONS, class_of

if TYPE_CHECKING:
    from tests.cluster import FakeCluster

list_conditions()  # of all domains
CODES: Final = {
    "Misconfigured": (
        "MissingPodGroup", "MissingGang", "InconsistentGroup", "InvalidAnnotation",
        "InvalidDeviceRequest", "QuotaUnknown", "QuotaIsParent", "QuotaNotAllowed",
        "MissingTopology", "UnknownLayer", "TooLarge", "InvalidReservation", "NoSuitableNode",
        "RequestAboveMax",
    ),
    "Incomplete": ("MissingMembers",),
    "Held": ("WaitingForForeignGate", JobSuspended.code, "Held"),
    "Quota": (
        "InsufficientEntitlement", "InsufficientMax", "AncestorInsufficient",
        "NonPreemptibleOverMin", "SubmissionExceeded", "QuotaCheckFailed",
    ),
    "Room": (
        "InsufficientNodes", "NoDomainFits", "MembersApart", "KeptForReplacements",
        "NoReservationFits",
    ),
    "Order": ("Planned",),
    "Ending": ("WaitsForTermination", "WaitingForPreemption"),
    "Writing": ("BindFailed", "NodeLocked"),
    "Elsewhere": ("NeedsKubeScheduler",),
    "Operators": ("TooExpensive", "SearchTooExpensive", "InternalError"),
}  # fmt: skip
PAIRS: Final = [(kind, code) for kind, codes in CODES.items() for code in codes]


@pytest.mark.parametrize(("kind", "code"), PAIRS)
def test_a_code_has_its_class(kind: str, code: str) -> None:
    assert code in REASONS
    assert class_of(code) == kind


def test_every_class_has_a_code() -> None:
    assert {str(class_of(code)) for code in REASONS} - {"None"} == set(map(str, ReasonClass))


def test_what_somebody_has_to_edit_is_said_first() -> None:
    """Then what is missing, what is held, and what ends by itself, before quotas and room."""
    order = ("Misconfigured", "Incomplete", "Held", "Writing", "Ending", "Quota", "Room", "Order")
    assert [str(each) for each in ReasonClass][: len(order)] == list(order)
    assert find_dominant(()) is None


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [(9, "NoSuitableNode"), (8, "InsufficientNodes"), (1, "InsufficientNodes")],
)
def test_what_no_node_takes_even_if_empty_waits_for_no_room(gpus: int, expected: str) -> None:
    cluster = make_cluster(2)
    cluster.pods(*(make_pod(f"runs-{at}").gpu(8).running(f"n{at}") for at in range(2)))
    cluster.pods(make_pod("p").gpu(gpus))
    assert code_of(cluster) == expected


def test_a_node_that_matches_and_is_too_small_is_none_that_is_large_enough() -> None:
    small = make_node("mine").gpu(2).label("pool", "a")
    pod = make_pod("p").gpu(4).select("pool", "a")
    assert code_of(make_cluster(2).nodes(small).pods(pod)) == "NoSuitableNode"
    closed = make_node("larger").gpu(4).label("pool", "a").unschedulable()
    assert code_of(make_cluster(2).nodes(small, closed).pods(pod)) == "InsufficientNodes"


def test_a_cluster_without_nodes_lacks_room() -> None:
    cluster = make_cluster().pods(make_pod("p").gpu(1))
    assert code_of(cluster) == "InsufficientNodes"


@pytest.mark.parametrize(
    ("gpus", "used", "expected"),
    [(9, 0, "RequestAboveMax"), (8, 1, "InsufficientMax"), (9, 8, "RequestAboveMax")],
)
def test_what_is_above_max_alone_waits_for_nobody(gpus: int, used: int, expected: str) -> None:
    cluster = make_cluster(4)
    cluster.quotas(make_quota("team", min={GPU: 0}, max={GPU: 8}))
    if used:
        cluster.pods(make_pod("runs").gpu(used).quota("team").running("n0"))
    cluster.nodes(make_node("large").gpu(16))
    cluster.pods(make_pod("p").gpu(gpus).quota("team"))
    assert code_of(cluster) == expected


def code_of(cluster: FakeCluster) -> str:
    cluster.step()
    return cluster.reason().code
