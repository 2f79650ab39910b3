"""The section ``loadAware`` of the configuration."""

from __future__ import annotations

import pytest

from koord.core.load.model import Aggregation
from koord.core.load.options import Basis, LoadOptions, LoadThresholds
from koord.domains.load_settings import LoadAwareSettings, read_reported
from koord.kube.leader_report import LeaderReport, decode_report, encode_report
from koord.runtime.settings import InvalidConfiguration, parse_settings

HEAD = "apiVersion: operators.koordinator.sh/v1alpha1\nkind: OperatorConfiguration\n"


def read(section: str) -> LoadOptions:
    settings = parse_settings(f"{HEAD}loadAware: {section}", "file")
    (options,) = settings.of(LoadAwareSettings).plan_options()
    assert isinstance(options, LoadOptions)
    return options


def test_it_is_off_by_default() -> None:
    (options,) = parse_settings(HEAD, "file").of(LoadAwareSettings).plan_options()
    assert options == LoadOptions()
    assert not options.is_on


def test_all_arguments_of_koordinator_are_understood() -> None:
    options = read("""
  enabled: true
  filterExpiredNodeMetrics: false
  enableScheduleWhenNodeMetricsExpired: true
  nodeMetricExpirationSeconds: 300
  resourceWeights: {cpu: 2, memory: 1}
  dominantResourceWeight: 3
  usageThresholds: {cpu: 70, memory: 0}
  prodUsageThresholds: {cpu: 55}
  prodUsageIncludeSys: true
  scoreAccordingProdUsage: true
  estimator: defaultEstimator
  estimatedScalingFactors: {cpu: 80}
  estimatedSecondsAfterPodScheduled: 180
  estimatedSecondsAfterInitialized: 60
  allowCustomizeEstimation: true
  supportedResources: [nvidia.com/gpu]
  aggregated:
    usageThresholds: {cpu: 60}
    usageAggregationType: p95
    usageAggregatedDuration: 5m
    scoreAggregationType: p99
    scoreAggregatedDuration: 10m0s
""")
    assert options == LoadOptions(
        is_on=True,
        thresholds=LoadThresholds(
            {"cpu": 70, "memory": 0}, {"cpu": 55}, {"cpu": 60}, Basis(Aggregation.P95, 300.0)
        ),
        filters_expired=False,
        admits_expired=True,
        expiration=300.0,
        weights={"cpu": 2, "memory": 1},
        dominant=3,
        prod_includes_system=True,
        scores_prod=True,
        score_basis=Basis(Aggregation.P99, 600.0),
        factors={"cpu": 80, "memory": 70},
        after_scheduled=180,
        after_initialized=60,
        is_customizable=True,
        supported=("nvidia.com/gpu",),
    )


def test_empty_thresholds_are_the_default_and_dominant_weight_replaces_those_of_resources() -> None:
    options = read("{enabled: true, usageThresholds: {}, dominantResourceWeight: 1}")
    assert options.thresholds.plain == {"cpu": 65, "memory": 95}
    assert options.weights == {}
    assert options.scores


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("{usageThresholds: {cpu: 101}}", "loadAware.usageThresholds.cpu: 101"),
        ("{usageThresholds: {cpu: -1}}", "loadAware.usageThresholds.cpu: -1"),
        ("{prodUsageThresholds: {cpu: 200}}", "loadAware.prodUsageThresholds.cpu: 200"),
        ("{nodeMetricExpirationSeconds: 0}", "loadAware.nodeMetricExpirationSeconds: 0"),
        ("{estimatedScalingFactors: {cpu: 110}}", "loadAware.estimatedScalingFactors.cpu: 110"),
        ("{resourceWeights: {cpu: 0}}", "loadAware.resourceWeights.cpu: 0"),
        ("{dominantResourceWeight: 101}", "loadAware.dominantResourceWeight: 101"),
        ("{resourceWeights: {nvidia.com/gpu: 1}}", "must be in estimatedScalingFactors"),
        ("{estimator: mine}", "loadAware.estimator: 'mine'"),
        ("{aggregated: {usageAggregationType: p77}}", "loadAware.aggregated.usageAggregationType"),
        ("{aggregated: {usageAggregatedDuration: x}}", "usageAggregatedDuration: 'x'"),
        ("{thresholds: {}}", "loadAware.thresholds: no such field"),
    ],
)
def test_invalid_arguments_are_named_with_their_values(section: str, problem: str) -> None:
    with pytest.raises(InvalidConfiguration) as raised:
        read(section)
    assert problem in str(raised.value)


def test_commands_plan_with_the_settings_that_the_leader_reports() -> None:
    section = """
  enabled: true
  usageThresholds: {cpu: 70}
  aggregated: {usageThresholds: {cpu: 60}, usageAggregationType: p95, usageAggregatedDuration: 5m}
"""
    settings = parse_settings(f"{HEAD}loadAware: {section}", "file").of(LoadAwareSettings)
    report = decode_report(encode_report(LeaderReport(load=settings.as_reported)))
    assert report is not None
    assert read_reported(report.load).options == settings.options
    assert settings.options.is_on


@pytest.mark.parametrize("section", [None, {}, {"enabled": True, "later": 1}, {"enabled": 3}])
def test_settings_of_another_release_are_not_guessed(section: dict[str, object] | None) -> None:
    assert read_reported(section).options == LoadOptions()
