"""Strategies of the ConfigMap: merged, checked as a whole, and kept while a text is invalid."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.api.parse import InvalidObject
from koord.core.amplification.ratios import ModelRatios, NormalizationStrategies, OfferStrategies
from koord.core.nodeslo.defaults import BURST, QOS, SYSTEM, THRESHOLDS
from koord.core.nodeslo.render import FIELDS, SloSettings, is_shown, merge, render
from koord.kube.translate.node_strategies import (
    NODE_SLO_CONFIGS,
    NORMALIZATION_CONFIG,
    OFFER_CONFIG,
)
from koord.kube.translate.slo_config import SloConfigTranslator
from koord.kube.wire import WireConfigMap

KEYS = (*NODE_SLO_CONFIGS, NORMALIZATION_CONFIG, OFFER_CONFIG)
BY_NAME = {key.name: key for key in KEYS}
LARGE = {"nodeSelector": {"matchLabels": {"size": "large"}}}


def config_map(**texts: Any) -> WireConfigMap:
    data = {
        name.replace("_", "-"): text if isinstance(text, str) else json.dumps(text)
        for name, text in texts.items()
    }
    return msgspec.convert({"metadata": {"name": "c", "uid": "u"}, "data": data}, WireConfigMap)


def settings_of(**texts: Any) -> SloSettings:
    config = SloConfigTranslator(KEYS).translate(config_map(**texts))
    assert not config.problems, config.problems
    return SloSettings({part: config.values[part] for part in FIELDS if part in config.values})


def problems_of(name: str, value: Any) -> list[str]:
    read = BY_NAME[name].read(value if isinstance(value, str) else json.dumps(value))
    assert isinstance(read, InvalidObject), read
    return [str(problem) for problem in read.problems]


def test_defaults_are_rendered_where_nothing_is_configured() -> None:
    assert render(SloSettings(), {}) == {
        "resourceUsedThresholdWithBE": THRESHOLDS,
        "resourceQOSStrategy": QOS,
        "cpuBurstStrategy": BURST,
        "systemStrategy": SYSTEM,
    }


def test_the_first_matching_strategy_is_merged_over_that_of_the_cluster() -> None:
    settings = settings_of(
        resource_threshold_config={
            "clusterStrategy": {"enable": True, "cpuSuppressThresholdPercent": 60},
            "nodeStrategies": [
                {**LARGE, "cpuSuppressThresholdPercent": 80},
                {
                    "nodeSelector": {"matchLabels": {"pool": "gpu"}},
                    "cpuSuppressThresholdPercent": 90,
                    "enable": False,
                },
            ],
        }
    )
    small = render(settings, {"size": "small"})
    large = render(settings, {"size": "large", "pool": "gpu"})
    assert small["resourceUsedThresholdWithBE"] == {
        **THRESHOLDS,
        "enable": True,
        "cpuSuppressThresholdPercent": 60,
    }
    assert large["resourceUsedThresholdWithBE"] == {
        **THRESHOLDS,
        "enable": True,
        "cpuSuppressThresholdPercent": 80,
    }


@pytest.mark.parametrize("name", BY_NAME)
def test_an_entry_that_can_select_a_node_of_an_earlier_one_is_refused(name: str) -> None:
    is_flat = name in {NORMALIZATION_CONFIG.name, OFFER_CONFIG.name, "host-application-config"}
    field = "nodeConfigs" if is_flat else "nodeStrategies"
    (problem,) = problems_of(name, {field: [LARGE, {"name": "again", **LARGE}]})
    assert problem.startswith(f"{name}.{field}[1].nodeSelector: again: can select a node that")


def test_classes_are_merged_field_by_field_and_lists_are_replaced() -> None:
    block = {"name": "/dev/vda", "type": "device", "ioCfg": {"readBPS": 100}}
    settings = settings_of(
        resource_qos_config={
            "clusterStrategy": {
                "beClass": {
                    "cpuQOS": {"enable": True},
                    "blkioQOS": {"enable": True, "blocks": [block, block]},
                }
            },
            "nodeStrategies": [{**LARGE, "beClass": {"blkioQOS": {"blocks": [block]}}}],
        }
    )
    best_effort = render(settings, {"size": "large"})["resourceQOSStrategy"]["beClass"]
    assert best_effort["cpuQOS"] == {**QOS["beClass"]["cpuQOS"], "enable": True}
    assert best_effort["blkioQOS"] == {"enable": True, "blocks": [block]}
    assert best_effort["resctrlQOS"] == QOS["beClass"]["resctrlQOS"]


def test_applications_of_nodes_replace_those_of_the_cluster() -> None:
    settings = settings_of(
        host_application_config={
            "applications": [{"name": "nginx", "qos": "LS"}],
            "nodeConfigs": [{**LARGE, "applications": [{"name": "yarn", "qos": "BE"}]}],
        }
    )
    assert render(settings, {})["hostApplications"] == [{"name": "nginx", "qos": "LS"}]
    assert render(settings, {"size": "large"})["hostApplications"] == [
        {"name": "yarn", "qos": "BE"}
    ]


def test_a_node_knows_its_bandwidth_best() -> None:
    settings = settings_of(system_config={"clusterStrategy": {"totalNetworkBandwidth": "10G"}})
    assert render(settings, {})["systemStrategy"]["totalNetworkBandwidth"] == "10G"
    assert render(settings, {}, "25G")["systemStrategy"]["totalNetworkBandwidth"] == "25G"
    assert SYSTEM["totalNetworkBandwidth"] == "0", "defaults are not written to"


def test_a_node_slo_is_current_whatever_else_others_have_set() -> None:
    spec = render(SloSettings(), {})
    assert is_shown({**spec, "extensions": {"x": 1}}, spec)
    assert not is_shown({**spec, "hostApplications": [{"name": "old"}]}, spec)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("resource-threshold-config", "[", "resource-threshold-config: "),
        (
            "resource-threshold-config",
            {"clusterStrategy": {"cpuSuppressThresholdPercent": 101}},
            "resource-threshold-config.clusterStrategy.cpuSuppressThresholdPercent: 101: ",
        ),
        (
            "resource-threshold-config",
            {"clusterStrategy": {"memoryEvictLowerPercent": 70}},
            "resource-threshold-config.clusterStrategy",
        ),
        (
            "resource-threshold-config",
            {"nodeStrategies": [{**LARGE, "memoryEvictLowerPercent": 75}]},
            "resource-threshold-config.nodeStrategies[0]",
        ),
        (
            "resource-threshold-config",
            {"nodeStrategies": [{"nodeSelector": {}}]},
            "resource-threshold-config.nodeStrategies[0].nodeSelector",
        ),
        (
            "resource-qos-config",
            {"clusterStrategy": {"beClass": {"resctrlQOS": {"catRangeStartPercent": 30}}}},
            "resource-qos-config.clusterStrategy",
        ),
        (
            "resource-qos-config",
            {"clusterStrategy": {"lsClass": {"memoryQOS": {"wmarkScalePermill": 0}}}},
            "resource-qos-config.clusterStrategy.lsClass.memoryQOS.wmarkScalePermill: 0: ",
        ),
        (
            "cpu-burst-config",
            {"clusterStrategy": {"policy": "sometimes"}},
            "cpu-burst-config.clusterStrategy.policy: ",
        ),
        (
            "system-config",
            {"clusterStrategy": {"watermarkScaleFactor": 401}},
            "system-config.clusterStrategy.watermarkScaleFactor: 401: ",
        ),
        (
            "host-application-config",
            {"applications": [{"name": "x", "cgroupPath": {"base": "Elsewhere"}}]},
            "host-application-config.applications[0].cgroupPath.base: ",
        ),
        (
            "cpu-normalization-config",
            {"ratioModel": {"Xeon": {"baseRatio": 0.9}}},
            "cpu-normalization-config.ratioModel.Xeon.baseRatio: 0.9: ",
        ),
        (
            "cpu-normalization-config",
            {"defaultRatio": 1e300},
            "cpu-normalization-config.defaultRatio: 1e+300: ",
        ),
        (
            "resource-amplification-config",
            {"resourceAmplificationRatio": {"cpu": "1.5"}},
            "resource-amplification-config.resourceAmplificationRatio.cpu: ",
        ),
    ],
)
def test_problems_name_the_key_the_field_and_the_value(name: str, value: Any, problem: str) -> None:
    assert problems_of(name, value)[0].startswith(problem)


def test_the_last_valid_text_stays_in_force() -> None:
    translator = SloConfigTranslator(KEYS)
    valid = {"enable": True, "resourceAmplificationRatio": {"cpu": 1.5}}
    before = translator.translate(config_map(resource_amplification_config=valid))
    after = translator.translate(config_map(resource_amplification_config="{", system_config="[]"))
    assert after.values[OfferStrategies] == before.values[OfferStrategies]
    assert sorted(after.problems) == ["resource-amplification-config", "system-config"]
    gone = translator.translate(config_map())
    assert OfferStrategies not in gone.values


def test_ratios_of_models_are_merged_by_model() -> None:
    read = BY_NAME["cpu-normalization-config"].read(
        json.dumps(
            {
                "enable": True,
                "ratioModel": {"A": {"baseRatio": 1.5}, "B": {"baseRatio": 2}},
                "nodeConfigs": [{**LARGE, "ratioModel": {"A": {"turboEnabledRatio": 3}}}],
            }
        )
    )
    assert not isinstance(read, InvalidObject)
    made = NORMALIZATION_CONFIG.make(read)
    assert isinstance(made, NormalizationStrategies)
    strategy = made.of({"size": "large"})
    assert strategy.is_on
    assert strategy.models == {"A": ModelRatios(base=1.5, turbo=3.0), "B": ModelRatios(base=2.0)}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
WORDS = st.sampled_from(
    [
        *("clusterStrategy", "nodeStrategies", "nodeConfigs", "applications", "nodeSelector"),
        *("matchLabels", "enable", "policy", "ratioModel", "baseRatio", "defaultRatio"),
        *("resourceAmplificationRatio", "beClass", "cpuQOS", "groupIdentity", "resctrlQOS"),
        *("catRangeStartPercent", "catRangeEndPercent"),
    ]
)
ABSURD = st.recursive(
    JSON, lambda inner: st.dictionaries(WORDS, inner) | st.lists(inner, max_size=2), max_leaves=12
)


@given(st.sampled_from(sorted(BY_NAME)), st.text() | ABSURD.map(json.dumps))
def test_no_text_of_a_key_is_fatal(name: str, text: str) -> None:
    config = SloConfigTranslator(KEYS).translate(config_map(**{name.replace("-", "_"): text}))
    parts = {part: config.values[part] for part in FIELDS if part in config.values}
    render(SloSettings(parts), {"size": "large"})
    for problems in config.problems.values():
        assert all(problem.startswith(name) for problem in problems)


LAYERS = st.lists(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), max_size=4)


@given(LAYERS)
def test_merging_is_idempotent_and_changes_no_input(layers: list[dict[str, Any]]) -> None:
    before = json.dumps(layers)
    merged = merge(*layers)
    assert repr(merge(merged, merged)) == repr(merged)
    assert all(value is not None for value in merged.values())
    assert json.dumps(layers) == before
