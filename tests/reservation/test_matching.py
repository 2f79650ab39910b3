"""Who may use a reservation: each rule once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_pod
from tests.reservation.make import make_reservation, named

from koord.core.model.nodes import Taint
from koord.core.model.pods import OwnerReference, Toleration
from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm
from koord.core.reservation.matching import MatchOutcome, is_owner, judge
from koord.core.reservation.model import NO_HINTS, ControllerOwner, Owner, ReservationHints

WEB = make_pod("a").requests(cpu=1000).labels(app="web").build()
POOL = Taint("pool", "train")
TOLERATES = (Toleration("pool", "Equal", "train", "NoSchedule"),)


def verdict(wishes: ReservationHints = NO_HINTS, **fields: object) -> MatchOutcome:
    return judge(WEB, wishes, make_reservation(**fields), {"zone": "a"})


def test_selectors_of_owners_count_in_the_namespace_of_the_reservation() -> None:
    assert verdict() is MatchOutcome.MATCHED
    assert verdict(namespace="other") is MatchOutcome.OWNERS
    elsewhere = judge(WEB, NO_HINTS, make_reservation(namespace="other"), {}, every_namespace=True)
    assert elsewhere is MatchOutcome.MATCHED


def test_an_owner_without_any_field_is_every_pod() -> None:
    assert is_owner(WEB, [Owner()], "default")


def test_a_controller_is_matched_by_the_fields_that_are_set() -> None:
    owner = Owner(controller=ControllerOwner("web", "default"))
    pod = replace(WEB, owners=(OwnerReference("web", "ReplicaSet", "apps/v1", "u1", True),))
    assert is_owner(pod, [owner], "")
    assert not is_owner(WEB, [owner], "")
    assert not is_owner(replace(pod, namespace="x"), [owner], "")


def test_a_pod_is_matched_by_name_and_namespace() -> None:
    assert is_owner(WEB, [named("a", "default")], "")
    assert not is_owner(WEB, [named("a", "other")], "")


def test_without_a_namespace_names_and_controllers_count_in_that_of_the_reservation() -> None:
    pod = replace(WEB, owners=(OwnerReference("web"),))
    for owner in (named("a"), Owner(controller=ControllerOwner("web"))):
        assert is_owner(pod, [owner], "default")
        assert not is_owner(pod, [owner], "other")


@pytest.mark.parametrize("wishes", [NO_HINTS, ReservationHints(has_affinity=True)])
def test_taints_keep_pods_out_with_and_without_affinity(wishes: ReservationHints) -> None:
    assert verdict(wishes, taints=(POOL,)) is MatchOutcome.TAINTS
    assert verdict(replace(wishes, tolerations=TOLERATES), taints=(POOL,)) is MatchOutcome.MATCHED
    assert verdict(wishes, taints=(replace(POOL, effect="PreferNoSchedule"),)).may_use


def test_a_cordoned_reservation_takes_only_pods_that_name_or_tolerate_it() -> None:
    assert verdict(is_unschedulable=True) is MatchOutcome.UNSCHEDULABLE
    assert verdict(ReservationHints(has_affinity=True, name="r"), is_unschedulable=True).may_use
    tolerates = (Toleration("node.kubernetes.io/unschedulable", "Exists"),)
    assert verdict(ReservationHints(tolerations=tolerates), is_unschedulable=True).may_use


def test_a_name_must_be_the_name() -> None:
    assert verdict(ReservationHints(has_affinity=True, name="other")) is MatchOutcome.NAME


def test_terms_see_labels_of_the_node_under_those_of_the_reservation() -> None:
    terms = (SelectorTerm((Requirement("zone", SelectorOperator.IN, ("a",)),)),)
    assert verdict(ReservationHints(has_affinity=True, terms=terms)).may_use
    moved = verdict(ReservationHints(has_affinity=True, terms=terms), labels={"zone": "b"})
    assert moved is MatchOutcome.AFFINITY
    assert (
        verdict(ReservationHints(has_affinity=True, selector=(("zone", "b"),)))
        is MatchOutcome.AFFINITY
    )


def test_exact_resources_are_compared_all_even_if_the_first_is_absent_on_both() -> None:
    assert verdict(ReservationHints(exact=("example.com/x",))).may_use
    assert verdict(ReservationHints(exact=("example.com/x", "cpu"))) is MatchOutcome.EXACT
    assert verdict(ReservationHints(exact=("cpu",)), cpu=1000).may_use


def test_a_pod_that_ignores_reservations_owns_none() -> None:
    assert verdict(ReservationHints(is_ignoring=True), namespace="other") is MatchOutcome.IGNORED
