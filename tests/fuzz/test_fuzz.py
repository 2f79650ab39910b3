"""Fuzzing with a fixed seed, and tests of what it found.

python -m tests.fuzz --inputs 1000000 --seed 1
"""

import json

import msgspec
import pytest
from tests.fuzz.__main__ import used_mib
from tests.fuzz.harness import Fuzzer
from tests.fuzz.samples import SAMPLES, samples_of
from tests.support.laws import examples

from koord.domains.placement import PODS
from koord.domains.quota import QUOTAS
from koord.domains.registry import KINDS, make_translator_options
from koord.kube.decode import Decoder, Poison
from koord.kube.store import Store

INPUTS = examples(4_000)
MOST_MIB = 200
"""All caches together when they are full, and what the allocator keeps."""


@pytest.mark.timeout(600)
def test_mutants_are_translated_or_reported_as_malformed() -> None:
    fuzzer = Fuzzer(seed=0)
    fuzzer.run(INPUTS // 10)
    before = used_mib()
    fuzzer.run(INPUTS)
    assert used_mib() - before < MOST_MIB
    assert INPUTS // 10 < fuzzer.malformed() < INPUTS
    assert fuzzer.seen.keys() == {kind.plural for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_samples_are_valid(kind: object) -> None:
    """Otherwise all mutants would be refused for the same reason."""
    for sample in samples_of(kind.plural):  # type: ignore[attr-defined]
        wire = msgspec.json.decode(json.dumps(sample), type=kind.wire)  # type: ignore[attr-defined]
        kind.make_translator(make_translator_options()).translate(wire)  # type: ignore[attr-defined]
    assert len(SAMPLES["pods"]) == 3


@pytest.mark.parametrize(
    "broken",
    [
        b'{"metadata":{"name":"p","labels":{"a":"\xcc"}}}',
        b'{"metadata":{"name":"p"},"spec":' + b"[" * 9_000 + b"]" * 9_000 + b"}",
        b'{"metadata":{"name":"p","creationTimestamp":"0001-01-01T00:00:00"},"spec":{"containers":[]}}',
    ],
    ids=["UTF-8", "nesting", "time"],
)
def test_malformed_objects_affect_no_others(broken: bytes) -> None:
    good = json.dumps(SAMPLES["pods"][2]).encode()
    reported: list[str] = []
    store = Store(
        PODS.make_translator(make_translator_options()).translate,
        lambda key, _: reported.append(key),
    )
    decoder = Decoder(PODS.wire)
    pages = decoder.decode_page(b'{"metadata":{},"items":[' + broken + b"," + good + b"]}")[1]
    lines = b"\n".join(b'{"type":"ADDED","object":' + one + b"}" for one in (broken, good))
    for items in (pages, [item for _, item in decoder.decode_lines(lines)]):
        assert len(items) == 2
        for item in items:
            assert isinstance(item, Poison | PODS.wire)
            store.upsert(item)  # type: ignore[arg-type]
    assert store.get(("ns", "s")) is not None


def test_an_unreadable_status_counts_as_empty() -> None:
    quota = json.dumps({**SAMPLES["elasticquotas"][0], "status": "?"}).encode()
    translator = QUOTAS.make_translator(make_translator_options())
    for status in (b'"\xed"', b"[1]", b'{"used":"\xed"}'):
        raw = quota.replace(b'"?"', status)
        translator.translate(msgspec.json.decode(raw, type=QUOTAS.wire))
        assert translator.status_of("uid-q") == {}
