"""Cases in which reservations easily go wrong, one test each."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.builders import make_node
from tests.objects import remove_reservation, upsert_reservation
from tests.reservation.make import ALIGNED, RESTRICTED, make_reservation
from tests.reservation.test_planning import (
    cluster,
    other,
    plan,
    plan_queue,
    reasons,
    used,
    uses,
    web,
)

from koord.core.model.pods import Handling, HostPort, OwnerReference, PodPhase
from koord.core.reservation.lifecycle import deadline_of, expire, must_fail, succeed
from koord.core.reservation.matching import MatchOutcome, is_owner, judge
from koord.core.reservation.model import DAY, ReservationUse
from koord.core.reservation.plugin import Reservations
from koord.domains.registry import make_pod_translator
from koord.kube.translate.reservations import ReservationTranslator, read_reservation_hints
from koord.kube.wire import WireCustomResource, WirePod

if TYPE_CHECKING:
    from koord.core.reservation.model import ReservationInfo

PREFIX = "scheduling.koordinator.sh/"


def translate(meta: Any = None, status: Any = None, **spec: Any) -> ReservationInfo:
    given = {"owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}], "template": {}, **spec}
    body = {"metadata": {"name": "r", "uid": "r", **(meta or {})}, "spec": given, "status": status}
    wire = msgspec.json.decode(json.dumps(body), type=WireCustomResource)
    return ReservationTranslator().translate(wire)


def test_a_ttl_of_0_disables_expiry_even_if_expires_is_over() -> None:
    translated = translate(ttl="0s", expires="2001-01-01T00:00:00Z")
    assert translated.problems == ()
    assert deadline_of(translated) is None
    assert not must_fail(translated, (), 1e10)


def test_expires_does_not_lengthen_the_default_ttl() -> None:
    translated = translate(
        {"creationTimestamp": "2026-01-01T00:00:00Z"}, expires="2030-01-01T00:00:00Z"
    )
    assert translated.problems == ()
    assert deadline_of(translated) == translated.created + DAY


def test_an_empty_owner_is_nobody_and_an_empty_selector_every_pod_of_the_namespace() -> None:
    status = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": "1"}}
    template = {"metadata": {"namespace": "default"}}
    pod = web("p").build()
    empty = translate(status=status, template=template, owners=[{}])
    assert [field for field, _ in empty.problems] == ["spec.owners[0]"]
    assert not empty.is_matchable(0)
    translated = translate(status=status, template=template, owners=[{"labelSelector": {}}])
    assert translated.is_matchable(0)
    assert is_owner(pod, translated.owners, translated.namespace)
    assert not is_owner(replace(pod, namespace="other"), translated.owners, translated.namespace)


def test_a_controller_may_be_named_by_name_and_namespace_alone() -> None:
    translated = translate(owners=[{"controller": {"name": "web", "namespace": "team"}}])
    assert translated.problems == ()
    reference = OwnerReference("web", "ReplicaSet", "apps/v1", "u", True)
    pod = replace(web("p").build(), namespace="team", owners=(reference,))
    assert is_owner(pod, translated.owners, translated.namespace)
    assert not is_owner(replace(pod, namespace="default"), translated.owners, translated.namespace)


def test_a_reservation_that_shrinks_below_its_use_holds_nothing_and_evicts_nobody() -> None:
    reservation = make_reservation(cpu=8000)
    made = cluster(reservation)
    plan(made, web("a", 6000))
    status = replace(reservation.status, allocatable={"cpu": 4000})
    upsert_reservation(made.state, replace(reservation, status=status))
    assert used(made) == 6000
    assert plan(made, other("x", 4000)) == {"x": "-"}
    assert made.pod("a").is_alive


def test_more_is_kept_from_owners_than_is_left() -> None:
    made = cluster(make_reservation(cpu=8000, inner={"cpu": 6000}, policy=RESTRICTED))
    assert plan(made, web("a", 2000)) == {"a": "r"}
    assert plan(made, web("b", 1000, has_affinity=True)) == {}
    assert used(made) == 8000, "the inner part stays held"


def test_no_more_pods_than_are_reserved() -> None:
    made = cluster(make_reservation(reserved={"cpu": 8000, "pods": 2}, policy=RESTRICTED))
    pods = [web(name, 1000, has_affinity=True) for name in "abc"]
    assert plan(made, *pods) == {"a": "r", "b": "r"}
    made.delete_pods("a")
    assert plan(made, pods[2]) == {"c": "r"}


def test_options_that_name_nothing_reserved_restrict_all_of_it() -> None:
    reservation = make_reservation(cpu=2000, policy=RESTRICTED, options=("memory",))
    made = cluster(reservation)
    assert plan(made, web("a", 4000, has_affinity=True)) == {}
    assert plan(made, web("b", 2000, has_affinity=True)) == {"b": "r"}


def test_a_pod_that_names_a_waiting_reservation_starts_when_that_has_a_node() -> None:
    made = cluster(make_reservation(node=""))
    made.pods(web("w", has_affinity=True, name="r"))
    assert "0/0 reservations are available" in reasons(made)
    upsert_reservation(made.state, make_reservation())
    assert uses(plan_queue(made)) == {"w": "r"}


OVER = make_reservation().status


@pytest.mark.parametrize("wishes", [{"name": "r"}, {}], ids=["by name", "by labels"])
@pytest.mark.parametrize(
    ("fields", "text", "is_over"),
    [
        (
            {"status": succeed(OVER), "is_once": True},
            "is over: it was for one pod (allocateOnce), which has used it",
            True,
        ),
        ({"status": expire(OVER, message="its time is over")}, "is over: its time is over", True),
        ({"status": expire(OVER)}, "is over: Expired", True),
        ({"node": ""}, "waits for a node itself", False),
        ({"problems": (("spec.owners", "is empty"),)}, "is invalid: spec.owners is empty", False),
    ],
)
def test_a_reservation_that_serves_nobody_is_named_with_its_cause(
    fields: dict[str, Any], text: str, wishes: dict[str, str], *, is_over: bool
) -> None:
    made = cluster(make_reservation(**fields))
    made.pods(web("w", has_affinity=True, **wishes))
    (reason,) = (refusal.reason for refusal in plan_queue(made).refusals)
    assert reason.text().endswith(f"Reservation r {text}.")
    assert any("Create r again" in advice for advice in reason.advice()) is is_over


def test_a_reservation_for_one_pod_says_that_it_has_it() -> None:
    made = cluster(make_reservation(is_once=True))
    assert plan(made, web("a", 1000)) == {"a": "r"}
    made.pods(web("w", has_affinity=True))
    (reason,) = (refusal.reason for refusal in plan_queue(made).refusals)
    assert "Reservation r is for one pod (allocateOnce), which uses it." in reason.text()


def test_what_a_pod_may_not_use_or_does_not_mean_is_not_told() -> None:
    over = expire(OVER)
    made = cluster(
        make_reservation("theirs", status=over, namespace="other"),
        make_reservation("another", status=over),
    )
    made.pods(web("w", has_affinity=True, name="theirs"))
    (reason,) = (refusal.reason for refusal in plan_queue(made).refusals)
    assert reason.text().endswith("There is no reservation theirs for default/w.")


def test_after_a_restart_a_record_of_a_deleted_reservation_makes_no_owner() -> None:
    bound = replace(web("a").build(), node="n1", allocations=(ReservationUse("a", "r", "gone"),))
    made = cluster(make_reservation(cpu=6000))
    made.pods(replace(bound, handling=Handling.BIND))
    assert used(made) == 10000, "it is an ordinary pod beside the reservation of that name"
    assert made.state.plugin(Reservations).users_of("uid-r") == []


def test_a_pod_that_succeeds_gives_its_part_back_at_once() -> None:
    made = cluster(make_reservation())
    plan(made, web("a"))
    pod = made.pod("a")
    made.pods(replace(pod, phase=PodPhase.SUCCEEDED, node="n1"))
    assert used(made) == 8000
    assert plan(made, web("b", 8000)) == {"b": "r"}


def test_a_reservation_is_deleted_between_release_and_binding() -> None:
    made = cluster(make_reservation())
    plan(made, web("a"))
    remove_reservation(made.state, make_reservation())
    assert used(made) == 4000
    assert plan(made, other("x", 6000)) == {"x": "-"}
    bound = replace(made.pod("a"), node="n1")
    made.pods(bound)
    assert used(made) == 10000


@pytest.mark.parametrize("is_deleted", [True, False])
def test_another_node_of_the_same_name_brings_nothing_back(*, is_deleted: bool) -> None:
    reservation = make_reservation()
    made = cluster(reservation)
    if is_deleted:
        made.state.remove_node("n1")
    made.nodes(replace(make_node("n1").cpu(10000).build(), uid="another"))
    plugin = made.state.plugin(Reservations)
    assert plugin.homeless == {reservation.uid}
    upsert_reservation(made.state, replace(reservation, status=expire(reservation.status)))
    assert used(made) == 0
    assert plan(made, web("a")) == {"a": "-"}


def test_two_owners_want_the_last_part_in_one_batch() -> None:
    made = cluster(make_reservation(cpu=4000, policy=RESTRICTED), cpu=4000)
    assert plan(made, web("a"), web("b")) == {"a": "r"}


def test_a_pod_that_ignores_reservations_is_an_ordinary_pod() -> None:
    """It would take what is held for others, and anybody could say so."""
    made = cluster(make_reservation(cpu=8000))
    assert plan(made, web("a", 4000, is_ignoring=True)) == {}
    assert plan(made, web("b", 2000, is_ignoring=True)) == {"b": "-"}


@pytest.mark.parametrize(("text", "order"), [("0", 0), ("-3", -3), ("first", 0), ("", 0)])
def test_order_labels(text: str, order: int) -> None:
    translated = translate({"labels": {f"{PREFIX}reservation-order": text}})
    assert (translated.order, translated.problems) == (order, ())


def test_policies_conflict_only_with_reservations_that_pods_may_use() -> None:
    ended = make_reservation("a", cpu=1000, policy=ALIGNED)
    ended = replace(ended, status=succeed(ended.status))
    made = cluster(ended, make_reservation("b", node="", cpu=1000))
    assert len(plan_queue(made).placements) == 1


def test_a_pod_that_was_given_a_reservation_stays_in_it_when_it_is_cordoned() -> None:
    made = cluster(make_reservation())
    plan(made, web("a"))
    upsert_reservation(made.state, make_reservation(is_unschedulable=True))
    assert used(made) == 8000
    made.pods(replace(made.pod("a"), node="n1"))
    assert used(made) == 8000
    assert plan(made, web("b", 2000)) == {"b": "-"}


def test_exact_match_compares_amounts_not_texts() -> None:
    exact = {f"{PREFIX}exact-match-reservation": json.dumps({"resourceNames": ["cpu"]})}
    manifest = {
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000m"}}}]},
    }
    pod = make_pod_translator().translate(msgspec.json.decode(json.dumps(manifest), type=WirePod))
    status = {"phase": "Available", "nodeName": "n", "allocatable": {"cpu": "1"}}
    template = {"metadata": {"namespace": "default"}}
    translated = translate(status=status, template=template)
    wishes = read_reservation_hints(exact, {})
    assert judge(pod, wishes, translated, {}) is MatchOutcome.MATCHED


def test_exact_match_of_what_is_no_json_keeps_the_pod_waiting() -> None:
    wishes = read_reservation_hints(
        {f"{PREFIX}exact-match-reservation": '{"resourceNames":{"cpu","memory"}}'}, {}
    )
    ((field, problem),) = wishes.problems
    assert field == f"metadata.annotations[{PREFIX}exact-match-reservation]"
    assert "is not JSON" in problem


def test_exact_match_of_a_resource_that_no_node_has_names_it() -> None:
    made = cluster(make_reservation())
    made.pods(web("w", exact=("cpu", "example.com/none")))
    text = f"{PREFIX}exact-match-reservation].resourceNames[1] must name a resource that a node has"
    assert f"{text}: example.com/none" in reasons(made)


def with_port(port: int, **fields: Any) -> ReservationInfo:
    reservation = make_reservation(**fields)
    assert reservation.pod is not None
    shape = replace(reservation.pod.shape, host_ports=(HostPort(port),))
    return replace(reservation, pod=replace(reservation.pod, shape=shape))


def test_a_reserved_host_port_is_for_owners() -> None:
    made = cluster(with_port(80, cpu=4000))
    assert plan(made, other("x", 1000).host_port(80)) == {}
    assert plan(made, other("y", 1000).host_port(81)) == {"y": "-"}
    assert plan(made, web("a", 1000).host_port(80)) == {"a": "r"}
    assert plan(made, web("b", 1000).host_port(80)) == {}, "one pod has it already"
    made.delete_pods("a")
    assert plan(made, other("x", 1000).host_port(80)) == {}
    assert plan(made, web("b", 1000).host_port(80)) == {"b": "r"}


def test_owners_in_one_cycle_get_a_reserved_port_once() -> None:
    made = cluster(with_port(80, cpu=4000))
    assert plan(made, web("a", 1000).host_port(80), web("b", 1000).host_port(80)) == {"a": "r"}
    assert plan(made, web("c", 1000)) == {"c": "r"}


def test_a_port_of_another_reservation_is_not_taken() -> None:
    made = cluster(make_reservation("a", cpu=2000), with_port(80, name="b", cpu=2000))
    for name in "pq":
        assert set(plan(made, web(name, 1000).host_port(80)).values()) <= {"b"}


def test_problems_of_a_reservation_name_field_and_value() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "In"}]}
    translated = translate(owners=[{"labelSelector": selector}])
    ((field, _),) = translated.problems
    assert field == "spec.owners[0].labelSelector.matchExpressions[0].values"
    assert not translated.is_matchable(0)
    (field, problem), *_ = translate(ttl="-5s").problems
    assert field == "spec.ttl"
    assert "duration" in problem
    bad = {f"{PREFIX}reservation-restricted-options": "["}
    ((field, _),) = translate({"annotations": bad}).problems
    assert "reservation-restricted-options" in field


def test_what_a_reservation_holds_is_what_was_written_when_its_template_is_edited() -> None:
    reservation = make_reservation(cpu=8000)
    made = cluster(reservation)
    upsert_reservation(made.state, replace(make_reservation(cpu=2000), status=reservation.status))
    assert used(made) == 8000
