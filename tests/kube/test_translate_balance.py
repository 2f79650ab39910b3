"""RebalancePolicies: what a spec means, which one is in force, and what a status remembers."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from koord.core.balance.detectors import AnomalyCondition, DetectorKind
from koord.core.balance.memory import BalancePast, PastMove
from koord.core.balance.model import MoveCaps
from koord.core.balance.policy import BalanceMode, BalancePolicy, find_rival
from koord.core.engine.policies import ObservedPolicy
from koord.kube.translate.balance import (
    read_rounds,
    translate_settings,
    write_detectors,
    write_remembered,
)
from koord.kube.translate.policies import PolicyTranslator
from koord.kube.wire import WireCustomResource

MAPS = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 60}}


def settings_of(**spec: Any) -> Any:
    return translate_settings(json.dumps(MAPS | spec).encode())


def translate(spec: Any, status: Any = None) -> BalancePolicy:
    body = {"metadata": {"name": "p", "uid": "u"}, "spec": spec, "status": status or {}}
    wire = msgspec.json.decode(json.dumps(body).encode(), type=WireCustomResource)
    return PolicyTranslator(translate_settings).translate(wire)


def test_a_policy_that_says_little_moves_nothing_and_has_caps() -> None:
    settings = settings_of()
    assert settings.mode is BalanceMode.ADVISE
    assert not settings.moves
    assert settings.caps == MoveCaps(total=10, per_node=2, per_workload=1)
    assert settings.make_rules({}).pools[0].condition == AnomalyCondition(6, 4, 240.0)
    assert (settings.interval, settings.detectors_kept) == (120.0, 360.0)


def test_times_follow_from_the_interval_or_are_given() -> None:
    assert settings_of(interval="10m").detectors_kept == 1800.0
    settings = settings_of(
        interval="1m",
        detectorCacheTimeout="4m",
        anomalyCondition={"timeout": "90s", "consecutiveAbnormalities": 1},
    )
    assert settings.detectors_kept == 240.0
    assert settings.make_rules({}).pools[0].condition == AnomalyCondition(1, 4, 90.0)


def test_a_dry_run_moves_nothing_whatever_the_mode() -> None:
    assert settings_of(mode="Migrate").moves
    assert not settings_of(mode="Evict", dryRun=True).moves


def test_pools_take_what_is_absent_from_the_policy_and_select_nodes() -> None:
    pool = {
        "name": "gpu",
        "nodeSelector": {"matchLabels": {"gpu": "yes"}},
        "prodLowThresholds": {"cpu": 5},
        "prodHighThresholds": {"cpu": 10},
    }
    rules = settings_of(nodePools=[pool], resourceWeights={"cpu": 3}).make_rules(
        {"a": {"gpu": "yes"}, "b": {}}
    )
    default, gpu = rules.pools
    assert default.nodes is None
    assert gpu.nodes == {"a"}
    assert gpu.thresholds.high == {"cpu": 60}
    assert gpu.thresholds.prod_high == {"cpu": 10}
    assert default.thresholds.prod_high == {}
    assert gpu.weights == {"cpu": 3}


def test_namespaces_and_pods() -> None:
    selector = {"selector": {"matchLabels": {"app": "web"}}}
    settings = settings_of(
        evictableNamespaces={"exclude": ["kube-system"]}, podSelectors=[selector]
    )
    assert settings.allows("a", {"app": "web"})
    assert not settings.allows("a", {"app": "db"})
    assert not settings.allows("kube-system", {"app": "web"})


def test_the_last_valid_spec_stays_in_force() -> None:
    broken = {"lowThresholds": {"cpu": 90}, "highThresholds": {"cpu": 60}}
    assert translate(broken).settings is None
    policy = translate(broken, {"lastValidSpec": MAPS | {"interval": "5m"}})
    assert policy.settings is not None
    assert policy.settings.interval == 300.0
    assert policy.kept == MAPS | {"interval": "5m"}
    assert translate(broken, {"lastValidSpec": broken}).settings is None
    assert translate(MAPS).kept == MAPS


def test_a_status_remembers_all_that_later_rounds_need() -> None:
    settings = settings_of()
    past = BalancePast()
    key = ("default", DetectorKind.NODE, "n1")
    past.detectors.kept = settings.detectors_kept
    past.detectors.mark_bad([key], AnomalyCondition(3), 100.0)
    past.moves.put([PastMove("w", "n1", "n2", 50.0, 2)])
    status = {
        "detectors": [detector.encode() for detector in write_detectors(past)],
        "remembered": [move.encode() for move in write_remembered(past)],
    }
    again = read_rounds(json.loads(json.dumps(status))).past
    assert again.detectors.values() == past.detectors.values()
    assert again.moves.values() == past.moves.values()


def test_a_status_that_cannot_be_read_remembers_nothing() -> None:
    for status in ({"detectors": 7}, {"detectors": [{"pool": "p", "kind": "x", "node": "n"}]}):
        assert not read_rounds(status).past.detectors.values()


def test_the_oldest_policy_that_moves_pods_does_so_alone() -> None:
    def policy(name: str, created: float, mode: str = "Migrate") -> BalancePolicy:
        return ObservedPolicy(name, name, created=created, settings=settings_of(mode=mode))

    old, new, advice = policy("old", 1), policy("new", 2), policy("advice", 0, "Advise")
    assert find_rival(new, [new, advice, old]) == "old"
    assert find_rival(old, [new, advice, old]) == ""
