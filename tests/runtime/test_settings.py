"""The configuration file: what is accepted, what is rejected, and the messages."""

import pytest

from koord.core.engine.scoring import Scoring, ScoringStrategy, Weighed
from koord.core.model.gangs import MatchPolicy
from koord.domains.registry import make_plugins
from koord.runtime.address import Address, parse_address
from koord.runtime.logs import LogFormat
from koord.runtime.settings import (
    InvalidConfiguration,
    Settings,
    load_settings,
    parse_settings,
)

HEAD = "apiVersion: operators.koordinator.sh/v1alpha1\nkind: OperatorConfiguration\n"


def test_minimal_configuration_has_the_defaults():
    assert parse_settings(HEAD, "file") == Settings()


def test_defaults_listen_on_this_machine_only():
    assert Settings().http_address == Address("127.0.0.1", 8080, or_free=True)


def test_default_scoring_is_that_of_the_planner():
    assert Settings().make_scoring() == Scoring()


def test_further_scores_are_off_by_default():
    assert Settings().make_scoring().plus == {}
    assert not Settings().scarce_rules.resources


@pytest.mark.parametrize(("compat", "by_names"), [("none", False), ("koordinator", True)])
def test_scarce_resources_are_scored_by_names_as_koordinator_does(compat, by_names):
    text = f"{HEAD}compat: {compat}\nscarceResources: {{resources: [nvidia.com/gpu], weight: 3}}"
    rules = parse_settings(text, "file").scarce_rules
    assert (rules.resources, rules.weight) == (frozenset({"nvidia.com/gpu"}), 3)
    assert (rules.class_of is None) == by_names


def test_every_field_is_read():
    settings = parse_settings(
        HEAD
        + """
schedulerName: other
scoring:
  cpu: {type: MostAllocated}
  example.com/gpu: {type: LeastAllocated, weight: 7}
resourceFitPlus: {resources: {cpu: {type: LeastAllocated}}, weight: 2}
scarceResources: {resources: [nvidia.com/gpu, example.com/gpu], weight: 3}
httpAddress: 0.0.0.0:9000
bindConcurrency: 8
defaultWaitSeconds: 30
defaultMatchPolicy: only-waiting
keepRoomSeconds: 120
elasticQuota: {monitorAllQuotas: true, delayEvictTime: 1m30s, enableRuntimeQuota: false,
  guaranteeUsage: true}
logFormat: json
""",
        "file",
    )
    assert settings.scheduler_name == "other"
    assert settings.make_scoring().weights == {
        "cpu": Weighed(ScoringStrategy.MOST_ALLOCATED, 1),
        "example.com/gpu": Weighed(ScoringStrategy.LEAST_ALLOCATED, 7),
    }
    assert settings.make_scoring().plus == {"cpu": Weighed(ScoringStrategy.LEAST_ALLOCATED)}
    assert settings.make_scoring().plus_weight == 2
    plugins = make_plugins(settings.scarce_rules)
    assert "scarce-resources" in [plugin.name for plugin in plugins]
    assert settings.http_address == Address("0.0.0.0", 9000)  # noqa: S104 - only parsed
    assert settings.bind_concurrency == 8
    assert settings.default_wait_seconds == 30
    assert settings.default_match_policy is MatchPolicy.ONLY_WAITING
    assert settings.keep_room_seconds == 120
    assert settings.reclaims_after is None, "there is no share to compare with"
    assert settings.elastic_quota.delay_evict_time == 90
    assert settings.elastic_quota.revoke_pod_interval == 1
    assert not settings.elastic_quota.enable_runtime_quota
    assert settings.elastic_quota.guarantee_usage
    assert settings.log_format is LogFormat.JSON


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schedulerNam: a", "schedulerNam: no such field"),
        ("scheduler_name: a", "scheduler_name: no such field"),
        ("schedulerName: A b", "schedulerName: 'A b' "),
        ("schedulerName: " + "a" * 254, "schedulerName: 'aaa"),
        ("scoring: {cpu: {type: Most}}", "scoring.cpu.type: 'Most' should be 'LeastAllocated' or"),
        ("scoring: {cpu: {type: MostAllocated, weight: 0}}", "scoring.cpu.weight: 0 should be"),
        ("scoring: {cpu: {weight: 1}}", "scoring.cpu.type: "),
        ("resourceFitPlus: {weight: 101}", "resourceFitPlus.weight: 101 should be"),
        ("resourceFitPlus: {cpu: {type: MostAllocated}}", "resourceFitPlus.cpu: no such field"),
        ("scarceResources: [nvidia.com/gpu]", "scarceResources: ['nvidia.com/gpu'] should be"),
        ("scarceResources: {resources: nvidia.com/gpu}", "scarceResources.resources: 'nvidia."),
        ("httpAddress: 8080", "httpAddress: 8080 is not ADDRESS:PORT"),
        ("httpAddress: localhost:80", "httpAddress: 'localhost:80' 'localhost' does not appear"),
        ("httpAddress: 127.0.0.1:65536", "httpAddress: '127.0.0.1:65536' is not ADDRESS:PORT"),
        ("bindConcurrency: '8'", "bindConcurrency: '8' should be a valid integer"),
        ("bindConcurrency: true", "bindConcurrency: True should be a valid integer"),
        ("bindConcurrency: 0", "bindConcurrency: 0 should be greater than or equal to 1"),
        ("defaultWaitSeconds: 0", "defaultWaitSeconds: 0 should be greater"),
        ("keepRoomSeconds: -1", "keepRoomSeconds: -1 should be greater"),
        ("defaultMatchPolicy: never", "defaultMatchPolicy: 'never' should be"),
        ("elasticQuota: {delayEvictTime: 5}", "elasticQuota.delayEvictTime: 5 is not a duration"),
        ("elasticQuota: {delayEvictTime: -1s}", "elasticQuota.delayEvictTime: -1.0 should be"),
        ("elasticQuota: {revokePodInterval: 0s}", "elasticQuota.revokePodInterval: 0.0 should"),
        ("elasticQuota: {monitorAllQuotas: yes please}", "elasticQuota.monitorAllQuotas: 'yes"),
        ("elasticQuota: {reclaim: off please}", "elasticQuota.reclaim: 'off please' should be"),
        ("elasticQuota: {reclaim: null}", "elasticQuota.reclaim: None should be"),
        (
            "elasticQuota: {reclaim: true, monitorAllQuotas: false}",
            "elasticQuota: {'monitorAllQuotas': False, 'reclaim': True} reclaim and",
        ),
        ("logFormat: yaml", "logFormat: 'yaml' should be 'json' or 'text'"),
    ],
)
def test_invalid_field_is_named_with_its_value(text, problem):
    with pytest.raises(InvalidConfiguration) as refused:
        parse_settings(HEAD + text, "file")
    assert len(refused.value.problems) == 1
    assert refused.value.problems[0].startswith(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "it is not one YAML mapping"),
        ("- a", "it is not one YAML mapping"),
        ("a: [", "it is not YAML: "),
        (b"\xff\xfe\xfd", "it is not YAML: "),
        (HEAD + "---\n" + HEAD, "it is not YAML: "),
        ("kind: OperatorConfiguration", "apiVersion: must be given"),
        ("apiVersion: operators.koordinator.sh/v1alpha1", "kind: must be given"),
        (HEAD.replace("v1alpha1", "v2"), "apiVersion: 'operators.koordinator.sh/v2' should be"),
        (HEAD.replace("OperatorC", "C"), "kind: 'Configuration' should be"),
    ],
)
def test_other_documents_are_rejected(text, problem):
    with pytest.raises(InvalidConfiguration) as refused:
        parse_settings(text, "file")
    assert refused.value.problems[0].startswith(problem)


def test_all_problems_are_reported_together():
    with pytest.raises(InvalidConfiguration) as refused:
        parse_settings(HEAD + "logFormat: yaml\nbindConcurrency: 0\nnope: 1", "/etc/koord.yaml")
    fields = sorted(problem.partition(":")[0] for problem in refused.value.problems)
    assert fields == ["bindConcurrency", "logFormat", "nope"]
    assert str(refused.value).startswith("/etc/koord.yaml cannot be used:\n  ")


def test_configuration_file_is_loaded(tmp_path):
    path = tmp_path / "koord.yaml"
    path.write_text(HEAD + "bindConcurrency: 5", encoding="utf-8")
    assert load_settings(path).bind_concurrency == 5


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(InvalidConfiguration, match=r"none\.yaml cannot be used:\n  No such file"):
        load_settings(tmp_path / "none.yaml")


def test_endless_file_is_rejected(tmp_path):
    path = tmp_path / "koord.yaml"
    path.write_text("#" * (1 << 17), encoding="utf-8")
    with pytest.raises(InvalidConfiguration, match="larger than 65536 bytes"):
        load_settings(path)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("[::1]:8080", Address("::1", 8080)),
        ("::1:8080", Address("::1", 8080)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":80", "1.2.3.4", "1.2.3.4:", "1.2.3.4:²", "[::1:80", None])
def test_invalid_addresses(text):
    with pytest.raises(ValueError, match=r"ADDRESS:PORT|IPv4 or IPv6"):
        parse_address(text)


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", 120),
        ("compat: koordinator", None),
        ("elasticQuota: {reclaim: false}", None),
        ("elasticQuota: {monitorAllQuotas: false}", None),
        ("elasticQuota: {monitorAllQuotas: true}\ncompat: koordinator", 120),
        ("elasticQuota: {reclaim: true, monitorAllQuotas: true}\ncompat: koordinator", 120),
        ("elasticQuota: {enableRuntimeQuota: false}", None),
        ("elasticQuota: {delayEvictTime: 3s, guaranteeUsage: true}", 3),
    ],
)
def test_over_use_is_reclaimed_unless_it_is_turned_off(text, after):
    assert parse_settings(f"{HEAD}\n{text}", "file").reclaims_after == after
