"""How settings of queues are written, read, and kept while a later value is wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import GPU, make_pod
from tests.cluster import make_cluster

from koord.api.annotations import QUEUE
from koord.api.parse import InvalidObject
from koord.api.queue import QueueSpec, encode_queue, values_of
from koord.core.queue.plugin import Queues
from koord.core.quota.validation import check_spec
from koord.kube.translate.quotas import QuotaTranslator, encode_last_valid, translate_quota
from koord.kube.wire import WireCustomResource
from koord.runtime.settings import InvalidConfiguration, parse_settings

NOW = 1_000_000.0
HEAD = {"apiVersion": "operators.koordinator.sh/v1alpha1", "kind": "OperatorConfiguration"}
KEY = "operators.koordinator.sh/queue"
COUNT = st.integers(0, 2**31 - 1)
TIME = st.integers(1, 10 * 365 * 24 * 3600).map(lambda seconds: f"{seconds}s")
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "maxRunning": COUNT,
        "maxRunningPerUser": COUNT,
        "maxPending": COUNT,
        "maxPendingPerUser": COUNT,
        "stop": st.sampled_from(["None", "Hold", "HoldAndDrain"]),
        "maxRunTime": TIME,
        "defaultRunTime": TIME,
        "enforceDefault": st.booleans(),
        "userFairness": st.sampled_from(["None", "Decayed"]),
        "userWeights": st.dictionaries(st.text(min_size=1, max_size=9), st.integers(1, 100)),
    },
)


def make_wire(text: str, **status: Any) -> WireCustomResource:
    meta = {"name": "q", "namespace": "n", "uid": "u", "annotations": {KEY: text}}
    spec = {"max": {"cpu": "1"}}
    manifest = {"metadata": meta, "spec": spec, "status": status}
    return msgspec.json.decode(msgspec.json.encode(manifest), type=WireCustomResource)


@given(SETTINGS)
def test_what_is_kept_says_the_same(settings: dict[str, Any]) -> None:
    values = translate_quota(make_wire(json.dumps(settings))).queue
    again = QUEUE.read({KEY: encode_queue(values)})
    assert not isinstance(again, InvalidObject)
    assert again is not None
    assert values_of(again) == values


def test_the_last_valid_settings_stay_over_a_restart() -> None:
    valid = translate_quota(make_wire('{"maxRunning": 3, "stop": "Hold"}'))
    kept = encode_last_valid(valid)
    broken = QuotaTranslator().translate(make_wire("policy: Strict", lastValidSpec=kept))
    assert broken.last_valid is not None
    assert broken.last_valid.queue == {"max_running": 3, "stop": "Hold"}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"maxRunning": -1}', "maxRunning"),
        ('{"maxRunning": "3"}', "maxRunning"),
        ('{"maxPending": 1e99}', "maxPending"),
        ('{"policy": "strict"}', "policy"),
        ('{"reserveDepth": 17}', "reserveDepth"),
        ('{"maxRunTime": "0s"}', "maxRunTime"),
        ('{"protectAfter": "soon"}', "protectAfter"),
        ('{"maxHold": "99999999h"}', "maxHold"),
        ('{"maxIdleShare": 101}', "maxIdleShare"),
        ('{"userWeights": {"ann": 0}}', "userWeights"),
        ('{"userWeights": {"": 1}}', "userWeights"),
        ('{"ageTiers": 10000000}', "ageTiers"),
        ('{"enforceDefault": "yes"}', "enforceDefault"),
        ('{"maxRuning": 1}', "maxRuning"),
        ('{"maxRunning": 3, "ageStep": "0s"}', "ageStep"),
        ('["Strict"]', ""),
        ("[" * 9999, ""),
    ],
)
def test_what_is_wrong_is_said_with_its_place_and_value(text: str, where: str) -> None:
    assert isinstance(QUEUE.read({KEY: text}, unknown_fields="forbid"), InvalidObject)
    quota = translate_quota(make_wire(text))
    assert quota.queue == {}
    problem = check_spec(quota)
    assert problem is not None
    assert where in problem.text
    assert KEY in problem.text


VALID: dict[str, Any] = {
    "maxPending": 5, "maxPendingPerUser": 4, "maxRunning": 3, "maxRunningPerUser": 2,
    "stop": "Hold", "maxRunTime": "2h", "defaultRunTime": "1h", "enforceDefault": True,
    "userFairness": "Decayed", "userWeights": {"ann": 2}, "policy": "Strict",
    "protectAfter": "1m", "reserveDepth": 2, "reserveQueues": 3,
    "backfillOn": "Stated", "shortLimit": "2m",
    "maxIdleShare": 7, "maxHold": "3h", "holdCoolDown": "5m", "preferWait": "9m",
}  # fmt: skip
"""A value other than the default of each setting of which there are rules, as far as known here."""
ABSURD = (
    "-1", "1.5", "1e99", str(2**31), str(2**63), "1" * 400, "true", "false", '"x"', '""', "[]",
    "{}", "0", '"0s"', '"-5m"', '"1y"', '"99999999h"', '"' + "9" * 5000 + 'h"', '[["a"]]',
    '{"a": {"b": 1}}', '{"a": -1}', '"None "', "NaN", "-Infinity", '"\\ud800"', "1 2", "",
)  # fmt: skip
NOT_JSON = {"NaN", "-Infinity", '"\\ud800"', "1 2", ""}
MEANT = {
    "maxPending": {"0"}, "maxPendingPerUser": {"0"}, "maxRunning": {"0"}, "maxIdleShare": {"0"},
    "maxRunningPerUser": {"0"}, "enforceDefault": {"true", "false"}, "userWeights": {"{}"},
    "protectAfter": {'"0s"'}, "shortLimit": {'"0s"'}, "maxHold": {'"0s"'}, "preferWait": {'"0s"'},
    "holdCoolDown": {'"0s"'}, "ageTiers": {"0"}, "maxWait": {'"0s"'},
    "maxWaitPriority": {"0", "-1"}, "maxGpuHoursPerMonth": {"0"},
}  # fmt: skip
"""What looks absurd and means something."""
SETTING_NAMES = [str(field.alias) for field in QueueSpec.model_fields.values()]


@pytest.mark.parametrize("setting", SETTING_NAMES)
def test_each_absurd_value_is_named_with_its_path_and_the_last_valid_settings_stay(
    setting: str,
) -> None:
    valid = translate_quota(make_wire(json.dumps(VALID)))
    cluster = make_cluster(1).quotas(valid)
    queues = cluster.state.plugin(Queues)
    cluster.state.refresh()
    before = queues.settings_of("q")
    assert (before.policy, before.max_pending, before.prefer_wait) == ("Strict", 5, 540)
    kept = encode_last_valid(valid)
    for value in ABSURD:
        if value in MEANT.get(setting, ()):
            continue
        text = f'{{"{setting}": {value}}}'
        quota = QuotaTranslator().translate(make_wire(text, lastValidSpec=kept))
        problem = check_spec(quota)
        assert problem is not None, text
        assert f"metadata.annotations[{KEY}]" in problem.text
        assert value in NOT_JSON or f"].{setting}" in problem.text, problem.text
        is_inner = setting == "userWeights" and value.startswith("{")
        shown = value[6:-1] if is_inner else value[:19].replace("1e99", "1e+99")
        assert shown in problem.text, problem.text
        assert len(problem.text) < 400
        cluster.quotas(quota)
        cluster.state.refresh()
        assert queues.settings_of("q") == before, text


@pytest.mark.parametrize("setting", SETTING_NAMES)
def test_no_absurd_value_gets_into_the_configuration(setting: str) -> None:
    for value in ABSURD:
        if value in NOT_JSON or value in MEANT.get(setting, ()):
            continue
        document = json.dumps({**HEAD, "queue": {setting: json.loads(value)}})
        with pytest.raises(InvalidConfiguration, match=f"queue.{setting}"):
            parse_settings(document, "config.yaml")


@pytest.mark.parametrize("setting", SETTING_NAMES)
def test_what_looks_absurd_and_means_something_is_planned_with(setting: str) -> None:
    for value in MEANT.get(setting, ()):
        quota = translate_quota(make_wire(f'{{"{setting}": {value}}}'))
        assert check_spec(quota) is None, (setting, value)
        cluster = make_cluster(1).quotas(replace(quota, max={GPU: 99}))
        cluster.pods(*(make_pod(f"p{at}").gpu(8).quota("q").created(NOW + at) for at in range(3)))
        for step in range(4):
            cluster.state.advance(NOW + 100 * step)
            cluster.step(NOW + 100 * step)
            due = cluster.state.next_due()
            assert due is None or due > NOW + 100 * step, "nothing is due again and again"
