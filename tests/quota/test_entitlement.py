"""Who uses what a waiting unit's quota is entitled to.

Eight nodes with 64 GPUs each. ``a`` (min 256) uses all 512 with the gang ``hog``, and ``b`` (min
256) asks for 64.
"""

from dataclasses import replace

import pytest
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cluster import make_cluster, plan_once
from tests.objects import upsert_pod_group, upsert_quota

from koord.answers.explain import explain_gang
from koord.answers.quota_simulation import simulate_gang
from koord.answers.reason_context import ContextFinder
from koord.core.engine.queue import find_pending
from koord.core.engine.reasons import InsufficientNodes
from koord.core.engine.scoring import Scoring
from koord.core.engine.state import ClusterState
from koord.core.quota.entitlement import UNKNOWN, ReclaimSetting

OFF = ReclaimSetting(is_known=True)
ON = ReclaimSetting(is_known=True, after=30.0)


def make_state(*, asks: bool = True) -> ClusterState:
    state = make_cluster().state
    for at in range(8):
        state.upsert_node(make_node(f"n{at}").gpu(64).build())
    for name in "ab":
        upsert_quota(state, make_quota(name, namespace="q", min={GPU: 256}, max={GPU: 512}))
    upsert_pod_group(state, make_pod_group("t/hog", min_member=8).build())
    for at in range(8):
        pod = make_pod(f"hog-{at}").gpu(64).quota("a").gang("t/hog").running(f"n{at}").build()
        state.upsert_pod(replace(pod, namespace="t"))
    if asks:
        upsert_pod_group(state, make_pod_group("default/mine", min_member=2).build())
        for at in range(2):
            state.upsert_pod(make_pod(f"mine-{at}").gpu(32).quota("b").gang("default/mine").build())
    return state


def explain(state: ClusterState, reclaim: ReclaimSetting = UNKNOWN):
    reason = explain_gang(state, "default/mine", Scoring(), reclaim).reason
    assert reason is not None
    return reason


def test_it_names_the_quota_the_amount_and_the_gang() -> None:
    text = explain(make_state()).text()
    assert text.startswith(
        f"Quota b is guaranteed 256 {GPU} and uses 0. "
        "Quota a uses 64 more than its share (gang t/hog)."
    )


@pytest.mark.parametrize(
    ("reclaim", "says"),
    [
        (OFF, "Reclaim is off (elasticQuota.reclaim)."),
        (ON, "Reclaim acts after 30 s of over-use."),
        (replace(ON, since={"a": 100.0}, now=106.0), "Reclaim starts in 24 s."),
        (replace(ON, since={"a": 100.0}, now=200.0), "Reclaim is due."),
    ],
)
def test_it_says_whether_and_when_over_use_is_reclaimed(reclaim: ReclaimSetting, says: str) -> None:
    reason = explain(make_state(), reclaim)
    assert says in reason.text()
    assert not any("Add " in sentence for sentence in reason.advice())
    assert any("gang t/hog" in sentence for sentence in reason.advice())


def evict(state: ClusterState, *names: str) -> None:
    for name in names:
        pod = state.pod_by_key(f"t/{name}")
        assert pod is not None
        state.upsert_pod(replace(pod, is_reclaimed=True, is_terminating=True, gone_by=100.0))


def test_it_names_evicted_pods_that_still_terminate() -> None:
    state = make_state()
    claims = ContextFinder(state, replace(ON, since={"a": 100.0}, now=200.0))
    unit, bare = find_pending(state)[0], replace(explain(state), context=None)
    assert "Reclaim is due, if that makes room for it." in claims.add(unit, bare).text()
    evict(state, *(f"hog-{at}" for at in range(4)))
    reason = claims.add(unit, bare)
    assert (
        "Reclaim is under way: 4 evicted pods still terminate (t/hog-0, t/hog-1, t/hog-2 and 1 "
        "more)." in reason.text()
    )
    assert reason.advice() == ("Wait until the evicted pods are gone.",)
    evict(state, "hog-4")
    assert "5 evicted pods still terminate" in claims.add(unit, bare).text()


def test_nothing_is_promised_to_what_no_node_could_take_even_if_empty() -> None:
    state = make_state(asks=False)
    state.upsert_pod(make_pod("huge").gpu(65).quota("b").build())
    (unit,) = find_pending(state)
    (refusal,) = plan_once(state, [unit]).refusals
    text = ContextFinder(state, ON).add(unit, refusal.reason).text()
    assert "What can be reclaimed does not make room for it." in text
    assert "Reclaim acts" not in text


def test_a_question_what_if_gets_the_same_answer() -> None:
    text = simulate_gang(make_state(asks=False), "b", {GPU: 64}, 1, OFF).reason.text()
    assert "Quota a uses 64 more than its share (gang t/hog). Reclaim is off" in text


def test_who_asks_for_more_than_its_entitlement_has_no_claim() -> None:
    state = make_state(asks=False)
    reason = simulate_gang(state, "b", {GPU: 64}, 5, OFF).reason
    assert reason.context is None


def test_over_use_is_not_named_where_something_else_is_in_the_way() -> None:
    state = make_state(asks=False)
    upsert_pod_group(state, make_pod_group("default/mine", min_member=1).build())
    pod = make_pod("mine-0").gpu(32).quota("b").gang("default/mine").select("zone", "nowhere")
    state.upsert_pod(pod.build())
    reason = explain(state)
    assert isinstance(reason, InsufficientNodes)
    assert reason.context is None


def test_claims_follow_changes_of_quotas() -> None:
    state = make_state()
    claims = ContextFinder(state, OFF)
    bare = replace(explain(state), context=None)
    unit = find_pending(state)[0]
    assert claims.add(unit, bare).context is not None
    for pod in [pod for pod in state.pods.values() if pod.node]:
        state.remove_pod(pod.uid)
    assert claims.add(unit, bare).context is None
