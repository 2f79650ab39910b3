"""How settings of queues are written, read, and kept while a later value is wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koord.api.annotations import QUEUE
from koord.api.parse import InvalidObject
from koord.api.queue import encode_queue, values_of
from koord.core.quota.validation import check_spec
from koord.kube.translate.quotas import QuotaTranslator, encode_last_valid, translate_quota
from koord.kube.wire import WireCustomResource

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
