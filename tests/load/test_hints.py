"""What pods and nodes say about their load, read from their objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from koord.core.load.model import NAME, Aggregation, LoadHints, hints_of
from koord.core.load.options import Basis, LoadOptions, LoadThresholds, OwnLimits
from koord.core.model.koordinator_class import KoordinatorClass
from koord.domains.placement import NODES, PODS
from koord.domains.registry import make_translator_options
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.load_hints import read_own_limits
from koord.kube.wire import WireNode, WirePod

if TYPE_CHECKING:
    from koord.core.model.pods import Pod

PREFIX = "scheduling.koordinator.sh/"


def read_pod(resources: dict[str, Any] | None = None, *, is_on: bool = True, **parts: Any) -> Pod:
    options = make_translator_options(TranslatorOptions(), LoadOptions(is_on=is_on))
    container = {"name": "c", "resources": resources or {}}
    body = {
        "metadata": {"name": "p", "namespace": "a", "uid": "u", **parts.get("metadata", {})},
        "spec": {"containers": [container], **parts.get("spec", {})},
        "status": parts.get("status", {}),
    }
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WirePod)
    return PODS.make_translator(options).translate(wire)


def test_waiting_pod_says_nothing_if_its_requests_say_it_all() -> None:
    equal = {"cpu": "1", "memory": "1Gi"}
    assert read_pod({"requests": equal, "limits": equal}).extensions == ()
    assert read_pod({"requests": equal}).extensions == ()


def test_nothing_is_read_where_load_does_not_count() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    assert read_pod(resources, is_on=False).extensions == ()
    assert read_pod(resources).extensions != ()


def test_limits_above_requests_count_with_what_starts_before_and_the_overhead() -> None:
    pod = read_pod(
        {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
        spec={
            "overhead": {"cpu": "250m", "memory": "1Mi"},
            "initContainers": [
                {"name": "i", "resources": {"limits": {"cpu": "3", "memory": "1Gi"}}}
            ],
        },
    )
    assert hints_of(pod).limits == (("cpu", 3250), ("memory", (1 << 30) + (1 << 20)))


def test_class_comes_from_label_priority_and_quality_of_service() -> None:
    assert hints_of(read_pod()).koordinator_class is KoordinatorClass.BATCH
    prod = {"labels": {"koordinator.sh/priority-class": "koord-mid"}}
    assert hints_of(read_pod(metadata=prod)).koordinator_class is KoordinatorClass.MID
    assert hints_of(read_pod(spec={"priority": 3500})).koordinator_class is KoordinatorClass.FREE


def test_bound_pod_says_since_when_it_is_there() -> None:
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"},
        {"type": "Initialized", "status": "False", "lastTransitionTime": "1970-01-01T00:02:00Z"},
    ]
    requests = {"requests": {"cpu": "1"}}
    pod = read_pod(requests, spec={"nodeName": "n"}, status={"conditions": conditions})
    assert hints_of(pod) == LoadHints(scheduled=60.0)


@pytest.mark.parametrize(
    ("factors", "read"),
    [
        ('{"cpu":40,"memory":500,"x":-3}', (("cpu", 40), ("memory", 100), ("x", 0))),
        ('{"cpu":"40"}', ()),
        ("{", ()),
        ("", ()),
        (f'{{"{"x" * 5000}":1}}', ()),
    ],
)
def test_factors_are_cut_and_ignored_if_they_make_no_sense(
    factors: str, read: tuple[tuple[str, int], ...]
) -> None:
    metadata = {"annotations": {f"{PREFIX}load-estimated-scaling-factors": factors}}
    assert hints_of(read_pod(metadata=metadata)).factors == read


@pytest.mark.parametrize(("text", "read"), [("0", 0), ("60", 60), ("-1", None), ("1.5", None)])
def test_seconds_of_annotations(text: str, read: int | None) -> None:
    keys = (
        "load-estimated-seconds-after-pod-scheduled",
        "load-estimated-seconds-after-initialized",
    )
    metadata = {"annotations": {f"{PREFIX}{key}": text for key in keys}}
    hints = hints_of(read_pod(metadata=metadata))
    assert (hints.after_scheduled, hints.after_initialized) == (read, read)


def test_node_says_thresholds_and_what_it_really_has() -> None:
    annotations = {
        f"{PREFIX}usage-thresholds": """{"usageThresholds":{"cpu":80},
            "prodUsageThresholds":{"cpu":500},
            "aggregatedUsage":{"usageThresholds":{"cpu":70},"usageAggregationType":"p95",
                               "usageAggregatedDuration":"5m0s"}}""",
        "node.koordinator.sh/raw-allocatable": '{"cpu":"32","memory":"1Ki"}',
    }
    body = {"metadata": {"name": "n", "annotations": annotations}}
    wire = msgspec.json.decode(msgspec.json.encode(body), type=WireNode)
    node = NODES.make_translator(TranslatorOptions()).translate(wire)
    thresholds = LoadThresholds(
        {"cpu": 80}, {"cpu": 100}, {"cpu": 70}, Basis(Aggregation.P95, 300.0)
    )
    own = OwnLimits(thresholds, (("cpu", 32000), ("memory", 1024)))
    assert node.extensions == ((NAME, own),)


@pytest.mark.parametrize("text", ["{", '{"usageThresholds":{"cpu":"80"}}', "[]", ""])
def test_thresholds_that_make_no_sense_are_ignored(text: str) -> None:
    assert read_own_limits({f"{PREFIX}usage-thresholds": text}) == ()
