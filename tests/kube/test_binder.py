"""The outcomes of releasing and binding, on a real API server."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.kube.conftest import Pods, place
from tests.support.plan_keys import make_keys

from koord.api.keys import gang, operators
from koord.core.gang.start import make_start_id
from koord.core.model.object_size import MOST_ANNOTATIONS, count_annotations
from koord.core.model.plan import Placement
from koord.core.model.pods import Handling, Pod, RecordedPlan
from koord.kube.binder import Binder
from koord.kube.client import Client, Media
from koord.kube.errors import (
    ConnectionLost,
    Forbidden,
    ServerUnavailable,
    TooManyRequests,
    error_of,
)
from koord.kube.outcomes import (
    BoundElsewhere,
    Done,
    Oversized,
    PodGone,
    Refused,
    StillGated,
    Unknown,
)
from koord.kube.wire import WireStatus

NODE = "node-a"
TOO_LARGE = 'Operation cannot be fulfilled on pods/binding "x": etcdserver: request is too large'
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def binder(client: Client, pods: Pods) -> Binder:
    return Binder(client, pods.translator.form_of, make_keys())


def only(placement: Placement) -> tuple[Any, Placement]:
    return placement.assignments[0], placement


async def test_release_removes_the_gate_and_records_the_plan(pods: Pods, binder: Binder) -> None:
    pod = await pods.create(meta={"annotations": {"mine": "stays"}})
    assert await binder.release(*only(place((pod, NODE)))) == Done()
    after = await pods.translate(pod.name)
    assert not after.is_gated
    assert after.handling is Handling.BIND
    assert after.recorded == RecordedPlan(NODE, "plan-1", "", 1, is_non_preemptible=False)
    stored = await pods.read(pod)
    assert stored["metadata"]["annotations"]["mine"] == "stays"
    assert "affinity" not in stored["spec"]


async def test_a_pod_of_which_its_scheduler_chooses_the_node_is_not_pinned(
    pods: Pods, binder: Binder
) -> None:
    pod = await pods.create(schedulerName="default-scheduler")
    assert pod.handling is Handling.RELEASE_PINNED
    assignment, placement = only(place((pod, NODE)))
    left = replace(assignment, is_open=True)
    assert await binder.release(left, placement) == Done()
    assert "affinity" not in (await pods.read(pod))["spec"]
    after = await pods.translate(pod.name)
    assert (after.recorded, after.pinned) == (
        RecordedPlan("", "plan-1", "", 1, is_non_preemptible=False),
        False,
    )
    assert after.handling is Handling.NOT_OURS
    assert await binder.release(left, placement) == Done(), "as when the answer was lost"
    assert await binder.release(assignment, placement) == PodGone()


@pytest.mark.parametrize("gates", [[{"name": operators.PLACEMENT_GATE}], []])
@pytest.mark.parametrize(("limit", "expected"), [(60, 60), (200, 100)])
async def test_a_pod_has_its_limit_before_it_is_bound(
    pods: Pods, binder: Binder, gates: list[dict[str, str]], limit: int, expected: int
) -> None:
    pod = await pods.create(schedulingGates=gates, activeDeadlineSeconds=100)
    placement = replace(place((pod, NODE)), time_limits={pod.uid: limit})
    if gates:
        assert await binder.release(*only(placement)) == Done()
        assert (await pods.read(pod))["spec"]["activeDeadlineSeconds"] == expected
    assert await binder.bind(*only(placement)) == Done()
    assert (await pods.read(pod))["spec"]["activeDeadlineSeconds"] == expected


async def test_a_limit_that_its_owner_has_lowered_meanwhile_stays(
    pods: Pods, binder: Binder
) -> None:
    pod = await pods.create()
    await pods.client.patch(
        f"{pods.path}/{pod.name}", {"spec": {"activeDeadlineSeconds": 30}}, Media.MERGE_PATCH
    )
    placement = replace(place((pod, NODE)), time_limits={pod.uid: 60})
    assert await binder.release(*only(placement)) == Done()
    assert (await pods.read(pod))["spec"]["activeDeadlineSeconds"] == 30


async def test_members_record_their_group(pods: Pods, binder: Binder) -> None:
    first, second = await pods.create(), await pods.create()
    placement = place((first, NODE), (second, NODE), group="ns/a,ns/b")
    assert await binder.release(placement.assignments[0], placement) == Done()
    annotations = (await pods.read(first))["metadata"]["annotations"]
    assert json.loads(annotations[operators.PLAN]) == {
        "node": NODE,
        "plan": "plan-1",
        "group": "ns/a,ns/b",
        "members": 2,
        "fixed": False,
        "youngest": int(max(first.created, second.created)),
        "start": make_start_id(placement.uids),
    }
    assert annotations[gang.BIND_GROUP_ID] == "ns/a,ns/b"
    assert annotations[gang.BIND_GROUP_ID_DEPRECATED] == "ns/a,ns/b"
    assert annotations[gang.BIND_MEMBER_COUNT] == "2"
    assert annotations[gang.BIND_MEMBER_COUNT_DEPRECATED] == "2"


PIN = {"key": "metadata.name", "operator": "In", "values": [NODE]}
ZONE = {"key": "zone", "operator": "Exists"}
NOT_Z = {"key": "metadata.name", "operator": "NotIn", "values": ["z"]}
PREFERRED = {
    "preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "preference": {"matchExpressions": [ZONE]}}
    ]
}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {REQUIRED: {"nodeSelectorTerms": list(terms)}}


PINS = {
    "no affinity": (None, [{"matchFields": [PIN]}]),
    "affinity without node affinity": ({"podAntiAffinity": {}}, [{"matchFields": [PIN]}]),
    "preferred only": ({"nodeAffinity": PREFERRED}, [{"matchFields": [PIN]}]),
    "one term": (
        {"nodeAffinity": required({"matchExpressions": [ZONE]})},
        [{"matchExpressions": [ZONE], "matchFields": [PIN]}],
    ),
    "fields already there": (
        {"nodeAffinity": required({"matchFields": [NOT_Z]})},
        [{"matchFields": [NOT_Z, PIN]}],
    ),
    "every term, but not the empty one": (
        {"nodeAffinity": required({"matchExpressions": [ZONE]}, {}, {"matchFields": [NOT_Z]})},
        [
            {"matchExpressions": [ZONE], "matchFields": [PIN]},
            {},
            {"matchFields": [NOT_Z, PIN]},
        ],
    ),
}


@pytest.mark.parametrize("name", PINS)
async def test_release_pins_pods_of_other_schedulers(pods: Pods, binder: Binder, name: str) -> None:
    affinity, expected = PINS[name]
    spec = {"affinity": affinity} if affinity is not None else {}
    pod = await pods.create(schedulerName="nobody", **spec)
    assert pod.handling is Handling.RELEASE_PINNED
    assert await binder.release(*only(place((pod, NODE)))) == Done()
    stored = (await pods.read(pod))["spec"]["affinity"]["nodeAffinity"]
    assert stored[REQUIRED]["nodeSelectorTerms"] == expected
    after = await pods.translate(pod.name)
    assert after.pinned
    # Repeated, as after a lost response.
    assert await binder.release(*only(place((pod, NODE)))) == Done()
    assert await binder.release(*only(place((pod, "node-b")))) == BoundElsewhere(NODE)
    assert await binder.bind(*only(place((pod, NODE)))) == Done()


async def test_bind_sets_node_and_annotations(pods: Pods, binder: Binder) -> None:
    pod = await pods.create(schedulingGates=[], meta={"annotations": {"mine": "stays"}})
    assert pod.handling is Handling.BIND
    assert await binder.bind(*only(place((pod, NODE)))) == Done()
    after = await pods.translate(pod.name)
    assert after.node == NODE
    assert after.recorded == RecordedPlan(NODE, "plan-1", "", 1, is_non_preemptible=False)
    assert (await pods.read(pod))["metadata"]["annotations"]["mine"] == "stays"


async def test_repeated_bind_is_done_and_another_node_is_bound_elsewhere(
    pods: Pods, binder: Binder
) -> None:
    pod = await pods.create(schedulingGates=[])
    assert await binder.bind(*only(place((pod, NODE)))) == Done()
    assert await binder.bind(*only(place((pod, NODE)))) == Done()
    assert await binder.bind(*only(place((pod, "node-b")))) == BoundElsewhere(NODE)
    assert await binder.release(*only(place((pod, NODE)))) == Done()
    assert await binder.release(*only(place((pod, "node-b")))) == BoundElsewhere(NODE)


async def test_binding_a_gated_pod_is_still_gated(pods: Pods, binder: Binder) -> None:
    pod = await pods.create()
    assert await binder.bind(*only(place((pod, NODE)))) == StillGated()
    assert (await pods.translate(pod.name)).node == ""


async def _deleted(pods: Pods, pod: Pod) -> Pod:
    await pods.delete(pod)
    return pod


async def _recreated(pods: Pods, pod: Pod) -> Pod:
    await pods.delete(pod)
    await pods.create(
        meta={"name": pod.name}, schedulingGates=[{"name": operators.PLACEMENT_GATE}] * pod.is_gated
    )
    return pod


async def _terminating(pods: Pods, pod: Pod) -> Pod:
    body = [{"op": "add", "path": "/metadata/finalizers", "value": ["test.example/stay"]}]
    await pods.client.request(
        "PATCH", f"{pods.path}/{pod.name}", body=body, media="application/json-patch+json"
    )
    await pods.delete(pod)
    return pod


@pytest.mark.parametrize("fate", [_deleted, _recreated, _terminating])
@pytest.mark.parametrize(
    "gates", [[{"name": operators.PLACEMENT_GATE}], []], ids=["release", "bind"]
)
async def test_gone(
    pods: Pods,
    binder: Binder,
    gates: list[dict[str, str]],
    fate: Callable[[Pods, Pod], Awaitable[Pod]],
) -> None:
    pod = await fate(pods, await pods.create(schedulingGates=gates))
    write = binder.release if gates else binder.bind
    if fate is _terminating and gates:
        # Releasing a pod on its way out is accepted by the server; its binding is not.
        assert await write(*only(place((pod, NODE)))) == Done()
        write = binder.bind
    assert await write(*only(place((pod, NODE)))) == PodGone()
    if fate is _terminating:
        await pods.client.request(
            "PATCH",
            f"{pods.path}/{pod.name}",
            body=[{"op": "remove", "path": "/metadata/finalizers"}],
            media="application/json-patch+json",
        )


async def test_fields_added_by_others_are_not_overwritten(pods: Pods, binder: Binder) -> None:
    pod = await pods.create(schedulerName="nobody")
    await pods.client.patch(
        f"{pods.path}/{pod.name}",
        {
            "metadata": {"annotations": {"late": "x"}},
            "spec": {"affinity": {"nodeAffinity": required({"matchExpressions": [ZONE]})}},
        },
        "application/merge-patch+json",
    )
    assert await binder.release(*only(place((pod, NODE)))) == Done()
    stored = await pods.read(pod)
    assert stored["metadata"]["annotations"]["late"] == "x"
    terms = stored["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert terms == [{"matchExpressions": [ZONE], "matchFields": [PIN]}]


async def test_pod_ungated_by_another_client_is_left_to_its_scheduler(
    pods: Pods, binder: Binder
) -> None:
    pod = await pods.create(schedulerName="nobody")
    body = {"spec": {"schedulingGates": None}}
    await pods.client.patch(f"{pods.path}/{pod.name}", body, "application/merge-patch+json")
    assert await binder.release(*only(place((pod, NODE)))) == PodGone()
    assert "annotations" not in (await pods.read(pod))["metadata"]


async def test_unknown_pod_is_read_first(pods: Pods, client: Client) -> None:
    pod = await pods.create(meta={"annotations": {"mine": "stays"}})
    assert (
        await Binder(client, lambda _: None, make_keys()).release(*only(place((pod, NODE))))
        == Done()
    )
    assert (await pods.read(pod))["metadata"]["annotations"]["mine"] == "stays"


async def test_invalid_patch_is_refused(pods: Pods, binder: Binder) -> None:
    pod = await pods.create(schedulerName="nobody")
    outcome = await binder.release(*only(place((pod, "not a node name"))))
    assert isinstance(outcome, Refused)
    assert outcome.status == 422
    assert (await pods.translate(pod.name)).is_gated


class Faulty(Client):
    """A client that fails before or after the request takes effect."""

    def __init__(self, inner: Client, *failures: Exception, is_carried_out: bool = False) -> None:
        super().__init__(inner.credentials)
        self._inner = inner
        self.failures = list(failures)
        self._is_carried_out = is_carried_out
        self.sent = 0

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        self.sent += 1
        if not self.failures or method == "GET":
            return await self._inner.request(method, path, **options)
        if self._is_carried_out:
            await self._inner.request(method, path, **options)
        raise self.failures.pop(0)


@pytest.mark.parametrize(
    "failure",
    [
        TooManyRequests(429, "TooManyRequests", "slow down", 0.1),
        ServerUnavailable(503, "ServiceUnavailable", "etcd leader lost"),
        ConnectionLost("refused", sent=False),
        ConnectionLost("reset", sent=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("is_carried_out", [False, True], ids=["lost", "carried out"])
async def test_transient_errors_are_retried(
    pods: Pods,
    client: Client,
    failure: Exception,
    is_carried_out: bool,  # noqa: FBT001
) -> None:
    pod = await pods.create()
    faulty = Faulty(client, failure, is_carried_out=is_carried_out)
    binder = Binder(faulty, pods.translator.form_of, make_keys())
    placement = place((pod, NODE))
    assert await binder.release(*only(placement)) == Done()
    faulty.failures = [failure]
    assert await binder.bind(*only(placement)) == Done()
    after = await pods.translate(pod.name)
    assert (after.node, after.recorded) == (
        NODE,
        RecordedPlan(NODE, "plan-1", "", 1, is_non_preemptible=False),
    )


async def test_outcome_is_unknown_after_the_patience(pods: Pods, client: Client) -> None:
    pod = await pods.create()
    faulty = Faulty(client, *[ConnectionLost("reset", sent=True)] * 100)
    binder = Binder(faulty, pods.translator.form_of, make_keys())
    place_it = only(place((pod, NODE)))
    assert await binder.release(*place_it, patience=0.5) == Unknown(0, "reset")
    assert faulty.sent > 1


async def test_server_failures_are_retried_only_briefly(
    pods: Pods, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a failing admission webhook: other writes must not wait for it."""
    monkeypatch.setattr("koord.kube.outcomes.PATIENCE_WITH_FAILURES_SECONDS", 0.5)
    pod = await pods.create()
    failed = ServerUnavailable(500, "InternalError", "failed calling webhook")
    faulty = Faulty(client, *[failed] * 100)
    binder = Binder(faulty, pods.translator.form_of, make_keys())
    assert await binder.release(*only(place((pod, NODE)))) == Unknown(500, failed.message)
    assert faulty.sent > 1
    busy = ServerUnavailable(503, "ServiceUnavailable", "etcd leader lost", 0.6)
    faulty.failures = [busy]
    assert await binder.release(*only(place((pod, NODE)))) == Done()


class Revoked(Faulty):
    """After the first failure every write is forbidden; ``reads`` more reads are, too."""

    def __init__(self, inner: Client, first: Exception, *, reads: int = 0) -> None:
        super().__init__(inner, first, is_carried_out=True)
        self._reads = reads

    async def request(self, method: str, path: str, **options: Any) -> bytes:
        if method == "GET" and self._reads:
            self._reads -= 1
        elif method == "GET" or self.failures:
            return await super().request(method, path, **options)
        raise Forbidden(403, "Forbidden", "denied")


@pytest.mark.parametrize("reads", [0, 2])
async def test_write_counts_as_done_if_rights_are_lost_after_a_lost_response(
    pods: Pods, client: Client, reads: int
) -> None:
    """The first attempt took effect, whatever the response to the second is."""
    lost = ConnectionLost("reset", sent=True)
    for scheduler in ("koord-scheduler", "nobody"):
        pod = await pods.create(schedulerName=scheduler)
        place_it = only(place((pod, NODE)))
        binder = Binder(Revoked(client, lost, reads=reads), pods.translator.form_of, make_keys())
        assert await binder.release(*place_it) == Done()
        binder = Binder(Revoked(client, lost, reads=reads), pods.translator.form_of, make_keys())
        assert await binder.bind(*place_it) == Done()


async def test_permanent_errors_are_refused_without_retry(pods: Pods, client: Client) -> None:
    pod = await pods.create()
    faulty = Faulty(client, Forbidden(403, "Forbidden", "no"))
    binder = Binder(faulty, pods.translator.form_of, make_keys())
    assert await binder.release(*only(place((pod, NODE)))) == Refused(403, "no")
    faulty.failures = [Forbidden(403, "Forbidden", "no")]
    free = await pods.create(schedulingGates=[])
    assert await binder.bind(*only(place((free, NODE)))) == Refused(403, "no")
    assert faulty.sent == 4, "each time one look shows that nothing came of it before"


async def test_a_pod_too_large_for_etcd_is_refused_without_retry(
    pods: Pods, client: Client
) -> None:
    """As the answer to a binding, which has the status of a conflict."""
    pod = await pods.create(schedulingGates=[])
    too_large = error_of(WireStatus(code=409, reason="Conflict", message=TOO_LARGE))
    faulty = Faulty(client, too_large)
    binder = Binder(faulty, pods.translator.form_of, make_keys())
    assert await binder.bind(*only(place((pod, NODE)))) == Refused(
        409, TOO_LARGE, is_too_large=True
    )
    assert faulty.sent == 2


async def test_nothing_is_bound_past_the_limit_of_annotations(
    pods: Pods, binder: Binder, client: Client
) -> None:
    """Of a binding the API server does not check it, and the pod could not be changed any more."""
    full = {"annotations": {"x": "x" * (MOST_ANNOTATIONS - 1)}}
    pod = await pods.create(schedulingGates=[], meta=full)
    outcome = await binder.bind(*only(place((pod, NODE))))
    assert isinstance(outcome, Oversized)
    assert outcome.size == MOST_ANNOTATIONS + outcome.add
    assert "nodeName" not in (await pods.read(pod))["spec"]
    assert await binder.release(*only(place((await pods.create(meta=full), NODE)))) == outcome

    less = {"metadata": {"annotations": {"x": "x" * (MOST_ANNOTATIONS - 1 - outcome.add)}}}
    await client.patch(f"{pods.path}/{pod.name}", less, Media.MERGE_PATCH)
    assert await binder.bind(*only(place((pod, NODE)))) == Done()
    annotations = (await pods.read(pod))["metadata"]["annotations"]
    assert count_annotations(annotations) == MOST_ANNOTATIONS


async def test_what_became_of_a_write_is_read(pods: Pods, binder: Binder) -> None:
    free = await pods.create(schedulingGates=[])
    gated = await pods.create()
    unknown = Unknown(500, "failed")
    for pod, read, write in (
        (free, binder.read_bind, binder.bind),
        (gated, binder.read_release, binder.release),
    ):
        assert await read(*only(place((pod, NODE))), unknown) == Refused(500, "failed")
        assert await write(*only(place((pod, NODE)))) == Done()
        assert await read(*only(place((pod, NODE))), unknown) == Done()


async def test_concurrency_is_bounded(client: Client, pods: Pods) -> None:
    running = peak = 0

    class Counting(Faulty):
        async def request(self, method: str, path: str, **options: Any) -> bytes:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            try:
                return await super().request(method, path, **options)
            finally:
                running -= 1

    made = [await pods.create() for _ in range(12)]
    binder = Binder(Counting(client), pods.translator.form_of, make_keys(), in_flight=3)
    placement = place(*[(pod, NODE) for pod in made])
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(binder.release(a, placement)) for a in placement.assignments]
    assert [task.result() for task in tasks] == [Done()] * 12
    assert peak == 3
