"""Settings of over-commitment: the ConfigMap, policies, and what nodes say themselves."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from tests.cluster import make_cluster

from koord.controllers.slo_config import SloConfigReports
from koord.core.colocation.node_facts import NodeFacts, facts_of
from koord.core.colocation.strategy import (
    CalculatePolicy,
    ClusterColocation,
    PolicySettings,
    Strategy,
    resolve,
)
from koord.core.engine.policies import ObservedPolicy
from koord.core.slo_config.plugin import SloConfig, SloConfigs
from koord.domains.slo_config import KEYS
from koord.kube.translate.cluster_objects import translate_node
from koord.kube.translate.colocation import COLOCATION_CONFIG, read_ratio, translate_policy
from koord.kube.translate.slo_config import SloConfigTranslator
from koord.kube.wire import WireConfigMap, WireNode, WireObjectMeta

KEY = "colocation-config"
CLUSTER = {"enable": True, "cpuReclaimThresholdPercent": 70}


def config_map(text: str | None) -> WireConfigMap:
    return WireConfigMap(WireObjectMeta(uid="u"), None if text is None else {KEY: text})


def read(written: Any) -> SloConfig:
    return SloConfigTranslator(KEYS).translate(config_map(json.dumps(written)))


def settings_of(written: Any) -> ClusterColocation:
    config = read(written)
    assert config.problems == {}
    value = config.values[ClusterColocation]
    assert isinstance(value, ClusterColocation)
    return value


def node_config(name: str, labels: dict[str, str], **fields: Any) -> dict[str, Any]:
    return {"name": name, "nodeSelector": {"matchLabels": labels}, **fields}


def test_what_is_not_written_is_as_by_default() -> None:
    assert settings_of({"enable": True}).cluster == Strategy(enable=True)
    assert settings_of({}).cluster == Strategy()
    written = settings_of(
        {
            "enable": True,
            "cpuCalculatePolicy": "maxUsageRequest",
            "batchCPUThresholdPercent": 90,
            "midCPUThresholdPercent": 50,
            "midStaticCPUReservedPercent": 5,
            "midReclaimMode": "static",
            "resourceDiffThreshold": 0.2,
            "metricAggregateDurationSeconds": 300,
            "metricAggregatePolicy": {"durations": ["5m"]},
            "extensions": {"unknown": 1},
        }
    )
    assert written.cluster == Strategy(
        enable=True,
        cpu_calculate_policy=CalculatePolicy.MAX_USAGE_REQUEST,
        batch_cpu_threshold_percent=90,
        mid_cpu_threshold_percent=50,
        mid_static_cpu_reserved_percent=5,
        mid_reclaim_mode="static",
        resource_diff_threshold=0.2,
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", 'colocation-config: "{": is not JSON'),
        ("[]", "colocation-config: []: must be a mapping"),
        (
            '{"cpuReclaimThresholdPercent": -1}',
            "colocation-config.cpuReclaimThresholdPercent: -1: ",
        ),
        (
            '{"memoryReclaimThresholdPercent": 1000000000000}',
            "colocation-config.memoryReclaimThresholdPercent: 1000000000000: ",
        ),
        ('{"degradeTimeMinutes": 0}', "colocation-config.degradeTimeMinutes: 0: "),
        ('{"resourceDiffThreshold": 0}', "colocation-config.resourceDiffThreshold: 0: "),
        ('{"midUnallocatedPercent": 101}', "colocation-config.midUnallocatedPercent: 101: "),
        ('{"cpuCalculatePolicy": "most"}', 'colocation-config.cpuCalculatePolicy: "most": must be'),
        ('{"metricMemoryCollectPolicy": ""}', "colocation-config.metricMemoryCollectPolicy: "),
        (
            json.dumps({"nodeConfigs": [{"name": "x", "nodeSelector": {}}]}),
            "colocation-config.nodeConfigs[0].nodeSelector: must have matchLabels",
        ),
        (
            json.dumps({"nodeConfigs": [{"name": "x"}]}),
            "colocation-config.nodeConfigs[0].nodeSelector: is required",
        ),
        (
            json.dumps(
                {
                    "nodeConfigs": [
                        node_config("x", {"a": "b"}),
                        node_config("y", {"a": "b", "c": "d"}),
                    ]
                }
            ),
            "colocation-config.nodeConfigs[1].nodeSelector: y: can select a node that nodeConf",
        ),
    ],
)
def test_invalid_settings_are_told_with_path_and_value_and_the_last_valid_stay(
    text: str, problem: str
) -> None:
    translator = SloConfigTranslator(KEYS)
    translator.translate(config_map(json.dumps(CLUSTER)))
    config = translator.translate(config_map(text))
    (said,) = config.problems[KEY]
    assert said.replace("{: ", '"{": ').startswith(problem)
    value = config.values[ClusterColocation]
    assert isinstance(value, ClusterColocation)
    assert value.cluster.cpu_reclaim_threshold_percent == 70
    plugin = SloConfigs()
    plugin.upsert(config)
    assert plugin.of(ClusterColocation) == value


def test_a_removed_key_is_as_by_default() -> None:
    translator = SloConfigTranslator(KEYS)
    translator.translate(config_map(json.dumps(CLUSTER)))
    for text in (None, "", "  "):
        assert translator.translate(config_map(text)) == SloConfig("u")
    # Nothing is known of a text that was never valid.
    assert translator.translate(config_map("{")).values == {}


def test_entries_that_exclude_each_other_do_not_overlap() -> None:
    some = [node_config("x", {"pool": "x"}), node_config("y", {"pool": "y"})]
    assert len(settings_of({**CLUSTER, "nodeConfigs": some}).node_configs) == 2
    by_expression = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["x"]}]}
    problems = read(
        {**CLUSTER, "nodeConfigs": [some[0], {"name": "z", "nodeSelector": by_expression}]}
    ).problems
    assert "nodeConfigs[1]" in problems[KEY][0]


def test_the_first_entry_that_selects_a_node_counts_over_the_cluster() -> None:
    settings = settings_of(
        {**CLUSTER, "nodeConfigs": [node_config("x", {"pool": "x"}, cpuReclaimThresholdPercent=30)]}
    )
    resolved = resolve({"pool": "x"}, (), (), settings)
    assert resolved.strategy.cpu_reclaim_threshold_percent == 30
    assert resolved.strategy.enable
    assert resolved.sources == ("nodeConfigs[0] x", "colocation-config")
    assert resolve({}, (), (), settings).strategy.cpu_reclaim_threshold_percent == 70


def test_nodes_can_be_switched_off_and_never_on() -> None:
    off = {"nodeConfigs": [node_config("x", {"pool": "x"}, enable=True)]}
    assert not resolve({"pool": "x"}, (), (), settings_of({"enable": False, **off})).strategy.enable
    none = {"nodeConfigs": [node_config("x", {"pool": "x"}, enable=False)]}
    settings = settings_of({**CLUSTER, **none})
    assert not resolve({"pool": "x"}, (), (), settings).strategy.enable
    assert resolve({}, (), (), settings).strategy.enable
    assert not resolve({}, [("annotation", {"enable": False})], (), settings).strategy.enable
    assert not resolve({}, [("annotation", {"enable": True})], (), None).strategy.enable


def policy(name: str, created: float, **spec: Any) -> ObservedPolicy[PolicySettings]:
    settings = translate_policy(json.dumps(spec).encode())
    assert settings is not None
    return ObservedPolicy(name, f"uid-{name}", 1, created, settings)


def test_the_oldest_policy_that_selects_a_node_counts_in_place_of_the_config_map() -> None:
    old = policy("old", 1.0, cpuReclaimThresholdPercent=50)
    new = policy("new", 2.0, nodeSelector={"matchLabels": {"pool": "x"}})
    resolved = resolve({"pool": "x"}, (), [new, old], settings_of(CLUSTER))
    assert (resolved.policy, resolved.overridden) == ("old", ("ColocationPolicy new",))
    assert resolved.strategy.enable
    assert resolved.strategy.cpu_reclaim_threshold_percent == 50
    other = resolve({}, (), [new], settings_of(CLUSTER))
    assert (other.policy, other.strategy.cpu_reclaim_threshold_percent) == ("", 70)


def test_the_node_itself_has_the_last_word() -> None:
    facts = facts_from(
        {"node.koordinator.sh/colocation-strategy": '{"cpuReclaimThresholdPercent": 20}'},
        {"node.koordinator.sh/memory-reclaim-ratio": "0.29"},
    )
    resolved = resolve({}, facts.own_fields, (), settings_of(CLUSTER))
    assert resolved.strategy.cpu_reclaim_threshold_percent == 20
    assert resolved.strategy.memory_reclaim_threshold_percent == 28
    assert resolved.sources == ("labels", "annotation", "colocation-config")


@pytest.mark.parametrize(
    ("text", "percent"),
    [("0.29", 28), ("1.5", 150), ("-1", None), ("abc", None), ("nan", None), ("1e9", None)],
)
def test_ratios_are_cut_to_whole_percentages(text: str, percent: int | None) -> None:
    assert read_ratio(text) == percent


def facts_from(annotations: dict[str, str], labels: dict[str, str] | None = None) -> NodeFacts:
    body = {
        "metadata": {"name": "n", "annotations": annotations, "labels": labels or {}},
        "status": {
            "capacity": {"cpu": "4", "kubernetes.io/batch-cpu": "25k"},
            "allocatable": {"cpu": "4", "kubernetes.io/batch-cpu": "25k"},
        },
    }
    return facts_of(translate_node(msgspec.json.decode(json.dumps(body), type=WireNode)))


def test_annotations_of_nodes_are_read() -> None:
    facts = facts_from(
        {
            "node.koordinator.sh/reservation": '{"resources": {"cpu": "1", "memory": "2G"},'
            ' "reservedCPUs": "0-3"}',
            "node.koordinator.sh/thirdPartyAllocations": json.dumps(
                {
                    "allocations": [
                        {
                            "name": "yarn",
                            "priority": "koord-batch",
                            "resources": {"kubernetes.io/batch-cpu": "10000"},
                        },
                        {
                            "name": "other",
                            "priority": "koord-prod",
                            "resources": {"kubernetes.io/batch-cpu": "1"},
                        },
                    ]
                }
            ),
            "node.koordinator.sh/cpu-normalization-ratio": "1.20",
            "operators.koordinator.sh/over-commit": '{"kubernetes.io/batch-cpu":"25000"}',
        }
    )
    assert dict(facts.reserved) == {"cpu": 4000, "memory": 2 * 10**9}
    assert dict(facts.third_party) == {"kubernetes.io/batch-cpu": 10_000}
    assert facts.faster == 120
    assert dict(facts.recorded) == {"kubernetes.io/batch-cpu": 25_000}
    assert facts.allocatable == (("kubernetes.io/batch-cpu", "25k"),)
    assert facts.problems == ()


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("node.koordinator.sh/colocation-strategy", "{"),
        ("node.koordinator.sh/colocation-strategy", '{"cpuReclaimThresholdPercent": "much"}'),
        ("node.koordinator.sh/reservation", '{"reservedCPUs": "3-"}'),
        ("node.koordinator.sh/reservation", '{"resources": {"cpu": "x"}}'),
        ("node.koordinator.sh/thirdPartyAllocations", "[]"),
        ("node.koordinator.sh/cpu-normalization-ratio", "fast"),
        ("node.koordinator.sh/cpu-normalization-ratio", "nan"),
        ("node.koordinator.sh/cpu-normalization-ratio", "1e400"),
        ("operators.koordinator.sh/over-commit", "[1]"),
        ("node.koordinator.sh/colocation-strategy", "[" * 20_000),
    ],
)
def test_what_cannot_be_read_of_a_node_is_named_and_ignored(key: str, text: str) -> None:
    facts = facts_from({key: text})
    (problem,) = facts.problems
    assert problem.startswith(f"metadata.annotations[{key}]: ")
    assert facts.own_fields == (("annotation", {}), ("labels", {}))
    assert (facts.reserved, facts.third_party, facts.faster) == ((), (), 100)


def test_bad_labels_are_named_and_ignored() -> None:
    facts = facts_from({}, {"node.koordinator.sh/cpu-reclaim-ratio": "abc"})
    assert facts.problems == (
        "metadata.labels[node.koordinator.sh/cpu-reclaim-ratio]: abc: is no such part of the node",
    )


def test_the_key_is_one_of_those_that_are_read() -> None:
    assert COLOCATION_CONFIG in KEYS


def test_fields_and_keys_that_nothing_reads_are_named_and_all_else_counts() -> None:
    written = {
        **CLUSTER,
        "cpuReclaimTresholdPercent": 10,
        "extensions": {"of": "others"},
        "nodeConfigs": [node_config("x", {"pool": "x"}, degradeTimeMinute=5)],
    }
    config, lost = read(written), "is not a field here; did you mean "
    assert config.problems == {}
    assert config.unknown == {
        KEY: (
            f"{KEY}.nodeConfigs[0].degradeTimeMinute: 5: {lost}degradeTimeMinutes?",
            f"{KEY}.cpuReclaimTresholdPercent: 10: {lost}cpuReclaimThresholdPercent?",
        )
    }
    value = config.values[ClusterColocation]
    assert isinstance(value, ClusterColocation)
    assert value.cluster.cpu_reclaim_threshold_percent == 70
    data = {"colocation_config": "{}", "of-somebody-else": "{}"}
    other = SloConfigTranslator(KEYS).translate(WireConfigMap(WireObjectMeta(uid="u"), data))
    assert other.unknown == {
        "colocation_config": (
            "colocation_config: is not a key here; did you mean colocation-config?",
        )
    }


class Recorder:
    """Stands in for the recorder of events: what was said, by reason."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str]] = []

    def forget(self, *_: object) -> None:
        """Nothing was said before."""

    def record(self, *_: object, reason: str, note: str, **__: object) -> None:
        self.notes.append((reason, note))


async def test_an_event_tells_each_problem_and_each_field_that_is_ignored_once() -> None:
    state, events = make_cluster().state, Recorder()
    reports = SloConfigReports(state, events)  # type: ignore[arg-type]
    translator = SloConfigTranslator(KEYS)
    for written in ({**CLUSTER, "enabled": True}, {"degradeTimeMinutes": 0}, CLUSTER):
        config = translator.translate(config_map(json.dumps(written)))
        state.plugin(SloConfigs).upsert(config)
        for _ in range(2):
            await reports.update("slo-controller-config")
    (first, ignored), (second, invalid) = events.notes
    assert (first, second) == ("ConfigFieldIgnored", "ConfigInvalid")
    assert ignored == (
        "colocation-config.enabled: true: is not a field here; did you mean enable. "
        "It has no effect"
    )
    assert invalid.endswith("The last valid settings stay in force")
