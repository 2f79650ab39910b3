"""The ratios of nodes: of their processors, and of what they offer; and when they are written."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_node

from koord.core.amplification.publish import RatioChange, find_change, processor_of
from koord.core.amplification.ratios import (
    BadRatio,
    ModelRatios,
    Normalization,
    NormalizationStrategies,
    OfferStrategies,
    ResourceOffers,
    find_normalization,
    find_offers,
    write_offers,
    write_ratio,
)
from koord.core.model.nodes import Node
from koord.core.model.processor import Processor
from koord.core.model.selectors import Requirement, SelectorOperator
from koord.kube.translate.numa import read_amplification
from koord.kube.translate.ratios import make_ratio_patch, read_shown_ratios

XEON = Processor("Xeon", has_hyper_threads=True)
RATIOS = ModelRatios(base=1.5, hyper_threads=1.2, turbo=1.8, both=1.3)
ON = Normalization(is_on=True, models={"Xeon": RATIOS})
AMPLIFICATION = "node.koordinator.sh/resource-amplification-ratio"
NORMALIZATION = "node.koordinator.sh/cpu-normalization-ratio"


def node(annotations: dict[str, str] | None = None, **labels: str) -> Node:
    made = make_node("n0")
    for key, value in labels.items():
        made = made.label(key, value)
    return replace(made.build(), extensions=read_shown_ratios(annotations or {}))


@pytest.mark.parametrize(
    ("configured", "normalization", "text"),
    [
        ({"cpu": 1.5}, 120, '{"cpu":1.80}'),
        ({"cpu": 1.5}, 100, '{"cpu":1.50}'),
        ({}, 120, '{"cpu":1.20}'),
        ({}, 100, ""),
        ({"cpu": -1.0}, 120, '{"cpu":1.20}'),
        ({"cpu": 0.8}, 130, '{"cpu":1.04}'),
        ({"cpu": 1.15, "memory": 1.2}, 135, '{"cpu":1.55,"memory":1.20}'),
        ({"cpu": 1.0, "memory": 1.0}, 100, ""),
    ],
)
def test_cpus_are_offered_by_the_product_of_both_ratios(
    configured: dict[str, float], normalization: int, text: str
) -> None:
    offered = find_offers(ResourceOffers(is_on=True, ratios=configured), normalization)
    assert not isinstance(offered, BadRatio)
    assert write_offers(offered) == text


@pytest.mark.parametrize(
    ("configured", "message"),
    [
        ({"cpu": 0.8}, "the ratio of cpu must be 1 to 100: 0.8"),
        ({"memory": 0.9}, "the ratio of memory must be 1 to 100: 0.9"),
        ({"cpu": 60.0}, None),
        ({"cpu": 90.0}, "the ratio of cpu must be 1 to 100: 108"),
    ],
)
def test_a_ratio_below_one_is_an_error(configured: dict[str, float], message: str | None) -> None:
    found = find_offers(ResourceOffers(is_on=True, ratios=configured), 120)
    assert (found.message if isinstance(found, BadRatio) else None) == message


@pytest.mark.parametrize(
    ("processor", "ratio"),
    [
        (Processor("Xeon"), 150),
        (Processor("Xeon", has_hyper_threads=True), 120),
        (Processor("Xeon", has_turbo=True), 180),
        (Processor("Xeon", has_hyper_threads=True, has_turbo=True), 130),
    ],
)
def test_the_ratio_of_a_processor_depends_on_what_is_switched_on(
    processor: Processor, ratio: int
) -> None:
    assert find_normalization(ON, processor, None) == ratio


@pytest.mark.parametrize(
    ("strategy", "processor", "switch", "expected"),
    [
        (Normalization(), XEON, None, 100),
        (Normalization(), XEON, "true", "NoRatio"),
        (ON, XEON, "false", 100),
        (ON, XEON, "yes", "InvalidSwitch"),
        (ON, None, None, "UnknownProcessor"),
        (ON, Processor("Epyc"), None, "NoRatio"),
        (replace(ON, default=1.1), Processor("Epyc"), None, 110),
        (replace(ON, models={"Xeon": ModelRatios()}, default=1.4), XEON, None, 140),
        (replace(ON, models={"Xeon": ModelRatios(hyper_threads=0.9)}), XEON, None, "Invalid"),
        (replace(ON, default=5.1), Processor("Epyc"), None, "Invalid"),
        (replace(ON, default=5.0), Processor("Epyc"), None, 500),
    ],
)
def test_normalization(
    strategy: Normalization, processor: Processor | None, switch: str | None, expected: int | str
) -> None:
    found = find_normalization(strategy, processor, switch)
    if isinstance(found, BadRatio):
        assert isinstance(expected, str)
        assert found.code.startswith(expected)
    else:
        assert found == expected


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, RatioChange("1.20", '{"cpu":1.80}')),
        ({NORMALIZATION: "1.20"}, RatioChange(None, '{"cpu":1.80}')),
        ({NORMALIZATION: "1.21", AMPLIFICATION: '{"cpu":1.8}'}, RatioChange()),
        (
            {NORMALIZATION: "1.22", AMPLIFICATION: '{"cpu":1.82}'},
            RatioChange("1.20", '{"cpu":1.80}'),
        ),
        ({NORMALIZATION: "x", AMPLIFICATION: "["}, RatioChange("1.20", '{"cpu":1.80}')),
        (
            {NORMALIZATION: "1.2", AMPLIFICATION: '{"cpu":1.8,"memory":2}'},
            RatioChange(None, '{"cpu":1.80}'),
        ),
    ],
)
def test_only_ratios_that_differ_are_written(
    annotations: dict[str, str], expected: RatioChange
) -> None:
    normalizations = NormalizationStrategies(ON)
    offers = OfferStrategies(ResourceOffers(is_on=True, ratios={"cpu": 1.5}))
    assert find_change(node(annotations), XEON, normalizations, offers) == expected


def test_what_is_switched_off_is_taken_back() -> None:
    shown = node({NORMALIZATION: "1.20", AMPLIFICATION: '{"cpu":1.80}'})
    off = NormalizationStrategies(Normalization()), OfferStrategies(ResourceOffers())
    assert find_change(shown, None, *off) == RatioChange("1.00", "")
    assert make_ratio_patch(RatioChange("1.00", "")) == {
        "metadata": {"annotations": {NORMALIZATION: "1.00", AMPLIFICATION: None}}
    }
    assert not find_change(node(), None, *off), "no annotation says the same as 1.00"
    assert not find_change(shown, None, None, None), "nobody has configured anything"


@pytest.mark.parametrize(
    ("processor", "normalization", "offers", "code"),
    [
        (None, ON, ResourceOffers(), "UnknownProcessor"),
        (XEON, replace(ON, models={"Xeon": ModelRatios(hyper_threads=0.9)}), None, "Invalid"),
        (XEON, ON, ResourceOffers(is_on=True, ratios={"cpu": 0.8}), "Invalid"),
    ],
)
def test_a_node_without_a_valid_ratio_keeps_what_it_shows(
    processor: Processor | None,
    normalization: Normalization,
    offers: ResourceOffers | None,
    code: str,
) -> None:
    shown = node({NORMALIZATION: "1.20", AMPLIFICATION: '{"cpu":1.80}'})
    strategies = OfferStrategies(offers or ResourceOffers(is_on=True, ratios={"cpu": 1.5}))
    found = find_change(shown, processor, NormalizationStrategies(normalization), strategies)
    assert isinstance(found, BadRatio)
    assert found.code.startswith(code)


def test_the_first_strategy_whose_selector_matches_decides() -> None:
    selector = (Requirement("pool", SelectorOperator.IN, ("big",)),)
    offers = OfferStrategies(
        ResourceOffers(), ((selector, ResourceOffers(True, {"cpu": 2.0})), ((), ResourceOffers()))
    )
    assert find_change(node(pool="big"), None, None, offers) == RatioChange(None, '{"cpu":2.00}')
    assert not find_change(node(pool="small"), None, None, offers)


def test_labels_of_node_feature_discovery_name_the_processor() -> None:
    prefix = "feature.node.kubernetes.io/cpu-"
    labels = {
        f"{prefix}model.vendor_id": "Intel",
        f"{prefix}model.family": "6",
        f"{prefix}model.id": "85",
        f"{prefix}hardware_multithreading": "true",
        f"{prefix}pstate.turbo": "false",
    }
    assert processor_of(node(**labels), None) == Processor("Intel-6-85", True, False)
    assert processor_of(node(**labels), XEON) == XEON
    del labels[f"{prefix}model.id"]
    assert processor_of(node(**labels), None) is None


@given(st.dictionaries(st.text(), st.floats()), st.integers(100, 500))
def test_what_is_written_is_read_back_and_not_written_again(
    ratios: dict[str, float], normalization: int
) -> None:
    offered = find_offers(ResourceOffers(is_on=True, ratios=ratios), normalization)
    if isinstance(offered, BadRatio):
        return
    text = write_offers(offered)
    assert not text or json.loads(text) == {name: n / 100 for name, n in offered.items()}
    found = read_amplification({AMPLIFICATION: text})
    assert found.cpu == offered.get("cpu", 100) * 10
    shown = node({AMPLIFICATION: text, NORMALIZATION: write_ratio(normalization)})
    same = OfferStrategies(
        ResourceOffers(is_on=True, ratios={k: n / 100 for k, n in offered.items()})
    )
    assert not find_change(shown, None, None, same)


@given(st.text(), st.text())
def test_no_text_of_an_annotation_is_fatal(normalization: str, offers: str) -> None:
    read_shown_ratios({NORMALIZATION: normalization, AMPLIFICATION: offers})
