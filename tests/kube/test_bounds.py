"""What users may write without limit costs a bounded amount, and only their own pods wait."""

from typing import Any

import msgspec
import pytest
from tests.cluster import make_cluster, make_unit
from tests.support.plan_keys import make_keys

from koord.api.keys import operators
from koord.caches import BoundedCache, cached_by_text
from koord.core.model.object_size import MOST_TO_PLAN
from koord.core.model.plan import Assignment, Placement
from koord.core.model.pods import ExceededLimit, Pod
from koord.core.model.reasons import TooLarge
from koord.domains.registry import make_pod_translator
from koord.kube.release import decode_plan, encode_metadata
from koord.kube.wire import WirePod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def translate(spec: dict[str, Any], **meta: Any) -> Pod:
    spec = {"containers": [{"name": "c"}], "schedulerName": operators.SCHEDULER_NAME} | spec
    body = {"metadata": {"name": "p", "namespace": "ns", "uid": "u", **meta}, "spec": spec}
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    return make_pod_translator().translate(wire)


def term(app: str) -> dict[str, Any]:
    return {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}


def apart(count: int) -> dict[str, Any]:
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term(f"a{at}") for at in range(count)]}}}


def weighed(count: int) -> dict[str, Any]:
    terms = [{"weight": 1, "podAffinityTerm": term(f"a{at}")} for at in range(count)]
    return {"affinity": {"podAffinity": {PREFERRED: terms}}}


def spread(count: int) -> dict[str, Any]:
    one = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [{**one, "minDomains": at + 1} for at in range(count)]}


def on_nodes(count: int) -> dict[str, Any]:
    needs = [{"key": f"k{at}", "operator": "Exists"} for at in range(count)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": needs}]}
    return {"affinity": {"nodeAffinity": {REQUIRED: terms}}}


def tolerating(count: int) -> dict[str, Any]:
    return {"tolerations": [{"key": f"k{at}", "operator": "Exists"} for at in range(count)]}


def with_ports(count: int) -> dict[str, Any]:
    ports = [{"hostPort": 1000 + at, "containerPort": 80} for at in range(count)]
    return {"containers": [{"name": "c", "ports": ports}]}


def with_containers(count: int) -> dict[str, Any]:
    return {"containers": [{"name": f"c{at}"} for at in range(count)]}


def requesting(count: int) -> dict[str, Any]:
    requests = {f"example.com/r{at}": "1" for at in range(count)}
    return {"containers": [{"name": "c", "resources": {"requests": requests}}]}


def with_volumes(count: int) -> dict[str, Any]:
    claim = {"persistentVolumeClaim": {"claimName": "data"}}
    return {"volumes": [{"name": f"v{at}", **claim} for at in range(count)]}


def gated(count: int) -> dict[str, Any]:
    return {"schedulingGates": [{"name": f"example.com/g{at}"} for at in range(count)]}


@pytest.mark.parametrize(
    ("make", "most", "what"),
    [
        (apart, 64, "terms of pod affinity and anti-affinity"),
        (weighed, 64, "terms of pod affinity and anti-affinity"),
        (spread, 64, "topology spread constraints"),
        (on_nodes, 256, "requirements in selectors and affinity"),
        (tolerating, 256, "tolerations"),
        (with_ports, 256, "host ports"),
        (with_containers, 256, "containers"),
        (requesting, 63, "requested resources"),
        (with_volumes, 256, "volumes"),
        (gated, 256, "scheduling gates"),
    ],
)
def test_a_pod_with_too_much_waits_and_keeps_no_rules(make: Any, most: int, what: str) -> None:
    assert translate(make(most)).exceeded_limit is None
    pod = translate(make(most + 1))
    assert pod.exceeded_limit is not None
    assert (pod.exceeded_limit.what, pod.exceeded_limit.count - pod.exceeded_limit.most) == (
        what,
        1,
    )
    assert pod.shape.constraints is None
    assert (pod.shape.terms, pod.shape.tolerations, pod.shape.host_ports) == (None, (), ())
    assert not pod.claims
    (refusal,) = make_cluster(1).plan(make_unit("p", [pod])).refusals
    assert isinstance(refusal.reason, TooLarge)
    assert (
        f"{pod.exceeded_limit.count} {what}, more than the {pod.exceeded_limit.most}"
        in refusal.reason.text()
    )


def test_a_pod_whose_plan_would_not_fit_waits_and_nobody_goes_for_it() -> None:
    fits = {"x": "x" * (MOST_TO_PLAN - 1)}
    assert translate({}, annotations=fits).exceeded_limit is None
    full = {"x": "x" * MOST_TO_PLAN}
    assert translate({}, annotations=full).exceeded_limit == ExceededLimit(
        "bytes of annotations", MOST_TO_PLAN + 1, MOST_TO_PLAN
    )
    bound = translate({"nodeName": "n"}, annotations=full)
    assert bound.exceeded_limit is None, "its owner cannot take its rules away from others"


def test_long_rules_are_not_parsed_and_requests_count_all_the_same() -> None:
    values = [f"node-{at}" for at in range(10_000)]
    needs = [{"key": "name", "operator": "In", "values": values}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": needs}]}
    requests = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    pod = translate({"affinity": {"nodeAffinity": {REQUIRED: terms}}, **requests}, name="p")
    assert pod.exceeded_limit is not None
    assert pod.exceeded_limit.most == 64 * 1024 < pod.exceeded_limit.count
    assert dict(pod.shape.requests) == {"cpu": 2000, "pods": 1}


def test_labels_and_owners_beyond_the_bound_are_not_kept() -> None:
    labels = {f"k{at}": "v" for at in range(257)}
    owners = [{"kind": "Job", "name": f"j{at}", "uid": f"{at}"} for at in range(1000)]
    pod = translate({}, labels=labels, ownerReferences=owners)
    assert pod.exceeded_limit is not None
    assert (len(pod.profile.labels), len(pod.owners)) == (0, 256)


def test_memory_does_not_grow_with_distinct_pods() -> None:
    """A tenant may create and delete pods with new rules all day."""
    translator, wire = make_pod_translator(), msgspec.json.Decoder(WirePod)
    rules = msgspec.json.encode(apart(64)).decode()
    most = 0
    for at in range(1000):
        text = rules.replace(':"a', f':"{at}-{"x" * 100}-')
        pod = wire.decode(f'{{"metadata": {{"uid": "u{at}"}}, "spec": {text}}}')
        translator.forget(translator.translate(pod))
        most = max(most, len(translator._shapes._known))
    assert 10 < most < 400


def test_a_cache_holds_at_most_its_bytes() -> None:
    cache: BoundedCache[int, str] = BoundedCache(1 << 20)
    for at in range(10_000):
        cache.keep(at, "x", 1000)
        assert at in cache
        assert len(cache) * 1256 <= 1 << 20
    assert cache.keep(-1, "large", 1 << 20) == "large"
    assert -1 not in cache
    assert len(cache) > 1, "it has displaced nothing"


def test_equal_texts_are_parsed_once() -> None:
    seen: list[str] = []

    @cached_by_text()
    def parse(text: str, more: str) -> int:
        seen.append(text)
        return len(text + more)

    assert [parse("a", "b"), parse("a", "b"), parse("a", "c")] == [2, 2, 2]
    assert seen == ["a", "a"]


def test_whatever_plan_the_server_accepts_can_be_read_back() -> None:
    group = ",".join(f'ns/gang-"{at:050}"' for at in range(900))
    pod = translate({})
    placement = Placement("u", "plan", group, (Assignment(pod, "n0"),))
    written = encode_metadata(placement.assignments[0], placement, make_keys(), 0).annotations
    recorded = decode_plan(written[operators.PLAN])
    assert recorded is not None
    assert recorded.group == group
