"""No annotation makes an object undecodable: what it says is refused, and the object stays known.

An object that cannot be decoded is left out, and nobody tells its owner why it waits.
"""

import json

import msgspec
import pytest
from tests.fuzz.objects import BOMBS, KINDS, known_keys
from tests.fuzz.samples import samples_of

from koord.domains.registry import KINDS as READ
from koord.domains.registry import make_translator_options
from koord.kube.kind import AnyKind
from koord.kube.store import Store

WRITTEN = [kind for kind in READ if kind.plural in {plural for _, plural, _ in KINDS.values()}]


@pytest.mark.parametrize("kind", WRITTEN, ids=str)
def test_no_annotation_makes_an_object_undecodable(kind: AnyKind) -> None:
    rejected: list[str] = []
    translate = kind.make_translator(make_translator_options()).translate
    store = Store(translate, lambda _, problem: rejected.append(problem))
    sample = samples_of(kind.plural)[-1]
    for number, key in enumerate(known_keys()):
        for at, text in enumerate(BOMBS):
            meta = {**sample["metadata"], "annotations": {key: text}}
            meta |= {"resourceVersion": str(number * len(BOMBS) + at), "uid": f"{number}-{at}"}
            raw = json.dumps({**sample, "metadata": meta})
            store.upsert(msgspec.json.decode(raw, type=kind.wire))
            assert not rejected, (key, text[:80], rejected)
