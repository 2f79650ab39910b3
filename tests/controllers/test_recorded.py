"""Numbers of quotas in annotations are written again only where they differ in value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from koord.controllers.status_publishing import QuotaPublisher
from koord.kube.objects import ref_of_quota
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.wire import WireCustomResource

if TYPE_CHECKING:
    from koord.kube.objects import ObjectRef
    from koord.kube.status import StatusPatch

IN_USE = "operators.koordinator.sh/in-use"
PREFIX = "quota.scheduling.koordinator.sh/"


class Writer:
    """Keeps what was said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def submit(self, _: ObjectRef, statement: StatusPatch) -> None:
        self.said.append(statement.fields)


@pytest.mark.parametrize(
    ("present", "amounts", "said"),
    [
        ({}, {"runtime": {"cpu": 500}}, [{"runtime": '{"cpu":"500m"}'}]),
        (
            {"runtime": '{"cpu":"0.5","memory":"0"}', "own": "x"},
            {"runtime": {"cpu": 500}},
            [{"runtime": '{"cpu":"0.5","memory":"0"}'}],
        ),
        (
            {"runtime": '{"cpu":"0.5"}', "request": "{}"},
            {"runtime": {"cpu": 501}, "request": {"cpu": 0}},
            [{"runtime": '{"cpu":"501m"}', "request": '{"cpu":"0"}'}],
        ),
        ({"runtime": '{"cpu":"1"}'}, {}, [{}]),
        ({"runtime": "nonsense"}, {"runtime": {"cpu": 1}}, [{"runtime": '{"cpu":"1m"}'}]),
        ({}, {}, []),
    ],
)
def test_what_stands_there_already_is_said_in_its_own_words(present, amounts, said) -> None:
    translator, writer = QuotaTranslator(), Writer()
    annotations = {f"{PREFIX}{name}": text for name, text in present.items()}
    body = {"metadata": {"name": "q", "uid": "u", "annotations": annotations}}
    wire = msgspec.json.decode(json.dumps(body), type=WireCustomResource)
    publisher = QuotaPublisher(writer, ref_of_quota, writer, writer, translator)  # type: ignore[arg-type]
    publisher.write_annotations(translator.translate(wire), amounts)
    expected = [{f"{PREFIX}{name}": text for name, text in one.items()} for one in said]
    assert writer.said == expected


@pytest.mark.parametrize(
    ("present", "is_used", "is_terminating", "said"),
    [
        ([], True, False, [[IN_USE]]),
        ([], False, False, []),
        ([], True, True, []),
        ([IN_USE], True, False, []),
        ([IN_USE], True, True, []),
        ([IN_USE], False, False, [[]]),
        ([IN_USE, "example.com/own"], False, True, [[]]),
        (["example.com/own"], True, False, [[IN_USE]]),
    ],
)
def test_the_finalizer_follows_the_use(present, is_used, is_terminating, said) -> None:
    translator, writer = QuotaTranslator(), Writer()
    meta = {"name": "q", "uid": "u", "finalizers": present}
    deleted = {"deletionTimestamp": "2030-01-01T00:00:00Z"} if is_terminating else {}
    body = {"metadata": {**meta, **deleted}}
    wire = msgspec.json.decode(json.dumps(body), type=WireCustomResource)
    publisher = QuotaPublisher(writer, ref_of_quota, writer, writer, translator)  # type: ignore[arg-type]
    publisher.write_finalizer(translator.translate(wire), is_used=is_used)
    assert writer.said == [{"finalizers": one} for one in said]
