"""Objects of every kind that plans depend on are read as they were written."""

from __future__ import annotations

import json

import msgspec
import pytest
from tests.fuzz.samples import samples_of

from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.registry import KINDS, make_translator_options
from koord.domains.suspend import JOBS
from koord.kube.decode import Decoder
from koord.kube.kind import AnyKind, TranslatorOptions
from koord.kube.plan_keys import AnySignature
from koord.replay.anonymise import anonymise
from koord.replay.recorded import RecordedCluster
from koord.replay.snapshot_file import SnapshotFile
from koord.replay.values import ValueReader, ValueWriter

OWNERS = tuple(map(make_kind, OwnerKinds.choose().readable))


def translate_samples(kind: AnyKind) -> list[object]:
    options = make_translator_options(TranslatorOptions(plans=AnySignature()))
    page = json.dumps({"items": list(samples_of(kind.plural))}).encode()
    _, decoded = Decoder(kind.wire).decode_page(page)
    translator = kind.make_translator(options)
    return [translator.translate(wire) for wire in decoded]


@pytest.mark.parametrize("kind", dict.fromkeys((*KINDS, *JOBS, *OWNERS)), ids=str)
def test_every_kind_is_read_as_it_was_written(kind: AnyKind) -> None:
    objects = translate_samples(kind)
    assert objects
    writer, reader = ValueWriter(), ValueReader()
    for value in objects:
        document = msgspec.json.decode(msgspec.json.encode(writer.write(value)))
        read = reader.read(document)
        assert read == value
        # Fields that are not compared are there, too.
        assert ValueWriter().write(read) == ValueWriter().write(value)


@pytest.mark.parametrize("kind", dict.fromkeys((*KINDS, *JOBS, *OWNERS)), ids=str)
def test_every_kind_can_be_anonymised(kind: AnyKind) -> None:
    objects = tuple(translate_samples(kind))
    snapshot = SnapshotFile(RecordedCluster(1.7e9, {kind.name: objects}), ())
    (made,) = anonymise(snapshot).snapshot.cluster.values.values()
    assert [type(value) for value in made] == [type(value) for value in objects]
    ValueWriter().write(made)
