"""Adapters for what nodes show and agents read: settings, ratios, NodeSLOs, and the fit of CPUs.

A ``config`` is given by the keys of Koordinator's ConfigMap, as JSON values; amounts in milli-CPU.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import msgspec
from tests.builders import make_node
from tests.cluster import make_unit
from tests.conformance.adapters.colocation import read_strategy
from tests.numa.test_amplified import SHARED, amplified
from tests.numa.test_plugin import PINNED, pod, refused, settle

from koord.core.amplification.publish import find_change
from koord.core.amplification.ratios import BadRatio, NormalizationStrategies, OfferStrategies
from koord.core.colocation.publishing import needs_sync as find_sync
from koord.core.colocation.strategy import ClusterColocation, resolve
from koord.core.model.amplification import Amplification, to_hundredths
from koord.core.model.processor import Processor
from koord.core.nodeslo.render import FIELDS, SloSettings, render
from koord.domains.slo_config import KEYS
from koord.kube.translate.colocation import read_node_facts
from koord.kube.translate.node_slo import bandwidth_of, read_bandwidth
from koord.kube.translate.ratios import read_shown_ratios
from koord.kube.translate.slo_config import SloConfigTranslator
from koord.kube.wire import WireConfigMap, WireNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from koord.core.slo_config.plugin import SloConfig


def read_config(written: Mapping[str, Any]) -> SloConfig:
    data = {
        key: text if isinstance(text, str) else json.dumps(text) for key, text in written.items()
    }
    body = {"metadata": {"name": "slo-controller-config", "uid": "u"}, "data": data}
    return SloConfigTranslator(KEYS).translate(msgspec.convert(body, WireConfigMap))


def tell_problems(config: SloConfig) -> str:
    return "; ".join(text for texts in config.problems.values() for text in texts)


def needs_sync(case: Mapping[str, Any]) -> Mapping[str, Any]:
    strategy, elapsed = read_strategy(case["strategy"]), case.get("elapsedSeconds", 0)
    return {"sync": find_sync(case["old"], case["new"], strategy, elapsed)}


def strategy_for_node(case: Mapping[str, Any]) -> Mapping[str, Any]:
    labels, config = case.get("nodeLabels") or {}, read_config(case["config"])
    meta = {"name": "n", "labels": labels, "annotations": case.get("nodeAnnotations") or {}}
    facts = dict(read_node_facts(msgspec.convert({"metadata": meta}, WireNode))).get("colocation")
    settings = config.values.get(ClusterColocation)
    own = () if facts is None else facts.own_fields
    found = resolve(labels, own, (), settings if isinstance(settings, ClusterColocation) else None)
    named = {_camel(name): value for name, value in asdict(found.strategy).items()}
    return {"strategy": named, "error": tell_problems(config)}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others)).replace("Cpu", "CPU")


def amplified_fit(case: Mapping[str, Any]) -> Mapping[str, Any]:
    cluster = amplified(Amplification(to_hundredths(case["ratio"]) * 10), case["cpus"])
    used = [(PINNED, case["pinned"])] if case.get("pinned") else []
    used += [(SHARED, case["shared"])] if case.get("shared") else []
    settle(cluster, *(pod(f"on-{at}", hints, cpu=cpu) for at, (hints, cpu) in enumerate(used)))
    hints = PINNED if case["isPinned"] else SHARED
    outcome = cluster.plan(make_unit("u", [pod("p", hints, cpu=case["request"])]))
    fits = not outcome.refusals
    return {"fits": fits, "error": "" if fits else refused(outcome)}


def ratios(case: Mapping[str, Any]) -> Mapping[str, Any]:
    config = read_config(case["config"])
    annotations, labels = case.get("nodeAnnotations") or {}, case.get("nodeLabels") or {}
    node = replace(make_node("n").build(), extensions=read_shown_ratios(annotations), labels=labels)
    given = case.get("cpuInfo")
    processor = None if given is None else Processor(*given)
    settings = [config.values.get(of) for of in (NormalizationStrategies, OfferStrategies)]
    change = find_change(node, processor, *settings)  # type: ignore[arg-type]
    if isinstance(change, BadRatio):
        return {"error": change.message}
    return {"normalization": change.normalization, "amplification": change.offers}


def nodeslo_render(case: Mapping[str, Any]) -> Mapping[str, Any]:
    config = read_config(case["config"])
    parts = {part: config.values[part] for part in FIELDS if part in config.values}
    extensions = read_bandwidth(case.get("nodeAnnotations") or {})
    node = replace(make_node("n").build(), extensions=extensions)
    labels = case.get("nodeLabels") or {}
    spec = render(SloSettings(parts), labels, bandwidth_of(node))  # type: ignore[arg-type]
    return {"spec": spec, "error": tell_problems(config)}


ADAPTERS = {
    "needs_sync": needs_sync,
    "strategy_for_node": strategy_for_node,
    "amplified_fit": amplified_fit,
    "amplification_ratio": ratios,
    "normalization_ratio": ratios,
    "nodeslo_render": nodeslo_render,
}
