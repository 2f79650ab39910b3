"""Numbers of quotas in annotations are written again only where they differ in value."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from tests.builders import make_quota
from tests.cluster import make_cluster

from koord.controllers.quota_status import QuotaStatusPolicy, _make_finalizers
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.wire import WireCustomResource

IN_USE = "operators.koordinator.sh/in-use"
PREFIX = "quota.scheduling.koordinator.sh/"


@pytest.mark.parametrize(
    ("present", "amounts", "said"),
    [
        ({}, {"runtime": {"cpu": 500}}, {"runtime": '{"cpu":"500m"}'}),
        (
            {"runtime": '{"cpu":"0.5","memory":"0"}', "own": "x"},
            {"runtime": {"cpu": 500}},
            {"runtime": '{"cpu":"0.5","memory":"0"}'},
        ),
        (
            {"runtime": '{"cpu":"0.5"}', "request": "{}"},
            {"runtime": {"cpu": 501}, "request": {"cpu": 0}},
            {"runtime": '{"cpu":"501m"}', "request": '{"cpu":"0"}'},
        ),
        ({"runtime": '{"cpu":"1"}'}, {}, {}),
        ({"runtime": "nonsense"}, {"runtime": {"cpu": 1}}, {"runtime": '{"cpu":"1m"}'}),
        ({}, {}, {}),
    ],
)
def test_what_stands_there_already_is_said_in_its_own_words(
    monkeypatch, present, amounts, said
) -> None:
    translator = QuotaTranslator()
    annotations = {f"{PREFIX}{name}": text for name, text in present.items()}
    body = {"metadata": {"name": "q", "uid": "u", "annotations": annotations}}
    wire = msgspec.json.decode(json.dumps(body), type=WireCustomResource)
    quota = translator.translate(wire)
    policy = QuotaStatusPolicy(make_cluster().state, None, translator)  # type: ignore[arg-type]
    monkeypatch.setattr("koord.controllers.quota_status.recorded", lambda _: amounts)
    made = policy._make_annotations("/q", quota, object())  # type: ignore[arg-type]
    assert made == {f"{PREFIX}{name}": text for name, text in said.items()}


@pytest.mark.parametrize(
    ("present", "is_used", "is_terminating", "said"),
    [
        ([], True, False, [IN_USE]),
        ([], False, False, []),
        ([], True, True, []),
        ([IN_USE], True, False, [IN_USE]),
        ([IN_USE], True, True, [IN_USE]),
        ([IN_USE], False, False, []),
        ([IN_USE], False, True, []),
    ],
)
def test_the_finalizer_follows_the_use(present, is_used, is_terminating, said) -> None:
    quota = replace(make_quota("q"), is_terminating=is_terminating)
    assert _make_finalizers(quota, present, is_used=is_used) == said
